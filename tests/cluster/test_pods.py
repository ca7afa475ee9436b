# SPDX-License-Identifier: MIT
"""
Pods on a node with the module: the API server, the scheduler, the kubelet and containerd are real.

The device plugin comes by the chart and the image, and runs as a pod of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.pods import (
    CARD_MIB,
    MAX_INST,
    POD_S,
    allocatable,
    begin_anew,
    board,
    bound,
    check_cards,
    containers,
    deployed,
    deployment,
    end,
    events,
    goes_on_over_upgrades,
    job,
    killed_at,
    log,
    made,
    offers_cards,
    phases,
    running,
    tells_of_its_card,
    tenants,
    there,
    tree,
)
from tests.cluster.waiting import until

#: Pods at once, which fill both cards to the last percent.
BURST = 50
PLUGIN = "cgpu device-plugin"
#: What an emulated processor may take for each of them.
EACH_S = 60

# The two Jobs of the vendor's document on GPU sharing under Kubernetes, with the indentation that
# its text has lost.
JOBS = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: ai-benchmark
spec:
  template:
    metadata:
      name: ai-benchmark
    spec:
      containers:
      - name: ai-benchmark
        image: 4pdosc/ai-benchmark:2.4.1-gpu
        resources:
          requests:
            nvidia.com/gpu: 1 # requesting 1 vGPUs
            nvidia.com/gpucores: 30 # Each vGPU uses 30% of the entire GPU
            nvidia.com/gpumem: 3000 # Each vGPU contains 3000m device memory
          limits:
            nvidia.com/gpu: 1 # requesting 1 vGPUs
            nvidia.com/gpucores: 30 # Each vGPU uses 30% of the entire GPU
            nvidia.com/gpumem: 3000 # Each vGPU contains 3000m device memory
      restartPolicy: Never
---
apiVersion: batch/v1
kind: Job
metadata:
  name: ai-benchmark-2
spec:
  template:
    metadata:
      name: ai-benchmark-2
    spec:
      containers:
      - name: ai-benchmark-2
        image: 4pdosc/ai-benchmark:2.4.1-gpu
        resources:
          requests:
            nvidia.com/gpu: 1
            nvidia.com/gpumem-percentage: 50
            nvidia.com/gpumem: 3000 # Each vGPU contains 3000m device memory
          limits:
            nvidia.com/gpu: 1
            nvidia.com/gpumem-percentage: 50
            nvidia.com/gpumem: 3000 # Each vGPU contains 3000m device memory
      restartPolicy: Never
"""


