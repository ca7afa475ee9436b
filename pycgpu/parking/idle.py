# SPDX-License-Identifier: MIT
"""
Decides which containers are idle, and which to park for room; reads and moves nothing.

A container is idle while three things hold. The card has fetched all that it submitted, it submits
nothing, and its memory stands still. GP_GET and GP_PUT of its compute channels tell, as they tell
the scheduler (``kmod/core/sched/demand.h``). The log of context switches does not: a context that
is alone stays loaded however long it idles. A container whose channels cannot be read is never
idle.
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
        priority: its highest on a card.
        idle_park_s: idle for so long, it may be parked; 0: only on request.
        submitted: changes with each submission; None: it has work, or that cannot be known.
        held: bytes by card.
        since_ns: the time on the monotonic clock of its last change of state; 0: none yet.
    """

    id: str
    priority: int
    idle_park_s: int
    submitted: object
    held: Mapping[int, int]
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Idler:
    """A container that may be parked: its bytes on each card, and how long it has been idle."""

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
        Note the present use; return the containers that have been idle for their idle_park_s.

        Args:
            now_s: on the monotonic clock.
            park_min_s: how long a container that came back stays on the card at least.
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
    """Bounds how often containers are parked automatically."""

    def __init__(self) -> None:
        self._begun_s: deque[float] = deque()

    def left(self, now_s: float, per_min: int) -> int:
        """Return how many moves may begin now."""
        while self._begun_s and self._begun_s[0] <= now_s - _MINUTE_S:
            self._begun_s.popleft()
        return max(0, per_min - len(self._begun_s))

    def begin(self, now_s: float) -> None:
        """Count one move."""
        self._begun_s.append(now_s)


def choose(
    idlers: Iterable[Idler], wanted: Mapping[int, int], priority: int, most: int
) -> list[Idler]:
    """
    Return the containers to park to free *wanted* bytes of each card; empty: it is impossible.

    Lower priority goes first, then longer idleness. A container of a priority above *priority*
    stays, as does one whose memory does not help. None is parked if all together are too few.

    Args:
        most: how many containers may be parked.
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
    # A container chosen early may not be needed with a larger one chosen later.
    for one in list(chosen):
        others = [other for other in chosen if other is not one]
        rest = dict(wanted)
        for other in others:
            rest = _rest(rest, other.held)
        if not any(size > 0 for size in rest.values()):
            chosen = others
    return chosen if len(chosen) <= most else []


def _rest(lacking: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """Return what is still lacking when *held* is free, too."""
    rest = {card: size - held.get(card, 0) for card, size in lacking.items()}
    return {card: size for card, size in rest.items() if size > 0}
