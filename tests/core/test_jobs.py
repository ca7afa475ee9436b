# SPDX-License-Identifier: MIT
"""Jobs over several cards, whose steps wait for the slowest card: what the model of cards makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pycgpu.simulate import Run, Scenario, Tenant, run
from pycgpu.simulate.scenario import MS

AVERAGE, FIXED, CONSERVING, ONLINE = 1, 3, 7, 9
#: The first seconds are no part of what is compared.
BEGUN_NS, DURATION_NS = 1_000 * MS, 4_000 * MS
HOST_NS = 50_000
#: What an H200 took for four products of 4096³ and of 8192³, and for reducing 64 and 256 MiB.
SHORT, LONG = (700_000, 300_000), (6_000_000, 1_400_000)


def job(number: int, step: tuple[int, int], cards: int = 2, **other: Any) -> tuple[Tenant, ...]:
    """One job: a server on each card, whose steps end together."""
    step_ns, reduce_ns = step
    return tuple(
        Tenant(
            "server",
            card=card,
            job=number,
            steps=1 << 30,
            step_ns=step_ns,
            reduce_ns=reduce_ns,
            host_ns=HOST_NS,
            **other,
        )
        for card in range(cards)
    )


def done(tenants: tuple[Tenant, ...], policy: int, **other: Any) -> Run:
    """Run them on two cards, of which each container would have half."""
    settings = {"cards": 2, "max_inst": 2, "duration_ns": DURATION_NS, **other}
    return run(Scenario(tenants, policy=policy, **settings))


def steps(found: Run, tenant: int) -> int:
    return len(found.times(tenant, "step", BEGUN_NS))


def parts(found: Run, step: tuple[int, int]) -> list[float]:
    """What each of two jobs does, in percent of what it does alone."""
    alone = steps(done(job(1, step), CONSERVING), 0)
    return [100 * steps(found, first) / alone for first in (0, 2)]


def test_a_step_takes_its_work_and_its_reduction() -> None:
    found = done(job(1, SHORT), CONSERVING)
    at_best = (DURATION_NS - BEGUN_NS) / (sum(SHORT) + HOST_NS)
    assert 0.9 * at_best < steps(found, 0) <= at_best
    assert steps(found, 0) == pytest.approx(steps(found, 1), abs=1)


def test_a_job_waits_for_the_card_on_which_it_has_less() -> None:
    """And keeps the other one busy meanwhile: its kernel polls."""
    beside = Tenant("backlogged", card=1)
    alone, slowed = (done((*job(1, LONG), *more), CONSERVING) for more in ((), (beside,)))
    assert 40 < 100 * steps(slowed, 0) / steps(alone, 0) < 50
    assert slowed.work(0, BEGUN_NS) > 0.95


@pytest.mark.parametrize("policy", [AVERAGE, FIXED, CONSERVING, ONLINE])
@pytest.mark.parametrize("step", [SHORT, LONG], ids=["short", "long"])
def test_windows_of_two_jobs_are_in_step_on_all_cards(policy: int, step: tuple[int, int]) -> None:
    both = (*job(1, step), *job(2, step))
    for late_ns in (0, 7 * MS, 15 * MS):
        opened = tuple(replace(one, open_ns=one.card * late_ns) for one in both)
        assert min(parts(done(opened, policy), step)) > 47, late_ns


def test_jobs_follow_each_other_in_the_same_order_on_each_card() -> None:
    """Whatever their slots there are, and with unequal weights, too."""
    first, second = job(1, SHORT), job(2, SHORT, weight=3)
    for crossed in (False, True):
        order = (second[1], first[1]) if crossed else (first[1], second[1])
        found = done((first[0], second[0], *order), CONSERVING)
        alone = steps(done(first, CONSERVING), 0)
        assert 100 * steps(found, 0) / alone > 23
        assert 100 * steps(found, 1) / alone > 72


def test_a_job_that_ends_leaves_the_cards_to_the_other() -> None:
    """Windows by the clock are for several that work."""
    first, second = job(1, SHORT), job(2, SHORT, close_ns=BEGUN_NS)
    found = done((*first, *second), CONSERVING)
    alone = done(first, CONSERVING)
    assert steps(found, 0) > 0.97 * steps(alone, 0)


def test_one_that_pauses_on_one_card_waits_no_longer_beside_two_jobs() -> None:
    """Than beside two whose steps wait for no other card: windows stay on demand for its sake."""
    server = Tenant("server", steps=32, step_ns=1_500_000, off_ns=250 * MS, host_ns=HOST_NS)
    jobs = (*job(1, LONG), *job(2, LONG))
    apart = tuple(replace(one, job=0, reduce_ns=0, step_ns=sum(LONG)) for one in jobs)
    beside_jobs, beside_any = (
        done((server, *more), CONSERVING, max_inst=3, duration_ns=2 * DURATION_NS)
        for more in (jobs, apart)
    )
    p99_ms = [found.percentile(0, "step", 0.99, BEGUN_NS) for found in (beside_jobs, beside_any)]
    assert p99_ms[0] < 1.1 * p99_ms[1]


@pytest.mark.parametrize("step", [SHORT, LONG], ids=["short", "long"])
def test_windows_are_in_step_again_when_the_one_that_paused_has_gone(step: tuple[int, int]) -> None:
    """On demand jobs wait for their other card, which must not keep windows on demand."""
    server = Tenant(
        "server", steps=32, step_ns=1_500_000, off_ns=50 * MS, host_ns=HOST_NS, close_ns=BEGUN_NS
    )
    found = done(
        (*job(1, step), *job(2, step), server), CONSERVING, max_inst=3, duration_ns=6_000 * MS
    )
    alone = done(job(1, step), CONSERVING, duration_ns=6_000 * MS)
    at = 2 * BEGUN_NS
    for first in (0, 2):
        assert len(found.times(first, "step", at)) > 0.47 * len(alone.times(0, "step", at))
