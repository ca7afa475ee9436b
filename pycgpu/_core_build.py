# SPDX-License-Identifier: MIT
"""
Builds ``pycgpu._core`` from ``kmod/core``, the sources that the kernel module is built from.

The core's headers are plain C declarations, with enums for constants. Without their
preprocessor lines, and in the order of their includes, they are cffi's definitions. New headers
and sources in ``kmod/core`` are found automatically.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

# setuptools wants sources relative to the directory that it is run in, the repository's root.
ROOT = Path(__file__).resolve().parents[1]
KMOD = ROOT / "kmod"
CORE = KMOD / "core"

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


def headers() -> list[Path]:
    """Return the core's headers, each after those that it includes."""
    ordered: dict[str, Path] = {}

    def visit(path: Path, trail: tuple[str, ...] = ()) -> None:
        name = str(path.relative_to(KMOD))
        if name in trail:
            raise ValueError(f"headers include each other: {' → '.join(trail)}")
        if name in ordered:
            return
        for included in _INCLUDE.findall(path.read_text()):
            visit(KMOD / included, (*trail, name))
        ordered[name] = path

    for path in sorted(CORE.rglob("*.h")):
        visit(path)
    return list(ordered.values())


def definitions() -> str:
    """Return the declarations of all headers as cffi wants them."""
    return "\n".join(_DIRECTIVE.sub("", path.read_text()) for path in headers())


def builder() -> FFI:
    """Return the configured builder of ``pycgpu._core``."""
    made = FFI()
    made.cdef(definitions())
    made.set_source(
        "pycgpu._core",
        "\n".join(f'#include "{path.relative_to(KMOD)}"' for path in headers()),
        sources=[str(path.relative_to(ROOT)) for path in sorted(CORE.rglob("*.c"))],
        depends=[str(path.relative_to(ROOT)) for path in headers()],
        # -iquote: kmod/linux must not stand in for the system's headers.
        extra_compile_args=[
            "-std=gnu99",
            "-O2",
            "-g",
            "-iquote",
            str(KMOD.relative_to(ROOT)),
        ],
    )
    return made


ffibuilder = builder()
