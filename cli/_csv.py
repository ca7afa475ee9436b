# SPDX-License-Identifier: MIT
"""A snapshot as comma-separated values, in the manner of ``nvidia-smi --query-gpu``. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pycgpu.errors import CgpuError
from pycgpu.request.model import MIB
from pycgpu.tree.nvml import Board, Detail
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot

from ._render import able, policy_name
from ._table import clean

UNKNOWN = "[N/A]"


class Row(NamedTuple):
    """What a line is about; ``one`` is None for a line of a card."""

    snapshot: Snapshot
    card: CardView
    one: ContainerView | None


class Field(NamedTuple):
    """
    ``read`` gives None for what comes out as [N/A]. ``of_one``: it is a container's. ``detailed``:
    NVML is only asked for it when somebody wants it.
    """

    unit: str
    read: Callable[[Row], Any]
    of_one: bool = False
    detailed: bool = False


def _card(read: Callable[[CardView], Any], unit: str = "") -> Field:
    return Field(unit, lambda row: read(row.card))


def _board(read: Callable[[Board], Any], unit: str = "") -> Field:
    return Field(unit, lambda row: None if row.card.board is None else read(row.card.board))


def _detail(read: Callable[[Detail], Any], unit: str = "") -> Field:
    return _board(lambda board: read(board.detail), unit)._replace(detailed=True)


def _one(read: Callable[[ContainerView], Any], unit: str = "") -> Field:
    return Field(unit, lambda row: None if row.one is None else read(row.one), of_one=True)


def _share(name: str) -> Field:
    def read(one: ContainerView) -> float | None:
        part = getattr(one.share, name)
        return None if part is None else round(100 * part, 1)

    return _one(read, "%")


def _limit(name: str) -> Field:
    def read(one: ContainerView) -> float | None:
        return None if one.limit is None else round(100 * getattr(one.limit, name), 1)

    return _one(read, "%")


def _clocks() -> dict[str, Field]:
    """By nvidia-smi's own names, as the counters of errors are."""

    def field(current: bool, name: str) -> Field:
        return _detail(lambda d: (d.clocks_mhz if current else d.max_clocks_mhz).get(name), "MHz")

    return {
        f"gpu.clocks.{'current' if current else 'max'}.{name}": field(current, name)
        for current, names in (
            (True, ("graphics", "sm", "memory", "video")),
            (False, ("graphics", "sm", "memory")),
        )
        for name in names
    }


def _ecc_errors() -> dict[str, Field]:
    def field(key: str) -> Field:
        return _detail(lambda detail: detail.ecc_errors.get(key))

    return {
        f"gpu.ecc.errors.{kind}.{since}.total": field(f"{since}.{kind}")
        for kind in ("corrected", "uncorrected")
        for since in ("volatile", "aggregate")
    }


