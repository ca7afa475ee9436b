# SPDX-License-Identifier: MIT
"""Whether a process stands still: libcuda would wait for its answer without end."""

from __future__ import annotations

import contextlib

from pycgpu.tree import hierarchy


def reason(pid: int, proc: str = "/proc") -> str:
    """Return why no thread of a process goes on, and the remedy; "": they do, or it has ended."""
    with contextlib.suppress(OSError):
        with open(f"{proc}/{pid}/stat", "rb") as file:
            if file.read().rpartition(b") ")[2][:1] in (b"T", b"t"):
                return f"process {pid} is stopped; continue it first"
        if cgroup := _frozen(pid, proc):
            return f"process {pid} is frozen with cgroup {cgroup}; thaw it first"
    return ""


def _frozen(pid: int, proc: str) -> str:
    """Return the cgroup that keeps the process stopped, as by ``docker pause``; "": none."""
    mounts = hierarchy.mounts(proc)
    for place in hierarchy.places(pid, proc):
        # These files include the state of the cgroups above.
        name, said = "cgroup.events", "frozen 1"
        if "freezer" in place.controllers:
            name, said = "freezer.state", "FROZEN"
        elif place.controllers != ("",):
            continue
        top = hierarchy.directory(place.controllers, mounts)
        with contextlib.suppress(OSError), open(f"{top}{place.path}/{name}") as file:
            if said in file.read().splitlines():
                return place.path
    return ""
