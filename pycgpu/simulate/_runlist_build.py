# SPDX-License-Identifier: MIT
"""Builds ``pycgpu.simulate._runlist``: the card's model together with the engine's own sources."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

# setuptools wants sources relative to the directory that it is run in, the repository's root.
ROOT = Path(__file__).resolve().parents[2]
HERE = Path("pycgpu/simulate")
KMOD = Path("kmod")
CORE = KMOD / "core"
#: The scheduler, and the decoder for the log of context switches.
SOURCES = [
    HERE / "runlist.c",
    HERE / "switch_log.c",
    *(
        path.relative_to(ROOT)
        for room in (CORE / "sched", HERE / "recent")
        for path in sorted((ROOT / room).glob("*.c"))
    ),
    CORE / "bytes.c",
]

#: The headers of functions that Python calls.
HEADERS = (
    CORE / "sched/policy.h",
    HERE / "runlist.h",
    *(HERE / "recent" / name for name in ("constants.h", "book.h", "pick.h")),
)


def builder() -> FFI:
    """Return the configured builder of ``pycgpu.simulate._runlist``."""
    made = FFI()
    for header in HEADERS:
        made.cdef(re.sub(r"(?m)^[ \t]*#.*$", "", (ROOT / header).read_text()))
    made.set_source(
        "pycgpu.simulate._runlist",
        "\n".join(f'#include "{header.name}"' for header in HEADERS),
        sources=[str(path) for path in SOURCES],
        include_dirs=sorted({str(header.parent) for header in HEADERS}),
        depends=[
            str(path.relative_to(ROOT))
            for folder in (CORE, HERE)
            for path in sorted((ROOT / folder).rglob("*.h"))
        ],
        # -iquote: kmod/linux must not stand in for the system's headers.
        extra_compile_args=["-std=gnu99", "-O2", "-g", "-iquote", str(KMOD)],
        libraries=["m"],
    )
    return made


ffibuilder = builder()

if __name__ == "__main__":
    ffibuilder.compile(tmpdir=str(ROOT), verbose=False)
