# SPDX-License-Identifier: MIT
"""A root file system for containers: busybox and empty directories, built once in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.vm import kernels, packages

DIRECTORIES = (
    *("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "sys", "tmp"),
    *("usr/bin", "usr/lib"),
)


def busybox() -> Path:
    """
    Return the distribution's busybox that needs no C library.

    Never this machine's own: what runs in guests and containers is the same everywhere.
    """
    return program(packages.unpacked(packages.download("busybox-static")))


def program(package: Path) -> Path:
    """Return the program in the unpacked package, which has scripts of the same name."""
    found = [path for path in sorted(package.glob("**/bin/busybox")) if _is_program(path)]
    if len(found) != 1:
        raise packages.FetchError(f"{package}: one program busybox expected, found {len(found)}")
    return found[0]


def _is_program(path: Path) -> bool:
    with path.open("rb") as stream:
        return os.access(path, os.X_OK) and stream.read(4) == b"\x7fELF"


def build() -> Path:
    """Return the directory; a container gets an overlay of its own over it."""
    program = busybox()
    key = kernels.digest(program.read_bytes(), repr(DIRECTORIES).encode())
    root = packages.cache_dir() / "rootfs" / key
    with packages.locked("rootfs"):
        if root.exists():
            return root
        scratch = root.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        for name in DIRECTORIES:
            (scratch / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(program, scratch / "bin" / "busybox")
        listed = subprocess.run(
            [str(program), "--list"], capture_output=True, text=True, check=True
        ).stdout
        for applet in listed.split():
            if applet != "busybox":
                (scratch / "bin" / applet).symlink_to("busybox")
        (scratch / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (scratch / "etc" / "group").write_text("root:x:0:\n")
        scratch.rename(root)
    return root


if __name__ == "__main__":
    print(build())
    sys.exit(0)
