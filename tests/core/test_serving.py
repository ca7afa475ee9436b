# SPDX-License-Identifier: MIT
"""A tenant that waits for its results beside one that never pauses."""

from __future__ import annotations

import statistics
from dataclasses import astuple, replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycgpu._core import lib
from pycgpu.request.model import POLICIES
from pycgpu.simulate import Scenario, Tenant, mixes, mps, run, serving
from pycgpu.simulate.check import PREEMPTION_MS, WAIT_MS
from pycgpu.simulate.scenario import MS, Change

#: The model reproduces what was measured on an H100 to within so much of it.
TOLERANCE = 0.1
#: By then it is found that somebody pauses: until it is, slices divide the card.
FOUND_NS = 200 * MS


def assert_reproduced(measured: serving.Seen, modelled: serving.Seen) -> None:
    for is_now, was in zip(astuple(modelled), astuple(measured), strict=True):
        if was is not None:
            assert is_now == pytest.approx(was, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("scenarios", "measured"),
    [pytest.param(s, m, id=name) for name, s, m in serving.measured()],
)
def test_the_model_reproduces_a_server_beside_a_trainer(
    scenarios: tuple[Scenario, ...], measured: serving.Seen
) -> None:
    assert_reproduced(measured, serving.median(scenarios))


@pytest.mark.parametrize(
    ("measured", "modelled"),
    [pytest.param(was, now, id=name) for name, was, now in mps.measured()],
)
def test_the_model_reproduces_a_server_beside_a_trainer_under_mps(
    measured: serving.Seen, modelled: serving.Seen
) -> None:
    assert_reproduced(measured, modelled)


def beside(tenant: Tenant, seconds: float = 10) -> Scenario:
    """Return a tenant beside a trainer, 1:1."""
    scenario = serving.pair(seconds=seconds)
    return replace(scenario, tenants=(tenant, scenario.tenants[1]))


def loop(step_ns: int, host_ns: int, **other: float) -> Tenant:
    """One that submits a piece of work, waits for it, and pauses."""
    return serving.server(arrivals=(), off_ns=0, steps=1, step_ns=step_ns, host_ns=host_ns, **other)


def test_a_server_beside_a_trainer_is_served_as_if_it_were_alone() -> None:
    pair = serving.pair("slices")
    alone = serving.seen(run(replace(pair, tenants=pair.tenants[:1])), since_ns=FOUND_NS)
    drivers = serving.seen(run(serving.pair("slices")), since_ns=FOUND_NS)
    ours = serving.seen(run(serving.pair()), since_ns=FOUND_NS)
    for name, most in (("token_p50", 1.10), ("token_p99", 2), ("request_p99", 1.15)):
        assert getattr(ours, name) <= most * getattr(alone, name), name
    assert ours.trainer and drivers.trainer and ours.trainer >= drivers.trainer


@pytest.mark.parametrize("seed", range(1, 13))
def test_requests_within_the_servers_share_of_every_second_wait_for_nobody(seed: int) -> None:
    pair = serving.pair(seconds=12)
    arrivals = tuple(t + 3000 * MS for t in serving.arrivals(4, 8, seed))
    both = replace(pair, tenants=(replace(pair.tenants[0], arrivals=arrivals), pair.tenants[1]))
    alone = run(replace(both, tenants=both.tenants[:1], controller="slices"))
    theirs, ours = (serving.seen(one, since_ns=3000 * MS) for one in (alone, run(both)))
    assert ours.token_p50 and theirs.token_p50 and ours.token_p50 <= 1.1 * theirs.token_p50
    if max(alone.shares(0, 1000 * MS)) > 0.45:
        # for a while it wants more than its half: then the two take turns
        return
    assert ours.token_p99 and theirs.token_p99 and ours.token_p99 <= 2 * theirs.token_p99
    assert ours.request_p99 and theirs.request_p99
    assert ours.request_p99 <= 1.15 * theirs.request_p99


def test_a_claim_takes_no_more_than_the_share_of_a_second() -> None:
    """One that sleeps for seconds, and then wants everything."""
    result = run(beside(Tenant("bursty", on_ns=1500 * MS, off_ns=1500 * MS, uncapped=True), 30))
    assert min(result.shares(1, 1000 * MS, 1000 * MS)) >= 0.47


def test_the_log_is_asked_for_less_often_while_one_works_and_all_others_sleep() -> None:
    """Each time takes the driver some 0.07 ms of a processor; a budget is charged by it alone."""
    pausing = serving.pair()
    server, trainer = pausing.tenants
    capped = replace(pausing, tenants=(replace(server, quota=60, uncapped=False), trainer))
    seldom, often = (run(one).cards[0]["looks"] / 4 for one in (pausing, capped))
    assert seldom < 70
    assert often > 95


def test_a_server_that_always_has_a_request_gets_half_of_the_cards_time() -> None:
    server = serving.server(arrivals=(), off_ns=0)
    result = run(beside(server))
    token = server.step_ns / (server.step_ns + 4 * server.host_ns / 3)
    # its pauses of 0.05 ms a token are its own
    a, b = result.work(0, 1000 * MS) / token, result.work(1, 1000 * MS)
    assert a / (a + b) == pytest.approx(0.5, abs=0.015)


def test_one_millisecond_of_work_now_and_then_is_done_within_two_and_a_half() -> None:
    now_and_then = serving.server(arrivals=(), off_ns=20 * MS, steps=1, step_ns=MS)
    result = run(beside(now_and_then))
    assert result.percentile(0, "step", 0.99) <= 2.5
    assert result.work(1) >= 0.9


