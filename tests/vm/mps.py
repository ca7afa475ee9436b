# SPDX-License-Identifier: MIT
"""A program in the place of NVIDIA's MPS daemon, and who keeps it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pycgpu.tree import group
from pycgpu.tree.process import directories

SOURCE = Path(__file__).parents[1] / "host/pretended/mps_control.c"


@contextlib.contextmanager
def control(simcuda: Path | None = None) -> Iterator[Path]:
    """
    Have it where hooks look for NVIDIA's; yield its path.

    Args:
        simcuda: what its server is.
    """
    daemon = Path(group.PLACES[1], group.CONTROL)
    daemon.parent.mkdir(parents=True, exist_ok=True)
    server, flags = daemon.parent / "simcuda", []
    if simcuda is not None:
        # Where nothing is hidden from it.
        shutil.copy(simcuda, server)
        flags = [f'-DSERVER="{server}"']
    subprocess.run(["gcc", "-O1", *flags, "-o", daemon, SOURCE], check=True)
    yield daemon
    daemon.unlink()
    server.unlink(missing_ok=True)


def keepers() -> dict[str, set[int]]:
    """The processes that keep each group's server, by the group's name."""
    found: dict[str, set[int]] = {}
    for place in (one / "cmdline" for one in directories(Path("/proc"))):
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            words = place.read_bytes().decode(errors="replace").split("\0")
            if "pycgpu.agent.group_server" in words:
                name = words[words.index("pycgpu.agent.group_server") + 1]
                found.setdefault(name, set()).add(int(place.parent.name))
    return found
