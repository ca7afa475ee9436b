# SPDX-License-Identifier: MIT
"""
A snapshot as JSON. The schema's number grows when a key goes or changes its meaning; new keys may
come at any time. Sizes are bytes, shares parts of one, what is not known is null. No I/O.
"""

from __future__ import annotations

import json
from typing import Any

from pycgpu import __version__
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot

from ._render import policy_name, set_by

SCHEMA = "cgpu-smi/1"


def text(document: dict[str, Any], *, plain: bool) -> str:
    """
    Return it as one line without what could move a terminal's cursor; others choose their names.

    Args:
        plain: in ASCII.
    """
    written = json.dumps(document, ensure_ascii=plain)
    if written.isprintable():
        return written
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in written)


def document(snapshot: Snapshot) -> dict[str, Any]:
    """Return the whole snapshot as plain data."""
    return {
        "schema": SCHEMA,
        "time_ns": snapshot.time_ns,
        "tree": snapshot.root,
        "versions": {
            "package": __version__,
            "module": snapshot.version,
            "driver": snapshot.nvml.driver,
        },
        "features": sorted(snapshot.features),
        "nvml": {
            "available": bool(snapshot.nvml.boards) and not snapshot.nvml.why,
            "reason": snapshot.nvml.why,
        },
        "gpus": [_card(card) for card in snapshot.cards],
    }


def _card(view: CardView) -> dict[str, Any]:
    card, board = view.status.card, view.board
    return {
        "gpu": card.index,
        "uuid": card.uuid or None,
        "name": None if board is None else board.name,
        "policy": {"number": card.policy, "name": policy_name(card.policy)},
        "policy_set_by": set_by(view.status.stat),
        "max_inst": card.max_inst,
        "free_weight": card.free_weight,
        "timeslice_us": view.status.timeslice_us,
        "memory": {
            "total_bytes": card.total_bytes or None,
            "reserved_bytes": card.reserved_bytes,
            "promised_bytes": card.allocated_bytes,
            "overcommit_ratio_percent": card.overcommit_ratio,
            "used_bytes": card.used_bytes,
            "free_bytes": card.free_bytes,
            "board_used_bytes": None if board is None else board.memory_used_bytes,
            "parked_bytes": view.parked_bytes,
            "reserved_for_returns_bytes": view.reserved_bytes,
        },
        "utilization": None if view.utilization is None else round(view.utilization / 100, 4),
        "temperature_c": None if board is None else board.temperature_c,
        "power_w": None if board is None else board.power_w,
        "power_limit_w": None if board is None else board.power_limit_w,
        "pci_bus_id": None if board is None else board.detail.pci_bus_id,
        "clocks_mhz": {} if board is None else board.detail.clocks_mhz,
        "max_clocks_mhz": {} if board is None else board.detail.max_clocks_mhz,
        "ecc": None if board is None else board.ecc,
        "ecc_errors": {} if board is None else board.detail.ecc_errors,
        "stat": view.status.stat,
        "containers": [_container(one) for one in view.containers],
    }


def _container(view: ContainerView) -> dict[str, Any]:
    one, name, limit = view.status, view.name, view.limit
    return {
        "id": one.id,
        "short_id": one.name,
        "engine": None if name is None else name.engine,
        "name": None if name is None else name.name,
        "pod": None if name is None else name.pod,
        "namespace": None if name is None else name.namespace,
        "group": one.group,
        "state": one.state,
        "state_s": None if view.state_s is None else round(view.state_s, 3),
        "wait": None if view.wait is None else view.wait._asdict(),
        "last_return_s": None if one.last_return_s is None else round(one.last_return_s, 3),
        "idle_park_s": one.idle_park_s,
        "memory": {
            "limit_bytes": one.memory_bytes,
            "used_bytes": view.used_bytes,
            "free_bytes": one.free_bytes,
            "peak_bytes": one.stat.get("peak_bytes"),
            "parked_bytes": one.parked_bytes,
            "reserved_bytes": one.reserved_bytes,
        },
        "compute": {
            "weight": one.weight,
            "quota_percent": one.quota,
            "quota_min_percent": one.quota_min,
            "priority": one.priority,
            "floor": None if limit is None else _rounded(limit.floor),
            "share": None if limit is None else _rounded(limit.share),
            "ceiling": None if limit is None else _rounded(limit.ceiling),
            "granted": _rounded(view.share.granted),
            "used": _rounded(view.share.used),
            "throttled": _rounded(view.share.throttled),
            "waited": _rounded(view.share.waited),
        },
        "events": one.events,
        "stat": one.stat,
        "processes": [
            {
                "pid": process.pid,
                "container_pid": process.container_pid or None,
                "memory_bytes": process.memory_bytes,
                "command": process.comm,
            }
            for process in one.processes
        ],
    }


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 4)
