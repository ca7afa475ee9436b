# SPDX-License-Identifier: MIT
"""A server that waits for every token while a trainer never pauses, in the model."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from pycgpu.request.model import POLICIES

from .scenario import MS, Controller, Run, Scenario, Tenant, run

FAIR = POLICIES.index("weighted-conserving")

#: A trainer's products a second alone, and its speed-up for each fraction of the time in which it
#: does not run. The card's power limit slows it down less if it rests: half the card's time gave
#: 353 products/s, not 308.
PRODUCTS = 616
POWER = 0.3
#: Gate calls with a trainer of cuBLAS products on an H100: longer than on an H200.
CALLS = {"open_call_ns": 450_000, "shut_call_ns": 900_000}


def arrivals(rate: float, seconds: float, seed: int = 1) -> tuple[int, ...]:
    """Return times of Poisson requests, ns; seed 1 is that of the measurement."""
    draw = random.Random(seed)
    at, times = 0.0, []
    while at < seconds:
        at += draw.expovariate(rate)
        times.append(round(at * 1e9))
    return tuple(times)


def server(seconds: float = 4, **other: Any) -> Tenant:
    """32 tokens of 1.52 ms a request, 4 requests a second."""
    fields: dict[str, Any] = {
        "steps": 32,
        "step_ns": 1_470_000,
        "host_ns": 40_000,
        "uncapped": True,
    }
    return Tenant("server", **{"arrivals": arrivals(4, seconds), **fields, **other})


def eager(**other: Any) -> Tenant:
    """The same token as 192 kernels that the host launches one by one: nearly as fast as they."""
    return server(**{"pieces": 192, "launch_ns": 10_400, "step_ns": 1_440_000, **other})


def transformer(**other: Any) -> Tenant:
    """A token of some 500 small kernels: the card idles for six sevenths of it."""
    fields = {"pieces": 500, "launch_ns": 35_000, "step_ns": 2_500_000}
    return server(**{**fields, **other})


def trainer(**other: Any) -> Tenant:
    return Tenant(uncapped=True, **other)


def pair(
    controller: Controller = "engine", seconds: float = 4, trainer_us: int = 2048, **other: Any
) -> Scenario:
    """Return the scenario of server and trainer under one way to share the card."""
    first = server(seconds, slice_us=2048 if trainer_us == 2048 else 12_000)
    second = trainer(slice_us=trainer_us)
    for name in ("window_ns", "pause_ns"):
        if name in other:
            value = other.pop(name)
            first = replace(first, **{name: value})
            second = replace(second, **{name: value})
    weights = other.pop("weights", (1, 1))
    tenants = tuple(replace(t, weight=w) for t, w in zip((first, second), weights, strict=True))
    return Scenario(
        tenants,
        controller=controller,
        policy=FAIR,
        duration_ns=round(seconds * 1000 * MS),
        **{**CALLS, **other},
    )


@dataclass(frozen=True)
class Seen:
    """What the two saw: ms, ms, ms, ms, products a second; ``None``: was not told."""

    token_p50: float | None
    token_p99: float | None
    request_p50: float | None
    request_p99: float | None
    trainer: float | None

    def __str__(self) -> str:
        def pair(a: float | None, b: float | None, digits: int) -> str:
            shown = ("" if x is None else f"{x:.{digits}f}" for x in (a, b))
            return " / ".join(shown)

        times = (
            pair(self.token_p50, self.token_p99, 2),
            pair(self.request_p50, self.request_p99, 0),
        )
        return f"{times[0]} | {times[1]} | {'' if self.trainer is None else round(self.trainer)}"


def trainer_rate(part: float) -> float:
    """Return the products a second of a trainer that has this part of the card."""
    return PRODUCTS * part * (1 + POWER * (1 - part))


def seen(result: Run, at: int = 0, beside: int = 1, since_ns: int = 0) -> Seen:
    """Return the figures of a server and of the trainer on its card."""
    part = result.work(beside, since_ns) if len(result.scenario.tenants) > beside else 0.0
    return Seen(
        result.percentile(at, "step", 0.5, since_ns),
        result.percentile(at, "step", 0.99, since_ns),
        result.percentile(at, "request", 0.5, since_ns),
        result.percentile(at, "request", 0.99, since_ns),
        trainer_rate(part) if part else None,
    )


def median(scenarios: Sequence[Scenario]) -> Seen:
    """Return the median over several scenarios, of each figure separately."""
    each = [astuple(seen(run(scenario))) for scenario in scenarios]
    return Seen(
        *(None if None in one else statistics.median(one) for one in zip(*each, strict=True))
    )


def draws(scenario: Scenario, seconds: float, count: int = 101) -> tuple[Scenario, ...]:
    """Return the same with ``count`` other draws of its server's arrivals."""
    first, *others = scenario.tenants
    return tuple(
        replace(scenario, tenants=(replace(first, arrivals=arrivals(4, seconds, seed)), *others))
        for seed in range(1, count + 1)
    )


