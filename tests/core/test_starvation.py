# SPDX-License-Identifier: MIT
"""Nobody who has work all the while is left without the card, whatever the others are like."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Scenario, Tenant, mixes, run
from pycgpu.simulate.scenario import MS, Run, entitlements

SECONDS = 8
SPAN_NS = 2000 * MS
#: Of what is due over SPAN_NS. Who wakes is charged for what it holds the card for, and one whose
#: share is 4 % can have half of it for a while.
LEAST = 0.4


def _tenant(draw: random.Random) -> Tenant:
    """As in the other mixes, or one of several processes, or with nothing to be seen queued."""
    kind = draw.randrange(8)
    if kind == 0:
        return Tenant(groups=draw.choice((2, 3, 4, 8)), fetched_ns=draw.choice((0, 1, 5)) * MS)
    if kind == 1:
        on_ms, off_ms = draw.choice((5, 20, 100)), draw.choice((2, 10, 50))
        return Tenant("bursty", groups=draw.choice((2, 4, 8)), on_ns=on_ms * MS, off_ns=off_ms * MS)
    if kind == 2:
        return Tenant(fetched_ns=draw.choice((50, 100)) * MS)
    return mixes.tenant(draw, SECONDS)


def _mix(seed: int, policy: int) -> Scenario:
    draw = random.Random(f"{seed}-{policy}")
    tenants = []
    for _ in range(draw.randint(2, 6)):
        tenant = replace(_tenant(draw), weight=draw.choice((1, 1, 2, 3, 6)))
        if draw.random() < 0.4:
            tenant = replace(tenant, quota=draw.choice((10, 20, 30, 50)))
        if tenant.kind == "server" and draw.random() < 0.5:
            tenant = replace(tenant, fetched_ns=1)
        tenants.append(tenant)
    return Scenario(tuple(tenants), policy=policy, duration_ns=SECONDS * 1000 * MS, seed=seed + 1)


def _least(result: Run) -> Iterator[float]:
    """For each tenant the least part of its share that it held of a span in which it had work."""
    bin_ns = result.scenario.bin_ns
    width = SPAN_NS // bin_ns
    for tenant, due in enumerate(entitlements(result.scenario)):
        held, backlog = result.held[tenant], result.backlog[tenant]
        worst = 1.0
        for at in range(1000 * MS // bin_ns, len(held) - width, width // 10):
            span = slice(at, at + width)
            if due.share and sum(backlog[span]) >= 0.98 * SPAN_NS:
                worst = min(worst, sum(held[span]) / (due.share * SPAN_NS))
        yield worst


@pytest.mark.parametrize("policy", ("mixed", "weighted-conserving", "burst"))
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_nobody_who_has_work_is_starved(policy: str, first: int) -> None:
    """In such mixes one in forty had nothing for seconds: its gate was shut for good."""
    for seed in range(first, first + 20):
        result = run(_mix(seed, POLICIES.index(policy)))
        assert min(_least(result)) >= LEAST, seed


def test_what_was_run_while_all_seemed_to_sleep_is_owed_to_nobody() -> None:
    """
    Its debts for that grew for seconds, and once who had slept woke it was due all of them: one at
    work of 100 ms had nothing for four seconds, beside a card that was idle for most of them.
    """
    often = Tenant("bursty", groups=8, weight=9, on_ns=MS, off_ns=50 * MS, uncapped=True)
    tenants = (often, Tenant(fetched_ns=100 * MS, uncapped=True))
    for seed in range(1, 13):
        result = run(Scenario(tenants, POLICIES.index("burst"), duration_ns=10_000 * MS, seed=seed))
        assert min(_least(result)) >= LEAST, seed
