# SPDX-License-Identifier: MIT
"""The exporter's metrics of parked containers, and of their moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..request.size import is_number
from .events import Event
from .metric_family import family
from .metric_labels import (
    CARD_LABELS,
    CONTAINER_LABELS,
    OWN_LABELS,
    of_card,
    of_container,
    of_own,
)
from .moving import State
from .snapshot import CardView, ContainerView, Snapshot

_OF_CARD: tuple[tuple[str, str, Callable[[CardView], float | None]], ...] = (
    (
        "cgpu_gpu_parked_bytes",
        "Memory that parked containers of the card have on the host.",
        lambda card: card.parked_bytes,
    ),
    (
        "cgpu_gpu_return_reserved_bytes",
        "Memory kept free for containers that move, and not taken yet.",
        lambda card: card.reserved_bytes,
    ),
)
_OF_CONTAINER: tuple[tuple[str, str, Callable[[ContainerView], float | None]], ...] = (
    (
        "cgpu_container_parked_bytes",
        "Of its memory, what is on the host or moves; it counts against its limit.",
        lambda one: one.status.parked_bytes,
    ),
    (
        "cgpu_container_return_reserved_bytes",
        "Kept free on the card while it moves, and not taken yet.",
        lambda one: one.status.reserved_bytes,
    ),
    (
        "cgpu_container_waits_for_room",
        "1 while it waits for room on this card: to come back, or for a call.",
        lambda one: float(one.wait is not None),
    ),
    (
        "cgpu_container_last_return_seconds",
        "Time of its last move back to the card; none if it has not come back yet.",
        lambda one: one.status.last_return_s,
    ),
    (
        "cgpu_container_idle_park_seconds",
        "Idle for so long it may be parked; none if it never is.",
        lambda one: one.status.idle_park_s or None,
    ),
)
#: A container moves from all its cards at once: a row for each card would count a move several
#: times in a sum. By the kind of the event that tells of it.
_COUNTS = (
    ("parked", "cgpu_parks", "Times that a container's memory was moved to the host."),
    ("waits", "cgpu_park_waits", "Times that a parked container found no room to come back."),
    ("resumed", "cgpu_resumes", "Times that a parked container came back."),
)
_KINDS = frozenset(kind for kind, *_ in _COUNTS)


class _Moves:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(_KINDS, 0)
        self.resume_s = 0.0


class Parking:
    """How often each container moved, by the lines of the tree's events."""

    def __init__(self) -> None:
        self._moves: dict[str, _Moves] = {}

    def count(self, event: Event) -> None:
        """Take a line that was not taken before."""
        if event.id is None:
            return
        if event.kind == "create":
            # Another container of the same id begins anew.
            self._moves.pop(event.id, None)
        elif event.kind in _KINDS:
            moves = self._moves.setdefault(event.id, _Moves())
            moves.counts[event.kind] += 1
            waited_ms = event.values.get("waited_ms", "")
            if event.kind == "resumed" and is_number(waited_ms):
                moves.resume_s += int(waited_ms) / 1e3

    def metrics(self, taken: Snapshot) -> Iterator[Metric]:
        """Yield the metrics of a door that parks; forget containers that are gone."""
        labels = {one.status.id: of_own(one) for card in taken.cards for one in card.containers}
        self._moves = {id: moves for id, moves in self._moves.items() if id in labels}
        if "park" not in taken.features:
            return
        for name, text, read_card in _OF_CARD:
            rows = [(of_card(card), read_card(card)) for card in taken.cards]
            yield family(GaugeMetricFamily, name, text, CARD_LABELS, rows)
        views = [(of_container(card, one), one) for card in taken.cards for one in card.containers]
        for name, text, read in _OF_CONTAINER:
            found = [(values, read(one)) for values, one in views]
            yield family(GaugeMetricFamily, name, text, CONTAINER_LABELS, found)
        state = GaugeMetricFamily(
            "cgpu_container_state",
            "1 for the state that it is in, on all its cards.",
            labels=(*CONTAINER_LABELS, "state"),
        )
        for values, one in views:
            for where in State:
                found_there = one.status.state == where.value
                state.add_metric([*values, where.value], float(found_there))
        yield state
        none = _Moves()
        for kind, name, text in _COUNTS:
            moved = [(own, self._moves.get(id, none).counts[kind]) for id, own in labels.items()]
            yield family(CounterMetricFamily, name, text, OWN_LABELS, moved)
        times = [(own, self._moves.get(id, none).resume_s) for id, own in labels.items()]
        name = "cgpu_resume_seconds"
        text = "Time from a parked container's wish to come back until it was back."
        yield family(CounterMetricFamily, name, text, OWN_LABELS, times)
        took = {one.status.id: one.status.stat.get("moves_ns", 0) / 1e9 for _, one in views}
        moves = [(own, took[id]) for id, own in labels.items()]
        text = "Time that moves of its memory took, in either direction."
        yield family(CounterMetricFamily, "cgpu_move_seconds", text, OWN_LABELS, moves)
