# SPDX-License-Identifier: MIT
"""The kernel module's sources as the package carries them, and how they are built."""

from __future__ import annotations

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


def products(directory: str, names: list[str]) -> set[str]:
    """Say to :func:`shutil.copytree` what is not a source of the module."""
    ignored = shutil.ignore_patterns(
        *("*.o", "*.ko", "*.mod", "*.mod.c", ".*", "Module.symvers", "modules.order"),
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
