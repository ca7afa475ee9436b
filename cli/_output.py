# SPDX-License-Identifier: MIT
"""Standard output that is closed, full, or read by somebody who stops early."""

from __future__ import annotations

import os
import sys


def open_streams() -> None:
    """
    Give a descriptor to each standard stream that whoever started us has closed.

    Else the first file that is opened takes its number, and what is printed goes there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest that is free is this one.
            os.open(os.devnull, os.O_RDWR)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 # to the end


def drop() -> None:
    """What is still to be written, at the interpreter's end too, goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Told:
    """Within it: write out what is left when a program ends, and say in one line what failed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            sys.stdout.flush()
        except OSError as unwritten:
            unwritten.filename = "standard output"
            error = unwritten
        if isinstance(error, BrokenPipeError):
            drop()
            sys.exit(1)
        if isinstance(error, KeyboardInterrupt):
            sys.exit(130)
        if isinstance(error, OSError):
            drop()
            of = f"{error.filename}: " if error.filename else ""
            print(f"{self._name}: {of}{error.strerror or error}", file=sys.stderr)
            sys.exit(1)
