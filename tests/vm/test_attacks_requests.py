# SPDX-License-Identifier: MIT
"""What an image asks for itself, by its ENV: nothing of the host's, and no more than was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.customer import Run, log_lines, prepare, running
from tests.vm.loaded import until

pytestmark = [
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
    pytest.mark.kernel("6.1", by_default=True),
]

GIVEN = {"ALIYUN_COM_GPU_MEM_CONTAINER": "6", "ALIYUN_COM_GPU_MEM_DEV": "15"}
KILLED = 128 + 9


@pytest.fixture
def run(made: Any) -> Iterator[Any]:
    with running(made) as start:
        yield start


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("CGPU_DISABLE", "1", "an image could set it"),
        ("ALIYUN_COM_GPU_SCHD_WEIGHT", "16", "an image could set it"),
        ("ALIYUN_COM_GPU_HIGH_PRIO", "1", "an image could set it"),
        ("ALIYUN_COM_GPU_MEM_DEV", "6", "6 of 6 GiB asked, and the card has 14"),
    ],
)
def test_an_images_env_gives_no_more_than_the_operator_did(
    sim: Any, km: Any, run: Run, variable: Any, value: Any, reason: Any
) -> None:
    sim(cards=1, model="t4")
    host = km()
    before = host.read("0/policy")
    with pytest.raises(RuntimeError, match=reason):
        run("image", **(GIVEN | {variable: value}))
    assert not (host.root / "container/image").exists()
    assert host.read("0/policy") == before


def confined(made: Any, sim: Any, km: Any, tmp_path: Path, uid: int) -> None:
    sim(cards=1, model="t4")
    km()
    script = tmp_path / "on_oom"
    script.write_text(
        "#!/bin/sh\n"
        "id -u > /dev/shm/user\n"
        "cat /proc/self/cgroup > /dev/shm/groups\n"
        "mknod /dev/shm/card c 195 0 && dd if=/dev/shm/card of=/dev/null count=1 2>/dev/shm/open\n"
        "echo done > /dev/shm/oom\n"
    )
    script.chmod(0o755)
    env = {
        "AMP_VGPU_ENABLE": "1",
        "GPU_MEM_PER_DEVICE": "2000000000",
        "ALIYUN_COM_GPU_OOM_SCRIPT": "/opt/on_oom",
    }
    one = prepare(made, "confined", env, mounts={"/opt/on_oom": script})
    try:
        one.start()
        child = one.popen("simcuda", "--hold=60", "alloc", "2G", uid=uid)
        until(lambda: one.exec("cat", "/dev/shm/oom", check=False).stdout == "done\n", "the script")
        until(lambda: child.poll() is not None, "the end of the process")
        assert child.returncode == KILLED
        assert one.exec("cat", "/dev/shm/user").stdout == f"{uid}\n"
        groups = one.exec("cat", "/dev/shm/groups").stdout
        assert groups == one.exec("cat", "/proc/self/cgroup").stdout
    finally:
        one.delete()


@pytest.mark.parametrize("uid", [0, 1000], ids=["root", "user"])
def test_the_oom_script_is_in_the_containers_cgroup_and_runs_as_its_processes_user(
    made: Any, sim: Any, km: Any, run: Run, tmp_path: Path, uid: int
) -> None:
    confined(made, sim, km, tmp_path, uid)


@pytest.mark.vm(cgroup=1)
def test_the_oom_script_is_in_every_v1_cgroup_of_the_container(
    made: Any, sim: Any, km: Any, run: Run, tmp_path: Path
) -> None:
    """The devices hierarchy above all: with the host's it could open any card, or disk."""
    confined(made, sim, km, tmp_path, 0)


def test_the_hosts_own_interpreter_is_no_oom_script(made: Any, sim: Any, km: Any, run: Run) -> None:
    sim(cards=1, model="t4")
    km()
    env = {
        "AMP_VGPU_ENABLE": "1",
        "GPU_MEM_PER_DEVICE": "2000000000",
        "ALIYUN_COM_GPU_OOM_SCRIPT": "/proc/self/exe",
    }
    one = prepare(made, "exe", env)
    try:
        one.start()
        done = one.exec("simcuda", "--hold=60", "alloc", "2G", check=False)
        assert done.returncode == KILLED
        assert one.alive()
        # 126: it was not started.
        assert any(line.endswith("'/proc/self/exe' gave 126") for line in log_lines("exe"))
    finally:
        one.delete()
