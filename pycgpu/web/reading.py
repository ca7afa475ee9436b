# SPDX-License-Identifier: MIT
"""One host at one moment, by the metrics that its exporter tells, here or over the network."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import CgpuError
from ..request.size import is_number

_CARD, _CONTAINER = "cgpu_gpu_", "cgpu_container_"
#: A card's number and a container's id.
Key = tuple[int, str]


class Part(NamedTuple):
    """A card, or a container on one: its labels, and its figures by metric without its prefix."""

    labels: dict[str, str]
    figures: dict[str, float]


class Reading(NamedTuple):
    """
    What a host told.

    time_s: the wall clock's; ``clock_s`` is never set back, and shares are measured by it.
    info: versions of the module and the driver.
    policies: the one in force, by card. states: by container, where its memory is.
    """

    time_s: float
    clock_s: float
    info: dict[str, str]
    cards: dict[int, Part]
    policies: dict[int, str]
    states: dict[Key, str]
    containers: dict[Key, Part]
    events: dict[str, float]


def of(families: Iterable[Any]) -> Reading:
    """
    Return the reading of metrics from a registry's ``collect()`` or prometheus_client's parser.

    Raises:
        CgpuError: the host has no tree, or the metrics are not of an exporter of cgpu.
    """
    told = Reading(time.time(), time.monotonic(), {}, {}, {}, {}, {}, {})
    is_up: float | None = None
    try:
        for family in families:
            for sample in family.samples:
                name, labels, value = sample.name, sample.labels, float(sample.value)
                if name == "cgpu_up":
                    is_up = value
                elif name == "cgpu_info":
                    told.info.update(labels)
                elif name == "cgpu_events_total":
                    told.events[labels["event"]] = _finite(name, value)
                elif name == "cgpu_gpu_policy":
                    if value:
                        told.policies[_card(labels)] = labels["policy"]
                elif name == "cgpu_container_state":
                    if value:
                        told.states[_card(labels), labels["id"]] = labels["state"]
                elif name.startswith(_CARD):
                    part = told.cards.setdefault(_card(labels), Part(labels, {}))
                    part.figures[name.removeprefix(_CARD)] = _finite(name, value)
                elif name.startswith(_CONTAINER):
                    key = _card(labels), labels["id"]
                    part = told.containers.setdefault(key, Part(labels, {}))
                    part.figures[name.removeprefix(_CONTAINER)] = _finite(name, value)
    except (ValueError, KeyError) as error:
        raise CgpuError(f"no metrics of cgpu: {error}") from None
    if is_up is None:
        raise CgpuError("no metrics of cgpu: the exporter of another program answers")
    if not is_up:
        raise CgpuError("no module is loaded and no agent runs: `cgpu doctor` says why")
    return told


def _card(labels: dict[str, str]) -> int:
    if not is_number(labels["gpu"]) or len(labels["gpu"]) > 4:
        raise ValueError(f"gpu {labels['gpu'][:40]!r}")
    return int(labels["gpu"])


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} {value}")
    return value
