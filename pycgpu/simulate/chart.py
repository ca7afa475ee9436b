# SPDX-License-Identifier: MIT
"""Shares over time: as text, and as SVG without any library; one picture for each policy."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pycgpu.request.model import POLICIES

from .scenario import MS, Run, Scenario, Tenant, run

COLOURS = ("#3366cc", "#dc7633", "#229954", "#8e44ad", "#c0392b", "#7f8c8d", "#16a085", "#b7950b")
STYLES = ("blue", "yellow", "green", "magenta", "red", "white", "cyan", "bright_black")
_NOBODY = "#dddddd"
BLOCKS = " ▁▂▃▄▅▆▇█"


def edges(result: Run, points: int) -> list[int]:
    """
    Return the bins between which shares are computed, about ``points`` of them.

    Each interval has the same number of whole periods of the first card. In a part of a period some
    containers have had one more turn than others, and a picture would show artificial teeth.
    """
    last = len(result.useful[0])
    duration_ns, period_ns = result.scenario.duration_ns, result.cards[0]["period_ns"]
    count, shown = points, 1.0
    if period_ns and duration_ns >= period_ns:
        # The number is close to *points*, with a short rest at the end, which is not shown.
        periods = int(duration_ns / period_ns + 0.001)
        each = min(
            range(1, periods + 1),
            key=lambda n: abs(periods // n - points) / points + 4 * (periods % n) / periods,
        )
        count = periods // each
        shown = count * each * period_ns / duration_ns
    return [min(last, round(shown * last * i / count)) for i in range(count + 1)]


def shares(result: Run, tenant: int, points: int) -> list[float]:
    """Return a tenant's part of the card between each two of :func:`edges`."""
    row = result.useful[tenant]
    width = result.scenario.bin_ns
    return [
        sum(row[a:b]) / ((b - a) * width) if b > a else 0.0
        for a, b in pairwise(edges(result, points))
    ]


def text(result: Run, console: Console, points: int = 64) -> None:
    """Print a line of blocks for each tenant; a full block is the whole card."""
    for i in range(len(result.scenario.tenants)):
        bar = "".join(BLOCKS[min(8, round(8 * s))] for s in shares(result, i, points))
        console.print(Text(f"{i:>3} "), Text(bar, STYLES[i % len(STYLES)]), sep="")


def svg(
    result: Run,
    labels: tuple[str, ...] = (),
    title: str = "",
    points: int = 30,
    size: tuple[int, int] = (700, 200),
) -> str:
    """Return a stacked area chart: time to the right, the card's whole compute upwards."""
    width, height = size
    left, top, bottom = 42, 26, 24
    plot_w, plot_h = width - left - 170, height - top - bottom
    count = len(result.scenario.tenants)
    bins = edges(result, points)
    points = len(bins) - 1
    seconds = bins[-1] * result.scenario.bin_ns / (1000 * MS)
    title = title or f"Policy {result.scenario.policy}, {POLICIES[result.scenario.policy]}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="16" font-size="13">{escape(title)}: parts of the card, over time '
        "(simulated)</text>",
        f'<rect x="{left}" y="{top}" width="{plot_w}" height="{plot_h}" fill="{_NOBODY}"/>',
    ]
    base = [0.0] * points
    legend = []
    for i in range(count):
        above = [b + s for b, s in zip(base, shares(result, i, points), strict=True)]
        upper, lower = (
            [
                f"{left + plot_w * bins[k + side] / bins[-1]:.1f},"
                f"{top + plot_h * (1 - min(1, v)):.1f}"
                for k, v in enumerate(values)
                for side in (0, 1)
            ]
            for values in (above, base)
        )
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}"/>')
        label = labels[i] if i < len(labels) else f"{i} {result.scenario.tenants[i].kind}"
        legend.append((colour, label))
        base = above
    for i, (colour, label) in enumerate([*legend, (_NOBODY, "nobody: idle, switching")]):
        row, column = top + 12 + 16 * i, left + plot_w + 10
        parts.append(f'<rect x="{column}" y="{row - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{column + 15}" y="{row}">{escape(label)}</text>')
    for fraction in (0, 0.5, 1):
        y = top + plot_h * (1 - fraction)
        anchor = f'x="{left - 5}" y="{y + 4:.0f}" text-anchor="end"'
        parts.append(f"<text {anchor}>{fraction:.0%}</text>")
    for k in range(int(seconds) + 1):
        x = left + plot_w * k / seconds
        parts.append(f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle">{k} s</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def pictures(folder: Path) -> None:
    """Write one picture for each policy into ``folder``: three containers, one comes and goes.

    A and B always have work, C holds the card open from 1 s to 5 s and has work from 2 s to 4 s.
    """
    for policy, name in enumerate(POLICIES):
        a, b = Tenant(weight=1), Tenant(weight=2)
        c = Tenant(
            "waking",
            weight=1,
            on_ns=2000 * MS,
            off_ns=2000 * MS,
            open_ns=1000 * MS,
            close_ns=5000 * MS,
        )
        numbers = ["", "", ""]
        if name in ("weighted", "fixed", "weighted-conserving"):
            numbers = ["weight 1", "weight 2", "weight 1"]
        if name == "mixed":
            a, numbers[0] = replace(a, quota=30), "quota 30 %"
        if name == "burst":
            a, numbers[0] = replace(a, quota=30), "quota 30 %"
            b, numbers[1] = replace(b, weight=1, quota_min=50), "at least 50 %"
        if name == "online":
            a, numbers[0] = replace(a, quota_min=20), "at least 20 %"
            b, numbers[1] = replace(b, weight=1), ""
            c, numbers[2] = replace(c, priority=1), "priority 1"
        scenario = Scenario((a, b, c), policy=policy, max_inst=5, duration_ns=6000 * MS, bin_ns=MS)
        labels = tuple(
            f"{who} {number}".strip() for who, number in zip("ABC", numbers, strict=True)
        )
        path = folder / f"policy-{policy}.svg"
        path.write_text(svg(run(scenario), labels), encoding="utf-8")
