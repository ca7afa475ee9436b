# SPDX-License-Identifier: MIT
"""NVIDIA's management library, for hosts without it: ``nvml.c``, one board."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"


def make_library(directory: Path, state: str | None = None) -> Path:
    """
    Build ``libnvidia-ml.so.1`` in a directory and return this, for ``LD_LIBRARY_PATH``.

    Args:
        state: the directory that NVML_STATE is for, where no environment can say it.
    """
    library = directory / LIBRARY
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-o", str(library), str(SOURCE)]
    if state is not None:
        command.append(f'-DSTATE="{state}"')
    subprocess.run(command, check=True)
    return directory
