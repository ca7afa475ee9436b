# SPDX-License-Identifier: MIT
"""A lock on an open file that is waited for, but not for ever; whoever is killed drops it."""

from __future__ import annotations

import fcntl
import time


def acquire(fd: int, patience_s: float, pause_s: float) -> bool:
    """
    Lock the file behind *fd* for this process alone; False: others held it all the while.

    Args:
        pause_s: between two tries, for flock(2) waits for ever or not at all.
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
