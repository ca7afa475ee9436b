# SPDX-License-Identifier: MIT
"""
Cards and containers under the names, labels and units of other products' metrics.

HAMi's shares are 0 to 100. dcgm-exporter's memory is in MiB. OpenTelemetry's names are those of
its hardware conventions, as its own rules write them for Prometheus: dots become underscores, and
a unit becomes a suffix.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..errors import CgpuError
from ..request.model import MIB
from .metric_family import Row, family
from .snapshot import CardView, ContainerView, Snapshot

_DCGM_CARD = ("gpu", "UUID", "device", "modelName")
#: dcgm-exporter renamed Hostname to hostname in May 2026; boards ask for either.
_DCGM_POD = (*_DCGM_CARD, "Hostname", "hostname", "container", "namespace", "pod", "vgpu")
_OTEL = ("hw_id", "hw_type", "hw_name", "hw_model", "hw_vendor", "hw_driver_version")


def board_used_bytes(card: CardView) -> int:
    """Return all used memory of the card, or the charged memory where NVML does not tell."""
    if card.board is not None and card.board.memory_used_bytes is not None:
        return card.board.memory_used_bytes
    return card.status.card.used_bytes


def _free_bytes(card: CardView) -> int | None:
    total = card.status.card.total_bytes
    used = card.status.card.reserved_bytes + board_used_bytes(card)
    return max(0, total - used) if total else None


def _utilization(card: CardView) -> float | None:
    return card.utilization


def _temperature(card: CardView) -> float | None:
    return None if card.board is None else card.board.temperature_c


def _power(card: CardView) -> float | None:
    return None if card.board is None else card.board.power_w


def _model(card: CardView) -> str:
    return "" if card.board is None else card.board.name or ""


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _engine_active(card: CardView) -> float | None:
    """Return the part of the time in which some container had the card's engines."""
    used = [one.share.used for one in card.containers if one.share.used is not None]
    return min(1.0, sum(used)) if used else None


def _pod_labels(one: ContainerView) -> list[str]:
    """Container, namespace and pod, as an orchestrator calls them."""
    if one.name is None:
        return [one.status.name, "", ""]
    return [one.name.name, one.name.namespace or "", one.name.pod or ""]


def _hami(taken: Snapshot) -> Iterator[Metric]:
    labels = ("deviceuuid", "podname", "podnamespace", "ctrname", "vdeviceid")
    newer = ("device_uuid", "pod", "namespace", "container", "vdevice_index")

    def row(card: CardView, one: ContainerView) -> list[str]:
        container, namespace, pod = _pod_labels(one)
        return [card.status.card.uuid, pod, namespace, container, str(one.status.card)]

    def percent(one: ContainerView) -> float | None:
        return _scaled(one.share.used, 100)

    for name, names, read in (
        ("hami_vgpu_memory_used_bytes", newer, lambda o: o.used_bytes),
        ("hami_vgpu_memory_limit_bytes", newer, lambda o: o.status.memory_bytes),
        ("hami_container_device_utilization_ratio", newer, percent),
        ("vGPU_device_memory_usage_in_bytes", labels, lambda o: o.used_bytes),
        ("vGPU_device_memory_limit_in_bytes", labels, lambda o: o.status.memory_bytes),
        ("Device_utilization_desc_of_container", labels, percent),
    ):
        rows = [(row(card, one), read(one)) for card in taken.cards for one in card.containers]
        yield family(GaugeMetricFamily, name, "As HAMi names it.", names, rows)
    for name, of_card, read_card in (
        ("hami_host_gpu_memory_used_bytes", ("device_index", "device_uuid"), board_used_bytes),
        ("hami_host_gpu_utilization_ratio", ("device_index", "device_uuid"), _utilization),
        ("HostGPUMemoryUsage", ("deviceidx", "deviceuuid"), board_used_bytes),
        ("HostCoreUtilization", ("deviceidx", "deviceuuid"), _utilization),
    ):
        rows = [
            ([str(card.status.card.index), card.status.card.uuid], read_card(card))
            for card in taken.cards
        ]
        yield family(GaugeMetricFamily, name, "As HAMi names it.", of_card, rows)


#: Of a card, by dcgm-exporter's name.
_OF_CARD: dict[str, Callable[[CardView], float | None]] = {
    "DCGM_FI_DEV_GPU_UTIL": _utilization,
    "DCGM_FI_DEV_FB_USED": lambda card: board_used_bytes(card) / MIB,
    "DCGM_FI_DEV_FB_FREE": lambda card: _scaled(_free_bytes(card), 1 / MIB),
    "DCGM_FI_DEV_FB_RESERVED": lambda card: card.status.card.reserved_bytes / MIB,
    "DCGM_FI_DEV_GPU_TEMP": _temperature,
    "DCGM_FI_DEV_POWER_USAGE": _power,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _engine_active,
}


