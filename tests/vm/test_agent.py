# SPDX-License-Identifier: MIT
"""
The user door beside the simulated driver: same limits as the module's, no module.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu import runtime_install
from tests.vm import customer
from tests.vm.container import libraries
from tests.vm.drivers import Sim
from tests.vm.loaded import until

pytestmark = pytest.mark.kernel("6.1", by_default=True)

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
TREE = Path("/run/cgpu_km")
LIMIT_BYTES = 1024 * MIB
NO_MEMORY = 0x51
# Python's start alone takes seconds under emulation.
START_S = 90


class Door:
    """`cgpu run` in the guest, from the sources."""

    def __init__(self, folder: Path, driver: Sim) -> None:
        self.simcuda = str(driver.programs / "simcuda")
        shutil.copytree(ROOT / "pycgpu", folder / "pycgpu")
        shutil.copytree(ROOT / "cli", folder / "pycgpu" / "cli")
        paths = [str(folder), sysconfig.get_path("purelib")]
        self.environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        self.folder = folder

    def start(
        self,
        *command: str,
        name: str = "one",
        mem: str = "1G",
        policy: str = "weighted-conserving",
        quota: int = 100,
    ) -> subprocess.Popen[str]:
        """Start a tenant."""
        limits = ["--mem", mem, "--policy", policy, "--quota", str(quota)]
        run = ["run", "--name", name, *limits, "--", *command]
        return subprocess.Popen(
            [sys.executable, "-m", "pycgpu.cli.main", *run],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    def run(self, *command: str, **options: Any) -> tuple[int, str, str]:
        """Run a tenant to its end; return status, output and errors."""
        process = self.start(*command, **options)
        out, err = process.communicate(timeout=START_S)
        return process.returncode, out, err

    def sim(self, *arguments: str, **options: str) -> dict[str, Any]:
        """What simcuda tells as a tenant."""
        _, out, err = self.run(self.simcuda, "--json", *arguments, **options)
        assert out, err
        return json.loads(out.splitlines()[-1])

    def daemon(self) -> subprocess.Popen[bytes]:
        """`cgpu agent`, as the service starts it."""
        return subprocess.Popen(
            [sys.executable, "-m", "pycgpu.cli.main", "agent"],
            cwd=self.folder,
            env=self.environment,
        )

    def agent(self) -> int:
        """The agent's process."""
        code = "from pycgpu.agent import server; print(server.ask({'op': 'ping'})['pid'])"
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=self.folder,
            env=self.environment,
        )
        return int(run.stdout)


