# SPDX-License-Identifier: MIT
"""Random mixes of tenants that pause, saturate and work for long; and what each missed.

What is promised: in each second in which a tenant always has work it gets its share, and what it
wanted where that is less. What it was ahead by when the second began counts: who wakes with a claim
has its share of a second at once, and waits afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from . import serving
from .scenario import MS, Run, Scenario, Tenant, entitlements

SECOND_NS = 1000 * MS
#: A bin, and a second, in which a tenant had work for so great a part of it, always had work: the
#: host's time between two tokens is no pause.
BUSY_BIN = 0.9
BUSY_SECOND = 0.98


def tenant(draw: random.Random, seconds: int) -> Tenant:
    """Return one that saturates, pauses or works for long, with requests for *seconds*."""
    kind = draw.randrange(8)
    if kind == 0:
        return Tenant()
    if kind == 1:
        return Tenant(fetched_ns=draw.choice((1, 5, 20)) * MS)
    if kind == 2:
        on_ms, off_ms = draw.choice((1, 3, 20, 100, 400)), draw.choice((2, 10, 50, 300))
        return Tenant("bursty", on_ns=on_ms * MS, off_ns=off_ms * MS)
    if kind == 3:
        rate, seed = draw.choice((0.5, 2, 4, 8)), draw.randrange(10**6)
        return serving.server(arrivals=serving.arrivals(rate, seconds, seed))
    if kind == 4:
        return serving.server(arrivals=(), off_ns=0)
    if kind == 5:
        step_ms, host_us = draw.choice((5, 20, 50, 200)), draw.choice((100, 1000, 3000, 10_000))
        loop = serving.server(arrivals=(), off_ns=0, steps=1, host_ns=host_us * 1000)
        return replace(loop, step_ns=step_ms * MS)
    if kind == 6:
        off_ms, step_ms = draw.choice((20, 40, 100)), draw.choice((1, 2, 5))
        return serving.server(arrivals=(), off_ns=off_ms * MS, steps=1, step_ns=step_ms * MS)
    return serving.eager(arrivals=(), off_ns=draw.choice((0, 200 * MS)))


def mix(seed: int, seconds: int = 10, *, fetched: bool = False) -> Scenario:
    """
    Return the mix of that number: two to seven tenants of weights 1 to 4.

    Args:
        fetched: of what those submit who wait for their results nothing is seen queued.
    """
    draw = random.Random(seed)
    tenants = tuple(
        replace(tenant(draw, seconds), weight=draw.choice((1, 1, 1, 2, 3, 4)), uncapped=True)
        for _ in range(draw.randint(2, 7))
    )
    if fetched:
        tenants = tuple(replace(t, fetched_ns=1) if t.kind == "server" else t for t in tenants)
    return Scenario(tenants, policy=serving.FAIR, duration_ns=seconds * SECOND_NS, seed=seed + 1)


def _own(tenant: Tenant) -> float:
    """Return the part of its own turns in which a tenant keeps the card busy."""
    if tenant.kind != "server":
        return 1.0
    step_ns = max(tenant.step_ns, tenant.pieces * tenant.launch_ns)
    return tenant.step_ns / (step_ns + 4 / 3 * tenant.host_ns)


def shortfalls(result: Run) -> Iterator[float]:
    """Yield, for each tenant that had work, points of the card it missed in its worst second."""
    scenario = result.scenario
    bin_ns = scenario.bin_ns
    width = SECOND_NS // bin_ns
    seconds = scenario.duration_ns // SECOND_NS
    for i, (tenant, given) in enumerate(zip(scenario.tenants, entitlements(scenario), strict=True)):
        share = given.share * _own(tenant)
        held, backlog = result.held[i], result.backlog[i]
        # what is lost to switching is everybody's
        due = [
            share * work * (1 - lost / bin_ns)
            for work, lost in zip(backlog, result.lost[0], strict=True)
        ]
        if not any(backlog[width:]):
            continue
        worst = 0.0
        for begin in range(width, seconds * width, width):
            end = begin + width
            whole_ns = sum(bin_ns - lost for lost in result.lost[0][begin:end])
            ahead_ns = most_ns = 0.0
            for at in range(begin - 1, begin - width - 1, -1):
                ahead_ns += held[at] - due[at]
                most_ns = max(most_ns, ahead_ns)
            if sum(backlog[begin:end]) >= BUSY_SECOND * SECOND_NS:
                missed = share - sum(held[begin:end]) / whole_ns
            else:
                missed = (sum(due[begin:end]) - sum(held[begin:end])) / whole_ns
                # no more than what was left undone
                left_ns = 0
                for at in range(end, min(len(held), end + width)):
                    if backlog[at] < BUSY_BIN * bin_ns:
                        break
                    left_ns += held[at]
                missed = min(missed, left_ns / SECOND_NS)
            worst = max(worst, 100 * (missed - most_ns / whole_ns))
        yield worst
