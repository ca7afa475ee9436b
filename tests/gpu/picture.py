# SPDX-License-Identifier: MIT
"""A measured server beside a trainer as a picture: ``docs/img/serving.svg``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: a way of the section ``serving``, and what the picture calls it
WAYS = {
    "alone": "each alone on the card",
    "driver's own": "time-slicing by the driver",
    "cgpu run, default": "cgpu, equal weights",
    "cgpu run, online": "cgpu, policy online",
    "MPS": "MPS",
    "MPS 50 : 50": "MPS, 50 % each",
}
WIDTH, ROW, TOP, LABEL, BAR = 760, 30, 62, 190, 190
OURS, OTHERS = "#2a78d6", "#8a8a86"


def bars(x: int, title: str, values: Sequence[float], unit: str) -> Iterator[str]:
    """A column of bars, one a way."""
    yield f'<text x="{x}" y="{TOP - 12}" font-weight="bold">{title}</text>'
    for number, (way, value) in enumerate(zip(WAYS, values, strict=True)):
        part = value / max(values)
        y = TOP + number * ROW
        fill = OURS if way.startswith("cgpu") else OTHERS
        text = f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
        yield f'<rect x="{x}" y="{y}" width="{part * BAR:.1f}" height="18" fill="{fill}"/>'
        yield f'<text x="{x + part * BAR + 6:.1f}" y="{y + 13}">{text}</text>'


def drawn(found: Mapping[str, Any]) -> str:
    """The picture of a card's newest ``serving``."""
    table = found["tables"][0]
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    waits = [rows[way]["token p99 ms"] for way in WAYS]
    work = [rows[way]["products/s"] for way in WAYS]
    height = TOP + len(WAYS) * ROW + 8
    title = f"A server and a trainer share one {found['card']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15">{title}</text>',
        f'<text x="{WIDTH - 12}" y="22" text-anchor="end" fill="#555555">measured {found["date"]},'
        f" driver {found['driver']}</text>",
    ]
    for number, label in enumerate(WAYS.values()):
        y = TOP + number * ROW + 13
        lines.append(f'<text x="{LABEL - 8}" y="{y}" text-anchor="end">{label}</text>')
    lines += bars(LABEL, "server: p99 of a token", waits, "ms")
    lines += bars(LABEL + BAR + 110, "trainer: work a second", work, "/s")
    return "\n".join([*lines, "</svg>"]) + "\n"
