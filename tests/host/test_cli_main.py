# SPDX-License-Identifier: MIT
"""``cgpu``: its commands are imported one at a time, and an error is one line."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycgpu.cli import cdi
from pycgpu.cli.main import COMMANDS
from pycgpu.oci.cdi import FILE
from tests.host.engine_programs import OLD_DOCKERD, put

from .devices import make_devices
from .tree import make_tree


def cgpu(*args: Any, stdin: str = "") -> Any:
    return subprocess.run(
        [sys.executable, "-m", "pycgpu.cli.main", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_command_and_imports_none() -> None:
    result = cgpu("--help")
    assert result.returncode == 0
    for name in COMMANDS:
        assert name in result.stdout
    code = (
        "import sys; from pycgpu.cli import main; sys.argv = ['cgpu', '--help']\n"
        "try: main.app()\n"
        "except SystemExit: print(*[m for m, _ in main.COMMANDS.values() if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: Any) -> None:
    result = cgpu(name, "--help")
    assert result.returncode == 0
    assert f"cgpu {name}" in result.stdout


def test_an_error_is_one_line_and_its_traceback_is_for_debug(tmp_path: Path) -> None:
    result = cgpu("cdi", "--root", str(tmp_path / "none"))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "modprobe cgpu_km" in result.stderr
    assert "Traceback" in cgpu("--debug", "cdi", "--root", str(tmp_path / "none")).stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    assert cgpu("frobnicate").returncode == 2


@pytest.mark.parametrize(
    ("typed", "meant"), [("pss", "ps"), ("event", "events"), ("polcy", "policy")]
)
def test_a_mistyped_command_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    failed = cgpu(typed)
    assert failed.returncode == 2
    assert f"No such command '{typed}'. Did you mean {meant}" in " ".join(failed.stderr.split())


#: What users type, whose output is short, or longer than what is buffered.
TYPED = ["cgpu ps", "cgpu events", "cgpu exporter --once", "cgpu --help", "cgpu --version"] + [
    "cgpu smi", "cgpu-smi", "cgpu-smi -q", "cgpu-smi -L", "cgpu-smi --help"
]  # fmt: skip


def typed(line: str, redirection: str, root: Path) -> subprocess.CompletedProcess[str]:
    """A line of a shell whose standard output goes elsewhere; its status is the command's."""
    program, *words = line.split()
    module = {"cgpu": "main", "cgpu-smi": "smi"}[program]
    if not words or words[-1] not in ("--help", "--version"):
        words += ["--root", str(root)]
    command = shlex.join([sys.executable, "-m", f"pycgpu.cli.{module}", *words])
    script = f"{command} {redirection}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("line", TYPED)
def test_output_that_cannot_be_written_is_told_in_a_line(line: str, tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree")
    full = typed(line, ">/dev/full", root)
    program = line.split()[0]
    assert full.returncode == 1
    # Without the name when it was found out in the middle of a long output.
    assert full.stderr in {
        f"{program}: {of}No space left on device\n" for of in ("standard output: ", "")
    }
    closed = typed(line, ">&-", root)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize("line", TYPED)
def test_a_reader_that_stops_early_hears_nothing_of_it(line: str, tmp_path: Path) -> None:
    left = typed(line, "| true", make_tree(tmp_path / "tree"))
    assert left.returncode in (0, 1) and left.stderr == ""


def test_install_runtime_shows_changes_makes_them_and_takes_them_back(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/dockerd", OLD_DOCKERD, 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    daemon = tmp_path / "etc/docker/daemon.json"
    args = ("install-runtime", "--prefix", str(tmp_path))
    shown = cgpu(*args, "--dry-run", "--name", "nvidia")
    assert '+        "nvidia": {' in shown.stdout
    assert not daemon.exists()
    done = cgpu(*args, "--name", "nvidia")
    assert "now run: systemctl restart docker" in done.stdout
    assert json.loads(daemon.read_text())["runtimes"]["nvidia"]
    assert cgpu(*args, "--name", "nvidia").stdout == "nothing to change\n"
    assert cgpu(*args, "--undo").returncode == 0
    assert not daemon.exists()


def test_without_an_engine_install_runtime_says_so(tmp_path: Path) -> None:
    result = cgpu("install-runtime", "--prefix", str(tmp_path))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_cdi_writes_a_specification(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "cgpu_km", cards=2)
    output = tmp_path / "cdi" / "cgpu.json"
    host = ("--prefix", str(tmp_path))
    refused = cgpu("cdi", "--root", str(root), "-o", str(output), *host)
    assert (refused.returncode, output.exists()) == (1, False)
    assert "dev/nvidiactl is missing" in refused.stderr
    make_devices(tmp_path)
    assert cgpu("cdi", "--root", str(root), "-o", str(output), *host).returncode == 0
    assert len(json.loads(output.read_text())["devices"]) == 5
    assert cgpu("cdi", "--root", str(root), "-o", "-", *host).stdout == output.read_text()


def test_cdi_is_written_anew_with_a_card_that_comes(tmp_path: Path) -> None:
    output = tmp_path / "cdi" / FILE
    output.parent.mkdir()
    other = tmp_path / "other" / FILE
    other.parent.mkdir()
    other.write_text('{"kind": "nvidia.com/gpu"}')
    places = (str(output.parent), str(other.parent), str(tmp_path / "none"))
    one, two = (make_tree(tmp_path / f"tree{n}", cards=n) for n in (1, 2))
    host = ("--prefix", str(tmp_path), "--no-libraries", "--hook", "/opt/hook")
    make_devices(tmp_path)
    assert cgpu("cdi", "--root", str(one), "-o", str(output), *host).returncode == 0
    assert cdi.renew(str(one), places) == []
    assert cdi.renew(str(two), places) == [output]
    found = json.loads(output.read_text())
    assert [device["name"] for device in found["devices"]][2::2] == ["1", "all"]
    assert found["containerEdits"]["hooks"][0]["path"] == "/opt/hook"
    assert "mounts" not in found["containerEdits"]


def test_what_is_written_under_a_strict_umask_is_for_all_to_read(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/podman", "#!/bin/sh\n", 0o755)
    put(tmp_path, "usr/sbin/runc", "#!/bin/sh\n", 0o755)
    before = os.umask(0o077)
    try:
        done = cgpu("install-runtime", "--prefix", tmp_path, "--engine", "podman")
        assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if "/usr/" not in str(path)]
    assert [path for path in made if path.name.endswith(".json") and path.parent.name == "hooks.d"]
    closed = {str(path.relative_to(tmp_path)) for path in made if not path.stat().st_mode & 0o004}
    # The record holds what the engines' files were, which may be root's alone.
    assert closed <= {"var/lib/cgpu/runtime_install.json"}


def test_the_hook_by_hand(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "cgpu_km")
    (tmp_path / "config.json").write_text(json.dumps({"process": {"env": ["CGPU_MEM=1GiB"]}}))
    state = {"id": "c1", "pid": 7, "status": "creating", "bundle": str(tmp_path)}
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "status").write_text("NSpid:\t7\t1\n")
    options = ["--root", str(root), "--lock", str(tmp_path / "lock"), "--log", str(tmp_path / "l")]
    options += ["--proc", str(tmp_path / "proc"), "--dev", make_devices(tmp_path)["dev"]]
    result = cgpu("hook", "createRuntime", *options, stdin=json.dumps(state))
    assert (result.returncode, result.stderr) == (0, "")
    assert (root / "inst_ctl").read_text() == "create c1 pid=7 gpu=0,mem=1073741824\n"
