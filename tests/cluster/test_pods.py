# SPDX-License-Identifier: MIT
"""
Pods on a node with the module: the API server, the scheduler, the kubelet and containerd are real.

The device plugin runs as its manifest has it, as a pod of its own. Its image and the API server's
address are the test's; everything else is the file's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import NODE, PAUSE, Cluster
from tests.cluster.control_plane import HOST_FROM_GUEST
from tests.cluster.objects import IMAGE, MANIFESTS, manifests, pod
from tests.vm.loaded import until

MIB = 1 << 20
#: Pods at once; each costs an emulated processor several seconds.
BURST = 8
#: For a pod to run there, from nothing.
POD_S = 120

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
def cluster() -> Iterator[Cluster]:
    """A cluster whose node has the device plugin."""
    with Cluster() as running:
        deploy(running)
        yield running


def deploy(cluster: Cluster) -> None:
    api = cluster.api
    objects = list(manifests(api, MANIFESTS / "device-plugin.yaml"))
    for one in objects:
        if one["kind"] == "DaemonSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container["image"] = PAUSE
            container["command"] += [f"--api=https://{HOST_FROM_GUEST}:{api.port}"]
            for variable in container["env"]:
                if variable["name"] == "PATH":
                    variable["value"] = cluster.node.path
    api.apply(*objects)
    api.kubectl("label", "node", NODE, "cgpu.io/node=true")
    until(
        lambda: allocatable(cluster).get("nvidia.com/gpumem") == 30 << 10,
        "the node's resources",
        POD_S,
    )


def allocatable(cluster: Cluster) -> dict[str, int]:
    node = cluster.api.get("node", NODE)
    units = {"k": 1000, "Ki": 1024}
    found = {}
    for name, text in node["status"]["allocatable"].items():
        if "/" in name:
            digits = text.rstrip("kKi")
            found[name] = int(digits) * units.get(text[len(digits) :], 1)
    return found


def job(name: str, **limits: int) -> dict[str, Any]:
    """A pod of the image that tells its card and sleeps."""
    asked = {f"nvidia.com/{key}": number for key, number in {"gpu": 1, **limits}.items()}
    container = {"image": IMAGE, "resources": {"limits": asked}}
    return pod(name, container=container, terminationGracePeriodSeconds=0)


def phases(cluster: Cluster) -> dict[str, str]:
    listed = cluster.api.get("pods", "-n", "default")["items"]
    return {one["metadata"]["name"]: one["status"]["phase"] for one in listed}


def running(cluster: Cluster, *names: str, deadline_s: float = POD_S) -> None:
    try:
        until(
            lambda: all(phases(cluster).get(name) == "Running" for name in names),
            f"{', '.join(names)} run",
            deadline_s,
        )
    except AssertionError as error:
        events = cluster.api.kubectl("get", "events", "-n", "default").stdout
        raise AssertionError(f"{error}\n{phases(cluster)}\n{events[-4000:]}") from None


def tree(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    """Pod → card, MiB and quota, as the module has them."""
    ids = {
        status["containerID"].rpartition("/")[2][:12]: one["metadata"]["name"]
        for one in cluster.api.get("pods", "-n", "default")["items"]
        for status in one["status"].get("containerStatuses", [])
        if "containerID" in status
    }
    said = cluster.node.run(
        "sh",
        "-c",
        # Who goes meanwhile has no files any more.
        'cd /proc/cgpu_km && for d in [0-9]*/*/; do m=$(cat "$d/memsize" 2>/dev/null)'
        ' q=$(cat "$d/quota" 2>/dev/null) && echo "$d $m $q"; done; true',
    )
    found = {}
    for line in said.splitlines():
        path, memory, quota = line.split()
        card, name = path.strip("/").split("/")
        found[ids.get(name, name)] = (int(card), int(memory) // MIB, int(quota))
    return found


def board(cluster: Cluster, name: str) -> int:
    """The card's size in MiB as the program in the pod was told."""
    (log,) = [
        path
        for path in (cluster.node.shared / "pods").rglob("*.log")
        if path.parts[-3].startswith(f"default_{name}")
    ]
    texts = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
    return int(json.loads(next(text for text in texts if "board" in text))["board"]) // MIB


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    """Whatever a test has started goes, and all that it held comes back."""
    yield
    cluster.api.kubectl("delete", "deployments,jobs,pods", "--all", "-n", "default", "--wait=false")
    until(lambda: not phases(cluster) and not tree(cluster), "the pods' end", POD_S)


