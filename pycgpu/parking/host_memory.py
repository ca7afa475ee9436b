# SPDX-License-Identifier: MIT
"""Whether the host has room for what the driver copies into a process' own memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from pycgpu.errors import CgpuError
from pycgpu.request.model import MIB
from pycgpu.tree import hierarchy

#: The part of the host's memory that stays free, so that parking reclaims nothing of other
#: programs.
_SPARE_SHARE = 0.05


class NoHostMemory(CgpuError):
    """The memory to be parked does not fit."""


def check(moved: Mapping[int, int], proc: str = "/proc") -> None:
    """
    Return if each of these processes may grow by so many bytes, all together.

    Raises:
        NoHostMemory: the host has no room, or a memory cgroup above some of them has none.
    """
    told, moved_bytes = _meminfo(proc), sum(moved.values())
    spare = int(told["MemTotal"] * _SPARE_SHARE)
    if moved_bytes > told["MemAvailable"] - spare:
        raise NoHostMemory(
            f"{moved_bytes // MIB} MiB would go to the host's memory, of which"
            f" {told['MemAvailable'] // MIB} MiB are available and {spare // MIB} MiB stay free:"
            " free some"
        )
    left_of: dict[str, int] = {}
    grows: dict[str, int] = {}
    for pid, size in moved.items():
        # The process may have ended.
        with contextlib.suppress(OSError):
            for directory, left in dict(cgroups(pid, proc)).items():
                left_of[directory] = left
                grows[directory] = grows.get(directory, 0) + size
    for directory, left in left_of.items():
        if grows[directory] > left:
            raise NoHostMemory(
                f"{grows[directory] // MIB} MiB would go to the memory of cgroup {directory}, whose"
                f" limit leaves {max(left, 0) // MIB} MiB: raise it"
            )


def available_bytes(proc: str = "/proc") -> int:
    """Return the bytes that may be parked on the host; below 0 if the host lacks memory."""
    told = _meminfo(proc)
    return told["MemAvailable"] - int(told["MemTotal"] * _SPARE_SHARE)


def _meminfo(proc: str) -> dict[str, int]:
    with open(f"{proc}/meminfo") as file:
        pairs = (line.split() for line in file)
        return {words[0].rstrip(":"): int(words[1]) << 10 for words in pairs if len(words) > 1}


def cgroups(pid: int, proc: str = "/proc") -> list[tuple[str, int]]:
    """
    Return each memory cgroup of a process that has a limit, and the bytes that the limit leaves.

    Raises:
        OSError: the process has ended.
    """
    mounts = hierarchy.mounts(proc)
    found = []
    for place in hierarchy.places(pid, proc):
        if place.controllers not in (("",), ("memory",)):
            continue
        top = hierarchy.directory(place.controllers, mounts)
        if top is None:
            continue
        old = place.controllers != ("",)
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else (
            "memory.max", "memory.current",
        )  # fmt: skip
        path = place.path
        while path:
            limit, used = (_number(f"{top}{path}/{name}") for name in names)
            if limit is not None and used is not None:
                # The kernel drops cached files that are not in use before it kills a process.
                found.append((path, limit - used + _inactive_file(f"{top}{path}", old)))
            # The topmost cgroup has a limit if we are in a container ourselves.
            path = os.path.dirname(path) if path != "/" else ""
    return found


def _number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError), open(path) as file:
        return int(file.read())
    return None


def _inactive_file(directory: str, old: bool) -> int:
    key = "total_inactive_file" if old else "inactive_file"
    with contextlib.suppress(OSError, ValueError), open(f"{directory}/memory.stat") as file:
        for line in file:
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0
