# SPDX-License-Identifier: MIT
"""Asks hosts again and again, this one by its tree or others by their exporters."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from ..errors import CgpuError
from ..tree import events, procfs, scrape
from ..tree.exporter import Exporter
from . import reading
from .history import Host

_AT_ONCE = 32


class Watch:
    """The hosts that a page shows."""

    def __init__(
        self, nodes: Sequence[str], every_s: float, root: str | None = None, prefix: str = "/"
    ) -> None:
        """
        Without *nodes* it is this host.

        Args:
            root, prefix: this host's tree and files, as :class:`Exporter` takes them.
        """
        self.every_s = every_s
        self.hosts = [Host(name, every_s) for name in nodes or (socket.gethostname(),)]
        self._ask: list[Callable[[Host], None]] = [_of_exporter for _ in nodes]
        if not nodes:
            registry = CollectorRegistry()
            registry.register(Exporter(root, prefix=prefix))
            self._ask = [lambda host: _of_tree(host, registry, root)]

    def look(self) -> None:
        """Ask every host once."""

        def one(host: Host, ask: Callable[[Host], None]) -> None:
            try:
                ask(host)
            except CgpuError as error:
                host.fail(str(error))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, self.hosts, self._ask))

    def follow(self, ended: threading.Event) -> None:
        """Ask all of them every so often, until *ended*."""
        due_s = time.monotonic()
        while not ended.is_set():
            self.look()
            due_s = max(due_s + self.every_s, time.monotonic())
            ended.wait(due_s - time.monotonic())


def _of_exporter(host: Host) -> None:
    host.add(reading.of(_parsed(scrape.fetch(host.name))))


def _parsed(text: str) -> list[Any]:
    try:
        return list(text_string_to_metric_families(text))
    except ValueError as error:
        raise CgpuError(f"no metrics of cgpu: {error}") from None


def _of_tree(host: Host, registry: CollectorRegistry, root: str | None) -> None:
    told = reading.of(registry.collect())
    host.add(told, _lines(root or procfs.find_root()))


def _lines(root: str) -> list[dict[str, Any]]:
    """Return the lines of the tree's events, the oldest first."""
    try:
        found = [events.parse(line) for line in events.lines(root, follow=False)]
    except OSError as error:
        raise CgpuError(f"{root}/events: {error.strerror}") from None
    return [
        {"time_s": one.time_ns / 1e9, "kind": one.kind, "text": one.text}
        for one in found
        if one.time_ns is not None
    ]