#: By name. What begins with ``gpu`` is the card's.
FIELDS = {
    "timestamp": Field("", lambda row: _stamp(row.snapshot)),
    "driver_version": Field("", lambda row: row.snapshot.nvml.driver),
    "count": Field("", lambda row: len(row.snapshot.cards)),
    "gpu": _card(lambda c: c.status.card.index),
    "gpu.uuid": _card(lambda c: c.status.card.uuid or None),
    "gpu.name": _board(lambda b: b.name),
    "gpu.policy": _card(lambda c: policy_name(c.status.card.policy)),
    "gpu.policy_number": _card(lambda c: c.status.card.policy),
    "gpu.containers": _card(lambda c: len(c.status.containers)),
    "gpu.max_inst": _card(lambda c: c.status.card.max_inst),
    "gpu.free_weight": _card(lambda c: c.status.card.free_weight),
    "gpu.timeslice": _card(lambda c: c.status.timeslice_us, "us"),
    "gpu.memory.total": _card(lambda c: c.status.card.total_bytes, "MiB"),
    "gpu.memory.reserved": _card(lambda c: c.status.card.reserved_bytes, "MiB"),
    "gpu.memory.promised": _card(lambda c: c.status.card.allocated_bytes, "MiB"),
    "gpu.overcommit_ratio": _card(lambda c: c.status.card.overcommit_ratio, "%"),
    "gpu.memory.used": _card(lambda c: c.status.card.used_bytes, "MiB"),
    "gpu.memory.free": _card(lambda c: c.status.card.free_bytes, "MiB"),
    "gpu.parked.memory": _card(lambda c: c.parked_bytes, "MiB"),
    "gpu.parked.reserved": _card(lambda c: c.reserved_bytes, "MiB"),
    "gpu.utilization": _card(lambda c: c.utilization, "%"),
    "gpu.temperature": _board(lambda b: b.temperature_c, "C"),
    "gpu.power.draw": _board(lambda b: b.power_w, "W"),
    "gpu.power.limit": _board(lambda b: b.power_limit_w, "W"),
    "gpu.pci.bus_id": _detail(lambda d: d.pci_bus_id),
    "gpu.pstate": _detail(lambda d: None if d.pstate is None else f"P{d.pstate}"),
    "gpu.persistence_mode": _detail(lambda d: able(d.persistence)),
    "gpu.utilization.memory": _detail(lambda d: d.memory_utilization, "%"),
    **_clocks(),
    "gpu.ecc.mode.current": _board(lambda b: able(b.ecc)),
    "gpu.ecc.mode.pending": _detail(lambda d: able(d.ecc_pending)),
    **_ecc_errors(),
    "container": _one(lambda o: o.status.name),
    "container.id": _one(lambda o: o.status.id),
    "group": _one(lambda o: o.status.group),
    "name": _one(lambda o: None if o.name is None else str(o.name)),
    "engine": _one(lambda o: None if o.name is None else o.name.engine),
    "pod": _one(lambda o: None if o.name is None else o.name.pod),
    "namespace": _one(lambda o: None if o.name is None else o.name.namespace),
    "memory.used": _one(lambda o: o.used_bytes, "MiB"),
    "memory.limit": _one(lambda o: o.status.memory_bytes, "MiB"),
    "memory.free": _one(lambda o: o.status.free_bytes, "MiB"),
    "memory.peak": _one(lambda o: o.status.stat.get("peak_bytes"), "MiB"),
    "state": _one(lambda o: o.status.state),
    "state.for": _one(lambda o: o.state_s, "s"),
    "return.last": _one(lambda o: o.status.last_return_s, "s"),
    "parked.memory": _one(lambda o: o.status.parked_bytes, "MiB"),
    "parked.reserved": _one(lambda o: o.status.reserved_bytes, "MiB"),
    "wait": _one(lambda o: int(o.wait is not None)),
    "wait.for": _one(lambda o: None if o.wait is None else o.wait.wait_s, "s"),
    "wait.short": _one(lambda o: None if o.wait is None else o.wait.short_bytes, "MiB"),
    "idle_park": _one(lambda o: o.status.idle_park_s, "s"),
    "weight": _one(lambda o: o.status.weight),
    "quota": _one(lambda o: o.status.quota, "%"),
    "quota_min": _one(lambda o: o.status.quota_min, "%"),
    "priority": _one(lambda o: o.status.priority),
    "compute.floor": _limit("floor"),
    "compute.share": _limit("share"),
    "compute.ceiling": _limit("ceiling"),
    "granted": _share("granted"),
    "used": _share("used"),
    "throttled": _share("throttled"),
    "waited": _share("waited"),
    "oom": _one(lambda o: o.status.events.get("oom")),
    "refused": _one(lambda o: o.status.events.get("refused")),
    "pids": _one(lambda o: " ".join(str(p.pid) for p in o.status.processes) or None),
}
#: Fields of a card by the names that ``nvidia-smi --query-gpu`` takes: the name that it prints
#: above the column, and ours.
OF_NVIDIA_SMI = {
    asked: (title, field)
    for title, field, *others in (
        ("timestamp", "timestamp"),
        ("driver_version", "driver_version"),
        ("count", "count"),
        ("index", "gpu"),
        ("uuid", "gpu.uuid", "gpu_uuid"),
        ("name", "gpu.name", "gpu_name"),
        ("pci.bus_id", "gpu.pci.bus_id", "gpu_bus_id"),
        ("persistence_mode", "gpu.persistence_mode"),
        ("pstate", "gpu.pstate"),
        ("memory.total", "gpu.memory.total"),
        ("memory.reserved", "gpu.memory.reserved"),
        ("memory.used", "gpu.memory.used"),
        ("memory.free", "gpu.memory.free"),
        ("utilization.gpu", "gpu.utilization"),
        ("utilization.memory", "gpu.utilization.memory"),
        ("temperature.gpu", "gpu.temperature"),
        ("power.draw", "gpu.power.draw"),
        ("power.limit", "gpu.power.limit"),
        ("enforced.power.limit", "gpu.power.limit"),
        ("clocks.current.graphics", "gpu.clocks.current.graphics", "clocks.gr"),
        ("clocks.current.sm", "gpu.clocks.current.sm", "clocks.sm"),
        ("clocks.current.memory", "gpu.clocks.current.memory", "clocks.mem"),
        ("clocks.current.video", "gpu.clocks.current.video", "clocks.video"),
        ("clocks.max.graphics", "gpu.clocks.max.graphics", "clocks.max.gr"),
        ("clocks.max.sm", "gpu.clocks.max.sm"),
        ("clocks.max.memory", "gpu.clocks.max.memory", "clocks.max.mem"),
        ("ecc.mode.current", "gpu.ecc.mode.current"),
        ("ecc.mode.pending", "gpu.ecc.mode.pending"),
        *((name[4:], name) for name in _ecc_errors()),
    )
    for asked in (title, *others)
}
#: Without a unit in nvidia-smi's own output.
_BARE = ("temperature.gpu",)
#: What the columns are called, and their fields.
Query = Sequence[tuple[str, Field]]


