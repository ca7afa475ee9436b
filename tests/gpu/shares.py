# SPDX-License-Identifier: MIT
"""
Who gets what of the card.

Shares come from work of a fixed size (programs/work.cu) counted by the tenant and read by us
while it runs; a share is a rate over the rate alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pycgpu.request.model import POLICIES
from pycgpu.tree import procfs
from tests.gpu.tenants import (
    PROGRAMS,
    SETTLE_S,
    TREE,
    Bench,
    agent_load,
    ended,
    last_json,
    median_rates,
    native,
    node,
    outcome,
    progress,
    rates,
    running,
    table,
    tenant,
    wait_for,
    wait_for_end,
)

#: `mode` of a card's stat: CGPU_SCHED_WINDOWS.
BY_THE_CLOCK = 2
#: What two or three do together, of what one does alone, where nothing but the card says how often
#: it changes hands.
SUM_PERCENT = 98
#: Under policy 2 the period is what the weights and the unit make of it; a hand-over costs 0.22 ms
#: (docs/scheduler.md).
HANDOVER_MS = 0.22
UNIT_MS = 5
#: A gate call is up to half a millisecond of the driver's busy waiting.
GATE_CALL_PERCENT = 0.05


def set_policy(name: str) -> None:
    node("0/policy", POLICIES.index(name))


def calibrate(bench: Bench) -> None:
    """Find what takes a worker about 1 ms, without a door."""
    got = subprocess.run(
        [bench.bin / "work", bench.file(), "--ms", "1", "--calibrate"],
        capture_output=True,
        text=True,
        check=True,
    )
    bench.iterations, bench.blocks = got.stdout.split()


def alone(bench: Bench) -> None:
    """The rate of one worker without any door: what every share is compared with."""
    report = bench.report
    calibrate(bench)
    path = bench.file()
    with native(bench.worker(path, 60)):
        wait_for(lambda: progress(path)[0] > 2, "work without a door")
        time.sleep(SETTLE_S)
        bench.rate = median_rates([path])[0]
    report.check("fixed work alone, native", bench.rate, "kernels/s")
    with running(bench, {"lone": []}) as files:
        share = median_rates(list(files.values()))[0] / bench.rate * 100
        report.least("lone tenant against native", share, 99.5)
        report.most("agent's CPU, one tenant without a cap", sum(agent_load(2)), 1, "% of a core")


def shares_of(bench: Bench, files: dict[str, Path], names: str) -> list[float]:
    time.sleep(SETTLE_S)
    return [rate / bench.rate * 100 for rate in median_rates([files[n] for n in names.split()])]


def judge(
    bench: Bench, label: str, got: Sequence[float], weights: Sequence[int], unit_ms: float = 0
) -> None:
    """
    Shares of the card in the weights' proportion, and how much of it was used at all.

    Args:
        unit_ms: by windows of so much for each unit of weight; 0: as the scheduler likes.
    """
    total = sum(got)
    for i, (share, weight) in enumerate(zip(got, weights, strict=True)):
        wanted = weight / sum(weights) * 100
        of_sum = share / total * 100 if total else 0.0
        bench.report.near(f"{label}: tenant {i + 1}, share of what was done", of_sum, wanted, 0.5)
    least: float = SUM_PERCENT
    if unit_ms:
        lost = len(weights) * HANDOVER_MS / (sum(weights) * unit_ms) * 100
        least = min(least, 99.7 - lost)
    bench.report.least(f"{label}: sum of tenants against alone", total, least)


def loads(bench: Bench, label: str, most: float = 1) -> None:
    """
    What the agent takes of a processor while the tenants run, gate calls in the driver too.

    Args:
        bench: where it is told.
        label: of the tenants.
        most: percent of a core, without gate calls.
    """
    before = table("0/stat")
    own, kernel = agent_load(2)
    calls = (table("0/stat")["gate_calls"] - before["gate_calls"]) / 2
    bench.report.check(f"{label}: gate calls", calls, "calls/s")
    bench.report.most(f"{label}: agent's CPU, its own code", own, 1, "% of a core")
    bench.report.most(
        f"{label}: agent's CPU with the driver's",
        own + kernel,
        most + calls * GATE_CALL_PERCENT,
        "% of a core",
    )


def weights(bench: Bench) -> None:
    """Two tenants, then three; weights changed live."""
    report = bench.report
    with running(bench, {"a": ["--policy", "weighted"], "b": ["--policy", "weighted"]}) as files:
        for name in ("weighted", "weighted-conserving", "preemptive", "weak"):
            set_policy(name)
            for a, b in ((1, 1), (1, 2), (1, 9)):
                if name in ("preemptive", "weak") and (a, b) != (1, 1):
                    continue
                node("0/a/weight", a)
                node("0/b/weight", b)
                got = shares_of(bench, files, "a b")
                judge(bench, f"{name} {a}:{b}", got, [a, b], UNIT_MS * (name == "weighted"))
                if (a, b) == (1, 1) and name.startswith("weighted"):
                    loads(bench, f"{name} {a}:{b}", 1 if name == "weighted" else 0.5)
        node("0/a/weight", 1)
        node("0/b/weight", 1)
        node("0/max_inst", 4)
        set_policy("weighted")
        node("0/timeslice_us", 12000)
        judge(bench, "weighted 1:1, unit 12 ms", shares_of(bench, files, "a b"), [1, 1], 12)
        loads(bench, "weighted 1:1, unit 12 ms")
        node("0/timeslice_us", 5000)
        for name in ("average", "fixed"):
            set_policy(name)
            for i, share in enumerate(shares_of(bench, files, "a b")):
                report.near(f"{name}, max_inst 4: tenant {i + 1}", share, 25, 0.5)
        set_policy("mixed")
        node("0/a/quota", 30)
        got = shares_of(bench, files, "a b")
        report.near("mixed, quota 30 and none: first", got[0], 30, 0.5)
        report.least("mixed, quota 30 and none: second", got[1], 68)
        set_policy("burst")
        got = shares_of(bench, files, "a b")
        report.most("burst, quota 30: first", got[0], 30.5)
        report.least("burst, quota 30: second", got[1], 68)
        node("0/a/quota", 0)
        set_policy("native")
        got = shares_of(bench, files, "a b")
        report.check("driver's own sharing: sum of two tenants against alone", sum(got), "%")
        node("0/max_inst", 20)
    three = {
        name: ["--policy", "weighted", "--weight", str(w)]
        for name, w in (("a", 1), ("b", 2), ("c", 3))
    }
    with running(bench, three) as files:
        for name in ("weighted", "weighted-conserving"):
            set_policy(name)
            got = shares_of(bench, files, "a b c")
            judge(bench, f"{name} 1:2:3", got, [1, 2, 3], UNIT_MS * (name == "weighted"))
    stat = table("0/stat")
    report.check("gate call, average", stat["gate_ns"] / (stat["gate_calls"] or 1) / 1e3, "us")
    report.check("gate call, longest", stat["gate_max_ns"] / 1e3, "us")


def quotas(bench: Bench) -> None:
    """A lone tenant's cap, changed live; what the card sees of it; long kernels, graphs."""
    report = bench.report
    with running(bench, {"q": ["--quota", "50"]}) as files:
        for quota in (10, 33, 50):
            node("0/q/quota", quota)
            got = shares_of(bench, files, "q")[0]
            report.near(f"quota {quota} of a lone tenant", got, quota, 0.5)
        loads(bench, "quota 50")
    for quota in (10, 50):
        _, text = outcome("gaps", [bench.bin / "gaps", "3"], "--quota", str(quota))
        told = last_json(text)
        for key in ("ran", "stood"):
            for what in ("mean", "p5", "p95"):
                value = float(told.get(f"{key}_{what}_us", 0)) / 1e3
                report.check(f"quota {quota}, as the card sees it: {key}, {what}", value, "ms")
    # ten small kernels do less in a millisecond than a long one does
    path = bench.file()
    with native(bench.worker(path, 60, "--graph")):
        wait_for(lambda: progress(path)[0] > 2, "graphs without a door")
        time.sleep(SETTLE_S)
        alone_rate = median_rates([path])[0]
    with running(bench, {"q": ["--quota", "33"]}, extra="--graph") as files:
        time.sleep(SETTLE_S)
        got = median_rates(list(files.values()))[0] / alone_rate * 100
        report.near("quota 33, CUDA graphs", got, 33, 0.5)
    path, long_ms = bench.file(), 300
    program = bench.worker(path, 60, "--iters", str(int(bench.iterations) * long_ms))
    with native(program):
        wait_for(lambda: progress(path)[0] > 1, "long kernels")
        rate = rates([path], 2)[0]
    with ended(tenant("long", program, "--quota", "33", stdout=subprocess.DEVNULL)):
        wait_for(lambda: (TREE / "container/long").exists(), "long")
        # while windows are on demand a second's budget is spent at once, and a point more is due
        wait_for(lambda: table("0/stat")["mode"] == BY_THE_CLOCK, "windows by the clock")
        start = progress(path)[0]
        wait_for(lambda: progress(path)[0] > start + 1, "long kernels under a quota")
        report.near("quota 33, kernels of 300 ms", rates([path], 8)[0] / rate * 100, 33, 0.5)
    wait_for_end()


