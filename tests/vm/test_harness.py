# SPDX-License-Identifier: MIT
"""The harness itself: what a test in the VM can rely on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest


def test_the_guest_runs_the_kernel_that_was_asked_for(vm_kernel: str) -> None:
    assert platform.release().startswith(vm_kernel)


def test_the_guest_is_root_over_the_hosts_files() -> None:
    assert os.geteuid() == 0
    assert Path(__file__).exists()


@pytest.mark.parametrize("size", [1, 4096])
def test_writes_stay_in_the_guest(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert (tmp_path / "file").stat().st_size == size


def test_a_container_has_its_own_pid_namespace_and_cgroup(container) -> None:
    one = container()
    assert one.exec("sh", "-c", "echo $$ $PPID").stdout.split()[1] == "0"
    assert one.exec("cat", "/proc/1/comm").stdout == "sleep\n"
    assert one.cgroup.endswith(f"/cgpu-test/{one.id}")
    one.kill()
    assert not Path(f"/proc/{one.pid}").exists()
