# SPDX-License-Identifier: MIT
"""Which emulator guests run in: one whose threads do not race."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm import packages, qemu


def program(directory: Path, version: str) -> str:
    path = directory / qemu.NAME
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\necho "QEMU emulator version {version} (Debian 1:{version})"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("version", ["8.1.0", "8.2.2", "10.0.13", "11.1.3"])
def test_a_safe_qemu_of_this_machine_is_taken_and_nothing_fetched(
    tmp_path: Path, version: str
) -> None:
    own = program(tmp_path / "own", version)
    assert qemu.chosen(own, lambda: pytest.fail("fetched")) == (own,)


@pytest.mark.parametrize("version", ["6.2.0", "7.2.22", "8.0.4"])
def test_beside_one_that_races_a_newer_one_is_taken(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = program(tmp_path / "own", version)
    newer = (program(tmp_path / "newer", "10.0.2"), "-L", "/data")
    assert qemu.chosen(own, lambda: newer) == newer
    assert capsys.readouterr().err == ""


def test_without_a_newer_one_this_machines_own_is_taken_and_its_fault_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = program(tmp_path / "own", "7.2.22")

    def missing() -> tuple[str, ...]:
        raise packages.PackageNotFound("jammy has no backport of qemu-system-x86")

    assert qemu.chosen(own, missing) == (own,)
    told = capsys.readouterr().err
    assert "QEMU 7.2 now and then kills a guest" in told
    assert told.endswith("cannot be had: jammy has no backport of qemu-system-x86\n")


def test_a_newer_one_that_does_not_start_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library of its that this machine lacks."""
    own, newer = program(tmp_path / "own", "7.2.22"), tmp_path / "newer"
    newer.write_text("#!/bin/sh\necho 'libpmem.so.1: cannot open' >&2; exit 127\n")
    newer.chmod(0o755)
    assert qemu.chosen(own, lambda: (str(newer),)) == (own,)
    assert f"{newer} does not run here" in capsys.readouterr().err
