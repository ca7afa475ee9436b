# SPDX-License-Identifier: MIT
"""Programs that include a file of the agent, to call what it keeps to itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


CORE = REPOSITORY / "kmod/core"


def build(program: str, directory: Path, *sources: Path) -> Path:
    """Build a C program that includes one of ``pycgpu/agent``, with others; return where it is."""
    source, built = directory / "part.c", directory / "part"
    source.write_text(program)
    # of what the agent is made of this needs a little, and links no more
    flags = ["-O1", "-ffunction-sections", "-Wl,--gc-sections", "-D_GNU_SOURCE", "-pthread"]
    paths: list[str | Path] = [
        "-I",
        REPOSITORY,
        "-I",
        REPOSITORY / "pycgpu/agent",
        "-iquote",
        REPOSITORY / "kmod",
    ]
    subprocess.run(["cc", *flags, *paths, source, *sources, "-o", built], check=True, timeout=120)
    return built
