# SPDX-License-Identifier: MIT
"""NVIDIA's management library, for hosts without it: ``nvml.c``, one board."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")


def make_library(directory: Path) -> Path:
    """Build ``libnvidia-ml.so.1`` in a directory and return this, for ``LD_LIBRARY_PATH``."""
    library = directory / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return directory
