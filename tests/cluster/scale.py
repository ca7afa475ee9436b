# SPDX-License-Identifier: MIT
"""
How well and how fast pods are placed on many cards: ``python -m tests.cluster.scale``.

A model of kube-scheduler's cycle: of 10,000 nodes it looks at 500 that fit by its own count, from
where it stopped last, and takes the best of them. *By count* is the scheduler alone: it knows a
node's sums, prefers nodes with few pods, and the device plugin then looks for a card. With the
extender the 500 are asked about as the scheduler asks, JSON included.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pycgpu.errors import CgpuError
from pycgpu.kubernetes import extender
from pycgpu.kubernetes.apiserver import Access
from pycgpu.kubernetes.families import FAMILIES
from pycgpu.kubernetes.scheduling import Card

MEMORY = 24 << 10
#: What the scheduler looks at of so many nodes: 5 percent, and never fewer than 100.
SHARE = 0.05
#: GiB, percent of compute, and how many of a hundred pods ask for that.
MIX = ((8, 30, 15), (12, 50, 20), (14, 60, 30), (24, 100, 35))


def pods(number: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield pods of the mix in a random order."""
    kinds = [(gib, quota) for gib, quota, weight in MIX for _ in range(weight)]
    for n in range(number):
        gib, quota = chance.choice(kinds)
        limits = {
            "nvidia.com/gpu": 1,
            "nvidia.com/gpumem": gib << 10,
            "nvidia.com/gpucores": quota,
        }
        yield {
            "metadata": {"uid": str(n), "name": f"p{n}", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }


class Model:
    """A cluster, and the scheduler's own count of its nodes."""

    def __init__(self, nodes: int, cards: int, placement: str) -> None:
        self.cluster = extender.Cluster((FAMILIES["hami"],), placement)
        for n in range(nodes):
            self.cluster.nodes[f"node-{n}"] = [
                Card(f"node-{n}-{c}", MEMORY, MEMORY) for c in range(cards)
            ]
        self.names = list(self.cluster.nodes)
        self.memory = dict.fromkeys(self.names, cards * MEMORY)
        self.quota = dict.fromkeys(self.names, cards * 100)
        self.pods = dict.fromkeys(self.names, 0)
        self.at = 0
        self.waiting = self.stuck = self.placed = 0
        self.times_s: list[float] = []

    def candidates(self, memory: int, quota: int) -> list[str]:
        """The nodes that the scheduler goes on with, by its count."""
        wanted = max(100, int(SHARE * len(self.names)))
        found = []
        for step in range(len(self.names)):
            name = self.names[(self.at + step) % len(self.names)]
            if self.memory[name] >= memory and self.quota[name] >= quota:
                found.append(name)
                if len(found) == wanted:
                    break
        self.at = (self.at + step + 1) % len(self.names)
        return found

    def schedule(self, pod: dict[str, Any], extended: bool) -> None:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        memory, quota = limits["nvidia.com/gpumem"], limits["nvidia.com/gpucores"]
        began_s = time.perf_counter()
        found = self.candidates(memory, quota)
        name = self.ask(pod, found) if extended else min(found, key=self.pods.get, default=None)  # type: ignore[arg-type]
        self.times_s.append(time.perf_counter() - began_s)
        if name is None:
            self.waiting += 1
            return
        # Bound: from now on it counts on its node, whether it finds a card there or not.
        self.memory[name] -= memory
        self.quota[name] -= quota
        self.pods[name] += 1
        try:
            self.cluster.reserve(pod, name)
        except CgpuError:
            self.stuck += 1
        else:
            self.placed += 1

    def ask(self, pod: dict[str, Any], names: list[str]) -> str | None:
        def call(path: str, names: list[str]) -> Any:
            asked = json.loads(json.dumps({"pod": pod, "nodenames": names}))
            answer = extender._answer(self.cluster, Access(""), path, asked)
            return json.loads(json.dumps(answer))

        fitting = call("/filter", names)["nodenames"]
        if not fitting:
            return None
        scores = {one["host"]: one["score"] for one in call("/prioritize", fitting)}
        best: str = max(fitting, key=lambda name: (scores[name], -self.pods[name]))
        return best

    def row(self, label: str) -> str:
        cards = [card for node in self.cluster.nodes.values() for card in node]
        memory = 1 - sum(card.free_memory for card in cards) / (MEMORY * len(cards))
        compute = 1 - sum(card.free_quota for card in cards) / (100 * len(cards))
        whole = sum(card.free_memory == MEMORY for card in cards)
        times = statistics.quantiles(self.times_s, n=100)
        return (
            f"| {label} | {self.placed} | {self.stuck} | {self.waiting} | {memory:.1%} |"
            f" {compute:.1%} | {whole} | {times[49] * 1e3:.2f} | {times[98] * 1e3:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "| | on a card | bound, without one | not bound | memory in use | compute in use |"
        " whole cards left | decision p50 ms | p99 ms |\n|---|---|---|---|---|---|---|---|---|"
    )
    for label, extended, placement in (
        ("by count", False, "binpack"),
        ("extender, binpack", True, "binpack"),
        ("extender, spread", True, "spread"),
    ):
        model = Model(options.nodes, options.cards, placement)
        for pod in pods(options.pods, random.Random(options.seed)):
            model.schedule(pod, extended)
        print(model.row(label), flush=True)


if __name__ == "__main__":
    main()
