# SPDX-License-Identifier: MIT
"""Processes of containers as the host sees them: their user, their CPU time, their parent."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import CgpuError, PermissionDenied
from . import status

#: Signals that a user may send, by name.
SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """
    One of the host's processes at ``at_ns``, of the monotonic clock.

    parent: the host's number of the process that it is a child of.
    cpu_ns: processor time of all its threads so far.
    resident_bytes: of the host's memory, not of a card's.
    """

    pid: int
    parent: int
    user: str
    command: str
    cpu_ns: int
    resident_bytes: int
    at_ns: int


def directories(proc: Path) -> list[Path]:
    """
    Return the directory of each process in a /proc.

    ``glob("[0-9]*/comm")`` looks whether there is that file, and fails if the process ends then.
    """
    return [proc / name for name in os.listdir(proc) if name.isdecimal()]


def read(pids: Iterable[int], prefix: str = "/") -> dict[int, Process]:
    """Return *pids* and all that they descend from, by pid; those that are gone are left out."""
    found: dict[int, Process] = {}
    wanted = list(pids)
    while wanted:
        pid = wanted.pop()
        if pid in found or pid <= 0:
            continue
        one = _read(pid, prefix)
        if one is not None:
            found[pid] = one
            wanted.append(one.parent)
    return found


def _read(pid: int, prefix: str) -> Process | None:
    top = f"{prefix.rstrip('/')}/proc/{pid}"
    try:
        with open(f"{top}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
        with open(f"{top}/cmdline", "rb") as file:
            command = file.read(4096).decode(errors="replace")
        uid = os.stat(top).st_uid
    except OSError:
        return None
    # The name stands in parentheses and may hold any of them.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        # Of a container's own users the host knows no name.
        user = str(uid)
    return Process(
        pid,
        int(fields[1]),
        user,
        " ".join(command.split("\0")).strip() or name,
        (int(fields[11]) + int(fields[12])) * _TICK_NS,
        int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        time.monotonic_ns(),
    )


def cpu_share(before: Process | None, after: Process | None) -> float | None:
    """Return how many processors it kept busy between two readings; None: unknown."""
    if before is None or after is None or after.at_ns <= before.at_ns:
        return None
    # Less than before is another process of the same number.
    used_ns = after.cpu_ns - before.cpu_ns
    return used_ns / (after.at_ns - before.at_ns) if used_ns >= 0 else None


def forest(pids: Iterable[int], known: Mapping[int, Process]) -> list[tuple[int, int]]:
    """Return (pid, depth) of *pids*: each below the nearest of them that it descends from."""
    shown = sorted(set(pids))
    children: dict[int, list[int]] = {}
    for pid in shown:
        above = pid
        passed = {pid}
        while above in known and known[above].parent not in passed:
            above = known[above].parent
            passed.add(above)
            if above in shown:
                break
        children.setdefault(above if above != pid and above in shown else 0, []).append(pid)
    ordered: list[tuple[int, int]] = []

    def place(pid: int, depth: int) -> None:
        ordered.append((pid, depth))
        for child in children.get(pid, ()):
            place(child, depth + 1)

    for pid in children.get(0, ()):
        place(pid, 0)
    # Read one after the other while numbers are given anew, two can be each other's parents.
    placed = {pid for pid, _ in ordered}
    return ordered + [(pid, 0) for pid in shown if pid not in placed]


def parse_signal(text: str) -> str:
    """Return a key of :data:`SIGNALS`; nothing written is TERM. CgpuError: it is none."""
    name = text.strip().upper().removeprefix("SIG") or "TERM"
    names = {str(int(number)): known for known, number in SIGNALS.items()}
    name = names.get(name, name)
    if name not in SIGNALS:
        raise CgpuError(f"no signal {text.strip()!r} here; there are: {', '.join(SIGNALS)}")
    return name


def send(name: str, pid: int, card: int, directory: str, root: str) -> None:
    """
    Send a signal to a process of a container, and to no other.

    Args:
        name: of :data:`SIGNALS`.
        card, directory: where the container's files are in the tree at *root*.

    Raises:
        CgpuError: it is no process of the container (any more), or the caller may not.
    """
    gone = CgpuError(f"{pid} is no process of {directory} on GPU {card} any more")
    try:
        # The signal reaches the process that has this pid now, even if the pid is reused later.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise gone from None
    try:
        there = status.read_procs(card, directory, root)
        if not any(one.pid == pid and one.container_pid for one in there):
            raise gone
        signal.pidfd_send_signal(handle, SIGNALS[name])
    except ProcessLookupError:
        raise gone from None
    except PermissionError:
        raise PermissionDenied(f"process {pid}") from None
    finally:
        os.close(handle)
