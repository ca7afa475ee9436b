# SPDX-License-Identifier: MIT
"""Clusters for a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import ControlPlane, programs
from tests.cluster.releases import Helm


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    with ControlPlane(programs(), tmp_path_factory.mktemp("cluster"), []) as running:
        yield running


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, and the chart of the commit that is checked out."""
    return Helm(tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="session")
def node_cluster(helm: Helm) -> Iterator[Cluster]:
    """A cluster with a node, which takes minutes: all files of tests have the same."""
    with Cluster(helm) as running:
        yield running
