# SPDX-License-Identifier: MIT
"""Eight tenants and twelve on one card: shares, and how much of the card is used at all."""

from __future__ import annotations

import time
from pathlib import Path

from tests.gpu.shares import set_policy
from tests.gpu.tenants import SETTLE_S, Bench, median_rates, node, running

#: with more tenants a second holds fewer windows of each
SECONDS = 2.0
#: What many do together, of what one does alone (docs/policies.md): their slices are shorter than
#: windows, or a tenth of a second would not show the shares.
WINDOWS_SUM_PERCENT = 96.5
SLICES_SUM_PERCENT = 96
UNEQUAL_SUM_PERCENT = 95
#: Of more than eight, slices are shorter once more.
TWELVE_SUM_PERCENT = 94.5
#: Whoever begins seems to pause until it has made its context, and for eight seconds after that
#: the card is divided on demand, which costs a point more.
BEGIN_S = 10.0


def shares(bench: Bench, files: dict[str, Path], settle_s: float = SETTLE_S) -> list[float]:
    """Percent of what one does alone, each tenant."""
    time.sleep(settle_s)
    return [rate / bench.rate * 100 for rate in median_rates([*files.values()], 3, SECONDS)]


def tell(bench: Bench, label: str, got: list[float], wanted: list[float], least: float) -> None:
    """The worst tenant's error, in points of what was done together, and the sum."""
    total = sum(got) or 1.0
    errors = [abs(share / total * 100 - want) for share, want in zip(got, wanted, strict=True)]
    worst = max(range(len(got)), key=errors.__getitem__)
    bench.report.check(
        f"{label}: worst error, tenant {worst + 1} with {got[worst]:.2f} %",
        errors[worst],
        "points",
        "<= 0.5",
        errors[worst] <= 0.5,
    )
    bench.report.least(f"{label}: sum of tenants against alone", sum(got), least)


def crowd(bench: Bench) -> None:
    """Equal parts, weights and quotas among many."""
    report = bench.report
    tenants = {f"t{i}": ["--policy", "weighted-conserving"] for i in range(8)}
    with running(bench, tenants) as files:
        # what an earlier part wrote by hand stays
        set_policy("weighted-conserving")
        equal = [100 / 8] * 8
        got = shares(bench, files, BEGIN_S)
        tell(bench, "eight, weighted-conserving", got, equal, SLICES_SUM_PERCENT)
        node("0/max_inst", 8)
        set_policy("average")
        tell(bench, "eight, average", shares(bench, files), equal, WINDOWS_SUM_PERCENT)
        set_policy("weighted-conserving")
        node("0/max_inst", 36)
        for i in range(8):
            node(f"0/t{i}/weight", i + 1)
        tell(
            bench,
            "eight, weighted-conserving 1:2:…:8",
            shares(bench, files),
            [(i + 1) / 36 * 100 for i in range(8)],
            UNEQUAL_SUM_PERCENT,
        )
        for i in range(8):
            node(f"0/t{i}/weight", 1)
        quotas = (5, 10, 15, 20)
        for i, quota in enumerate(quotas):
            node(f"0/t{i}/quota", quota)
        set_policy("mixed")
        got = shares(bench, files)
        for i, quota in enumerate(quotas):
            of_sum = got[i] / sum(got) * 100
            report.near(f"eight, mixed, quota {quota}, of what was done", of_sum, quota, 0.5)
        rest = sum(got[4:])
        for i in range(4, 8):
            report.near("eight, mixed, one of four without", got[i] / rest * 100, 25, 0.5)
        report.least("eight, mixed: sum of tenants against alone", sum(got), WINDOWS_SUM_PERCENT)
        set_policy("weighted-conserving")
    node("0/max_inst", 20)
    with running(bench, {f"t{i}": [] for i in range(12)}) as files:
        equal = [100 / 12] * 12
        got = shares(bench, files, BEGIN_S)
        tell(bench, "twelve, weighted-conserving", got, equal, TWELVE_SUM_PERCENT)
        node("0/max_inst", 12)
        set_policy("average")
        tell(bench, "twelve, average", shares(bench, files), equal, WINDOWS_SUM_PERCENT)
        set_policy("weighted-conserving")
    node("0/max_inst", 20)
