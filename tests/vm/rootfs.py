# SPDX-License-Identifier: MIT
"""A root file system for containers: busybox and empty directories, built once in the cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.vm import kernels, packages

DIRECTORIES = ("bin", "dev", "etc", "lib", "lib64", "proc", "root", "sys", "tmp", "usr/bin", "usr/lib", "opt")


def build() -> Path:
    """Return the directory; a container gets an overlay of its own over it."""
    from tests.vm.vm import _busybox

    busybox = _busybox()
    key = kernels.digest(busybox.read_bytes(), repr(DIRECTORIES).encode())
    root = packages.cache_dir() / "rootfs" / key
    with packages.locked("rootfs"):
        if root.exists():
            return root
        scratch = root.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        for name in DIRECTORIES:
            (scratch / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(busybox, scratch / "bin" / "busybox")
        listed = subprocess.run(
            [str(busybox), "--list"], capture_output=True, text=True, check=True
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
