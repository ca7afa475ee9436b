# SPDX-License-Identifier: MIT
"""
The agent once more, by ways that no ordinary program takes: who holds it up, who reaches it, and
whether what comes to the driver by them is charged.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm.loaded import SLOWNESS, until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
NO_MEMORY = 0x51
#: What a door needs for a neighbour's program from its start to its end, here.
NEIGHBOUR_S = 60
USER = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--")
DOCKER = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,"
    "sys_chroot,mknod,audit_write,setfcap"
)
ROOT = ("setpriv", "--bounding-set", "-all,+" + DOCKER.replace(",", ",+"), "--")
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def ways(made: Callable[[str], Path]) -> str:
    """The attackers' program."""
    return str(made("programs") / "ways")


def _taken(door: Door, *command: str) -> int:
    status, out, err = door.run(*command)
    assert status == 0, err
    return int(out.split()[1])


@pytest.mark.parametrize("way", ["vfork", "inject"])
def test_a_call_by_another_way_is_charged(door: Door, ways: str, way: str) -> None:
    """A child that has its parent's memory; a tracer that puts a call in the place of another."""
    taken = _taken(door, *USER, ways, way)
    assert 512 * MIB <= taken <= LIMIT_BYTES


def test_no_tracer_suspends_the_filter_of_another_as_criu_does(door: Door, ways: str) -> None:
    """Nor one that has all capabilities of the host's root: it is under a filter itself."""
    status, out, err = door.run(ways, "suspend")
    assert (status, out) == (0, f"suspended 0 errno {errno.EPERM}\n"), err


def test_a_tenants_user_namespace_has_no_card_of_its_own(door: Door) -> None:
    """Root in a namespace of the tenant's own, which has mounts and a list of processes too."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        simcuda = shutil.copy(door.simcuda, folder)
        nested = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork")
        _, out, err = door.run(*USER, *nested, simcuda, "--json", "fill")
    assert out, err
    filled = json.loads(out.splitlines()[-1])
    assert (filled["status"], filled["bytes"] <= LIMIT_BYTES) == (NO_MEMORY, True)
    assert "allocated 0" in (TREE / "0/memory").read_text()


@pytest.fixture
def faults_by_users() -> Iterator[None]:
    """Everybody may have the kernel wait for pages of his own."""
    path = Path("/proc/sys/vm/unprivileged_userfaultfd")
    before = path.read_text()
    path.write_text("1")
    yield
    path.write_text(before)


def _neighbour_is_served(door: Door) -> None:
    began_s = time.monotonic()
    assert door.sim("alloc", "64M", name="neighbour")["status"] == 0
    assert time.monotonic() - began_s < NEIGHBOUR_S * SLOWNESS


@pytest.mark.usefixtures("faults_by_users")
def test_arguments_that_never_come_hold_up_their_tenant_alone(door: Door, ways: str) -> None:
    """Eight threads, twice as many as a filter has workers; and it can be ended all the same."""
    tenant = door.start(*USER, ways, "stall", name="stalled")
    assert tenant.stdout
    assert tenant.stdout.readline() == "stalled\n"
    _neighbour_is_served(door)
    tenant.kill()
    tenant.wait(timeout=START_S)
    until(lambda: not (TREE / "container/stalled").exists(), "the tenant's removal", START_S)


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_a_tenant_that_stands_still_in_its_calls_holds_up_nobody(
    door: Door, made: Callable[[str], Path], how: str
) -> None:
    """While the agent has calls of it in hand; it goes on where it stood."""
    group = CGROUPS / "frozen"
    if how == "frozen" and not (CGROUPS / "cgroup.procs").exists():
        pytest.skip("no cgroup v2")
    calls = (str(made("programs") / "unseen"), "harmless", "20000")
    tenant = door.start(*calls, name="still")
    until(lambda: (TREE / "container/still").exists(), "the tenant", START_S)
    try:
        if how == "frozen":
            group.mkdir()
            (group / "cgroup.procs").write_text(str(tenant.pid))
        for _ in range(3):
            time.sleep(0.1)
            if how == "frozen":
                (group / "cgroup.freeze").write_text("1")
            else:
                os.kill(tenant.pid, signal.SIGSTOP)
            _neighbour_is_served(door)
            if how == "frozen":
                (group / "cgroup.freeze").write_text("0")
            else:
                os.kill(tenant.pid, signal.SIGCONT)
        out, err = tenant.communicate(timeout=START_S * SLOWNESS)
        assert out == "calls 20000\n", err
    finally:
        if group.exists():
            (group / "cgroup.freeze").write_text("0")
            until(lambda: not (group / "cgroup.procs").read_text(), "the group's end", START_S)
            group.rmdir()


@pytest.mark.parametrize("who", [USER, ROOT], ids=["user", "root"])
def test_no_tenant_reaches_into_the_agent(door: Door, ways: str, who: tuple[str, ...]) -> None:
    """Nor root with Docker's capabilities, but for a signal: it has the host's processes."""
    keeper = door.start(door.simcuda, "--hold", "alloc", "64M", name="keeper")
    until(lambda: (TREE / "container/keeper").exists(), "the agent", START_S)
    status, out, err = door.run(*who, ways, "agent", str(door.agent()))
    assert status == 0, err
    words = out.split()
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told.pop("stopped") == ("0" if who == USER else "1")
    assert set(told.values()) == {"0"}, out
    keeper.kill()
    keeper.wait()


def test_memory_runs_out_for_others_before_the_agent(door: Door) -> None:
    """Also where `cgpu run` started it, and no service did."""
    keeper = door.start(door.simcuda, "--hold", "alloc", "64M", name="keeper")
    until(lambda: (TREE / "container/keeper").exists(), "the agent", START_S)
    assert int(Path(f"/proc/{door.agent()}/oom_score_adj").read_text()) == -900
    # and its tenants are as others are
    assert int(Path(f"/proc/{keeper.pid}/oom_score_adj").read_text()) == 0
    keeper.kill()
    keeper.wait()
