# SPDX-License-Identifier: MIT
"""
Cards and containers as Prometheus metrics, read from the tree at every scrape.

Base units: bytes, seconds, ratios of 0 to 1, degrees Celsius, watts. Nothing of the tree is held
open between two scrapes: an open ``events`` pins the module, and with it every upgrade.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .. import __version__
from ..errors import CgpuError, NodeError
from ..request.model import POLICIES
from . import cards, counters, events, metric_names, procfs, snapshot, usage
from .counters import Counters
from .metric_family import family
from .metric_labels import CARD_LABELS, CONTAINER_LABELS, of_card, of_container
from .names import ContainerName
from .parking_metrics import Parking
from .snapshot import CardView, ContainerView, Snapshot
from .usage import Reading, Sums

#: Counters of a container's ``stat`` that are nanoseconds: key, metric, help.
_TIMES = (
    ("granted_ns", "cgpu_container_granted_seconds", "Time of the card that was its to use."),
    ("used_ns", "cgpu_container_used_seconds", "Time of the card that it used."),
    (
        "throttled_ns",
        "cgpu_container_throttled_seconds",
        "Time in which it held the GPU open and was kept off it.",
    ),
    (
        "waited_ns",
        "cgpu_container_waited_seconds",
        "Time in which it had work, as far as is known, and did not run.",
    ),
)
#: Sums over all scrapes since the first that saw the container.
_SUMS = (
    (
        "joules",
        "cgpu_container_energy_joules",
        "The board's energy in the time that it used, since the exporter first saw it.",
    ),
    (
        "byte_seconds",
        "cgpu_container_memory_byte_seconds",
        "Memory charged, times for how long, since the exporter first saw it.",
    ),
)
_COUNTS = (
    ("switches", "cgpu_container_switches", "Windows begun."),
    ("overruns", "cgpu_container_overruns", "Windows that ended late."),
    ("oom", "cgpu_container_oom", "Allocations refused for lack of memory."),
    ("refused", "cgpu_container_refused", "Other requests refused."),
)


class Exporter:
    """
    A collector for a ``CollectorRegistry``.

    Args:
        root: the tree; None looks for the open door at every scrape.
        names: vendors whose metric names are offered as well (:data:`.metric_names.NAMES`).
        prefix: root of the host's files, for the containers' names.
        settings: the file with the cards' units, for GPU-hours.
    """

    def __init__(
        self,
        root: str | None = None,
        *,
        names: Iterable[str] = (),
        prefix: str = "/",
        settings: str = cards.PATH,
    ) -> None:
        self._root = root
        self._others = sorted(metric_names.check(frozenset(names)))
        self._prefix = prefix
        self._names: dict[str, ContainerName] = {}
        self._counters: Counters | None = None
        self._events: Counter[str] = Counter()
        self._parking = Parking()
        self._last_event_ns = -1
        self._readings: dict[str, Reading] = {}
        self._sums: dict[tuple[str, str | None], Sums] = {}
        self._gpu_hours: dict[tuple[str, str | None], float] = {}
        self._settings = settings

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read the tree, which may come later."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; without a module only that it is down."""
        up = GaugeMetricFamily("cgpu_up", "1 while the tree of the module can be read.")
        began = time.monotonic()
        try:
            root = self._root or procfs.find_root()
            found = counters.read(root)
            taken = snapshot.take(
                root,
                before=self._counters,
                after=found,
                known=self._names,
                prefix=self._prefix,
            )
            self._count_events(root)
        except CgpuError:
            self._counters = None
            up.add_metric((), 0)
            yield up
            return
        self._counters = found
        there = {one.status.id for card in taken.cards for one in card.containers}
        self._names = {key: name for key, name in self._names.items() if key in there}
        up.add_metric((), 1)
        yield up
        yield _info(taken)
        yield from _cards(taken)
        yield from _containers(taken)
        self._add_up(taken)
        yield from self._sum_metrics(taken)
        yield from self._parking.metrics(taken)
        yield self._event_metric()
        for whose in self._others:
            yield from metric_names.NAMES[whose](taken)
        yield GaugeMetricFamily(
            "cgpu_scrape_duration_seconds",
            "Time that reading everything took.",
            time.monotonic() - began,
        )

    def _add_up(self, taken: Snapshot) -> None:
        """Divide the time between the last scrape and this one among the containers."""
        before, self._readings = self._readings, {}
        sums, self._sums = self._sums, {}
        hours, self._gpu_hours = self._gpu_hours, {}
        try:
            tables = cards.load(self._settings)
        except CgpuError:
            # `cgpu cards` says what is wrong. Without known units, no GPU-hours are added.
            tables = None
        for after in usage.readings(taken, time.time_ns(), time.monotonic_ns()):
            place = str(after.card)
            self._readings[place] = after
            there = {None, *(one.id for one in after.containers)}
            self._sums |= {(place, id): sums.get((place, id), Sums(0, 0)) for id in there}
            self._gpu_hours |= {(place, id): hours.get((place, id), 0.0) for id in there}
            if place not in before:
                continue
            whole, parts = usage.between(before[place], after)
            for part in (whole, *parts):
                if part.id in there:
                    key = (place, part.id)
                    self._sums[key] = self._sums[key].plus(part.sums)
                    if tables is not None:
                        self._gpu_hours[key] += usage.gpu_hours(part, tables)

    def _sum_metrics(self, taken: Snapshot) -> Iterator[Metric]:
        for key, name, text in _SUMS:
            rows = []
            for card in taken.cards:
                place = str(card.status.card.index)
                for one in card.containers:
                    sums = self._sums[place, one.status.id]
                    rows.append((of_container(card, one), getattr(sums, key)))
            yield family(CounterMetricFamily, name, text, CONTAINER_LABELS, rows)
        billed = [
            (
                of_container(card, one),
                self._gpu_hours[str(card.status.card.index), one.status.id],
            )
            for card in taken.cards
            for one in card.containers
        ]
        name = "cgpu_container_billed_gpu_hours"
        text = "Hours, times the card's units, times the larger part of compute and memory."
        yield family(CounterMetricFamily, name, text, CONTAINER_LABELS, billed)
        boards = ((of_card(v), v.board.energy_j if v.board else None) for v in taken.cards)
        text = "Energy that the board has drawn since its driver was loaded."
        yield family(CounterMetricFamily, "cgpu_gpu_energy_joules", text, CARD_LABELS, boards)

    def _count_events(self, root: str) -> None:
        """Count the lines that are newer than those of the last scrape."""
        descriptor = procfs.open_events(root)
        try:
            lines = procfs.new_events(descriptor)
        except OSError as error:
            raise NodeError(f"{root}/events", error.errno or errno.EIO, str(error)) from None
        finally:
            os.close(descriptor)
        newest = self._last_event_ns
        for line in lines:
            event = events.parse(line)
            # A "lost" line only says that this reader came too late for some events.
            if event.time_ns is None or event.kind == "lost":
                continue
            if event.time_ns > self._last_event_ns:
                self._events[event.kind] += 1
                self._parking.count(event)
                newest = max(newest, event.time_ns)
        self._last_event_ns = newest

    def _event_metric(self) -> Metric:
        metric = CounterMetricFamily(
            "cgpu_events", "Lines of the tree's events, by kind.", labels=("event",)
        )
        for kind, count in sorted(self._events.items()):
            metric.add_metric((kind,), count)
        return metric


