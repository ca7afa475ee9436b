# SPDX-License-Identifier: MIT
"""
The user door beside the simulated driver: same limits as the module's, no module.

One driver and one agent serve all tests here; a tenant is a program under `cgpu run`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pycgpu
from pycgpu.request.model import POLICIES
from pycgpu.tree import cards, procfs
from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [pytest.mark.kernel("6.1", by_default=True), pytest.mark.needs("sim")]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
NO_MEMORY = 0x51
CARDS = Path(cards.PATH)


@pytest.fixture(scope="module", autouse=True)
def settings_of_cards() -> Iterator[None]:
    """There when the first tenant starts the agent."""
    CARDS.parent.mkdir(exist_ok=True)
    CARDS.write_text("[default]\nmax_inst = 24\n")
    yield
    CARDS.unlink()


def test_a_tenant_sees_its_own_card(door: Door) -> None:
    found = door.sim("info")
    assert found["total"] == found["board"] == found["free"] == LIMIT_BYTES


def test_an_agent_gives_cards_what_their_settings_say_when_it_starts(door: Door) -> None:
    door.sim("info")
    assert procfs.read_max_inst(0, str(TREE)) == 24
    assert procfs.read_policy(0, str(TREE)) == POLICIES.index("weighted-conserving")


def test_an_agent_tells_what_the_driver_said_of_a_cards_mig_mode(door: Door) -> None:
    door.sim("info")
    assert procfs.read_mig(0, str(TREE)) is False


def test_what_is_not_there_is_not_created_by_writing_it(door: Door) -> None:
    """ENOSYS it was, and for a second after a container had gone its nodes still had names."""
    leaves = door.start(door.simcuda, "--hold", "context", name="leaves")
    until((TREE / "0/leaves/weight").exists, "the tenant", START_S)
    with pytest.raises(FileNotFoundError):
        (TREE / "0/leaves/none").write_text("1")
    leaves.terminate()
    leaves.wait(timeout=START_S)
    until(lambda: "leaves" not in os.listdir(TREE / "0"), "the tenant's end", START_S)
    assert not (TREE / "0/leaves/weight").exists()
    with pytest.raises(FileNotFoundError):
        (TREE / "0/leaves/weight").write_text("1")


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


def test_who_maps_too_much_is_killed_and_told_why_where_the_container_wants_it(door: Door) -> None:
    waits = "until [ -e go ]; do sleep 0.1; done"
    tenant = door.start("sh", "-c", f"{waits}; {door.simcuda} managed 2G")
    until((TREE / "0/one/oom_action").exists, "the tenant", START_S)
    (TREE / "0/one/oom_action").write_text("kill\n")
    (door.folder / "go").touch()
    _, err = tenant.communicate(timeout=START_S)
    assert tenant.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert f"out of memory of card 0: {2048 * MIB} bytes asked" in err


@pytest.mark.needs("programs")
def test_managed_memory_can_be_denied_to_a_program_that_computes(
    door: Door, made: Callable[[str], Path]
) -> None:
    """It maps a semaphore pool, as CUDA's contexts do."""
    status, out, err = door.run(str(made("programs") / "blind"), "denied", uvm_disable=True)
    assert (status, out) == (0, f"pool 0 mapped 0 managed {errno.ENOMEM}\n"), err


def test_what_each_process_holds_is_told_with_its_name(door: Door) -> None:
    held = (64 * MIB, 128 * MIB)
    small, large = (f"{door.simcuda} --hold alloc {size}" for size in held)
    tenant = door.start("sh", "-c", f"{small} & exec {large}")
    procs = TREE / "0/one/procs"

    def both() -> list[list[str]]:
        told = [line.split() for line in procs.read_text().splitlines()] if procs.exists() else []
        return told if sum(int(size) for _, _, size, _ in told) >= sum(held) else []

    told = until(both, "both processes", START_S)
    for pid, pid_there, _, name in told:
        assert pid == pid_there
        assert name == Path(f"/proc/{pid}/comm").read_text().strip() == "simcuda"
    for least, told_bytes in zip(held, sorted(int(size) for _, _, size, _ in told), strict=True):
        assert told_bytes >= least
    for pid, *_ in told:
        os.kill(int(pid), signal.SIGKILL)
    tenant.communicate(timeout=START_S)


