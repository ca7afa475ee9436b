# SPDX-License-Identifier: MIT
"""
What the operator says of parking by itself: ``/etc/cgpu/parking.toml``::

    when = "needed"      # or "idle": also if nobody needs the room
    park_min_s = 30      # for so long a container stays on the card, once it is back
    moves_per_min = 12   # at most so many are parked by themselves
    park_host_bytes = 0  # what all that is parked may have of the host; 0: all that it has

What is not there has the value above.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from pycgpu.errors import CgpuError
from pycgpu.tree import toml_file

PATH = "/etc/cgpu/parking.toml"
WHEN = ("needed", "idle")
_BOUNDS = {
    "park_min_s": (0, 86400),
    "moves_per_min": (0, 600),
    "park_host_bytes": (0, 1 << 62),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """
    See above.

    Attributes:
        when: one of WHEN.
        park_min_s: a container that came back is not parked by itself for so long.
        moves_per_min: 0: nobody is parked by itself.
        park_host_bytes: 0: what the host has is the only bound.
    """

    when: str = "needed"
    park_min_s: int = 30
    moves_per_min: int = 12
    park_host_bytes: int = 0


def load(path: str = PATH) -> Rules:
    """
    Return what *path* says; the defaults where there is no such file.

    Raises:
        CgpuError: it cannot be read, or says something unknown or out of bounds.
    """
    found = toml_file.read(path) or {}
    known = [field.name for field in fields(Rules)]
    for key, value in found.items():
        if key not in known:
            raise CgpuError(f"{path}: {key!r} is unknown; known are {', '.join(known)}")
        if key == "when":
            if value not in WHEN:
                raise CgpuError(f"{path}: when = {value!r}: write {' or '.join(WHEN)}")
            continue
        low, high = _BOUNDS[key]
        if type(value) is not int or not low <= value <= high:
            raise CgpuError(f"{path}: {key} = {value!r}: write {low} to {high}")
    return Rules(**found)


def changed_ns(path: str = PATH) -> int:
    """Return when the file was written last; 0: there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
