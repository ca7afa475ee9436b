# SPDX-License-Identifier: MIT
"""Container engines as Debian ships them, unpacked into the cache and asked there."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from tests.vm import packages

#: The package of each, the beginning of its version, and the release if only one has it.
CONTAINERD = {
    "1.6": ("containerd", "1.6.", ""),
    "1.7": ("containerd", "1.7.", ""),
    "2.1": ("containerd", "2.1.", packages.UNSTABLE),
}
DOCKERD = {"20.10": ("docker.io", "20.10.", ""), "26.1": ("docker.io", "26.1.", "")}
#: In the place of a Docker daemon of before 23.0, which cannot be asked about its file.
OLD_DOCKERD = """#!/bin/sh
test "$*" = --help
"""


@functools.cache
def program(name: str, package: str, version: str, only: str) -> Path:
    """Return a program of a package; skips the test where no archive has that."""
    try:
        tree = packages.unpacked(packages.download(package, version, only))
    except (packages.PackageNotFound, packages.FetchError) as error:
        pytest.skip(f"no package: {error}")
    return next(tree.glob(f"usr/*bin/{name}"))


def containerd(version: str) -> Path:
    return program("containerd", *CONTAINERD[version])


def dockerd(version: str) -> Path:
    return program("dockerd", *DOCKERD[version])


def libraries(package: str) -> str:
    """Return where this machine's own release has what a package of libraries brings."""
    try:
        tree = packages.unpacked(packages.download(package, packages.own_version(package)))
    except (packages.PackageNotFound, packages.FetchError) as error:
        pytest.skip(f"no package: {error}")
    return ":".join(sorted({str(path.parent) for path in tree.rglob("lib*.so.*")}))


def put(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    """Write a file of a host below *root*."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)
    return target


def install(root: Path, path: str, target: Path) -> None:
    """Give a host below *root* a program."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(target)


def run(root: Path, words: list[str], program: str, unit: str, *, pid: int = 400) -> None:
    """Have a daemon run on a host below *root*, as its /proc tells."""
    of = root / "proc" / str(pid)
    for process in (root / "proc/1", of):
        (process / "ns").mkdir(parents=True, exist_ok=True)
        if not (process / "ns/mnt").is_symlink():
            (process / "ns/mnt").symlink_to("mnt:[4026531841]")
    put(of, "comm", os.path.basename(words[0]) + "\n")
    put(of, "cmdline", "".join(f"{word}\0" for word in words))
    put(of, "cgroup", f"0::/system.slice/{unit}.service\n")
    (of / "exe").symlink_to(program)
