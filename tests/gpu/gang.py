# SPDX-License-Identifier: MIT
"""Jobs over several cards that wait for their slowest one: data-parallel steps by NCCL."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.gpu.asked import told
from tests.gpu.serving import Asked, Load, ends, servers, start, trainer
from tests.gpu.tenants import PROGRAMS, Bench, node, rates, wait_for_end

RANKS = 2
SECONDS = 4.0
#: Width of the products, MiB of the reduction.
STEPS = ((8192, 256), (4096, 64))
CARDS = ("--gpu", "0", "--gpu", "1", "--mem", "30G", "--policy", "weighted-conserving")
#: NCCL's ways between two cards of one host.
WAYS: Mapping[str, Mapping[str, str]] = {"P2P": {}, "shared memory": {"NCCL_P2P_DISABLE": "1"}}
START_S = 60
#: Percent of what a job does alone that it has beside another one of its kind.
HALF = 48.0


class Job(Asked):
    """A gang.py under way."""

    def ask(self, width: int, mib: int) -> None:
        self.say(SECONDS, width, mib)

    def answer(self) -> dict[str, Any]:
        return self.line(SECONDS + START_S)


@contextlib.contextmanager
def job(name: str, *options: str, **env: str) -> Iterator[Job]:
    """A job, ready, as a tenant with these options; without any, natively."""
    program = [sys.executable, PROGRAMS / "gang.py", RANKS]
    environment = dict(os.environ, NCCL_NVLS_ENABLE="0", **env)
    popen: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    if options:
        process = start(program, name, options, env=environment, **popen)
    else:
        process = start(program, name, environment, **popen)
    with ends(process):
        found = Job(process)
        found.wait_ready()
        yield found
    if options:
        wait_for_end(name)


def used_ns(name: str) -> list[int]:
    """What a tenant has used of each card."""
    found = []
    for minor in range(RANKS):
        stat = dict(line.split() for line in node(f"{minor}/{name}/stat").splitlines())
        found.append(int(stat["used_ns"]))
    return found


def at_once(jobs: Mapping[str, Job], width: int, mib: int) -> dict[str, dict[str, Any]]:
    """Measure all of them at the same time."""
    for one in jobs.values():
        one.ask(width, mib)
    return {name: one.answer() for name, one in jobs.items()}


class Table:
    """What was measured, a row a job."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: list[list[Any]] = []
        self.steps: dict[tuple[str, str, int], float] = {}

    def add(self, label: str, width: int, mib: int, found: Mapping[str, Mapping[str, Any]]) -> None:
        for name, got in found.items():
            self.steps[label, name, width] = got["steps_s"]
            figures = [round(got[key], 2) for key in ("steps_s", "p50_ms", "p99_ms")]
            self.rows.append([label, name, f"{width}³, {mib} MiB", *figures])
            if not got["right"]:
                self.bench.report.equal(f"{label}: {name}: the sum", "wrong", "right")

    def measure(self, label: str, jobs: Mapping[str, Job]) -> None:
        for width, mib in STEPS:
            self.add(label, width, mib, at_once(jobs, width, mib))

    def divide(self, label: str, jobs: Mapping[str, Job]) -> None:
        """Measure tenants, and what each had of what all used of each card."""
        for width, mib in STEPS:
            before = {name: used_ns(name) for name in jobs}
            self.add(label, width, mib, at_once(jobs, width, mib))
            used = {
                name: [now - then for now, then in zip(used_ns(name), before[name], strict=True)]
                for name in jobs
            }
            for minor in range(RANKS):
                total = sum(one[minor] for one in used.values())
                parts = ", ".join(f"{name} {used[name][minor] / total:.1%}" for name in jobs)
                self.bench.report.check(f"{label}, {width}³: shares of card {minor}", parts)


def gang(bench: Bench) -> None:
    """Alone, two beside each other, beside one-card trainers, and beside a server on one card."""
    report = bench.report
    if not os.path.exists(f"/dev/nvidia{RANKS - 1}"):
        report.check("two cards", "this machine has one")
        return
    table = Table(bench)
    for way, env in WAYS.items():
        with job("a", **env) as a:
            table.measure(f"native, {way}", {"a": a})
            if way == "P2P":
                with job("b", **env) as b:
                    table.measure("native, two", {"a": a, "b": b})
    for way, env in WAYS.items():
        with job("a", *CARDS, **env) as a:
            table.measure(f"tenant, {way}", {"a": a})
            if way == "P2P":
                beside(table, a)
            report.check(f"NCCL by {way}: refused", ", ".join(sorted(told("a"))), "", "", True)
    report.table(
        "Data-parallel steps over two cards",
        ["", "job", "step", "steps/s", "p50, ms", "p99, ms"],
        table.rows,
    )
    judge(table)


def beside(table: Table, a: Job) -> None:
    """One job beside all others."""
    report = table.bench.report
    with job("b", *CARDS) as b:
        table.divide("tenants, 1:1", {"a": a, "b": b})
        for minor in range(RANKS):
            node(f"{minor}/b/weight", 3)
        table.divide("tenants, 1:3", {"a": a, "b": b})
    with contextlib.ExitStack() as trainers:
        files = [
            trainers.enter_context(
                trainer(table.bench, ("--gpu", str(minor), "--mem", "10G"), name=f"t{minor}")
            )
            for minor in range(RANKS)
        ]
        for width, mib in STEPS:
            a.ask(width, mib)
            work = rates(files, SECONDS)
            table.add("beside a trainer on each card", width, mib, {"a": a.answer()})
            for minor, rate in enumerate(work):
                report.check(f"trainer on card {minor} beside {width}³", rate, "products/s")
    wait_for_end("t0", "t1")
    load = Load(seconds=SECONDS)
    with servers("graph", {"s": ("--gpu", "0", "--mem", "10G")}) as (server,):
        for width, mib in STEPS:
            server.ask(load, 1)
            a.ask(width, mib)
            table.add("beside a server on card 0", width, mib, {"a": a.answer()})
            report.check(f"the server beside {width}³", json.dumps(server.answer(load))[:200])
    wait_for_end("s")


def judge(table: Table) -> None:
    """Alone as natively; two as half of each, or as well as without limits."""
    report, steps = table.bench.report, table.steps
    for width, _ in STEPS:
        for way in WAYS:
            alone = steps[f"tenant, {way}", "a", width] / steps[f"native, {way}", "a", width]
            report.least(f"alone by {way}, {width}³, of native", alone * 100, 98)
        for name in "ab":
            half = steps["tenants, 1:1", name, width] / steps["tenant, P2P", "a", width] * 100
            own = steps["native, two", name, width] / steps["native, P2P", "a", width] * 100
            report.check(f"driver's own sharing, {name}, {width}³", own, "% of alone")
            report.least(f"two jobs 1:1, {name}, {width}³, of alone", half, max(HALF, own))
        parts = [steps["tenants, 1:3", name, width] for name in "ab"]
        report.check(f"two jobs 1:3, {width}³: the first has", parts[0] / sum(parts) * 100, "%")
