# SPDX-License-Identifier: MIT
"""Policy 9: whoever has the highest priority goes first, the others have the rest, and floors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Run, Scenario, Tenant, run, serving
from pycgpu.simulate.scenario import MS, Change

ONLINE = POLICIES.index("online")
SECOND_NS = 1000 * MS
#: By then it is found who pauses, and the first second's claims are over.
SETTLED_NS = 2 * SECOND_NS

SERVER = serving.server(12, priority=1)
ALWAYS = serving.server(arrivals=(), off_ns=0, priority=1)
BUSY = Tenant(uncapped=True, priority=1)
TRAINER = serving.trainer()


def under(*tenants: Tenant, policy: int = ONLINE) -> Run:
    pair = serving.pair(seconds=12)
    return run(replace(pair, tenants=tenants, policy=policy))


def least(result: Run, at: int) -> float:
    """Return the part of the card that a tenant had in its worst second."""
    return min(result.shares(at, SECOND_NS, SETTLED_NS))


def test_a_server_of_the_higher_priority_is_served_as_if_it_were_alone() -> None:
    alone = serving.seen(under(SERVER))
    drivers = serving.seen(run(serving.pair("slices", seconds=12)))
    ours = serving.seen(under(SERVER, TRAINER))
    for name, most in (("token_p50", 1.05), ("token_p99", 1.45), ("request_p99", 1.05)):
        assert getattr(ours, name) <= most * getattr(alone, name), name
    assert ours.trainer and drivers.trainer and ours.trainer >= drivers.trainer


def test_it_is_not_held_back_by_its_share_of_a_second() -> None:
    """Under 7 a server that wants more than its half takes turns from there on."""
    fair = serving.seen(under(replace(SERVER, priority=0), TRAINER, policy=serving.FAIR))
    online = serving.seen(under(SERVER, TRAINER))
    assert online.request_p99 and fair.request_p99
    assert online.request_p99 < 0.6 * fair.request_p99


@pytest.mark.parametrize("first", (ALWAYS, BUSY), ids=("always a request", "always queued"))
def test_below_one_that_always_has_work_nothing_is_left(first: Tenant) -> None:
    alone, both = under(first), under(first, TRAINER)
    assert both.work(0, SETTLED_NS) == pytest.approx(alone.work(0, SETTLED_NS), abs=0.01)
    assert both.work(1, SETTLED_NS) == 0


@pytest.mark.parametrize("floor", (5, 10, 20, 50))
@pytest.mark.parametrize("first", (ALWAYS, BUSY), ids=("always a request", "always queued"))
def test_a_floor_is_kept_in_every_second_and_costs_no_more(first: Tenant, floor: int) -> None:
    both = under(first, replace(TRAINER, quota_min=floor))
    assert least(both, 1) >= floor / 100 - 0.02
    assert max(both.shares(1, SECOND_NS, SETTLED_NS)) <= floor / 100 + 0.03
    # what the hand-overs take is the others'
    assert least(both, 0) >= under(first).work(0, SETTLED_NS) - floor / 100 - 0.045


@pytest.mark.parametrize("floor", (10, 30))
@pytest.mark.parametrize(
    "first",
    (
        pytest.param((BUSY,), id="one"),
        pytest.param((Tenant(priority=1, groups=3, fetched_ns=5 * MS, uncapped=True),), id="three"),
        pytest.param((BUSY, serving.eager(arrivals=(), off_ns=0, priority=1)), id="and another"),
    ),
)
def test_one_that_its_processor_holds_up_has_its_floor(
    first: tuple[Tenant, ...], floor: int
) -> None:
    """It runs beside nobody of a higher class: what it had not had was passed on all the same."""
    low = serving.eager(arrivals=(), off_ns=0, quota_min=floor)
    alone = under(replace(low, quota_min=0)).work(0, SETTLED_NS)
    assert under(*first, low).work(len(first), SETTLED_NS) >= 0.85 * alone * floor / 100


def test_a_floor_costs_a_server_nothing_that_leaves_more() -> None:
    with_floor, without = (
        serving.seen(under(SERVER, replace(TRAINER, quota_min=floor))) for floor in (20, 0)
    )
    assert with_floor == without


def test_every_class_goes_before_those_below_it() -> None:
    first, second = replace(SERVER, priority=7), replace(TRAINER, priority=1)
    both = under(first, second, TRAINER)
    assert serving.seen(both).request_p99 == pytest.approx(
        serving.seen(under(first)).request_p99, rel=0.05
    )
    assert both.work(1, SETTLED_NS) > 0.75
    assert both.work(2, SETTLED_NS) == 0


def test_floors_of_several_classes_are_kept() -> None:
    both = under(
        replace(ALWAYS, priority=2),
        replace(TRAINER, priority=1, quota_min=20),
        replace(TRAINER, quota_min=10),
    )
    assert least(both, 1) >= 0.185
    assert least(both, 2) >= 0.085


def test_within_a_class_it_goes_by_weight() -> None:
    both = under(BUSY, replace(BUSY, weight=3), TRAINER)
    assert least(both, 1) >= 0.72
    assert both.work(0, SETTLED_NS) == pytest.approx(0.25, abs=0.015)
    assert both.work(2, SETTLED_NS) == 0


def test_of_one_class_all_are_served_as_under_7() -> None:
    tenants = (replace(SERVER, priority=0), TRAINER)
    online, fair = (serving.seen(under(*tenants, policy=p)) for p in (ONLINE, serving.FAIR))
    assert online == fair


@pytest.mark.parametrize(
    "low",
    [
        pytest.param(Tenant("spinner"), id="GP_PUT spins"),
        pytest.param(Tenant("frozen"), id="GP_PUT stands beside GP_GET"),
        pytest.param(
            serving.server(arrivals=(), off_ns=5 * MS, steps=1, step_ns=MS), id="wakes often"
        ),
        pytest.param(
            serving.server(arrivals=(), off_ns=0, steps=1, step_ns=50_000, host_ns=2_500_000),
            id="waits for small kernels",
        ),
        pytest.param(serving.eager(arrivals=(), off_ns=0), id="held up by its processor"),
    ],
)
def test_one_below_cannot_take_time_by_how_it_pauses(low: Tenant) -> None:
    assert least(under(BUSY, replace(low, priority=0)), 0) >= 0.985
    alone, both = serving.seen(under(SERVER)), serving.seen(under(SERVER, replace(low, priority=0)))
    assert both.request_p99 and alone.request_p99
    assert both.request_p99 <= 1.05 * alone.request_p99


def test_nothing_is_saved_up_below_for_another_policy() -> None:
    change = Change(6000 * MS, serving.FAIR, 1, 1)
    tenants = (BUSY, replace(TRAINER, priority=1))
    before = (tenants[0], replace(TRAINER, priority=0))
    result = run(Scenario(before, policy=ONLINE, changes=(change,), duration_ns=12_000 * MS))
    assert max(result.shares(1, SECOND_NS, 6000 * MS)) <= 0.36


def test_a_quota_of_one_changes_nothing_about_who_goes_first() -> None:
    capped = replace(BUSY, quota=40, uncapped=False)
    both = under(capped, TRAINER, replace(TRAINER, quota=10, uncapped=False))
    assert both.work(0, SETTLED_NS) == pytest.approx(0.4, abs=0.015)
    assert both.work(1, SETTLED_NS) > 0.4
    assert max(both.taken(2, SECOND_NS)) <= 0.11


def test_while_all_but_one_rest_looks_are_rarer_though_a_class_above_may_wake() -> None:
    server = serving.server(arrivals=(100 * MS,), priority=1)
    looks = [
        run(
            Scenario((server, serving.trainer()), policy=ONLINE, duration_ns=seconds * 1000 * MS)
        ).cards[0]["demand_looks"]
        for seconds in (2, 6)
    ]
    # who sleeps every 5 ms, who works every 10
    assert (looks[1] - looks[0]) / 4 <= 210
