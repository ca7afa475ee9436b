# SPDX-License-Identifier: MIT
"""Hosts with an hour behind them, and the page's server before them."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from pycgpu.tree.exporter import Exporter
from pycgpu.web import reading
from pycgpu.web.page import serving
from pycgpu.web.watch import Watch
from tests.host.coretree import GIB, CoreTree

#: What a tenant may call its container, to have its script run by who looks at it.
HOSTILE = '<img src=x onerror="window.hostile=1"></script><script>window.hostile=1</script>\'&'
NAMES = ("server", "train", "notebook", "embed", "batch", HOSTILE)


class Host:
    """A tree whose containers compute, and one that tells it; ids are by card and number."""

    def __init__(
        self, folder: Path, cards: int, names: Sequence[str] = NAMES, parked: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        features = ("GATE", "PARK")
        self.tree = CoreTree(folder / "tree", [(140 * GIB, GIB)] * cards, features=features)
        logs = folder / "var/log/containers"
        logs.mkdir(parents=True)
        self.ids: list[str] = []
        self.weights = sum(1 + number % 3 for number in range(len(names)))
        for card in range(cards):
            for number, name in enumerate(names):
                id = f"{card}{number}" * 32
                clause = f"gpu={card},mem={(number + 2) * 4 * GIB},weight={1 + number % 3}"
                made = self.tree.create(id, clause)
                made.hold(card, 4711 + number, 7, (number + 1) * 3 * GIB, "python3")
                if name in parked:
                    made.park("parked", waits=True)
                self.ids.append(id)
                if name != HOSTILE:
                    target = f"/var/log/pods/team_{name}-{card}_u/main/0.log"
                    (logs / f"{name}-{card}_team_main-{id}.log").symlink_to(target)
                else:
                    _named(folder, id, name)
        now = time.time_ns()
        self.tree.events = "".join(
            f"{now - 10**9 * 60 * (40 - at)} create id={id}\n" for at, id in enumerate(self.ids)
        )
        if self.ids:
            self.tree.events += f"{now - 10**9} oom id={self.ids[0]} gpu=0 bytes={GIB}\n"
            self.tree.events += f"{now} refused id={self.ids[-1]} {HOSTILE}\n"
        self.registry = CollectorRegistry()
        self.registry.register(Exporter(str(self.tree.root), prefix=str(folder)))
        self.tree.write()

    def watch(self, readings: int = 3) -> Watch:
        """Return what watches this host, so many readings and an hour after it began."""
        every_s = 3600 / readings
        made = Watch((), every_s, str(self.tree.root), str(self.folder))
        (host,) = made.hosts
        host.name = "node-1"
        # Its own reading would be later than those that follow.
        first = Watch((), every_s, str(self.tree.root), str(self.folder))
        first.look()
        lines = first.hosts[0].now().get("lines")
        now_s, clock_s = time.time(), time.monotonic()
        for tick in range(readings):
            self._grow(tick, every_s)
            ago_s = (readings - 1 - tick) * every_s
            told = reading.of(self.registry.collect())
            host.add(told._replace(time_s=now_s - ago_s, clock_s=clock_s - ago_s), lines)
        return made

    def _grow(self, tick: int, every_s: float) -> None:
        for id in self.ids:
            card, number = int(id[0]), int(id[1])
            container = self.tree.containers[id]
            weight = 1 + number % 3
            part = 0.9 * weight / self.weights * (1 + 0.1 * math.sin(tick * every_s / 300 + number))
            ns = {
                key: container.stats.get(card, {}).get(key, 0) for key in ("used_ns", "waited_ns")
            }
            ns["used_ns"] += int(part * every_s * 1e9)
            ns["waited_ns"] += int(0.02 * number * every_s * 1e9)
            container.count(card, granted_ns=ns["used_ns"], switches=tick, **ns)
        self.tree.write()


def _named(folder: Path, id: str, name: str) -> None:
    """Docker calls a container so."""
    config = folder / "var/lib/docker/containers" / id / "config.v2.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"Name": f"/{name}"}))


@contextlib.contextmanager
def served(watch: Watch, names: Sequence[str] = ()) -> Iterator[int]:
    """Serve the page of *watch* and give the port."""
    server = serving(watch, "127.0.0.1", 0, names)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
