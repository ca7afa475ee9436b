# SPDX-License-Identifier: MIT
"""Containers of other nodes, read from their exporters without a Prometheus."""

from __future__ import annotations

import http.client
import math
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..errors import CgpuError
from ..request.size import is_number

PORT = 9836
_TIMEOUT_S = 10
_AT_ONCE = 32
#: A hundred cards of a hundred containers tell half as much.
_BYTES_MAX = 32 << 20
_USED = "cgpu_container_used_seconds_total"
_MEMORY = "cgpu_container_memory_used_bytes"
_LIMIT = "cgpu_container_memory_limit_bytes"
_PARKED = "cgpu_container_parked_bytes"
_GROUP = "cgpu_container_group"


class Row(NamedTuple):
    """
    A container on a card of a node.

    used: in cards; None: the node does not tell, or it is a member, which its group computes for.
    group: the id of its group's leader, which may be its own.
    """

    node: str
    gpu: int
    name: str
    memory_bytes: int
    limit_bytes: int | None
    used: float | None
    parked_bytes: int = 0
    group: str | None = None


Values = dict[tuple[str, str], tuple[dict[str, str], dict[str, float]]]


def address(node: str) -> str:
    """Return the URL of a node's metrics: of a host, ``host:port`` or a URL."""
    if "://" in node:
        return node
    host, bracket, rest = node.rpartition("]") if node.startswith("[") else ("", "", node)
    port = "" if ":" in rest else f":{PORT}"
    return f"http://{host}{bracket}{rest}{port}/metrics"


def fetch(node: str) -> str:
    """Return a node's metrics. CgpuError: it does not answer, and why."""
    url = address(node)
    if not url.startswith(("http://", "https://")):
        raise CgpuError(f"{node}: write a host, host:port or a URL of http")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text: bytes = answer.read(_BYTES_MAX + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CgpuError(f"{node}: {reason}") from None
    if len(text) > _BYTES_MAX:
        raise CgpuError(f"{node}: tells more than {_BYTES_MAX >> 20} MiB")
    return text.decode(errors="replace")


def values(text: str) -> Values:
    """
    Return containers by card and id: their labels, and their values by metric.

    Raises:
        CgpuError: a card has no number, or a value is no number.
    """
    from prometheus_client.parser import text_string_to_metric_families

    found: Values = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in (_USED, _MEMORY, _LIMIT, _PARKED, _GROUP):
                    key = sample.labels["gpu"], sample.labels["id"]
                    if not (is_number(key[0]) and math.isfinite(sample.value)):
                        raise ValueError(f"gpu {key[0][:40]!r} has {sample.name} {sample.value}")
                    labels, told = found.setdefault(key, (dict(sample.labels), {}))
                    labels |= sample.labels
                    told[sample.name] = sample.value
    except (ValueError, KeyError) as error:
        raise CgpuError(f"no metrics of cgpu: {error}") from None
    return found


def _values_of(node: str) -> Values:
    text = fetch(node)
    try:
        return values(text)
    except CgpuError as error:
        raise CgpuError(f"{node}: {error}") from None


def label(labels: Mapping[str, str], unnamed: str) -> str:
    """Return a container's name, as engines and Kubernetes show it."""
    parts = (labels.get("namespace"), labels.get("pod"), labels.get("name"))
    return "/".join(part for part in parts if part) or labels.get("container", unnamed)


def rows(node: str, before: Values, after: Values, elapsed_s: float) -> list[Row]:
    """Return a node's containers from two scrapes, *elapsed_s* apart."""
    found = []
    for key, (labels, told) in after.items():
        first = before.get(key, ({}, {}))[1].get(_USED)
        last, limit = told.get(_USED), told.get(_LIMIT)
        used = None if first is None or last is None else max(0.0, last - first) / elapsed_s
        name = label(labels, key[1])
        memory, parked = int(told.get(_MEMORY, 0)), int(told.get(_PARKED, 0))
        limit = None if limit is None else int(limit)
        group = labels.get("group")
        found.append(Row(node, int(key[0]), name, memory, limit, used, parked, group))
    return found


def top(nodes: Iterable[str], sample_s: float) -> tuple[list[Row], list[str]]:
    """
    Return the containers of all *nodes*, the busiest first, and why some nodes told nothing.

    Every node is asked twice, *sample_s* apart, all of them at once.
    """

    def ask(node: str) -> list[Row] | str:
        try:
            before, began = _values_of(node), time.monotonic()
            time.sleep(sample_s)
            return rows(node, before, _values_of(node), time.monotonic() - began)
        except CgpuError as error:
            return str(error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(ask, nodes))
    found = [row for answer in answers if not isinstance(answer, str) for row in answer]
    found.sort(key=lambda row: (-(row.used or 0), -row.memory_bytes, row[:3]))
    return found, [answer for answer in answers if isinstance(answer, str)]
