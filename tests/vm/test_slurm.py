# SPDX-License-Identifier: MIT
"""Slurm's own daemons: a job's shards are its limits, by the agent and by the module."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import group, procfs
from tests.vm import loaded, slurm
from tests.vm.drivers import Km
from tests.vm.loaded import until
from tests.vm.slurm import SHARDS, START_S, Cluster
from tests.vm.user_door import Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "km", "bridge", "slurm"),
    pytest.mark.vm(smp=2, memory="5G", timeout_s=3000),
    pytest.mark.engine,
]

MIB = 1 << 20
CARD_MIB = 15109
NO_MEMORY = 0x51
MPS = Path(__file__).parents[1] / "host/pretended/mps_control.c"
USERS = procfs.USER_DOOR_SOCKET


@pytest.fixture(scope="module")
def daemon(opened: Door) -> Iterator[subprocess.Popen[bytes]]:
    """The agent, which runs as its service does."""
    process = opened.daemon()
    until(lambda: procfs.is_open(USERS), "the agent", START_S)
    yield process
    process.terminate()
    process.wait(timeout=START_S)


@pytest.fixture(scope="module")
def cluster(
    opened: Door, daemon: object, made: Callable[[str], Path], tmp_path_factory: Any
) -> Iterator[Cluster]:
    """A cluster whose plugin knows the door's sources."""
    folder = tmp_path_factory.mktemp("slurm")
    path = opened.environment["PYTHONPATH"]
    with (
        slurm.command(folder, [sys.executable], path) as program,
        Cluster(made("slurm"), program) as cluster,
    ):
        yield cluster


def sim(cluster: Cluster, door: Door, *words: str, shards: int = 4) -> dict[str, Any]:
    """What simcuda tells in a job."""
    status, out, err = cluster.run(f"--gres=shard:{shards}", door.simcuda, "--json", *words)
    assert out, f"{status} {err}\n{cluster.logs()}"
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def tenants() -> list[str]:
    return procfs.container_ids(USERS)


def test_a_job_sees_its_shards_of_the_card_and_gets_no_more(cluster: Cluster, door: Door) -> None:
    limit = CARD_MIB * MIB * 4 // SHARDS
    assert sim(cluster, door, "info")["total"] == limit
    filled = sim(cluster, door, "fill")
    assert filled["status"] == NO_MEMORY and limit - MIB < filled["bytes"] <= limit
    until(lambda: not tenants(), "the job's end", START_S)


def test_a_jobs_tasks_share_its_limit_and_neighbours_have_their_own(
    cluster: Cluster, door: Door
) -> None:
    hold = (door.simcuda, "--json", "--hold", "alloc", "1500M")
    both = cluster.srun("--gres=shard:4", "-n2", *hold)
    until(lambda: len(tenants()) == 1, "the job's tenant", START_S)
    (name,) = tenants()

    def both_hold() -> bool:
        return procfs.read_stat(0, name, USERS)["current_bytes"] >= 3000 * MIB

    until(both_hold, "both tasks' memory in one account", START_S)
    assert procfs.read_quota(0, name, USERS) == 100 * 4 // SHARDS
    beside = sim(cluster, door, "fill", shards=8)
    assert beside["status"] == NO_MEMORY
    assert beside["bytes"] > CARD_MIB * MIB * 8 // SHARDS - MIB
    both.terminate()
    both.wait(timeout=START_S)
    until(lambda: not tenants(), "the job's end", START_S)


def test_who_writes_other_shards_into_the_environment_gets_the_jobs(
    cluster: Cluster, door: Door
) -> None:
    status, out, err = cluster.run(
        *("--gres=shard:1", "--export=ALL,SLURM_SHARDS_ON_NODE=16,PYTHONPATH=/nowhere"),
        *(door.simcuda, "--json", "info"),
    )
    assert status == 0, err
    assert json.loads(out)["total"] == CARD_MIB * MIB // SHARDS


