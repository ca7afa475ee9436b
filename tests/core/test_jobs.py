# SPDX-License-Identifier: MIT
"""Jobs over several cards, whose steps wait for the slowest card: what the model of cards makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pycgpu.simulate import Run, Scenario, Tenant, run
from pycgpu.simulate.scenario import MS

AVERAGE, FIXED, CONSERVING = 1, 3, 7
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


@pytest.mark.parametrize("policy", [AVERAGE, FIXED])
@pytest.mark.parametrize("step", [SHORT, LONG], ids=["short", "long"])
def test_by_the_clock_the_windows_of_all_cards_are_in_step(
    policy: int, step: tuple[int, int]
) -> None:
    both = (*job(1, step), *job(2, step))
    for late_ns in (0, 7 * MS, 15 * MS):
        opened = tuple(replace(one, open_ns=one.card * late_ns) for one in both)
        assert min(parts(done(opened, policy), step)) > 45, late_ns


def test_by_slices_the_cards_runlists_are_not_in_step() -> None:
    """Two jobs of short steps lose most of their time, as on two H200; those of long ones none."""
    short, long = (
        parts(done((*job(1, step), *job(2, step)), CONSERVING), step) for step in (SHORT, LONG)
    )
    assert max(short) < 40
    assert min(long) > 45
