# SPDX-License-Identifier: MIT
"""
Makes a running process a tenant: the process asks a helper of root's, which answers it.

The helper's side is here. Line by line, on its input and output::

    helper    filter <hex>      the BPF program that the process must put itself under
    process   <n>               its listener's descriptor; the helper takes it from the process
    helper    env <key>=<value> what the process is to have in its environment; only by
                                `cgpu slurm-task --group`, any number of such lines
    helper    ok                or: error <reason>, at any time

Under the module the first line is ``ok`` at once: there the process's cgroup is the container.
Processes of one container ask one by one; the first makes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Iterator
from typing import TextIO

from pycgpu.agent import client, filter
from pycgpu.errors import CgpuError, NodeError
from pycgpu.request import admission, permit
from pycgpu.request.model import Grant, Refusal, Request
from pycgpu.request.size import is_number
from pycgpu.tree import device_nodes, group, procfs, tenant
from pycgpu.tree.lock import Admission

_NR_PIDFD_GETFD = 438
# A container may come or go between a look and what follows from it.
_TRIES = 5
_LINE_MAX = 80
_EXISTS = "a container of this name exists: choose another name"
_LISTENER = "anon_inode:seccomp notify"
#: PID_MAX_LIMIT of the kernel; descriptors have less than 31 bits.
PID_MAX = 1 << 22
_FD_MAX = 1 << 30


def serve(
    container_id: str,
    request: Request,
    pid: int,
    cgroup: str | None,
    lines: TextIO,
    out: TextIO,
    *,
    allowed: permit.Permit = permit.DEFAULT,
    uid: int | None = None,
    joins: group.Group | None = None,
    tells_group: bool = False,
) -> None:
    """
    Make process *pid* part of *container_id*, which is made by *request* if it is not there.

    Args:
        cgroup: the container's cgroup for the module, below /sys/fs/cgroup; None: it has none of
            its own, and under the module enters one.
        allowed: the permit whose maxima hold.
        uid: the user who called sudo: the process must be that user's. It joins no existing
            container, because a container's user is not recorded. None: root.
        joins: the group that the container joins.
        tells_group: tell the process the variables that lead it to its container's group.
    """
    variables: dict[str, str] = {}
    try:
        root = procfs.find_root()
        if joins is not None:
            _check_group(container_id, joins, root)
        if procfs.is_users(root):
            _by_agent(container_id, request, pid, lines, out, allowed, uid, joins)
        else:
            _by_module(container_id, request, cgroup, root, allowed, joins, pid=pid, uid=uid)
        leader = group.of_container(container_id, root) if tells_group else None
        variables = group.environment(leader) if leader else {}
    except (CgpuError, OSError) as error:
        _say(out, "error " + " ".join(str(error).split()))
    else:
        for key, value in variables.items():
            _say(out, f"env {key}={value}")
        _say(out, "ok")


def _check_group(container_id: str, joins: group.Group, root: str) -> None:
    """Raise CgpuError if the container is there, and not in this group."""
    if container_id not in procfs.container_ids(root):
        return
    found = group.of_container(container_id, root)
    if found != joins.name:
        where = "in no group" if found is None else f"in the group {found}"
        raise joins.refusal(f"{container_id} is there already, {where}: name one for all of it")


def _say(out: TextIO, line: str) -> None:
    # A process that went away needs no answer.
    with contextlib.suppress(BrokenPipeError):
        print(line, file=out, flush=True)


def _admit(request: Request, root: str, allowed: permit.Permit) -> Grant:
    admitted = admission.admit(request, procfs.read_cards(root))
    found = allowed.bounded(admitted, lambda: procfs.parks(root))
    if isinstance(found, Refusal):
        raise CgpuError(found.reason)
    device_nodes.ensure(card.index for card in found.cards)
    return found


@contextlib.contextmanager
def _granted(
    request: Request, root: str, allowed: permit.Permit, joins: group.Group | None
) -> Iterator[Grant]:
    """Admit the request while the context lasts, so that its container may be made within."""
    if joins is None:
        yield _admit(request, root, allowed)
        return
    with group.joined(joins, request, root, lambda one: _admit(one, root, allowed)) as grant:
        yield grant


def _entered(container_id: str, pid: int, uid: int | None) -> str:
    pidfd = os.pidfd_open(pid)
    try:
        if uid is not None:
            _check_user(pid, pidfd, uid)
        _check_alive(pid, pidfd)
        return tenant.enter(container_id, pid)
    finally:
        os.close(pidfd)


def _by_module(
    container_id: str,
    request: Request,
    cgroup: str | None,
    root: str,
    allowed: permit.Permit,
    joins: group.Group | None = None,
    *,
    pid: int = 0,
    uid: int | None = None,
) -> None:
    try:
        with Admission():
            alive = procfs.container_ids(root)
            if uid is not None and container_id in alive:
                raise CgpuError(f"{container_id}: {_EXISTS}")
            if cgroup is None:
                tenant.sweep(alive)
                cgroup = _entered(container_id, pid, uid)
            if container_id in alive:
                return
            name = None if joins is None else joins.name
            with _granted(request, root, allowed, joins) as grant:
                procfs.create(container_id, grant, root, cgroup=cgroup, group=name)
    except NodeError as error:
        if error.errno != errno.EEXIST:
            raise


def _by_agent(
    container_id: str,
    request: Request,
    pid: int,
    lines: TextIO,
    out: TextIO,
    allowed: permit.Permit,
    uid: int | None,
    joins: group.Group | None,
) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        if uid is not None:
            _check_user(pid, pidfd, uid)
        # A refusal must come before the process is under a filter for good.
        if not _is_there(container_id, uid):

            def admit(one: Request) -> Grant:
                return _admit(one, procfs.USER_DOOR_SOCKET, allowed)

            if joins is None:
                admit(request)
            else:
                group.admitted(joins, request, admit)
        _say(out, f"filter {filter.program().hex()}")
        line = lines.readline(_LINE_MAX).strip()
        if not is_number(line) or int(line) > _FD_MAX:
            raise CgpuError(f"process {pid} is under no filter: {line or 'it went away'}")
        if uid is not None:
            _check_user(pid, pidfd, uid)
        listener = _taken(pid, pidfd, int(line))
        try:
            _join(container_id, request, pid, pidfd, listener, allowed, uid, joins)
        finally:
            os.close(listener)
    finally:
        os.close(pidfd)


def _check_user(pid: int, pidfd: int, uid: int) -> None:
    """Raise CgpuError if a process is not *uid*'s alone, or its number may be another's by now."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        users = next((line for line in file if line.startswith("Uid:")), "").split()[1:]
    _check_alive(pid, pidfd)
    if not users or set(users) != {str(uid)}:
        raise CgpuError(f"process {pid} is not yours alone: attach one that is")


