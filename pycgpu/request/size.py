# SPDX-License-Identifier: MIT
"""Whole numbers and amounts of memory, as people write them."""

from __future__ import annotations

#: The door's least limit. Less is a forgotten unit: 4096 meant MiB.
LEAST_BYTES = 1 << 20
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_KUBERNETES = "kMGTP"


def is_number(text: str) -> bool:
    """
    Tell whether *text* is 1 to 18 ASCII digits, so that it fits 64 bits.

    str.isdecimal() alone takes the digits of every script, and int() takes '1_000', and raises
    for thousands of digits.
    """
    return text.isascii() and text.isdecimal() and len(text) <= 18


def parse_bytes(text: str) -> int:
    """
    Return the bytes of ``512MiB``, ``8G``, ``8gb`` or ``8589934592``; units are powers of 1024.

    Raises:
        ValueError: *text* is no whole number with one of the units B K M G T, or below 1 MiB.
    """
    digits = text.rstrip("BKMGTIbkmgti")
    unit = text[len(digits) :].lower()
    if len(unit) > 1 and unit[-1] == "b":
        unit = unit[:-1]
    if len(unit) > 1 and unit[-1] == "i":
        unit = unit[:-1]
    if not is_number(digits) or unit not in _UNITS:
        raise ValueError(f"{text!r} is not an amount of memory such as 512MiB, 8G or 8589934592")
    value_bytes = int(digits) << _UNITS[unit]
    if value_bytes < LEAST_BYTES:
        remedy = "the least is 1 MiB" if unit or not value_bytes else f"write {digits}MiB or GiB"
        raise ValueError(f"{text!r} is {value_bytes} bytes, less than 1 MiB: {remedy}")
    return value_bytes


def parse_quantity(text: str) -> int:
    """
    Return a Kubernetes quantity that is a whole number: ``3000``, ``3k``, ``3e3``, ``4Gi``.

    Raises:
        ValueError: *text* is none.
    """
    digits, exponent, power = text.partition("e")
    if exponent and is_number(digits) and is_number(power) and len(power) <= 2:
        return int(digits) * int(10 ** int(power))
    digits = text.rstrip(f"K{_KUBERNETES}i")
    unit = text[len(digits) :]
    letter, binary = unit.removesuffix("i"), unit.endswith("i")
    if letter == "K" and binary:
        letter = "k"
    if not is_number(digits) or (unit and (len(letter) != 1 or letter not in _KUBERNETES)):
        raise ValueError(f"{text!r} is no whole number")
    return int(digits) * int(
        (1024 if binary else 1000) ** (_KUBERNETES.find(letter) + 1 if unit else 0)
    )
