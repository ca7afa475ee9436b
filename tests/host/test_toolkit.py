# SPDX-License-Identifier: MIT
"""
NVIDIA's container toolkit itself, built from its source: `nvidia-ctk` over files of which
containerd says what it has, and `nvidia-container-runtime`, which looks for runc and finds ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycgpu.install import doctor, registration
from pycgpu.install.launcher import RUNTIME
from pycgpu.install.registration import Options, plan_undo, register, undo
from pycgpu.oci import runtime
from tests.host.engine_programs import put
from tests.host.test_containerd import MAIN, files, make, newest, options_of, runc_of, said
from tests.host.test_runtime import LINUX, REPOSITORY, bundle_of
from tests.vm import packages

MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
VERSION = "v1.20.2"
PROGRAMS = ("nvidia-ctk", runtime.TOOLKIT)
OURS = f"/{RUNTIME}"
BOTH = ("cgpu", "nvidia")
#: Building it takes minutes where others work, too.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def toolkit() -> Path:
    """A folder with its programs, built once."""
    folder = packages.cache_dir() / f"toolkit-{VERSION}"
    with packages.locked(folder.name):
        if not all((folder / name).exists() for name in PROGRAMS):
            if not shutil.which("go"):
                pytest.skip(
                    "no source: NVIDIA's container toolkit is built by go, which is not here"
                )
            scratch = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(scratch, ignore_errors=True)
            wanted = [f"{MODULE}/cmd/{name}@{VERSION}" for name in PROGRAMS]
            built = subprocess.run(
                ["go", "install", *wanted],
                env={**os.environ, "GOBIN": str(scratch)},
                capture_output=True,
                text=True,
                check=False,
            )
            if built.returncode:
                pytest.skip(f"no source: {MODULE} {VERSION}: {built.stderr[-500:]}")
            scratch.rename(folder)
    return folder


def configure(toolkit: Path, host: Path) -> None:
    """As its package's page says, for a containerd whose files are below *host*."""
    command = [str(toolkit / "nvidia-ctk"), "runtime", "configure", "--runtime=containerd"]
    command += ["--config-source=file", f"--config={host / MAIN}"]
    command += [f"--drop-in-config={host}/etc/containerd/conf.d/99-nvidia.toml"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(params=["1.7", "2.1"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = make(tmp_path, request.param)
    number = newest(request.param)
    put(made, MAIN, f"version = {number}\n" + runc_of(number, SystemdCgroup=True))
    return made


def test_what_nvidia_ctk_wrote_before_is_taken_over_and_given_back(
    toolkit: Path, host: Path
) -> None:
    configure(toolkit, host)
    before = files(host)
    assert said(host).runtimes["nvidia"]["options"]["BinaryName"].endswith(runtime.TOOLKIT)
    assert registration.names_free(host) == ("cgpu",)
    register(Options(("containerd",), BOTH), host)
    now = said(host).runtimes
    for name in BOTH:
        assert options_of(now[name]) == {"BinaryName": OURS, "SystemdCgroup": True}
    undo(plan_undo(host), host)
    assert files(host) == before


def test_what_nvidia_ctk_writes_after_us_leaves_our_runtime_in_force(
    toolkit: Path, host: Path
) -> None:
    register(Options(("containerd",)), host)
    configure(toolkit, host)
    now = said(host).runtimes
    assert options_of(now["cgpu"]) == {"BinaryName": OURS, "SystemdCgroup": True}
    assert options_of(now["runc"]) == {"SystemdCgroup": True}
    undo(plan_undo(host), host)
    left = said(host).runtimes
    assert left["nvidia"]["options"]["BinaryName"].endswith(runtime.TOOLKIT)


def test_a_default_runtime_of_the_toolkits_is_told_by_the_doctor(toolkit: Path, host: Path) -> None:
    register(Options(("containerd",)), host)
    put(host, f"usr/bin/{runtime.TOOLKIT}", "#!/bin/sh\n", 0o755)
    assert not past_us(host)
    command = [str(toolkit / "nvidia-ctk"), "runtime", "configure", "--runtime=containerd"]
    command += ["--set-as-default", "--config-source=file", f"--config={host / MAIN}"]
    command += [f"--drop-in-config={host}/etc/containerd/conf.d/99-nvidia.toml"]
    subprocess.run(command, check=True, capture_output=True)
    (line,) = past_us(host)
    assert "'nvidia' is the toolkit's" in line


def past_us(host: Path) -> list[str]:
    found = doctor.examine(str(host), release="6.1.0")
    return [one.text for one in found if "past ours" in one.text]


def test_its_runtime_finds_ours_in_the_place_of_runc(toolkit: Path, tmp_path: Path) -> None:
    """By the names in its configuration, as its package ships it."""
    others, behind = tmp_path / "bin", tmp_path / "behind"
    put(tmp_path, "bin/runc", '#!/bin/sh\necho "runc $*"\n', 0o755)
    text = '[nvidia-container-runtime]\nmode = "legacy"\nruntimes = ["runc", "crun"]\n'
    put(tmp_path, "xdg/nvidia-container-runtime/config.toml", text)
    runtimes = (str(toolkit / runtime.TOOLKIT), str(others / "runc"))
    own = put(
        tmp_path,
        "cgpu-container-runtime",
        f"#!{sys.executable} -IS\n"
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from pycgpu.oci.runtime import main\n"
        f"open({str(tmp_path / 'seen')!r}, 'a').write(sys.argv[0] + '\\n')\n"
        f"sys.exit(main(runtimes={runtimes!r}, root={str(tmp_path / 'none')!r},"
        f" behind={str(behind)!r}))\n",
        0o755,
    )
    bundle = bundle_of(tmp_path, "CGPU_MEM=1GiB", "CGPU_GPU=0", linux=LINUX)
    result = subprocess.run(
        [own, "create", "-b", bundle, "id"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{others}:/usr/bin:/bin", "XDG_CONFIG_HOME": str(tmp_path / "xdg")},
    )
    assert result.stdout.startswith("runc create"), result.stderr
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen == [str(own), str(behind / "runc")]
    hooks: Any = json.loads((Path(bundle) / "config.json").read_text())["hooks"]
    assert [one["path"] for one in hooks["createRuntime"]] == [runtime.HOOK]
