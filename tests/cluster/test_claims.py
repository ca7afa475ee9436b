# SPDX-License-Identifier: MIT
"""
Claims on a node with the module: dynamic resource allocation by the real scheduler and kubelet.

The DRA driver comes by the chart and the image; what the scheduler allocates of a card, the module
holds the claim's containers to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import NODE, START_S, Cluster
from tests.cluster.objects import IMAGE, claim, claimant, pod, slices, template
from tests.cluster.pods import (
    CARD_MIB,
    MAX_INST,
    POD_S,
    board,
    bound,
    containers,
    deployed,
    deployment,
    end,
    events,
    execute,
    goes_on_over_upgrades,
    killed_at,
    log,
    made,
    phases,
    running,
    silence,
    tells_of_its_card,
    there,
    tree,
    used,
)
from tests.cluster.waiting import until

CDI = "/var/run/cdi"


@pytest.fixture(scope="module")
def cluster(node_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose node has the DRA driver."""
    with deployed(node_cluster, "dra-driver", lambda: slices(node_cluster.api)):
        yield node_cluster


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    """Whatever a test has started goes, and all that it held comes back."""
    yield
    end(cluster)
    until(lambda: not prepared(cluster), "the claims are given back", POD_S)


def prepared(cluster: Cluster) -> list[str]:
    """The claims whose devices the engine can find."""
    said = cluster.node.run("sh", "-c", f"ls {CDI}", check=False)
    return [one for one in said.split() if one.startswith("cgpu-claim-")]


def test_a_nodes_cards_are_devices_with_capacities(cluster: Cluster) -> None:
    (offered,) = slices(cluster.api)
    assert (offered["nodeName"], offered["pool"]["resourceSliceCount"]) == (NODE, 1)
    amounts = [
        {name: one["value"] for name, one in device["capacity"].items()}
        for device in offered["devices"]
    ]
    assert amounts == [{"memory": f"{CARD_MIB}Mi", "cores": "100", "tenants": str(MAX_INST)}] * 2


def test_a_pod_is_held_to_what_its_claim_has(cluster: Cluster) -> None:
    """Requests are rounded up to the steps of a card."""
    cluster.api.apply(
        template("part", memory="3071001Ki", cores="29500m"),
        claimant("one", {"resourceClaimTemplateName": "part"}),
    )
    running(cluster, "one")
    assert tree(cluster)["one"][1:] == (3000, 30)
    until(lambda: log(cluster, "one", "board"), "what it says", POD_S)
    assert board(cluster, "one") == 3000
    assert str(3000 << 20) in execute(cluster, "one", "simcuda --json info")


def test_two_pods_of_one_claim_are_one_tenant(cluster: Cluster) -> None:
    """What one of them holds, the other has not."""
    source = {"resourceClaimName": "shared"}
    cluster.api.apply(
        claim("shared", memory="4Gi", cores="40"),
        claimant("left", source, command="simcuda --hold alloc 3G"),
    )
    running(cluster, "left")
    ((name, held),) = tree(cluster).items()
    assert held[1:] == (4096, 40)
    until(lambda: used(cluster, held[0], name) >= 3 << 30, "3 GiB in use", POD_S)
    right = claimant("right", source, command="simcuda alloc 2G; echo ended with $?; sleep 1000000")
    cluster.api.apply(right)
    running(cluster, "right")
    assert tree(cluster) == {name: held}
    until(lambda: log(cluster, "right", "ended with"), "what it says", POD_S)
    assert log(cluster, "right", "ended with") == ["ended with 2"]
    # Outside of the tenant, and so without a card.
    assert "board" not in execute(cluster, "right", "simcuda --json info")
    cluster.api.kubectl("delete", "pod", "left", "--wait=false")
    until(lambda: used(cluster, held[0], name) < 1 << 30, "its memory comes back", POD_S)
    assert there(cluster) == ["right"]
    assert len(prepared(cluster)) == 1


def test_no_card_is_given_away_twice(cluster: Cluster) -> None:
    """60 % and 60 % are two cards, and a third waits for its turn; each card's count is exact."""
    cluster.api.apply(template("sixty", memory="1Gi", cores="60"))
    source = {"resourceClaimTemplateName": "sixty"}
    cluster.api.apply(*(claimant(f"sixty{n}", source) for n in range(3)))
    until(lambda: len(there(cluster)) == 2, "two of them", POD_S)
    assert sorted(card for card, _, _ in tree(cluster).values()) == [0, 1]
    (waiting,) = set(phases(cluster)) - set(there(cluster))
    assert phases(cluster)[waiting] == "Pending"
    (first, *_) = there(cluster)
    cluster.api.kubectl("delete", "pod", first, "--wait=false")
    running(cluster, waiting)
    assert sorted(card for card, _, _ in tree(cluster).values()) == [0, 1]


def test_a_container_of_two_claims_is_refused(cluster: Cluster) -> None:
    sources = [{"resourceClaimName": name} for name in ("first", "second")]
    cluster.api.apply(*(claim(n, memory="1Gi", cores="10") for n in ("first", "second")))
    cluster.api.apply(claimant("both", *sources))
    until(lambda: "parts of two claims" in events(cluster), "the reason in its events", POD_S)
    assert not there(cluster)


