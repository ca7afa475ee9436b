# SPDX-License-Identifier: MIT
"""A snapshot as comma-separated values, in the manner of ``nvidia-smi --query-gpu``. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pycgpu.errors import CgpuError
from pycgpu.request.model import MIB
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot

from ._render import policy_name

UNKNOWN = "[N/A]"


class Field(NamedTuple):
    """``read`` gets card and container (None for a row of a card); None comes out as [N/A]."""

    unit: str
    read: Callable[[CardView, ContainerView | None], Any]


def _board(name: str) -> Callable[[CardView, ContainerView | None], Any]:
    return lambda card, _: None if card.board is None else getattr(card.board, name)


def _card(read: Callable[[CardView], Any]) -> Callable[[CardView, ContainerView | None], Any]:
    return lambda card, _: read(card)


def _one(read: Callable[[ContainerView], Any]) -> Callable[[CardView, ContainerView | None], Any]:
    return lambda _, one: None if one is None else read(one)


def _share(name: str) -> Callable[[CardView, ContainerView | None], Any]:
    def read(_: CardView, one: ContainerView | None) -> Any:
        part = None if one is None else getattr(one.share, name)
        return None if part is None else round(100 * part, 1)

    return read


#: By name. What begins with ``gpu`` is the card's, everything else the container's.
FIELDS = {
    "timestamp": Field("", lambda card, one: None),
    "gpu": Field("", _card(lambda c: c.status.card.index)),
    "gpu.uuid": Field("", _card(lambda c: c.status.card.uuid or None)),
    "gpu.name": Field("", _board("name")),
    "gpu.policy": Field("", _card(lambda c: policy_name(c.status.card.policy))),
    "gpu.policy_number": Field("", _card(lambda c: c.status.card.policy)),
    "gpu.containers": Field("", _card(lambda c: len(c.status.containers))),
    "gpu.max_inst": Field("", _card(lambda c: c.status.card.max_inst)),
    "gpu.free_weight": Field("", _card(lambda c: c.status.card.free_weight)),
    "gpu.timeslice": Field("us", _card(lambda c: c.status.timeslice_us)),
    "gpu.memory.total": Field("MiB", _card(lambda c: c.status.card.total_bytes)),
    "gpu.memory.reserved": Field("MiB", _card(lambda c: c.status.card.reserved_bytes)),
    "gpu.memory.promised": Field("MiB", _card(lambda c: c.status.card.allocated_bytes)),
    "gpu.memory.used": Field("MiB", _card(lambda c: c.status.card.used_bytes)),
    "gpu.memory.free": Field("MiB", _card(lambda c: c.status.card.free_bytes)),
    "gpu.utilization": Field("%", _card(lambda c: c.utilization)),
    "gpu.temperature": Field("C", _board("temperature_c")),
    "gpu.power.draw": Field("W", _board("power_w")),
    "gpu.power.limit": Field("W", _board("power_limit_w")),
    "container": Field("", _one(lambda o: o.status.name)),
    "container.id": Field("", _one(lambda o: o.status.id)),
    "name": Field("", _one(lambda o: None if o.name is None else str(o.name))),
    "engine": Field("", _one(lambda o: None if o.name is None else o.name.engine)),
    "pod": Field("", _one(lambda o: None if o.name is None else o.name.pod)),
    "namespace": Field("", _one(lambda o: None if o.name is None else o.name.namespace)),
    "memory.used": Field("MiB", _one(lambda o: o.used_bytes)),
    "memory.limit": Field("MiB", _one(lambda o: o.status.memory_bytes)),
    "memory.free": Field("MiB", _one(lambda o: o.status.free_bytes)),
    "memory.peak": Field("MiB", _one(lambda o: o.status.stat.get("peak_bytes"))),
    "weight": Field("", _one(lambda o: o.status.weight)),
    "quota": Field("%", _one(lambda o: o.status.quota)),
    "quota_min": Field("%", _one(lambda o: o.status.quota_min)),
    "priority": Field("", _one(lambda o: o.status.priority)),
    "granted": Field("%", _share("granted")),
    "used": Field("%", _share("used")),
    "throttled": Field("%", _share("throttled")),
    "oom": Field("", _one(lambda o: o.status.events.get("oom"))),
    "refused": Field("", _one(lambda o: o.status.events.get("refused"))),
    "pids": Field("", _one(lambda o: " ".join(str(p.pid) for p in o.status.processes) or None)),
}
#: Fields of a card under the names of ``nvidia-smi --query-gpu``.
OF_NVIDIA_SMI = {
    "timestamp": "timestamp",
    "index": "gpu",
    "uuid": "gpu.uuid",
    "gpu_uuid": "gpu.uuid",
    "name": "gpu.name",
    "gpu_name": "gpu.name",
    "memory.total": "gpu.memory.total",
    "memory.reserved": "gpu.memory.reserved",
    "memory.used": "gpu.memory.used",
    "memory.free": "gpu.memory.free",
    "utilization.gpu": "gpu.utilization",
    "temperature.gpu": "gpu.temperature",
    "power.draw": "gpu.power.draw",
    "power.limit": "gpu.power.limit",
}
DEFAULT = (
    "gpu",
    "container",
    "name",
    "memory.used",
    "memory.limit",
    "weight",
    "quota",
    "granted",
    "used",
    "throttled",
)


def parse_query(text: str) -> tuple[str, ...]:
    """Return the fields that a ``--query`` lists. CgpuError: one that there is not."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if word not in FIELDS:
            raise CgpuError(f"no field {word!r}; there are: {', '.join(FIELDS)}")
    if not words:
        raise CgpuError("--query: name at least one field")
    return words


def parse_query_gpu(text: str) -> tuple[str, ...]:
    """Return the fields that ``--query-gpu`` lists, by nvidia-smi's names. CgpuError: not one."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in OF_NVIDIA_SMI and word not in FIELDS:
            raise CgpuError(
                f"--query-gpu: no field {word!r}; there are: {', '.join(OF_NVIDIA_SMI)}"
            )
    return parse_query(",".join(OF_NVIDIA_SMI.get(word, word) for word in words))


def header(query: Sequence[str]) -> str:
    """Return the line of titles."""
    units = (FIELDS[name].unit for name in query)
    return ", ".join(
        f"{name} [{unit}]" if unit else name for name, unit in zip(query, units, strict=True)
    )


def rows(snapshot: Snapshot, query: Sequence[str], *, units: bool = True) -> list[str]:
    """Return a line a container and card; a line a card when only the card's fields are asked."""
    of_cards = all(name == "timestamp" or name.partition(".")[0] == "gpu" for name in query)
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(snapshot.time_ns / 1e9))
    lines = []
    for card in snapshot.cards:
        for one in (None,) if of_cards else card.containers:
            values = [
                stamp if name == "timestamp" else _text(FIELDS[name], card, one, units)
                for name in query
            ]
            lines.append(", ".join(values))
    return lines


def _text(field: Field, card: CardView, one: ContainerView | None, units: bool) -> str:
    value = field.read(card, one)
    if value is None:
        return UNKNOWN
    if field.unit == "MiB":
        value = round(value / MIB)
    elif isinstance(value, float):
        value = round(value, 1)
    # Names are others' choice: a comma in one must not make a column more.
    text = str(value).replace(",", ";")
    return f"{text} {field.unit}" if units and field.unit else text
