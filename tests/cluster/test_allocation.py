# SPDX-License-Identifier: MIT
"""
Cards in slices before the real API server, and parts of them given by the real scheduler.

The node exists in the API server alone; the driver's own code publishes its cards, with the rights
that the manifest gives it, and reads what claims have been allocated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import CgpuError
from pycgpu.kubernetes import claims, messages
from pycgpu.kubernetes.apiserver import Access
from pycgpu.kubernetes.dra import Claims, Driver
from pycgpu.kubernetes.health import Health
from pycgpu.kubernetes.node import Place
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import MANIFESTS, claim, claimant, pod, slices
from tests.cluster.waiting import until
from tests.host.coretree import GIB, CoreTree

NODE = "node"


class Node:
    """A node of two cards of 16 GiB, and its driver."""

    def __init__(self, api: ControlPlane, directory: Path) -> None:
        self.api = api
        self.tree = CoreTree(directory / "tree", ((16 * GIB, 0), (16 * GIB, 0)))
        api.kubectl("apply", "-f", MANIFESTS / "dra.yaml")
        self.add(NODE)
        token = directory / "token"
        words = ("create", "token", "dra-driver", "-n", "cgpu", "--duration", "1h")
        bound = ("--bound-object-kind", "Node", "--bound-object-name", NODE)
        token.write_text(api.kubectl(*words, *bound).stdout)
        access = Access(f"https://127.0.0.1:{api.port}", str(token), str(api.directory / "ca.crt"))
        path = directory / "sys/module/cgpu_km/parameters/ungranted"
        path.parent.mkdir(parents=True)
        path.write_text("refuse\n")
        place = Place(("/cgpu-hook",), str(self.tree.root), str(directory), str(directory / "cdi"))
        self.claims = Claims(access, place)
        self.driver = Driver(NODE, self.claims, str(directory / "kubelet"))

    def add(self, name: str) -> None:
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        self.api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        self.api.kubectl(
            *("patch", "node", name, "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": status})),
        )
        # Its controller has not met a kubelet.
        self.api.kubectl("patch", "node", name, "-p", '{"spec":{"taints":null}}')

    def bound(self) -> list[str]:
        """The pods that have a node."""
        return sorted(
            one["metadata"]["name"]
            for one in self.api.get("pods")["items"]
            if one["spec"].get("nodeName")
        )

    def parts(self, name: str) -> list[claims.Part]:
        return claims.parts(self.api.get("resourceclaim", name))


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Node:
    until(
        lambda: control_plane.kubectl("get", "serviceaccount", "default", check=False).stdout,
        "the default service account",
    )
    made = Node(control_plane, tmp_path_factory.mktemp("node"))
    # The policy about slices holds from when the server has compiled it; it lets this one through.
    assert made.driver.publish()
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(node: Node) -> Iterator[None]:
    yield
    node.api.kubectl(
        *("delete", "pods,resourceclaims", "--all", "-n", "default", "--force", "--wait=false")
    )
    until(lambda: not node.api.get("resourceclaims")["items"], "the claims' end", 60)


def ask(node: Node, name: str, **capacity: str) -> None:
    node.api.apply(claim(name, **capacity), claimant(name, {"resourceClaimName": name}))


def test_a_slice_that_is_right_is_left_alone(node: Node) -> None:
    (before,) = slices(node.api)
    assert not node.driver.publish()
    assert slices(node.api) == [before]


FAILED, WELL = (f"gpu-00000000-0000-0000-0000-00000000000{n}" for n in (2, 1))


@pytest.fixture
def failing(node: Node) -> Iterator[Node]:
    """A node whose second card may fail, and is well again afterwards."""
    yield node
    node.driver.health = Health(lambda: None)
    node.driver.effect = claims.NO_SCHEDULE
    node.driver.publish()


def fail(node: Node) -> None:
    """Have the second card fail; the API server's slice is then as the driver wants it."""
    (before,) = slices(node.api)
    node.driver.health.tell(FAILED.replace("gpu", "GPU"), 79)
    assert node.driver.publish()
    (made,) = slices(node.api)
    assert made["pool"]["generation"] == before["pool"]["generation"] + 1
    ((name, (taint,)),) = [
        (one["name"], one["taints"]) for one in made["devices"] if "taints" in one
    ]
    assert name == FAILED
    assert taint.pop("timeAdded")
    wanted = {"key": "gpu.cgpu.io/unhealthy", "value": "xid-79", "effect": node.driver.effect}
    assert taint == wanted
    assert not node.driver.publish()


def test_the_scheduler_gives_nothing_of_a_card_that_has_failed(failing: Node) -> None:
    fail(failing)
    ask(failing, "one")
    ask(failing, "two")
    until(lambda: len(failing.bound()) == 1, "a pod", 60)
    until(
        lambda: "cannot allocate all claims" in failing.api.kubectl("get", "events").stdout,
        "the other's refusal",
        60,
    )
    (name,) = failing.bound()
    assert [part.device for part in failing.parts(name)] == [WELL]
    failing.driver.health = Health(lambda: None)
    assert failing.driver.publish()
    until(lambda: len(failing.bound()) == 2, "the other, on a card that is well again", 60)


@pytest.mark.parametrize("evicts", [False, True])
def test_pods_of_a_card_that_fails_end_if_the_driver_evicts(failing: Node, evicts: bool) -> None:
    ask(failing, "one")
    ask(failing, "two")
    until(lambda: len(failing.bound()) == 2, "two pods", 60)
    on = {failing.parts(name)[0].device: name for name in failing.bound()}
    if evicts:
        failing.driver.effect = claims.NO_EXECUTE
        fail(failing)
        until(lambda: failing.bound() == [on[WELL]], "the end of the failed card's pod", 60)
    else:
        fail(failing)
        # The controller that would end it has seen the slice when it ends another.
        failing.driver.effect = claims.NO_EXECUTE
        assert failing.bound() == sorted(on.values())
        assert failing.driver.publish()
        until(lambda: failing.bound() == [on[WELL]], "its end once the effect is another", 60)