def _own_free_bytes(card: CardView, one: ContainerView) -> int | None:
    limit, free = one.status.memory_bytes, _free_bytes(card)
    return free if limit is None else max(0, limit - one.used_bytes)


def _own_power(card: CardView, one: ContainerView) -> float | None:
    """Return its part of the board's power, as its part of the energy is made."""
    power, used = _power(card), one.share.used
    return None if power is None or used is None else power * used


#: Of a container, by the same names, as if its part of the card were a card.
_OF_CONTAINER: dict[str, Callable[[CardView, ContainerView], float | None]] = {
    "DCGM_FI_DEV_GPU_UTIL": lambda card, one: _scaled(one.share.used, 100),
    "DCGM_FI_DEV_FB_USED": lambda card, one: one.used_bytes / MIB,
    "DCGM_FI_DEV_FB_FREE": lambda card, one: _scaled(_own_free_bytes(card, one), 1 / MIB),
    "DCGM_FI_DEV_POWER_USAGE": _own_power,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda card, one: one.share.used,
}


def _dcgm_labels(card: CardView) -> list[str]:
    index = card.status.card.index
    return [str(index), card.status.card.uuid, f"nvidia{index}", _model(card)]


def _dcgm(taken: Snapshot) -> Iterator[Metric]:
    for name, read in _OF_CARD.items():
        rows = [(_dcgm_labels(card), read(card)) for card in taken.cards]
        yield family(GaugeMetricFamily, name, "As dcgm-exporter names it.", _DCGM_CARD, rows)


def _dcgm_pods(taken: Snapshot) -> Iterator[Metric]:
    host = socket.gethostname()
    for name, read_card in _OF_CARD.items():
        read = _OF_CONTAINER.get(name)
        rows: list[Row] = []
        for card in taken.cards:
            labels = [*_dcgm_labels(card), host, host]
            # Where a figure cannot be divided among the containers, each shows its card's.
            values = [
                read_card(card) if read is None else read(card, one) for one in card.containers
            ]
            rows += [
                ([*labels, *_pod_labels(one), one.status.name], value)
                for one, value in zip(card.containers, values, strict=True)
            ]
            whole = read_card(card)
            if read is not None and whole is not None:
                # A sum over a card's rows is the card's own figure.
                whole = max(0.0, whole - sum(value or 0 for value in values))
            if read is not None or not values:
                rows.append(([*labels, "", "", "", ""], whole))
        yield family(GaugeMetricFamily, name, "As dcgm-exporter names it.", _DCGM_POD, rows)


def _otel(taken: Snapshot) -> Iterator[Metric]:
    def rows(read: Callable[[CardView], float | None], *more: str) -> list[Row]:
        return [
            (
                [
                    card.status.card.uuid,
                    "gpu",
                    f"nvidia{card.status.card.index}",
                    _model(card),
                    "NVIDIA",
                    taken.nvml.driver or "",
                    *more,
                ],
                read(card),
            )
            for card in taken.cards
        ]

    def memory_ratio(card: CardView) -> float | None:
        total = card.status.card.total_bytes
        return board_used_bytes(card) / total if total else None

    for name, text, read in (
        ("hw_gpu_memory_limit_bytes", "Size of the GPU memory.", _total_bytes),
        ("hw_gpu_memory_usage_bytes", "GPU memory used.", board_used_bytes),
        ("hw_gpu_memory_utilization_ratio", "Fraction of GPU memory used.", memory_ratio),
        ("hw_power_watts", "Power drawn by the component.", _power),
    ):
        yield family(GaugeMetricFamily, name, text, _OTEL, rows(read))
    yield family(
        GaugeMetricFamily,
        "hw_gpu_utilization_ratio",
        "Fraction of time spent in a task.",
        (*_OTEL, "hw_gpu_task"),
        rows(lambda card: _scaled(card.utilization, 0.01), "general"),
    )
    yield family(
        CounterMetricFamily,
        "hw_energy_joules",
        "Energy consumed by the component.",
        _OTEL,
        rows(lambda card: None if card.board is None else card.board.energy_j),
    )


def _total_bytes(card: CardView) -> int | None:
    return card.status.card.total_bytes or None


#: The metrics of each vendor's names.
NAMES: dict[str, Callable[[Snapshot], Iterator[Metric]]] = {
    "dcgm": _dcgm,
    "dcgm-pods": _dcgm_pods,
    "hami": _hami,
    "otel": _otel,
}


def check(names: frozenset[str]) -> frozenset[str]:
    """
    Return the names again.

    Raises:
        CgpuError: one is unknown, or two of them are the same metrics.
    """
    for name in sorted(names - NAMES.keys()):
        raise CgpuError(f"no exporter is called {name!r}: choose from {', '.join(NAMES)}")
    if {"dcgm", "dcgm-pods"} <= names:
        raise CgpuError("dcgm names cards and dcgm-pods containers, by the same metrics: take one")
    return names
