# SPDX-License-Identifier: MIT
"""One host, one authority: the module and the agent exclude each other, whoever comes first."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.agent import client
from pycgpu.tree import procfs
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [pytest.mark.kernel("6.1", by_default=True), pytest.mark.needs("sim", "km")]

MODULES = Path("/proc/cgpu_km")
MIB = 1 << 20


@pytest.fixture
def door(sim: Callable[..., Sim], tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path, sim(cards=2, model="t4"))
    yield made
    made.end()
    made.close()
    for modules in (MODULES, TREE):
        if (modules / "container").exists():
            until(lambda at=modules: not os.listdir(at / "container"), "the containers' end")  # type: ignore[misc]


def test_under_the_module_run_asks_it_and_starts_no_agent(
    door: Door, km: Callable[..., Km]
) -> None:
    host = km()
    tenant = door.start(door.simcuda, "--hold", "context", name="job", mem="1G", quota=50)
    until(lambda: "job" in procfs.container_ids(str(MODULES)), "the container", START_S)
    assert host.read("0/job/memsize") == f"{1024 * MIB}\n"
    assert host.read("0/job/quota") == "50\n"
    assert not (MODULES / "1/job").exists()
    assert door.sim("info", name="two", mem="512M")["total"] == 512 * MIB
    with pytest.raises(OSError):
        client.ask({"op": "ping"})
    status, _, err = door.run("/bin/true", name="job")
    assert (status, "a container of this name exists" in err) == (125, True)
    tenant.kill()
    tenant.wait()
    until(lambda: not procfs.container_ids(str(MODULES)), "the container's end", START_S)
    assert door.run("/bin/true", name="next")[0] == 0
    assert not Path("/run/cgpu/tenants/job").exists()


def test_children_of_what_run_starts_are_of_the_same_container(
    door: Door, km: Callable[..., Km]
) -> None:
    km()
    shell = f"{door.simcuda} --json info & {door.simcuda} --json info; wait"
    status, out, err = door.run("/bin/sh", "-c", shell, mem="1G")
    assert status == 0, err
    assert [json.loads(line)["total"] for line in out.splitlines()] == [1024 * MIB] * 2


def test_an_agent_does_not_start_beside_the_module(door: Door, km: Callable[..., Km]) -> None:
    km()
    agent = door.daemon()
    assert agent.wait(timeout=START_S) != 0
    with pytest.raises(OSError):
        client.ask({"op": "ping"})


def test_the_module_does_not_load_beside_an_agent(door: Door, km: Callable[..., Km]) -> None:
    tenant = door.start("/bin/sleep", "1000", name="job")
    until(lambda: (TREE / "container/job").exists(), "the tenant", START_S)
    try:
        with pytest.raises(OSError, match="busy"):
            km()
        assert not MODULES.exists()
        said = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
        assert "cgpu: the agent of `cgpu run` shares this host's cards" in said
        assert tenant.poll() is None
    finally:
        tenant.kill()
        tenant.wait()
        door.close()
    assert km().read("version")
