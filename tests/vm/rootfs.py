# SPDX-License-Identifier: MIT
"""A root file system for containers: busybox and empty directories, built once in the cache."""

from __future__ import annotations

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
    """Return a busybox that needs no C library: this machine's, or the distribution's unpacked."""
    unpacked = packages.cache_dir() / "busybox"
    with packages.locked("busybox"):
        for path in (Path("/usr/bin/busybox"), Path("/bin/busybox"), *unpacked.glob("**/busybox")):
            if path.is_file() and b"/ld-linux" not in path.read_bytes()[:65536]:
                return path
        packages.unpack(packages.download("busybox-static"), unpacked)
        return next(path for path in unpacked.glob("**/bin/busybox") if path.is_file())


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
