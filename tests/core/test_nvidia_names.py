# SPDX-License-Identifier: MIT
"""
The core's names of controls and classes against NVIDIA's own headers, in every branch.

Nothing of NVIDIA's is part of this project: the headers come from the clone that
``$CGPU_NVIDIA_SOURCE`` names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.core.strategies import COMPARED
from tests.vm.driver import SourceNotFound, unpack_source

RM = Path(__file__).resolve().parents[2] / "kmod/core/rm"
HEADERS = "src/common/sdk/nvidia/inc"
NAMED = re.compile(r"^\t(\w+) = (0x[0-9A-F]+)", re.MULTILINE)
DEFINED = re.compile(r"^\s*#define\s+(\w+)\s+\(?\s*(0x[0-9a-fA-F]+)[uUlL]*\s*\)?", re.MULTILINE)
ROW = re.compile(r"^\t(?:PASS|OWN|JUDGE|DENY|MEMBER|UNLISTED)\((\w+)", re.MULTILINE)


def ours() -> dict[str, int]:
    """Every name with its number."""
    found = NAMED.findall((RM / "numbers.h").read_text())
    assert len(found) == len(dict(found)) > 400
    return {name: int(number, 16) for name, number in found}


def test_a_number_has_one_name() -> None:
    numbers: dict[tuple[bool, int], list[str]] = defaultdict(list)
    for name, number in ours().items():
        numbers["_CTRL_" in name, number].append(name)
    assert [names for names in numbers.values() if len(names) > 1] == []


def test_what_has_a_name_stands_in_the_tables_by_it() -> None:
    rows = ROW.findall((RM / "allowed.c").read_text())
    bare = {int(row, 16) for row in rows if row.startswith("0x")}
    assert len(rows) > 450
    assert bare & set(ours().values()) == set()
    assert {row for row in rows if not row.startswith("0x")} <= set(ours())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """What NVIDIA's headers of all branches define, with every number that they give it."""
    found: dict[str, set[int]] = defaultdict(set)
    for version in COMPARED.values():
        tree = tmp_path_factory.mktemp("nvidia") / version
        try:
            unpack_source(version, tree, f"{HEADERS}/ctrl", f"{HEADERS}/class", f"{HEADERS}/nvos.h")
        except SourceNotFound as error:
            pytest.skip(f"no source: {error}")
        for path in tree.rglob("*.h"):
            for name, number in DEFINED.findall(path.read_text(errors="replace")):
                found[name].add(int(number, 16))
    return found


def test_every_name_is_nvidias_and_of_this_number_in_every_branch(
    theirs: dict[str, set[int]],
) -> None:
    wrong = {
        name: (hex(number), sorted(map(hex, theirs.get(name, ()))))
        for name, number in ours().items()
        if theirs.get(name) != {number}
    }
    assert wrong == {}
