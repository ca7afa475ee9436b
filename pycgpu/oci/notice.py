# SPDX-License-Identifier: MIT
"""
A notice to the user whose container starts: a line on the container's standard error.

An engine shows a hook's output only if the hook fails. ``docker run`` and ``docker logs`` show the
container's own standard error: a pipe, or a terminal that the runtime makes later.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time

from . import aside

#: Until the runtime has made the terminal, which it does before it runs anything of the image.
_TERMINAL_S = 30.0
_AGAIN_S = 0.005
_PROCESS = 3


def tell(pid: int, text: str, *, terminal: bool, proc: str = "/proc") -> None:
    """
    Write *text* to the standard error of a container whose first process waits.

    Args:
        terminal: the runtime will make a terminal; a separate program waits for that.
    """
    with contextlib.suppress(OSError):
        process = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        try:
            if terminal:
                aside.start(__name__, [text], {_PROCESS: process})
            else:
                _write(process, text, terminal=False)
        finally:
            os.close(process)


def _write(process: int, text: str, *, terminal: bool) -> bool:
    """Write to the standard error behind a directory of /proc; tell whether it is one for that."""
    # A description of our own, whose O_NONBLOCK does not change the container's.
    fd = os.open("fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=process)
    try:
        if not os.isatty(fd) and (terminal or not stat.S_ISFIFO(os.fstat(fd).st_mode)):
            return False
        write(fd, text)
        return True
    finally:
        os.close(fd)


def write(fd: int, text: str) -> None:
    """Write a line of ours if there is room. OSError: the reader is gone."""
    if select.select([], [fd], [], 0)[1]:
        os.write(fd, f"cgpu: {text}\n".encode())


def main(args: list[str]) -> int:
    """Wait for the terminal of the process whose directory is descriptor 3, and write to it."""
    until_s = time.monotonic() + _TERMINAL_S
    try:
        while not _write(_PROCESS, args[0], terminal=True):
            if time.monotonic() > until_s:
                return 1
            time.sleep(_AGAIN_S)
    except OSError:  # it has ended
        return 1
    return 0
