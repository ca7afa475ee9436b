# SPDX-License-Identifier: MIT
"""Uninstalling beside a real Docker whose default our runtime was, and containers made with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import installation, stranded
from tests.vm import installed
from tests.vm.typed import TYPED, Typed

pytestmark = TYPED

IMAGE = "nvcr.io/nvidia/tensorflow:19.10-py3"


def test_it_is_refused_by_name_and_forced_leaves_a_docker_that_starts_containers(
    installed_host: Typed, made: Callable[[str], Path], tmp_path: Path
) -> None:
    host = installed_host
    host.cards(cards=1, model="t4")
    host.sh(f"docker run -d --name plain {IMAGE}")
    with host.default_runtime():
        host.sh(f"docker create --name stopped {IMAGE}")
        host.sh(f"docker run -d --name runs {IMAGE}")
        assert {str(one) for one in stranded.containers(host.host)} == {
            "stopped (docker)",
            "runs (docker, runs)",
        }
        with pytest.raises(InstallError, match="2 containers were created with cgpu's runtime"):
            installation.uninstall(host.host)
        host.sh(f"docker run --rm {IMAGE} true")
        said: list[str] = []
        try:
            installation.uninstall(host.host, said.append, force=True)
            assert "does not start any more: stopped (docker)" in said
            assert not [line for line in said if "restart docker" in line]
            assert host.sh("docker info -f '{{.DefaultRuntime}}'").stdout == "runc\n"
            host.sh(f"docker run --rm {IMAGE} true")
            host.sh("docker exec plain true")
            assert host.sh("docker start stopped", check=False).returncode
        finally:
            installed.install(installed.modules(made, "km", tmp_path / "modules"))
    host.sh("docker rm -f plain stopped runs", check=False)
