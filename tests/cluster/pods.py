# SPDX-License-Identifier: MIT
"""Pods on a node: what is deployed there, which run, and what the module has of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from tests.cluster.cluster import NODE, START_S, Cluster
from tests.cluster.node import CORES, MODULES, STATE
from tests.cluster.objects import IMAGE, pod
from tests.cluster.waiting import until
from tests.vm.vm import SHARE

MIB = 1 << 20
CARD_MIB = 15109
#: Containers that a card of the node takes.
MAX_INST = 30
#: For cgpu to come by the chart to a node that has nothing of it.
INSTALL_S = 1800
#: For a pod to run there, from nothing.
POD_S = 240


#: What the chart is told: that modules are there which somebody has built for these nodes, and
#: which of the two daemons it is for.
SETTINGS = (
    *("--set", "install.mode=module"),
    *("--set", f"install.options={{--modules={SHARE}/{MODULES}}}"),
)
COMPONENTS = {
    "device-plugin": (),
    "dra-driver": ("--set", "devicePlugin.enabled=false,dra.enabled=true"),
}


@contextlib.contextmanager
def deployed(cluster: Cluster, daemons: str, ready: Callable[[], object]) -> Iterator[str]:
    """
    Install the chart, with one of the daemons on the node; yield Helm's notes when it is ready.

    Nothing is typed on the node, and nothing of the chart is changed. Its init container brings
    cgpu from the image. NVML is a library of the tests: the simulated driver has none.
    """
    api, helm = cluster.api, cluster.helm
    words = ("cgpu", helm.chart, "--namespace", "cgpu", "--create-namespace")
    notes = helm("install", *words, *SETTINGS, *COMPONENTS[daemons], api=api).stdout
    try:
        until(ready, f"{daemons} is ready", INSTALL_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(cluster)}") from None
    for card in (0, 1):
        path = f"/proc/cgpu_km/{card}/max_inst"
        cluster.node.run("sh", "-c", f"echo {MAX_INST} >{path}")
    yield notes
    helm("uninstall", "cgpu", "--namespace", "cgpu", api=api)
    until(lambda: not api.get("pods", namespace="cgpu")["items"], f"the end of {daemons}", START_S)


def told(cluster: Cluster) -> str:
    """What happened to cgpu's own pods, and what their containers have said."""
    words = ("get", "pods,events", "-n", "cgpu", "--sort-by=.metadata.creationTimestamp")
    logs = [
        f"{path}:\n{path.read_text()[-3000:]}"
        for path in (cluster.node.shared / "pods").rglob("*.log")
        if path.parts[-3].startswith("cgpu_")
    ]
    return cluster.api.kubectl(*words, check=False).stdout + "\n".join(logs)


def silence(cluster: Cluster, card: int, silent: bool = True) -> None:
    """Have a card not answer NVML from now on, or answer again."""
    uuid = cluster.node.run("cat", f"/proc/cgpu_km/{card}/uuid").strip()
    path = cluster.node.shared / STATE / uuid
    if silent:
        draft = path.with_suffix(".new")
        draft.write_text("lost")
        draft.rename(path)
    else:
        path.unlink(missing_ok=True)


def healths(cluster: Cluster, name: str) -> dict[str, set[str]]:
    """Resource or claim → how its devices are, as a pod's status says (KEP-4680)."""
    return {
        of["name"]: {one["health"] for one in of["resources"]}
        for status in cluster.api.get("pod", name)["status"].get("containerStatuses", [])
        for of in status.get("allocatedResourcesStatus", [])
    }


