# SPDX-License-Identifier: MIT
"""What `cgpu install` asks at a terminal, answered by one that types."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable

import pytest

from pycgpu.cli import install

NO_CHILD = 0


def typed(ask: Callable[[], object], *answers: str) -> tuple[str, str]:
    """Return what *ask* returned, as text, and all that the terminal showed."""
    read, write = os.pipe()
    child, terminal = pty.fork()
    if child == NO_CHILD:
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115 (until the child's end)
        os.write(write, repr(ask()).encode())
        os._exit(0)
    os.close(write)
    shown = b""
    for answer in answers:
        while not shown.rstrip().endswith((b"]:", b"%]:")) and (part := os.read(terminal, 1000)):
            shown += part
        os.write(terminal, f"{answer}\n".encode())
        shown += b"\n"
    said = os.read(read, 1000)
    while True:
        try:
            part = os.read(terminal, 1000)
        except OSError:  # nobody has it open any more
            break
        shown += part
    os.waitpid(child, 0)
    os.close(terminal)
    os.close(read)
    return said.decode(), shown.decode()


@pytest.mark.parametrize(
    ("answers", "taken"),
    [(("",), "refuse"), (("allow",), "allow"), (("maybe", "0%", "25", "25%"), "25%")],
)
def test_what_a_container_without_a_grant_gets_is_asked_until_it_is_a_word_for_it(
    answers: tuple[str, ...], taken: str
) -> None:
    said, shown = typed(install.ask_ungranted, *answers)
    assert said == repr(taken)
    assert "given a card past our runtime" in shown and "[refuse]" in shown
    for wrong in answers[:-1]:
        assert f"--ungranted {wrong!r}: write refuse, asked, allow, or 1% to 100%" in shown


@pytest.mark.parametrize(("answer", "names"), [("", ("cgpu",)), ("y", ("cgpu", "nvidia"))])
def test_the_toolkits_name_is_taken_only_by_who_says_yes(
    answer: str, names: tuple[str, ...]
) -> None:
    said, shown = typed(lambda: install.ask_names(("cgpu",)), answer)
    assert said == repr(names)
    assert "starts the toolkit's runtime here and limits nothing" in shown.replace("\r\n", " ")


def test_where_the_name_is_free_nothing_is_asked() -> None:
    assert install.ask_names(("cgpu", "nvidia")) == ("cgpu", "nvidia")
