# SPDX-License-Identifier: MIT
"""Random mixes of tenants that pause, saturate and work for long; and how much each missed.

The promise: in each second in which a tenant always has work it gets its share, otherwise its
demand if that is less. Its lead at the beginning of the second counts, up to a claim: a tenant that
wakes with a claim gets its share of a second at once, and waits afterwards.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from . import serving
from .scenario import MS, Run, Scenario, Tenant, entitlements

SECOND_NS = 1000 * MS
#: The part of a bin, and of a second, from which on a tenant counts as always having work: the
#: host's time between two tokens is no pause.
BUSY_BIN = 0.9
BUSY_SECOND = 0.98


def tenant(draw: random.Random, seconds: int) -> Tenant:
    """Return a tenant that saturates, pauses or works for long, with requests for *seconds*."""
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
    Return the mix of that seed: two to seven tenants of weights 1 to 4.

    Args:
        fetched: work of tenants that wait for their results is never seen in the queue.
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


def _sums(row: Sequence[float]) -> list[float]:
    """Return the cumulative sums of a row's bins."""
    return [0, *accumulate(row)]


def misses(result: Run, every_ns: int) -> Iterator[list[float]]:
    """
    Yield, for each tenant that had work, points of the card that it missed in each second.

    Args:
        every_ns: the distance at which seconds begin, the first a second after the start.
    """
    scenario = result.scenario
    bin_ns = scenario.bin_ns
    width, bins = SECOND_NS // bin_ns, len(result.lost[0])
    shares = entitlements(scenario)
    # Switching first takes the unassigned part of the card, and then a part of every tenant's.
    lost = _sums(result.lost[0])
    nobodys = max(0.0, 1 - sum(given.share for given in shares))
    everybodys = max(0.0, 1 - nobodys * bins * bin_ns / lost[-1]) if lost[-1] else 0.0
    kept = [1 - everybodys * gone / bin_ns for gone in result.lost[0]]
    # a claim is to a share of a second, less half a period
    claim_ns = SECOND_NS - result.cards[0]["period_ns"] / 2
    for i, (tenant, given) in enumerate(zip(scenario.tenants, shares, strict=True)):
        share = given.share * _own(tenant)
        backlog = result.backlog[i]
        if not any(backlog[width:]):
            continue
        held, worked = _sums(result.held[i]), _sums(backlog)
        due = _sums([share * work * k for work, k in zip(backlog, kept, strict=True)])
        ahead = [a - b for a, b in zip(held, due, strict=True)]
        pauses = [at for at, work in enumerate(backlog) if work < BUSY_BIN * bin_ns]
        row = []
        for begin in range(width, bins - width + 1, every_ns // bin_ns):
            end = begin + width
            whole_ns = SECOND_NS - max(0, lost[end] - lost[begin] - nobodys * SECOND_NS)
            lead_ns = min(ahead[begin] - min(ahead[begin - width : begin + 1]), share * claim_ns)
            if worked[end] - worked[begin] >= BUSY_SECOND * SECOND_NS:
                missed_ns = share * whole_ns - (held[end] - held[begin]) - lead_ns
            else:
                missed_ns = ahead[begin] - ahead[end] - lead_ns
                after = bisect_left(pauses, end)
                # The tenant has got all that it asked for before the pause.
                if after and (last := pauses[after - 1]) > begin:
                    missed_ns = min(missed_ns, max(ahead[last : last + 2]) - ahead[end])
                # A miss is at most the work that was left undone.
                done = pauses[after] + 1 if after < len(pauses) else bins
                missed_ns = min(missed_ns, held[min(done, end + width)] - held[end])
            row.append(100 * missed_ns / whole_ns)
        yield row


def shortfalls(result: Run) -> Iterator[float]:
    """Yield, for each tenant that had work, points of the card it missed in its worst second."""
    for row in misses(result, SECOND_NS):
        yield max([0.0, *row])
