# SPDX-License-Identifier: MIT
"""What the card says each tenant used, and who gets the windows of one without work."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from tests.gpu.shares import loads, set_policy
from tests.gpu.tenants import (
    SETTLE_S,
    Bench,
    ended,
    median_rates,
    progress,
    running,
    table,
    tenant,
    wait_for,
    wait_for_end,
)

SECONDS = 3.0
QUOTA = 30
# of the minute that the program is given: one kernel, then none
IDLE_MS = 59_000
# of a core, while channels are looked at: somebody pauses beside somebody who works
LOOKS_PERCENT = 3


def used(bench: Bench) -> None:
    """Used time against work done; then a tenant with a quota that has no work, or bursts."""
    both = {"a": ["--policy", "weighted", "--weight", "1"], "b": ["--weight", "2"]}
    with running(bench, both) as files:
        for name in ("weighted", "weighted-conserving"):
            set_policy(name)
            time.sleep(SETTLE_S)
            agrees(bench, f"{name} 1:2", files)
    for name, every_ms in (("idle", IDLE_MS), ("with a kernel of 40 ms every 150 ms", 150)):
        beside(bench, name, every_ms)


def agrees(bench: Bench, label: str, files: dict[str, Any]) -> None:
    """Parts of the sum of `used_ns` are parts of what was done, and the sum is the time."""
    before, start = [table(f"0/{name}/stat")["used_ns"] for name in files], time.monotonic_ns()
    done = median_rates(list(files.values()), 1, SECONDS)
    elapsed = time.monotonic_ns() - start
    spent = [
        table(f"0/{name}/stat")["used_ns"] - then for name, then in zip(files, before, strict=True)
    ]
    for name, ns, rate in zip(files, spent, done, strict=True):
        part, of_work = ns / (sum(spent) or 1) * 100, rate / sum(done) * 100
        bench.report.near(f"{label}: tenant {name}, part of what was used", part, of_work, 0.5)
    bench.report.least(f"{label}: used of the card's time", sum(spent) / elapsed * 100, 96)


def beside(bench: Bench, label: str, every_ms: int) -> None:
    """A busy tenant beside one with a quota that pauses."""
    pauses = bench.file()
    program = bench.worker(
        pauses, 60, "--every", str(every_ms), "--iters", str(40 * int(bench.iterations))
    )
    with (
        ended(tenant("a", program, "--quota", str(QUOTA), stdout=subprocess.DEVNULL)),
        running(bench, {"b": []}) as files,
    ):
        wait_for(lambda: progress(pauses)[0] > 0, "the one that pauses")
        for name in ("weighted-conserving", "burst", "mixed"):
            set_policy(name)
            time.sleep(SETTLE_S)
            before, start = table("0/a/stat")["used_ns"], time.monotonic_ns()
            got = median_rates([files["b"]])[0] / bench.rate * 100
            taken = (table("0/a/stat")["used_ns"] - before) / (time.monotonic_ns() - start) * 100
            title = f"{name}, quota {QUOTA} {label}: busy neighbour"
            if every_ms == IDLE_MS and name != "mixed":
                bench.report.least(title, got, 95, "%")
            else:
                bench.report.check(title, got, "%")
            bench.report.check(f"{name}, quota {QUOTA} {label}: it used", taken, "%")
            if every_ms == IDLE_MS and name == "burst":
                loads(bench, f"{name}, quota {QUOTA} {label}", LOOKS_PERCENT)
    wait_for_end()
