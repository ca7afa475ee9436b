# SPDX-License-Identifier: MIT
"""Clusters for a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import ControlPlane, programs
from tests.cluster.pods import MAX_INST


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    with ControlPlane(programs(), tmp_path_factory.mktemp("cluster"), []) as running:
        yield running


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[Cluster]:
    """A cluster with a node, which takes minutes: all files of tests have the same."""
    with Cluster() as running:
        for card in (0, 1):
            path = f"/proc/cgpu_km/{card}/max_inst"
            running.node.run("sh", "-c", f"echo {MAX_INST} >{path}")
        yield running
