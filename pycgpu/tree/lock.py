# SPDX-License-Identifier: MIT
"""A lock on an open file, with a bounded wait; the kernel drops it when its holder is killed."""

from __future__ import annotations

import fcntl
import posix
import time

from ..errors import HookError

#: Held while a container is admitted.
LOCK = "/run/cgpu/admission.lock"
#: On a busy node fifty hooks take turns; a refused hook costs its engine a whole new start.
LOCK_TIMEOUT_S = 30.0
#: Many waiting processes must not take the processor from the holder of the lock.
PAUSE_MAX_S = 0.05


def acquire(fd: int, patience_s: float, pause_s: float) -> bool:
    """
    Lock the file behind *fd* for this process alone; False: others held it all the while.

    Args:
        pause_s: between two tries at first, then longer: flock(2) waits for ever or not at all.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


class Admission:
    """
    The door does not check sums of quotas; the processes that write them do. So no other process
    may write between the read and the write. The kernel drops the lock of a killed process.

    Raises:
        HookError: another process has held it for :data:`LOCK_TIMEOUT_S`.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path or LOCK

    def __enter__(self) -> None:
        try:
            self.fd = posix.open(self.path, posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._make_directory()
            self.fd = posix.open(self.path, posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC, 0o600)
        if not acquire(self.fd, LOCK_TIMEOUT_S, pause_s=0.002):
            posix.close(self.fd)
            raise HookError(f"{self.path} is held by another hook; try again")

    def _make_directory(self) -> None:
        # Once after a boot; the import is what takes long.
        import os

        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)

    def __exit__(self, *_: object) -> None:
        posix.close(self.fd)
