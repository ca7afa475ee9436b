# SPDX-License-Identifier: MIT
"""A process under the agent's filter, whose listener a test has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from pycgpu.agent import filter

#: Makes one call of the driver's for each line that it reads, and prints its errno, 0: it went on.
_PROGRAM = """
import ctypes, os, socket, sys
from pycgpu.agent import filter
libc = ctypes.CDLL(None, use_errno=True)
listener = filter.install()
with socket.socket(fileno=int(sys.argv[1])) as connection:
    socket.send_fds(connection, [b"."], [listener])
os.close(listener)
for line in sys.stdin:
    print(ctypes.get_errno() if libc.ioctl(-1, int(sys.argv[2])) else 0, flush=True)
"""


#: Descriptors of smaller numbers are not the agent's to keep: it moves them (state/state.h).
STATE_FD_FIRST = 64


class Filtered:
    """``listener`` is the test's to close."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with ours, its:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(its.fileno()), str(filter.RM_NUMBERS[0])],
                pass_fds=(its.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            its.close()
            _, (passed, *_), _, _ = socket.recv_fds(ours, 1, 1)
            self.listener = fcntl.fcntl(passed, fcntl.F_DUPFD_CLOEXEC, STATE_FD_FIRST)
            os.close(passed)

    def ask(self) -> None:
        """Have it make a call."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """Return what its call was answered."""
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def call(self) -> int:
        """Return what a call of it is answered."""
        self.ask()
        return self.answer()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def filtered() -> Iterator[Filtered]:
    """Have such a process while the context lasts."""
    process = Filtered()
    try:
        yield process
    finally:
        process.end()