def _info(taken: Snapshot) -> Metric:
    metric = GaugeMetricFamily(
        "cgpu_info", "Versions; always 1.", labels=("package", "module", "driver")
    )
    metric.add_metric((__version__, taken.version, taken.nvml.driver or ""), 1)
    return metric


def _cards(taken: Snapshot) -> Iterator[Metric]:
    def gauge(name: str, text: str, read: Callable[[CardView], float | None]) -> Metric:
        rows = ((of_card(view), read(view)) for view in taken.cards)
        return family(GaugeMetricFamily, f"cgpu_gpu_{name}", text, CARD_LABELS, rows)

    def board(name: str) -> Callable[[CardView], float | None]:
        return lambda view: None if view.board is None else getattr(view.board, name)

    yield gauge(
        "memory_total_bytes",
        "Memory on the board.",
        lambda v: v.status.card.total_bytes or None,
    )
    yield gauge(
        "memory_reserved_bytes",
        "Memory that the driver holds back.",
        lambda v: v.status.card.reserved_bytes,
    )
    yield gauge(
        "memory_promised_bytes",
        "Sum of the containers' limits.",
        lambda v: v.status.card.allocated_bytes,
    )
    yield gauge(
        "overcommit_ratio",
        "Part of the card that limits may add up to; 1 without overcommit.",
        lambda v: v.status.card.overcommit_ratio / 100,
    )
    yield gauge(
        "memory_used_bytes",
        "Memory charged to containers.",
        lambda v: v.status.card.used_bytes,
    )
    yield gauge(
        "board_memory_used_bytes",
        "Memory in use by anyone, as NVML says.",
        board("memory_used_bytes"),
    )
    yield gauge("containers", "Containers on the card.", lambda v: len(v.status.containers))
    yield gauge("max_containers", "Containers that it takes.", lambda v: v.status.card.max_inst)
    yield gauge("free_weight", "Weight to give away.", lambda v: v.status.card.free_weight)
    yield gauge("unit_window_seconds", "Unit window.", lambda v: v.status.timeslice_us / 1e6)
    yield gauge(
        "utilization_ratio",
        "Part of the time in which the card computed.",
        lambda v: None if v.utilization is None else v.utilization / 100,
    )
    yield gauge("temperature_celsius", "Temperature of the chip.", board("temperature_c"))
    yield gauge("power_watts", "Power drawn.", board("power_w"))
    yield gauge("power_limit_watts", "Power limit in force.", board("power_limit_w"))
    policy = GaugeMetricFamily(
        "cgpu_gpu_policy", "1 for the policy in force.", labels=(*CARD_LABELS, "policy")
    )
    for view in taken.cards:
        for number, name in enumerate(POLICIES):
            in_force = number == view.status.card.policy
            policy.add_metric([*of_card(view), name], float(in_force))
    yield policy