@pytest.fixture(scope="module")
def cluster(node_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose node has the device plugin."""
    with deployed(node_cluster, "device-plugin", lambda: offers_cards(node_cluster)):
        yield node_cluster


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    """Whatever a test has started goes, and all that it held comes back."""
    yield
    end(cluster)


def test_a_node_has_its_resources(cluster: Cluster) -> None:
    wanted = {
        "nvidia.com/gpu": 2 * MAX_INST,
        "nvidia.com/gpumem": 2 * CARD_MIB,
        "nvidia.com/gpumem-percentage": 200,
        "nvidia.com/gpucores": 200,
        "aliyun.com/gpu-mem": 2 * (CARD_MIB >> 10),
        "aliyun.com/gpu-core.percentage": 200,
    }
    # Two of them the kubelet writes, when it next writes the node's status.
    until(lambda: allocatable(cluster) == wanted, f"exactly {wanted}", POD_S)


def test_the_documents_jobs_run_as_they_are_printed(cluster: Cluster) -> None:
    cluster.api.kubectl("apply", "-f", "-", text=JOBS)
    until(
        lambda: len(there(cluster)) == 2,
        "both Jobs",
        POD_S,
    )
    one, two = (
        cluster.api.get("pods", selector=f"job-name={job}")["items"][0]["metadata"]["name"]
        for job in ("ai-benchmark", "ai-benchmark-2")
    )
    held = tree(cluster)
    assert held[one][1:] == (3000, 30)
    assert held[two][1:] == (3000, 0)
    until(lambda: log(cluster, one, "board"), "what it says", POD_S)
    assert board(cluster, one) == 3000


def test_other_vendors_names(cluster: Cluster) -> None:
    asked = job("ali")
    asked["spec"]["containers"][0]["resources"]["limits"] = {
        "aliyun.com/gpu-mem": 4,
        "aliyun.com/gpu-core.percentage": 25,
    }
    cluster.api.apply(asked)
    running(cluster, "ali")
    assert tree(cluster)["ali"][1:] == (4096, 25)


def test_what_fits_the_node_but_no_card_waits_for_one(cluster: Cluster) -> None:
    """The scheduler counts 180 of 200 percent; 60 and 60 are no card's."""
    cluster.api.apply(*(job(f"sixty{n}", gpucores=60, gpumem=1000) for n in range(3)))
    until(lambda: len(there(cluster)) == 2, "two of them", POD_S)
    assert sorted(card for card, _, _ in tree(cluster).values()) == [0, 1]
    (waiting,) = set(phases(cluster)) - set(there(cluster))
    reason = "0 have room: card 0:"
    until(lambda: reason in events(cluster), "the reason in its events", POD_S)
    (first, *_) = [name for name in phases(cluster) if name != waiting]
    cluster.api.kubectl("delete", "pod", first, "--wait=false")
    running(cluster, waiting)


def test_a_pods_status_says_how_its_card_is(cluster: Cluster) -> None:
    cluster.api.apply(job("one", gpumem=1000))
    running(cluster, "one")
    tells_of_its_card(cluster, "one", "nvidia.com/gpu")
    until(lambda: offers_cards(cluster), "the card is offered again", POD_S)


def test_a_pod_goes_on_over_a_hot_upgrade_and_a_new_plugin(cluster: Cluster) -> None:
    asked = job("before", gpumem=3000, gpucores=30)
    (container,) = asked["spec"]["containers"]
    container["command"] = ["sh", "-c", "simcuda --hold alloc 2G"]
    cluster.api.apply(asked)
    running(cluster, "before")
    goes_on_over_upgrades(cluster, "before", "device-plugin")
    # And the new plugin grants as the one before.
    cluster.api.apply(job("after", gpumem=3000, gpucores=30))
    running(cluster, "after")
    assert tree(cluster)["after"][1:] == (3000, 30)


def test_a_burst_is_granted_what_it_asks_while_plugin_and_kubelet_are_killed(
    cluster: Cluster,
) -> None:
    """They fill both cards to the last percent; at no time is more of a card held than there is."""
    spec = job("x", gpumem=600, gpucores=4)["spec"]
    # Nothing but the card: fifty shells, networks and tokens would be the emulator's work.
    (container,) = spec["containers"]
    container["command"] = ["sleep", "1000000"]
    spec |= {"hostNetwork": True, "automountServiceAccountToken": False}
    deployment(cluster, "burst", BURST, spec)
    ran: dict[str, str] = {}
    # A kubelet that was started anew fails those that do not run yet, and they begin again.
    for victim, reached in (
        (PLUGIN, lambda: promised(cluster)),
        ("kubelet", lambda: len(there(cluster)) >= BURST // 2),
    ):
        until(reached, f"enough of the burst to kill {victim}", BURST * EACH_S)
        ran |= containers(cluster)
        begin_anew(cluster, victim)
        assert len(there(cluster)) < BURST

    def all_run() -> bool:
        check_cards(tenants(cluster).values())
        return len(there(cluster)) == BURST

    try:
        until(all_run, f"{BURST} pods run", BURST * EACH_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{phases(cluster)}\n{events(cluster)}") from None
    assert ran
    assert ran.items() <= containers(cluster).items()
    held = tree(cluster)
    assert {name: amount for name, (_, *amount) in held.items()} == {
        name: [600, 4] for name in there(cluster)
    }
    assert [card for card, _, _ in held.values()].count(0) == BURST // 2
    check_promises(cluster)


def test_plugin_and_kubelet_may_be_killed_at_every_step(cluster: Cluster) -> None:
    """
    Each pod comes, none has a part twice, and who runs goes on.

    A kubelet that was started anew fails the pods that it has not started yet, before any plugin
    can register: whoever manages them makes new ones.
    """
    cluster.api.apply(job("before", gpumem=3000, gpucores=10))
    running(cluster, "before")
    ran = killed_at(
        cluster,
        PLUGIN,
        job("x", gpumem=3000, gpucores=20)["spec"],
        {
            "is there": lambda name: True,
            "is the kubelet's": lambda name: bound(cluster, name),
            "has its card": lambda name: name in promised(cluster),
            "has a container": lambda name: made(cluster, name),
        },
    )
    assert "before" in ran
    assert ran.items() <= containers(cluster).items()
    held = tree(cluster)
    assert sorted(held) == there(cluster)
    assert held["before"][1:] == (3000, 10)
    assert {held[name][1:] for name in held if name != "before"} == {(3000, 20)}
    check_cards(held.values())
    check_promises(cluster)


def check_promises(cluster: Cluster) -> None:
    """Fail if an id is two pods', or a pod runs without any."""
    found = promised(cluster)
    ids = [one for ids in found.values() for one in ids]
    assert len(ids) == len(set(ids))
    assert found.keys() >= set(there(cluster))


def promised(cluster: Cluster) -> dict[str, list[str]]:
    """Pod → the ids that the plugin has on its record for it."""
    text = cluster.node.run("cat", "/var/lib/cgpu/kubernetes/mapping.json", check=False)
    entries = json.loads(text)["entries"] if text.startswith("{") else []
    return {entry["holder"][1]: entry["ids"] for entry in entries}
