# SPDX-License-Identifier: MIT
"""
A group: containers of one user that use a card at the same time, through one MPS server.

The server runs in a container of its own, the group's leader, which is named as the group is.
:mod:`pycgpu.agent.group_server` starts and ends it. A container that joins holds the lock of the
group's directory until it is in the tree. The server holds the same lock while it ends, so a last
member that leaves and a first one that joins exclude each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys

from ..errors import CgpuError, LaunchError, NodeError
from ..request.model import MIB, POLICIES, CardShare, Grant, MemoryBytes, MemoryShare, Request
from . import label, lock, procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NamedTuple
else:
    from ..request.record import Record as NamedTuple

DIRECTORY = "/run/cgpu/groups"
#: Where the server and its clients in containers share memory, in place of each one's own /dev/shm.
SHM = "/dev/shm/cgpu"
CONTROL = "nvidia-cuda-mps-control"
#: Where drivers put their programs, if sudo's PATH leaves it out.
PLACES = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/local/cuda/bin")
#: Memory limit of a server on each card. It holds 68 MiB there, whatever its number of clients
#: (H200, driver 580.159.04); on other cards and branches it holds more.
SERVER_BYTES = 512 * MIB
#: A start takes as long as the driver's first context on each card; an end, as the last context's.
LOCK_TIMEOUT_S = 60.0
_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#: A hint, by NVIDIA's words; 0: normal, 1: below normal.
_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
PIPE, CONTROL_SOCKET = "pipe", "control"
#: The file with the group's owner and the user of its server, while the group has a server.
_OWNER = "owner"


class Group(NamedTuple):
    """
    What a member asks of its group.

    uid: the user of the server and of each member, which the driver compares. 0: root.
    policy_asked: the caller named the policy; it is no default.
    containers_of: the owner of the members' containers; None: the members are programs of `cgpu
        run`, which share the host's /dev/shm.
    single: the group has one member, a job with many programs. Its request is the whole group's:
        the server's memory counts in it, and its quota is of the card.
    """

    name: str
    uid: int
    policy_asked: bool
    containers_of: str | None = None
    single: bool = False

    @property
    def owner(self) -> str:
        return f"user {self.uid}" if self.containers_of is None else self.containers_of

    @property
    def shm(self) -> str | None:
        return None if self.containers_of is None else f"{SHM}/{self.name}"

    def option(self, word: str) -> str:
        """Return the caller's name of an option."""
        return f"--{word}" if self.containers_of is None and not self.single else word

    def own(self, request: Request) -> Request:
        """Return the part of a request that is the member's own."""
        if not self.single:
            return request
        shares = [
            share._replace(memory=_without_server(share.memory), quota=None)
            for share in request.shares
        ]
        return request._replace(shares=tuple(shares))

    def refusal(self, reason: str) -> LaunchError:
        return LaunchError(f"{self.option('group')} {self.name}: {reason}")


def _without_server(
    memory: MemoryBytes | MemoryShare | None,
) -> MemoryBytes | MemoryShare | None:
    if memory is None:
        return None
    if isinstance(memory, MemoryBytes):
        return memory._replace(bytes=memory.bytes - SERVER_BYTES)
    return memory._replace(reserved_bytes=memory.reserved_bytes + SERVER_BYTES)


def pipe(name: str, directory: str = DIRECTORY) -> str:
    """Return the directory in which clients find the group's server."""
    return f"{directory}/{name}/{PIPE}"


def of_namespace(namespace: str, name: str) -> str:
    """Return the id of a namespace's group: no namespace has a dot, and no id a slash."""
    return f"{namespace}.{name.rpartition('/')[2]}"


def environment(
    name: str, directory: str = DIRECTORY, quota: int | None = None, *, after_others: bool = False
) -> dict[str, str]:
    """
    Return the environment that names a program's group server and its part of the threads.

    Args:
        after_others: its kernels start after those of members without this.
    """
    where = pipe(name, directory)
    found = {"CUDA_MPS_PIPE_DIRECTORY": where, "CUDA_MPS_LOG_DIRECTORY": where}
    if quota:
        found[_THREADS] = str(quota)
    if after_others:
        found[_PRIORITY] = "1"
    return found


def is_after_others(name: str, request: Request, root: str) -> bool:
    """Tell whether a member asks for less priority than its group has by now."""
    asked = [share.priority for share in request.shares if share.priority is not None]
    has = [procfs.read_priority(card, one, root) for card, one in cards_of(name, root).items()]
    return bool(asked and has) and min(asked) < max(has)


def quota_of(request: Request) -> int | None:
    """
    Return a member's percent of its group's threads; None: all of them.

    Raises:
        LaunchError: it asks for different quotas on its cards, and MPS has one for all cards.
    """
    asked = {share.quota for share in request.shares}
    if len(asked) > 1:
        raise LaunchError("quota: one for all cards in a group, because MPS has one")
    return asked.pop()


def make_places(group: Group, directory: str = DIRECTORY, mount_label: object = None) -> None:
    """
    Make the directories that a member's engine binds into it; they stay, and a server fills them.

    Args:
        mount_label: SELinux' label of the member's own files, if its engine gives one.

    Raises:
        LaunchError: another user has made them.
    """
    procfs.check_id(group.name)
    shared = label.shared(mount_label)
    while True:
        _make_directory(group.name, directory)
        try:
            _make_own(pipe(group.name, directory), None, shared)
            break
        except FileNotFoundError:
            # A start that was refused has removed it.
            continue
    if group.shm is None:
        return
    _make_own(SHM, 0o700, None)
    _make_own(group.shm, 0o1777, shared)


def _make_directory(name: str, directory: str) -> None:
    # An engine's umask may be 0, and no other user may write there: the modes are set explicitly.
    whole = os.path.dirname(directory)
    for path, mode in ((whole, 0o755), (directory, 0o711), (f"{directory}/{name}", 0o711)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode)


def _make_own(path: str, mode: int | None, shared: str | None) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if mode is not None:
            # Everybody may write to /dev/shm.
            if os.fstat(found).st_uid != os.geteuid():
                raise LaunchError(f"{path}: another user has made it: remove it")
            os.fchmod(found, mode)
        label.give(found, shared)
    finally:
        os.close(found)


def empty(directory: int) -> None:
    """Empty a directory, by its descriptor because its user may change paths meanwhile."""
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(name, ignore_errors=True, dir_fd=directory)


def admitted(group: Group, request: Request, admit: Callable[[Request], Grant]) -> Grant:
    """
    Return the member's own grant on the cards.

    Raises:
        CgpuError: as *admit* does.
    """
    try:
        return admit(_of_member(group.own(request)))
    except CgpuError as error:
        if not group.single:
            raise
        raise group.refusal(f"{error}; {SERVER_BYTES // MIB} MiB are its server's") from None


def _of_member(request: Request) -> Request:
    """Return the request that the cards must have room for, without compute that the group has."""
    shares = [
        share._replace(weight=None, weight_percent=None, quota=None)._replace(
            priority=None, policy=None, whole=False
        )
        for share in request.shares
    ]
    return request._replace(shares=tuple(shares))


def _of_leader(group: Group, request: Request) -> Request:
    """Return the leader's part of the request: the server's memory, and a single member's quota."""
    shares = [
        share._replace(
            memory=MemoryBytes(SERVER_BYTES), uvm_disable=False, oom_action=None
        )._replace(weight=None, quota=share.quota if group.single else None, quota_min=None)
        for share in request.shares
    ]
    return request._replace(shares=tuple(shares))


def _never_parked(grant: Grant) -> Grant:
    """Return it without the node's default for containers that are idle."""
    return grant._replace(cards=tuple(card._replace(idle_park_s=None) for card in grant.cards))


def _with_parts(grant: Grant, request: Request) -> Grant:
    """Return the grant with the member's weight and quota within its group."""
    cards = [
        card._replace(weight=share.weight, quota=share.quota, idle_park_s=None)
        for card, share in zip(grant.cards, _shares(grant, request), strict=True)
    ]
    return grant._replace(cards=tuple(cards))


def _shares(grant: Grant, request: Request) -> list[CardShare]:
    """Return the share asked of each card of a grant; one share may stand for all cards."""
    last = len(request.shares) - 1
    return [request.shares[min(position, last)] for position in range(len(grant.cards))]


@contextlib.contextmanager
def joined(
    group: Group,
    request: Request,
    root: str,
    admit: Callable[[Request], Grant],
    directory: str = DIRECTORY,
) -> Iterator[Grant]:
    """
    Keep the group alive within this context; yield the grant of its new member.

    Args:
        admit: from a request to what the cards have room for.

    Raises:
        CgpuError: the caller may not join it, or its server does not start.
    """
    # From here on the name is a directory's.
    procfs.check_id(group.name)
    own = group.own(request)
    quota_of(own)
    if request.idle_park_s:
        raise group.refusal(
            "no container of a group is parked, because MPS serves it: leave"
            f" {group.option('idle-park')} out, or the group"
        )
    with _locked(group.name, directory):
        if group.name in procfs.container_ids(root):
            _check_open(group, root, directory)
            grant = admitted(group, request, admit)
            _check_cards(group, grant, root)
            _check_settings(group, request, grant, root)
        else:
            _check_gone(group, root)
            # A member that has no room must start nothing.
            grant = admitted(group, request, admit)
            _start(group, _never_parked(admit(_of_leader(group, request))), directory)
        yield _with_parts(grant, own)


@contextlib.contextmanager
def _locked(name: str, directory: str) -> Iterator[None]:
    path = f"{directory}/{name}"
    while True:
        _make_directory(name, directory)
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if not lock.acquire(held, LOCK_TIMEOUT_S, pause_s=0.002):
                raise LaunchError(f"{path} is locked by another start or end: try again")
            # A group that ends may have removed it meanwhile.
            if _is_at(held, path):
                try:
                    yield
                finally:
                    # The directory of a refused group is empty and goes; a live one's stays.
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                return
        finally:
            os.close(held)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def members(name: str, root: str) -> list[str]:
    """Return the ids of the containers in a group, without its leader's."""
    found = set()
    for card, container in _containers(root):
        # The container may end meanwhile.
        with contextlib.suppress(NodeError):
            if procfs.read_group(card, container, root) == name:
                found.add(procfs.read_cid(card, container, root))
    return sorted(found - {name})


def cards_of(name: str, root: str) -> dict[int, str]:
    """Return the cards of a container and its directory's name on each."""
    found = {}
    for card, container in _containers(root):
        with contextlib.suppress(NodeError):
            if procfs.read_cid(card, container, root) == name:
                found[card] = container
    return found


def of_container(name: str, root: str) -> str | None:
    """Return the id of the leader of a container's group; None: no such container, or no group."""
    found = [procfs.read_group(card, one, root) for card, one in cards_of(name, root).items()]
    return found[0] if found else None


def _containers(root: str) -> Iterator[tuple[int, str]]:
    for card in procfs.card_indexes(root):
        for container in procfs.container_names(card, root):
            yield card, container


def _check_open(group: Group, root: str, directory: str) -> None:
    name = group.name
    cards = cards_of(name, root)
    if any(procfs.read_group(card, one, root) != name for card, one in cards.items()):
        raise group.refusal("a container of this name exists, and is no group: choose another name")
    told = owner(name, directory)
    if told is None:
        raise group.refusal(
            f"{directory}/{name}/{_OWNER} does not tell whose it is: end its members, and start it"
            " again"
        )
    whose, uid = told
    if whose != group.owner:
        raise group.refusal(f"it belongs to {whose}, and {group.owner} asks: choose another name")
    if uid != group.uid:
        raise group.refusal(
            f"its server runs as user {uid} of the host, and this container as user {group.uid}."
            " The driver lets a server's own user in alone: run both as the same user"
        )
    if not answers(name, directory):
        left = ", ".join(members(name, root)) or "its last processes"
        raise group.refusal(
            f"its MPS server has ended, and {left} must end before another starts: see"
            f" {directory}/{name}/log"
        )


def _check_gone(group: Group, root: str) -> None:
    left = members(group.name, root)
    if left:
        raise group.refusal(
            f"its MPS server has ended, and {', '.join(left)} must end before another starts"
        )


def owner(name: str, directory: str = DIRECTORY) -> tuple[str, int] | None:
    """Return a group's owner and its server's user; None: no such group is there."""
    try:
        with open(f"{directory}/{name}/{_OWNER}", encoding="utf-8") as file:
            whose, uid = file.read().split("\n")
        return whose, int(uid)
    except (OSError, ValueError):
        # Or it is being written: the group is about to be there.
        return None


def answers(name: str, directory: str = DIRECTORY) -> bool:
    """Tell whether a process listens where clients look for the group's server."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(1)
        connection.connect(f"{pipe(name, directory)}/{CONTROL_SOCKET}")
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _check_cards(group: Group, grant: Grant, root: str) -> None:
    has = cards_of(group.name, root)
    for one in grant.cards:
        if one.index not in has:
            raise group.refusal(
                f"it is on card {', '.join(map(str, has))}, and card {one.index} is asked: a"
                " member's cards are among its group's"
            )


def _check_settings(group: Group, request: Request, grant: Grant, root: str) -> None:
    """Refuse another setting than the group has: it is all members', and the operator's."""
    has = cards_of(group.name, root)
    for one, share in zip(grant.cards, _shares(grant, request), strict=True):
        name = has[one.index]
        priority = procfs.read_priority(one.index, name, root)
        # A member that asks for a lower priority gets it within the group.
        if share.priority is not None and share.priority > priority:
            raise group.refusal(
                f"{group.option('priority')} {share.priority} asked, and the group has {priority}:"
                f" cgpu set {group.name} --priority changes it for all members"
            )
        policy = procfs.read_policy(one.index, root)
        if group.policy_asked and share.policy not in (None, policy):
            raise group.refusal(
                f"{group.option('policy')} {share.policy} asked, and card {one.index} has {policy}"
                f" {POLICIES[policy]}: cgpu policy {one.index} changes it"
            )


def program() -> str:
    """
    Return the path of the program that starts MPS servers.

    Raises:
        LaunchError: this host has none.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    found = shutil.which(CONTROL, path=path)
    if found is None:
        raise LaunchError(
            f"a group needs {CONTROL}, and this host has none: install it with the driver (Debian:"
            " nvidia-cuda-mps; Ubuntu: nvidia-compute-utils)"
        )
    return found


def _readable(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _start(group: Group, grant: Grant, directory: str) -> None:
    """Start the group's server and wait until clients find it."""
    command = [sys.executable, "-m", "pycgpu.agent.group_server", group.name, str(group.uid)]
    where = (directory, group.shm or "", program())
    make_places(group, directory)
    path = f"{directory}/{group.name}/{_OWNER}"
    with open(path, "w", encoding="utf-8", opener=_readable) as file:
        file.write(f"{group.owner}\n{group.uid}")
    clauses = procfs.create_command(group.name, grant, pid=1, group=group.name).split()[3:]
    with subprocess.Popen(
        [*command, *where, *clauses],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # The server outlives this process, so it must not keep this process's files open.
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
        text=True,
    ) as started:
        assert started.stdout is not None
        # The server prints one line, and then continues in the background.
        said = started.stdout.readline().strip()
        started.returncode = 0
    if said != "ready":
        raise group.refusal(said or "its server did not start")
