# SPDX-License-Identifier: MIT
"""Spark itself: an executor with the document's own settings, and all its tasks, under limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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
    pytest.mark.vm(memory="5G", timeout_s=3000),
    pytest.mark.engine,
]

MIB = 1 << 20
NO_MEMORY = 0x51
SPARK_S = 1800

JOB = """\
import json, subprocess, sys, time
from pyspark import SparkConf, TaskContext
from pyspark.sql import SparkSession

simcuda, properties = sys.argv[1:]
conf = SparkConf()
for line in open(properties):
    key, _, value = line.strip().partition(" ")
    conf.set(key, value)

def sim(*words):
    run = subprocess.run([simcuda, "--json", *words], stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])

def task(numbers):
    # The barrier: all ten tasks run at once, or none ends.
    from pyspark import BarrierTaskContext
    BarrierTaskContext.get().barrier()
    addresses = list(TaskContext.get().resources()["gpu"].addresses)
    (number,) = numbers
    total = sim("info")["total"]
    BarrierTaskContext.get().barrier()
    filled = sim("fill") if number == 0 else None
    yield {"cards": addresses, "total": total, "filled": filled}

spark = SparkSession.builder.master("local-cluster[1,10,1024]").config(conf=conf).getOrCreate()
numbers = spark.sparkContext.parallelize(range(10), 10)
print(json.dumps(numbers.barrier().mapPartitions(task).collect()))
spark.stop()
"""


@pytest.fixture
def program(door: Door, tmp_path: Path) -> Any:
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
    settings.write_text(SPARK)
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
    run = subprocess.run(
        [sys.executable, str(job), door.simcuda, str(properties)],
        env={
            **os.environ,
            "PYTHONPATH": str(made("spark")),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(tmp_path),
            # Compiled code is translated once more by an emulator: little of it, and once.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    told: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    assert len(told) == 10
    assert all(one["cards"] == ["0"] and one["total"] == 4096 * MIB for one in told)
    filled = next(one["filled"] for one in told if one["filled"])
    assert filled["status"] == NO_MEMORY and filled["bytes"] <= 4096 * MIB
    until(lambda: not procfs.container_ids(procfs.USER_DOOR_SOCKET), "the executor's end", START_S)


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
