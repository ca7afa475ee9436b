# SPDX-License-Identifier: MIT
"""Standard output that is closed, full, or read by somebody who stops early."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


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


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    """Write out what is left when a program ends, and say in one line what failed."""
    try:
        try:
            yield
        finally:
            with _named("standard output"):
                sys.stdout.flush()
    except BrokenPipeError:
        drop()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        drop()
        of = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {of}{error.strerror or error}", file=sys.stderr)
        sys.exit(1)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = what
        raise
