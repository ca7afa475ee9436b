# SPDX-License-Identifier: MIT
"""Two cards at once: shares on each, and what the gate calls take when both are divided."""

from __future__ import annotations

import os
import time
from typing import Any

from pycgpu.request.model import POLICIES
from tests.gpu.frameworks import run
from tests.gpu.tenants import (
    SETTLE_S,
    Bench,
    agent_load,
    last_json,
    median_rates,
    native,
    node,
    outcome,
    progress,
    running,
    table,
    wait_for,
)

SECONDS = 3


def calls(label: str, bench: Bench) -> None:
    """Gate calls of the last while: how many, how long on average."""
    before = table("0/stat")
    own, kernel = agent_load(SECONDS)
    after = table("0/stat")
    count = after["gate_calls"] - before["gate_calls"]
    took = (after["gate_ns"] - before["gate_ns"]) / (count or 1) / 1e3
    bench.report.check(f"{label}: gate calls", count / SECONDS, "calls/s")
    bench.report.check(f"{label}: gate call, average", took, "us")
    bench.report.check(f"{label}: agent's CPU", own + kernel, "% of a core")


def cards(bench: Bench) -> None:
    """The same shares on each card, whatever the other does."""
    report = bench.report
    if not os.path.exists("/dev/nvidia1"):
        report.check("two cards", "this machine has one")
        return
    _, text = outcome("list", ["nvidia-smi", "-L"], "--gpu", "1")
    seen = [line.split(":")[0] for line in text.splitlines() if line.startswith("GPU ")]
    report.check("cards that a tenant of card 1 sees", ", ".join(seen) or text[-100:])
    _, text = outcome("sizes", [bench.bin / "memory", "malloc"], "--gpu", "1", "--mem", "4G")
    report.equal(
        "size that a tenant of card 1 sees", last_json(text).get("total"), 4 << 30, "bytes"
    )
    got = run("allreduce", "--gpu", "0", "--gpu", "1", "--mem", "8G")
    report.equal("NCCL over two cards: sizes", got.get("total"), [8 << 30] * 2, "bytes")
    report.equal("NCCL over two cards: sum", got.get("after", got["said"]), 42)
    rates = []
    for minor in (0, 1):
        path = bench.file()
        with native(bench.worker(path, 60), env=dict(os.environ, CUDA_VISIBLE_DEVICES=str(minor))):
            wait_for(lambda path=path: progress(path)[0] > 2, f"work on card {minor}")  # type: ignore[misc]  # bound in this round of the loop
            time.sleep(SETTLE_S)
            rates.append(median_rates([path])[0])
        report.check(f"fixed work alone on card {minor}, native", rates[-1], "kernels/s")

    def judge(label: str, files: dict[str, Any], names: str, weights: tuple[int, ...]) -> None:
        got = median_rates([files[name] for name in names.split()])
        for name, rate, weight in zip(names.split(), got, weights, strict=True):
            own = sum(r for n, r in zip(names.split(), got, strict=True) if n[1] == name[1])
            due = sum(w for n, w in zip(names.split(), weights, strict=True) if n[1] == name[1])
            report.near(f"{label}: tenant {name}", rate / own * 100, weight / due * 100, 0.5)
        for minor in sorted({name[1] for name in names.split()}):
            total = sum(r for n, r in zip(names.split(), got, strict=True) if n[1] == minor)
            report.least(
                f"{label}: sum on card {minor} against alone", total / rates[int(minor)] * 100, 98
            )

    def options(minor: int, weight: int) -> list[str]:
        return ["--gpu", str(minor), "--policy", "weighted", "--weight", str(weight)]

    with running(bench, {"a0": options(0, 1), "b0": options(0, 2)}) as first:
        judge("card 0 divided 1:2, card 1 free", first, "a0 b0", (1, 2))
        calls("card 0 divided", bench)
        with running(bench, {"a1": options(1, 1), "b1": options(1, 1)}) as second:
            files = {**first, **second}
            judge("both divided", files, "a0 b0 a1 b1", (1, 2, 1, 1))
            calls("both divided", bench)
            for minor in (0, 1):
                node(f"{minor}/policy", POLICIES.index("weighted-conserving"))
            time.sleep(SETTLE_S)
            judge("both divided, weighted-conserving", files, "a0 b0 a1 b1", (1, 2, 1, 1))
            calls("both divided, weighted-conserving", bench)
