# SPDX-License-Identifier: MIT
"""What each container uses of each card: more than admission reads, for display."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import NodeError, ProtocolError
from ..request.model import Card
from . import procfs


class ProcessUsage(NamedTuple):
    """A process on a card; ``container_pid`` is its number inside the container."""

    pid: int
    container_pid: int
    memory_bytes: int
    comm: str


class ContainerStatus(NamedTuple):
    """
    A container on one card, as the tree shows it; ``memory_bytes`` None is no limit.

    group: the id of its group's leader, which may be its own; None: it is in no group.
    state: ``running``, ``parking``, ``parked`` or ``resuming``.
    idle_park_s: the idle time after which it may be parked; 0: never.
    """

    id: str
    name: str
    card: int
    memory_bytes: int | None
    free_bytes: int
    used_bytes: int
    weight: int
    quota: int | None
    quota_min: int | None
    priority: int
    processes: tuple[ProcessUsage, ...]
    stat: dict[str, int]
    events: dict[str, int]
    group: str | None = None
    state: str = "running"
    idle_park_s: int = 0

    @property
    def parked_bytes(self) -> int:
        """What lies on the host, or moves to it or back."""
        return self.stat.get("parked_bytes", 0)

    @property
    def reserved_bytes(self) -> int:
        """What is kept free on the card for its return, and not taken yet."""
        return self.stat.get("reserved_bytes", 0)

    @property
    def state_since_ns(self) -> int | None:
        """When it entered its state, on the monotonic clock; None: it never moved."""
        return self.stat.get("state_since_ns")

    @property
    def last_return_s(self) -> float | None:
        """What its last move back to the card took; None: it has not come back yet."""
        took_ns = self.stat.get("last_return_ns")
        return None if took_ns is None else took_ns / 1e9

    @property
    def leader(self) -> str | None:
        """The id of the container in whose budget this one computes; None: in its own."""
        return None if self.group == self.id else self.group


class CardStatus(NamedTuple):
    """A card and its containers, as the tree shows them."""

    card: Card
    timeslice_us: int
    stat: dict[str, int]
    containers: tuple[ContainerStatus, ...]


def read(card: int, root: str, parks: bool = False) -> CardStatus:
    """
    Return one card with the usage of its containers; its ``tenants`` are not read.

    Args:
        parks: the door parks containers; otherwise no ``idle_park_s`` is read.
    """
    return CardStatus(
        procfs.read_card(card, root, tenants=False),
        procfs.read_timeslice_us(card, root),
        procfs.read_card_stat(card, root),
        read_containers(card, root, parks),
    )


def read_meminfo(card: int, name: str, root: str) -> tuple[int, dict[int, int]]:
    """``<gpu>/<id>/meminfo``: free bytes, and bytes by process (the host's number)."""
    path = f"{card}/{name}/meminfo"
    free_bytes = None
    by_pid: dict[int, int] = {}
    for line, text in enumerate(procfs.read_lines(path, root), 1):
        words = text.split()
        numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
        if line == 1 and words[:1] == ["Free:"] and len(words) == 2 and len(numbers) == 1:
            free_bytes = numbers[0]
        elif words[0::2] == ["PID:", "Mem:"] and len(words) == 4 and len(numbers) == 2:
            by_pid[numbers[0]] = numbers[1]
        else:
            raise ProtocolError(f"{root}/{path}", line, text)
    if free_bytes is None:
        raise ProtocolError(f"{root}/{path}", 0, "no line 'Free:'")
    return free_bytes, by_pid


def read_procs(card: int, name: str, root: str) -> tuple[ProcessUsage, ...]:
    """``<gpu>/<id>/procs``: the processes that hold the card, with the bytes they charged."""
    path = f"{card}/{name}/procs"
    found = []
    for line, text in enumerate(procfs.read_lines(path, root), 1):
        # comm comes last, because it may hold spaces.
        words = text.split(" ", 3)
        if len(words) < 3 or not all(w.isascii() and w.isdecimal() for w in words[:3]):
            raise ProtocolError(f"{root}/{path}", line, text)
        pid, container_pid, memory_bytes = (int(word) for word in words[:3])
        found.append(ProcessUsage(pid, container_pid, memory_bytes, (*words, "")[3]))
    return tuple(found)


def _read_group(card: int, name: str, root: str) -> str | None:
    try:
        return procfs.read_group(card, name, root)
    except NodeError as error:
        # A core from before groups has no such node.
        if not procfs.is_gone(error):
            raise
        return None


def _read_idle_park_s(card: int, name: str, root: str) -> int:
    # An agent that is older than these tools may park by hand alone.
    return procfs.unless_gone(procfs.read_idle_park_s, card, name, root) or 0


def read_containers(card: int, root: str, parks: bool = False) -> tuple[ContainerStatus, ...]:
    """Return the usage of each container on *card*; one that ends meanwhile is left out."""
    found = []
    for name in procfs.container_names(card, root):
        try:
            free_bytes, by_pid = read_meminfo(card, name, root)
            stat = procfs.read_stat(card, name, root)
            found.append(
                ContainerStatus(
                    id=procfs.read_cid(card, name, root),
                    name=name,
                    card=card,
                    memory_bytes=procfs.read_memsize(card, name, root),
                    free_bytes=free_bytes,
                    used_bytes=stat.get("current_bytes", sum(by_pid.values())),
                    weight=procfs.read_weight(card, name, root),
                    quota=procfs.read_quota(card, name, root),
                    quota_min=procfs.read_quota_min(card, name, root),
                    priority=procfs.read_priority(card, name, root),
                    processes=read_procs(card, name, root),
                    stat=stat,
                    events=procfs.read_events(card, name, root),
                    group=_read_group(card, name, root),
                    # A container that never moved has no other state, so no file is read.
                    state=(
                        procfs.read_state(card, name, root)
                        if "state_since_ns" in stat
                        else "running"
                    ),
                    idle_park_s=_read_idle_park_s(card, name, root) if parks else 0,
                )
            )
        except NodeError as error:
            if not procfs.is_gone(error):
                raise
    return tuple(found)
