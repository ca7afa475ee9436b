# SPDX-License-Identifier: MIT
"""
A process that is there already becomes a tenant: it asks a helper of root's, which talks to it.

The helper's side is here. Line by line, on its input and output::

    helper    filter <hex>      the BPF program that the process must put itself under
    process   <n>               its listener's descriptor; the helper takes it from the process
    helper    ok                or: error <reason>, at any time

Under the module the first line is ``ok`` at once: there the process's cgroup is the container.
Processes of one container ask one by one; the first makes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from typing import TextIO

from pycgpu.agent import filter, server
from pycgpu.errors import CgpuError, NodeError
from pycgpu.request import admission
from pycgpu.request.model import Grant, Refusal, Request
from pycgpu.tree import procfs
from pycgpu.tree.lock import Admission

_NR_PIDFD_GETFD = 438
# A container may come or go between a look and what follows from it.
_TRIES = 5


def serve(
    container_id: str, request: Request, pid: int, cgroup: str | None, lines: TextIO, out: TextIO
) -> None:
    """
    Make process *pid* part of *container_id*, which gets what *request* says if it is not there.

    Args:
        cgroup: the container's cgroup for the module, below /sys/fs/cgroup; None: it has none of
            its own, and a host with the module refuses.
    """
    try:
        root = procfs.find_root()
        if procfs.is_users(root):
            _by_agent(container_id, request, pid, lines, out)
        else:
            _by_module(container_id, request, cgroup, root)
    except (CgpuError, OSError) as error:
        _say(out, "error " + " ".join(str(error).split()))
    else:
        _say(out, "ok")


def _say(out: TextIO, line: str) -> None:
    # Who went away needs no answer.
    with contextlib.suppress(BrokenPipeError):
        print(line, file=out, flush=True)


def _admit(request: Request, root: str) -> Grant:
    found = admission.admit(request, procfs.read_cards(root))
    if isinstance(found, Refusal):
        raise CgpuError(found.reason)
    return found


def _by_module(container_id: str, request: Request, cgroup: str | None, root: str) -> None:
    if cgroup is None:
        raise CgpuError("the module limits containers and cgroups, and this process has neither")
    try:
        with Admission():
            if container_id in procfs.container_ids(root):
                return
            procfs.create(container_id, _admit(request, root), root, cgroup=cgroup)
    except NodeError as error:
        if error.errno != errno.EEXIST:
            raise


def _by_agent(container_id: str, request: Request, pid: int, lines: TextIO, out: TextIO) -> None:
    # Who would be refused is told before it is under a filter for good.
    _command(container_id, request, pid)
    pidfd = os.pidfd_open(pid)
    try:
        _say(out, f"filter {filter.program().hex()}")
        line = lines.readline().strip()
        if not line.isdecimal():
            raise CgpuError(f"process {pid} is under no filter: {line or 'it went away'}")
        listener = _taken(pidfd, int(line))
    finally:
        os.close(pidfd)
    try:
        _join(container_id, request, pid, listener)
    finally:
        os.close(listener)


def _command(container_id: str, request: Request, pid: int) -> str | None:
    """Return the command that makes the container; None: it is there."""
    if container_id in procfs.container_ids(procfs.USER_DOOR_SOCKET):
        return None
    grant = _admit(request, procfs.USER_DOOR_SOCKET)
    return procfs.create_command(container_id, grant, pid=pid)


def _taken(pidfd: int, number: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(_NR_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {number} of the process cannot be taken")
    os.set_inheritable(fd, False)
    return fd


def _join(container_id: str, request: Request, pid: int, listener: int) -> None:
    answer: dict[str, object] = {}
    for _ in range(_TRIES):
        with Admission():
            command = _command(container_id, request, pid)
            if command is None:
                message = {"op": "join", "id": container_id}
            else:
                message = {"op": "run", "create": command}
            try:
                answer = server.ask(message, (listener,))
            except (OSError, ValueError) as error:
                raise CgpuError(f"the agent went away: {error}") from None
        if answer.get("ok"):
            return
        if answer.get("errno") not in (errno.EEXIST, errno.ENOENT):
            break
    raise CgpuError(f"{container_id}: {answer.get('message', 'the agent refused')}")