def many(bench: Bench) -> None:
    """A tenant of eight processes beside one of a single process, equal weights."""
    report = bench.report
    paths = [bench.file() for _ in range(8)]
    script = " & ".join(" ".join(bench.worker(path, 90)) for path in paths) + "; wait"
    crowd = tenant(
        "many",
        ["sh", "-c", script],
        *("--policy", "weighted"),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    sums = {}
    try:
        with running(bench, {"one": ["--policy", "weighted"]}) as files:
            for policy in ("weighted", "weighted-conserving"):
                label = f"one beside eight, {policy}"
                set_policy(policy)
                with contextlib.suppress(TimeoutError):
                    wait_for(lambda: all(progress(p)[0] > 1 for p in paths), "all eight", 12)
                time.sleep(SETTLE_S)
                got = median_rates([*paths, files["one"]], 2, 2)
                moving = sum(rate > 0 for rate in got[:8])
                report.check(f"{label}: processes that progress", moving, "", 8, moving == 8)
                if moving:
                    report.check(
                        f"{label}: slowest of the eight against the fastest",
                        min(got[:8]) / max(got[:8]) * 100,
                        "%",
                    )
                share, part = got[8] / sum(got) * 100, got[8] / bench.rate * 100
                if policy == "weighted":
                    report.near(f"{label}: share of the one", share, 50, 0.5)
                else:
                    # by slices the eight pay for the switches among themselves, not the one
                    report.check(f"{label}: share of the one", share, "%")
                    # on demand, as it is for eight seconds, a hand-over takes 0.2 of each 12 ms
                    report.near(f"{label}: the one's part of the card", part, 49.5, 1.2)
                sums[label] = sum(got) / bench.rate * 100
            set_policy("native")
            got = median_rates([*paths, files["one"]], 1, 2)
            report.check("one beside eight, native: share of the one", got[8] / sum(got) * 100, "%")
            native_sum = sum(got) / bench.rate * 100
            report.check("one beside eight, native: sum against alone", native_sum, "%")
            for label, total in sums.items():
                report.least(f"{label}: sum against alone", total, native_sum)
    finally:
        os.killpg(crowd.pid, signal.SIGKILL)
        crowd.wait()
    wait_for_end()


def resnet(bench: Bench) -> None:
    """ResNet-50, fp16, batch 256, without synchronisation per step; weights changed live."""
    report = bench.report
    program = [sys.executable, PROGRAMS / "resnet.py"]
    path = bench.file()
    with native([*program, path, "60"]):
        wait_for(lambda: progress(path)[0] > 30, "ResNet alone", 60)
        alone_rate = median_rates([path], 3, 2)[0]
    report.check("ResNet-50 alone, native", alone_rate * 256, "images/s")
    files = [bench.file(), bench.file()]
    both: list[Any] = []
    memory = procfs.read_memory(0, str(TREE))
    half_bytes = (memory["total"] - memory["reserved"]) // 2
    with contextlib.ExitStack() as stack:
        # cuDNN chooses its kernels by trying: each alone, or they are not the same work
        for name, path in zip("ab", files, strict=True):
            for earlier in both:
                earlier.send_signal(signal.SIGSTOP)
            both.append(
                tenant(
                    name,
                    [*program, path, "150"],
                    *("--policy", "weighted", "--mem", f"{half_bytes >> 20}M"),
                    stdout=subprocess.DEVNULL,
                )
            )
            stack.enter_context(ended(both[-1]))
            wait_for(lambda path=path: progress(path)[0] > 12, "a ResNet tenant", 90)  # type: ignore[misc]  # bound in this round of the loop
            for earlier in both:
                earlier.send_signal(signal.SIGCONT)
        for policy, a, b in (
            ("weighted", 1, 1),
            ("weighted", 1, 2),
            ("weighted-conserving", 1, 1),
            ("weighted-conserving", 1, 2),
            ("native", 1, 1),
        ):
            set_policy(policy)
            # under weighted a window is weight × unit
            unit_us = 12000 if policy == "weighted" else 5000
            node("0/timeslice_us", unit_us)
            node("0/a/weight", a)
            node("0/b/weight", b)
            time.sleep(1)
            got = [rate / alone_rate * 100 for rate in median_rates(files, 3, 3)]
            label = f"ResNet-50 {policy} {a}:{b}, unit {unit_us // 1000} ms"
            if policy == "native":
                report.check(f"{label}: sum against alone", sum(got), "%")
            else:
                judge(bench, label, got, [a, b])
        node("0/timeslice_us", 5000)
    wait_for_end()


def latency(bench: Bench) -> None:
    """1 ms of work about every 20 ms, in step with nothing, beside one that always works."""
    report = bench.report
    #: not a multiple of any window, so that its phase wanders through them
    timed = ["--every", "20.37"]

    def tell(label: str, text: str) -> None:
        got = last_json(text)
        for key in ("p50", "p99"):
            report.check(f"latency {label}: {key}", float(got.get(f"{key}_ms", 0)), "ms")

    command = bench.worker(bench.file(), 3, *timed)
    tell("alone", subprocess.run(command, capture_output=True, text=True).stdout)
    with running(bench, {"heavy": []}):
        for policy in ("native", "weighted-conserving", "weighted", "average", "weak"):
            set_policy(policy)
            node("0/max_inst", 2)
            _, text = outcome("light", bench.worker(bench.file(), 5, *timed), "--policy", policy)
            tell(f"beside a saturating tenant, {policy}", text)
        node("0/timeslice_us", 2000)
        set_policy("weighted-conserving")
        _, text = outcome("light", bench.worker(bench.file(), 5, *timed))
        tell("beside a saturating tenant, weighted-conserving, unit 2 ms", text)
        node("0/timeslice_us", 5000)
        last = []
        for _ in range(3):
            _, text = outcome("light", bench.worker(bench.file(), 5, *timed))
            last.append(float(last_json(text).get("p99_ms", 1000)))
    report.most("latency beside a saturating tenant: p99", statistics.median(last), 2.5, "ms")
    node("0/max_inst", 20)
