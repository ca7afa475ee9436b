# SPDX-License-Identifier: MIT
"""Clusters for a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane, programs


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    with ControlPlane(programs(), tmp_path_factory.mktemp("cluster"), []) as running:
        yield running
