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
#: The engine, who reads the log of context switches for it, and what that is built on.
PARTS = ("policy", "pool", "turns", "sched", "ctxsw", "rm_decode", "objects", "table", "ledger")
SOURCES = [
    HERE / "runlist.c",
    HERE / "switch_log.c",
    *(CORE / f"{name}.c" for name in PARTS),
]


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
        depends=[
            str(path.relative_to(ROOT))
            for folder in (CORE, HERE)
            for path in sorted((ROOT / folder).glob("*.h"))
        ],
        extra_compile_args=["-std=gnu99", "-O2", "-g"],
        libraries=["m"],
    )
    return made


ffibuilder = builder()

if __name__ == "__main__":
    ffibuilder.compile(tmpdir=str(ROOT), verbose=False)
