# SPDX-License-Identifier: MIT
"""
Programs of a group whose MPS server has ended.

Most of them get an error from their next call of CUDA. A program that sleeps until an event comes
never wakes (H200, driver 580.159.04). So it is told why, and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time

from pycgpu.errors import CgpuError
from pycgpu.tree import procfs, status

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import NamedTuple
else:
    from pycgpu.request.record import Record as NamedTuple

#: In this time a program that got the error may save its data.
PATIENCE_S = 5.0
_PIDFD_GETFD = 438
_STDERR = 2


class Client(NamedTuple):
    """A process of a member that has the card open; ``handle`` is a pidfd, the caller's."""

    member: str
    pid: int
    handle: int


def find(group: str, root: str, known: Container[int] = ()) -> list[Client]:
    """
    Return the processes of a group's members that have a card open.

    Args:
        known: processes to leave out, by the host's numbers.
    """
    found: dict[int, Client] = {}
    for member, pid in _processes(group, root):
        # The process may end during the look.
        with contextlib.suppress(OSError):
            if pid not in found and pid not in known:
                found[pid] = Client(member, pid, os.pidfd_open(pid))
    return list(found.values())


def _processes(group: str, root: str) -> Iterator[tuple[str, int]]:
    for card in procfs.card_indexes(root):
        for name in procfs.container_names(card, root):
            with contextlib.suppress(CgpuError):
                member = procfs.read_cid(card, name, root)
                if procfs.read_group(card, name, root) == group and member != group:
                    for process in status.read_procs(card, name, root):
                        yield member, process.pid


def tell(clients: Iterable[Client], line: str) -> None:
    """Write a line to each member's standard error, by one of its processes."""
    told = set()
    for client in clients:
        if client.member in told:
            continue
        # It may be closed, or a pipe whose reader has gone.
        with contextlib.suppress(OSError):
            _write(client.handle, f"cgpu: {line}\n".encode())
            told.add(client.member)


def _write(handle: int, text: bytes) -> None:
    """Write to a process's standard error without waiting for its reader."""
    libc = ctypes.CDLL(None, use_errno=True)
    # The descriptor itself: opening it by /proc would use our rights.
    descriptor = libc.syscall(_PIDFD_GETFD, handle, _STDERR, 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, text)
    finally:
        os.close(descriptor)


def end(clients: Iterable[Client], patience_s: float = PATIENCE_S) -> list[Client]:
    """
    Give processes a while to end by themselves, then end them; closes their handles.

    Return: those that did not end by themselves.
    """
    left = {client.handle: client for client in clients}
    killed = []
    deadline_s = time.monotonic() + patience_s
    while left and time.monotonic() < deadline_s:
        gone, _, _ = select.select(left, [], [], max(deadline_s - time.monotonic(), 0))
        for handle in gone:
            del left[handle]
            os.close(handle)
    for handle, client in left.items():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            killed.append(client)
        os.close(handle)
    return killed
