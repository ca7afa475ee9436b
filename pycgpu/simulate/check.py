# SPDX-License-Identifier: MIT
"""
The engine's promises, checked in the model: every policy against a matrix of tenants.

Errors are in percentage points of the card. A share is time held over a window, without the time in
which the card switched between tenants beyond the card's unassigned part. ``efficiency`` counts
that time. Ceilings are compared with work alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pycgpu.request.model import POLICIES

from . import mixes
from .scenario import (
    LOGGED_EARLY_NS,
    MS,
    Controller,
    Run,
    Scenario,
    Tenant,
    entitlements,
    percentile,
    run,
)

PREEMPTIVE, NATIVE, MIXED, WEIGHTED_CONSERVING = map(
    POLICIES.index, ("preemptive", "native", "mixed", "weighted-conserving")
)
#: Policies that offer one container's idle time to others.
CONSERVING = tuple(
    POLICIES.index(n) for n in ("weak", "mixed", "weighted-conserving", "burst", "online")
)

#: Bounds. Over 100 ms a share a deviates by a(1 − a)·P/100 ms and a point, P the engine's period.
ERROR_1S = 0.5
CEILING_EXCESS = 1.0
JAIN = 0.9999
IDLE_RATIO = 0.02
#: With a tenant that pauses, windows are made on demand. A tenant that wakes has the card for a
#: while, so nothing is promised over 100 ms. Over a second every tenant gets its demand or its
#: share to within so many points, less its lead at the beginning. That holds for each second since
#: the start, and with the second bound for seconds that begin every ANY_NS.
PAUSING_SHORTFALL_1S = 1.0
PAUSING_SHORTFALL_ANY_1S = 1.5
ANY_NS = 25 * MS
#: A tenant that always has work misses no more of its share, whatever its lead. With other seeds
#: than those below it may be 5, if two tenants that wake within a second each spend a claim.
PAUSING_ERROR_1S = 2.0
PAUSING_JAIN = 0.9995
PAUSING_IDLE_RATIO = 0.03
#: A tenant that wakes with a claim waits so long, and for a preemption: 0.2 to 0.4 ms on cards.
WAIT_MS = 2.0
PREEMPTION_MS = 0.4
#: Wakeups are random, so a scenario with a tenant that pauses runs with so many seeds. Each policy
#: has other seeds, because several policies treat such a scenario alike.
SEEDS = 3
#: The number of random mixes, and bounds of a tenant's miss in a second, points of the card.
MIXES = 40
MIX_SHORTFALL_1S = 1.0
EFFICIENCY = {2: 0.98, 8: 0.97}

#: After the start, and after every change, shares are held to account from here on.
SETTLED_NS = 200 * MS
#: Slices divide the card until the engine finds that a tenant pauses.
FOUND_NS = 500 * MS


@dataclass(frozen=True)
class Verdict:
    """The worst that was seen in one or more runs; ``None`` where a measure does not apply."""

    error_1s: float | None = None
    #: as `mixes` has it: in whole seconds, and in any
    shortfall_1s: float | None = None
    shortfall_any_1s: float | None = None
    #: The error of the tenant that is closest to its bound.
    error_100ms: float | None = None
    bound_100ms: float | None = None
    ceiling_excess: float | None = None
    jain: float | None = None
    idle_ratio: float | None = None
    #: from a submission that ends a pause to its beginning, the 99th percentile
    wait_p99_ms: float | None = None
    #: A tenant pauses.
    on_demand: bool = False

    def worse(self, other: Verdict) -> Verdict:
        def pick(
            choose: Callable[[list[float]], float], a: float | None, b: float | None
        ) -> float | None:
            known = [x for x in (a, b) if x is not None]
            return choose(known) if known else None

        short = max(
            (v for v in (self, other) if v.error_100ms is not None),
            key=lambda v: (v.error_100ms or 0) - (v.bound_100ms or 0),
            default=self,
        )
        return Verdict(
            error_1s=pick(max, self.error_1s, other.error_1s),
            shortfall_1s=pick(max, self.shortfall_1s, other.shortfall_1s),
            shortfall_any_1s=pick(max, self.shortfall_any_1s, other.shortfall_any_1s),
            error_100ms=short.error_100ms,
            bound_100ms=short.bound_100ms,
            ceiling_excess=pick(max, self.ceiling_excess, other.ceiling_excess),
            jain=pick(min, self.jain, other.jain),
            idle_ratio=pick(max, self.idle_ratio, other.idle_ratio),
            wait_p99_ms=pick(max, self.wait_p99_ms, other.wait_p99_ms),
            on_demand=self.on_demand or other.on_demand,
        )

    def broken(self) -> list[str]:
        """Return the names of the measures that are out of bounds."""
        bad = []
        if self.error_1s is not None and self.error_1s > (
            PAUSING_ERROR_1S if self.on_demand else ERROR_1S
        ):
            bad.append("max_error_1s")
        if self.shortfall_1s is not None and self.shortfall_1s > PAUSING_SHORTFALL_1S:
            bad.append("shortfall_1s")
        if self.shortfall_any_1s is not None and self.shortfall_any_1s > PAUSING_SHORTFALL_ANY_1S:
            bad.append("shortfall_any_1s")
        if self.error_100ms is not None and self.error_100ms > (self.bound_100ms or 0):
            bad.append("max_error_100ms")
        if self.ceiling_excess is not None and self.ceiling_excess > CEILING_EXCESS:
            bad.append("ceiling_excess_max")
        if self.jain is not None and self.jain < (PAUSING_JAIN if self.on_demand else JAIN):
            bad.append("jain_min")
        if self.idle_ratio is not None and self.idle_ratio > (
            PAUSING_IDLE_RATIO if self.on_demand else IDLE_RATIO
        ):
            bad.append("idle_ratio_max")
        if self.wait_p99_ms is not None and self.wait_p99_ms > WAIT_MS + PREEMPTION_MS:
            bad.append("wait_p99_ms")
        return bad


def pauses(scenario: Scenario) -> bool:
    """Return whether windows are made on demand in it, at least now and then."""
    return (
        scenario.reports == "log"
        and scenario.policy in CONSERVING
        and any(t.kind not in ("backlogged", "idle") for t in scenario.tenants)
    )


def judge(result: Run) -> Verdict:
    """Judge one run: backlogged tenants get their share, and no tenant more than its ceiling."""
    scenario = result.scenario
    given = entitlements(scenario)
    conserving = scenario.policy in CONSERVING
    native = scenario.policy == NATIVE
    # A share is a lower bound where the time that others leave is passed on. It is one, too, under
    # policy 1 with a tenant that closes the card, because fewer tenants share it meanwhile.
    steady = all(t.kind in ("backlogged", "idle") for t in scenario.tenants)
    fewer = scenario.policy == PREEMPTIVE and any(t.kind == "closer" for t in scenario.tenants)
    exact = not fewer if not conserving else steady
    on_demand = pauses(scenario)
    verdict = Verdict(
        on_demand=on_demand,
        idle_ratio=result.cards[0]["idle_waiting_ns"] / scenario.duration_ns
        if conserving or native
        else None,
    )
    if on_demand:
        missed = list(mixes.misses(result, ANY_NS))
        whole, anywhere = (
            max([0.0, *(x for row in missed for x in row[::step])])
            for step in (mixes.SECOND_NS // ANY_NS, 1)
        )
        verdict = replace(verdict, shortfall_1s=whole, shortfall_any_1s=anywhere)
    # A tenant that takes long to stop, on request or at its slice's end, is charged later.
    lump = 100 * 3 * max(t.stubborn_ns for t in scenario.tenants)
    period_ms = result.cards[0]["period_ns"] / MS
    nobodys = max(0.0, 1 - sum(one.share for one in given))
    scaled = []
    for i, tenant in enumerate(scenario.tenants):
        a = given[i].share
        if not native and not fewer:
            excess = 100 * (max(result.taken(i, 1000 * MS)) - given[i].ceiling)
            excess -= lump / (1000 * MS)
            verdict = verdict.worse(Verdict(ceiling_excess=max(0.0, excess)))
        if on_demand and tenant.kind == "server":
            served = result.times(i, "wait", FOUND_NS)
            wait = percentile(served, 0.99) if served else math.inf
            verdict = verdict.worse(Verdict(wait_p99_ms=wait))
        if tenant.kind != "backlogged" or native:
            continue
        both_sides = exact or (scenario.policy == MIXED and tenant.quota > 0 and not on_demand)

        def error(window_ns: int, a: float = a, i: int = i, both: bool = both_sides) -> float:
            shares = result.shares(i, window_ns, SETTLED_NS, nobodys)
            low = a - min(shares)
            worst = 100 * max(low, max(shares) - a if both else low)
            return max(0.0, worst - lump / window_ns)

        verdict = verdict.worse(
            Verdict(
                error_1s=error(1000 * MS),
                error_100ms=None if on_demand else error(100 * MS),
                bound_100ms=None if on_demand else a * (1 - a) * period_ms + 1,
            )
        )
        if a:
            # whole seconds: a period divides them
            held = result.held[i][1000 * MS // scenario.bin_ns :]
            scaled.append((a, sum(held)))
    for a in {round(a, 5) for a, _ in scaled}:
        equals = [w for b, w in scaled if round(b, 5) == a]
        if len(equals) > 1 and not lump:
            squares = sum(w * w for w in equals)
            verdict = verdict.worse(Verdict(jain=sum(equals) ** 2 / (len(equals) * squares)))
    return verdict


def tenants(policy: int, count: int, **other: Any) -> tuple[Tenant, ...]:
    """Return ``count`` backlogged tenants with the numbers that the policy goes by."""
    made = []
    for i in range(count):
        tenant = Tenant(**other)
        name = POLICIES[policy]
        if name in ("weighted", "fixed", "weighted-conserving", "online"):
            tenant = replace(tenant, weight=1 + i % 3)
        if name == "mixed" and i % 2 == 0:
            tenant = replace(tenant, quota=max(1, 60 // count))
        if name == "burst":
            tenant = replace(tenant, quota_min=max(1, 50 // count))
        if name in ("weak", "weighted-conserving", "burst", "online") and not tenant.quota:
            tenant = replace(tenant, uncapped=True)
        made.append(tenant)
    return tuple(made)


def bursts(on_ms: int, off_ms: int) -> dict[str, Any]:
    """Return what makes a tenant bursty: mean work and mean pause, ms."""
    return {"kind": "bursty", "on_ns": on_ms * MS, "off_ns": off_ms * MS}


def matrix(policy: int) -> Iterator[tuple[str, Scenario]]:
    """Yield the scenarios of one policy, named."""

    def make(*mix: Tenant, **other: Any) -> Scenario:
        whole = sum(t.weight for t in mix)
        values = {"max_inst": max(len(mix), min(64, whole)), "policy": policy, **other}
        return Scenario(mix, **values)

    for count in (2, 3, 4, 8, 16, 25):
        yield f"{count} backlogged", make(*tenants(policy, count))
    pair = tenants(policy, 2)
    four = tenants(policy, 4)
    yield "all that is queued is fetched", make(*tenants(policy, 3, fetched_ns=MS))
    yield "kernels of 100 us", make(*tenants(policy, 2, switch_ns=170_000))
    yield "room left on the card", make(*four, max_inst=20)
    yield "8 processes against 1", make(replace(pair[0], groups=8), pair[1])
    yield "a neighbour is idle", make(*four[:3], replace(four[3], kind="idle", uncapped=False))
    yield (
        "a neighbour has bursts",
        make(*four[:3], replace(four[3], **bursts(3, 7))),
    )
    yield (
        "long bursts",
        make(*four[:2], *(replace(t, **bursts(400, 300)) for t in four[2:])),
    )
    if policy in CONSERVING:
        # a twentieth of the card: it never has had its share
        waits = Tenant("server", step_ns=MS, host_ns=40_000, off_ns=20 * MS, uncapped=True)
        busy = replace(pair[1], quota=0, quota_min=0, weight=1)
        yield "one that waits for results beside one", make(waits, busy)
        yield "one that waits for results beside three", make(waits, busy, busy, busy)
    if policy in CONSERVING:
        # A budget counts work done, and the log counts a part of the loading as work.
        busy, waits = (replace(t, early_ns=LOGGED_EARLY_NS) for t in (busy, waits))
        some, half = (replace(busy, quota=q, uncapped=False) for q in (20, 50))
        waits = replace(waits, quota=30, uncapped=False)
        yield "one with a quota that waits for results, alone", make(waits)
        yield "one with a quota that waits for results beside one", make(waits, busy)
        yield "one with a quota that waits beside a quota", make(waits, half)
        yield "one with a quota that waits beside three", make(waits, some, some, some)
        yield "one that waits for results beside a quota", make(replace(waits, quota=0), half)
    if policy not in CONSERVING:
        yield "a neighbour is slow to stop", make(*four[:3], replace(four[3], stubborn_ns=10 * MS))
    yield (
        "a neighbour closes the card before the tick",
        make(*four[:3], replace(four[3], kind="closer", off_ns=30 * MS)),
    )
    if policy != NATIVE:
        capped = replace(four[0], quota=15, quota_min=0, uncapped=False)
        yield "a quota on one of four", make(capped, *four[1:])
        yield (
            "a quota on one, and bursts",
            make(capped, *four[1:3], replace(four[3], **bursts(20, 60))),
        )
        yield (
            "a quota on one of two",
            make(replace(capped, quota=30, weight=pair[0].weight), pair[1]),
        )
        alone = replace(capped, quota=10, weight=1)
        yield "10 % alone", make(alone)
        yield "50 % alone", make(replace(alone, quota=50))


def seeds(policy: int, scenario: Scenario) -> range:
    """Return the seeds with which a scenario of the matrix is run."""
    if not pauses(scenario):
        return range(scenario.seed, scenario.seed + 1)
    first = 1 + SEEDS * CONSERVING.index(policy)
    return range(first, first + SEEDS)


def check(policy: int, controller: Controller = "engine") -> dict[str, Any]:
    """Run the matrix of one policy. Return its measures, as ``check --json`` prints them."""
    worst = Verdict()
    failed: dict[str, list[str]] = {}
    for name, scenario in matrix(policy):
        verdict = Verdict()
        for seed in seeds(policy, scenario):
            verdict = verdict.worse(judge(run(scenario, seed=seed, controller=controller)))
        if bad := verdict.broken():
            failed[name] = bad
        worst = worst.worse(verdict)
    efficiency = {}
    for count, bound in EFFICIENCY.items():
        # Under policy 2 a window is weight × unit, so small weights lose more to switching.
        weight = 16 // count if POLICIES[policy] == "weighted" else 1
        equals = [replace(t, weight=weight) for t in tenants(policy, count)]
        alone = Scenario(tuple(equals), policy=policy, max_inst=count * weight)
        efficiency[count] = run(alone, controller=controller).efficiency()
        if efficiency[count] < bound and policy != NATIVE:
            failed[f"{count} tenants"] = ["efficiency"]
    shortfall = None
    if policy == WEIGHTED_CONSERVING:
        shortfall = max(
            x
            for seed in range(MIXES)
            for x in mixes.shortfalls(run(mixes.mix(seed), controller=controller))
        )
        if shortfall > MIX_SHORTFALL_1S:
            failed["random mixes"] = ["mix_shortfall_1s"]
    return {
        "policy": policy,
        "name": POLICIES[policy],
        "max_error_1s": worst.error_1s,
        "shortfall_1s": worst.shortfall_1s,
        "shortfall_any_1s": worst.shortfall_any_1s,
        "max_error_100ms": worst.error_100ms,
        "bound_100ms": worst.bound_100ms,
        "ceiling_excess_max": worst.ceiling_excess,
        "jain_min": worst.jain,
        "idle_ratio_max": worst.idle_ratio,
        "wait_p99_ms": worst.wait_p99_ms,
        "mix_shortfall_1s": shortfall,
        "efficiency": efficiency[2],
        "efficiency_8": efficiency[8],
        "broken": failed,
    }
