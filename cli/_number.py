# SPDX-License-Identifier: MIT
"""Numbers of command lines, read strictly: float() takes nan, inf, 1_0 and any digits."""

from __future__ import annotations

from collections.abc import Callable

import typer

from pycgpu.errors import CgpuError
from pycgpu.request.size import is_number


def seconds(low: float, high: float) -> Callable[[str | float], float]:
    """Return what reads an option's seconds, *low* to *high*; for typer's ``parser``."""

    def number(text: str | float) -> float:
        # typer has the default read, too
        whole, point, part = str(text).partition(".")
        if is_number(whole) and (is_number(part) if point else True):
            found = float(str(text))
            if low <= found <= high:
                return found
        raise typer.BadParameter(f"{str(text)[:40]!r}: write {low:g} to {high:g} seconds")

    return number


def listening(text: str, example: int) -> tuple[str, int]:
    """Return address and port of ``--listen``. CgpuError: it is none."""
    address, colon, port = text.rpartition(":")
    if not (colon and is_number(port) and 0 < int(port) < 65536):
        raise CgpuError(f"--listen {text!r}: write ADDRESS:PORT, such as 127.0.0.1:{example}")
    return address.strip("[]"), int(port)
