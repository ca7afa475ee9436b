# SPDX-License-Identifier: MIT
"""When a process began: one that ends while it is parked leaves its number to another."""

from __future__ import annotations

import os
import time

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
#: Field 22 of ``stat``, counted from the one behind the name.
_START = 19


def before(pid: int, now_ns: int, proc: str = "/proc") -> bool:
    """Return whether a process began before a time of the monotonic clock; True: it has ended."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b") ")[2].split()[_START])
    except OSError:
        return True
    # The kernel's count includes the time that the host was suspended.
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return ticks * _TICK_NS - slept_ns <= now_ns