@pytest.mark.parametrize(
    "adversary",
    [
        pytest.param(Tenant("spinner"), id="GP_PUT spins"),
        pytest.param(Tenant("frozen"), id="GP_PUT stands beside GP_GET"),
        pytest.param(Tenant("frozen", open_ns=800 * MS), id="GP_PUT never moved"),
        pytest.param(loop(50_000, 2_500_000), id="wakes 400 times a second"),
        pytest.param(loop(50_000, 5_000_000), id="wakes 200 times a second"),
        pytest.param(loop(100_000, 20_000), id="many small kernels"),
        pytest.param(serving.server(arrivals=(), off_ns=0, channels=20), id="many channels"),
    ],
)
def test_who_plays_with_gp_put_costs_the_other_no_more_than_its_part(adversary: Tenant) -> None:
    result = run(beside(adversary))
    shares = result.shares(1, 1000 * MS, 1000 * MS)
    assert sum(shares) / len(shares) >= 0.49
    assert min(shares) >= 0.47


@pytest.mark.parametrize("groups", (1, 8))
def test_who_wakes_waits_for_nobody_that_only_seems_to_work(groups: int) -> None:
    """Up to 450 ms: its context stayed loaded in the other's turns, and was charged to it."""
    now_and_then = serving.server(arrivals=(), off_ns=40 * MS, steps=1, step_ns=MS)
    result = run(
        Scenario(
            (now_and_then, Tenant("spinner", groups=groups)),
            policy=serving.FAIR,
            duration_ns=6000 * MS,
        )
    )
    assert result.times(0, "wait", 1000 * MS)[-1] <= 2


@pytest.mark.parametrize("seed", (1, 2))
def test_who_wakes_interrupts_work_that_ends_never_and_submits_nothing(seed: int) -> None:
    """A token took 12 to 16 ms at p99, and one that worked now and then waited for 8."""
    endless = Tenant(uncapped=True, fetched_ns=10**15)
    server = serving.server(8, arrivals=serving.arrivals(3, 8, 5))
    now_and_then = serving.server(arrivals=(), off_ns=40 * MS, steps=1, step_ns=MS)
    of_server, of_other = (
        run(Scenario((one, endless), policy=serving.FAIR, duration_ns=8000 * MS, seed=seed))
        for one in (server, now_and_then)
    )
    assert of_server.percentile(0, "step", 0.99, 1000 * MS) <= 5
    assert of_server.percentile(0, "request", 0.99, 1000 * MS) <= 120
    assert of_server.work(1, 1000 * MS) >= 0.86
    assert of_other.percentile(0, "wait", 0.99, 1000 * MS) <= 3
    assert of_other.work(1, 1000 * MS) >= 0.94


@pytest.mark.parametrize("groups", (1, 4))
def test_no_number_of_processes_at_long_work_takes_from_who_has_long_graphs(groups: int) -> None:
    """Of four parts in five it had 55 to 64 %: the round got shorter while it was in doubt."""
    bursty = Tenant("bursty", on_ns=3 * MS, off_ns=10 * MS, close_ns=1000 * MS)
    graphs = Tenant(uncapped=True, fetched_ns=50 * MS, weight=4)
    endless = Tenant(groups=groups, fetched_ns=10**15, uncapped=True)
    tenants = (graphs, endless, bursty)
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=8000 * MS))
    shares = result.shares(0, 1000 * MS, 2000 * MS)
    assert sum(shares) / len(shares) >= 0.78
    assert min(shares) >= 0.77


def test_who_opens_the_card_again_and_again_has_its_quota_and_no_more() -> None:
    """20 of its 10 %: it was opened again with its gate open, whatever it had spent."""
    server = serving.server(8, arrivals=serving.arrivals(3, 8, 5))
    again = Tenant(
        quota=10,
        fetched_ns=10**15,
        early_ns=170_000,
        close_ns=6_478_179,
        again_ns=11_407_315,
    )
    policy = POLICIES.index("online")
    result = run(Scenario((again, server), policy=policy, duration_ns=6000 * MS, seed=20))
    assert max(result.taken(0, 1000 * MS, 1000 * MS)) <= 0.14


@pytest.mark.parametrize("pause_ms", (0.1, 3, 10))
def test_long_work_without_a_submission_is_charged_to_who_runs_it(pause_ms: float) -> None:
    result = run(beside(loop(20 * MS, round(pause_ms * MS))))
    assert result.work(1, 1000 * MS) >= 0.49
    # what it holds the card for after its last work, and waking, are its own
    assert result.work(0, 1000 * MS) >= 0.36


@pytest.mark.parametrize(
    ("tenant", "rate", "seed", "request_p99"),
    [
        pytest.param(serving.transformer(), 1.5, 1, 1.02, id="a transformer"),
        # in a second in which requests want more than half the card they have half of it
        *(
            pytest.param(
                serving.eager(launch_ns=launch_ns), 4, seed, 1.2, id=f"{launch_ns} ns, seed {seed}"
            )
            for launch_ns in (9_000, 10_400, 11_500, 12_500)
            for seed in (1, 2, 5, 7)
        ),
    ],
)
def test_one_that_its_processor_holds_up_is_served_as_by_the_runlist_or_better(
    tenant: Tenant, rate: float, seed: int, request_p99: float
) -> None:
    both = serving.pair(seconds=24)
    first = replace(tenant, arrivals=serving.arrivals(rate, 24, seed))
    both = replace(both, tenants=(first, both.tenants[1]))
    slices = tuple(replace(t, slice_us=2048) for t in both.tenants)
    drivers = serving.seen(run(replace(both, tenants=slices, controller="slices")))
    ours = serving.seen(run(both), since_ns=FOUND_NS)
    for name, most in (
        ("token_p50", 1.01),
        ("token_p99", 1.1),
        ("request_p50", 1.04),
        ("request_p99", request_p99),
    ):
        assert getattr(ours, name) <= most * getattr(drivers, name), name
    # and the trainer has what it has there, but for one part in twenty while it is held for tokens
    assert ours.trainer and drivers.trainer and ours.trainer >= 0.95 * drivers.trainer


