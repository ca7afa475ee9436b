# SPDX-License-Identifier: MIT
"""The page of measurements says what the kept results say, and no miss is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.figures import TABLES
from tests.gpu.kept import keep, load, parts
from tests.gpu.measurements import CARDS, PAGE, PICTURE, blocks, figure, of_card, written
from tests.gpu.picture import drawn

KEPT = load()


def test_the_page_is_what_the_kept_results_say() -> None:
    page = PAGE.read_text()
    assert page == written(page, KEPT), "run python3 -m tests.gpu.measurements"
    assert PICTURE.read_text() == drawn(KEPT["H200"]["serving"])
    assert len(page.splitlines()) <= 200
    assert set(re.findall(r"<!-- table (\w+) -->", page)) == set(blocks(KEPT))


def test_every_row_has_a_figure_of_some_card() -> None:
    for rows in TABLES.values():
        for row in rows:
            names = [
                one["name"]
                for card in CARDS
                for one in of_card(KEPT, card, row).get(row.section, {}).get("checks", ())
            ]
            for pattern in row.patterns:
                assert any(re.search(pattern, name) for name in names), (row, pattern)


def test_a_check_that_missed_its_bound_belongs_to_a_row() -> None:
    patterns = [
        (row.section, pattern)
        for rows in TABLES.values()
        for row in rows
        for pattern in row.patterns
    ]
    missed = [
        (section, one["name"])
        for sections in KEPT.values()
        for section, found in sections.items()
        for one in found["checks"]
        if one["pass"] is False
    ]
    assert missed, "the test would see none"
    hidden = [
        (section, name)
        for section, name in missed
        if not any(section == of and re.search(which, name) for of, which in patterns)
    ]
    assert hidden == []


def check(value: Any, bound: str, ok: bool | None) -> dict[str, Any]:
    return {"name": "a", "value": value, "unit": "%", "bound": bound, "pass": ok}


def test_a_row_shows_what_is_nearest_to_its_bound_and_a_miss_first() -> None:
    cells = [
        figure(check(99.0, ">= 98", True)),
        figure(check(98.1, ">= 98", True)),
        figure(check(97.9, ">= 98", False)),
        figure(check(50.0, "None", None)),
        figure(check("lost", "found", False)),
    ]
    ordered = sorted(cells, key=lambda one: one.margin)
    assert [one.text for one in ordered] == ["**lost**", "**97.9**", "98.1", "99", "50"]


def run(date: str, value: float) -> dict[str, Any]:
    return {
        "date": date,
        "card": "NVIDIA H200",
        "cards": 1,
        "driver": "580",
        "kernel": "6.1",
        "commit": "1234567",
        "checks": [
            {"section": "alone", **check(value, ">= 1", True)},
            {"section": "quotas", **check(value, ">= 1", True)},
            {"section": "quotas", **check(0, "", False), "name": "quotas: ended early"},
        ],
        "tables": [{"section": "alone", "title": "t", "columns": ["a"], "rows": [[1]]}],
    }


def test_a_run_is_kept_by_section_and_an_older_one_does_not_replace_it(tmp_path: Path) -> None:
    for date, value in (("2026-11-02", 2.0), ("2026-11-03", 3.0), ("2026-11-01", 1.0)):
        (tmp_path / "run.json").write_text(json.dumps(run(date, value)))
        keep(tmp_path / "run.json", tmp_path / "results")
    found = load(tmp_path / "results")
    # What ended early is no result.
    assert list(found) == ["H200"] and list(found["H200"]) == ["alone"]
    alone = found["H200"]["alone"]
    assert (alone["date"], alone["checks"][0]["value"]) == ("2026-11-03", 3.0)
    assert len(alone["tables"]) == 1


def test_a_run_without_sections_is_refused() -> None:
    whole = run("2026-11-01", 1.0)
    del whole["checks"][0]["section"]
    with pytest.raises(ValueError, match="no section"):
        list(parts(whole))


def test_what_is_kept_lies_where_its_card_and_section_say() -> None:
    for sections in KEPT.values():
        for name, found in sections.items():
            assert found["section"] == name
            assert set(found) >= {"date", "card", "driver", "commit", "checks", "tables"}
