# SPDX-License-Identifier: MIT
"""
`helm install` with install.mode=auto on a node that takes no module: it gets the agent.

The node has a cluster of its own, for its kernel does not go back, and nothing is typed there. A
stand-in for systemd runs its services (:mod:`tests.cluster.systemd`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.cluster import NODE, Cluster
from tests.cluster.node import MODULES
from tests.cluster.pods import (
    INSTALL_S,
    POD_S,
    allocatable,
    board,
    events,
    execute,
    job,
    log,
    running,
    told,
)
from tests.cluster.releases import Helm
from tests.cluster.waiting import until
from tests.vm.vm import SHARE

Show = Callable[..., None]
REFUSED = "Key was rejected by service"
#: What a pod past the runtime is told.
REMEDY = "start it with the runtime cgpu"


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Print to whoever runs the test."""

    def shown(*words: object) -> None:
        with capsys.disabled():
            print(*words, sep="\n", flush=True)

    return shown


def condition(cluster: Cluster) -> dict[str, Any]:
    """What the node's status says of the module."""
    listed = cluster.api.get("node", NODE)["status"]["conditions"]
    return next((one for one in listed if one["type"] == "CgpuModule"), {})


def offered(cluster: Cluster, show: Show, *settings: str) -> list[str]:
    """Install the chart; return what the init container has said when the node offers cards."""
    began = time.monotonic()
    words = ("cgpu", cluster.helm.chart, "--namespace", "cgpu", "--create-namespace")
    cluster.helm("install", *words, "--set", "install.mode=auto", *settings, api=cluster.api)
    try:
        until(lambda: allocatable(cluster).get("nvidia.com/gpumem"), "cards", INSTALL_S)
        until(lambda: condition(cluster), "the node's condition")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(cluster)}\n{cluster.node.log('cgpud')}") from None
    said = [
        line.split(" ", 3)[3]
        for path in sorted((cluster.node.shared / "pods").rglob("install/*.log"))
        for line in path.read_text().splitlines()
    ]
    show("", *said, condition(cluster))
    show(f"{time.monotonic() - began:.0f} s to a node that offers cards, on an emulated processor")
    return said


def has_its_part(cluster: Cluster, show: Show) -> None:
    """Fail unless a pod that names the runtime has 3000 MiB and 30 %, and not 3 GiB."""
    began = time.monotonic()
    first = job("first", gpumem=3000, gpucores=30)
    first["spec"]["runtimeClassName"] = "cgpu"
    cluster.api.apply(first)
    running(cluster, "first")
    until(lambda: log(cluster, "first", "board"), "what it says", POD_S)
    show(f"{time.monotonic() - began:.0f} s more to a pod that has told its card")
    assert board(cluster, "first") == 3000
    show(cluster.node.run("cgpu", "ps"))
    for asked, status in (("3G", 2), ("2G", 0)):
        command = f"simcuda alloc {asked}; echo ended with $?"
        assert f"ended with {status}" in execute(cluster, "first", command)


def test_a_node_whose_kernel_refuses_the_module_gets_the_agent_and_says_why(
    helm: Helm, show: Show
) -> None:
    """Modules for its kernel are there, which nobody has signed: as under Secure Boot."""
    with Cluster(helm, systemd=True) as cluster:
        node = cluster.node
        node.run("sh", "-c", "echo 1 >/sys/module/module/parameters/sig_enforce")
        modules = f"install.options={{--modules={SHARE}/{MODULES}}}"
        said = offered(cluster, show, "--set", modules)
        assert any(line.startswith("no module: ") and REFUSED in line for line in said), said
        assert said[-1].startswith("the agent limits the node's pods"), said
        assert REFUSED in said[-1]
        has = condition(cluster)
        assert (has["status"], has["reason"]) == ("False", "AgentInstead")
        assert REFUSED in has["message"]
        assert "cgpu_km" not in node.run("lsmod")
        has_its_part(cluster, show)

        # A pod without the runtime would be without limits: its events say what it lacks.
        cluster.api.apply(job("other", gpumem=1000))
        until(lambda: REMEDY in events(cluster), "the event that says so", POD_S)
