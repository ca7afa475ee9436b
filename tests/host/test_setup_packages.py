# SPDX-License-Identifier: MIT
"""What scripts/setup-packages would install, on hosts of files: a root directory and a PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/setup-packages"
# What the script itself is written with.
PROGRAMS = (
    "bash",
    "env",
    "cat",
    "dirname",
    "grep",
    "sort",
    "readlink",
    "sed",
    "id",
    "mktemp",
    "tail",
)


class Machine:
    """A machine with nothing but what it is given."""

    def __init__(self, top: Path) -> None:
        self.root, self.bin, self.ran = top / "root", top / "bin", top / "ran"
        self.root.mkdir()
        self.bin.mkdir()
        for name in PROGRAMS:
            (self.bin / name).symlink_to(str(shutil.which(name)))

    def command(self, name: str, script: str = "") -> None:
        """A program that writes down how it was called."""
        path = self.bin / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.ran}\n{script}\n')
        path.chmod(0o755)

    def file(self, path: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()

    def archive(self, *names: str, lost: tuple[str, ...] = ()) -> None:
        """apt with these packages, some known by name only, after its first update."""
        known = "\n".join((*names, *lost))
        self.command("apt-get", f'[[ $* != *update* ]] || echo "{known}" >{self.root}/index')
        self.command(
            "apt-cache",
            f'case $1 in pkgnames) grep "^$2" {self.root}/index 2>/dev/null ;;\n'
            f'policy) case " {" ".join(lost)} " in *" $2 "*) echo "  Candidate: (none)" ;;\n'
            # Longer than a pipe holds: who stops reading early must not take this for a failure.
            '*) echo "  Candidate: 1"; printf "%0200000d" 0 ;; esac ;; esac',
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *words],
            env={
                "PATH": str(self.bin),
                "SETUP_ROOT": str(self.root),
                "TMPDIR": str(self.root.parent),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, name: str) -> list[str]:
        lines = self.ran.read_text().splitlines() if self.ran.exists() else []
        return [line for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("known", "lost", "chosen"),
    [
        (("libfuse3-3", "libelf1", "libdw1"), (), {"libfuse3-3", "libelf1", "libdw1"}),
        # Debian 13: the old name is still known, by what provides it.
        (
            ("libfuse3-4", "libelf1t64", "libdw1t64"),
            ("libelf1", "libdw1"),
            {"libfuse3-4", "libelf1t64", "libdw1t64"},
        ),
        (
            ("libfuse3-9", "libfuse3-10", "libelf1", "libdw1"),
            ("libfuse3-11",),
            {"libfuse3-10", "libelf1", "libdw1"},
        ),
    ],
)
def test_a_name_that_changes_with_the_release_is_the_one_that_apt_has(
    machine: Machine, known: Any, lost: Any, chosen: Any
) -> None:
    machine.archive(*known, "libfuse3-dev", "libelf1-dbg", lost=lost)
    done = machine.run("--list", "vm")
    assert done.returncode == 0, done.stderr
    assert chosen <= set(done.stdout.split())

    assert {
        name
        for name in done.stdout.split()
        if name.startswith(("libfuse3", "libelf", "libdw")) and name != "libelf-dev"
    } == chosen


def test_a_machine_that_never_ran_update_runs_it_first(machine: Machine) -> None:
    machine.archive("libfuse3-4", "libelf1t64", "libdw1t64")
    assert machine.run("vm").returncode == 0
    calls = machine.calls("apt-get")
    assert [" update" in call for call in calls] == [True, False]
    assert "libfuse3-4" in calls[1] and "qemu-system-x86" in calls[1]


APT_SAYS = """\
echo 'dlstatus:1:12.5:Retrieving file 1 of 8'
echo 'Unpacking gcc ...'
echo 'pmstatus:gcc:amd64:45.2:Unpacking gcc (amd64)'
echo 'E: something of the archive' >&2
"""


@pytest.mark.parametrize("status", [0, 100])
def test_what_apt_prints_goes_to_a_file_and_its_end_is_shown_if_it_fails(
    machine: Machine, tmp_path: Path, status: int
) -> None:
    machine.archive("libfuse3-4")
    machine.command("apt-get", f"{APT_SAYS}exit {status}")
    done = machine.run()
    (log,) = tmp_path.glob("cgpu-packages.*")
    assert "Unpacking gcc ...\n" in log.read_text() and "of the archive" in log.read_text()
    assert "status:" not in log.read_text() + done.stderr
    assert (done.returncode == 0) == (status == 0)
    assert ("of the archive" in done.stderr) == bool(status)
    assert str(log) in done.stderr


def test_on_a_terminal_a_bar_shows_how_far_apt_is(machine: Machine) -> None:
    machine.archive("libfuse3-4")
    machine.command("apt-get", APT_SAYS)
    environment = f"PATH={machine.bin} SETUP_ROOT={machine.root} TMPDIR={machine.root.parent}"
    script = shutil.which("script")
    assert script is not None
    done = subprocess.run(
        [script, "-qec", f"env -i {environment} {SCRIPT}", "/dev/null"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "12 % downloading" in done.stdout
    assert "[###########              ]  45 % installing gcc" in done.stdout


def test_a_name_that_no_release_has_is_said(machine: Machine) -> None:
    machine.archive("libelf1")
    done = machine.run("host")
    assert done.returncode == 1
    assert "apt has no package for one of:" in done.stderr and "libfuse3-" in done.stderr


@pytest.mark.parametrize(
    "path", ["usr/lib/x86_64-linux-gnu/libfuse3.so.3", "usr/lib/x86_64-linux-gnu/libfuse3.so.4"]
)
def test_what_is_there_is_not_installed_whichever_version_it_has(
    machine: Machine, path: Any
) -> None:
    machine.archive("libfuse3-4")
    machine.file(path)
    assert not [n for n in machine.run("--list", "host").stdout.split() if "fuse" in n]


def test_dnf_gets_the_names_of_its_own_distributions(machine: Machine) -> None:
    machine.command("dnf")
    machine.command("sudo", 'exec "$@"')
    assert machine.run("host").returncode == 0
    (call,) = machine.calls("dnf")
    assert call.startswith("dnf install -y ")
    wanted = {"gcc", "glibc-devel", "make", "git", "dkms", "kmod", "fuse3-libs", "python3-devel"}
    assert wanted <= set(call.split())
    assert not {"libc6-dev", "python3-venv", "python3-dev"} & set(call.split())


def test_virtual_machines_are_refused_without_apt_before_anything_is_installed(
    machine: Machine,
) -> None:
    machine.command("dnf")
    done = machine.run("vm")
    assert done.returncode == 1
    assert "by apt-get" in done.stderr
    assert not machine.calls("dnf")


def test_without_either_it_says_what_is_missing(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 1
    assert "no apt-get and no dnf; missing: gcc libc6-dev make" in done.stderr


def test_a_word_that_is_no_level_is_refused(machine: Machine) -> None:
    assert machine.run("everything").returncode == 2
