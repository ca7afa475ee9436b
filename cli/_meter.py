# SPDX-License-Identifier: MIT
"""Parts of a whole as characters: a bar of one value, and a row of bars of the last ones."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"
_ASCII_HEIGHTS = "_.,-=+*#"


def bar(part: float | None, width: int, *, ascii: bool = False) -> str:
    """Return *width* characters, filled as far as *part* (0 to 1, more is full) says."""
    eighths = 0 if part is None else round(8 * width * min(1.0, max(0.0, part)))
    if ascii:
        return ("#" * (eighths // 8)).ljust(width, ".")
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    return drawn.ljust(width, "░")


def history(parts: Sequence[float], width: int, *, ascii: bool = False) -> str:
    """Return the last *width* of *parts* (0 to 1), the newest at the right."""
    heights = _ASCII_HEIGHTS if ascii else _HEIGHTS
    shown = list(parts)[-width:] if width else []
    return "".join(heights[round(7 * min(1.0, max(0.0, part)))] for part in shown).rjust(width)
