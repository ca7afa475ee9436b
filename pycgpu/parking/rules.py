# SPDX-License-Identifier: MIT
"""
The operator's rules for automatic parking: ``/etc/cgpu/parking.toml``::

    when = "needed"      # or "idle": even if no container needs the room
    park_min_s = 30      # how long a container that came back stays on the card
    moves_per_min = 12   # at most so many are parked automatically
    park_host_bytes = 0  # the host memory for all that is parked; 0: all of it

A missing key has the value above.
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
    The rules; see the module's docstring.

    Attributes:
        when: one of WHEN.
        park_min_s: how long a container that came back is not parked automatically.
        moves_per_min: 0: no container is parked automatically.
        park_host_bytes: 0: what the host has is the only bound.
    """

    when: str = "needed"
    park_min_s: int = 30
    moves_per_min: int = 12
    park_host_bytes: int = 0


def load(path: str = PATH) -> Rules:
    """
    Return the rules in *path*; the defaults if there is no such file.

    Raises:
        CgpuError: the file cannot be read, or has a key or value that is unknown or out of bounds.
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
