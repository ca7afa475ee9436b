# SPDX-License-Identifier: MIT
"""
Whether a parked process wants its card back: a thread of it waits in libcuda.

The driver makes a thread that calls CUDA in a parked process wait for a futex. Such a thread shows
its stack pointer and syscall in ``/proc/PID/task/TID/syscall``. Its stack has the addresses that it
returns to, and the first outside the C library is libcuda's. libcuda's own threads always wait
there; they are known by their names. A process that gives a thread such a name gains nothing: it
comes back later, or for nothing.

A look costs in proportion to the threads. So a process is looked at only if one of its threads has
run since, which one reading of its clock tells.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import struct
import time
from bisect import bisect_right
from collections.abc import Iterable

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)
_STACK_BYTES = 1024
_LIBRARY = "libcuda.so"
#: Libraries that a wait passes through between its caller and the kernel.
_BELOW = ("libc.so", "libc-", "ld-linux", "libpthread", "ld-musl", "[vdso]")
#: The names of libcuda's own threads.
_OWN = "cuda"
_MAPS_AGE_S = 5.0
#: A look takes at most this part of a processor, however often the process runs.
_SHARE = 0.001
_PAUSE_MAX_S = 1.0
#: For so many threads a file is kept open; a tenant may have any number of them.
_KEPT = 256
#: Looks, and the pause between them, before a container is parked automatically.
_WORK_LOOKS, _WORK_PAUSE_S = 3, 0.01


class Process:
    """One parked process. It keeps files of the process open: close() closes them."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self.pid = pid
        self._directory = f"{proc}/{pid}"
        self._threads: dict[str, int] = {}
        #: The processor time that the process has used.
        self.clock = (~pid << 3) | 2
        #: That time at the last look; -1: the process must be looked at anew.
        self.ran_ns = -1
        self._due_s = 0.0
        self._maps: list[tuple[int, int, str]] = []
        self._mapped_s = 0.0
        self._memory = self._pidfd = -1
        self._end = select.poll()
        # Otherwise the process has ended already.
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)
            self._end.register(self._pidfd, select.POLLIN)

    def close(self) -> None:
        """Close the files. The object is not used afterwards."""
        for fd in [*self._threads.values(), self._memory, self._pidfd]:
            if fd >= 0:
                os.close(fd)
        self._threads.clear()
        self._memory = self._pidfd = -1

    def has_ended(self) -> bool:
        """Return whether no thread of the process is left."""
        return self._pidfd < 0 or bool(self._end.poll(0))

    def has_run(self) -> bool:
        """Return whether the process has run since the last look, or has ended."""
        try:
            return time.clock_gettime_ns(self.clock) != self.ran_ns
        except OSError:
            return True

    def wants(self, now_s: float) -> bool:
        """Return whether a thread waits for the card; False also while no look is due."""
        if now_s < self._due_s:
            return False
        try:
            ran_ns = time.clock_gettime_ns(self.clock)
        except OSError:
            return False
        if ran_ns == self.ran_ns:
            return False
        # The first look opens what the others read, so its cost does not count.
        is_first, began_s = not self._threads, time.thread_time()
        # A running thread may be on its way to a wait: only a process at rest is skipped.
        self.ran_ns = ran_ns
        found = self._look(now_s)
        cost_s = time.thread_time() - began_s
        if not is_first:
            self._due_s = now_s + min(cost_s / _SHARE, _PAUSE_MAX_S)
        return found

    def is_at_work(self, now_s: float) -> bool:
        """
        Return whether a thread of a process that is not parked is in libcuda, or seems to be.

        A thread may wait for the card in any call, or in none: then it runs at each look.
        """
        runs = 0
        for look in range(_WORK_LOOKS):
            if look:
                time.sleep(_WORK_PAUSE_S)
            found = {self._does(tid, now_s) for tid in self._tids()}
            if "cuda" in found:
                return True
            runs += "running" in found
        return runs == _WORK_LOOKS

    def _tids(self) -> list[str]:
        """Return its threads, and forget those that have ended."""
        tids: list[str] = []
        with contextlib.suppress(OSError):
            tids = os.listdir(f"{self._directory}/task")
        for gone in self._threads.keys() - set(tids):
            os.close(self._threads.pop(gone))
        return tids

    def _does(self, tid: str, now_s: float) -> str:
        """Return "running", "cuda" for a program's thread that waits there, or ""."""
        # The thread may end during the look.
        with contextlib.suppress(OSError, ValueError, struct.error):
            words = self._syscall(tid)
            if words[0] == b"running":
                return "" if self._is_own(tid) else "running"
            if self._is_below(int(words[-2], 16), now_s) and not self._is_own(tid):
                return "cuda"
        return ""

    def _syscall(self, tid: str) -> list[bytes]:
        fd = self._threads.get(tid)
        if fd is None:
            path = f"{self._directory}/task/{tid}/syscall"
            if len(self._threads) >= _KEPT:
                with open(path, "rb") as file:
                    return file.read().split()
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._threads[tid] = fd
        return os.pread(fd, 512, 0).split()

    def _is_own(self, tid: str) -> bool:
        """Return whether the thread is libcuda's own."""
        with open(f"{self._directory}/task/{tid}/comm") as file:
            return file.read().startswith(_OWN)

    def _look(self, now_s: float) -> bool:
        found = False
        for tid in self._tids():
            if self._waits(tid, now_s):
                found = True
        return found

    def _waits(self, tid: str, now_s: float) -> bool:
        # The thread may end during the look.
        with contextlib.suppress(OSError, ValueError, struct.error):
            words = self._syscall(tid)
            if words[0] == b"running":
                # The thread is running, perhaps on its way to the card.
                self.ran_ns = -1
            elif int(words[0]) == _FUTEX and self._is_below(int(words[-2], 16), now_s):
                return not self._is_own(tid)
        return False

    def _is_below(self, stack: int, now_s: float) -> bool:
        """Return whether libcuda called the wait that has this stack."""
        if self._memory < 0:
            self._memory = os.open(f"{self._directory}/mem", os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self._memory, _STACK_BYTES, stack)
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        if now_s > self._mapped_s + _MAPS_AGE_S:
            self._maps, self._mapped_s = self._programs(), now_s
        starts = [low for low, _, _ in self._maps]
        for word in words:
            at = bisect_right(starts, word) - 1
            if at < 0 or word >= self._maps[at][1]:
                continue
            name = self._maps[at][2]
            if not name.startswith(_BELOW):
                return name.startswith(_LIBRARY)
        return False

    def _programs(self) -> list[tuple[int, int, str]]:
        """Return the executable mappings: from, to, the file's name."""
        found = []
        with open(f"{self._directory}/maps") as file:
            for line in file:
                words = line.split(maxsplit=5)
                if "x" not in words[1]:
                    continue
                low, _, high = words[0].partition("-")
                name = os.path.basename(words[5].strip()) if len(words) > 5 else ""
                found.append((int(low, 16), int(high, 16), name))
        return found


def stirred(processes: Iterable[Process]) -> list[Process]:
    """Return the processes that have run since their last look, or have ended: all others rest."""
    asked = list(processes)
    # Ten times a second for each: a call of its own would cost more than the clock.
    read = time.clock_gettime_ns
    try:
        return [one for one in asked if read(one.clock) != one.ran_ns]
    except OSError:
        return [one for one in asked if one.has_run()]
