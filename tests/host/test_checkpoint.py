# SPDX-License-Identifier: MIT
"""The helper that asks NVIDIA's checkpoint: here a shell that answers as libcuda might."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from pycgpu.parking import checkpoint
from pycgpu.parking.checkpoint import Checkpoint, CheckpointError, ProcessState


@pytest.fixture
def helper() -> Iterator[Callable[[str], Checkpoint]]:
    """``helper(text)``: what answers each line so, as the shell reads it."""
    made: list[Checkpoint] = []

    def make(text: str) -> Checkpoint:
        script = f"echo ready; while read -r operation pid; do {text}; done"
        made.append(Checkpoint(("sh", "-c", script)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("0 0", ProcessState.RUNNING),
        ("0 1", ProcessState.LOCKED),
        ("0 2", ProcessState.CHECKPOINTED),
        ("0 3", ProcessState.FAILED),
        ("3 -1", ProcessState.NOT_CUDA),
    ],
)
def test_a_process_is_in_the_state_that_the_driver_says(
    helper: Callable[[str], Checkpoint], said: str, state: ProcessState
) -> None:
    assert helper(f"echo {said}").state(1) is state


def test_only_a_process_that_has_ended_is_gone(
    helper: Callable[[str], Checkpoint], child: subprocess.Popen[bytes]
) -> None:
    """One of which the driver does not say what it does may be parked still."""
    asked = helper("echo 304 -1")
    with pytest.raises(CheckpointError, match=f"what process {child.pid} does: CUDA status 304"):
        asked.state(child.pid)
    child.kill()
    child.wait()
    assert asked.state(child.pid) is ProcessState.GONE


def test_what_the_driver_refuses_is_told_by_its_status(
    helper: Callable[[str], Checkpoint],
) -> None:
    with pytest.raises(
        CheckpointError, match="refuses to lock process 7: CUDA status 600, its wor"
    ):
        helper("echo 600").lock(7)


def test_a_helper_that_ends_or_hangs_is_followed_by_another(
    helper: Callable[[str], Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_QUICK_S", 0.1)
    monkeypatch.setattr(checkpoint, "_STILL_S", 0.1)
    for how, why in (("exit", "the helper has ended"), ("sleep 60", "no answer for 0.1 s")):
        asked = helper(f'[ "$pid" = 1 ] && {{ {how}; }}; echo 0 0')
        with pytest.raises(CheckpointError, match=f"state of process 1: {why}"):
            asked.state(1)
        assert asked.state(2) is ProcessState.RUNNING


def test_a_helper_that_ends_just_before_it_is_asked_has_ended(
    helper: Callable[[str], Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = helper("echo 0 0")
    asked.start()
    ended = asked._helper
    assert ended is not None
    ended.kill()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    # It was alive when that was looked at.
    with monkeypatch.context() as patch:
        patch.setattr(ended, "poll", lambda: None)
        with pytest.raises(CheckpointError, match="state of process 1: the helper has ended"):
            asked.state(1)
    assert asked.state(2) is ProcessState.RUNNING


def test_nobody_waits_for_one_that_is_stopped(
    helper: Callable[[str], Checkpoint],
    child: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "_STILL_S", 0.1)
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(CheckpointError, match=f"process {child.pid} is stopped; continue it first"):
        helper("sleep 60").restore(child.pid)