@pytest.mark.parametrize("weights", ((1, 1), (1, 9), (9, 1)))
@pytest.mark.parametrize(
    "tenant",
    [
        pytest.param(serving.transformer(arrivals=(), off_ns=0), id="a transformer"),
        pytest.param(serving.eager(arrivals=(), off_ns=0), id="without a graph"),
        pytest.param(
            serving.server(arrivals=(), off_ns=0, pieces=10_000, launch_ns=35_000, step_ns=10 * MS),
            id="kernels of a microsecond",
        ),
        pytest.param(
            serving.server(arrivals=(), off_ns=0, pieces=20, launch_ns=200_000, step_ns=6 * MS),
            id="its kernels fill the card",
        ),
    ],
)
def test_who_submits_many_small_pieces_leaves_others_their_share(
    tenant: Tenant, weights: tuple[int, int]
) -> None:
    pair = serving.pair(seconds=12, weights=weights)
    tenants = (replace(tenant, weight=weights[0]), pair.tenants[1])
    result = run(replace(pair, tenants=tenants))
    due = weights[1] / sum(weights)
    assert min(result.shares(1, 1000 * MS, 2000 * MS)) >= due - 0.02
    # which is not at its cost: beside others it has what windows of its share would give it
    alone = run(replace(pair, tenants=tenants[:1], controller="slices")).work(0)
    assert result.work(0, 1000 * MS) >= 0.9 * (1 - due) * alone - 0.02


def test_a_trainer_that_is_steps_ahead_of_the_card_is_not_held_up_by_its_processor() -> None:
    """As ResNet-50 in PyTorch: 600 launches a step, in less than half of the time that it takes."""
    trainer = loop(52 * MS, 40_000, pieces=600, launch_ns=30_000)
    server = serving.server(20)
    both = replace(serving.pair(seconds=20), tenants=(server, trainer))
    result = run(both)
    assert result.percentile(0, "step", 0.99, 2000 * MS) <= 3.1
    rarely = replace(server, arrivals=tuple(s * 1000 * MS for s in range(2, 20, 3)))
    result = run(replace(both, tenants=(rarely, trainer, trainer)))
    assert result.efficiency() >= 0.975


def test_one_that_waits_for_each_small_kernel_has_the_card_held_for_it() -> None:
    """Ten submissions a millisecond, and each would wait for the other's slice."""
    result = run(beside(loop(80_000, 20_000)))
    assert result.work(0, 1000 * MS) >= 0.36


#: A few kernels of a millisecond are queued, and the card has fetched all of them.
FETCHED = Tenant(uncapped=True, fetched_ns=MS)


@pytest.mark.parametrize("weights", ((1, 1), (1, 9), (1, 2, 3)))
@pytest.mark.parametrize("before", ("weighted-conserving", "weighted"))
def test_one_whose_work_is_all_fetched_is_not_taken_to_pause(
    weights: tuple[int, ...], before: str
) -> None:
    tenants = tuple(replace(FETCHED, weight=weight) for weight in weights)
    change = Change(1000 * MS, serving.FAIR, 0, weights[0])
    result = run(Scenario(tenants, policy=POLICIES.index(before), changes=(change,)))
    for i, weight in enumerate(weights):
        for share in result.shares(i, 1000 * MS, 2500 * MS):
            assert share == pytest.approx(weight / sum(weights), abs=0.005)
    assert sum(result.work(i, 2500 * MS) for i in range(len(weights))) >= 0.98


def test_saturating_tenants_are_exact_again_after_one_who_paused_has_gone() -> None:
    server = serving.server(seconds=5, close_ns=4000 * MS)
    tenants = (server, FETCHED, replace(FETCHED, weight=2))
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=20_000 * MS))
    since_ns = 4000 * MS + lib.CGPU_SCHED_FAIR_KEEP_S * 1000 * MS + 1000 * MS
    for i in (1, 2):
        for share in result.shares(i, 1000 * MS, since_ns):
            assert share == pytest.approx(i / 3, abs=0.005)


#: Beside somebody with a quota windows go by the clock while nobody is seen to pause.
MIXED_POLICIES = tuple(map(POLICIES.index, ("mixed", "weighted-conserving", "burst")))


@pytest.mark.parametrize("policy", MIXED_POLICIES)
@pytest.mark.parametrize("seed", (1, 2, 3))
@pytest.mark.parametrize("on_ms", (300, 3000))
def test_one_long_piece_of_work_has_its_windows_beside_a_quota(
    policy: int, seed: int, on_ms: int
) -> None:
    """
    The card fetches a long kernel at once, so that nothing is seen of it. It was left out as one
    that never had work, and its gate was shut for good: of its 45 % it had nothing.
    """
    long = Tenant("bursty", on_ns=on_ms * MS, off_ns=20 * MS, fetched_ns=10**15)
    tenants = (long, Tenant(quota=10), Tenant())
    result = run(Scenario(tenants, policy=policy, duration_ns=10_000 * MS, seed=seed))
    assert result.work(0, 1000 * MS) >= 0.38
    assert result.work(1, 1000 * MS) >= 0.09


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_work_that_is_fetched_at_once_has_its_share_beside_a_quota(policy: int) -> None:
    tenants = (replace(FETCHED, fetched_ns=50 * MS), Tenant(quota=10), Tenant())
    result = run(Scenario(tenants, policy=policy, duration_ns=6000 * MS, seed=3))
    for i, share in enumerate((0.45, 0.1, 0.45)):
        assert result.work(i, 1000 * MS) == pytest.approx(share, abs=0.035)


