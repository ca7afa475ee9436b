# SPDX-License-Identifier: MIT
"""Numbers of command lines: what is none, or none that there can be, is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycgpu.cli import _number, main
from pycgpu.errors import CgpuError
from pycgpu.tree import change
from tests.host import program
from tests.host.coretree import CoreTree

LONG = "9" * 5000
#: float() takes all of them.
NO_SECONDS = [
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1_0",
    "\u0663",
    " 3",
    LONG,
    "-1",
    "1e3",
    "1.",
    ".5",
    "",
]


@pytest.mark.parametrize("text", NO_SECONDS)
@pytest.mark.parametrize(
    "words",
    [
        ("usage", "--record", "--interval"),
        ("top", "n1", "--sample"),
        ("upgrade", "--trial"),
        ("upgrade", "--prove"),
        ("agent", "--idle"),
    ],
)
def test_what_are_no_seconds_is_refused_before_anything_is_done(
    words: tuple[str, ...], text: str
) -> None:
    found = program.run(main.app, *words, text)
    assert found.returncode == 2, found
    assert "write " in found.stderr and "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("text", "expected"), [("1", 1), ("0.5", 0.5), ("60", 60), (1.0, 1), (60, 60)]
)
def test_seconds_are_read_within_their_bounds(text: str | float, expected: float) -> None:
    assert _number.seconds(0.5, 60)(text) == expected


@pytest.mark.parametrize("prove", ["120", "121", "600"])
def test_nobody_watches_new_code_longer_than_its_trial(prove: str) -> None:
    found = program.run(main.app, "upgrade", "--prove", prove)
    assert found.returncode == 2 and "the trial ends after 120 seconds" in found.stderr


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize(
    "text", ["9" * 400 + "d", LONG + "s", "\u0663d", "0001-01-01", "9999-99-99"]
)
def test_what_is_no_time_is_told_in_a_line(option: str, text: str, tmp_path: Path) -> None:
    found = program.run(main.app, "usage", option, text, "--directory", tmp_path)
    assert (found.returncode, found.stderr.count("\n")) in ((0, 0), (1, 1)), found
    assert (found.returncode == 0) <= (text == "0001-01-01")


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    made = CoreTree(tmp_path / "tree", [(16 << 30, 0)], features=("GATE",))
    made.create("one", "gpu=0,mem=max")
    made.write()
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("set", "one", "--weight", LONG),
        ("set", "one", "--quota", LONG),
        ("set", "one", "--mem", LONG),
        ("policy", "0", LONG),
        ("smi", "--id", LONG),
    ],
)
def test_a_number_of_thousands_of_digits_is_none(tree: CoreTree, words: tuple[str, ...]) -> None:
    found = program.run(main.app, *words, "--root", tree.root)
    assert found.returncode in (1, 2), found
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("text", [LONG, "\u0663", "1_0", "-1", ""])
def test_what_is_no_number_is_none_by_hand_either(text: str) -> None:
    with pytest.raises(CgpuError, match="write a whole number"):
        change.parse_number("weight", text)
    with pytest.raises(CgpuError, match="no policy"):
        change.parse_policy(text)


@pytest.mark.parametrize("text", [f"127.0.0.1:{LONG}", "127.0.0.1:0", ":65536", "x", ":\u0663"])
@pytest.mark.parametrize("command", ["exporter", "scheduler-extender"])
def test_what_is_no_port_is_told_in_a_line(command: str, text: str) -> None:
    found = program.run(main.app, command, "--listen", text)
    assert found.returncode == 1 and found.stderr.count("\n") == 1
    assert "write ADDRESS:PORT" in found.stderr