def test_the_driver_writes_no_other_nodes_slice(node: Node) -> None:
    node.add("other")
    driver = Driver("other", node.claims)
    until(lambda: "its own node alone" in refused(driver), "a refusal", 60)


def refused(driver: Driver) -> str:
    try:
        driver.publish()
    except CgpuError as error:
        return str(error)
    return ""


def test_requests_are_rounded_up_to_steps(node: Node) -> None:
    ask(node, "part", memory="3071001Ki", cores="29500m")
    ask(node, "least", memory="1", cores="0")
    ask(node, "whole")
    until(lambda: len(node.bound()) == 3, "three pods", 60)
    (part,) = node.parts("part")
    assert (part.memory_bytes, part.quota) == (3000 << 20, 30)
    (least,) = node.parts("least")
    assert (least.memory_bytes, least.quota) == (1 << 20, 0)
    (whole,) = node.parts("whole")
    assert (whole.memory_bytes, whole.quota) == (16 << 30, 0)
    # Beside the other two there was no room for it.
    assert part.device == least.device != whole.device


@pytest.mark.parametrize(
    ("capacity", "fitting"),
    [
        ({"memory": "6Gi"}, 4),
        ({"memory": "1Gi", "cores": "60"}, 2),
        ({"memory": "1Gi", "cores": "101"}, 0),
        ({"memory": "17Gi"}, 0),
    ],
)
def test_no_card_is_given_away_twice(node: Node, capacity: dict[str, str], fitting: int) -> None:
    """What two cards have room for together, but neither of them, is not given."""
    for number in range(fitting + 1):
        ask(node, f"n{number}", **capacity)
    until(lambda: len(node.bound()) == fitting, f"{fitting} pods", 60)
    until(
        lambda: "cannot allocate all claims" in node.api.kubectl("get", "events").stdout,
        "the other's refusal",
        60,
    )
    assert len(node.bound()) == fitting
    held: dict[str, int] = {}
    for name in node.bound():
        (part,) = node.parts(name)
        held[part.device] = held.get(part.device, 0) + (part.memory_bytes or 0)
    assert all(number <= 16 << 30 for number in held.values())


def test_a_claim_as_it_is_allocated_is_prepared(node: Node) -> None:
    ask(node, "part", memory="3000Mi", cores="30")
    until(node.bound, "the pod", 60)
    found: Any = node.api.get("resourceclaim", "part")
    asked = messages.Claim("default", found["metadata"]["uid"], "part")
    (device,) = node.claims.prepare(asked)
    assert device.request_names == ["gpu"]
    assert device.share_id
    node.claims.unprepare(asked)


def test_an_administrators_claim_has_cards_without_a_limit(node: Node) -> None:
    """
    KEP-5018: a namespace's label allows it.

    Of a device that is divided the scheduler counts its request as any other.
    """
    admin = claim("admin", memory="1Mi")
    (request,) = admin["spec"]["devices"]["requests"]
    request["exactly"] |= {"allocationMode": "All", "adminAccess": True}
    ask(node, "most", memory="15Gi", cores="100")
    until(lambda: node.bound() == ["most"], "a pod with most of a card", 60)
    with pytest.raises(AssertionError, match="admin-access"):
        node.api.apply(admin)
    label = ("label", "namespace", "default")
    node.api.kubectl(*label, "resource.kubernetes.io/admin-access=true")
    try:
        node.api.apply(admin, claimant("admin", {"resourceClaimName": "admin"}))
        until(lambda: node.bound() == ["admin", "most"], "the administrator's pod", 60)
    finally:
        node.api.kubectl(*label, "resource.kubernetes.io/admin-access-")
    assert {(part.device, part.memory_bytes) for part in node.parts("admin")} == {
        (FAILED, None),
        (WELL, None),
    }


def test_a_class_stands_for_whole_cards_by_another_name(node: Node) -> None:
    """KEP-5004: the claim is the scheduler's, and a container names a resource and no claim."""
    name = "nvidia.com/gpu"
    patch = {"spec": {"extendedResourceName": name}}
    node.api.kubectl("patch", "deviceclass", "gpu.cgpu.io", "--type=merge", "-p", json.dumps(patch))
    container = {"resources": {"limits": {name: 1}}}
    node.api.apply(*(pod(f"n{number}", container=container) for number in range(3)))
    until(lambda: len(node.bound()) == 2, "two pods", 60)
    until(
        lambda: "cannot allocate all claims" in node.api.kubectl("get", "events").stdout,
        "the other's refusal",
        60,
    )
    devices = set()
    for one in node.bound():
        status = node.api.get("pod", one)["status"]
        made = status["extendedResourceClaimStatus"]["resourceClaimName"]
        (part,) = node.parts(made)
        assert (part.memory_bytes, part.quota) == (16 << 30, 0)
        devices.add(part.device)
        uid = node.api.get("resourceclaim", made)["metadata"]["uid"]
        asked = messages.Claim("default", uid, made)
        assert len(node.claims.prepare(asked)) == 1
        # One container has it: that is the tenant itself, and no cgroup beside it is.
        assert "--tenant" not in node.claims._file(uid).read_text()
        node.claims.unprepare(asked)
    assert len(devices) == 2