def measured() -> Iterator[tuple[str, tuple[Scenario, ...], Seen]]:
    """Yield measurements on H100s (driver 580.159.04), and the same in the model.

    The requests are the same as in the measurement, so their worst is comparable too. The length of
    the measurement of the engine's slices is unknown: 13 s fit 9:1. At 1:1 the queue grows all the
    time, and these requests fit for no length; the median of several draws does.
    """
    alone = pair("slices")
    yield "alone", (replace(alone, tenants=alone.tenants[:1]),), Seen(1.52, 1.67, 49, 114, None)
    yield "driver's own sharing", (pair("slices"),), Seen(3.97, 4.17, 129, 349, 490)
    yield (
        "slices of 12 ms each, as the engine's 1:1 was",
        draws(pair("slices", 10.5, 12_000), 10),
        Seen(14.0, 14.3, 2386, 5346, 570),
    )
    yield (
        "slices of 36 and 4 ms, as the engine's 9:1 was",
        (pair("slices", 13, 4_000),),
        Seen(5.96, 6.06, 331, 1423, 542),
    )
    yield "trainer's slices 0.5 ms", (pair("slices", 4, 500),), Seen(2.37, 2.56, 78, 195, 475)
    yield "trainer's slices 1 ms", (pair("slices", 4, 1000),), Seen(2.88, 3.07, 94, 246, 478)
    yield (
        "exclusive windows by the clock 12:12 ms",
        (pair("windows", window_ns=12 * MS),),
        Seen(1.54, 14.5, 101, 270, 353),
    )
    yield (
        "trainer's gate shut while the server says it has a request",
        (pair("requests", window_ns=500_000),),
        Seen(1.58, 2.65, 52, 118, 500),
    )
    yield (
        "the same, told by GP_PUT alone (look 1 ms, idle 2 ms)",
        (pair("submissions", window_ns=MS, pause_ns=2 * MS),),
        Seen(1.58, 2.69, 53, 119, 502),
    )
    # the host's own pauses are not in the model: medians of tokens, and the trainer
    for name, first, token, both in (
        ("PyTorch without a graph", eager(), 2.09, Seen(4.25, None, None, None, 477)),
        ("a transformer", transformer(), 17.75, Seen(18.14, None, None, None, 504)),
    ):
        beside = replace(alone, tenants=(replace(first, slice_us=2048), alone.tenants[1]))
        yield (
            f"{name}, alone",
            (replace(beside, tenants=beside.tenants[:1]),),
            Seen(token, None, None, None, None),
        )
        yield f"{name}, driver's own sharing", (beside,), both


def row(name: str, was: Seen, now: Seen) -> str:
    """Return a row of the table: measured, and modelled."""
    return f"| {name} | {was} | {now} |"


def rows() -> Iterator[str]:
    """Yield the table's rows."""
    for name, scenarios, was in measured():
        yield row(name, was, median(scenarios))