@pytest.mark.parametrize("groups", (2, 3, 8))
@pytest.mark.parametrize("quota", (30, 50))
@pytest.mark.parametrize("policy", ("mixed", "weighted-conserving"))
def test_no_number_of_processes_takes_the_share_of_one_that_seems_to_sleep(
    policy: str, quota: int, groups: int
) -> None:
    """
    It submits every few milliseconds, and the card fetches that at once. What it ran of the long
    rounds of a neighbour's processes was too little to be seen as work: of its 50 % it had 19.
    """
    for fetched_ms in (4, 5, 6, 7, 8):
        seeming = Tenant(quota=quota, fetched_ns=fetched_ms * MS)
        scenario = Scenario(
            (seeming, Tenant(groups=groups)), POLICIES.index(policy), duration_ns=6000 * MS
        )
        shares = run(scenario).shares(0, 1000 * MS, 2000 * MS)
        assert sum(shares) / len(shares) >= quota / 100 - 0.02, fetched_ms


@pytest.mark.parametrize("groups", (2, 3, 5, 8))
@pytest.mark.parametrize("fetched_ms", (3, 4, 5, 6))
def test_one_that_seems_to_sleep_has_its_floor_beside_a_higher_classs_processes(
    fetched_ms: int, groups: int
) -> None:
    """Of 20 % it had 6."""
    tenants = (Tenant(quota_min=20, fetched_ns=fetched_ms * MS), Tenant(groups=groups, priority=2))
    result = run(Scenario(tenants, POLICIES.index("online"), duration_ns=6000 * MS))
    shares = result.shares(0, 1000 * MS, 2000 * MS)
    assert sum(shares) / len(shares) >= 0.18


@pytest.mark.parametrize("groups", (2, 4, 8, 16))
@pytest.mark.parametrize(("stubborn_ms", "least"), ((1, 0.46), (3, 0.36), (8, 0.36)))
def test_processes_that_are_slow_to_stop_leave_one_that_seems_to_sleep_its_part(
    stubborn_ms: int, least: float, groups: int
) -> None:
    """Without quotas: of its half it had 2 to 25 %. What it then misses is theirs to stop."""
    tenants = (Tenant(fetched_ns=5 * MS), Tenant(groups=groups, stubborn_ns=stubborn_ms * MS))
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=10_000 * MS))
    shares = result.shares(0, 1000 * MS, 1000 * MS)
    assert sum(shares) / len(shares) >= least


@pytest.mark.parametrize("groups", (2, 5, 16))
@pytest.mark.parametrize("kind", ("frozen", "spinner"))
def test_no_number_of_processes_that_play_with_gp_put_costs_one_that_seems_to_sleep_its_quota(
    kind: Literal["frozen", "spinner"], groups: int
) -> None:
    """It had 37 to 41 of its 50 %."""
    tenants = (Tenant(quota=50, fetched_ns=5 * MS), Tenant(kind, groups=groups))
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=6000 * MS))
    shares = result.shares(0, 1000 * MS, 2000 * MS)
    assert sum(shares) / len(shares) >= 0.48


@pytest.mark.parametrize("policy", ("burst", "online"))
@pytest.mark.parametrize("pauses", (True, False))
def test_floors_that_fill_the_card_leave_one_without_a_floor_nothing(
    policy: str, pauses: bool
) -> None:
    """It had 59 to 67 %, and they 11 to 14 of their 50, while one of them paused."""
    bursty = Tenant("bursty", on_ns=3 * MS, off_ns=10 * MS, quota_min=50)
    other = bursty if pauses else serving.server(arrivals=(), off_ns=0, quota_min=50)
    tenants = (Tenant(quota_min=50), other, Tenant())
    scenario = Scenario(tenants, policy=POLICIES.index(policy), duration_ns=6000 * MS, seed=3)
    result = run(scenario)
    assert result.work(0, 1000 * MS) >= 0.48
    assert result.work(1, 1000 * MS) >= (0.22 if pauses else 0.47)
    assert result.work(2, 1000 * MS) <= 0.02


@pytest.mark.parametrize("fetched_ns", (0, 1))
@pytest.mark.parametrize("groups", (1, 2, 8))
def test_one_that_wakes_waits_for_no_round_of_a_neighbours_processes(
    groups: int, fetched_ns: int
) -> None:
    """It waited for the slices of all of them, 30 to 40 ms, and got a quarter of what it asked."""
    waking = serving.server(arrivals=(), off_ns=40 * MS, steps=1, step_ns=MS)
    tenants = (replace(waking, fetched_ns=fetched_ns), Tenant(groups=groups, weight=4))
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=10_000 * MS))
    assert result.percentile(0, "wait", 0.5, 1000 * MS) <= 1.5
    assert result.percentile(0, "wait", 0.99, 1000 * MS) <= 2
    assert result.work(0, 1000 * MS) >= 0.02


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_server_has_its_claim_beside_processes_that_seem_to_sleep(seed: int) -> None:
    """
    All seemed to sleep, so that a round of the runlist seemed to be short and was left to: a token
    of 1.5 ms took 10, and in a second it missed 12 points of 69.
    """
    arrivals = serving.arrivals(8, 10, seed)
    server = replace(serving.server(arrivals=arrivals), weight=9, fetched_ns=1, uncapped=True)
    many = Tenant(groups=4, weight=4, fetched_ns=5 * MS, uncapped=True)
    pair = Scenario((server, many), policy=serving.FAIR, duration_ns=10_000 * MS, seed=seed)
    assert max(mixes.shortfalls(run(pair))) <= 1


