# SPDX-License-Identifier: MIT
"""Slurm's own daemons on a node whose cards have unequal numbers of shards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.tree import procfs
from tests.vm import slurm, user_door
from tests.vm.loaded import until
from tests.vm.slurm import START_S

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "slurm"),
    pytest.mark.vm(smp=2, memory="5G", timeout_s=3000),
    pytest.mark.engine,
]

MIB = 1 << 20
CARD_MIB = 15109
USERS = procfs.USER_DOOR_SOCKET
#: As many on each would be six; the two cards cannot be told apart by the node's sum.
SHARDS = (8, 4)


def test_a_job_has_its_part_of_the_card_that_slurm_gave_it(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    with user_door.opened(made, tmp_path, cards="T4,T4") as door:
        daemon = door.daemon()
        until(lambda: procfs.is_open(USERS), "the agent", START_S)
        path = door.environment["PYTHONPATH"]
        with (
            slurm.command(tmp_path, [sys.executable], path) as program,
            slurm.Cluster(made("slurm"), program, SHARDS) as cluster,
        ):
            jobs = []
            # Six are on the first card alone, and four are free then on the second.
            for number, shards in enumerate((6, 4), 1):
                job = cluster.srun(f"--gres=shard:{shards}", "sleep", "3600")
                jobs.append(job)

                def runs(job: subprocess.Popen[str] = job, number: int = number) -> bool:
                    assert job.poll() is None, f"{job.communicate()}\n{cluster.logs()}"
                    return len(procfs.container_ids(USERS)) == number

                try:
                    until(runs, f"job {number}", 2 * START_S)
                except AssertionError as error:
                    queue = subprocess.run(["squeue", "-l"], capture_output=True, text=True).stdout
                    raise AssertionError(f"{error}\n{queue}\n{cluster.logs()}") from None
            found = sorted(
                (
                    card,
                    procfs.read_quota(card, name, USERS),
                    procfs.read_memsize(card, name, USERS),
                )
                for card in range(len(SHARDS))
                for name in procfs.container_names(card, USERS)
            )
            for job in jobs:
                job.terminate()
                job.wait(timeout=START_S)
            until(lambda: not procfs.container_ids(USERS), "the jobs' end", START_S)
            status, out, err = cluster.run("--gres=shard:6", door.simcuda, "--json", "info")
        daemon.terminate()
        daemon.wait(timeout=START_S)
        door.close()
    whole = CARD_MIB * MIB
    assert found == [(0, 75, whole * 6 // 8), (1, 100, whole)]
    assert status == 0, err
    assert json.loads(out)["total"] == whole * 6 // 8
