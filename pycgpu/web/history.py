# SPDX-License-Identifier: MIT
"""
A host's readings of the last hour, and the figures that a page shows of them.

A share is the growth of a counter from one reading to the next. Of old readings, only the values
for a chart or for a sum over the hour are kept.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

from ..tree.scrape import label
from .reading import Key, Reading

HOUR_S = 3600
_LINES_MAX = 100
#: Counters whose growth over the hour is shown.
_SUMMED = ("energy_joules_total", "oom_total", "refused_total")
#: Counters of seconds, whose growth from one reading to the next is a part of the card.
_SHARES = ("used", "waited", "throttled")


class Tick(NamedTuple):
    """One reading, as the hour keeps it: shares used and promised, and counters, by container."""

    time_s: float
    shares: dict[Key, tuple[float | None, float | None]]
    sums: dict[Key, dict[str, float]]
    events: dict[str, float]


class Host:
    """The last hour of one host. One thread adds to it, others ask it."""

    def __init__(self, name: str, every_s: float) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._ticks: deque[Tick] = deque(maxlen=int(HOUR_S / every_s) + 1)
        self._last: Reading | None = None
        self._now: dict[Key, dict[str, float | None]] = {}
        self._error: str | None = "not asked yet"
        self._lines: list[dict[str, Any]] | None = None

    def add(self, told: Reading, lines: list[dict[str, Any]] | None = None) -> None:
        """Take a reading; *lines* are the newest of the tree's events, where they can be read."""
        with self._lock:
            before, self._last = self._last, told
            self._now = {
                key: {what: _share(what, before, told, key) for what in _SHARES}
                for key in told.containers
            }
            shares = {
                key: (self._now[key]["used"], part.figures.get("compute_share_ratio"))
                for key, part in told.containers.items()
            }
            sums = {
                key: {name: part.figures[name] for name in _SUMMED if name in part.figures}
                for key, part in told.containers.items()
            }
            self._ticks.append(Tick(told.time_s, shares, sums, told.events))
            self._error = None
            self._lines = None if lines is None else lines[-_LINES_MAX:]

    def fail(self, why: str) -> None:
        """Note that the host did not answer: its former reading is not shown as the present one."""
        with self._lock:
            self._error, self._last, self._now = why, None, {}

    def now(self) -> dict[str, Any]:
        """Return the host as it is now, for JSON."""
        with self._lock:
            shown: dict[str, Any] = {"name": self.name, "error": self._error, "cards": []}
            if self._last is None:
                return shown
            told = self._last
            shown |= {
                "time_s": told.time_s,
                "module": told.info.get("module", ""),
                "driver": told.info.get("driver", ""),
                "cards": [self._card(told, index) for index in sorted(told.cards)],
                "events": self._events(told),
            }
            if self._lines is not None:
                shown["lines"] = self._lines
            return shown

    def chart(self, card: int) -> dict[str, Any]:
        """Return the hour of one card: times, and each container's shares at these times."""
        with self._lock:
            ticks = list(self._ticks)
            labels = {} if self._last is None else self._last.containers
        keys = sorted({key for tick in ticks for key in tick.shares if key[0] == card})
        return {
            "times_s": [round(tick.time_s, 1) for tick in ticks],
            "containers": [
                {
                    "id": key[1],
                    "label": label(labels[key].labels, "") if key in labels else key[1][:12],
                    "used": [_rounded(tick.shares.get(key, (None, None))[0]) for tick in ticks],
                    "promised": [_rounded(tick.shares.get(key, (None, None))[1]) for tick in ticks],
                }
                for key in keys
            ],
        }

    def _card(self, told: Reading, index: int) -> dict[str, Any]:
        part = told.cards[index]
        return {
            "gpu": index,
            "device": part.labels.get("device", ""),
            "uuid": part.labels.get("uuid", ""),
            "policy": told.policies.get(index),
            "figures": part.figures,
            "containers": [
                self._container(told, key)
                for key in sorted(
                    told.containers, key=lambda key: label(told.containers[key].labels, "")
                )
                if key[0] == index
            ],
        }

    def _container(self, told: Reading, key: Key) -> dict[str, Any]:
        part = told.containers[key]
        return {
            "id": key[1],
            "label": label(part.labels, ""),
            "state": told.states.get(key),
            "figures": part.figures,
            "now": self._now[key],
            "hour": {name: self._grown(key, name) for name in _SUMMED if name in part.figures},
        }

    def _grown(self, key: Key, name: str) -> float:
        """Return the growth of a counter in the hour; one that went back had restarted from 0."""
        values = [tick.sums[key][name] for tick in self._ticks if name in tick.sums.get(key, {})]
        return _growth(values)

    def _events(self, told: Reading) -> dict[str, int]:
        # A kind that did not happen before has no counter before.
        grown = {
            kind: _growth([tick.events.get(kind, 0) for tick in self._ticks])
            for kind in told.events
        }
        return {kind: round(count) for kind, count in sorted(grown.items()) if count}


def _growth(values: list[float]) -> float:
    grown = 0.0
    for old, new in pairwise(values):
        grown += new - old if new >= old else new
    return grown


def _share(what: str, before: Reading | None, after: Reading, key: Key) -> float | None:
    """Return the part of the time between two readings; None: unknown."""
    name = f"{what}_seconds_total"
    old = None if before is None else before.containers.get(key)
    new = after.containers[key].figures.get(name)
    if before is None or old is None or new is None or name not in old.figures:
        return None
    elapsed_s = after.clock_s - before.clock_s
    if elapsed_s <= 0 or new < old.figures[name]:
        return None
    return (new - old.figures[name]) / elapsed_s


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
