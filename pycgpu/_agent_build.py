# SPDX-License-Identifier: MIT
"""Builds ``pycgpu._agent``, the agent: the C below ``pycgpu/agent`` over the same core."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "pycgpu" / "agent"
CORE = ROOT / "kmod" / "core"

_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)


VERSION = (ROOT / "kmod" / "VERSION").read_text().strip()
#: An agent may be killed in the middle of a change, so the core records its changes.
MACROS: list[tuple[str, str | None]] = [
    ("_GNU_SOURCE", None),
    ("CGPU_TOUCHED", "cgpu_touched"),
    ("CGPU_VERSION", f'"{VERSION}"'),
]


def declarations() -> str:
    """Return what cffi reads."""
    return _DIRECTIVE.sub("", (AGENT / "agent.h").read_text())


def builder() -> FFI:
    """Return the configured builder of ``pycgpu._agent``."""
    made = FFI()
    made.cdef(declarations())
    sources = [*sorted(AGENT.rglob("*.c")), *sorted(CORE.rglob("*.c"))]
    headers = [*sorted(AGENT.rglob("*.h")), *sorted(CORE.rglob("*.h"))]
    made.set_source(
        "pycgpu._agent",
        '#include "agent.h"',
        sources=[str(path.relative_to(ROOT)) for path in sources],
        include_dirs=[str(AGENT.relative_to(ROOT))],
        depends=[str(path.relative_to(ROOT)) for path in headers],
        define_macros=MACROS,
        # -iquote: kmod/linux must not stand in for the system's headers.
        extra_compile_args=["-std=gnu11", "-O2", "-g", "-pthread", "-iquote", "kmod"],
        extra_link_args=["-pthread"],
    )
    return made


ffibuilder = builder()
