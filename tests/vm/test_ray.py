# SPDX-License-Identifier: MIT
"""Ray itself: a worker of num_gpus=0.3 comes under its limits as its task comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import procfs
from tests.host import volcengine_settings
from tests.vm import slurm
from tests.vm.loaded import until
from tests.vm.user_door import START_S, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "ray"),
    pytest.mark.vm(smp=2, memory="5G", timeout_s=3000),
    pytest.mark.engine,
]

MIB = 1 << 20
CARD_MIB = 15109
NO_MEMORY = 0x51
RAY_S = 900
USERS = procfs.USER_DOOR_SOCKET

HEAD = (
    *("start", "--head", "--num-cpus=2", "--num-gpus=1", "--include-dashboard=false"),
    *("--node-ip-address=127.0.0.1", "--port=6379", "--runtime-env-agent-port=52367"),
    *("--no-monitor", "--include-log-monitor=False", "--temp-dir=/tmp/ray-test"),
)
# `ray start` without what no task needs (dashboard, clients' server) and without two of its
# deadlines that no setting changes: its raylet has 30 s to be known, and the raylet's agents have
# 15 s to write their ports into files. Those are known beforehand: -1 is that of an agent that an
# installation without ray[default] has not.
START = """\
import inspect, pathlib, time
from ray._private import node, services
from ray.scripts.scripts import main

def get_node(*words, ask=services.get_node):
    deadline = time.monotonic() + 600
    while True:
        try:
            return ask(*words)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1)

def start_raylet(*words, start=services.start_raylet, **named):
    known = inspect.signature(start).bind(*words, **named).arguments
    for name, port in (
        ("runtime_env_agent_port", known["runtime_env_agent_port"]),
        ("dashboard_agent_listen_port", -1),
        ("metrics_agent_port", -1),
        ("metrics_export_port", -1),
    ):
        path = pathlib.Path(known["session_dir"], f"{name}_{known['node_id']}")
        path.write_text(str(port))
    return start(*words, **named)

services.get_node = get_node
services.start_raylet = start_raylet
node.Node.start_api_server = node.Node.start_ray_client_server = lambda *words, **named: None
main()
"""
LOGS = Path("/tmp/ray-test/session_latest/logs")
TASKS = """\
import json, subprocess, sys
import ray

SIMCUDA = sys.argv[1]

def sim(*words):
    run = subprocess.run([SIMCUDA, "--json", *words], stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])

@ray.remote(num_gpus=0.3)
def task():
    return sim("info")["total"], sim("fill")

"""
JOB = (
    TASKS
    + """\
import os
from pycgpu.tree import procfs

def quota():
    return procfs.read_quota(0, f"ray-{os.getpid()}", procfs.USER_DOOR_SOCKET)

@ray.remote(num_gpus=0.5)
class Actor:
    def told(self):
        return sim("info")["total"], quota()

@ray.remote
def without():
    return sim("info")["total"], ray.get(task.remote())[0]

ray.init(address="127.0.0.1:6379")
told = {"tasks": ray.get([task.remote(), task.remote()])}
actor = Actor.remote()
told["actor"] = [ray.get(actor.told.remote()), ray.get(actor.told.remote())]
ray.kill(actor)
told["without"], told["nested"] = ray.get(without.remote())
print(json.dumps(told))
"""
)
NODE_JOB = (
    TASKS
    + """\
ray.init(address="127.0.0.1:6379")
print(json.dumps(ray.get([task.remote(), task.remote()])))
"""
)


def tenants() -> list[str]:
    return procfs.container_ids(USERS)


class Ray:
    """Ray's commands in the guest; a context manager stops what they have started."""

    def __init__(self, door: Door, packages: Path, folder: Path, cgpu: Path) -> None:
        self.simcuda = door.simcuda
        self._folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{door.environment['PYTHONPATH']}:{packages}",
            "PYCGPU_ATTACH": f"{cgpu} attach",
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            # What an emulated processor needs.
            "RAY_worker_register_timeout_seconds": "900",
            "RAY_gcs_server_port_wait_time_s": "600",
            "RAY_agent_register_timeout_ms": "600000",
            "RAY_health_check_initial_delay_ms": "600000",
            "RAY_gcs_server_request_timeout_seconds": "600",
        }

    def start(self, *before: str) -> None:
        """Start a head node, its command behind *before*."""
        self._run(*before, sys.executable, "-c", START, *HEAD)

    def job(self, text: str, **more: str) -> Any:
        """Run a driver in an environment with *more*; return what it prints."""
        path = self._folder / "job.py"
        path.write_text(text)
        said = self._run(sys.executable, str(path), self.simcuda, **more)
        return json.loads(said.splitlines()[-1])

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *what: object) -> None:
        self._run(sys.executable, "-c", START, "stop", "--force")

    def _run(self, *words: str, **more: str) -> str:
        try:
            run = subprocess.run(
                words,
                env=self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=(self._folder / "log").open("a"),
                text=True,
                timeout=RAY_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{words} takes too long\n{self._logs()}") from None
        assert run.returncode == 0, f"{words}: {run.returncode}\n{run.stdout}\n{self._logs()}"
        return run.stdout

    def _logs(self) -> str:
        files = [self._folder / "log", *LOGS.glob("raylet.*"), *LOGS.glob("worker-*")]
        return "\n".join(f"{path.name}:\n{path.read_text()[-2500:]}" for path in files)


@pytest.fixture(scope="module")
def agent(opened: Door) -> Iterator[None]:
    """The agent, which runs as its service does."""
    process = opened.daemon()
    until(lambda: procfs.is_open(USERS), "the agent", START_S)
    yield
    process.terminate()
    process.wait(timeout=START_S)


@pytest.fixture
def ray(agent: None, door: Door, made: Callable[[str], Path], tmp_path: Path) -> Iterator[Ray]:
    """Ray, stopped after."""
    with (
        slurm.command(tmp_path, [sys.executable], door.environment["PYTHONPATH"]) as cgpu,
        Ray(door, made("ray"), tmp_path, cgpu) as ray,
    ):
        yield ray


def test_every_worker_has_what_its_task_asked_for_and_gets_no_more(ray: Ray) -> None:
    ray.start()
    told = ray.job(JOB, RAY_RUNTIME_ENV_HOOK="pycgpu.batch.ray.hook")
    third = CARD_MIB * MIB * 30 // 100
    for total, filled in told["tasks"]:
        assert abs(total - third) < MIB
        assert filled["status"] == NO_MEMORY and third - 2 * MIB < filled["bytes"] <= third
    for total, quota in told["actor"]:
        assert abs(total - CARD_MIB * MIB // 2) < MIB and quota == 50
    assert abs(told["nested"] - third) < MIB
    # A worker that asked for no card is not a tenant.
    assert told["without"] == CARD_MIB * MIB
    until(lambda: not tenants(), "the end of all workers", START_S)


def test_a_node_under_the_documents_settings_has_one_part_for_all_its_workers(
    ray: Ray, tmp_path: Path
) -> None:
    """`serverless.ray.worker.gpu.*`: there a worker is a node."""
    settings = tmp_path / "worker.conf"
    settings.write_text(volcengine_settings.RAY)
    cgpu = [sys.executable, "-m", "pycgpu.cli.main"]
    ray.start(*cgpu, "run", "--name", "node", "--settings", str(settings), "--")
    assert tenants() == ["node"]
    assert procfs.read_quota(0, "node", USERS) == 30
    (total, filled), (other, _) = ray.job(NODE_JOB)
    assert total == other == 4096 * MIB
    assert filled["status"] == NO_MEMORY and filled["bytes"] <= 4096 * MIB
