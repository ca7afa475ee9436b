# SPDX-License-Identifier: MIT
"""
Whether a parked process wants its card back: a thread of it waits in libcuda.

The driver lets whoever calls CUDA in a parked process wait for a futex. A thread that waits for one
has stack pointer and syscall in ``/proc/PID/task/TID/syscall``, and on its stack the addresses that
it returns to: the first that is not the C library's is libcuda's. libcuda's own threads wait there
always; they are known by their names. A process that takes another's place by such a name gains
nothing: it comes back later, or for nothing.

A look costs as much as there are threads, so a process is looked at only if one of its threads has
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
#: What a wait passes through before it reaches who waits.
_BELOW = ("libc.so", "libc-", "ld-linux", "libpthread", "ld-musl", "[vdso]")
#: Of libcuda's own threads.
_OWN = "cuda"
_MAPS_AGE_S = 5.0
#: A look is at most this part of a processor, however often the process runs.
_SHARE = 0.001
_PAUSE_MAX_S = 1.0
#: Of so many threads a file is kept open; a tenant may have any number of them.
_KEPT = 256
#: Before one is parked by itself.
_WORK_LOOKS, _WORK_PAUSE_S = 3, 0.01


class Process:
    """One parked process. It keeps files of it open: close() gives them back."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self.pid = pid
        self._directory = f"{proc}/{pid}"
        self._threads: dict[str, int] = {}
        #: Its processors' time, all that it has run.
        self.clock = (~pid << 3) | 2
        #: Of that, what it had when it was looked at; -1: it is to be looked at anew.
        self.ran_ns = -1
        self._due_s = 0.0
        self._maps: list[tuple[int, int, str]] = []
        self._mapped_s = 0.0
        self._memory = self._pidfd = -1
        self._end = select.poll()
        # Otherwise it has ended already.
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)
            self._end.register(self._pidfd, select.POLLIN)

    def close(self) -> None:
        """Close what is kept open. Nothing is asked of it any more."""
        for fd in [*self._threads.values(), self._memory, self._pidfd]:
            if fd >= 0:
                os.close(fd)
        self._threads.clear()
        self._memory = self._pidfd = -1

    def has_ended(self) -> bool:
        """Return whether no thread of it is left."""
        return self._pidfd < 0 or bool(self._end.poll(0))

    def has_run(self) -> bool:
        """Return whether it has run since it was looked at, or has ended."""
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
        # The first look opens what the others read, and counts as none of them.
        is_first, began_s = not self._threads, time.thread_time()
        # A thread that has run may be on its way: only what stands still is not looked at again.
        self.ran_ns = ran_ns
        found = self._look(now_s)
        cost_s = time.thread_time() - began_s
        if not is_first:
            self._due_s = now_s + min(cost_s / _SHARE, _PAUSE_MAX_S)
        return found

    def is_at_work(self, now_s: float) -> bool:
        """
        Return whether a thread of a process that is not parked is in libcuda, or seems to be.

        A thread that waits for the card may do so by any call, or without one: then it runs each
        time it is looked at.
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
        # It may end while it is looked at.
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
        """Return whether it is libcuda's thread."""
        with open(f"{self._directory}/task/{tid}/comm") as file:
            return file.read().startswith(_OWN)

    def _look(self, now_s: float) -> bool:
        found = False
        for tid in self._tids():
            if self._waits(tid, now_s):
                found = True
        return found

    def _waits(self, tid: str, now_s: float) -> bool:
        # It may end while it is looked at.
        with contextlib.suppress(OSError, ValueError, struct.error):
            words = self._syscall(tid)
            if words[0] == b"running":
                # It is on its way, perhaps to the card.
                self.ran_ns = -1
            elif int(words[0]) == _FUTEX and self._is_below(int(words[-2], 16), now_s):
                return not self._is_own(tid)
        return False

    def _is_below(self, stack: int, now_s: float) -> bool:
        """Return whether who waits with this stack was called by libcuda."""
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
        """Return what can be executed: from, to, the file's name."""
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
    """Return those that have run since they were looked at, or have ended: all others rest."""
    asked = list(processes)
    # Ten times a second of each: a call of its own would cost more than the clock.
    read = time.clock_gettime_ns
    try:
        return [one for one in asked if read(one.clock) != one.ran_ns]
    except OSError:
        return [one for one in asked if one.has_run()]
