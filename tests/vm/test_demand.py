# SPDX-License-Identifier: MIT
"""
Who has work, by what USERD says: the doors find it, and follow it through whatever a tenant does.

Under emulation a look is late by milliseconds: what counts is that it is made, and what it finds.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.agent import client
from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door, keepers_rests

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
    pytest.mark.vm(timeout_s=900),
]

#: seconds that a neighbour works unless it is killed before; others start meanwhile
LONG = "600"


def _counters() -> dict[str, int]:
    return dict(client.ask({"op": "counters"})["counters"])


def _busy(door: Door, name: str = "busy") -> subprocess.Popen[str]:
    """A tenant that always has work, under way."""
    tenant = door.start(door.simcuda, "--json", "launch", LONG, "2", name=name)
    until((TREE / "container" / name).exists, f"the tenant {name}", START_S)
    return tenant


def _last(tenant: subprocess.Popen[str]) -> dict[str, int]:
    out, err = tenant.communicate(timeout=2 * START_S)
    assert out, err
    return dict(json.loads(out.splitlines()[-1]))


def test_a_lone_tenant_is_not_looked_at(door: Door) -> None:
    door.sim("info", name="first")
    before = _counters()["looks"]
    assert door.sim("launch", "2", "2")["kernels"] > 0
    assert _counters()["looks"] == before


def test_a_tenant_that_pauses_beside_one_that_works_is_seen_to_wake(door: Door) -> None:
    _busy(door)
    before = _counters()
    # a request about every 0.7 s, of three kernels of 5 ms
    served = door.sim("serve", "12", "5", "3", "1.5", name="server")
    after = _counters()
    assert served["requests"] > 3
    assert after["userd_maps"] > before["userd_maps"]
    assert after["userd_errors"] == before["userd_errors"]
    assert after["look_reads"] - before["look_reads"] > 100
    # of each request where the guest has its processors; beside two other guests less than half
    assert after["wakes"] > before["wakes"]


def test_two_that_always_work_are_looked_at_seldom(door: Door) -> None:
    _busy(door, "one")
    _busy(door, "two")
    before, began = _counters(), time.monotonic()
    errors = before["userd_errors"]

    def is_seldom() -> bool:
        nonlocal before, began
        after, took = _counters(), time.monotonic() - began
        if after["looks"] < before["looks"] + 200:
            return False
        # CGPU_DEMAND_REST_NS is 10 ms
        found = after["looks"] - before["looks"] <= 100 * took * 1.1 + 1
        before, began = after, time.monotonic()
        return found

    # Newcomers are watched closely until both are known never to pause.
    until(is_seldom, "two hundred looks that are 10 ms apart", START_S)
    assert _counters()["userd_errors"] == errors


def test_who_looks_after_tenants_wakes_once_a_second(door: Door) -> None:
    """It was ten times a second, a sixth of what the agent took beside two that always work."""
    _busy(door, "one")
    _busy(door, "two")
    pid, before, began = door.agent(), keepers_rests(door.agent()), time.monotonic()
    until(lambda: time.monotonic() > began + 5, "five seconds")
    # and now and then for a lock
    assert 2 * 3 <= keepers_rests(pid) - before <= 2 * 5 * 3


@pytest.mark.parametrize("mode", ["moved", "frozen", "spinning"])
def test_whatever_a_tenant_does_with_its_userd_wins_nothing(
    door: Door, made: Callable[[str], Path], mode: str
) -> None:
    _busy(door)
    program = str(made("programs") / "userd")
    tenant = door.start(program, mode, "10", "2", name=mode)
    until((TREE / "container" / mode).exists, f"the tenant {mode}", START_S)
    assert _last(tenant)["share_permille"] < 600
    assert door.agent()


def _held() -> dict[str, int]:
    """What the simulated driver has: the agent's own objects too."""
    words = Path("/proc/driver/nvidia-sim").read_text().split()
    return {name: int(words[words.index(name) + 1]) for name in ("objects", "memories", "free")}


@pytest.mark.parametrize("memory", ["video", "system"])
def test_what_the_agent_has_of_a_tenants_memory_goes_with_it(
    door: Door, made: Callable[[str], Path], memory: str
) -> None:
    _busy(door)
    stat = TREE / "0/busy/stat"
    until(lambda: "used_ns 0\n" not in stat.read_text(), "the work of the other", START_S)
    before, maps = _held(), _counters()["userd_maps"]
    program = str(made("programs") / "userd")
    tenant = door.start(program, f"closed-{memory}", LONG, "0", name=memory)
    until(lambda: _counters()["userd_maps"] >= maps + 10, "ten contexts", START_S)
    try:
        until(lambda: _held() == before, "the return of all that they had", START_S)
    except AssertionError:
        # which of them, and by how much
        assert _held() == before
        raise
    assert tenant.poll() is None
    assert (TREE / "container" / memory).exists()
