# SPDX-License-Identifier: MIT
"""
The container image, run by runc as the chart runs it: the extender, and what installs on a node.

It is of the commit that is checked out, as scripts/make-image builds it. The node is a Debian that
has Python and nothing else.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import REPOSITORY, ControlPlane, free_ports
from tests.cluster.objects import MANIFESTS, manifests, pod
from tests.cluster.waiting import until

INSTALL = "/usr/lib/cgpu/install-on-node"
BUILD_S = 1800


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, timeout=BUILD_S, check=False, **options
    )


def must(*words: object, **options: Any) -> str:
    done = run(*words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artefacts that the image carries, built once."""
    made = tmp_path_factory.mktemp("files")
    version = re.findall(r'__version__ = "(.*)"', must("git", "show", "HEAD:pycgpu/__init__.py"))[0]
    must(REPOSITORY / "scripts/make-installer", "-v", version, "-o", made, cwd=REPOSITORY)
    must(REPOSITORY / "scripts/make-packages", "-o", made, "deb", cwd=REPOSITORY)
    return made


def build(files: Path, out: Path) -> Path:
    must(REPOSITORY / "scripts/make-image", "-f", files, "-o", out, cwd=REPOSITORY)
    (made,) = out.glob("cgpu-*.oci.tar")
    return made


@pytest.fixture(scope="module")
def image(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(files, tmp_path_factory.mktemp("image"))


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
def container(
    bundle: Path, tmp_path: Path, *words: str, user: int = 0, mounts: dict[Path, str] | None = None
) -> Iterator[list[str]]:
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
    for source, target in (mounts or {}).items():
        where = {"destination": target, "source": str(source), "type": "bind"}
        config["mounts"].append({**where, "options": ["rbind"]})
    own = tmp_path / "bundle"
    own.mkdir(exist_ok=True)
    (own / "config.json").write_text(json.dumps(config))
    name = f"cgpu-image-{os.getpid()}"
    try:
        yield ["runc", "run", "-b", str(own), name]
    finally:
        run("runc", "delete", "-f", name)


def test_the_same_commit_gives_the_same_bytes(files: Path, image: Path, tmp_path: Path) -> None:
    assert build(files, tmp_path).read_bytes() == image.read_bytes()


def test_it_runs_what_a_cluster_needs_of_it(bundle: Path, tmp_path: Path) -> None:
    labels = json.loads((bundle / "config.json").read_text())["annotations"]
    assert labels["org.opencontainers.image.revision"] == must("git", "rev-parse", "HEAD").strip()
    with container(bundle, tmp_path, "--version") as command:
        version = labels["org.opencontainers.image.version"]
        assert must(*command) == f"cgpu {version}\n"
    with container(bundle, tmp_path, "exporter", "--once", user=65534) as command:
        assert "\ncgpu_up 0.0\n" in must(*command)
    for name in ("device-plugin", "dra-driver"):
        with container(bundle, tmp_path, name, "--node", "n", "--api", "http://[") as command:
            said = run(*command)
            # It came past its imports: what is missing is a cluster.
            assert said.returncode and "Traceback" not in said.stderr and "grpc" not in said.stderr


def test_the_extender_answers_a_scheduler(
    bundle: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """With the rights, the settings and the user that the chart gives it."""
    api = control_plane
    api.apply(*manifests(api, MANIFESTS / "device-plugin.yaml"))
    made = list(manifests(api, MANIFESTS / "scheduler.yaml"))
    api.apply(*(one for one in made if one["kind"] != "Deployment"))
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    (extender,) = (
        one
        for one in deployment["spec"]["template"]["spec"]["containers"]
        if one["name"] == "extender"
    )
    (settings,) = (one for one in made if one["kind"] == "ConfigMap")
    config = tmp_path / "config"
    config.mkdir()
    for name, text in settings["data"].items():
        (config / name).write_text(text)
    (config / "token").write_text(api.token("scheduler", "cgpu"))
    shutil.copy(api.directory / "ca.crt", config)
    config.chmod(0o755)
    (port,) = free_ports(1)
    words = [
        *extender["args"],
        *("--api", f"https://127.0.0.1:{api.port}", "--listen", f"127.0.0.1:{port}"),
        *("--token", "/config/token", "--ca", "/config/ca.crt"),
    ]
    user = extender["securityContext"]["runAsUser"]
    (bundle / "rootfs/config").mkdir(exist_ok=True)
    log = tmp_path / "log"
    with (
        container(bundle, tmp_path, *words, user=user, mounts={config: "/config"}) as command,
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out) as process,
    ):
        try:
            until(lambda: log.read_text().endswith("serving\n"), "the extender", 120)
            asking = pod("one", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})
            asking["metadata"]["uid"] = "u"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            question = {"Pod": asking, "NodeNames": ["none"]}
            connection.request("POST", "/filter", json.dumps(question))
            answer = json.loads(connection.getresponse().read())
        finally:
            process.kill()
    assert answer["FailedNodes"] == {"none": "no card under cgpu's control"}, log.read_text()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root as a node's, without cgpu."""
    root = tmp_path_factory.mktemp("node") / "root"
    must("mmdebstrap", "--quiet", "--include=python3,python3-venv", "trixie", root)
    return root


def test_a_node_is_installed_once_and_its_cgpu_speaks_grpc(
    bundle: Path, node: Path, tmp_path: Path
) -> None:
    """No index is asked: nothing is fetched that is not in the image."""
    (bundle / "rootfs/host").mkdir(exist_ok=True)

    def install() -> subprocess.CompletedProcess[str]:
        words = (INSTALL, "/host", "--agent", "--no-runtimes")
        # The node's own: of a pod with the host's processes this is its /proc.
        mounts = {node: "/host", Path("/proc"): "/host/proc"}
        with container(bundle, tmp_path, *words, mounts=mounts) as command:
            return run("unshare", "--net", *command)

    first = install()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "installed; `cgpu doctor`" in first.stdout
    for program in ("/usr/local/bin/cgpu --version", "/opt/cgpu/bin/python -c 'import grpc'"):
        must("chroot", node, "/bin/sh", "-c", program)
    again = install()
    assert (again.returncode, again.stdout) == (0, f"the node has {version_on(node)}\n")
    assert not (node / "var/cache/cgpu-image").exists()
    package = node / "usr/lib/cgpu/python"
    package.mkdir(parents=True, exist_ok=True)
    link = node / "usr/local/bin/cgpu"
    link.unlink()
    link.write_text("#!/bin/sh\necho cgpu 0.0.9\n")
    link.chmod(0o755)
    refused = install()
    assert refused.returncode == 1
    assert "the node has cgpu 0.0.9 by a package" in refused.stderr


def version_on(node: Path) -> str:
    return must("chroot", node, "/usr/local/bin/cgpu", "--version").strip()