@pytest.mark.parametrize(
    ("processes", "pause_ns", "weight"),
    (
        (Tenant("bursty", groups=8, weight=9, on_ns=20 * MS, off_ns=10 * MS), 100_000, 2),
        (Tenant("bursty", groups=2, weight=3, on_ns=100 * MS, off_ns=10 * MS), 5 * MS, 1),
        (Tenant(groups=8, weight=4, fetched_ns=5 * MS), 20 * MS, 1),
    ),
    ids=("trainer", "often", "now and then"),
)
@pytest.mark.parametrize("seed", range(1, 6))
def test_one_is_waited_for_to_the_end_of_its_work_beside_several_processes(
    processes: Tenant, pause_ns: int, weight: int, seed: int
) -> None:
    """
    It slept, by GP_PUT, in the middle of its 5 ms, had the rest of them in the slices of long
    rounds, and missed 9 to 14 points of 18 to 25.
    """
    one = serving.server(arrivals=(), off_ns=pause_ns, steps=1, step_ns=5 * MS)
    tenants = (
        replace(processes, uncapped=True),
        replace(one, weight=weight, fetched_ns=1, uncapped=True),
    )
    pair = Scenario(tenants, policy=serving.FAIR, duration_ns=10_000 * MS, seed=seed)
    assert max(mixes.shortfalls(run(pair))) <= 3


def test_one_that_launches_small_kernels_has_its_part_beside_several_processes() -> None:
    """It seemed as fast beside them as alone, and was left to the runlist: 11 % of its half."""
    eager = serving.eager(arrivals=(), off_ns=0, fetched_ns=1)
    result = run(Scenario((eager, Tenant(groups=3)), policy=serving.FAIR, duration_ns=6000 * MS))
    assert result.work(0, 1000 * MS) >= 0.3


#: Pauses for as long as it is there, a second.
GUEST = Tenant("bursty", on_ns=3 * MS, off_ns=10 * MS, close_ns=1000 * MS)


@pytest.mark.parametrize(
    "groups", ((8, 1), (4, 1), (8, 8), (4, 1, 1), (4, 4, 4), (4,) + (1,) * 7), ids=str
)
def test_each_process_of_a_container_has_its_part_on_demand(groups: tuple[int, ...]) -> None:
    """
    A turn ended before the runlist had come to the last of them: of four processes in each of three
    containers it did a twentieth of what the first did.
    """
    tenants = tuple(replace(FETCHED, groups=count) for count in groups)
    scenario = Scenario((*tenants, GUEST), policy=serving.FAIR, duration_ns=8000 * MS)
    parts = []
    for seed in range(1, 9):
        result = run(scenario, seed=seed)
        for i, count in enumerate(groups):
            parts.append(result.slowest[i] * count / sum(result.useful[i]))
    assert sum(parts) / len(parts) >= 0.65
    # by the seed 0.6 to 0.8 of three times four, and of one of four beside two others
    assert min(parts) >= 0.58


@pytest.mark.parametrize("groups", (3, 4, 6))
def test_one_whose_processes_pause_by_turns_has_its_share(groups: int) -> None:
    """It is hardly ever without anything queued, and loses slices all the same."""
    bursty = Tenant("bursty", groups=groups, weight=4, on_ns=5 * MS, off_ns=2 * MS, uncapped=True)
    pair = Scenario((Tenant(uncapped=True), bursty), policy=serving.FAIR, duration_ns=8000 * MS)
    assert min(run(pair).shares(1, 1000 * MS, 2000 * MS)) >= 0.8 - 0.05


@pytest.mark.parametrize("fetched_ms", (1, 5))
@pytest.mark.parametrize("count", (8, 12, 16))
def test_many_whose_work_is_all_fetched_are_found_to_work_after_a_guest(
    count: int, fetched_ms: int
) -> None:
    """
    Twelve could go on at 91 % of one for good: all seemed to sleep, and the runlist had them take
    turns of 2 ms. What one of many runs in its sleep leaked away as fast as it ran, and whose turn
    it was had "no work" while other sleepers had theirs. On an H100 they did 91.5 % for the eight
    seconds in which slices are not tried again, in turns of 3 ms.
    """
    tenants = (replace(FETCHED, fetched_ns=fetched_ms * MS),) * count
    result = run(Scenario((*tenants, GUEST), policy=serving.FAIR, duration_ns=18_000 * MS))
    assert sum(result.work(i, 15_000 * MS) for i in range(count)) >= 0.955
    second = slice(2000 * MS // result.scenario.bin_ns, 8000 * MS // result.scenario.bin_ns)
    done_ns = sum(sum(row[second]) for row in result.useful[:count])
    assert done_ns >= 0.95 * 6000 * MS


def test_one_of_many_processes_is_not_taken_to_sleep_between_those_that_are_looked_at() -> None:
    """
    Beside a tenant of eight processes one had 53.9 % on an H100 (here 52.5): of the channels that
    move the first six were read in each look, and what the others ran was no work.
    """
    many = replace(FETCHED, groups=8)
    tenants = (many, FETCHED, GUEST)
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=8000 * MS))
    for share in result.shares(1, 1000 * MS, 1500 * MS):
        assert share <= 0.51
    assert result.work(1, 1500 * MS) <= 0.5


