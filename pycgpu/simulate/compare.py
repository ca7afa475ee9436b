# SPDX-License-Identifier: MIT
"""Slices only, windows only, and the engine, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pycgpu.request.model import POLICIES

from . import mps, serving
from .scenario import MS, SWITCH_NS, Controller, Run, Scenario, Tenant, run

FIXED, FAIR = POLICIES.index("fixed"), POLICIES.index("weighted-conserving")
K1: dict[str, Any] = {"switch_ns": SWITCH_NS["kernels_1ms"], "gate_ns": 0, "rest_ns": 0}
K100 = {**K1, "switch_ns": SWITCH_NS["kernels_100us"]}
RESNET: dict[str, Any] = {
    **K1,
    "kind": "bursty",
    "on_ns": 35 * MS,
    "off_ns": 150_000,
    "switch_ns": SWITCH_NS["resnet50"],
}


def _pair(controller: Controller, a: dict[str, Any], b: dict[str, Any], **both: Any) -> Scenario:
    return Scenario((Tenant(**both, **a), Tenant(**both, **b)), controller=controller)


def _slices(a_us: int, b_us: int, **both: Any) -> Scenario:
    return _pair("slices", {"slice_us": a_us}, {"slice_us": b_us}, **both)


def _windows(a_ms: int, b_ms: int, controller: Controller = "windows", **both: Any) -> Scenario:
    return _pair(controller, {"window_ns": a_ms * MS}, {"window_ns": b_ms * MS}, **both)


def _sleeper(on_ms: int, off_ms: int, **tenant: Any) -> Scenario:
    one = Tenant(window_ns=on_ms * MS, pause_ns=off_ms * MS, **tenant)
    return Scenario((one,), controller="sleeper")


def measured() -> Iterator[tuple[str, Scenario, tuple[float, ...]]]:
    """Yield measurements on one H200: name, the same scenario in the model, percent of solo.

    ResNet-50: fp16 training, batch 256, solo 6138 images/s; kernels of 100 us: solo 9811/s.
    """

    def images(*rates: float) -> tuple[float, ...]:
        return tuple(100 * r / 6138 for r in rates)

    def kernels(*rates: float) -> tuple[float, ...]:
        return tuple(100 * r / 9811 for r in rates)

    yield "1 ms kernels, driver's own sharing", _slices(2048, 2048, **K1), (46.8, 46.8)
    yield "windows 10 : 10 ms", _windows(10, 10, **K1), (48.9, 48.9)
    yield "windows 5 : 10 ms", _windows(5, 10, **K1), (32.4, 64.9)
    yield "windows 20 : 40 ms", _windows(20, 40, **K1), (33.1, 66.5)
    yield "windows 2 : 18 ms", _windows(2, 18, **K1), (9.8, 88.1)
    yield "windows 5 : 5 ms", _windows(5, 5, **K1), (48.1, 48.1)
    yield "windows 10 : 10 ms, shut first", _windows(10, 10, "windows_shut", **K1), (47.4, 47.4)
    yield "alone, gate 10 / 10 ms", _sleeper(10, 10, **K1), (49.3,)
    yield "alone, gate 2 / 18 ms", _sleeper(2, 18, **K1), (11.4,)
    yield "100 us kernels, driver's own", _slices(2048, 2048, **K100), kernels(4599, 4599)
    yield "100 us kernels, slices 1 : 2 ms", _slices(1000, 2000, **K100), kernels(2893, 5796)
    yield "100 us kernels, slices 1 : 9 ms", _slices(1000, 9000, **K100), kernels(946, 8522)
    yield "ResNet-50, driver's own", _slices(2048, 2048, **RESNET), images(2758, 2758)
    yield "ResNet-50, slices 2 : 4 ms", _slices(2000, 4000, **RESNET), images(1965, 3755)
    yield "ResNet-50, slices 1 : 9 ms", _slices(1000, 9000, **RESNET), images(611, 5274)
    yield "ResNet-50, slices 10 : 10 ms", _slices(10000, 10000, **RESNET), images(3011, 3011)
    yield "ResNet-50, slices 10 : 20 ms", _slices(10000, 20000, **RESNET), images(2273, 3788)
    yield "ResNet-50, slices 2 : 18 ms", _slices(2000, 18000, **RESNET), images(751, 5254)
    yield "ResNet-50, windows 10 : 20 ms", _windows(10, 20, **RESNET), images(2050, 3970)
    yield "ResNet-50, windows 20 : 40 ms", _windows(20, 40, **RESNET), images(2050, 3970)
    yield "ResNet-50 alone, gate 10 / 10 ms", _sleeper(10, 10, **RESNET), images(3043)
    yield "ResNet-50 alone, gate 2 / 18 ms", _sleeper(2, 18, **RESNET), images(754)


def modelled(scenario: Scenario) -> tuple[float, ...]:
    """Return each tenant's work in percent of its work alone."""
    solo = run(Scenario(scenario.tenants[:1], controller="slices")).work(0)
    result = run(scenario)
    return tuple(100 * result.work(i) / solo for i in range(len(scenario.tenants)))