def _check_alive(pid: int, pidfd: int) -> None:
    """Raise CgpuError if the number may be another process's by now."""
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        raise CgpuError(f"process {pid} has ended") from None


def _is_there(container_id: str, uid: int | None) -> bool:
    """Tell whether there is such a container; CgpuError: a user joins none that is there."""
    there = container_id in procfs.container_ids(procfs.USER_DOOR_SOCKET)
    if there and uid is not None:
        raise CgpuError(f"{container_id}: {_EXISTS}")
    return there


def _taken(pid: int, pidfd: int, number: int) -> int:
    """
    Return a duplicate of a process's listener.

    Raises:
        OSError: the process has no such descriptor.
        CgpuError: it is no listener; the agent would wait at it for calls that never come.
    """
    # If the file is of the caller's own file system, closing a duplicate may wait for ever.
    if not _is_listener(pid, number):
        raise CgpuError(f"descriptor {number} of the process is no seccomp listener")
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(_NR_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {number} of the process cannot be taken")
    if not _is_listener("self", fd):
        raise CgpuError(f"descriptor {number} of the process was exchanged")
    os.set_inheritable(fd, False)
    return fd


def _is_listener(process: int | str, fd: int) -> bool:
    try:
        return os.readlink(f"/proc/{process}/fd/{fd}") == _LISTENER
    except FileNotFoundError:
        raise OSError(errno.EBADF, f"descriptor {fd} of the process cannot be taken") from None


def _join(
    container_id: str,
    request: Request,
    pid: int,
    pidfd: int,
    listener: int,
    allowed: permit.Permit,
    uid: int | None,
    joins: group.Group | None = None,
) -> None:
    answer: dict[str, object] = {}
    for _ in range(_TRIES):
        with Admission(), contextlib.ExitStack() as held:
            if _is_there(container_id, uid):
                message = {"op": "join", "id": container_id}
            else:
                name = None if joins is None else joins.name
                door = procfs.USER_DOOR_SOCKET
                grant = held.enter_context(_granted(request, door, allowed, joins))
                command = procfs.create_command(container_id, grant, pid=pid, group=name)
                message = {"op": "run", "create": command}
            _check_alive(pid, pidfd)
            try:
                answer = client.ask(message, (listener,))
            except (OSError, ValueError) as error:
                raise CgpuError(f"the agent went away: {error}") from None
        if answer.get("ok"):
            return
        if answer.get("errno") not in (errno.EEXIST, errno.ENOENT):
            break
    raise CgpuError(f"{container_id}: {answer.get('message', 'the agent refused')}")