@pytest.mark.parametrize("fetched_ns", (0, 1))
@pytest.mark.parametrize("channels", (20, 128))
def test_one_that_wakes_by_the_thousand_is_served_whatever_its_other_channels_did_once(
    channels: int, fetched_ns: int
) -> None:
    """
    On an H100 it waited 2.3 ms for each kernel of microseconds, and its neighbour had 74 % of the
    card: all 128 channels had moved when its context was made, so that the one in use was hardly
    ever read.
    """
    waker = loop(5_000, 20_000, channels=channels, made_ns=400 * MS, fetched_ns=fetched_ns)
    for neighbour in (serving.trainer(channels=8), FETCHED):
        tenants = (waker, neighbour)
        result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=8000 * MS))
        found = slice(3000 * MS // result.scenario.bin_ns, None)
        row = result.useful[1][found]
        assert sum(row) / len(row) / result.scenario.bin_ns == pytest.approx(0.5, abs=0.02)


#: Those that always have a request, that ask for 5 ms now and then, and whose graphs are long.
ALWAYS = serving.server(arrivals=(), off_ns=0)
NOW_AND_THEN = serving.server(arrivals=(), off_ns=20 * MS, steps=1, step_ns=5 * MS)
GRAPHS = Tenant(uncapped=True, fetched_ns=20 * MS)

#: Kernels of tens of milliseconds, or graphs of them: GP_PUT stands still while they run.
LONG_MS = (10, 20, 100)


@pytest.mark.parametrize("fetched_ms", LONG_MS)
def test_one_with_a_quota_whose_work_outlasts_every_patience_has_its_quota(fetched_ms: int) -> None:
    """It had 27 % of 30, and 13 to 24 in its worst second. Slices of 2 ms cost it one point."""
    trainer = serving.trainer()
    long = replace(trainer, fetched_ns=fetched_ms * MS, quota=30, uncapped=False)
    result = run(Scenario((long, trainer), policy=serving.FAIR, duration_ns=12_000 * MS))
    assert result.work(0, 1000 * MS) >= 0.28
    # what it spent at once in its first second comes back as it was spent: 26.4 since it keeps its
    # claim where it was charged
    assert min(result.shares(0, 1000 * MS, 2000 * MS)) >= 0.26


@pytest.mark.parametrize("fetched_ms", LONG_MS[1:])
def test_a_server_beside_work_that_outlasts_every_patience_has_its_half(fetched_ms: int) -> None:
    """As each sleep that was none gave the trainer a claim; 48.3 and 49.4 % by now."""
    always = serving.server(arrivals=(), off_ns=0)
    long = serving.trainer(fetched_ns=fetched_ms * MS)
    result = run(Scenario((always, long), policy=serving.FAIR, duration_ns=12_000 * MS))
    token = always.step_ns / (always.step_ns + 4 * always.host_ns / 3)
    a, b = result.work(0, 1000 * MS) / token, result.work(1, 1000 * MS)
    assert a / (a + b) == pytest.approx(0.5, abs=0.018)


def test_switches_among_a_neighbours_processes_are_not_charged_to_one_in_doubt() -> None:
    """It missed 1.7 to 2.0 points: what they took was held in its turn, and run by nobody."""
    trainer = replace(loop(20 * MS, 300_000), weight=2, uncapped=True)
    tenants = (trainer, replace(ALWAYS, weight=6, uncapped=True), replace(GRAPHS, groups=8))
    three = Scenario(tenants, policy=serving.FAIR, duration_ns=8000 * MS)
    missed = [max(mixes.shortfalls(run(three, seed=seed))) for seed in range(1, 10)]
    assert statistics.median(missed) <= 1.3
    assert max(missed) <= 1.8


@pytest.mark.parametrize(("step_ms", "weight"), ((40, 1), (30, 2), (60, 2)))
def test_a_loop_that_loses_little_of_its_slices_has_its_share(step_ms: int, weight: int) -> None:
    """
    A step, and a pause of 0.1 ms, beside a trainer: it lost the rest of its slice, the round was
    the shorter for it, and what it made of its slices more than nine tenths. It had 48.3 % for 50
    and 62.8 for 67.
    """
    step = replace(loop(step_ms * MS, 100_000), weight=weight)
    result = run(replace(serving.pair(seconds=20), tenants=(step, serving.trainer())))
    held = [sum(result.held[i][400:]) for i in (0, 1)]
    assert held[0] / sum(held) == pytest.approx(weight / (weight + 1), abs=0.013)


def test_who_seemed_to_sleep_under_slices_has_no_claim_for_that() -> None:
    """Nothing is queued of the second, and under slices it ran all the while: it had 0.35 s."""
    step = replace(loop(60 * MS, 300_000), weight=4)
    tenants = (step, Tenant(fetched_ns=5 * MS, weight=2, uncapped=True))
    both = replace(serving.pair(seconds=12), tenants=tenants, seed=121)
    assert max(mixes.shortfalls(run(both))) <= 3.5


@pytest.mark.parametrize("gap_ms", (20, 40, 100))
@pytest.mark.parametrize("fetched_ns", (0, 1))
def test_two_that_paused_for_long_and_work_now_are_found_to_work(
    fetched_ns: int, gap_ms: int
) -> None:
    """
    Servers 1:3 had 50 % each on an H100. A token now and then had taught the engine that neither
    is worth waiting for; then both always had a request, and took turns at tokens by the runlist.
    The card had fetched what they submitted, so that nothing was seen queued, and looks at those
    who seem to sleep were too rare to see how close the submissions came.
    """
    burst = (3000 * MS,) * 3000
    tenants = tuple(
        serving.server(
            arrivals=(*range(0, 3000 * MS, gap_ms * MS), *burst),
            steps=1,
            weight=weight,
            channels=12,
            fetched_ns=fetched_ns,
        )
        for weight in (1, 3)
    )
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=7000 * MS))
    a, b = (result.work(i, 4000 * MS) for i in (0, 1))
    assert b / (a + b) == pytest.approx(0.75, abs=0.015)


