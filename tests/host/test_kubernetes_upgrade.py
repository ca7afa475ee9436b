# SPDX-License-Identifier: MIT
"""What runs in pods goes on with the node's new tools after an upgrade."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MAKE = """
set -eu
here=$1
die() { echo "$*" >&2; exit 1; }
source "$2/scripts/lib/tools"
make_tools "$3" "$4"
"""
FOLLOW = """
import signal, sys
from pathlib import Path
from pycgpu.cli._pod import follow_upgrades
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
follow_upgrades({"KUBERNETES_SERVICE_HOST": "192.0.2.1"} if sys.argv[2] == "pod" else {}, Path(sys.argv[1]))
print("follows", flush=True)
signal.sigtimedwait({signal.SIGUSR1}, 60 if sys.argv[2] == "pod" else 2)
"""  # noqa: E501


def wheel(folder: Path, name: str, module: str, more: str = "") -> None:
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}.py", "")
        info = f"{name}-1.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A directory as cgpu-X.Y.run unpacks it, with a package of the real one's extras."""
    folder = tmp_path / "sources/wheels"
    folder.mkdir(parents=True)
    extras = "".join(f"Provides-Extra: {name}\n" for name in ("exporter", "agent", "kubernetes"))
    needs = 'Requires-Dist: grpcio; extra == "kubernetes"\n'
    wheel(folder, "pycgpu", "pycgpu", extras + needs)
    return folder.parent


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder, "grpcio", "grpc")
    return folder


def make(sources: Path, new: Path, former: Path, links: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", MAKE, "make", sources, REPOSITORY, new, former],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(links),
        },
        capture_output=True,
        text=True,
    )


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """The tools of before, whose interpreter knows grpc."""
    program = tmp_path / "former/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    return program.parents[1]


def test_an_upgrade_keeps_what_the_tools_had_for_kubernetes(
    sources: Path, index: Path, former: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    done = make(sources, new, former, index)
    assert done.returncode == 0, done.stderr
    subprocess.run([new / "bin/python", "-c", "import pycgpu, grpc"], check=True)


def test_an_upgrade_that_cannot_keep_it_ends_and_says_what_is_missing(
    sources: Path, former: Path, tmp_path: Path
) -> None:
    done = make(sources, tmp_path / "new", former, tmp_path / "nothing")
    assert done.returncode == 1
    assert "has grpcio, for Kubernetes, and pip finds none" in done.stderr


def followed(tmp_path: Path, where: str) -> int:
    tools = tmp_path / "cgpu-0.1.0"
    tools.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, tools, where], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "follows\n"
        shutil.rmtree(tools)
        return process.wait(timeout=60)


def test_in_a_pod_a_command_ends_when_its_tools_are_gone(tmp_path: Path) -> None:
    assert followed(tmp_path, "pod") == 3


def test_outside_of_a_pod_it_stays(tmp_path: Path) -> None:
    assert followed(tmp_path, "host") == 0