def _ended(pid: int) -> bool:
    """True if it is gone, or waits for the guest's init, which reaps nobody."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def door(tmp_path: Path, sim: Callable[..., Sim]) -> Iterator[Door]:
    """The door over one simulated T4; its agent is ended after."""
    opened = Door(tmp_path, sim(cards="T4"))
    yield opened
    with contextlib.suppress(subprocess.CalledProcessError):
        pid = opened.agent()
        os.kill(pid, signal.SIGTERM)
        until(lambda: _ended(pid), "the agent's end")


def test_a_tenant_sees_its_own_card(door: Door) -> None:
    found = door.sim("info")
    assert found["total"] == found["board"] == found["free"] == LIMIT_BYTES


@pytest.mark.parametrize(
    "way",
    [(), ("--heap", "2"), ("--old-alloc",), ("--context",), ("--xfer",), ("--xfer", "--heap", "2")],
)
def test_memory_is_refused_at_the_limit(door: Door, way: tuple[str, ...]) -> None:
    found = door.sim(*way, "fill")
    assert found["status"] == NO_MEMORY
    assert found["bytes"] <= LIMIT_BYTES


def test_mapping_and_freeing_does_not_escape_the_limit(door: Door) -> None:
    found = door.sim("map", "300M", "5")
    assert (found["times"], found["status"]) == (3, NO_MEMORY)


@pytest.mark.parametrize("way", ["managed", "import", "dmabuf"])
def test_memory_that_goes_without_a_call_is_given_back(door: Door, way: str) -> None:
    found = door.sim(way, "600M")
    assert found["after_free" if way == "managed" else "after_close"] == 0


def test_managed_memory_is_refused_beyond_the_limit(door: Door) -> None:
    status, _, err = door.run(door.simcuda, "managed", "2G")
    assert status == 2
    assert "Cannot allocate memory" in err


def test_exit_status_and_signal_are_the_programs(door: Door) -> None:
    assert door.run("sh", "-c", "exit 7")[0] == 7
    assert door.run("sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM


def _permille(tenant: subprocess.Popen[str]) -> int:
    out, err = tenant.communicate(timeout=START_S)
    assert out, err
    return int(json.loads(out.splitlines()[-1])["share_permille"])


def test_a_lone_tenants_quota_holds_from_its_start(door: Door) -> None:
    launch = (door.simcuda, "--json", "launch", "6", "1")
    assert 200 <= _permille(door.start(*launch, quota=30)) <= 400


def test_tenants_that_start_into_windows_share_the_card(door: Door) -> None:
    launch = (door.simcuda, "--json", "launch", "20", "1")
    names = ("one", "two", "three")
    tenants = [door.start(*launch, name=name, policy="weighted") for name in names]
    got = [_permille(tenant) for tenant in tenants]
    # They do not start at once: the first and the last have the card to themselves for a while.
    assert all(200 <= share <= 700 for share in got), got


def test_over_commit_names_what_is_free(door: Door) -> None:
    status, _, err = door.run("true", mem="100G")
    assert status == 1
    assert "card 0 has 15109 MiB of 15109 MiB free (nobody holds any)" in err


def test_the_agents_death_leaves_no_tenant_hanging(door: Door) -> None:
    tenant = door.start(door.simcuda, "--hold", "alloc", "64M")
    until((TREE / "container/one").exists, "the tenant", START_S)
    os.kill(door.agent(), signal.SIGKILL)
    tenant.terminate()
    assert tenant.wait(timeout=START_S) is not None
    assert door.sim("info", name="two")["free"] == LIMIT_BYTES


@pytest.fixture
def run(
    tmp_path: Path, sim: Callable[..., Sim], made: Callable[[str], Path]
) -> Iterator[customer.Run]:
    """``run("name", KEY=…)`` starts a container under runc, with the agent as the only door."""
    daemon = Door(tmp_path, sim(cards="T4")).daemon()
    try:
        until((TREE / "api_version").exists, "the tree", START_S)
        with customer.running(made) as start:
            yield start
    finally:
        daemon.terminate()
        assert daemon.wait(timeout=START_S) == 0


def _info(container: customer.RuntimeContainer) -> dict[str, Any]:
    return json.loads(container.simcuda("--json", "info").stdout)


@pytest.mark.needs("smi", "rootfs")
def test_containers_are_held_to_their_sizes(run: customer.Run) -> None:
    one = run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
    two = run("two", CGPU_MEM="2GiB", CGPU_GPU="0")
    assert _info(one)["board"] == LIMIT_BYTES
    assert _info(two)["board"] == 2 * LIMIT_BYTES
    assert "0MiB /   1024MiB" in one.smi()
    filled = json.loads(one.simcuda("--json", "fill", check=False).stdout)
    assert filled["status"] == NO_MEMORY
    assert filled["bytes"] <= LIMIT_BYTES
    assert two.simcuda("alloc", "1500M").returncode == 0


@pytest.mark.needs("smi", "rootfs")
def test_a_container_that_ends_gives_its_share_back(run: customer.Run) -> None:
    one = run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
    holder = one.popen("simcuda", "--hold", "alloc", "64M")
    until(lambda: "PID" in (TREE / "0/one/meminfo").read_text(), "the program's memory", START_S)
    one.delete()
    holder.wait(timeout=START_S)
    until(lambda: not (TREE / "container/one").exists(), "the container's removal", START_S)
    assert "allocated 0" in (TREE / "0/memory").read_text()
    with (TREE / "events").open("rb", buffering=0) as stream:
        lines = [line.split(b" ", 1)[1] for line in stream.read(1 << 16).splitlines()]
    assert b"create id=one" in lines
    assert b"destroy id=one" in lines


@pytest.mark.needs("rootfs")
@pytest.mark.vm(memory="3G")
@pytest.mark.parametrize("behind", ["runc", "crun"])
def test_podmans_containers_are_held_to_their_sizes(
    door: Door, made: Callable[[str], Path], tmp_path: Path, behind: str
) -> None:
    programs = [shutil.which(name, path="/usr/bin:/usr/sbin") for name in ("podman", behind)]
    if None in programs:
        pytest.skip(f"no package: podman and {behind} are not both installed")
    inside = {"/bin/simcuda": Path(door.simcuda)}
    inside |= {str(path): path for path in libraries(Path(door.simcuda))}
    volumes = [word for at, path in inside.items() for word in ("-v", f"{path.resolve()}:{at}:ro")]
    options = runtime_install.Options(("podman",), runtimes=(str(programs[1]),), hooks_d=False)
    daemon = door.daemon()
    try:
        until((TREE / "api_version").exists, "the tree", START_S)
        runtime_install.apply(runtime_install.plan(options))
        run = subprocess.run(
            [
                *(str(programs[0]), "--root", f"{tmp_path}/root", "--runroot", "/run/cgpu-podman"),
                *("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"),
                *("--events-backend", "none", "--runtime", str(customer.RUNTIME)),
                *("run", "--rm", "--network", "none", "-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0"),
                *(*volumes, "--rootfs", f"{made('rootfs')}:O", "simcuda", "--json", "fill"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert run.stdout, run.stderr
        filled = json.loads(run.stdout.splitlines()[-1])
        assert (filled["status"], filled["bytes"] <= LIMIT_BYTES) == (NO_MEMORY, True)
    finally:
        daemon.terminate()
        assert daemon.wait(timeout=START_S) == 0
        runtime_install.undo(runtime_install.plan_undo())


@pytest.mark.needs("smi", "rootfs")
def test_a_container_that_asks_for_nothing_is_left_alone(run: customer.Run) -> None:
    plain = run("plain")
    assert plain.exec("echo", "plain").stdout.strip() == "plain"
    assert not (TREE / "container/plain").exists()