@pytest.mark.parametrize(
    ("servers", "rate", "trainers", "wait_ms", "token_ms"),
    ((2, 1, 1, 1.2, 4), (2, 2, 1, 1.2, 11), (12, 0.25, 2, 1.3, 11), (12, 0.5, 2, 1.8, 20)),
)
def test_servers_beside_trainers_have_what_they_ask_for_and_wait_for_each_other_by_turns(
    servers: int, rate: float, trainers: int, wait_ms: float, token_ms: float
) -> None:
    seconds = 20
    tenants = [
        serving.server(arrivals=serving.arrivals(rate, seconds, seed)) for seed in range(servers)
    ]
    whole = replace(
        serving.pair(seconds=seconds), tenants=(*tenants, *[serving.trainer()] * trainers)
    )
    result = run(whole)
    waits: list[float] = []
    tokens: list[float] = []
    for i, tenant in enumerate(tenants):
        alone = run(replace(whole, tenants=(tenant,)))
        assert result.work(i) == pytest.approx(alone.work(0), rel=0.05)
        assert result.percentile(i, "step", 0.5) <= 1.1 * alone.percentile(0, "step", 0.5)
        waits += result.times(i, "wait", FOUND_NS)
        tokens += result.times(i, "step", FOUND_NS)
    # nine in ten wait for the look and the preemption; the rest for another who has a claim, too
    assert sorted(waits)[len(waits) * 9 // 10] <= wait_ms
    assert sorted(tokens)[len(tokens) * 99 // 100] <= token_ms
    shares = [result.work(servers + i) for i in range(trainers)]
    assert max(shares) - min(shares) <= 0.01
    assert result.efficiency() >= 0.94


def test_what_twelve_servers_leave_is_two_trainers() -> None:
    """The card idled for 14 % of the time: turns ended before a sleeper was found."""
    servers = tuple(
        serving.server(12, arrivals=serving.arrivals(0.5, 12, seed)) for seed in range(1, 13)
    )
    tenants = (*servers, serving.trainer(), serving.trainer())
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=12_000 * MS))
    assert result.cards[0]["idle_waiting_ns"] <= 0.028 * result.scenario.duration_ns
    for trainer in (12, 13):
        assert result.work(trainer, 1000 * MS) >= 0.31


@pytest.mark.parametrize("trainers", (1, 2, 3))
def test_one_that_wakes_for_a_moment_does_not_hold_the_card_for_its_share(trainers: int) -> None:
    """Twelve want 1 ms every 40: the card idled for 43 % of the time beside two trainers."""
    now_and_then = serving.server(arrivals=(), off_ns=40 * MS, steps=1, step_ns=MS)
    tenants = (now_and_then,) * 12 + (serving.trainer(),) * trainers
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=12_000 * MS))
    assert result.cards[0]["idle_waiting_ns"] <= 0.025 * result.scenario.duration_ns
    for trainer in range(12, 12 + trainers):
        assert result.work(trainer, 1000 * MS) >= 0.51 / trainers
    assert sum(result.work(i, 1000 * MS) for i in range(12)) >= 0.27
    assert result.percentile(0, "wait", 0.5) <= 1.5


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_who_always_has_work_gets_its_share_of_a_second_in_any_mix(seed: int) -> None:
    """Of 2623 tenants three missed more than 1.5 points, the worst 5.0."""
    assert max(mixes.shortfalls(run(mixes.mix(seed))), default=0) <= 8


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_who_always_has_work_gets_its_share_where_nothing_is_seen_queued(seed: int) -> None:
    """Of these three missed more than 1.5 points, the worst 4.8; 32 of 866 had, the worst 51.6."""
    assert max(mixes.shortfalls(run(mixes.mix(seed, fetched=True))), default=0) <= 10


@pytest.mark.parametrize("seed", (55, 85, 86, 90, 102, 108, 133, 138))
def test_those_who_seem_to_sleep_by_turns_have_their_shares(seed: int) -> None:
    """They missed 26 to 52 points: in slices of half a period all of them seemed to sleep."""
    assert max(mixes.shortfalls(run(mixes.mix(seed, fetched=True))), default=0) <= 1.5


@pytest.mark.parametrize(
    ("tenants", "bound"),
    [
        # it slept after each piece by what is seen, and ran: the other missed 10 points
        pytest.param((loop(5 * MS, 100_000), ALWAYS), 0.5, id="5 ms beside one that always asks"),
        # all slept by what is seen, and the runlist divided the card by equal slices: 26, 37, 6
        pytest.param(
            (loop(20 * MS, 3 * MS), replace(loop(200 * MS, 100_000), weight=2)),
            0.5,
            id="20 ms, 200 ms",
        ),
        pytest.param(
            (replace(NOW_AND_THEN, weight=2), loop(200 * MS, 3 * MS)),
            5,
            id="5 ms at times, 200 ms",
        ),
        pytest.param((GRAPHS, loop(50 * MS, 10 * MS)), 0.5, id="graphs of 20 ms, 50 ms"),
        # under slices it slept by what is seen, and had a claim to a second: 5
        pytest.param((Tenant(uncapped=True), loop(50 * MS, 3 * MS)), 0.5, id="50 ms"),
        # each trial of slices cost it 30 ms: 1.1 to 1.3
        pytest.param((FETCHED, ALWAYS), 0.5, id="slices are tried"),
        # it was put to sleep in the middle of its work, and never loaded again: 22
        pytest.param(
            (
                replace(FETCHED, weight=4),
                GRAPHS,
                Tenant("bursty", on_ns=100 * MS, off_ns=50 * MS, uncapped=True),
                FETCHED,
                replace(loop(20 * MS, 10 * MS), weight=4),
            ),
            3,
            id="five",
        ),
    ],
)
@pytest.mark.parametrize("seed", (1, 3))
def test_who_works_for_long_without_a_submission_is_heeded(
    tenants: tuple[Tenant, ...], bound: float, seed: int
) -> None:
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=10_000 * MS, seed=seed))
    assert max(mixes.shortfalls(result)) <= bound


