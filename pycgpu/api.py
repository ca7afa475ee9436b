# SPDX-License-Identifier: MIT
"""
The public interface, as ``import pycgpu`` offers it: cards, containers, limits, events, usage.

Everything is read from the tree of nodes of the door that is open, ``/proc/cgpu_km`` or
``/run/cgpu_km``; *root* names another. Returned objects are copies of one moment. Amounts are in
bytes, quotas in percent of the card, and every error is a :class:`~pycgpu.errors.CgpuError` whose
text is one line with its remedy. Changing anything takes root.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .agent import moves
from .errors import CgpuError
from .errors import ModuleNotLoaded as ModuleNotLoaded
from .errors import NodeError as NodeError
from .errors import PermissionDenied as PermissionDenied
from .errors import ProtocolError as ProtocolError
from .request.model import POLICIES, CardGrant, Grant
from .tree import change, counters, nvml, procfs, snapshot, target
from .tree import events as _events
from .tree import usage as _usage
from .tree.events import Event
from .tree.snapshot import CardView, ContainerView
from .tree.status import ProcessUsage


@dataclass(frozen=True, slots=True)
class Card:
    """
    A card under control.

    Attributes:
        index: N of ``/dev/nvidiaN``.
        uuid: as NVML writes it.
        model: the product's name; None where NVML is absent.
        memory_bytes: the board's memory; ``reserved_bytes`` of it are the driver's.
        promised_bytes: the sum of its containers' limits.
        free_bytes: the sum that limits of further containers may reach.
        used_bytes: the memory that its containers hold.
        policy: one of :data:`pycgpu.request.model.POLICIES`.
        max_inst: how many containers it takes.
        overcommit_ratio: percent of the card that limits may add up to; each is at most the card.
    """

    index: int
    uuid: str
    model: str | None
    memory_bytes: int
    reserved_bytes: int
    promised_bytes: int
    free_bytes: int
    used_bytes: int
    policy: str
    max_inst: int
    overcommit_ratio: int


@dataclass(frozen=True, slots=True)
class Part:
    """
    A container's part of one card.

    Attributes:
        card: the card's index.
        memory_bytes: its limit; None: no limit.
        used_bytes: its charged memory.
        weight, priority: as the policies use them.
        quota, quota_min: percent of the card; None: none set.
        processes: those that hold the card.
        counters: the container's ``stat``: times in ns, since it came.
        events: how often each happened: ``oom``, ``refused``, …
        group: the id of its group's leader, which may be its own; None: no group.
        state: of the container: ``running``, ``parking``, ``parked`` or ``resuming``.
        parked_bytes: its memory that is on the host, or moves.
        waits: it waits for room on this card, to come back or for a call.
        idle_park_s: the idle time after which it may be parked; 0: never.
    """

    card: int
    memory_bytes: int | None
    used_bytes: int
    weight: int
    quota: int | None
    quota_min: int | None
    priority: int
    processes: tuple[ProcessUsage, ...]
    counters: Mapping[str, int]
    events: Mapping[str, int]
    group: str | None
    state: str = "running"
    parked_bytes: int = 0
    waits: bool = False
    idle_park_s: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """A container with a part of at least one card; ``name`` is its engine's, if one knows it."""

    id: str
    name: str | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """
    The limits of a container on one card; None leaves the door's default.

    Attributes:
        memory: bytes, or text with a unit such as ``"8GiB"``; None: no limit.
        quota, quota_min: percent, 1 to 100.
        uvm_disable: managed memory is refused.
        oom_action: ``"fail"`` or ``"kill"``.
        idle_park: the idle time after which it may be parked: seconds, or text like ``"5m"``; 0:
            never.
    """

    memory: int | str | None = None
    weight: int | None = None
    quota: int | None = None
    quota_min: int | None = None
    priority: int | None = None
    uvm_disable: bool = False
    oom_action: str | None = None
    idle_park: int | str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """One value that :func:`set` wrote, or would write; ``shown``: old and new in words."""

    card: int
    directory: str
    what: str
    shown: str


@dataclass(frozen=True, slots=True)
class Usage:
    """
    A container's parts of one card's time over a period, 0 to 1; None: the door does not tell.

    Attributes:
        granted: it was allowed to compute.
        used: it computed.
        throttled: it was held back.
        waited: it had work, as far as is known, and did not run.
        byte_seconds: charged memory × time.
        joules: the board's energy in the time that it used; None without NVML.
    """

    container: str
    card: int
    granted: float | None
    used: float | None
    throttled: float | None
    counters: Mapping[str, int] = field(default_factory=dict)
    waited: float | None = None
    byte_seconds: float = 0.0
    joules: float | None = None


