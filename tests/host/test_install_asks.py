# SPDX-License-Identifier: MIT
"""What `cgpu install` asks at a terminal, answered by one that types."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.cli import install
from pycgpu.errors import InstallError

NO_CHILD = 0
CTRL_C, CTRL_D = "\x03", "\x04"


def wait_for_read(pid: int) -> None:
    """
    Wait until *pid*, which has shown its prompt, sleeps in read().

    Python acts on a signal between two of its instructions: one that comes after the prompt and
    before the read() is not seen until something is typed.
    """
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < end, "it shows a prompt and waits for nothing"
        time.sleep(0.001)


def typed(ask: Callable[[], object], *answers: str) -> tuple[str, str]:
    """Return what *ask* returned, as text, and all that the terminal showed."""
    read, write = os.pipe()
    child, terminal = pty.fork()
    if child == NO_CHILD:
        # whoever runs the tests in the background has it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # not 1, at which readline would change the terminal's mode and lose what is typed meanwhile
        sys.stdin, sys.stdout = open(0), open(os.dup(1), "w")  # noqa: SIM115 (until the child's end)
        os.write(write, repr(ask()).encode())
        os._exit(0)
    os.close(write)
    shown = b""
    for answer in answers:
        seen = len(shown)
        while not shown[seen:].rstrip().endswith(b"]:") and (part := os.read(terminal, 1000)):
            shown += part
        wait_for_read(child)
        os.write(terminal, answer.encode() + (b"" if answer in (CTRL_C, CTRL_D) else b"\n"))
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
    [
        (("",), "refuse"),
        (("allow",), "allow"),
        ((" Asked ",), "asked"),
        (("maybe", "0%", "25", "25%"), "25%"),
    ],
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


def test_a_word_that_is_neither_yes_nor_no_is_asked_again() -> None:
    said, shown = typed(lambda: install.ask_names(("cgpu",)), "perhaps", "n")
    assert said == "('cgpu',)"
    assert shown.count("[y/N]") == 2 and "invalid input" in shown


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
@pytest.mark.parametrize("before", [(), ("y",), ("n", "maybe"), ("n", "refuse")])
def test_whoever_does_not_answer_is_told_that_nothing_was_changed(
    key: str, before: tuple[str, ...]
) -> None:
    def ask() -> object:
        try:
            return install.ask(None, ("cgpu",), None, asks_names=True)
        except InstallError as error:
            return str(error)

    said, _ = typed(ask, *before, key)
    assert said == "'not answered, so nothing was changed'"


def test_what_options_say_is_not_asked() -> None:
    for default in (True, False):
        said = install.ask("10%", ("cgpu",), default, asks_names=False)
        assert said == ("10%", ("cgpu",), default)


@pytest.mark.parametrize(("answer", "default"), [("", False), ("n", False), ("y", True)])
def test_whether_vendors_lines_without_a_runtime_shall_work_is_asked(
    answer: str, default: bool
) -> None:
    said, shown = typed(lambda: install.ask("refuse", ("cgpu",), None, asks_names=False), answer)
    assert said == repr(("refuse", ("cgpu",), default))
    said_so = shown.replace("\r\n", " ")
    assert "Shall cgpu's runtime be the engines' default" in said_so and "[y/N]" in said_so
    assert "Otherwise such a line gets no card" in said_so


@pytest.mark.parametrize("word", ["--default", "--no-default"])
def test_without_a_terminal_nothing_is_asked(word: str) -> None:
    program = "from pycgpu.cli.main import app; app()"
    for words in ([], [word]):
        done = subprocess.run(
            [sys.executable, "-c", program, "install", "--dry-run", "--no-runtimes", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "would: " in done.stdout and "Shall" not in done.stdout + done.stderr


def test_nobody_is_asked_for_an_installation_that_would_be_refused(tmp_path: Path) -> None:
    """The command itself, at a terminal."""
    words = ["install", "--no-load", "--no-runtimes", "--modules", str(tmp_path)]
    program = "from pycgpu.cli.main import app; app()"

    def run() -> object:
        # its standard input is the terminal
        call = [sys.executable, "-c", program, *words]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    if os.geteuid():
        pytest.skip("installing takes root")
    said, shown = typed(run)
    assert "no cgpu_km.ko in it" in said
    assert "given a card" not in said + shown


def test_where_the_name_is_free_nothing_is_asked() -> None:
    assert install.ask_names(("cgpu", "nvidia")) == ("cgpu", "nvidia")
