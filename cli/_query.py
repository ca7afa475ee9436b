# SPDX-License-Identifier: MIT
"""A snapshot as ``nvidia-smi -q`` writes one: a value a line, by sections. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pycgpu import __version__
from pycgpu.request.idle_time import shown
from pycgpu.request.model import MIB
from pycgpu.tree.nvml import Board, Detail
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot

from ._render import able, policy_name, set_by
from ._table import clean

UNKNOWN = "N/A"
#: Columns before the colon, as in nvidia-smi.
_WIDTH = 50


class Section(NamedTuple):
    """A title with what stands below it: (name, value, unit), or sections of its own."""

    title: str
    rows: Sequence[tuple[str, Any, str] | Section]


def _detail(card: CardView) -> Detail:
    return Detail() if card.board is None else card.board.detail


def _board(card: CardView, name: str) -> Any:
    return None if card.board is None else getattr(card.board, name)


def _memory(card: CardView) -> list[Section]:
    told = card.status.card
    used = _board(card, "memory_used_bytes")
    rows = (
        ("Total", told.total_bytes or None),
        ("Reserved", told.reserved_bytes),
        ("Promised", told.allocated_bytes),
        ("Used", told.used_bytes if used is None else used),
        ("Free", told.free_bytes),
        ("Parked", card.parked_bytes),
        ("Reserved For Returns", card.reserved_bytes),
    )
    shown = [(name, None if size is None else size // MIB, "MiB") for name, size in rows]
    return [Section("FB Memory Usage", shown)]


def _utilization(card: CardView) -> list[Section]:
    told = card.utilization
    gpu = None if told is None else round(told)
    rows = [("GPU", gpu, "%"), ("Memory", _detail(card).memory_utilization, "%")]
    return [Section("Utilization", rows)]


def _ecc(card: CardView) -> list[Section]:
    errors = _detail(card).ecc_errors
    counted = [
        Section(
            since.capitalize(),
            [
                (k.capitalize(), errors.get(f"{since}.{k}"), "")
                for k in ("corrected", "uncorrected")
            ],
        )
        for since in ("volatile", "aggregate")
    ]
    modes = [
        ("Current", able(_board(card, "ecc")), ""),
        ("Pending", able(_detail(card).ecc_pending), ""),
    ]
    return [Section("ECC Mode", modes), Section("ECC Errors", counted)]


def _clock(card: CardView) -> list[Section]:
    def of(title: str, told: dict[str, int]) -> Section:
        names = {"graphics": "Graphics", "sm": "SM", "memory": "Memory", "video": "Video"}
        return Section(title, [(name, told.get(key), "MHz") for key, name in names.items()])

    detail = _detail(card)
    return [of("Clocks", detail.clocks_mhz), of("Max Clocks", detail.max_clocks_mhz)]


def _temperature(card: CardView) -> list[Section]:
    return [Section("Temperature", [("GPU Current Temp", _board(card, "temperature_c"), "C")])]


def _power(card: CardView) -> list[Section]:
    def watts(name: str) -> str | None:
        told = _board(card, name)
        return None if told is None else f"{told:.2f}"

    rows = [("Power Draw", watts("power_w"), "W"), ("Power Limit", watts("power_limit_w"), "W")]
    return [Section("GPU Power Readings", rows)]


def _performance(card: CardView) -> list[Section]:
    pstate = _detail(card).pstate
    state = None if pstate is None else f"P{pstate}"
    return [Section("Performance", [("Performance State", state, "")])]


def _containers(card: CardView) -> list[Section]:
    return [Section("Containers", [_container(one) for one in card.containers])]


def _container(view: ContainerView) -> Section:
    one = view.status

    def percent(part: float | None) -> str | None:
        return None if part is None else f"{100 * part:.1f}"

    limit = None if one.memory_bytes is None else one.memory_bytes // MIB
    floor, ceiling = (None, None) if view.limit is None else view.limit[:2]
    return Section(
        one.name,
        [
            ("Name", None if view.name is None else clean(str(view.name)), ""),
            ("ID", one.id, ""),
            ("Group", one.group or "none", ""),
            ("Memory Used", view.used_bytes // MIB, "MiB"),
            ("Memory Limit", "none" if limit is None else limit, "" if limit is None else "MiB"),
            ("State", one.state, ""),
            ("State For", None if view.state_s is None else round(view.state_s), "s"),
            ("Last Return", None if one.last_return_s is None else f"{one.last_return_s:.1f}", "s"),
            ("Waits For Room", "No" if view.wait is None else "Yes", ""),
            ("Room Wanting", 0 if view.wait is None else view.wait.short_bytes // MIB, "MiB"),
            ("Memory Parked", one.parked_bytes // MIB, "MiB"),
            ("Memory Reserved", one.reserved_bytes // MIB, "MiB"),
            ("Idle Park", shown(one.idle_park_s), ""),
            ("Weight", one.weight, ""),
            ("Quota", "none" if one.quota is None else one.quota, "%" if one.quota else ""),
            ("Quota Min", one.quota_min or "none", "%" if one.quota_min else ""),
            ("Priority", one.priority, ""),
            ("Compute Guaranteed", percent(floor), "%"),
            ("Compute At Most", percent(ceiling), "%"),
            ("Granted", percent(view.share.granted), "%"),
            ("Used", percent(view.share.used), "%"),
            ("Throttled", percent(view.share.throttled), "%"),
            ("Waited", percent(view.share.waited), "%"),
            ("Refused For Lack Of Memory", one.events.get("oom"), ""),
            ("Refused For Other Reasons", one.events.get("refused"), ""),
        ],
    )


def _pids(card: CardView) -> list[Section]:
    found = sorted(
        (process, view.status.name, view.status.group or "none")
        for view in card.containers
        for process in view.status.processes
    )
    shown = [
        Section(
            f"Process ID {process.pid}",
            [
                ("Container", name, ""),
                ("Group", group, ""),
                ("Process ID Inside", process.container_pid or None, ""),
                ("Name", clean(process.comm) or None, ""),
                ("Used GPU Memory", process.memory_bytes // MIB, "MiB"),
            ],
        )
        for process, name, group in found
    ]
    return [Section("Processes", shown)]


#: What ``-d`` chooses, in the order in which it is printed.
DISPLAYS: dict[str, Callable[[CardView], list[Section]]] = {
    "MEMORY": _memory,
    "UTILIZATION": _utilization,
    "ECC": _ecc,
    "TEMPERATURE": _temperature,
    "POWER": _power,
    "CLOCK": _clock,
    "PERFORMANCE": _performance,
    "CONTAINERS": _containers,
    "PIDS": _pids,
}


def report(snapshot: Snapshot, displays: Sequence[str] = ()) -> list[str]:
    """Return everything that is known of each card, or only *displays* of it."""
    stamp = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(snapshot.time_ns / 1e9))
    lines = ["", f"{' cgpu-smi LOG ':=^40}", ""]
    lines += _lines(("Timestamp", stamp, ""), 0)
    lines += _lines(("Driver Version", snapshot.nvml.driver, ""), 0)
    lines += _lines(("cgpu Version", __version__, ""), 0)
    lines += _lines(("Module Version", snapshot.version, ""), 0)
    if snapshot.nvml.why:
        lines += _lines(("NVML", clean(snapshot.nvml.why), ""), 0)
    lines += ["", *_lines(("Attached GPUs", len(snapshot.cards), ""), 0)]
    for card in snapshot.cards:
        bus = _detail(card).pci_bus_id
        title = f"GPU {card.status.card.index}" if bus is None else f"GPU {bus}"
        about = [] if displays else _about(card)
        chosen = [one for name in displays or DISPLAYS for one in DISPLAYS[name](card)]
        lines += [*_lines(Section(title, [*about, *chosen]), 0), ""]
    return lines


def _about(card: CardView) -> list[tuple[str, Any, str]]:
    board: Board | None = card.board
    told = card.status.card
    name = None if board is None or board.name is None else clean(board.name)
    return [
        ("Product Name", name, ""),
        ("GPU UUID", told.uuid or None, ""),
        ("Minor Number", told.index, ""),
        ("Persistence Mode", able(_detail(card).persistence), ""),
        ("Policy", f"{told.policy} {policy_name(told.policy)}", ""),
        ("Policy Set By", set_by(card.status.stat), ""),
        ("Containers At Most", told.max_inst, ""),
        ("Overcommit Ratio", told.overcommit_ratio, "%"),
        ("Free Weight", told.free_weight, ""),
        ("Timeslice", card.status.timeslice_us, "us"),
    ]


def _lines(entry: tuple[str, Any, str] | Section, depth: int) -> Iterator[str]:
    if not isinstance(entry, Section):
        name, value, unit = entry
        text = UNKNOWN if value is None else f"{value} {unit}".rstrip()
        yield f"{'    ' * depth + name:<{_WIDTH}}: {text}"
        return
    if not entry.rows:
        yield f"{'    ' * depth + entry.title:<{_WIDTH}}: None"
        return
    yield "    " * depth + entry.title
    for row in entry.rows:
        yield from _lines(row, depth + 1)
