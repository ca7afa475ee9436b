# SPDX-License-Identifier: MIT
"""What is unpacked for guests and containers: the right file, and all of a package or nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.vm import packages, rootfs

ELF = b"\x7fELF rest"


def put(path: Path, content: bytes, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # dpkg-deb packs nothing that is its owner's alone.
    path.parent.chmod(0o755)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def archive(tmp_path: Path) -> Path:
    """A package that has a program and a script by the same name, as Debian's has."""
    tree = tmp_path / "tree"
    control = (
        "Package: busybox-static\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    put(tree / "DEBIAN/control", control.encode(), 0o644)
    put(tree / "usr/share/initramfs-tools/conf-hooks.d/busybox", b"BUSYBOX=y\n", 0o644)
    put(tree / "bin/busybox", ELF)
    deb = tmp_path / "busybox-static_1_all.deb"
    subprocess.run(["dpkg-deb", "-b", str(tree), str(deb)], check=True, capture_output=True)
    return deb


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGPU_CACHE", str(tmp_path / "cache"))


def test_busybox_is_the_program_however_often_it_is_asked_for(tmp_path: Path) -> None:
    deb = archive(tmp_path)
    found = [rootfs.program(packages.unpacked(deb)) for _ in range(3)]
    assert [path.read_bytes() for path in found] == [ELF] * 3


@pytest.mark.parametrize(
    "name", ["usr/share/initramfs-tools/conf-hooks.d/busybox", "usr/share/doc/bin/busybox"]
)
def test_a_package_without_the_program_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path / name, b"#!/bin/sh\n")
    with pytest.raises(packages.FetchError, match="found 0"):
        rootfs.program(tmp_path)


def test_a_package_that_does_not_unpack_leaves_nothing_to_be_taken_for_it(tmp_path: Path) -> None:
    deb = archive(tmp_path)
    whole = deb.read_bytes()
    deb.write_bytes(whole[: len(whole) - 40])
    with pytest.raises(subprocess.CalledProcessError):
        packages.unpacked(deb)
    deb.write_bytes(whole)
    assert rootfs.program(packages.unpacked(deb)).read_bytes() == ELF
