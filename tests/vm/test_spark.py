# SPDX-License-Identifier: MIT
"""Spark itself: an executor with the document's own settings, and all its tasks, under limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.batch import spark
from pycgpu.tree import procfs
from tests.host.volcengine_settings import CUSTOM, SPARK
from tests.vm import slurm
from tests.vm.loaded import until
from tests.vm.user_door import START_S, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "spark"),
    pytest.mark.vm(smp=2, memory="5G", timeout_s=3000),
    pytest.mark.engine,
]

MIB = 1 << 20
NO_MEMORY = 0x51
SPARK_S = 1800
USERS = procfs.USER_DOOR_SOCKET

# What ten tasks hold together is more than their executor may.
HELD_MIB = 450

#: Of a spark-defaults.conf, and what Spark is to read of it.
DEFAULTS = r"""# a remark of Spark's
spark.cgpu.list  g:one:1,g:two:2
spark.cgpu.options -Da=1,-Db=2 -Dc="x y";
spark.cgpu.long = a, \
    b\:c
"""
READ = {
    "spark.cgpu.list": "g:one:1,g:two:2",
    "spark.cgpu.options": '-Da=1,-Db=2 -Dc="x y";',
    "spark.cgpu.long": "a, b:c",
}

JOB = """\
import json, subprocess, sys
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

simcuda, held = sys.argv[1:]

def told(run):
    return json.loads(run.stdout.readline())

def start(*words):
    return subprocess.Popen([simcuda, "--json", *words], stdout=subprocess.PIPE, text=True)

def task(numbers):
    here = BarrierTaskContext.get()
    with start("info") as run:
        total = told(run)["total"]
    # All ten tasks run at once, or none ends: each holds what it got until all have asked.
    here.barrier()
    with start("--hold", "alloc", held) as run:
        got = told(run)
        here.barrier()
        run.terminate()
    yield {"cards": here.resources()["gpu"].addresses, "total": total, "got": got}

spark = SparkSession.builder.master("local-cluster[1,10,1024]").getOrCreate()
numbers = spark.sparkContext.parallelize(range(10), 10)
print(json.dumps({key: value for key, value in spark.sparkContext.getConf().getAll()}))
print(json.dumps(numbers.barrier().mapPartitions(task).collect()))
spark.stop()
"""


def tenants() -> list[str]:
    return procfs.container_ids(USERS)


@pytest.fixture(scope="module")
def agent(opened: Door) -> Iterator[None]:
    """The agent, which runs as its service does."""
    process = opened.daemon()
    until(lambda: procfs.is_open(USERS), "the agent", START_S)
    yield
    process.terminate()
    process.wait(timeout=START_S)


@pytest.fixture
def program(agent: None, door: Door, tmp_path: Path) -> Any:
    with slurm.command(tmp_path, [sys.executable], door.environment["PYTHONPATH"]) as program:
        yield program


def test_ten_tasks_share_an_executors_part_of_a_card(
    door: Door, made: Callable[[str], Path], program: Path, tmp_path: Path
) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no package: no java is installed: default-jre-headless")
    subprocess.run([program, "spark-setup", "--cgpu", program, "--java", java], check=True)
    settings = tmp_path / "job.conf"
    settings.write_text(DEFAULTS + SPARK)
    conf = subprocess.run(
        [program, "spark-conf", settings], capture_output=True, text=True, check=True
    ).stdout
    # A cluster on one machine has its worker's cards beside the job's own settings.
    conf += f"spark.worker.resource.gpu.discoveryScript /{spark.DISCOVERY}\n"
    conf += "spark.worker.resource.gpu.amount 1\nspark.driver.host 127.0.0.1\n"
    conf += "spark.ui.enabled false\nspark.network.timeout 1200s\n"
    conf += "spark.executor.heartbeatInterval 600s\nspark.scheduler.barrier.maxConcurrentTasksCheck"
    conf += ".maxFailures 400\n"
    properties = tmp_path / "spark.conf"
    properties.write_text(
        "".join(line + "\n" for line in conf.splitlines() if "spark.driver.resource" not in line)
    )
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with subprocess.Popen(
        [sys.executable, str(job), door.simcuda, f"{HELD_MIB}M"],
        env={
            **os.environ,
            "PYTHONPATH": str(made("spark")),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(tmp_path),
            # Compiled code is translated once more by an emulator: little of it, and once.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("w"),
        text=True,
    ) as run:
        until(lambda: run.poll() is not None or tenants(), "the executor's tenant", SPARK_S)
        assert run.poll() is None, (tmp_path / "log").read_text()[-6000:]
        (name,) = tenants()
        assert name.startswith("spark-")
        assert procfs.read_quota(0, name, USERS) == 30
        out, _ = run.communicate(timeout=SPARK_S)
    assert run.returncode == 0, (tmp_path / "log").read_text()[-6000:]
    *_, read, last = out.splitlines()
    assert json.loads(read).items() >= READ.items()
    told: list[dict[str, Any]] = json.loads(last)
    assert len(told) == 10
    assert all(one["cards"] == ["0"] and one["total"] == 4096 * MIB for one in told)
    got = [one["got"] for one in told if one["got"]["status"] == 0]
    assert len(got) == 4096 // HELD_MIB
    assert all(one["got"]["status"] in (0, NO_MEMORY) for one in told)
    until(lambda: not tenants(), "the executor's end", START_S)


def test_a_custom_job_runs_under_the_documents_settings(
    door: Door, program: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "custom.conf"
    settings.write_text(CUSTOM)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), "run", "--settings", str(settings), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=START_S)

    told = run("--", door.simcuda, "--json", "fill")
    filled = json.loads(told.stdout.splitlines()[-1])
    assert filled["status"] == NO_MEMORY and 999 * MIB < filled["bytes"] <= 1000 * MIB
    refused = run("--mem", "1G", "--", "true")
    assert refused.returncode == 125 and "no other limit beside it" in refused.stderr