def test_one_that_its_processor_holds_up_gets_what_it_can_use_beside_long_graphs() -> None:
    """The runlist divides the card between them, by slices of equal length."""
    eager = serving.eager(arrivals=(), off_ns=200 * MS)
    pair = (Tenant(fetched_ns=20 * MS, uncapped=True), replace(eager, uncapped=True))
    result = run(Scenario(pair, policy=serving.FAIR, duration_ns=10_000 * MS))
    assert max(mixes.shortfalls(result)) <= 2


def test_a_tenants_shortfall_is_what_it_missed_of_its_share() -> None:
    """Slices divide the card by length: 1 to 3 where the weights are equal."""
    pair = tuple(Tenant(slice_us=1000 * ms) for ms in (3, 9))
    result = run(Scenario(pair, controller="slices", policy=serving.FAIR))
    assert list(mixes.shortfalls(result)) == [pytest.approx(25, abs=1.5), 0]


@pytest.mark.parametrize("neighbour", (FETCHED, Tenant(uncapped=True)), ids=("fetched", "queued"))
def test_slices_are_tried_less_and_less_where_they_do_not_do(neighbour: Tenant) -> None:
    always = serving.server(arrivals=(), off_ns=0)
    result = run(Scenario((always, neighbour), policy=serving.FAIR, duration_ns=60_000 * MS))
    # a token waits for a slice of 12 ms only while slices are tried
    token = always.step_ns + 4 * always.host_ns / 3
    assert result.work(0, 1000 * MS) * token / always.step_ns == pytest.approx(0.49, abs=0.015)


def test_looks_cost_little_and_only_while_somebody_pauses() -> None:
    pausing = run(serving.pair(seconds=10))
    assert pausing.cards[0]["read_ns"] <= 0.03 * pausing.scenario.duration_ns
    server = serving.server(arrivals=(300 * MS,))
    resting = run(beside(server))
    assert resting.cards[0]["reads"] <= 0.5 * pausing.cards[0]["reads"]
    assert resting.cards[0]["samples"] <= 25 * 10
    # who sleeps and who works are looked at by one wake-up of the caller's, 50 a second
    longer = run(beside(server, 20))
    assert longer.cards[0]["demand_looks"] - resting.cards[0]["demand_looks"] <= 51 * 10
    busy = run(beside(Tenant(uncapped=True)))
    assert busy.cards[0]["read_ns"] <= 0.005 * busy.scenario.duration_ns
    assert busy.cards[0]["gate_calls"] == 0
    # nobody has begun to pause for two seconds: 100 a second, and 25 from then on
    first, steady = (run(beside(Tenant(uncapped=True), s)).cards[0] for s in (2, 4))
    assert 99 * 2 <= first["demand_looks"] <= 101 * 2
    assert busy.cards[0]["demand_looks"] - steady["demand_looks"] <= 26 * 6
    # of one whose work is all fetched none can tell
    first, longest = (run(beside(FETCHED, s)).cards[0] for s in (4, 10))
    assert longest["demand_looks"] - first["demand_looks"] >= 99 * 6


@pytest.mark.parametrize(
    ("step_ms", "host_us"), ((200, 3000), (200, 10_000), (50, 1000), (20, 100))
)
@pytest.mark.parametrize("rate", (6, 8))
def test_requests_beside_steps_of_one_submission_have_their_share(
    rate: float, step_ms: int, host_us: int
) -> None:
    """By GP_PUT the neighbour slept and nobody was charged for its work: they missed 2 to 48."""
    neighbour = loop(step_ms * MS, host_us * 1000, uncapped=True)
    for seed in range(1, 9):
        server = serving.server(arrivals=serving.arrivals(rate, 10, seed))
        pair = Scenario((server, neighbour), serving.FAIR, duration_ns=10_000 * MS, seed=seed)
        theirs, others = mixes.misses(run(pair), 25 * MS)
        assert max(theirs) <= 0.5
        assert max(others) <= 1


def test_requests_beside_steps_of_one_submission_wait_as_beside_a_trainer() -> None:
    """Others had a debt for what it ran unseen, and it a claim: 389 to 785 ms of 90 to 132."""
    pairs = []
    for seed in (2, 3, 5):
        server = serving.server(arrivals=serving.arrivals(4, 20, seed))
        pair = Scenario(
            (server, loop(200 * MS, 10 * MS, uncapped=True)),
            policy=serving.FAIR,
            duration_ns=20_000 * MS,
            seed=seed,
        )
        trained = replace(pair, tenants=(server, Tenant(uncapped=True)))
        pairs.append(
            [run(one).percentile(0, "request", 0.99, 3000 * MS) for one in (pair, trained)]
        )
    assert all(beside <= 1.15 * trainer for beside, trainer in pairs), pairs


@pytest.mark.parametrize("seed", (6, 138, 199, 372))
def test_who_seems_to_sleep_in_anothers_turn_keeps_its_claim(seed: int) -> None:
    """Its work ran on beside the other, was charged, and it lost its claim: 2.3 to 7.3 points."""
    rows = mixes.misses(run(mixes.mix(seed)), 25 * MS)
    assert max(max(row) for row in rows) <= 1.2


@pytest.mark.parametrize("seed", range(1, 5))
def test_who_comes_to_those_who_have_worked_for_long_is_found_to_pause_soon(seed: int) -> None:
    comes_ns = 5000 * MS
    times = tuple(comes_ns + at for at in serving.arrivals(50, 3, seed))
    comer = Tenant("server", step_ns=MS, host_ns=40_000, uncapped=True, open_ns=comes_ns)
    tenants = (replace(comer, arrivals=times), *(Tenant(uncapped=True) for _ in range(3)))
    result = run(Scenario(tenants, policy=serving.FAIR, duration_ns=comes_ns + 3000 * MS))
    waited = result.percentile(0, "wait", 0.95, comes_ns + 250 * MS)
    assert waited <= WAIT_MS + PREEMPTION_MS
