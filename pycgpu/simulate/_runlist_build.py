# SPDX-License-Identifier: MIT
"""Builds ``pycgpu.simulate._runlist``: the card's model together with the engine's own sources."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

# setuptools wants sources relative to the directory that it is run in, the repository's root.
ROOT = Path(__file__).resolve().parents[2]
HERE = Path("pycgpu/simulate")
CORE = Path("kmod/core")
SOURCES = [HERE / "runlist.c", CORE / "policy.c", CORE / "turns.c", CORE / "sched.c"]
CORE_HEADERS = ("types.h", "policy.h", "sched.h", "turns.h")
HEADERS = [*(CORE / name for name in CORE_HEADERS), HERE / "runlist.h"]


def builder() -> FFI:
    """Return the configured builder of ``pycgpu.simulate._runlist``."""
    made = FFI()
    for header in (CORE / "policy.h", HERE / "runlist.h"):
        made.cdef(re.sub(r"(?m)^[ \t]*#.*$", "", (ROOT / header).read_text()))
    made.set_source(
        "pycgpu.simulate._runlist",
        '#include "policy.h"\n#include "runlist.h"',
        sources=[str(path) for path in SOURCES],
        include_dirs=[str(CORE), str(HERE)],
        depends=[str(path) for path in HEADERS],
        extra_compile_args=["-std=gnu99", "-O2", "-g"],
        libraries=["m"],
    )
    return made


ffibuilder = builder()

if __name__ == "__main__":
    ffibuilder.compile(tmpdir=str(ROOT), verbose=False)