def cards(root: str | None = None) -> tuple[Card, ...]:
    """Return every card under control, by index."""
    return tuple(_card(one) for one in snapshot.take(root or procfs.find_root()).cards)


def containers(root: str | None = None) -> tuple[Container, ...]:
    """Return every container that has a part of a card, by id."""
    moment = snapshot.take(root or procfs.find_root(), boards=nvml.Nvml())
    found: dict[str, list[ContainerView]] = {}
    for card in moment.cards:
        for one in card.containers:
            found.setdefault(one.status.id, []).append(one)
    return tuple(
        Container(
            container_id,
            next((str(one.name) for one in views if one.name is not None), None),
            tuple(_part(one) for one in views),
        )
        for container_id, views in sorted(found.items())
    )


def container(text: str, root: str | None = None) -> Container:
    """Return the container of that id, beginning of an id, name or pod. CgpuError: not one."""
    root = root or procfs.find_root()
    wanted = target.find(text, root).id
    for one in containers(root):
        if one.id == wanted:
            return one
    raise CgpuError(f"container {wanted} has no part of a card, or has just gone")


def create(
    container_id: str,
    limits: Mapping[int, Limits],
    *,
    pid: int | None = None,
    cgroup: str | None = None,
    root: str | None = None,
) -> None:
    """
    Register a container: its processes are limited on cards that they open from now on.

    Args:
        limits: by the card's index; the container sees no other cards.
        pid, cgroup: exactly one: its first process (the host's number, the first of a pid
            namespace), or its cgroup's path. When that ends, the door removes the registration.

    Raises:
        CgpuError: a value is malformed, or the door refuses it; nothing is registered then.
    """
    root = root or procfs.find_root()
    known = [card.index for card in procfs.find_cards(root)]
    if not limits:
        raise CgpuError(f"{container_id}: give it a part of a card at least; there are: {known}")
    for card in limits:
        if card not in known:
            raise CgpuError(f"no GPU {card} under control; there are: {known}")
    grant = Grant(tuple(_grant(card, wanted) for card, wanted in sorted(limits.items())))
    procfs.create(container_id, grant, root, pid=pid, cgroup=cgroup)


def set(
    container: str,
    *,
    card: int | None = None,
    memory: int | str | None = None,
    weight: int | str | None = None,
    quota: int | str | None = None,
    quota_min: int | str | None = None,
    priority: int | str | None = None,
    idle_park: int | str | None = None,
    dry_run: bool = False,
    root: str | None = None,
) -> tuple[Changed, ...]:
    """
    Change limits of a running container: all given ones, or none.

    Args:
        container: id, beginning of it, name or pod.
        card: change this card alone; default: all its cards.
        memory: bytes, or text with a unit. The other values are whole numbers, or their text;
            a quota of 0 takes it away.
        idle_park: seconds, or text such as ``"5m"``; 0: never.
        dry_run: check and change nothing.

    Raises:
        CgpuError: a value is malformed, or the door refuses it; nothing is changed then.
    """
    root = root or procfs.find_root()
    wanted = {
        "weight": weight,
        "quota": quota,
        "quota_min": quota_min,
        "priority": priority,
        "memory": memory,
        "idle_park": idle_park,
    }
    given = {what: str(value) for what, value in wanted.items() if value is not None}
    if not given:
        raise CgpuError("nothing to set: give weight, quota, memory or another")
    planned = [
        (Changed(index, directory, what, step.shown), step)
        for index, directory in target.choose_cards(target.find(container, root), card)
        for what, text in given.items()
        for step in [change.plan(what, index, directory, text, root)]
    ]
    if not dry_run:
        change.apply_all([step for _, step in planned])
    return tuple(changed for changed, _ in planned)


def set_policy(card: int, policy: int | str, root: str | None = None) -> None:
    """Set a card's policy, by number or name. CgpuError: there is no such policy or card."""
    root = root or procfs.find_root()
    target.check_card(card, procfs.card_indexes(root))
    procfs.write_policy(card, change.parse_policy(str(policy)), root)


def park(container: str, *, hold: bool = False, root: str | None = None) -> int:
    """
    Move a container's memory to the host until it calls CUDA; return its bytes.

    Args:
        container: as in :func:`container`.
        hold: it comes back by :func:`resume` alone.

    Raises:
        CgpuError: why it cannot be parked; it goes on as before.
    """
    root = root or procfs.find_root()
    return moves.park(target.find(container, root).id, root, hold=hold)


