# SPDX-License-Identifier: MIT
"""Amounts of memory as people write them."""

from __future__ import annotations

_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_bytes(text: str) -> int:
    """
    Return the bytes of ``4096``, ``512MiB``, ``8G`` or ``8gb``: every unit is a power of 1024.

    Raises:
        ValueError: *text* is not a positive whole number with one of the units B K M G T.
    """
    digits = text.rstrip("BKMGTIbkmgti")
    unit = text[len(digits) :].lower()
    if len(unit) > 1 and unit[-1] == "b":
        unit = unit[:-1]
    if len(unit) > 1 and unit[-1] == "i":
        unit = unit[:-1]
    # str.isdecimal() alone takes the digits of every script, and int() takes '1_000'.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18) or unit not in _UNITS:
        raise ValueError(f"{text!r} is not an amount of memory such as 4096, 512MiB or 8G")
    value_bytes = int(digits) << _UNITS[unit]
    if not value_bytes:
        raise ValueError(f"{text!r}: an amount of memory must be more than 0")
    return value_bytes
