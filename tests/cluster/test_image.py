# SPDX-License-Identifier: MIT
"""
The container image, of the commit that is checked out, run by runc.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import artefacts
from tests.cluster.artefacts import must, run, script


@pytest.fixture(scope="module")
def image() -> Path:
    return artefacts.image()


@pytest.fixture(scope="module")
def bundle(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an engine unpacks of it."""
    at = tmp_path_factory.mktemp("bundle")
    (at / "oci").mkdir()
    must("tar", "-xf", image, "-C", at / "oci")
    (named,) = json.loads((at / "oci/index.json").read_text())["manifests"]
    name = named["annotations"]["org.opencontainers.image.ref.name"]
    assert name.startswith("localhost/cgpu:")
    must("umoci", "unpack", "--image", f"{at}/oci:{name}", at / "bundle")
    return at / "bundle"


@contextmanager
def container(bundle: Path, tmp_path: Path, *words: str, user: int = 0) -> Iterator[list[str]]:
    """The command that runs a container of the image with the host's network, as pods have it."""
    config = json.loads((bundle / "config.json").read_text())
    process, linux = config["process"], config["linux"]
    process |= {"args": [*process["args"], *words], "terminal": False, "rlimits": []}
    process["user"] = {"uid": user, "gid": user}
    if words[0].startswith("/"):
        process["args"] = [*words]
    if user:
        process["capabilities"] = {}
        config["root"]["readonly"] = True
    config["root"]["path"] = str(bundle / "rootfs")
    linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] != "network"]
    linux.pop("resources", None)
    own = tmp_path / "bundle"
    own.mkdir(exist_ok=True)
    (own / "config.json").write_text(json.dumps(config))
    name = f"cgpu-image-{os.getpid()}"
    try:
        yield ["runc", "run", "-b", str(own), name]
    finally:
        run("runc", "delete", "-f", name)


def test_the_same_commit_gives_the_same_bytes(image: Path, tmp_path: Path) -> None:
    script("make-image", "-f", artefacts.files(), "-o", tmp_path)
    (again,) = tmp_path.glob("cgpu-*.oci.tar")
    assert again.read_bytes() == image.read_bytes()


def test_it_runs_what_a_cluster_needs_of_it(bundle: Path, tmp_path: Path) -> None:
    labels = json.loads((bundle / "config.json").read_text())["annotations"]
    assert labels["org.opencontainers.image.revision"] == must("git", "rev-parse", "HEAD").strip()
    with container(bundle, tmp_path, "--version") as command:
        version = labels["org.opencontainers.image.version"]
        assert must(*command) == f"cgpu {version}\n"
    with container(bundle, tmp_path, "exporter", "--once", user=65534) as command:
        assert "\ncgpu_up 0.0\n" in must(*command)
    code = "import pycgpu.kubernetes.device_plugin, pycgpu.kubernetes.dra"
    words = ("/usr/lib/cgpu/python/bin/python", "-I", "-c", code)
    with container(bundle, tmp_path, *words) as command:
        assert must(*command) == ""
