# SPDX-License-Identifier: MIT
"""
The first minutes with a cluster: `helm install`, and the first pod that has a part of a card.

Chart and image are what a release publishes. The file is the first that has the node.
"""

from __future__ import annotations

import time

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.pods import (
    POD_S,
    board,
    deployed,
    end,
    execute,
    job,
    log,
    offers_cards,
    running,
    tree,
)
from tests.cluster.waiting import until


def test_from_a_chart_and_an_image_to_a_pod_with_a_part_of_a_card(
    node_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is typed on the node, which has a driver, an engine and a kubelet."""
    node = node_cluster.node
    there = node.run("sh", "-c", "ls -d /opt/cgpu /usr/local/bin/cgpu 2>&-", check=False)
    assert there == "", "this file is not the first"
    assert "cgpu_km" not in node.run("lsmod")
    began = time.monotonic()
    with deployed(node_cluster, "device-plugin", lambda: offers_cards(node_cluster)) as notes:
        ready = time.monotonic()
        node_cluster.api.apply(job("first", gpumem=3000, gpucores=30))
        running(node_cluster, "first")
        until(lambda: log(node_cluster, "first", "board"), "what it says", POD_S)
        ended = time.monotonic()
        assert board(node_cluster, "first") == 3000
        assert tree(node_cluster)["first"][1:] == (3000, 30)
        # 3 GiB are more than its part, and 2 GiB are not.
        for asked, status in (("3G", 2), ("2G", 0)):
            command = f"simcuda alloc {asked}; echo ended with $?"
            assert f"ended with {status}" in execute(node_cluster, "first", command)
        said = [
            line.split(" ", 3)[3]
            for path in sorted((node.shared / "pods").rglob("install/*.log"))
            for line in path.read_text().splitlines()
        ]
        assert any("installed; `cgpu doctor`" in line for line in said), said
        end(node_cluster)
    with capsys.disabled():
        print(f"\n{notes}")
        print("\n".join(said))
        print(f"{ready - began:.0f} s to a node that offers its cards, on an emulated processor")
        print(f"{ended - ready:.0f} s more to a pod that has told its card")
