# SPDX-License-Identifier: MIT
"""
The tables of ``docs/measurements.md`` and a picture, from the newest result of each card.

``python3 -m tests.gpu.measurements keep RUN.json…`` keeps what runs found, and writes the page;
without arguments it writes the page. Prose of the page stays as it is: a table stands between
``<!-- table NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.figures import TABLES, Row
from tests.gpu.kept import keep, load
from tests.gpu.picture import drawn

PAGE = Path(__file__).resolve().parents[2] / "docs/measurements.md"
PICTURE = PAGE.with_name("img") / "serving.svg"
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
#: the columns of the page: a kind of card, and its folder
CARDS = {"H200": "H200", "H100": "H100-80GB-HBM3"}

Kept = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Figure:
    """One judged or reported figure, ready for a cell."""

    text: str
    bound: str
    #: from its bound; what is not judged is farthest
    margin: float


def number(value: float) -> str:
    """Four digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bound_of(check: Mapping[str, Any]) -> tuple[float | None, float | None, str]:
    """Return what a check must not fall below and not exceed, and both in words."""
    bound, judged = str(check["bound"]), check["pass"] is not None
    if not judged:
        return None, None, "–"
    if around := re.fullmatch(r"([\d.]+) ± ([\d.]+)", bound):
        middle, within = float(around[1]), float(around[2])
        return middle - within, middle + within, f"{number(middle)} ± {number(within)}"
    if one := re.fullmatch(r"([<>]=) ([\d.]+)", bound):
        value = float(one[2])
        sign = {"<=": "≤", ">=": "≥"}[one[1]]
        low, high = (None, value) if sign == "≤" else (value, None)
        return low, high, f"{sign} {number(value)}"
    return None, None, bound


def words_of(value: Any) -> str:
    """What is no number, short."""
    lines = value if isinstance(value, list) else str(value).splitlines()
    return textwrap.shorten(str(lines[0]), 40, placeholder=" …") if lines else "none"


def figure(check: Mapping[str, Any]) -> Figure:
    """A check as a cell, and how far it is from its bound."""
    value, (low, high, words) = check["value"], bound_of(check)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = number(value) if is_number else words_of(value)
    margins = [value - low] if is_number and low is not None else []
    margins += [high - value] if is_number and high is not None else []
    unbounded = {None: math.inf, True: 0.0, False: -math.inf}[check["pass"]]
    shown = f"**{text}**" if check["pass"] is False else text
    return Figure(shown, words, min(margins, default=unbounded))


def distance(check: Mapping[str, Any]) -> dict[str, Any]:
    """A share as its distance from what is due."""
    middle, within = (float(word) for word in str(check["bound"]).split(" ± "))
    return {**check, "value": abs(check["value"] - middle), "bound": f"<= {within}"}


def of_card(kept: Kept, card: str, row: Row) -> Mapping[str, Mapping[str, Any]]:
    """What is kept of a card, or of two in one machine."""
    return kept.get(("2x-" if row.is_pair else "") + CARDS[card], {})


def cell(row: Row, found: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """A line's figures of one card, and their bounds."""
    checks = found.get(row.section, {}).get("checks", ())
    figures = [nearest(row, pattern, checks) for pattern in row.patterns]
    if not any(figures):
        return "", ""
    bounds = [one.bound if one else "–" for one in figures]
    return (
        " / ".join(one.text if one else "–" for one in figures),
        bounds[0] if len({*bounds}) == 1 else " / ".join(bounds),
    )


def nearest(row: Row, pattern: str, checks: Iterable[Mapping[str, Any]]) -> Figure | None:
    """Of the checks that a figure is for, the nearest to its bound, or the furthest past it."""
    found = [one for one in checks if re.search(pattern, one["name"])]
    if row.is_distance and pattern == row.checks:
        found = [distance(one) for one in found if "±" in str(one["bound"])]
    return min(map(figure, found), key=lambda one: one.margin, default=None)


def lines_of(rows: tuple[Row, ...], kept: Kept) -> Iterator[str]:
    """A table of figures, a column a card, and what it is from."""
    yield f"| | {' | '.join(CARDS)} | bound |"
    yield "|---" * (len(CARDS) + 2) + "|"
    for row in rows:
        found = [cell(row, of_card(kept, card, row)) for card in CARDS]
        bounds = dict.fromkeys(bound for _, bound in found if bound)
        yield f"| {row.label} | {' | '.join(text for text, _ in found)} | {'; '.join(bounds)} |"
    yield ""
    yield " ".join(f"{card}: {sources(rows, kept, card)}." for card in CARDS)


def sources(rows: tuple[Row, ...], kept: Kept, card: str) -> str:
    """Which sections of a card were measured when, at which commit."""
    runs: dict[str, list[str]] = {}
    for row in rows:
        if section := of_card(kept, card, row).get(row.section):
            names = runs.setdefault(f"{section['date']}, {section['commit'].split()[0]}", [])
            if f"`{row.section}`" not in names:
                names.append(f"`{row.section}`")
    return "; ".join(f"{', '.join(sorted(names))} {run}" for run, names in sorted(runs.items()))


def digits(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def serving_ways(kept: Kept) -> Iterator[str]:
    """A server's times and its neighbour's work, by what divides the card."""
    yield (
        "| | "
        + " | ".join(f"{card}: token, ms | request, ms | products/s" for card in CARDS)
        + " |"
    )
    yield "|---" * (1 + 3 * len(CARDS)) + "|"
    tables = [kept[folder]["serving"]["tables"][0] for folder in CARDS.values()]
    for way in (row[0] for row in tables[0]["rows"]):
        cells = []
        for table in tables:
            row = next(row for row in table["rows"] if row[0] == way)
            named = dict(zip(table["columns"], row, strict=True))
            cells += [
                " / ".join(digits(named[f"{what} {part} ms"]) for part in ("p50", "p99"))
                for what in ("token", "request")
            ]
            cells.append(digits(named["products/s"]))
        yield f"| {way} | {' | '.join(cells)} |"


def judged(kept: Kept) -> Iterator[str]:
    """How many figures of each card are judged, and how many of them missed their bound."""
    for card, sections in kept.items():
        passes = [one["pass"] for section in sections.values() for one in section["checks"]]
        driver = ", ".join(sorted({section["driver"] for section in sections.values()}))
        missed, whole = passes.count(False), len(passes) - passes.count(None)
        yield f"- {card}, driver {driver}: {missed} of {whole} judged figures missed their bound."


def blocks(kept: Kept) -> dict[str, list[str]]:
    """The tables of the page, by name."""
    found = {name: list(lines_of(rows, kept)) for name, rows in TABLES.items()}
    return {**found, "ways": list(serving_ways(kept)), "judged": list(judged(kept))}


def written(page: str, kept: Kept) -> str:
    """Return the page with its tables made anew."""
    tables = blocks(kept)
    return BLOCK.sub(lambda match: f"{match[1]}{chr(10).join(tables[match[2]])}\n{match[3]}", page)


def main(words: list[str]) -> int:
    """Keep runs, and write the page."""
    if words and (words[0] != "keep" or len(words) == 1):
        print("usage: python3 -m tests.gpu.measurements [keep RUN.json…]", file=sys.stderr)
        return 2
    for word in words[1:]:
        try:
            for path in keep(Path(word)):
                print(path.relative_to(PAGE.parents[1]))
        except (OSError, ValueError) as error:
            print(f"measurements: {word}: {error}", file=sys.stderr)
            return 1
    kept = load()
    PAGE.write_text(written(PAGE.read_text(), kept))
    PICTURE.write_text(drawn(kept["H200"]["serving"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