def _containers(taken: Snapshot) -> Iterator[Metric]:
    views = [(of_container(card, one), one) for card in taken.cards for one in card.containers]

    def gauge(name: str, text: str, read: Callable[[ContainerView], float | None]) -> Metric:
        rows = ((labels, read(one)) for labels, one in views)
        return family(GaugeMetricFamily, f"cgpu_container_{name}", text, CONTAINER_LABELS, rows)

    def part(percent: int | None) -> float | None:
        return None if percent is None else percent / 100

    yield gauge("memory_used_bytes", "Memory charged.", lambda o: o.used_bytes)
    yield gauge("memory_limit_bytes", "Limit; none without one.", lambda o: o.status.memory_bytes)
    yield gauge(
        "memory_peak_bytes", "Most ever charged.", lambda o: o.status.stat.get("peak_bytes")
    )
    yield gauge("weight", "Weight; a member's is part of its group's.", lambda o: o.status.weight)
    yield gauge(
        "quota_ratio",
        "Most of the card; a member's is of its group's threads.",
        lambda o: part(o.status.quota),
    )
    yield gauge("quota_min_ratio", "Guaranteed part.", lambda o: part(o.status.quota_min))
    yield gauge("priority", "Priority.", lambda o: o.status.priority)
    for key, text in (
        ("floor", "Part of the card that the policy guarantees it."),
        ("share", "Part of the card that it gets while all that hold it open want all."),
        ("ceiling", "Part of the card that the policy lets it take at most."),
    ):
        yield gauge(f"compute_{key}_ratio", text, partial(_limit, key))
    yield gauge("processes", "Processes on the card.", lambda o: len(o.status.processes))
    group = GaugeMetricFamily(
        "cgpu_container_group",
        "1 for the group that it is in, by its leader's id, whose compute is all members'.",
        labels=(*CONTAINER_LABELS, "group"),
    )
    for labels, one in views:
        if one.status.group:
            group.add_metric([*labels, one.status.group], 1)
    yield group
    for key, name, text in _TIMES:
        rows = [(labels, _seconds(key, one.status.stat)) for labels, one in views]
        yield family(CounterMetricFamily, name, text, CONTAINER_LABELS, rows)
    for key, name, text in _COUNTS:
        rows = [
            (labels, one.status.events.get(key, one.status.stat.get(key))) for labels, one in views
        ]
        yield family(CounterMetricFamily, name, text, CONTAINER_LABELS, rows)


def _limit(key: str, one: ContainerView) -> float | None:
    return None if one.limit is None else getattr(one.limit, key)


def _seconds(key: str, stat: dict[str, int]) -> float | None:
    nanoseconds = stat.get(key)
    # An engine that cannot measure the used time says 0.
    if nanoseconds is None or (key == "used_ns" and not nanoseconds):
        return None
    return nanoseconds / 1e9
