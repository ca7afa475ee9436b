# SPDX-License-Identifier: MIT
"""
A tenant by a cgroup of its own: the containers of one resource claim, and what `cgpu run` starts.

The module knows a tenant by a pid namespace or by a cgroup. Pods of one claim share neither, and a
program that `cgpu run` becomes has none of its own. So their processes enter a further cgroup, the
tenant's, and keep their own with its limits. It is in a version 1 hierarchy that is mounted only
for this, belongs to root, and shows in no container. The door can tell a process's place only in a
hierarchy with a controller; this one has the freezer, which version 2 does not use.
"""

from __future__ import annotations

import posix

from ..errors import HookError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

DIRECTORY = "/run/cgpu/tenants"
#: Of the hierarchy: whoever mounts the freezer otherwise has another one.
NAME = "cgpu"
_MEMBERS = "cgroup.procs"


def enter(name: str, pid: int, directory: str = DIRECTORY, proc: str = "/proc") -> str:
    """
    Put a process into the tenant's cgroup, which is made if need be; return its directory.

    Raises:
        HookError: the process belongs to another tenant, or this host has no such hierarchy.
    """
    if not _exists(f"{directory}/{_MEMBERS}"):
        _mount(directory)
    now = _place(pid, proc)
    if now not in ("/", f"/{name}"):
        raise HookError(
            f"process {pid} has a part already, as {now[1:]}, and asks for another as {name}: give"
            " both in one request (Kubernetes: in one claim)"
        )
    path = f"{directory}/{name}"
    if not _exists(path):
        posix.mkdir(path, 0o700)
    with open(f"{path}/{_MEMBERS}", "w", encoding="ascii") as file:
        file.write(str(pid))
    return path


def leave(pid: int, directory: str = DIRECTORY) -> None:
    """Put a process back where it was, in no tenant's cgroup."""
    try:
        with open(f"{directory}/{_MEMBERS}", "w", encoding="ascii") as file:
            file.write(str(pid))
    except OSError:
        return


def is_empty(name: str, directory: str = DIRECTORY) -> bool:
    """Tell whether no process is in the tenant's cgroup, or there is none."""
    try:
        with open(f"{directory}/{name}/{_MEMBERS}", encoding="ascii") as file:
            return not file.read(1)
    except FileNotFoundError:
        return True


def remove(name: str, directory: str = DIRECTORY) -> None:
    """Remove the tenant's cgroup if it is there and empty."""
    try:
        posix.rmdir(f"{directory}/{name}")
    except OSError:
        return


def sweep(alive: Collection[str], directory: str = DIRECTORY) -> None:
    """Remove empty cgroups, except those of tenants that the door has."""
    for name in posix.listdir(directory) if _exists(directory) else ():
        if name not in alive and _exists(f"{directory}/{name}/{_MEMBERS}"):
            # The kernel refuses to remove a cgroup with processes: EBUSY.
            remove(name, directory)


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _place(pid: int, proc: str) -> str:
    """Return where in our hierarchy a process is."""
    with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if f"name={NAME}" in controllers.split(","):
                return path
    return "/"


def _mount(directory: str) -> None:
    # Imported late: this runs once after a boot, and the import is the slowest part.
    import ctypes
    import os

    os.makedirs(directory, mode=0o700, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"freezer,name={NAME}".encode()
    # 14: MS_NOSUID, MS_NODEV, MS_NOEXEC
    if libc.mount(b"cgpu", directory.encode(), b"cgroup", 14, options):
        why = os.strerror(ctypes.get_errno())
        raise HookError(
            f"{directory}: cannot mount a hierarchy with the freezer ({why}): this takes a host"
            " with cgroup version 2 alone and CONFIG_CGROUP_FREEZER"
        )