def tells_of_its_card(cluster: Cluster, name: str, resource: str) -> None:
    """Fail unless a pod goes on over its card's failure, and its status says what became of it."""
    card, _, _ = tree(cluster)[name]
    before = containers(cluster)
    try:
        for silent, health in ((False, "Healthy"), (True, "Unhealthy"), (False, "Healthy")):
            silence(cluster, card, silent)
            until(
                lambda health=health: healths(cluster, name).get(resource) == {health},  # type: ignore[misc]
                f"{health} in the status of {name}",
                POD_S,
            )
    except AssertionError as error:
        raise AssertionError(f"{error}, which has {healths(cluster, name)}") from None
    finally:
        silence(cluster, card, silent=False)
    assert containers(cluster) == before


def end(cluster: Cluster) -> None:
    """End whatever runs, and wait until all that it held has come back."""
    cluster.api.kubectl(
        *("delete", "deployments,jobs,pods,resourceclaims,resourceclaimtemplates"),
        *("--all", "-n", "default", "--wait=false"),
    )
    until(
        lambda: not (phases(cluster) or tree(cluster) or sandboxes(cluster)),
        "the pods' end",
        START_S,
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


def offers_cards(cluster: Cluster) -> bool:
    """Whether the node has the memory of both its cards to give."""
    return allocatable(cluster).get("nvidia.com/gpumem") == 2 * CARD_MIB


def job(name: str, **limits: int) -> dict[str, Any]:
    """A pod of the image that tells its card and sleeps."""
    asked = {f"nvidia.com/{key}": number for key, number in {"gpu": 1, **limits}.items()}
    container = {"image": IMAGE, "resources": {"limits": asked}}
    return pod(name, container=container, terminationGracePeriodSeconds=0)


def deployment(cluster: Cluster, name: str, replicas: int, spec: dict[str, Any]) -> None:
    """Make so many pods, and others for those that fail; or change how many."""
    labels = {"app": name}
    cluster.api.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )


def phases(cluster: Cluster) -> dict[str, str]:
    listed = cluster.api.get("pods")["items"]
    return {one["metadata"]["name"]: one["status"]["phase"] for one in listed}


def there(cluster: Cluster) -> list[str]:
    """Pods whose container runs; one that is made anew is in the phase Running as well."""
    return sorted(
        one["metadata"]["name"]
        for one in cluster.api.get("pods")["items"]
        if any(
            "running" in status["state"] for status in one["status"].get("containerStatuses", [])
        )
    )


def events(cluster: Cluster) -> str:
    """What happened last, in time."""
    words = ("get", "events", "-n", "default", "--sort-by=.lastTimestamp")
    return cluster.api.kubectl(*words).stdout[-8000:]


