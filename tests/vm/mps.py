# SPDX-License-Identifier: MIT
"""A program in the place of NVIDIA's MPS daemon, where hooks look for that one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pycgpu.tree import group

SOURCE = Path(__file__).parents[1] / "host/pretended/mps_control.c"


@contextlib.contextmanager
def control() -> Iterator[Path]:
    """Have it installed; yield its path."""
    daemon = Path(group.PLACES[1], group.CONTROL)
    daemon.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O1", "-o", daemon, SOURCE], check=True)
    yield daemon
    daemon.unlink()