def test_a_job_without_shards_is_left_alone(cluster: Cluster, door: Door) -> None:
    status, out, err = cluster.run(door.simcuda, "--json", "info")
    assert status == 0, err
    assert json.loads(out)["total"] == CARD_MIB * MIB
    assert not tenants()


def test_a_job_that_cannot_have_its_limits_does_not_start_and_says_why(
    cluster: Cluster, door: Door
) -> None:
    big = door.start(door.simcuda, "--hold", "context", name="big", mem="14G")
    until(lambda: "big" in tenants(), "who holds the card", START_S)
    status, out, err = cluster.run("--gres=shard:8", door.simcuda, "--json", "info")
    assert status != 0 and not out
    assert "7554 MiB asked" in err
    big.terminate()
    big.wait(timeout=START_S)


def check_group(cluster: Cluster, door: Door) -> None:
    """A job's program finds its server, whose memory is of the job's shards."""
    daemon = Path("/usr/local/bin") / group.CONTROL
    subprocess.run(["gcc", "-O1", "-o", daemon, MPS], check=True)
    show = f"echo $CUDA_MPS_PIPE_DIRECTORY; ls $CUDA_MPS_PIPE_DIRECTORY; {door.simcuda} --json info"
    status, out, err = cluster.run(
        *("--gres=shard:4", "--export=ALL,CGPU_GROUP=chat", "sh", "-c", show)
    )
    daemon.unlink()
    assert status == 0, f"{err}\n{cluster.logs()}"
    where, socket, told = out.splitlines()
    assert re.fullmatch(r"/run/cgpu/groups/slurm-\d+\.chat/pipe", where) and socket == "control"
    assert json.loads(told)["total"] == CARD_MIB * MIB * 4 // SHARDS - group.SERVER_BYTES


def test_a_job_that_asks_for_a_group_has_a_server_within_its_shards(
    cluster: Cluster, door: Door
) -> None:
    check_group(cluster, door)
    until(lambda: not tenants(), "the job's and the server's end", START_S)
    status, _, err = cluster.run("--export=ALL,CGPU_GROUP=chat", "true")
    assert status != 0 and "has no shards of a card here" in err


def test_under_the_module_a_jobs_cgroup_is_its_container(
    cluster: Cluster, opened: Door, daemon: subprocess.Popen[bytes], made: Any
) -> None:
    """The last test here: the agent has gone."""
    daemon.terminate()
    daemon.wait(timeout=START_S)
    until(lambda: not procfs.is_open(USERS), "the agent's end", START_S)
    stack = loaded.Modules()
    stack.driver = "sim"
    try:
        module = Km(stack, made("km"), made.ready).load()
        limit = CARD_MIB * MIB * 4 // SHARDS
        filled = sim(cluster, opened, "fill")
        assert filled["status"] == NO_MEMORY and limit - MIB < filled["bytes"] <= limit
        until(lambda: not list((module.root / "container").iterdir()), "the job's end", START_S)

        hold = (opened.simcuda, "--json", "--hold", "alloc", "1500M")
        both = cluster.srun("--gres=shard:4", "-n2", *hold)
        until(lambda: list((module.root / "container").iterdir()), "the job's tenant", START_S)
        (name,) = procfs.container_ids(str(module.root))

        def both_hold() -> bool:
            stat = procfs.read_stat(0, name, str(module.root))
            return stat["current_bytes"] >= 3000 * MIB

        until(both_hold, "both tasks' memory in one account", START_S)
        assert name.startswith("slurm-")
        assert procfs.read_quota(0, name, str(module.root)) == 100 * 4 // SHARDS
        both.terminate()
        both.wait(timeout=START_S)
        until(lambda: not list((module.root / "container").iterdir()), "the job's end", START_S)

        check_group(cluster, opened)
        until(lambda: not list((module.root / "container").iterdir()), "the server's end", START_S)
    finally:
        stack.unload_all()
