# SPDX-License-Identifier: MIT
"""The engine against the model of a card: what is promised, and that the model is a fair one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Change, Scenario, Tenant, chart, check, compare, run
from pycgpu.simulate.scenario import MS, decision_ns, entitlements

AVERAGE, PREEMPTIVE, WEIGHTED, FIXED, WEAK, NATIVE, MIXED, FAIR, BURST, ONLINE = range(10)
CONTROLLED = tuple(p for p in range(10) if p != NATIVE)

#: The model reproduces what was measured on an H200 to so many percent of solo.
MODEL_TOLERANCE = 1.6


@pytest.mark.parametrize(
    ("scenario", "measured"),
    [pytest.param(s, m, id=name) for name, s, m in compare.measured()],
)
def test_the_model_reproduces_what_was_measured_on_a_card(
    scenario: Scenario, measured: tuple[float, ...]
) -> None:
    for modelled, real in zip(compare.modelled(scenario), measured, strict=True):
        assert modelled == pytest.approx(real, abs=MODEL_TOLERANCE)


@pytest.mark.parametrize("policy", range(10))
def test_every_policy_keeps_its_promises(policy: int) -> None:
    measures = check.check(policy)
    assert measures["broken"] == {}
    assert measures["policy"] == policy


@st.composite
def mixes(draw: st.DrawFn) -> Scenario:
    """2 to 25 tenants of all kinds under one policy, at least one of them backlogged."""
    policy = draw(st.sampled_from(CONTROLLED))
    count = draw(st.integers(2, 25))
    made = []
    for tenant in check.tenants(policy, count):
        kind = draw(
            st.sampled_from(("backlogged",) * 3 + ("bursty", "idle", "processes", "waking"))
        )
        if kind == "bursty":
            on, off = draw(st.integers(1, 500)), draw(st.integers(1, 500))
            tenant = replace(tenant, **check.bursts(on, off))
        elif kind == "idle":
            tenant = replace(tenant, kind="idle", uncapped=False)
        elif kind == "waking":
            on, off = draw(st.integers(0, 6000)), draw(st.integers(100, 4000))
            tenant = replace(tenant, kind="waking", on_ns=on * MS, off_ns=off * MS)
        elif kind == "processes":
            tenant = replace(tenant, groups=draw(st.integers(2, 4)))
        made.append(tenant)
    made[0] = replace(made[0], kind="backlogged", groups=1)
    whole = sum(t.weight for t in made)
    return Scenario(
        tuple(made),
        policy=policy,
        max_inst=max(count, min(64, whole)),
        seed=draw(st.integers(1, 9)),
    )


@settings(max_examples=60)
@given(mixes())
def test_backlogged_tenants_get_their_share_in_any_company(scenario: Scenario) -> None:
    hold(scenario)


def hold(scenario: Scenario) -> None:
    result = run(scenario)
    verdict = check.judge(result)
    if verdict.on_demand:
        # a random mix may be harder than the matrix: up to 2.25 points in 231 of 232, 3.93 in one
        assert verdict.error_1s is None or verdict.error_1s <= 3.75
        return
    assert verdict.broken() == []


@given(st.sampled_from(CONTROLLED), st.integers(2, 25))
@settings(max_examples=20)
def test_nobody_starves(policy: int, count: int) -> None:
    tenants = check.tenants(policy, count)
    result = run(Scenario(tenants, policy=policy, max_inst=min(64, 3 * count)))
    for i, share in enumerate(entitlements(result.scenario)):
        assert min(result.shares(i, 1000 * MS)) > 0.5 * share.share


@pytest.mark.parametrize("policy", range(10))
@pytest.mark.parametrize("groups", (1, 3))
def test_used_time_adds_up_to_what_the_card_was_busy(policy: int, groups: int) -> None:
    tenants = tuple(replace(t, groups=groups) for t in check.tenants(policy, 5))
    result = run(Scenario(tenants, policy=policy, max_inst=9))
    worked = [sum(row) for row in result.useful]
    for used, work in zip(result.used, worked, strict=True):
        # of the context that is loaded at the end nothing is told yet
        assert used == pytest.approx(work, rel=0.002, abs=15 * MS)
    assert sum(result.used) == pytest.approx(sum(worked), rel=0.002)


def test_a_context_is_in_use_while_it_stays_loaded() -> None:
    """One that has the card to itself is told more than its work: its context idles loaded."""
    alone = Tenant(uncapped=True, **check.bursts(20, 20))
    result = run(Scenario((alone, Tenant("idle")), policy=WEAK))
    assert result.work(0) < 0.6
    assert result.used[0] > 0.95 * result.scenario.duration_ns


@pytest.mark.parametrize("policy", check.CONSERVING)
def test_idle_time_is_reclaimed_within_two_periods(policy: int) -> None:
    brief = Tenant("waking", on_ns=0, off_ns=5000 * MS)
    result = run(Scenario((Tenant(), brief, Tenant(quota=30)), policy=policy))
    period = result.cards[0]["period_ns"]
    # from the first whole period after the tenant stopped
    first = -(-(5000 * MS + period) // result.scenario.bin_ns)
    bins = 2 * period // result.scenario.bin_ns
    got = sum(result.useful[0][first : first + bins]) / (bins * result.scenario.bin_ns)
    late = result.work(0, since_ns=8000 * MS)
    assert got > 0.9 * late
    assert late > 0.6


@pytest.mark.parametrize("policy", (AVERAGE, PREEMPTIVE, WEIGHTED, FIXED))
@pytest.mark.parametrize("victim", range(4))
def test_one_whose_turn_follows_those_who_are_slow_to_stop_gets_its_part(
    policy: int, victim: int
) -> None:
    slow = tuple(Tenant(stubborn_ns=9 * MS) for _ in range(3))
    tenants = (*slow[:victim], Tenant(), *slow[victim:])
    result = run(Scenario(tenants, policy=policy, max_inst=4))
    held = [sum(row) for row in result.held]
    assert held[victim] / sum(held) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("quota", (4, 14, 24))
def test_one_that_is_slow_to_stop_takes_no_more_of_others_idle_time_than_its_part(
    quota: int,
) -> None:
    idle = Tenant("idle")
    tenants = (Tenant(quota=quota), Tenant(stubborn_ns=10 * MS), idle, Tenant(), idle)
    result = run(Scenario(tenants, policy=MIXED))
    slow, quick = sum(result.held[1]), sum(result.held[3])
    assert quick / (slow + quick) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_pause_of_one_is_not_paid_back_by_those_who_used_it(seed: int) -> None:
    pauses = Tenant(**check.bursts(475, 18), uncapped=True)
    idle = Tenant("idle")
    tenants = (Tenant(quota=24), pauses, idle, Tenant(uncapped=True), idle)
    result = run(Scenario(tenants, policy=MIXED, max_inst=9, seed=seed))
    part = entitlements(result.scenario)[3].share
    # by turns it may be a piece of one short of what the matrix is held to; before, 3 points
    assert 100 * (part - min(result.shares(3, 1000 * MS, 200 * MS))) < 1.5


def test_a_container_with_a_quota_that_comes_and_goes_hardly_moves_others_under_mixed() -> None:
    closer = Tenant("closer", quota=20, off_ns=70 * MS)
    tenants = (closer, Tenant(quota=20), Tenant(quota=20), Tenant(uncapped=True))
    result = run(Scenario(tenants, policy=MIXED))
    for i in (1, 2):
        shares = result.shares(i, 1000 * MS, 200 * MS)
        assert 19 <= 100 * min(shares) <= 100 * max(shares) <= 21


@pytest.mark.parametrize("policy", (WEAK, FAIR, BURST))
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_one_leaves_the_others_get_alike_beside_a_quota(policy: int, seed: int) -> None:
    pauses = Tenant(uncapped=True, **check.bursts(20, 60))
    two = (Tenant(uncapped=True), Tenant(uncapped=True))
    result = run(Scenario((Tenant(quota=15), *two, pauses), policy=policy, seed=seed))
    a, b = (sum(result.held[i][200:]) for i in (1, 2))
    assert a / (a + b) == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("policy", (WEAK, FAIR, BURST))
def test_what_one_with_a_quota_leaves_the_others_get_alike(policy: int) -> None:
    pauses = Tenant(quota=30, **check.bursts(40, 60))
    two = (Tenant(uncapped=True), Tenant(uncapped=True))
    result = run(Scenario((pauses, *two), policy=policy))
    a, b = (sum(result.held[i][200:]) for i in (1, 2))
    assert a / (a + b) == pytest.approx(0.5, abs=0.005)
    assert result.cards[0]["idle_waiting_ns"] <= 0.05 * result.scenario.duration_ns


@pytest.mark.parametrize("last", (False, True))
@pytest.mark.parametrize("policy", check.CONSERVING)
def test_one_that_slept_beside_a_quota_gets_its_part_when_it_wakes(policy: int, last: bool) -> None:
    sleeper = Tenant("waking", on_ns=5000 * MS, off_ns=5000 * MS)
    busy = (Tenant(), Tenant())
    others = (*busy, sleeper) if last else (sleeper, *busy)
    result = run(Scenario((Tenant(quota=25), *others), policy=policy))
    at = 3 if last else 1
    # its claim to a second's share comes first, and is paid back
    assert result.work(at, 5000 * MS) == pytest.approx(0.25, abs=0.02)
    assert result.shares(at, 1000 * MS, 5000 * MS)[0] > 0.2


def test_an_idle_neighbour_is_left_out_of_the_round() -> None:
    tenants = tuple(Tenant(weight=w) for w in (1, 2, 3)) + (Tenant("idle"),)
    verdict = check.judge(run(Scenario(tenants, policy=FAIR)))
    assert verdict.error_1s is not None and verdict.error_1s < 0.1


def test_a_tenant_that_wakes_gets_its_share_within_two_periods() -> None:
    waking = Tenant("waking", on_ns=5000 * MS, off_ns=5000 * MS)
    result = run(Scenario((Tenant(), waking), policy=WEAK))
    since = 5000 * MS + 2 * result.cards[0]["period_ns"]
    # its claim comes first, and is paid back
    assert result.work(1, since_ns=since) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("policy", CONTROLLED)
def test_eight_processes_get_what_one_gets(policy: int) -> None:
    result = run(Scenario((Tenant(groups=8), Tenant()), policy=policy, max_inst=2))
    a, b = (sum(result.held[i]) for i in range(2))
    assert a / (a + b) == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("unit_us", (2500, 5000, 20_000))
def test_all_groups_of_a_container_run_in_short_windows(unit_us: int) -> None:
    # groups are tenants' own business: count them by giving each a card's worth of work
    one, eight = (
        run(Scenario((Tenant(groups=n), Tenant()), policy=WEIGHTED, timeslice_us=unit_us))
        for n in (1, 8)
    )
    switches = sum(eight.held[0]) - sum(eight.useful[0])
    windows = eight.scenario.duration_ns / (2 * unit_us * 1000)
    assert sum(one.held[0]) == sum(one.useful[0])
    assert switches >= 0.9 * 7 * windows * eight.scenario.tenants[0].switch_ns


@pytest.mark.parametrize("percent", (10, 20, 33, 50, 100))
def test_a_percentage_is_kept_alone_as_in_ctyuns_table(percent: int) -> None:
    result = run(Scenario((Tenant(quota=percent),), policy=FAIR, reports="none"))
    assert 100 * result.work(0, since_ns=1000 * MS) == pytest.approx(percent, abs=0.2)


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1), (1, 2, 5)])
def test_hand_overs_take_from_the_time_that_is_nobodys(weights: tuple[int, ...]) -> None:
    tenants = tuple(Tenant(weight=w) for w in weights)
    result = run(Scenario(tenants, policy=FIXED, max_inst=10, reports="none"))
    for i, weight in enumerate(weights):
        assert 100 * result.work(i, since_ns=1000 * MS) == pytest.approx(10 * weight, abs=0.2)


@pytest.mark.parametrize("policy", check.CONSERVING)
def test_where_nothing_tells_who_pauses_everybody_keeps_his_window_beside_a_quota(
    policy: int,
) -> None:
    bursts = Tenant(uncapped=True, **check.bursts(40, 60))
    tenants = (Tenant(quota=30), Tenant(uncapped=True), bursts)
    result = run(Scenario(tenants, policy=policy, reports="none"))
    assert min(result.shares(0, 1000 * MS, 200 * MS)) == pytest.approx(0.3, abs=0.005)
    assert min(result.shares(1, 1000 * MS, 200 * MS)) == pytest.approx(0.35, abs=0.005)


@pytest.mark.parametrize("policy", (PREEMPTIVE, FIXED, WEIGHTED))
def test_one_that_holds_the_card_open_and_does_nothing_keeps_its_part(policy: int) -> None:
    idle = Tenant("idle")
    result = run(Scenario((Tenant(), idle), policy=policy, max_inst=2))
    assert result.work(0, since_ns=1000 * MS) == pytest.approx(0.5, abs=0.015)


def test_one_to_two_is_kept_as_in_alibabas_table() -> None:
    result = run(Scenario((Tenant(weight=1), Tenant(weight=2)), policy=WEIGHTED))
    assert result.work(1) / result.work(0) == pytest.approx(2, rel=0.01)


def test_a_live_change_of_policy_and_weight_takes_effect_within_one_period() -> None:
    changes = (
        Change(3000 * MS, policy=FAIR, tenant=0, weight=3),
        Change(6000 * MS, policy=FIXED, tenant=0, weight=3),
    )
    result = run(Scenario((Tenant(), Tenant()), policy=FAIR, max_inst=10, changes=changes))
    settled = 50 * MS
    for since, expected in ((0, (0.5, 0.5)), (3000, (0.75, 0.25)), (6000, (0.3, 0.1))):
        for i, share in enumerate(expected):
            first = result.shares(i, 1000 * MS, since * MS + settled)[0]
            assert first == pytest.approx(share, abs=0.02)


def test_a_failing_driver_leaves_every_gate_open() -> None:
    two = (Tenant(), Tenant())
    result = run(Scenario(two, policy=FIXED, max_inst=4, fail_ns=1000 * MS, duration_ns=1500 * MS))
    assert result.cards[0]["failures"] > 0
    assert not result.cards[0]["shut_at_end"]


@pytest.mark.parametrize("quota", (10, 33, 50, 80))
def test_a_lone_quota_is_exact_over_a_tenth_of_a_second_by_forty_calls_a_second(quota: int) -> None:
    scenario = Scenario((Tenant(quota=quota),), policy=FAIR, duration_ns=5000 * MS)
    result = run(scenario)
    settled = 1000 * MS
    for share in result.shares(0, 100 * MS, settled, 1 - quota / 100):
        assert share == pytest.approx(quota / 100, abs=0.015)
    assert result.cards[0]["gate_calls"] <= 40 * scenario.duration_ns / (1000 * MS) + 2


@pytest.mark.parametrize("policy", (WEAK, FAIR, BURST))
def test_slices_need_no_call_in_steady_state(policy: int) -> None:
    result = run(Scenario(check.tenants(policy, 8), policy=policy))
    assert result.cards[0]["gate_calls"] == 0
    assert result.cards[0]["late_slice_calls"] == 0


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1), (1, 2, 3), (1, 1, 1, 1), (1, 2, 3, 4)])
def test_two_to_four_containers_lose_no_more_than_two_percent_by_slices(
    weights: tuple[int, ...],
) -> None:
    result = run(Scenario(tuple(Tenant(weight=w) for w in weights), policy=FAIR))
    assert result.efficiency() >= 0.9795
    assert result.cards[0]["period_ns"] <= 40 * MS


@pytest.mark.parametrize("policy", (AVERAGE, FIXED))
def test_ceilings_hold_when_nobody_tells_who_is_idle(policy: int) -> None:
    tenants = (*check.tenants(policy, 3), Tenant("idle"))
    result = run(Scenario(tenants, policy=policy, max_inst=12, reports="none"))
    for i, share in enumerate(entitlements(result.scenario)):
        assert max(result.taken(i, 1000 * MS)) <= share.ceiling + 0.01


def test_the_same_scenario_gives_the_same_result() -> None:
    scenario = Scenario((Tenant(), Tenant("bursty", on_ns=5 * MS, off_ns=9 * MS)), policy=MIXED)
    assert run(scenario).useful == run(scenario).useful
    assert run(scenario).useful != run(scenario, seed=2).useful


def test_decisions_cost_is_measured_for_25_containers() -> None:
    assert 0 < decision_ns(25, 100) < 1_000_000


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pycgpu.simulate", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_check_prints_one_object_a_policy() -> None:
    done = _command("check", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == list(POLICIES)
    for name in (
        "max_error_1s",
        "shortfall_1s",
        "shortfall_any_1s",
        "max_error_100ms",
        "bound_100ms",
        "ceiling_excess_max",
        "jain_min",
        "idle_ratio_max",
        "efficiency",
    ):
        assert all(name in row for row in rows)


def test_who_pauses_is_judged_by_several_seeds_of_each_policy() -> None:
    seen: list[int] = []
    for policy in check.CONSERVING:
        scenarios = dict(check.matrix(policy))
        assert len(check.seeds(policy, scenarios["2 backlogged"])) == 1
        seen += check.seeds(policy, scenarios["long bursts"])
    assert len(set(seen)) == check.SEEDS * len(check.CONSERVING)


def test_a_broken_bound_is_reported() -> None:
    worse = check.Verdict(error_1s=0.6).worse(check.Verdict(error_1s=0.1, jain=0.99))
    assert worse.broken() == ["max_error_1s", "jain_min"]
    missed = check.Verdict(shortfall_1s=0.9, shortfall_any_1s=1.4, on_demand=True)
    assert missed.broken() == []
    worse = missed.worse(check.Verdict(shortfall_1s=1.1, shortfall_any_1s=1.6))
    assert worse.broken() == ["shortfall_1s", "shortfall_any_1s"]
    assert check.Verdict(error_100ms=3.0, bound_100ms=2.9).broken() == ["max_error_100ms"]
    assert check.Verdict(error_1s=0.4, ceiling_excess=0.9, idle_ratio=0.01).broken() == []


def test_one_scenario_prints_its_shares_and_draws_them() -> None:
    with tempfile.NamedTemporaryFile(suffix=".svg") as file:
        done = _command("--policy", "fixed", "--seconds", "1", "--svg", file.name)
        assert done.returncode == 0, done.stderr
        assert "policy 3 fixed (simulated)" in done.stdout
        assert file.read().startswith(b"<svg")


@pytest.mark.parametrize("policy", range(len(POLICIES)))
def test_a_picture_has_steps_of_whole_periods_and_explains_its_grey(policy: int) -> None:
    tenants = (Tenant(weight=1), Tenant(weight=2))
    result = run(Scenario(tenants, policy=policy, max_inst=5, duration_ns=6000 * MS, bin_ns=MS))
    edges = chart.edges(result, 30)
    period = result.cards[0]["period_ns"] / MS
    assert 20 <= len(edges) - 1 <= 40
    if period:
        steps = [(b - a) / period for a, b in pairwise(edges)]
        # Edges stand on the model's bins, of 1 ms.
        assert max(abs(step - round(step)) for step in steps) <= 1 / period
        assert len(set(map(round, steps))) == 1
    # Who always works has the same part of each step, but where it is served on demand.
    if period and result.scenario.policy not in (4, 7, 8):
        told = chart.shares(result, 0, 30)[1:]
        assert max(told) - min(told) < 0.02
    drawn = chart.svg(result)
    legend = re.findall(r'<rect [^>]*width="10"[^>]*fill="(#\w+)"/>\n<text[^>]*>([^<]*)', drawn)
    grey = re.search(r'<rect [^>]*height="150"[^>]*fill="(#\w+)"', drawn)
    assert grey and dict(legend)[grey[1]].startswith("nobody: idle")
    (title,) = re.findall(r'font-size="13">([^<]*)<', drawn)
    assert title == f"Policy {policy}, {POLICIES[policy]}: parts of the card, over time (simulated)"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "10"),
        ("--policy", "fairest"),
        ("--tenant", "lazy"),
        ("--tenant", "idle,x=1"),
        ("--tenant", "backlogged,weight=10001"),
        ("--tenant", "backlogged,quota=101"),
        ("--tenant", "backlogged,groups=0"),
        ("--tenant", "bursty,on=0"),
        ("--tenant", "idle,weight=1,weight=2"),
        ("--tenant", "idle,quota_min=3,quota=2"),
        ("--max-inst", "0"),
        ("--max-inst", "65"),
        ("--timeslice-us", "999"),
        ("--seconds", "1e12"),
        ("--seconds", "nan"),
        ("--seconds", "0"),
        ("--seed", "99999999999999999999"),
        ("--svg", "/nowhere/at.svg"),
        ("--reports", "rumours"),
        ("pictures", "/nowhere"),
    ],
)
def test_a_bad_argument_is_named_in_one_line(arguments: tuple[str, str]) -> None:
    done = _command(*(("--seconds", "0.5") if arguments[0] == "--svg" else ()), *arguments)
    assert done.returncode == 2
    assert arguments[1].split(",")[-1].split("=")[-1] in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [("--tenant", "idle") * 65, ("--policy", "3", "check"), ("check", "--policy", "3")]
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...]) -> None:
    done = _command(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_container_without_weight_and_a_full_card_are_no_errors() -> None:
    assert _command("--seconds", "0.5", "--tenant", "backlogged,weight=0").returncode == 0
    assert _command("--seconds", "0.5", *("--tenant", "backlogged") * 64).returncode == 0


@pytest.mark.parametrize(("where", "said"), [("/dev/full", "No space left"), (None, "closed")])
def test_output_that_cannot_be_written_is_an_error(where: str | None, said: str) -> None:
    to = f">{where}" if where else ">&-"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m pycgpu.simulate --seconds 0.5 {to}', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_has_seen_enough_is_no_traceback() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m pycgpu.simulate --seconds 0.5 | true', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
