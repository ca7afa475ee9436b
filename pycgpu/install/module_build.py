# SPDX-License-Identifier: MIT
"""The kernel module's sources as the package carries them, and how they are built."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

#: The build tree of a kernel, which its headers bring.
HEADERS = "lib/modules/{release}/build"


def sources() -> Path:
    """Return the directory of the module's sources."""
    installed = Path(__file__).resolve().parents[1] / "kmod"
    # In the repository the folder stands at the top.
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "kmod"


def missing_tools(prefix: Path, release: str) -> list[str]:
    """
    Return the packages that building modules for a kernel takes and that are not here.

    A kernel that clang has built wants modules of clang's: gcc does not know all of its options.
    """
    wanted: dict[str, tuple[str, ...]] = {"make": ("make",), "gcc": ("gcc",)}
    clang = clang_version(prefix, release)
    if clang is not None:
        wanted = {"make": ("make",)}
        wanted |= {pkg: (tool, f"{tool}-{clang}") for pkg, tool in _CLANGS.items()}
    # A user without root's privileges may lack root's directories in PATH.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [
        package
        for package, programs in wanted.items()
        if not any(shutil.which(program, path=path) for program in programs)
    ]


#: Package, and its program: LLVM=1 takes all three.
_CLANGS = {"clang": "clang", "lld": "ld.lld", "llvm": "llvm-ar"}


def clang_version(prefix: Path, release: str) -> int | None:
    """Return the version of clang that has built the kernel, None if another compiler has."""
    headers = prefix / HEADERS.format(release=release)
    for name in (".config", "include/config/auto.conf"):
        if (headers / name).exists():
            text = (headers / name).read_text(errors="replace")
            version = re.search(r"^CONFIG_CLANG_VERSION=(\d+)$", text, re.M)
            is_clangs = re.search(r"^CONFIG_CC_IS_CLANG=y$", text, re.M) is not None
            return int(version[1]) // 10000 if is_clangs and version else None
    return None


def products(directory: str, names: list[str]) -> set[str]:
    """Tell :func:`shutil.copytree` which files are no sources of the module."""
    ignored = shutil.ignore_patterns(
        *("*.o", "*.ko", "*.mod", "*.mod.c", ".*", "*.symvers", "modules.order"),
        *("have.h", "*.have", "*.have.log"),
        *("__pycache__", "__init__.py", "sim"),
    )
    return ignored(directory, names)


def build(
    source: Path, directory: Path, prefix: Path, release: str, run: Callable[[list[str]], str]
) -> None:
    """
    Build all modules for one kernel and leave them, and nothing else, in *directory*.

    Args:
        prefix: root of the host's files, below which the kernel's headers are.
        run: executes a command; raises InstallError when it fails.
    """
    work = directory / "build"
    shutil.copytree(source, work, ignore=products)
    headers = str(prefix / HEADERS.format(release=release))
    run(["make", "-C", str(work), f"KDIR={headers}", "all"])
    bridge = work / "bridge"
    symbols = f"KBUILD_EXTRA_SYMBOLS={work}/Module.symvers"
    run(["make", "-C", str(bridge), f"KDIR={headers}", symbols, "KBUILD_MODPOST_WARN=1"])
    for module in (*work.glob("*.ko"), *bridge.glob("*.ko")):
        module.rename(directory / module.name)
    shutil.rmtree(work)
