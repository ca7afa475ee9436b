# SPDX-License-Identifier: MIT
"""
Shares of compute on the simulated card, enforced by the module.

The machine is emulated: its own timers are late by milliseconds, and the host may be busy. The
bounds here are therefore coarse (`NEAR` percentage points over seconds), and where two tenants
divide a card it is the part of what both used that counts. The engine's own bounds are held in
virtual time by tests/core/test_simulate.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import events
from pycgpu.tree.process import directories
from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until
from tests.vm.work import NEAR, SECONDS, Work, together

pytestmark = pytest.mark.kernel("6.1", by_default=True)


class Card:
    """One simulated T4 with the module and its engine, and tenants on it."""

    def __init__(self, driver: Sim, cgpu: Km, container: Callable[..., Container]) -> None:
        self.driver = driver
        self.cgpu = cgpu
        self._container = container

    def tenant(self, id: str, **settings: int) -> Container:
        one = self._container(id, programs={"/bin/simcuda": self.driver.programs / "simcuda"})
        clause = "".join(f",{name}={value}" for name, value in settings.items())
        self.cgpu.create(id, f"pid={one.pid}", f"gpu=0,mem=1073741824{clause}")
        return one

    def policy(self, number: int) -> None:
        self.cgpu.write("0/policy", f"{number}\n")

    def stat(self, id: str, minor: int = 0) -> dict[str, int]:
        lines = self.cgpu.read(f"{minor}/{id}/stat").splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}


@pytest.fixture
def card(sim: Any, km: Any, container: Any) -> Card:
    return Card(sim(model="t4"), km(), container)


def shares(*tenants: Container, kernel_ms: int = 1) -> list[float]:
    """The percent of the card that each got while all ran."""
    return together(*[Work(one, kernel_ms=kernel_ms) for one in tenants])


def divided(*parts: float) -> list[float]:
    """Each one's percent of what all used together."""
    return [100 * part / sum(parts) for part in parts]


@pytest.mark.parametrize("kernel_ms", [1, 300])
@pytest.mark.parametrize("quota", [10, 50])
def test_a_quota_holds_for_a_lone_tenant_in_the_middle_of_a_kernel(
    card: Card, quota: int, kernel_ms: int
) -> None:
    card.policy(1)
    one = card.tenant("one", quota=quota)
    assert shares(one, kernel_ms=kernel_ms) == pytest.approx([quota], abs=NEAR)


@pytest.mark.parametrize(
    ("policy", "weights", "due", "of_the_card"),
    [
        (1, (1, 1), (50, 50), 100),
        (2, (1, 2), (33.3, 66.7), 100),  # the two containers of Alibaba's measurements
        (2, (8, 4), (66.7, 33.3), 100),
        (3, (4, 10), (28.6, 71.4), 70),  # of max_inst 20
        (0, (1, 1), (50, 50), 50),  # of max_inst 4
    ],
)
def test_two_busy_tenants_get_what_the_policy_says(
    card: Card, policy: int, weights: tuple[int, int], due: tuple[float, float], of_the_card: float
) -> None:
    card.policy(policy)
    if policy == 0:
        card.cgpu.write("0/max_inst", "4\n")
    tenants = [card.tenant(f"t{n}", weight=weight) for n, weight in enumerate(weights)]
    got = shares(*tenants)
    assert divided(*got) == pytest.approx(due, abs=NEAR)
    assert sum(got) < of_the_card + NEAR
    for n in range(2):
        stat = card.stat(f"t{n}")
        assert stat["granted_ns"] > 0
        assert stat["throttled_ns"] > 0


def test_under_policy_9_the_higher_priority_has_what_the_floor_leaves(card: Card) -> None:
    card.policy(9)
    first, second = card.tenant("first", priority=1), card.tenant("second")
    assert shares(first, second)[0] > 100 - 2 * NEAR
    card.cgpu.write("0/second/quota_min", "30\n")
    assert shares(first, second) == pytest.approx([70, 30], abs=2 * NEAR)


