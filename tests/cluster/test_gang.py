# SPDX-License-Identifier: MIT
"""
Gangs: pods that are bound together or not at all, by the stock scheduler's own PodGroups.

They are beta and off in Kubernetes 1.37 (GenericWorkload), and alpha in 1.36 (GangScheduling,
too). The nodes exist in the API server alone, as the extender's and the claims' tests have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.control_plane import KUBERNETES
from tests.cluster.objects import claimant, pod, template
from tests.cluster.test_allocation import Node
from tests.cluster.test_extender import Scheduled, scheduled
from tests.cluster.waiting import until

ALPHA = KUBERNETES == "1.36"
GATES = ("GenericWorkload", "GangScheduling") if ALPHA else ("GenericWorkload",)
VERSION = "v1alpha2" if ALPHA else "v1beta1"
#: A gang that is refused is tried again after up to ten seconds, and each time is a look more.
GANG_S = 120


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    with scheduled(tmp_path_factory.mktemp("gang"), GATES) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(running: Scheduled) -> Iterator[None]:
    yield
    running.clear("podgroups")


def gang(running: Scheduled, name: str, members: list[dict[str, Any]], **spec: str) -> set[str]:
    """Ask for pods that are of use together alone; return their names."""
    group = {
        "apiVersion": f"scheduling.k8s.io/{VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": len(members)}}, **spec},
    }
    for number, one in enumerate(members):
        one["metadata"]["name"] = f"{name}{number}"
        one["spec"]["schedulingGroup"] = {"podGroupName": name}
    running.api.apply(group, *members)
    return {f"{name}{number}" for number in range(len(members))}


def part(gpumem: int, **spec: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": gpumem}
    return pod("x", container={"resources": {"limits": limits}}, **spec)


def refused(running: Scheduled, names: set[str]) -> bool:
    """Whether the scheduler has said of one of them that it is not bound."""
    return any(
        one["reason"] == "FailedScheduling" and one["involvedObject"]["name"] in names
        for one in running.api.get("events")["items"]
    )


def test_a_gang_has_parts_of_cards_for_all_or_none(running: Scheduled) -> None:
    """Three times 9000 MiB are less than the node has, and one is more than half a card."""
    running.node("one")
    three = gang(running, "three", [part(9000) for _ in range(3)])
    until(lambda: refused(running, three), "the refusal", GANG_S)
    assert running.bound() == {}
    two = gang(running, "two", [part(9000) for _ in range(2)])
    until(lambda: running.bound().keys() == two, "the gang that finds room", GANG_S)
    assert sorted(running.bound().values()) == [("one-0",), ("one-1",)]
    running.node("more", cards=3)
    until(lambda: running.bound().keys() == two | three, "room for the other", GANG_S)
    assert len(set(running.bound().values())) == 5


def test_a_gang_of_higher_priority_has_the_place_of_others_when_they_go(running: Scheduled) -> None:
    """
    1.37 tries a gang without its victims, and asks the extender, which still counts them.

    1.36 preempts as for single pods.
    """
    running.node("one")
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    running.api.apply({**priority, "metadata": {"name": "high"}})
    # Nobody is there to end them in their time.
    for name in ("low0", "low1"):
        low = part(16384, terminationGracePeriodSeconds=0)
        low["metadata"]["name"] = name
        running.api.apply(low)
    until(lambda: len(running.bound()) == 2, "both cards are taken", GANG_S)
    members = [part(16384, priorityClassName="high") for _ in range(2)]
    if ALPHA:
        high = gang(running, "high", members)
    else:
        # The group's own, which its pods must have.
        high = gang(running, "high", members, priorityClassName="high")
        until(lambda: refused(running, high), "the refusal", GANG_S)
        assert running.bound().keys() == {"low0", "low1"}
        running.api.kubectl("delete", "pods", "low0", "low1", "--wait=false")
    until(lambda: running.bound().keys() == high, "the gang in their place", GANG_S)


def test_a_gang_has_its_claims_together_or_not_at_all(
    running: Scheduled, tmp_path_factory: pytest.TempPathFactory
) -> None:
    node = Node(running.api, tmp_path_factory.mktemp("node"))
    node.driver.publish()
    running.api.apply(template("most", memory="9Gi"))

    def members(number: int) -> list[dict[str, Any]]:
        source = {"resourceClaimTemplateName": "most"}
        return [claimant("x", source) for _ in range(number)]

    three = gang(running, "three", members(3))
    until(lambda: refused(running, three), "the refusal", GANG_S)
    assert node.bound() == []
    two = gang(running, "two", members(2))
    until(lambda: set(node.bound()) == two, "the gang that finds room", GANG_S)
