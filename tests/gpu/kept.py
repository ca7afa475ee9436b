# SPDX-License-Identifier: MIT
"""
The newest result of each card and section, which ``results/`` keeps as ``CARD/SECTION.json``.

What a section found is one value: date, card, driver, kernel, commit, checks and tables. A run of
several sections is taken apart, and each part replaces an older one of the same card.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
#: of a run, what each of its sections says of itself
FACTS = ("date", "card", "cards", "driver", "kernel", "commit")


def short_card(found: dict[str, Any]) -> str:
    """The name of a run's card, as a folder: ``H200``; with another beside it ``2x-H200``."""
    cards = f"{found['cards']}x-" if found["cards"] > 1 else ""
    return cards + str(found["card"]).removeprefix("NVIDIA ").replace(" ", "-")


def parts(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Take a run apart into its sections, without those that ended early."""
    whole = [*found["checks"], *found["tables"]]
    if any("section" not in one for one in whole):
        raise ValueError("no section beside a figure: measured before they were recorded")
    for section in dict.fromkeys(one["section"] for one in whole):
        ended = f"{section}: ended early"
        checks, tables = (
            [
                {k: v for k, v in one.items() if k != "section"}
                for one in found[kind]
                if one["section"] == section
            ]
            for kind in ("checks", "tables")
        )
        if all(one["name"] != ended for one in checks):
            facts = {name: found[name] for name in FACTS}
            yield {**facts, "section": section, "checks": checks, "tables": tables}


def keep(run: Path, results: Path = RESULTS) -> list[Path]:
    """Keep a run's sections, but for those of which a later date is kept; return their files."""
    kept = []
    for part in parts(json.loads(run.read_text())):
        path = results / short_card(part) / f"{part['section']}.json"
        if path.exists() and json.loads(path.read_text())["date"] > part["date"]:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(part, indent=1) + "\n")
        kept.append(path)
    return kept


def load(results: Path = RESULTS) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what is kept, by card and section."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(results.glob("*/*.json")):
        found.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text())
    return found
