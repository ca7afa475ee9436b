# SPDX-License-Identifier: MIT
"""
The extender behind a stock kube-scheduler, with nodes that exist in the API server alone.

A pod that is bound is all that a scheduler does; which cards it chose stands on the pod.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane, free_ports, programs
from tests.cluster.objects import MANIFESTS, manifests, pod
from tests.cluster.waiting import until

CARDS = "scheduling.cgpu.io/cards"


class Scheduled:
    """A control plane whose scheduler asks an extender; of *gates* see :class:`ControlPlane`."""

    def __init__(self, directory: Path, gates: Sequence[str] = ()) -> None:
        (self.port,) = free_ports(1)
        self.directory = directory
        self.api = ControlPlane(programs(), directory, [], self.settings(), gates)
        self.process: subprocess.Popen[bytes] | None = None

    def settings(self) -> dict[str, Any]:
        """The scheduler's configuration in the manifest, but for the extender's port."""
        text = (MANIFESTS / "scheduler.yaml").read_text()
        found = text[text.index("extenders:") :].split("\n---")[0]
        names = [word.strip() for word in found.split("- name:")[1:]]
        return {
            "extenders": [
                {
                    "urlPrefix": f"http://127.0.0.1:{self.port}",
                    "filterVerb": "filter",
                    "prioritizeVerb": "prioritize",
                    "weight": 10,
                    "bindVerb": "bind",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": name.split()[0]} for name in names],
                }
            ]
        }

    def start(self) -> None:
        """Start the extender with the rights that its manifest gives it."""
        token = self.directory / "extender.token"
        token.write_text(self.api.token("scheduler", "cgpu"))
        with (self.directory / "extender.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pycgpu.cli.main", "scheduler-extender"),
                    *("--listen", f"127.0.0.1:{self.port}", "--token", str(token)),
                    *("--api", f"https://127.0.0.1:{self.api.port}"),
                    *("--ca", str(self.directory / "ca.crt")),
                ],
                stderr=log,
            )
        log_path = self.directory / "extender.log"
        until(lambda: log_path.read_text().endswith("serving\n"), "the extender", 60)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def node(self, name: str, cards: int = 2, memory: int = 16384) -> None:
        """A node as its kubelet and its device plugin describe it."""
        described = [
            {"uuid": f"{name}-{n}", "memory": memory, "containers": 20} for n in range(cards)
        ]
        amounts = {
            "cpu": "64",
            "memory": "64Gi",
            "pods": "110",
            "nvidia.com/gpu": str(20 * cards),
            "nvidia.com/gpumem": str(memory * cards),
            "nvidia.com/gpucores": str(100 * cards),
            "nvidia.com/gpumem-percentage": str(100 * cards),
        }
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": {CARDS: json.dumps(described)}},
            }
        )
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.api.kubectl(
            *("patch", "node", name, "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": status})),
        )
        # Its controller has not met a kubelet.
        self.api.kubectl("patch", "node", name, "-p", '{"spec":{"taints":null}}')

    def ask(self, *names: str, **limits: int) -> None:
        asked = {f"nvidia.com/{key}": n for key, n in {"gpu": 1, **limits}.items()}
        container = {"resources": {"limits": asked}}
        self.api.apply(*(pod(name, container=container) for name in names))

    def bound(self) -> dict[str, tuple[str, ...]]:
        """Pod → cards, of those that are bound."""
        found = {}
        for one in self.api.get("pods")["items"]:
            if "nodeName" in one["spec"]:
                cards = json.loads(one["metadata"]["annotations"][CARDS])["main"]
                assert {card.rpartition("-")[0] for card in cards} == {one["spec"]["nodeName"]}
                found[one["metadata"]["name"]] = tuple(cards)
        return found

    def waits(self, name: str) -> bool:
        """Whether the scheduler has said of a pod that no card has room for it."""
        events = self.api.kubectl("get", "events", "-n", "default").stdout
        return any(
            f"pod/{name} " in line and "no card has room" in line for line in events.splitlines()
        )

    def clear(self, *kinds: str) -> None:
        """Delete all pods, nodes and events, and all objects of *kinds*."""
        given = ",".join(("pods", "nodes", *kinds))
        self.api.kubectl("delete", given, "--all", "--force", "--grace-period=0")
        self.api.kubectl("delete", "events", "--all")


@contextlib.contextmanager
def scheduled(directory: Path, gates: Sequence[str] = ()) -> Iterator[Scheduled]:
    """Both run, with what their manifests give them."""
    made = Scheduled(directory, gates)
    with made.api:
        made.api.apply(*manifests(made.api, MANIFESTS / "device-plugin.yaml"))
        made.api.apply(
            *(
                one
                for one in manifests(made.api, MANIFESTS / "scheduler.yaml")
                if one["kind"] != "Deployment"
            )
        )
        until(
            lambda: made.api.kubectl("get", "serviceaccount", "default", check=False).stdout,
            "the default service account",
        )
        made.start()
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    with scheduled(tmp_path_factory.mktemp("scheduled")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(running: Scheduled) -> Iterator[None]:
    yield
    running.clear()


def test_60_and_60_percent_are_on_two_cards_and_a_third_waits(running: Scheduled) -> None:
    """The node's count, 180 of 200 percent, would have let it in."""
    running.node("one")
    running.ask("a", "b", "c", gpucores=60, gpumem=1000)
    until(lambda: len(running.bound()) == 2, "two are bound", 60)
    assert sorted(running.bound().values()) == [("one-0",), ("one-1",)]
    (waiting,) = {"a", "b", "c"} - running.bound().keys()
    until(lambda: running.waits(waiting), "why the third waits", 60)
    running.api.kubectl("delete", "pod", next(iter(running.bound())), "--force")
    until(lambda: waiting in running.bound(), "the third is bound", 60)