def test_a_node_has_its_resources(cluster: Cluster) -> None:
    assert allocatable(cluster) == {
        "nvidia.com/gpu": 40,
        "nvidia.com/gpumem": 30 << 10,
        "nvidia.com/gpumem-percentage": 200,
        "nvidia.com/gpucores": 200,
        "aliyun.com/gpu-mem": 30,
        "aliyun.com/gpu-core.percentage": 200,
    }


def test_the_documents_jobs_run_as_they_are_printed(cluster: Cluster) -> None:
    cluster.api.kubectl("apply", "-f", "-", text=JOBS)
    until(
        lambda: list(phases(cluster).values()) == ["Running"] * 2,
        "both Jobs",
        POD_S,
    )
    one, two = (
        cluster.api.get("pods", "-l", f"job-name={job}")["items"][0]["metadata"]["name"]
        for job in ("ai-benchmark", "ai-benchmark-2")
    )
    held = tree(cluster)
    assert held[one][1:] == (3000, 30)
    assert held[two][1:] == (3000, 0)
    until(lambda: board(cluster, one), "what it says", POD_S)
    assert board(cluster, one) == 3000


def test_other_vendors_names(cluster: Cluster) -> None:
    made = job("ali")
    made["spec"]["containers"][0]["resources"]["limits"] = {
        "aliyun.com/gpu-mem": 4,
        "aliyun.com/gpu-core.percentage": 25,
    }
    cluster.api.apply(made)
    running(cluster, "ali")
    assert tree(cluster)["ali"][1:] == (4096, 25)


def test_what_fits_the_node_but_no_card_waits_for_one(cluster: Cluster) -> None:
    """The scheduler counts 180 of 200 percent; 60 and 60 are no card's."""
    cluster.api.apply(*(job(f"sixty{n}", gpucores=60, gpumem=1000) for n in range(3)))
    until(lambda: list(phases(cluster).values()).count("Running") == 2, "two of them", POD_S)
    assert sorted(card for card, _, _ in tree(cluster).values()) == [0, 1]
    (waiting,) = [name for name, phase in phases(cluster).items() if phase != "Running"]

    def said() -> bool:
        events = cluster.api.kubectl("get", "events", "-n", "default").stdout
        return "0 have room: card 0:" in events

    until(said, "the reason in its events", POD_S)
    (first, *_) = [name for name in phases(cluster) if name != waiting]
    cluster.api.kubectl("delete", "pod", first, "--wait=false")
    running(cluster, waiting)


def test_a_burst_is_granted_what_it_asks_and_nothing_twice(cluster: Cluster) -> None:
    names = [f"burst{n}" for n in range(BURST)]
    cluster.api.apply(*(job(name, gpumem=3000, gpucores=20) for name in names))
    running(cluster, *names, deadline_s=BURST * POD_S)
    held = tree(cluster)
    assert {name: amount for name, (_, *amount) in held.items()} == {
        name: [3000, 20] for name in names
    }
    for card in (0, 1):
        assert sum(memory for at, memory, _ in held.values() if at == card) <= 15 << 10


def test_plugin_and_kubelet_may_be_killed_at_any_time(cluster: Cluster) -> None:
    """
    Pods are made all the while: each comes, none has a part twice, and who runs goes on.

    A kubelet that was started anew fails the pods that it has not started yet, before any plugin
    can register: whoever manages them makes new ones.
    """
    before = job("before", gpumem=3000, gpucores=10)
    cluster.api.apply(before)
    running(cluster, "before")
    labels = {"app": "kill"}
    template = job("x", gpumem=3000, gpucores=20)
    for replicas in range(1, BURST):
        cluster.api.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "kill"},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
                },
            }
        )
        if replicas % 2:
            cluster.node.run("pkill", "-9", "-f", "cgpu device-plugin", check=False)
        elif replicas % 4:
            cluster.node.kill("kubelet")
            cluster.kubelet()

    def there() -> list[str]:
        return sorted(name for name, phase in phases(cluster).items() if phase == "Running")

    until(lambda: len(there()) == BURST, f"{BURST} pods run", BURST * POD_S)
    held = tree(cluster)
    assert sorted(held) == there()
    assert held.pop("before")[1:] == (3000, 10)
    assert {(memory, quota) for _, memory, quota in held.values()} == {(3000, 20)}
    mapping = json.loads(cluster.node.run("cat", "/var/lib/cgpu/kubernetes/mapping.json"))
    ids = [one for entry in mapping["entries"] for one in entry["ids"]]
    assert len(ids) == len(set(ids))
    assert {entry["holder"][1] for entry in mapping["entries"]} >= set(there())
