# SPDX-License-Identifier: MIT
"""
Who is idle, and who of them is parked when room is needed: decisions, nothing is read or moved.

A container is idle for as long as the card has fetched all that it submitted, it has submitted
nothing, and its memory has stood still. GP_GET and GP_PUT of its compute channels tell, as they
tell the scheduler (``kmod/core/sched/demand.h``). The log of context switches does not: a context
that is alone stays loaded however long it idles. One whose channels cannot be read is never idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Use:
    """
    A container that runs, as the tree shows it.

    Attributes:
        id: the container's.
        priority: the highest that it has on a card.
        idle_park_s: after so long idle it may be parked; 0: never by itself.
        submitted: changes with what it submits; None: it has work, or that cannot be known.
        held: bytes by card.
        since_ns: in this state since then, on the monotonic clock; 0: since it began.
    """

    id: str
    priority: int
    idle_park_s: int
    submitted: object
    held: Mapping[int, int]
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Idler:
    """One that may be parked: what it has of each card, and for how long it was idle."""

    id: str
    priority: int
    held: Mapping[int, int]
    idle_s: float


class Idleness:
    """Remembers since when each container's account has stood still."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, float]] = {}

    def idlers(self, uses: Iterable[Use], now_s: float, park_min_s: float) -> list[Idler]:
        """
        Take note of what is used now; return who has been idle for as long as it says.

        Args:
            now_s: on the monotonic clock.
            park_min_s: a container that came back is on the card for so long at least.
        """
        found: list[Idler] = []
        seen: dict[str, tuple[object, float]] = {}
        for use in uses:
            if not use.idle_park_s or use.submitted is None or not any(use.held.values()):
                continue
            account = (use.submitted, tuple(sorted(use.held.items())))
            before, since_s = self._seen.get(use.id, (account, now_s))
            if before != account:
                since_s = now_s
            seen[use.id] = account, since_s
            idle_s = now_s - since_s
            if idle_s >= use.idle_park_s and now_s - use.since_ns / 1e9 >= park_min_s:
                found.append(Idler(use.id, use.priority, use.held, idle_s))
        self._seen = seen
        return found


class Moves:
    """A bound on how often containers are parked by themselves."""

    def __init__(self) -> None:
        self._begun_s: deque[float] = deque()

    def left(self, now_s: float, per_min: int) -> int:
        """Return how many may begin now."""
        while self._begun_s and self._begun_s[0] <= now_s - _MINUTE_S:
            self._begun_s.popleft()
        return max(0, per_min - len(self._begun_s))

    def begin(self, now_s: float) -> None:
        """Count one."""
        self._begun_s.append(now_s)


def choose(
    idlers: Iterable[Idler], wanted: Mapping[int, int], priority: int, most: int
) -> list[Idler]:
    """
    Return who is parked so that *wanted* bytes of each card become free; empty: that cannot be had.

    Lower priority goes first, then who was idle for longer. Nobody of a higher priority than
    *priority* is parked, nobody whose memory does not help, and nobody if all together are too few.

    Args:
        most: how many may be parked.
    """
    lacking = {card: size for card, size in wanted.items() if size > 0}
    chosen: list[Idler] = []
    for one in sorted(idlers, key=lambda idler: (idler.priority, -idler.idle_s)):
        if not lacking:
            break
        if one.priority <= priority and any(one.held.get(card) for card in lacking):
            chosen.append(one)
            lacking = _rest(lacking, one.held)
    if lacking:
        return []
    # Who was taken first may not be needed beside a larger one that came later.
    for one in list(chosen):
        others = [other for other in chosen if other is not one]
        rest = dict(wanted)
        for other in others:
            rest = _rest(rest, other.held)
        if not any(size > 0 for size in rest.values()):
            chosen = others
    return chosen if len(chosen) <= most else []


def _rest(lacking: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """Return what is lacking still when that is free, too."""
    rest = {card: size - held.get(card, 0) for card, size in lacking.items()}
    return {card: size for card, size in rest.items() if size > 0}
