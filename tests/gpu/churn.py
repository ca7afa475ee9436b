# SPDX-License-Identifier: MIT
"""Tenants that come, stop, and are killed while every setting changes: nobody is forgotten."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from pycgpu.request.model import POLICIES
from tests.gpu.shares import set_policy
from tests.gpu.tenants import (
    Bench,
    agent_pid,
    all_returned,
    ended,
    median_rates,
    node,
    progress,
    running,
    table,
    tenant,
    wait_for_end,
)

SECONDS = 40
TENANTS = 6
SEED = 20261121
#: all tenants' windows at the largest unit and weight come to 1.1 s
PAUSE_MS = 3000


def descriptors() -> int:
    return len(os.listdir(f"/proc/{agent_pid()}/fd"))


class Crowd:
    """Tenants at work, and what is done to them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.random = random.Random(SEED)
        self.tenants: dict[str, subprocess.Popen[Any]] = {}
        self.count = self.refused = self.writes = 0

    def start(self) -> None:
        self.count += 1
        name = f"c{self.count}"
        options = ["--mem", f"{self.random.randint(2, 8)}G"]
        options += ["--weight", str(self.random.randint(1, 9))]
        options += self.random.choice([[], ["--quota", str(self.random.randint(5, 60))]])
        program = self.bench.worker(self.bench.file(), 60, *self.random.choice([[], ["--graph"]]))
        self.tenants[name] = tenant(
            name, program, *options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        process = self.tenants.pop(self.random.choice(sorted(self.tenants)))
        process.send_signal(self.random.choice([signal.SIGKILL, signal.SIGTERM]))
        # A stopped process takes SIGTERM when it goes on.
        process.send_signal(signal.SIGCONT)
        process.wait(timeout=30)

    def stop(self) -> None:
        """Stopped tenants go on at the next blow, or are killed as they stand."""
        process = self.tenants[self.random.choice(sorted(self.tenants))]
        process.send_signal(self.random.choice([signal.SIGSTOP, signal.SIGCONT]))

    def write(self) -> None:
        choose = self.random
        path, value = choose.choice(
            [
                ("policy", choose.randrange(len(POLICIES))),
                ("timeslice_us", choose.choice([1000, 2000, 5000, 12000, 20000])),
                ("max_inst", choose.randint(TENANTS + 1, 64)),
                *((f"{name}/weight", choose.randint(1, 9)) for name in self.tenants),
                *((f"{name}/quota", choose.choice([0, 5, 30, 60])) for name in self.tenants),
                *((f"{name}/memsize", choose.randint(1, 9) << 30) for name in self.tenants),
            ]
        )
        self.writes += 1
        try:
            node(f"0/{path}", value)
        except OSError:
            # gone meanwhile, below what is in use, or no room: what the node is to answer
            self.refused += 1

    def blow(self) -> None:
        """One thing, by chance."""
        if len(self.tenants) < TENANTS and self.random.random() < 0.15:
            self.start()
        elif len(self.tenants) > 2 and self.random.random() < 0.1:
            self.end()
        elif self.tenants and self.random.random() < 0.2:
            self.stop()
        else:
            self.write()


def churn(bench: Bench) -> None:
    """A witness that has a weight all the time goes on all the time; nothing is left behind."""
    report = bench.report
    crowd = Crowd(bench)
    with running(bench, {"witness": ["--policy", "weighted-conserving"]}) as files:
        node("0/max_inst", 64)
        held = descriptors()
        longest_ms = endure(crowd, files["witness"])
        with ended(*crowd.tenants.values()):
            pass
        wait_for_end(*crowd.tenants)
        report.check("churn: tenants started", crowd.count)
        report.check("churn: settings written, and refused", f"{crowd.writes}, {crowd.refused}")
        report.most("churn: longest time without progress", longest_ms, PAUSE_MS, "ms")
        report.check("churn: gate calls that failed", table("0/stat")["gate_errors"])
        node("0/timeslice_us", 5000)
        node("0/max_inst", 20)
        set_policy("weighted-conserving")
        share = median_rates([files["witness"]])[0] / bench.rate * 100
        report.least("churn: the one that is left, against alone", share, 99.5)
        report.most("churn: descriptors that the agent holds more", descriptors() - held, 4, "")
    all_returned(bench)


def endure(crowd: Crowd, witness: Path) -> float:
    """Deal blows for SECONDS; return the witness' longest time without progress, ms."""
    longest = 0.0
    count, since = progress(witness)[0], time.monotonic()
    end = since + SECONDS
    while time.monotonic() < end:
        crowd.blow()
        time.sleep(0.03)
        now = progress(witness)[0]
        if now != count:
            count, since = now, time.monotonic()
        longest = max(longest, time.monotonic() - since)
    return longest * 1e3
