# SPDX-License-Identifier: MIT
"""
What each container had of each card between two moments: time, memory and energy.

The tree's counters and the board's energy counter are read now and then; this module divides their
growth between two readings. The parts and an unassigned rest add up to the card's own figures.

* Time: differences of the container's counters. The last time of a container that ended is the
  card's total less all others' (several that ended divide it by how long each was there). It
  counts as granted exactly that much.
* Memory: the mean of two readings times the time between them; the card's is that of all.
* Energy: the board's, in proportion to the time that each container used. The energy of the time
  in which no container ran is assigned to none. So a container pays for the board's idle power
  only while it runs.
* GPU-hours: hours × units of the card × the larger of its promised parts of compute and memory,
  used or not.
* A group is billed like one container: the larger of its compute and of all its memory. A member
  pays its memory's part of that, and the leader the rest. The leader has all time and energy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from . import cards
from .counters import COMPUTE_KEYS as COUNTERS
from .snapshot import CardView, ContainerView, Snapshot


class Holding(NamedTuple):
    """
    A container on one card at one moment.

    core: part of the card's compute that it was promised, 0 to 1: its quota, or its guaranteed
        part, or its weight's part of ``max_inst``. 0 for a group's member, as its leader has it.
    memory_bytes: its limit; None is none.
    group: the id of its group's leader, which may be its own; None: it is in no group.
    """

    id: str
    name: str | None
    core: float
    memory_bytes: int | None
    used_bytes: int
    counters: Mapping[str, int]
    group: str | None = None


class Reading(NamedTuple):
    """
    A card at one moment.

    time_ns: the wall clock's, for people; ``clock_ns`` is never set back.
    used_ns: of all containers, with those that ended; None: unknown.
    joules: the board's energy since its driver was loaded; None: NVML does not tell.
    """

    time_ns: int
    clock_ns: int
    card: int
    uuid: str
    model: str | None
    card_bytes: int
    used_ns: int | None
    joules: float | None
    containers: tuple[Holding, ...]


class Sums(NamedTuple):
    """Figures that grow with time; None: unknown. ``seconds``: how long it was there."""

    seconds: float
    byte_seconds: float
    granted_ns: float | None = None
    used_ns: float | None = None
    throttled_ns: float | None = None
    waited_ns: float | None = None
    joules: float | None = None

    def scaled(self, part: float) -> Sums:
        """Return that part of all, 0 to 1."""
        rest = (None if value is None else value * part for value in self[2:])
        return Sums(self.seconds * part, self.byte_seconds * part, *rest)

    def plus(self, other: Sums) -> Sums:
        """Return both together."""
        rest = (_sum(pair) for pair in zip(self[2:], other[2:], strict=True))
        return Sums(self.seconds + other.seconds, self.byte_seconds + other.byte_seconds, *rest)


class Spent(NamedTuple):
    """
    What one container had of one card, or the whole card if ``id`` is None.

    group: as of :class:`Holding`.
    members: of a group's leader, its members' names, or ids where they have none.
    members_part: the parts of the card's memory that these were promised, while the leader was
        there.
    """

    card: int
    uuid: str
    model: str | None
    card_bytes: int
    id: str | None
    name: str | None
    core: float | None
    memory_bytes: int | None
    sums: Sums
    group: str | None = None
    members: tuple[str, ...] = ()
    members_part: float = 0.0

    @property
    def memory_part(self) -> float:
        """The part of the card's memory that it was promised; 0: unknown."""
        if self.core is None:
            return 0.0
        limit = self.memory_bytes
        return 1.0 if limit is None or not self.card_bytes else limit / self.card_bytes

    @property
    def billed_part(self) -> float:
        """The part of the card that it is billed for: of compute or memory, whichever is more."""
        if self.core is None:
            return 0.0
        memory = self.memory_part + self.members_part
        return min(1.0, max(self.core, memory)) - min(1.0, self.members_part)


def gpu_hours(spent: Spent, tables: Mapping[str, cards.Table]) -> float:
    """
    Return the GPU-hours that are billed: hours × the card's units × its part.

    Args:
        tables: of /etc/cgpu/cards.toml, which has the units.
    """
    units = cards.wanted(tables, spent.uuid, spent.model).get(cards.UNITS, 1)
    return spent.sums.seconds / 3600 * units * spent.billed_part


