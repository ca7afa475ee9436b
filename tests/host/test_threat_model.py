# SPDX-License-Identifier: MIT
"""The threat model says first what is open, and has a test for each class that is closed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))
#: in a row of an attack, most words beside its tests
MOST_WORDS = 40


def section(name: str) -> str:
    """A part of the page, with its own parts."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", re.sub(r"^\|.*\n\|---.*\n", "", text, flags=re.M), re.M)
    return [re.split(r" \| ", line) for line in lines]


CLOSED = rows(section("Closed"))


def test_what_is_open_comes_before_what_is_closed() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[:2] == ["Open", "Closed"]
    assert len(rows(section("Open"))) > 10


def test_the_page_names_tests() -> None:
    assert len(CLOSED) > 40 and len(NAMED) > 100


@pytest.mark.parametrize("row", CLOSED, ids=[row[0][:50] for row in CLOSED])
def test_a_class_of_attacks_has_a_test_beside_it_and_is_told_in_forty_words(
    row: list[str],
) -> None:
    attack, closed_by, tests = row
    assert len(f"{attack} {closed_by}".split()) <= MOST_WORDS
    assert re.findall(r"`(?:test_\w+|tests/\w+/test_\w+\.py)`", tests)


@pytest.mark.parametrize("row", rows(section("Open")), ids=lambda row: row[0][:50])
def test_what_is_open_says_for_which_door_and_why_in_forty_words(row: list[str]) -> None:
    can, door, because = row
    assert door.split(",")[0] in {"agent", "module", "both"}
    assert because and len(f"{can} {because}".split()) <= MOST_WORDS


@pytest.mark.parametrize("name", NAMED)
def test_what_the_threat_model_names_is_a_test(name: str) -> None:
    files = [*REPOSITORY.glob("tests/vm/*.py"), *REPOSITORY.glob("tests/core/*.py")]
    files += [*REPOSITORY.glob("tests/host/*.py"), *REPOSITORY.glob("tests/web/*.py")]
    assert any(f"def {name}(" in file.read_text() for file in files)