def _row(name: str, result: Run, entitled: list[float]) -> str:
    seconds = result.scenario.duration_ns / 1e9
    errors = [
        max(
            max(abs(s - a) for s in result.shares(i, window * MS, 1000 * MS))
            for i, a in enumerate(entitled)
        )
        for window in (1000, 100)
    ]
    card = result.cards[0]
    calls = (card["gate_calls"] + card["late_slice_calls"]) / seconds
    return (
        f"| {name} | {100 * errors[0]:.2f} | {100 * errors[1]:.1f} | "
        f"{100 * (1 - result.efficiency()):.1f} % | {calls:.0f} |"
    )


def ways() -> Iterator[str]:
    """Yield the rows that compare the ways to share, at 1 : 2 and among 8."""
    for count, weights in ((2, (1, 2)), (4, (1, 2, 3, 4)), (8, (1,) * 8)):
        total = sum(weights)
        entitled = [w / total for w in weights]
        tenants = [
            Tenant(
                weight=w,
                slice_us=40_000 * w // total,
                window_ns=40 * MS * w // total,
            )
            for w in weights
        ]
        several = f"{count} tenants, {':'.join(map(str, weights))}"
        yield _row(
            f"{several}: slices once, round 40 ms",
            run(Scenario(tuple(tenants), controller="slices")),
            entitled,
        )
        yield _row(
            f"{several}: windows by the clock, 40 ms",
            run(Scenario(tuple(tenants), controller="windows")),
            entitled,
        )
        for name, policy in (("windows", FIXED), ("slices", FAIR)):
            scenario = Scenario(tuple(tenants), policy=policy, max_inst=total)
            yield _row(f"{several}: the engine's {name}", run(scenario), entitled)
        slow = [replace(t, **RESNET) for t in tenants]
        for name, policy in (("windows", FIXED), ("slices", FAIR)):
            scenario = Scenario(tuple(slow), policy=policy, max_inst=total)
            yield _row(f"{several}, ResNet-50: the engine's {name}", run(scenario), entitled)


def cards() -> Iterator[str]:
    """Yield the rows for 1 to 8 cards, all behind one lock, two tenants at 1 : 2 on each."""
    for count in (1, 2, 4, 8):
        tenants = tuple(Tenant(card=c, weight=w) for c in range(count) for w in (1, 2))
        for name, policy in (("windows", FIXED), ("slices", FAIR)):
            scenario = Scenario(tenants, policy=policy, max_inst=3, cards=count)
            result = run(scenario)
            seconds = scenario.duration_ns / 1e9
            calls = sum(c["gate_calls"] + c["late_slice_calls"] for c in result.cards) / seconds
            held = sum(c["call_ns"] for c in result.cards) / scenario.duration_ns
            error = max(
                abs(s - t.weight / 3)
                for i, t in enumerate(tenants)
                for s in result.shares(i, 1000 * MS, 1000 * MS)
            )
            loss = 1 - sum(result.efficiency(c) for c in range(count)) / count
            yield (
                f"| {count} | {name} | {100 * error:.2f} | {100 * loss:.1f} % | {calls:.0f} | "
                f"{100 * held:.1f} % |"
            )


def markdown() -> str:
    """Return the tables, as Markdown."""
    lines = ["| measured on an H200 | measured, % of solo | model |", "|---|---|---|"]
    for name, scenario, values in measured():
        got = " + ".join(f"{v:.1f}" for v in modelled(scenario))
        lines.append(f"| {name} | {' + '.join(f'{v:.1f}' for v in values)} | {got} |")
    lines += [
        "",
        "| measured on an H100 | token ms | request ms | trainer /s "
        "| model: token | request | trainer |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += serving.rows()
    lines += mps.rows()
    lines += [
        "",
        "| simulated | error 1 s | error 100 ms | loss | calls/s |",
        "|---|---|---|---|---|",
    ]
    lines += ways()
    lines += [
        "",
        "| cards | way | error 1 s | loss | calls/s | lock held |",
        "|---|---|---|---|---|---|",
    ]
    lines += cards()
    return "\n".join(lines)