def test_a_weight_that_comes_takes_nothing_from_a_fixed_part_and_the_policy_goes_with_the_last(
    card: Card,
) -> None:
    fixed = card.tenant("fixed", quota=30, policy=6)
    heavy = card.tenant("heavy", weight=4, policy=2)
    assert card.cgpu.read("0/policy") == "6\n"
    assert shares(fixed, heavy) == pytest.approx([30, 70], abs=NEAR)
    plain = card.tenant("plain")
    assert shares(fixed, heavy, plain) == pytest.approx([30, 56, 14], abs=NEAR)
    for id in ("fixed", "heavy", "plain"):
        assert card.cgpu.read("0/policy") == "6\n"
        card.cgpu.destroy(id)
    assert card.cgpu.read("0/policy") == "7\n"
    told = [line.partition(" ")[2] for line in events.lines("/proc/cgpu_km", follow=False)]
    assert [line for line in told if line.startswith("policy")] == [
        "policy gpu=0 value=mixed id=fixed",
        "policy gpu=0 value=weighted-conserving",
    ]


def test_alone_a_tenant_gets_the_card_under_policies_that_lend_it(card: Card) -> None:
    one, _idle = card.tenant("one"), card.tenant("idle")
    for policy in (1, 4, 5, 7):
        card.policy(policy)
        assert shares(one) == pytest.approx([100], abs=NEAR), policy


def test_who_asks_for_memory_alone_gets_the_idle_card_and_its_share_beside_others(
    card: Card,
) -> None:
    one = card.tenant("one")
    assert shares(one) == pytest.approx([100], abs=NEAR)
    got = shares(one, card.tenant("two"))
    assert divided(*got) == pytest.approx([50, 50], abs=NEAR)
    assert sum(got) == pytest.approx(100, abs=NEAR)


def test_the_modules_parameters_are_what_a_card_begins_with(
    sim: Any, km: Any, loaded_modules: Any
) -> None:
    sim(model="t4")
    with pytest.raises(OSError, match="cgpu_core"):
        km(policy=10)
    loaded_modules.unload("cgpu_km")
    found = km(policy=2, max_inst=4, timeslice_us=12000)
    told = [found.read(f"0/{name}").strip() for name in ("policy", "max_inst", "timeslice_us")]
    assert told == ["2", "4", "12000"]
    assert "policy_by_hand 0\n" in found.read("0/stat")


def test_a_change_of_weight_or_policy_holds_while_programs_run(card: Card) -> None:
    card.policy(2)
    one, two = card.tenant("one", weight=1), card.tenant("two", weight=1)
    running = [Work(tenant, seconds=3 * SECONDS) for tenant in (one, two)]
    for work in running:
        work.go()
    until(lambda: card.stat("one")["switches"] > 5, "the first windows")
    card.cgpu.write("0/two/weight", "9\n")
    first, second = (work.percent() for work in running)
    # The first moments, at 1:1, count too.
    assert divided(first, second)[0] < 35
    card.cgpu.write("0/two/weight", "1\n")
    assert divided(*shares(one, two)) == pytest.approx([50, 50], abs=NEAR)


def test_many_processes_get_no_more_than_one(card: Card) -> None:
    card.policy(1)
    one, many = card.tenant("one"), card.tenant("many")
    alone, crowd = together(Work(one), Work(many, processes=4))
    assert divided(alone, crowd) == pytest.approx([50, 50], abs=1.5 * NEAR)


def test_no_tenant_undoes_it(card: Card) -> None:
    """Its own timeslice, its own gate, its neighbour's channels."""
    card.policy(1)
    one, two = card.tenant("one"), card.tenant("two")
    victim = two.popen("simcuda", "--json", "--hold", "context")
    assert victim.stdout is not None
    handles = json.loads(victim.stdout.readline())
    refused = one.exec(
        "simcuda", "gate", "off", f"{handles['client']:x}:{handles['channel']:x}", check=False
    )
    assert refused.returncode != 0
    assert "status 35" in refused.stdout or "0x23" in refused.stdout
    # A slice of a second for itself: answered with success, and not applied.
    greedy, honest = together(Work(one, slice_us=1_000_000), Work(two))
    assert divided(greedy, honest) == pytest.approx([50, 50], abs=NEAR)


def test_a_tenant_killed_while_its_gate_is_shut_goes_at_once(card: Card) -> None:
    card.policy(1)
    one = card.tenant("one", quota=5)
    work = Work(one, seconds=60).go()
    until(lambda: card.stat("one")["throttled_ns"] > 0, "the first shut gate")
    one.kill()
    work.child.wait()
    until(lambda: not (card.cgpu.root / "container/one").exists(), "the removal")
    assert "used 0\n" in card.cgpu.read("0/memory")
    two = card.tenant("two")
    assert shares(two) == pytest.approx([100], abs=NEAR)