def resume(container: str, *, root: str | None = None) -> bool:
    """
    Bring a parked container back; False: it waits for room, and comes back by itself.

    Raises:
        CgpuError: it is not parked, or the driver fails.
    """
    root = root or procfs.find_root()
    return not moves.resume(target.find(container, root).id, root)


def destroy(container_id: str, root: str | None = None) -> bool:
    """
    Remove a registration, by its full id; False: there is none.

    Raises:
        CgpuError: processes of the container still hold a card.
    """
    return procfs.destroy(container_id, root or procfs.find_root())


def events(
    *, follow: bool = False, container: str | None = None, root: str | None = None
) -> Iterator[Event]:
    """
    Yield events, oldest first: containers that come and go, refusals, changes.

    Args:
        follow: wait for more instead of ending.
        container: only this container's events, as in :func:`container`; for a group's leader also
            the members' events.
    """
    root = root or procfs.find_root()
    wanted = None if container is None else target.find(container, root).id
    return (
        one
        for one in map(_events.parse, _events.lines(root, follow))
        if wanted is None or wanted in (one.id, one.values.get("group"))
    )


def usage(period_s: float = counters.SAMPLE_S, root: str | None = None) -> tuple[Usage, ...]:
    """
    Return each container's use of its cards during the next *period_s* seconds.

    With less than two periods of the engine (0.08 s with up to 8 containers) shares fluctuate.

    Raises:
        CgpuError: *period_s* is no valid time to wait.
    """
    root = root or procfs.find_root()
    if not 0 < period_s < math.inf:
        raise CgpuError(f"period_s {period_s}: write seconds, more than 0")
    before = {one.card: one for one in _readings(snapshot.take(root))}
    moment = snapshot.sample(root, sample_s=period_s)
    sums = {
        (after.card, part.id): part.sums
        for after in _readings(moment)
        if after.card in before
        for part in _usage.between(before[after.card], after)[1]
    }
    nothing = _usage.Sums(0.0, 0.0)
    return tuple(
        Usage(
            one.status.id,
            one.status.card,
            one.share.granted,
            one.share.used,
            one.share.throttled,
            one.status.stat,
            one.share.waited,
            sums.get((one.status.card, one.status.id), nothing).byte_seconds,
            sums.get((one.status.card, one.status.id), nothing).joules,
        )
        for card in moment.cards
        for one in card.containers
    )


def _readings(taken: snapshot.Snapshot) -> list[_usage.Reading]:
    return _usage.readings(taken, taken.time_ns, time.monotonic_ns())


def _card(view: CardView) -> Card:
    card = view.status.card
    return Card(
        index=card.index,
        uuid=card.uuid,
        model=None if view.board is None else view.board.name,
        memory_bytes=card.total_bytes,
        reserved_bytes=card.reserved_bytes,
        promised_bytes=card.allocated_bytes,
        free_bytes=card.free_bytes,
        used_bytes=card.used_bytes,
        policy=POLICIES[card.policy],
        max_inst=card.max_inst,
        overcommit_ratio=card.overcommit_ratio,
    )


def _part(view: ContainerView) -> Part:
    status = view.status
    return Part(
        card=status.card,
        memory_bytes=status.memory_bytes,
        used_bytes=view.used_bytes,
        weight=status.weight,
        quota=status.quota,
        quota_min=status.quota_min,
        priority=status.priority,
        processes=status.processes,
        counters=status.stat,
        events=status.events,
        group=status.group,
        state=status.state,
        parked_bytes=status.parked_bytes,
        waits=view.wait is not None,
        idle_park_s=status.idle_park_s,
    )


def _grant(card: int, limits: Limits) -> CardGrant:
    numbers = {
        what: None if value is None else change.parse_number(what, str(value))
        for what in ("weight", "quota", "quota_min", "priority")
        for value in (getattr(limits, what),)
    }
    if numbers["quota"] == 0:
        raise CgpuError("quota 0: write 1 to 100 percent, or None for none")
    if limits.oom_action not in (None, "fail", "kill"):
        raise CgpuError(f"oom_action {limits.oom_action!r}: write fail or kill")
    return CardGrant(
        card,
        None if limits.memory is None else change.parse_memory(str(limits.memory)),
        **numbers,
        uvm_disable=limits.uvm_disable,
        oom_action=limits.oom_action,
        idle_park_s=(
            None if limits.idle_park is None else change.parse_idle_park(str(limits.idle_park))
        ),
    )