def running(cluster: Cluster, *names: str, deadline_s: float = POD_S) -> None:
    try:
        until(
            lambda: set(names) <= set(there(cluster)),
            f"{', '.join(names)} run",
            deadline_s,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{phases(cluster)}\n{events(cluster)}") from None


def containers(cluster: Cluster) -> dict[str, str]:
    """Pod → id of its container, of those that run."""
    return {
        one["metadata"]["name"]: status["containerID"]
        for one in cluster.api.get("pods")["items"]
        for status in one["status"].get("containerStatuses", [])
        if "running" in status["state"]
    }


def kill(cluster: Cluster, command: str) -> None:
    """Kill a program of the node by a signal that it cannot take notice of, and see it go."""

    def processes() -> set[str]:
        return set(cluster.node.run("pgrep", "-f", command, check=False).split())

    # Of one that was killed before, the kubelet makes another in its time.
    until(processes, f"a process {command}", START_S)
    (process,) = processes()
    cluster.node.run("kill", "-KILL", process)
    until(lambda: process not in processes(), f"the end of {command}", POD_S)


def begin_anew(cluster: Cluster, command: str) -> None:
    """Kill a program of the node, the kubelet or one of a pod; it is started again."""
    if command == "kubelet":
        cluster.node.kill("kubelet")
        cluster.kubelet()
    else:
        kill(cluster, command)


def killed_at(
    cluster: Cluster, command: str, spec: dict[str, Any], steps: dict[str, Callable[[str], bool]]
) -> dict[str, str]:
    """
    Make a pod for each of *steps* and kill *command* when it is there, then so with the kubelet.

    Args:
        spec: of the pods of a Deployment, which makes another when a kubelet that was started
            anew fails one that it had not started.
        steps: what tells of a new pod's name whether it has come so far.

    Returns:
        Pod → container, of all that ran when something was killed.
    """
    ran: dict[str, str] = {}
    replicas = 0
    for step, reached in steps.items():
        for victim in (command, "kubelet"):
            known = set(phases(cluster))
            replicas += 1
            deployment(cluster, "kill", replicas, spec)
            until(
                lambda known=known, reached=reached: any(  # type: ignore[misc]
                    reached(name) for name in phases(cluster).keys() - known
                ),
                f"a pod that {step}",
                POD_S,
            )
            ran |= containers(cluster)
            begin_anew(cluster, victim)
    until(
        lambda: sum(name.startswith("kill-") for name in there(cluster)) == replicas,
        f"{replicas} pods run",
        replicas * POD_S,
    )
    return ran


def bound(cluster: Cluster, name: str) -> bool:
    """Whether a pod is the kubelet's."""
    listed = cluster.api.get("pods")["items"]
    return any(one["metadata"]["name"] == name and "nodeName" in one["spec"] for one in listed)


def made(cluster: Cluster, name: str) -> bool:
    """Whether the engine has the container of a pod, started or not."""
    return bool(
        engines(cluster, {"io.kubernetes.pod.name": name, "io.cri-containerd.kind": "container"})
    )


def engines(cluster: Cluster, labels: dict[str, str]) -> list[str]:
    """The containers that the engine has of pods of these labels, their sandboxes included."""
    filters = ",".join(f'labels."{key}"=={value}' for key, value in labels.items())
    ctr = (cluster.programs / "ctr", "-n", "k8s.io", "containers", "list", "-q", filters)
    return cluster.node.run(*ctr).split()


def sandboxes(cluster: Cluster) -> set[str]:
    """What runs of the pods in the namespace default, the processes of their sandboxes included."""
    # The engine forgets a container when the kubelet has it do so, once a minute.
    ctr = (cluster.programs / "ctr", "-n", "k8s.io", "tasks", "list", "-q")
    running = set(cluster.node.run(*ctr).split())
    return running & set(engines(cluster, {"io.kubernetes.pod.namespace": "default"}))


def tree(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    """Pod → card, MiB and quota, as the module has them."""
    ids = {
        status["containerID"].rpartition("/")[2][:12]: one["metadata"]["name"]
        for one in cluster.api.get("pods")["items"]
        for status in one["status"].get("containerStatuses", [])
        if "containerID" in status
    }
    return {ids.get(name, name): held for name, held in tenants(cluster).items()}


def tenants(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    """Container's name in the tree → card, MiB and quota."""
    said = cluster.node.run(
        *("sh", "-c"),
        # One program for all. Who goes meanwhile has no files any more.
        "cd /proc/cgpu_km && grep -s '' /dev/null [0-9]*/*/memsize [0-9]*/*/quota",
        check=False,
    )
    files: dict[tuple[str, str], dict[str, int]] = {}
    for line in said.splitlines():
        path, text = line.split(":")
        card, name, file = path.split("/")
        files.setdefault((card, name), {})[file] = int(text)
    return {
        name: (int(card), one["memsize"] // MIB, one["quota"])
        for (card, name), one in files.items()
        if len(one) == 2
    }


def check_cards(held: Collection[tuple[int, int, int]]) -> None:
    """Fail if more of a card is held than there is."""
    for card in (0, 1):
        on_card = [(memory, quota) for where, memory, quota in held if where == card]
        assert sum(memory for memory, _ in on_card) <= CARD_MIB, on_card
        assert sum(quota for _, quota in on_card) <= 100, on_card


def log(cluster: Cluster, name: str, word: str) -> list[str]:
    """The lines with that word which the program in the pod has written."""
    return [
        text
        for path in (cluster.node.shared / "pods").rglob("*.log")
        if path.parts[-3].startswith(f"default_{name}_")
        for line in path.read_text().splitlines()
        if word in (text := line.split(" ", 3)[3])
    ]


def execute(cluster: Cluster, name: str, command: str) -> str:
    """What a command says that is started in a pod's container, as kubectl exec starts it."""
    container = containers(cluster)[name].rpartition("/")[2]
    base = (cluster.programs / "ctr", "-n", "k8s.io", "tasks", "exec", "--exec-id", "x")
    return cluster.node.run(*base, container, "sh", "-c", command, check=False)


def used(cluster: Cluster, card: int, name: str) -> int:
    """Bytes that a container of the tree has in use."""
    lines = cluster.node.run("cat", f"/proc/cgpu_km/{card}/{name}/stat").splitlines()
    return int(dict(line.split() for line in lines)["current_bytes"])


def goes_on_over_upgrades(cluster: Cluster, name: str, daemons: str) -> None:
    """
    Fail unless a pod that holds 2 GiB keeps container, memory and limits of 3000 MiB while the
    module's code is replaced, and then all pods of a DaemonSet.
    """
    ((tenant, held),) = tenants(cluster).items()
    until(lambda: used(cluster, held[0], tenant) >= 2 << 30, "2 GiB in use", POD_S)
    before = containers(cluster)
    for step in (hot_upgrade, lambda one: replace(one, daemons)):
        step(cluster)
        assert containers(cluster) == before
        assert tenants(cluster) == {tenant: held}
        assert used(cluster, held[0], tenant) >= 2 << 30
        # 2 GiB fit the card, and not what is left to this pod.
        assert "ended with 2" in execute(cluster, name, "simcuda alloc 2G; echo ended with $?")
        assert "ended with 0" in execute(cluster, name, "simcuda alloc 512M; echo ended with $?")


def hot_upgrade(cluster: Cluster) -> None:
    """Have another build of the module's core take over from the one that runs, and stay."""
    made, at = cluster.node.made, "/proc/cgpu_km/upgrade"
    builds = {path.stem: path for key in CORES for path in Path(made[key]).glob("cgpu_core_*.ko")}
    (new,) = builds.keys() - {_running(cluster)}
    (old,) = builds.keys() - {new}
    cluster.node.run("insmod", builds[new])
    # Calls that do not end in time have the switch tried again, and the old core kept a while.
    for command in (f"echo switch {new} 60000 >{at}", f"echo accept >{at}", f"rmmod {old}"):
        until(
            lambda command=command: not cluster.node.run("sh", "-c", command, check=False),  # type: ignore[misc]
            command,
        )
    assert _running(cluster) == new


def _running(cluster: Cluster) -> str:
    said = cluster.node.run("cat", "/proc/cgpu_km/upgrade")
    return dict(line.split() for line in said.splitlines())["running"]


def replace(cluster: Cluster, daemons: str) -> None:
    """Have all pods of a DaemonSet replaced, as an upgrade of the chart does."""
    words = ("rollout", "restart", "-n", "cgpu", f"daemonset/{daemons}")

    def pods() -> set[str]:
        listed = cluster.api.get("pods", namespace="cgpu")["items"]
        return {one["metadata"]["uid"] for one in listed if daemons in one["metadata"]["name"]}

    before = pods()
    cluster.api.kubectl(*words)
    status = ("rollout", "status", "-n", "cgpu", f"daemonset/{daemons}", f"--timeout={POD_S}s")
    cluster.api.kubectl(*status)
    assert not before & pods()


def board(cluster: Cluster, name: str) -> int:
    """The card's size in MiB as the program in the pod was told."""
    return int(json.loads(log(cluster, name, "board")[0])["board"]) // MIB
