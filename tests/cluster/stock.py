# SPDX-License-Identifier: MIT
"""
How long kube-scheduler itself takes for a decision: ``python -m tests.cluster.stock``.

API server, etcd and scheduler are real, nodes exist in the API server alone; once as it comes, and
once with our extender. What a decision took is the scheduler's own histogram.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import random
import ssl
import tempfile
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.cluster.objects import MANIFESTS, manifests
from tests.cluster.scale import MEMORY, pods
from tests.cluster.test_extender import CARDS, Scheduled
from tests.cluster.waiting import until

WRITERS = 4
WAIT_S = 900
_METRIC = "scheduler_scheduling_algorithm_duration_seconds"


def node(name: str, cards: int) -> dict[str, Any]:
    """A node as its kubelet and its device plugin describe it."""
    described = [{"uuid": f"{name}-{n}", "memory": MEMORY, "containers": 20} for n in range(cards)]
    amounts = {
        "cpu": "64",
        "memory": "64Gi",
        "pods": "110",
        "nvidia.com/gpu": str(20 * cards),
        "nvidia.com/gpumem": str(MEMORY * cards),
        "nvidia.com/gpucores": str(100 * cards),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {CARDS: json.dumps(described)}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def write(running: Scheduled, path: str, objects: Iterable[dict[str, Any]]) -> None:
    """Create objects, by several at once."""
    api, here = running.api, threading.local()

    def post(one: dict[str, Any]) -> None:
        if not hasattr(here, "connection"):
            context = ssl.create_default_context(cafile=str(api.directory / "ca.crt"))
            here.connection = http.client.HTTPSConnection("127.0.0.1", api.port, context=context)
        headers = {
            "Authorization": f"Bearer {api.tokens['admin']}",
            "Content-Type": "application/json",
        }
        here.connection.request("POST", path, json.dumps(one), headers)
        answer = here.connection.getresponse()
        said = answer.read()
        assert answer.status == 201, said

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(post, objects))


def decisions(running: Scheduled) -> dict[float, int]:
    """Upper bound in seconds → decisions that took no longer, as the scheduler counts them."""
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    url = f"https://127.0.0.1:{running.api.scheduler_port}/metrics"
    with urllib.request.urlopen(url, context=unverified) as answer:
        lines = answer.read().decode().splitlines()
    return {
        float(line.split('le="')[1].split('"')[0]): int(float(line.split()[-1]))
        for line in lines
        if line.startswith(f"{_METRIC}_bucket")
    }


def quantile(found: dict[float, int], part: float) -> float:
    """Return that of the decisions, within its bucket as if they lay evenly there."""
    wanted = part * max(found.values())
    low = below = 0.0
    for bound, number in sorted(found.items()):
        if number >= wanted:
            return low + (bound - low) * (wanted - below) / max(1, number - below)
        low, below = bound, number
    return low


def measure(nodes: int, cards: int, number: int, extended: bool, seed: int) -> str:
    with tempfile.TemporaryDirectory(prefix="cgpu-stock-") as directory:
        running = Scheduled(Path(directory))
        if not extended:
            running.api.scheduler = {}
        with running.api:
            for name in ("device-plugin", "scheduler"):
                running.api.apply(
                    *(
                        one
                        for one in manifests(running.api, MANIFESTS / f"{name}.yaml")
                        if one["kind"] != "Deployment"
                    )
                )
            until(
                lambda: running.api.kubectl("get", "serviceaccount", "default", check=False).stdout,
                "the default service account",
            )
            write(running, "/api/v1/nodes", (node(f"node-{n}", cards) for n in range(nodes)))
            if extended:
                running.start()
            try:
                made = list(pods(number, random.Random(seed)))
                for one in made:
                    del one["metadata"]["uid"]
                    one |= {"apiVersion": "v1", "kind": "Pod"}
                    one["spec"]["containers"][0]["image"] = "x"
                    # Nobody has said of these nodes that they are well.
                    one["spec"]["tolerations"] = [{"operator": "Exists"}]
                write(running, "/api/v1/namespaces/default/pods", made)
                until(lambda: max(decisions(running).values()) >= number, "all pods", WAIT_S)
                found = decisions(running)
            finally:
                if extended:
                    running.kill()
    label = "with the extender" if extended else "kube-scheduler alone"
    half, most = (1e3 * quantile(found, part) for part in (0.5, 0.99))
    return f"| {label} | {max(found.values())} | {half:.1f} | {most:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| | decisions | p50 ms | p99 ms |\n|---|---|---|---|")
    for extended in (False, True):
        said = measure(options.nodes, options.cards, options.pods, extended, options.seed)
        print(said, flush=True)


if __name__ == "__main__":
    main()