def test_exit_status_and_signal_are_the_programs(door: Door) -> None:
    assert door.run("sh", "-c", "exit 7")[0] == 7
    assert door.run("sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM


def test_a_program_ignores_no_signal_that_python_does(door: Door) -> None:
    """`nvidia-smi -l | head` went on for good."""
    status, told, _ = door.run("sh", "-c", "grep SigIgn /proc/self/status")
    assert (status, int(told.split()[1], 16)) == (0, 0), told


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


def _used_ns(name: str) -> int:
    return procfs.read_stat(0, name, str(TREE))["used_ns"]


def test_windows_of_an_idle_tenant_with_a_quota_go_to_the_others(door: Door) -> None:
    idle = door.start(door.simcuda, "--hold", "context", name="idle", quota=60)
    until((TREE / "container/idle").exists, "the idle tenant", START_S)
    busy = door.start(door.simcuda, "--json", "launch", "8", "1", name="busy")
    until((TREE / "container/busy").exists, "the busy tenant", START_S)
    until(lambda: _used_ns("busy") > 10**9, "its work", START_S)
    assert _used_ns("idle") == 0
    for _ in range(50):
        # In pieces, while numbers grow.
        with open(TREE / "0/busy/stat", "rb", buffering=0) as file:
            text = b"".join(iter(lambda: file.read(7), b""))
        assert {len(line.split()) for line in text.splitlines()} == {2}, text
    assert _permille(busy) > 750
    idle.terminate()
    idle.wait(timeout=START_S)


def test_without_fuse_the_tools_reach_the_same_nodes_over_the_socket(door: Door) -> None:
    root = procfs.USER_DOOR_SOCKET
    door.start(door.simcuda, "--json", "launch", "600", "2", name="served")
    until((TREE / "container/served").exists, "the tenant", START_S)
    both = [procfs.read_tenants(0, tree) for tree in (str(TREE), root)]
    assert both[0] == both[1] and [one.id for one in both[1]] == ["served"]
    pycgpu.set("served", memory="512MiB", root=root)
    assert (TREE / "0/served/memsize").read_text() == f"{512 * MIB}\n"
    told = [event.text for event in pycgpu.events(root=root) if event.kind == "set"]
    assert told[-1:] == [f"0/served/memsize {512 * MIB}"]
    (used,) = pycgpu.usage(root=root)
    assert used.container == "served" and "current_bytes" in used.counters


def test_over_commit_names_what_is_free(door: Door) -> None:
    status, _, err = door.run("true", mem="100G")
    assert status == 125
    assert "card 0: 102400 MiB asked, 15360 MiB on the card" in err


def test_a_program_that_cannot_start_is_told_from_one_that_failed(door: Door) -> None:
    assert door.run("/nowhere/program")[0] == 127
    assert door.run("/etc/passwd")[0] == 126
    assert door.run("sh", "-c", "exit 3")[0] == 3


def test_under_sudo_the_program_runs_as_who_called_it(door: Door) -> None:
    environment = dict(
        door.environment, SUDO_UID="65534", SUDO_GID="65534", SUDO_USER="nobody", HOME="/root"
    )
    # Where others than root may go.
    program = Path("/run/simcuda-of-all")
    shutil.copy2(door.simcuda, program)
    line = f"id -u; id -g; {program} --json info | grep -c {LIMIT_BYTES}"
    told = {}
    for options in ((), ("--user", "root")):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pycgpu.cli.main", "run", "--mem", "1G", *options),
                *("--", "sh", "-c", line),
            ],
            cwd=door.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        assert not done.stderr
        told[options] = done.stdout.split()
    program.unlink()
    assert told == {(): ["65534", "65534", "1"], ("--user", "root"): ["0", "0", "1"]}


def test_a_part_of_the_card_is_asked_for_in_percent(door: Door) -> None:
    found = door.sim("info", mem="25%")
    assert found["total"] == 15109 // 4 * MIB


def test_the_agents_death_leaves_no_tenant_hanging(door: Door) -> None:
    tenant = door.start(door.simcuda, "--hold", "alloc", "64M")
    until((TREE / "container/one").exists, "the tenant", START_S)
    os.kill(door.agent(), signal.SIGKILL)
    tenant.terminate()
    assert tenant.wait(timeout=START_S) is not None
    assert door.sim("info", name="two")["free"] == LIMIT_BYTES