def test_the_bridge_stays_while_a_quota_counts_on_it(card: Card, loaded_modules: Any) -> None:
    card.policy(1)
    one = card.tenant("one", quota=10)
    work = Work(one, seconds=3 * SECONDS).go()
    until(lambda: card.stat("one")["throttled_ns"] > 0, "the first shut gate")
    with pytest.raises(OSError, match="in use"):
        loaded_modules.unload("cgpu_rm")
    assert work.percent() == pytest.approx(10, abs=NEAR)
    one.kill()
    until(lambda: not (card.cgpu.root / "container/one").exists(), "the removal")
    loaded_modules.unload("cgpu_rm")


def _priorities(name: str) -> list[int]:
    """Of all processes of that name, as proc(5) has them: of real-time ones they are below 0."""
    told = []
    for one in directories(Path("/proc")):
        # It may have ended.
        with contextlib.suppress(OSError):
            told.append((one / "stat").read_text())
    return [int(one.rpartition(")")[2].split()[15]) for one in told if f"({name})" in one]


@pytest.mark.needs("hold")
def test_who_has_a_lock_that_gates_wait_for_is_stopped_by_no_limit_of_its_processor(
    card: Card, made: Any, loaded_modules: Any
) -> None:
    """It has the priority of who waits, which the cgroup's ``cpu.max`` does not concern."""
    state = Path("/sys/module/hold/parameters/state")
    card.policy(1)
    one = card.tenant("one", quota=10)
    work = Work(one, seconds=600).go()
    until(lambda: card.stat("one")["throttled_ns"] > 0, "the first shut gate")
    # called with the container's lock held
    loaded_modules.load(made("hold"), at="cgpu_call_pre")
    asks = one.popen("simcuda", "info")
    until(lambda: state.read_text() == "held\n", "a call in the core")
    until(
        lambda: min(_priorities("simcuda")) < 0,
        "the priority of the thread that shuts and opens gates",
    )
    state.write_text("\n")
    asks.communicate(timeout=60)
    loaded_modules.unload("hold")
    one.kill()
    work.child.wait()


def test_slices_alone_take_no_calls_in_steady_state(card: Card) -> None:
    card.policy(7)
    one, two = card.tenant("one", weight=1), card.tenant("two", weight=2)
    # Long kernels: for want of a processor an emulated program submits seldom, and seems to pause.
    for tenant in (one, two):
        Work(tenant, seconds=600, kernel_ms=20).go()

    def total(key: str) -> int:
        return sum(card.stat(name)[key] for name in ("one", "two"))

    throttled, used = total("throttled_ns"), total("used_ns")

    def by_slices() -> bool:
        """In windows one of both always waits; by slices nobody does."""
        nonlocal throttled, used
        if total("used_ns") < used + SECONDS * 1e9:
            return False
        before, throttled = throttled, total("throttled_ns")
        worked, used = total("used_ns") - used, total("used_ns")
        return throttled - before < 0.3 * worked

    # Whoever has just begun seemed to pause, and slices are tried some seconds later.
    until(by_slices, "both at work by slices", 120)
    first, second = (card.stat(name)["used_ns"] for name in ("one", "two"))
    until(lambda: total("used_ns") > used + SECONDS * 1e9, "more of it")
    first, second = (
        card.stat(name)["used_ns"] - before for name, before in (("one", first), ("two", second))
    )
    assert second > 1.4 * first
    for tenant in (one, two):
        tenant.kill()


def test_two_containers_that_compute_on_the_same_two_cards_have_windows_in_step(
    sim: Any, km: Any, container: Any
) -> None:
    """By the clock, of 25 ms, whatever the cards' gates cost; on demand there are more.

    A busy host lets some pass, and never makes any.
    """
    card = Card(sim(model="t4", cards=2), km(), container)
    tenants = []
    for id in ("one", "two"):
        one = container(id, programs={"/bin/simcuda": card.driver.programs / "simcuda"})
        card.cgpu.create(
            id, f"pid={one.pid}", *(f"gpu={minor},mem=1073741824" for minor in range(2))
        )
        tenants.append(one)
    for minor in range(2):
        card.cgpu.write(f"{minor}/policy", "7\n")

    works = [Work(one, card=minor) for one in tenants for minor in range(2)]
    begun = [[card.stat(id, minor)["switches"] for minor in range(2)] for id in ("one", "two")]
    together(*works)
    for id, before in zip(("one", "two"), begun, strict=True):
        windows = [card.stat(id, minor)["switches"] - before[minor] for minor in range(2)]
        by_clock = SECONDS / 0.05
        assert all(0.7 * by_clock < count < 1.1 * by_clock for count in windows), windows