def _sum(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def readings(taken: Snapshot, time_ns: int, clock_ns: int) -> list[Reading]:
    """
    Return every card of a snapshot.

    Args:
        time_ns, clock_ns: when it was taken, by ``time.time_ns()`` and ``time.monotonic_ns()``.
    """
    return [
        Reading(
            time_ns,
            clock_ns,
            view.status.card.index,
            view.status.card.uuid,
            None if view.board is None else view.board.name,
            view.status.card.total_bytes,
            view.status.stat.get("used_ns"),
            None if view.board is None else view.board.energy_j,
            tuple(_holding(view, one) for one in view.containers),
        )
        for view in taken.cards
    ]


def _holding(card: CardView, view: ContainerView) -> Holding:
    one = view.status
    percent = one.quota or one.quota_min
    part = percent / 100 if percent else min(1.0, one.weight / card.status.card.max_inst)
    return Holding(
        one.id,
        None if view.name is None else str(view.name),
        # A member's part is one of its group's.
        0.0 if one.leader else part,
        one.memory_bytes,
        view.used_bytes,
        {key: one.stat[key] for key in COUNTERS if key in one.stat},
        one.group,
    )


def between(
    before: Reading,
    after: Reading,
    came: Mapping[str, int] | None = None,
    went: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
) -> tuple[Spent, list[Spent]]:
    """
    Return what the card's containers had between two readings: all together, and each.

    Args:
        came, went: wall-clock times at which containers came and went in between, by id. One
            without a time counts for half of the interval. What one that both came and went was
            promised is unknown.
        groups: the leaders of containers that came or went, by id, as far as they have one.
    """
    elapsed_s = (after.clock_ns - before.clock_ns) / 1e9
    was = {one.id: one for one in before.containers}
    now = {one.id: one for one in after.containers}
    parts = []
    for id in {**was, **now}:
        old, new = was.get(id), now.get(id)
        if old is not None and new is not None and _went_back(old, new):
            old = None
        begin = 0.0 if old is not None else _part(came, id, before, after)
        end = 1.0 if new is not None else _part(went, id, before, after)
        seconds = max(0.0, end - begin) * elapsed_s
        parts.append(_spent(after, old, new, seconds, elapsed_s))
    for id in (came or {}).keys() & (went or {}).keys() - was.keys() - now.keys():
        seconds = _part(went, id, before, after) - _part(came, id, before, after)
        leader = (groups or {}).get(id)
        parts.append(_unseen(after, id, max(0.0, seconds) * elapsed_s, leader))
    parts = [_with_members(part, parts) for part in parts]
    told = [part.sums.used_ns for part in parts if part.sums.used_ns is not None]
    used_ns: float | None = sum(told) if told else None
    if after.used_ns is not None and before.used_ns is not None:
        used_ns = max(0, after.used_ns - before.used_ns)
        _give_to_the_gone(parts, set(now), used_ns - sum(told))
        used_ns = max(used_ns, sum(part.sums.used_ns or 0 for part in parts))
    joules = None
    if after.joules is not None and before.joules is not None and after.joules >= before.joules:
        joules = after.joules - before.joules
        whole_ns = max(elapsed_s * 1e9, used_ns or 0)
        for index, part in enumerate(parts):
            share = (part.sums.used_ns or 0) / whole_ns if whole_ns else 0.0
            parts[index] = part._replace(sums=part.sums._replace(joules=joules * share))
    whole = Sums(
        elapsed_s,
        # not by the card's own node: a container may go between the reading of that and of its own
        sum(part.sums.byte_seconds for part in parts),
        granted_ns=_sum(part.sums.granted_ns for part in parts),
        used_ns=used_ns,
        throttled_ns=_sum(part.sums.throttled_ns for part in parts),
        waited_ns=_sum(part.sums.waited_ns for part in parts),
        joules=joules,
    )
    return _on(after, None, whole), parts


def _on(card: Reading, one: Holding | None, sums: Sums) -> Spent:
    return Spent(
        card=card.card,
        uuid=card.uuid,
        model=card.model,
        card_bytes=card.card_bytes,
        id=None if one is None else one.id,
        name=None if one is None else one.name,
        core=None if one is None else one.core,
        memory_bytes=None if one is None else one.memory_bytes,
        sums=sums,
        group=None if one is None else one.group,
    )


def _with_members(part: Spent, parts: Iterable[Spent]) -> Spent:
    if part.id is None or part.group != part.id:
        return part
    members = [one for one in parts if one.group == part.id and one.id != part.id]
    seconds = part.sums.seconds
    held = sum(one.memory_part * one.sums.seconds for one in members)
    return part._replace(
        members=tuple(sorted(one.name or str(one.id) for one in members)),
        members_part=held / seconds if seconds else 0.0,
    )


def _part(times: Mapping[str, int] | None, id: str, before: Reading, after: Reading) -> float:
    """Return how much of the time between two readings had passed when that happened."""
    at_ns, whole_ns = (times or {}).get(id), after.time_ns - before.time_ns
    if at_ns is None or whole_ns <= 0:
        return 0.5
    return min(1.0, max(0.0, (at_ns - before.time_ns) / whole_ns))


def _unseen(card: Reading, id: str, seconds: float, leader: str | None) -> Spent:
    return _on(card, None, Sums(seconds, 0.0))._replace(id=id, group=leader)


def _went_back(old: Holding, new: Holding) -> bool:
    """The counters are another container's of the same id, or the module's that came anew."""
    return any(new.counters.get(key, 0) < count for key, count in old.counters.items())


def _spent(
    card: Reading, old: Holding | None, new: Holding | None, seconds: float, elapsed_s: float
) -> Spent:
    counted: list[float | None] = []
    for key in COUNTERS:
        then = 0 if old is None else old.counters.get(key)
        count = None if new is None else new.counters.get(key)
        counted.append(None if then is None or count is None else count - then)
    held = (0 if old is None else old.used_bytes) + (0 if new is None else new.used_bytes)
    return _on(card, new or old, Sums(seconds, held / 2 * elapsed_s, *counted))


def _give_to_the_gone(parts: list[Spent], there: set[str], rest_ns: float) -> None:
    # A member's time is its leader's.
    gone = [
        index
        for index, part in enumerate(parts)
        if part.id not in there and part.group in (None, part.id)
    ]
    grants = any(part.sums.granted_ns is not None for part in parts)
    seconds = sum(parts[index].sums.seconds for index in gone)
    for index in gone:
        sums = parts[index].sums
        share = sums.seconds / seconds if seconds else 1 / len(gone)
        used_ns = max(0.0, rest_ns) * share
        granted_ns = used_ns if grants else None
        parts[index] = parts[index]._replace(
            sums=sums._replace(used_ns=used_ns, granted_ns=granted_ns)
        )
