# SPDX-License-Identifier: MIT
"""
The build tree of a kernel that is configured for clang: no distribution here has one.

It is the distribution's source after ``make LLVM=1 modules_prepare``, so modules see the options of
a kernel that clang has built. What such a kernel exports is its own build's to say: that is the
list of the distribution's kernel of the same series.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.vm import kernels, packages

LLVM = ("LLVM=1",)
# A function that this configuration calls by itself, and the distribution's through pv_ops.
ALSO_EXPORTED = "0x00000000\tqueued_spin_lock_slowpath\tvmlinux\tEXPORT_SYMBOL\t\n"


def headers(base: str) -> Path:
    """Return the tree for KDIR; PackageNotFound, or KernelBuildError if it does not build."""
    version = packages.find_version(f"linux-source-{base}", "")
    lines = kernels.GUEST_CONFIG.read_text().splitlines()
    settings = "".join(f"{line}\n" for line in lines if line.startswith(("CONFIG_", "# CONFIG_")))
    root = packages.cache_dir() / "kernels" / f"{base}-clang-headers"
    key = kernels.digest(*map(str.encode, (version, settings, ALSO_EXPORTED)))
    tree = root / "build"
    with packages.locked(f"kernel-{base}-clang"):
        if not (root / key).exists():
            shutil.rmtree(root, ignore_errors=True)
            tree.mkdir(parents=True)
            print(f"configuring kernel {base} {version} for clang", file=sys.stderr)
            source = kernels.unpack_source(base, version, root)
            (root / "config").write_text(settings)
            into, log = ["-C", str(source), f"O={tree}", *LLVM], root / "build.log"
            kernels.run_make([*into, f"KCONFIG_ALLCONFIG={root}/config", "allnoconfig"], log)
            kernels.run_make([*into, "modules_prepare"], log)
            symbols = (kernels.fetch(base).headers / "Module.symvers").read_text()
            (tree / "Module.symvers").write_text(symbols + ALSO_EXPORTED)
            (root / key).touch()
    return tree