def parse_query(text: str) -> Query:
    """Return the fields that a ``--query`` lists. CgpuError: one that there is not."""
    return [(word, FIELDS[word]) for word in _words("", text, FIELDS)]


def parse_query_gpu(text: str) -> Query:
    """Return the fields that ``--query-gpu`` lists, by nvidia-smi's names. CgpuError: not one."""
    query = []
    for word in _words("--query-gpu: ", text, OF_NVIDIA_SMI):
        title, name = OF_NVIDIA_SMI[word]
        field = FIELDS[name]
        query.append((title, field._replace(unit="") if title in _BARE else field))
    return query


def _words(option: str, text: str, known: Iterable[str]) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise CgpuError(f"{option}no field {word!r}; there are: {', '.join(known)}")
    if not words:
        raise CgpuError(f"{option or '--query: '}name at least one field")
    return words


DEFAULT = parse_query(
    "gpu,container,name,memory.used,memory.limit,weight,quota,granted,used,throttled"
)


def header(query: Query) -> str:
    """Return the line of titles."""
    return ", ".join(f"{title} [{field.unit}]" if field.unit else title for title, field in query)


def rows(snapshot: Snapshot, query: Query, *, units: bool = True) -> list[str]:
    """Return a line a container and card; a line a card when only the card's fields are asked."""
    of_ones = any(field.of_one for _, field in query)
    return [
        ", ".join(_text(field, Row(snapshot, card, one), units) for _, field in query)
        for card in snapshot.cards
        for one in (card.containers if of_ones else (None,))
    ]


def _stamp(snapshot: Snapshot) -> str:
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(snapshot.time_ns / 1e9))


def _text(field: Field, row: Row, units: bool) -> str:
    value = field.read(row)
    if value is None:
        return UNKNOWN
    if field.unit == "MiB":
        value = round(value / MIB)
    elif isinstance(value, float):
        value = round(value, 1)
    # Names are others' choice: a comma in one must not make a column more.
    text = clean(str(value)).replace(",", ";")
    return f"{text} {field.unit}" if units and field.unit else text
