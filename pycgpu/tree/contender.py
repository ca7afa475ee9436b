# SPDX-License-Identifier: MIT
"""A container that competes for a card: how long it had it, how long it waited, its owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import group
from .names import ContainerName
from .snapshot import ContainerView, Snapshot


class Owner(NamedTuple):
    """
    Whose a container is, as groups have it.

    of: a user's programs, a user's containers, or a namespace.
    uid: the host's number of the user, whom the driver compares with the server's.
    """

    of: str
    uid: int


class Contender(NamedTuple):
    """
    A container on one card, or a whole group by its leader, over a sample; parts of that, 0 to 1.

    used: its contexts had the engine. waited: it had work and did not run. None: unknown.
    busy: kernels of it ran, by NVML's samples of its processes; None: unknown.
    owner: the owner of a group with it; None: unknown, or it has processes of several users.
    is_group: it is a group already, with its members.
    cards: the indices of all its cards.
    """

    id: str
    label: str
    owner: Owner | None
    used: float | None
    waited: float | None
    busy: float | None = None
    is_group: bool = False
    priority: int = 0
    cards: tuple[int, ...] = ()
    idle_park_s: int = 0


def of_card(
    moment: Snapshot,
    card: int,
    processes: Mapping[int, float] | None,
    *,
    prefix: str = "/",
    groups: str = group.DIRECTORY,
) -> list[Contender]:
    """
    Return the contenders of a card: containers without a group, and groups by their leaders.

    Args:
        moment: with shares.
        processes: time in which a kernel of a process ran, 0 to 1, by pid; None: not told.
        prefix: root of the host's files.
        groups: the directory in which groups record their owners.
    """
    cards: dict[str, list[int]] = {}
    here: tuple[ContainerView, ...] = ()
    for shown in moment.cards:
        index = shown.status.card.index
        here = shown.containers if index == card else here
        for view in shown.containers:
            cards.setdefault(view.status.id, []).append(index)
    known = {process.pid for view in here for process in view.status.processes}
    if processes is not None and known.isdisjoint(processes):
        # NVML numbers processes by its own pid namespace, which in a container is another one.
        processes = None
    keeps_log = any(view.share.used is not None for view in here)
    found = []
    for view in here:
        one = view.status
        if one.leader is not None:
            continue
        in_it = [other for other in here if other is view or other.status.leader == one.id]
        found.append(
            Contender(
                one.id,
                view.label,
                _owner_of_group(one.id, groups) if one.group else _owner(view, prefix),
                *_times(view, keeps_log),
                _busy(in_it, processes),
                one.group is not None,
                one.priority,
                tuple(cards[one.id]),
                one.idle_park_s,
            )
        )
    return found


def _times(view: ContainerView, keeps_log: bool) -> tuple[float | None, float | None]:
    """Return the parts of the time in which it had the card and waited for it; None: unknown."""
    if view.share.used is None and keeps_log and view.share.granted is not None:
        # A container that never ran reads like one under a driver without a log.
        return 0.0, 0.0
    return view.share.used, view.share.waited


def _busy(views: list[ContainerView], processes: Mapping[int, float] | None) -> float | None:
    if processes is None:
        return None
    pids = {process.pid for view in views for process in view.status.processes}
    return min(1.0, sum(processes.get(pid, 0.0) for pid in pids))


def _owner_of_group(name: str, groups: str) -> Owner | None:
    told = group.owner(name, groups)
    return None if told is None else Owner(*told)


def _owner(view: ContainerView, prefix: str) -> Owner | None:
    inside = [one for one in view.status.processes if one.container_pid]
    uids = {_uid(one.pid, prefix) for one in inside}
    uid = uids.pop() if len(uids) == 1 else None
    if uid is None:
        return None
    # A program of `cgpu run` is in the host's own pid namespace.
    is_program = view.name is None and all(one.pid == one.container_pid for one in inside)
    return Owner(_of(view.name, is_program, uid), uid)


def _of(name: ContainerName | None, is_program: bool, uid: int) -> str:
    if name is not None and name.namespace is not None:
        return f"namespace {name.namespace}"
    return f"user {uid}" if is_program else f"containers of user {uid}"


def _uid(pid: int, prefix: str) -> int | None:
    """Return the user id of a process; None: it is gone."""
    try:
        # Its directory is root's as soon as it may not be traced.
        with open(f"{prefix.rstrip('/')}/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Uid:"):
                    return int(line.split()[2])
    except (OSError, IndexError, ValueError):
        pass
    return None
