# SPDX-License-Identifier: MIT
"""Which cards have failed, by NVML's own binding over a library that fails as a test asks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host import nvml

ONE, TWO, THREE = (f"GPU-00000000-0000-0000-0000-{n:012}" for n in (1, 2, 3))
#: Prints which cards have failed whenever it is told; the cards stand in a file.
FOLLOWER = """
import logging, pathlib, sys, threading
from pycgpu.kubernetes.health import Health

logging.basicConfig(format="log %(message)s", stream=sys.stdout, level=logging.INFO)
cards = pathlib.Path(sys.argv[1])


def say():
    print("failed", *sorted(health.failed), flush=True)
    print("heard", *filter(health.is_heard, cards.read_text().split()), flush=True)


health = Health(say, 0.05, 0.2)
threading.Thread(target=lambda: (sys.stdin.read(), health.ended.set())).start()
health.follow(lambda: cards.read_text().split())
"""


class Follower:
    def __init__(self, path: Path) -> None:
        self.state = path / "state"
        self.state.mkdir()
        self.cards = path / "cards"
        self.cards.write_text(f"{ONE} {TWO}")
        self.lines: list[str] = []
        self.news = threading.Condition()
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(nvml.make_library(path)),
            "NVML_STATE": str(self.state),
        }

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(self.cards)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.strip())
                self.news.notify_all()

    def stop(self) -> None:
        self.process.communicate()
        self.reader.join()

    def tell(self, name: str, word: str | None) -> None:
        """Have a board, or NVML itself, be so from now on."""
        path = self.state / name
        if word is None:
            path.unlink()
        else:
            draft = self.state / "draft"
            draft.write_text(word)
            draft.rename(path)

    def until(self, condition: Callable[[str], bool], what: str) -> None:
        """Wait for a line, and forget those before it."""
        with self.news:
            came = self.news.wait_for(lambda: any(map(condition, self.lines)), 60)
            assert came, f"{what}: {self.lines}"
            while not condition(self.lines.pop(0)):
                pass

    def until_failed(self, *uuids: str) -> None:
        self.until(lambda line: line == " ".join(("failed", *uuids)), f"{uuids} failed")

    def until_heard(self, *uuids: str) -> None:
        self.until(lambda line: line == " ".join(("heard", *uuids)), f"{uuids} heard")

    def until_said(self, text: str) -> None:
        self.until(lambda line: line.startswith("log ") and text in line, text)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("word", ["mute", "gone", "fail", "lost"])
def test_a_board_that_cannot_be_heard_is_no_others_loss(follower: Follower, word: str) -> None:
    follower.tell(ONE, word)
    follower.start()
    if word == "lost":
        follower.until_failed(ONE)
    else:
        follower.until_said(f"failures of card {ONE} are not noticed: NVML: ")
    follower.tell(TWO, "xid 79")
    follower.until_failed(*((ONE, TWO) if word == "lost" else (TWO,)))
    # And it is heard as soon as it can be.
    follower.tell(ONE, None)
    if word == "lost":
        follower.until_failed(TWO)
    follower.tell(ONE, "xid 48")
    follower.until_failed(ONE, TWO)


@pytest.mark.parametrize("word", ["mute", "gone", "fail", "lost"])
def test_only_a_board_that_is_listened_to_is_known_to_be_well(
    follower: Follower, word: str
) -> None:
    follower.start()
    follower.until_heard(ONE, TWO)
    if word in ("fail", "lost"):
        # Of the others the board is asked when NVML is begun.
        follower.tell(ONE, word)
        follower.until_heard(TWO)
        follower.tell(ONE, None)
        follower.until_heard(ONE, TWO)
    follower.tell(ONE, word)
    follower.tell("nvml", "down")
    follower.cards.write_text(f"{ONE} {TWO} {THREE}")
    follower.tell(THREE, "gone")
    follower.until_heard()
    follower.tell("nvml", None)
    follower.until_heard(TWO)


def test_a_program_s_own_fault_is_no_failure(follower: Follower) -> None:
    follower.start()
    follower.tell(ONE, "xid 31")
    while (follower.state / ONE).exists():
        assert follower.process.poll() is None
        time.sleep(0.01)
    follower.tell(ONE, "xid 94")
    follower.tell(TWO, "xid 79")
    follower.until_failed(TWO)


def test_a_wait_that_fails_once_is_waited_again(follower: Follower) -> None:
    follower.start()
    follower.tell(ONE, "fail")
    follower.until_said(f"failures of card {ONE} are not noticed")
    follower.tell(ONE, "xid 79")
    follower.until_failed(ONE)


def test_a_card_is_lost_and_comes_back(follower: Follower) -> None:
    follower.start()
    for _ in range(2):
        follower.tell(TWO, "lost")
        follower.until_failed(TWO)
        follower.tell(TWO, None)
        follower.until_failed()


def test_a_card_in_mig_mode_is_offered_whole_by_nobody(follower: Follower) -> None:
    follower.tell(TWO, "mig")
    follower.start()
    follower.until_said(f"card {TWO}: unhealthy in MIG mode: nvidia-smi -i {TWO} -mig 0")
    follower.until_failed(TWO)
    follower.tell(TWO, None)
    follower.until_failed()


@pytest.mark.parametrize("first", ["nvml", "plugin"])
def test_it_is_the_same_who_was_there_first(follower: Follower, first: str) -> None:
    """The driver, its library's board, a card that is new, or the one who listens."""
    if first == "plugin":
        follower.tell("nvml", "down")
        follower.start()
        follower.until_said("failures of any card are not noticed: NVML: ")
        follower.cards.write_text(f"{ONE} {TWO} {THREE}")
        follower.tell("nvml", None)
    else:
        follower.cards.write_text(f"{ONE} {TWO} {THREE}")
        follower.start()
    follower.tell(THREE, "xid 79")
    follower.until_failed(THREE)
    follower.tell(ONE, "lost")
    follower.until_failed(ONE, THREE)