def test_a_resources_name_stands_for_whole_cards(cluster: Cluster) -> None:
    """KEP-5004: no claim is named; who has a card has all of it, and who comes third waits."""
    # nvidia.com/gpu is the plugin's to a kubelet that has known the plugin.
    name = "example.com/card"
    extended(cluster, name)
    try:
        cluster.api.apply(
            *(whole(one, name) for one in ("first", "second", "third")),
            whole("implicit", "deviceclass.resource.kubernetes.io/gpu.cgpu.io"),
        )
        until(lambda: len(there(cluster)) == 2, "two of them", POD_S)
        ran = there(cluster)
        held = tree(cluster)
        assert sorted((card, quota) for card, _, quota in held.values()) == [(0, 0), (1, 0)]
        for one in ran:
            # All of it, but for what the driver keeps to itself.
            card, memory, _ = held[one]
            assert CARD_MIB * 0.95 < memory <= CARD_MIB
            told = json.loads(execute(cluster, one, f"simcuda --json --gpu {card} info"))
            assert int(told["board"]) == memory << 20
        assert {phases(cluster)[one] for one in phases(cluster).keys() - set(ran)} == {"Pending"}
        for one in ran:
            cluster.api.kubectl("delete", "pod", one, "--wait=false")
        until(
            lambda: len(there(cluster)) == 2 and not set(ran) & set(there(cluster)),
            "the others in their place",
            POD_S,
        )
        assert sorted(card for card, _, _ in tree(cluster).values()) == [0, 1]
    finally:
        extended(cluster, None)


def extended(cluster: Cluster, name: str | None) -> None:
    """Have the class stand for a resource as well."""
    patch = json.dumps({"spec": {"extendedResourceName": name}})
    cluster.api.kubectl("patch", "deviceclass", "gpu.cgpu.io", "--type=merge", "-p", patch)


def whole(name: str, resource: str) -> dict[str, Any]:
    """A pod that asks for a card by a resource's name."""
    container = {"image": IMAGE, "resources": {"limits": {resource: 1}}}
    return pod(name, container=container, terminationGracePeriodSeconds=0)


def test_a_pods_status_says_how_the_cards_of_its_claim_are(cluster: Cluster) -> None:
    cluster.api.apply(
        template("part", memory="1Gi", cores="10"),
        claimant("one", {"resourceClaimTemplateName": "part"}),
    )
    running(cluster, "one")
    tells_of_its_card(cluster, "one", "claim:c0")


def test_a_driver_that_evicts_moves_the_pods_of_a_failed_card(cluster: Cluster) -> None:
    path = "/spec/template/spec/containers/0/command"
    command = cluster.api.get("daemonset", "dra-driver", namespace="cgpu")["spec"]["template"][
        "spec"
    ]["containers"][0]["command"]

    def run(*words: str) -> None:
        patch = json.dumps([{"op": "replace", "path": path, "value": [*command, *words]}])
        base = ("-n", "cgpu", "daemonset/dra-driver")
        cluster.api.kubectl("patch", *base, "--type=json", "-p", patch)
        cluster.api.kubectl("rollout", "status", *base, f"--timeout={START_S}s")

    cluster.api.apply(template("part", memory="1Gi", cores="10"))
    spec = claimant("x", {"resourceClaimTemplateName": "part"})["spec"]
    run("--evict")
    try:
        deployment(cluster, "moves", 1, spec)
        until(lambda: there(cluster) and tree(cluster), "a pod", POD_S)
        ((name, (card, _, _)),) = tree(cluster).items()
        silence(cluster, card)
        until(lambda: [held[0] for held in tree(cluster).values()] == [1 - card], "another", POD_S)
        assert name not in phases(cluster)
    finally:
        for one in (0, 1):
            silence(cluster, one, silent=False)
        run()


def test_a_claims_pod_goes_on_over_a_hot_upgrade_and_a_new_driver(cluster: Cluster) -> None:
    cluster.api.apply(
        template("part", memory="3000Mi", cores="30"),
        claimant(
            "before", {"resourceClaimTemplateName": "part"}, command="simcuda --hold alloc 2G"
        ),
    )
    running(cluster, "before")
    goes_on_over_upgrades(cluster, "before", "dra-driver")
    # And the new driver gives claims as the one before.
    cluster.api.apply(claimant("after", {"resourceClaimTemplateName": "part"}))
    running(cluster, "after")
    assert tree(cluster)["after"][1:] == (3000, 30)


def test_driver_and_kubelet_may_be_killed_at_every_step(cluster: Cluster) -> None:
    """
    Each pod comes, none has a part twice, and who runs goes on.

    A kubelet that was started anew fails pods that it has not started yet: a Deployment makes new
    ones.
    """
    cluster.api.apply(template("part", memory="1Gi", cores="10"))

    def has_devices(name: str) -> bool:
        said = cluster.api.kubectl("get", "pod", name, "-n", "default", "-o", "json", check=False)
        status = json.loads(said.stdout)["status"] if said.stdout else {}
        own = [one.get("resourceClaimName") for one in status.get("resourceClaimStatuses", [])]
        uids = {
            one["metadata"]["uid"]
            for one in cluster.api.get("resourceclaims")["items"]
            if one["metadata"]["name"] in own
        }
        return any(f"cgpu-claim-{uid}.json" in prepared(cluster) for uid in uids)

    ran = killed_at(
        cluster,
        "cgpu dra-driver",
        claimant("x", {"resourceClaimTemplateName": "part"})["spec"],
        {
            "is there": lambda name: True,
            "is the kubelet's": lambda name: bound(cluster, name),
            "has its devices": has_devices,
            "has a container": lambda name: made(cluster, name),
        },
    )
    assert ran
    assert ran.items() <= containers(cluster).items()
    until(lambda: sorted(tree(cluster)) == there(cluster), "a tenant for each", POD_S)
    assert {held[1:] for held in tree(cluster).values()} == {(1024, 10)}
    # A kubelet that was started anew removes the slice; the driver sees to it.
    until(
        lambda: [len(one["devices"]) for one in slices(cluster.api)] == [2],
        "the node's slice",
        POD_S,
    )
