# SPDX-License-Identifier: MIT
"""After which idle time a container may be parked, as people write it."""

from __future__ import annotations

from .size import is_number

#: Seven days; the core's CGPU_IDLE_PARK_S_MAX.
MOST_S = 604800
OFF = "off"
_UNITS_S = {"h": 3600, "m": 60, "s": 1}


def parse_seconds(text: str) -> int:
    """
    Return the seconds of ``90``, ``90s``, ``5m`` or ``1h``; 0, of ``off`` too, is never.

    Raises:
        ValueError: *text* is no such time, or more than seven days.
    """
    if text == OFF:
        return 0
    unit = text[-1:] if text[-1:] in _UNITS_S else ""
    digits = text.removesuffix(unit)
    if not is_number(digits):
        raise ValueError(f"{text[:40]!r} is no time: write seconds, 90s, 5m, 1h or off")
    seconds = int(digits) * _UNITS_S.get(unit, 1)
    if seconds > MOST_S:
        raise ValueError(f"{text!r} is more than 7 days ({MOST_S} s)")
    return seconds


def shown(seconds: int) -> str:
    """Return the time as users write it, in the largest unit of which it is a whole number."""
    if not seconds:
        return OFF
    unit, size = next((unit, size) for unit, size in _UNITS_S.items() if seconds % size == 0)
    return f"{seconds // size}{unit}"