def test_a_pod_goes_to_the_node_whose_card_has_room(running: Scheduled) -> None:
    """Both nodes have 16 GiB left, and only one of them on one card."""
    running.node("whole", cards=1)
    running.node("split", cards=2)
    running.ask("left", "right", gpumem=12000)
    until(lambda: len(running.bound()) == 2, "two are bound", 60)
    running.ask("third", gpumem=12000)
    until(lambda: len(running.bound()) == 3, "the third is bound", 60)
    assert sorted(running.bound().values()) == [("split-0",), ("split-1",), ("whole-0",)]


def test_small_pods_leave_whole_cards_to_large_ones(running: Scheduled) -> None:
    for name in ("n1", "n2", "n3"):
        running.node(name)
    for number in range(1, 9):
        # One by one: the scheduler decides on the next while it binds the last.
        running.ask(f"small{number}", gpumem=2000, gpucores=10)
        until(lambda wanted=number: len(running.bound()) == wanted, "it is bound", 60)  # type: ignore[misc]
    assert len(set(running.bound().values())) == 1
    running.ask(*(f"large{n}" for n in range(5)), gpumem=16384)
    until(lambda: len(running.bound()) == 13, "five whole cards were left", 60)


def test_an_extender_that_was_killed_knows_again_what_is_taken(running: Scheduled) -> None:
    running.node("one")
    running.ask("a", gpucores=60, gpumem=1000)
    until(lambda: len(running.bound()) == 1, "the first is bound", 60)
    running.kill()
    running.ask("b", "c", gpucores=60, gpumem=1000)
    running.start()
    until(lambda: len(running.bound()) == 2, "one more is bound", 120)
    assert sorted(running.bound().values()) == [("one-0",), ("one-1",)]
    (waiting,) = {"b", "c"} - running.bound().keys()
    until(lambda: running.waits(waiting), "why the third waits", 60)


def test_a_pod_of_higher_priority_takes_the_place_of_others(running: Scheduled) -> None:
    running.node("one", cards=1)
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    running.api.apply({**priority, "metadata": {"name": "high"}})
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 16384}
    container = {"resources": {"limits": limits}}
    # Nobody is there to end it in its time.
    running.api.apply(pod("low", container=container, terminationGracePeriodSeconds=0))
    until(lambda: "low" in running.bound(), "the first is bound", 60)
    running.api.apply(pod("high", container=container, priorityClassName="high"))
    until(lambda: running.bound() == {"high": ("one-0",)}, "the second in its place", 60)


def test_a_pod_without_cards_is_the_schedulers_own(running: Scheduled) -> None:
    running.node("one")
    running.kill()
    try:
        running.api.apply(pod("plain"))
        until(lambda: running.api.get("pod", "plain")["spec"].get("nodeName") == "one", "bound", 60)
        running.api.kubectl("delete", "pod", "plain", "--force", "--grace-period=0")
    finally:
        running.start()
