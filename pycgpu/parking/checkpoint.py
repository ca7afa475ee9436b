# SPDX-License-Identifier: MIT
"""NVIDIA's checkpoint of a process, called in a helper process that stays warm."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from enum import IntEnum

from pycgpu.errors import CgpuError
from pycgpu.parking import stopped
from pycgpu.parking.checkpoint_helper import NOT_INITIALIZED, NOT_READY
from pycgpu.parking.wishes import Process

#: A helper that has not answered by then is ended: a copy to the host takes 0.5 s a GiB (H200).
TIMEOUT_S = 180.0
#: A helper does not answer for a process that stands still, so its state is read this often.
_STILL_S = 1.0
_START_S = 20.0
_QUICK_S = 5.0

#: CUDA's names of statuses that checkpoints have been seen to fail with.
_STATUSES = {
    1: "invalid value",
    2: "out of memory",
    NOT_INITIALIZED: "not a CUDA process",
    304: "no such process",
    NOT_READY: "its work on the card did not end in time",
    801: "not supported: it shares memory with another process, or has what cannot be saved",
    401: "illegal state",
}


def _told(status: int) -> str:
    why = _STATUSES.get(status, "")
    return f"CUDA status {status}" + (f", {why}" if why else "")


class ProcessState(IntEnum):
    """The state of a process, CUprocessState; GONE and NOT_CUDA are ours."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    GONE = -1
    NOT_CUDA = -2


class CheckpointError(CgpuError):
    """The driver refused, or the helper ended or hung."""


class Checkpoint:
    """One helper, started at first use, and again when it has ended."""

    def __init__(self, command: tuple[str, ...] = ()) -> None:
        self._command = command or (sys.executable, "-m", "pycgpu.parking.checkpoint_helper")
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def state(self, pid: int) -> ProcessState:
        """
        Return what the driver says of a process.

        Raises:
            CheckpointError: the driver does not say, and the process lives, in an unknown state.
        """
        said, _, state = self._ask("state", pid, _QUICK_S).partition(" ")
        status = int(said)
        if status == NOT_INITIALIZED:
            return ProcessState.NOT_CUDA
        if not status:
            return ProcessState(int(state))
        with contextlib.closing(Process(pid)) as process:
            if process.has_ended():
                return ProcessState.GONE
        raise CheckpointError(f"the driver does not say what process {pid} does: {_told(status)}")

    def lock(self, pid: int) -> None:
        """Make every CUDA call of the process wait, once its work on the card is done."""
        self._do("lock", pid)

    def checkpoint(self, pid: int) -> None:
        """Move all its card memory into its own memory. The process must be locked."""
        self._do("checkpoint", pid)

    def restore(self, pid: int) -> None:
        """Move the memory back. The process stays locked."""
        self._do("restore", pid)

    def unlock(self, pid: int) -> None:
        """Let its CUDA calls go on."""
        self._do("unlock", pid)

    def start(self) -> None:
        """
        Start the helper, if none runs.

        Raises:
            CheckpointError: this host's driver has no checkpoint.
        """
        with self._lock:
            self._started()

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._end()

    def _do(self, operation: str, pid: int) -> None:
        status = int(self._ask(operation, pid, TIMEOUT_S))
        if status:
            raise CheckpointError(
                f"the driver refuses to {operation} process {pid}: {_told(status)}"
            )

    def _ask(self, operation: str, pid: int, timeout_s: float) -> str:
        with self._lock:
            helper = self._started()
            assert helper.stdin is not None
            try:
                # The helper may have ended unseen; then a read gets nothing.
                with contextlib.suppress(BrokenPipeError):
                    helper.stdin.write(f"{operation} {pid}\n".encode())
                    helper.stdin.flush()
                return self._line(helper, timeout_s, pid)
            except (OSError, CheckpointError) as error:
                self._end()
                raise CheckpointError(f"{operation} of process {pid}: {error}") from error

    def _started(self) -> subprocess.Popen[bytes]:
        if self._helper is not None and self._helper.poll() is None:
            return self._helper
        self._end()
        self._helper = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
        )
        said = self._line(self._helper, _START_S)
        if said != "ready":
            self._end()
            raise CheckpointError(f"no container can be parked here: {said.removeprefix('error ')}")
        return self._helper

    def _line(self, helper: subprocess.Popen[bytes], timeout_s: float, pid: int = 0) -> str:
        assert helper.stdout is not None
        end_s = time.monotonic() + timeout_s
        while not select.select([helper.stdout], [], [], _STILL_S)[0]:
            if pid and (why := stopped.reason(pid)):
                raise CheckpointError(why)
            if time.monotonic() > end_s:
                raise CheckpointError(f"no answer for {timeout_s:g} s")
        line = helper.stdout.readline()
        if not line:
            raise CheckpointError("the helper has ended")
        return line.decode().strip()

    def _end(self) -> None:
        helper, self._helper = self._helper, None
        if helper is None:
            return
        helper.kill()
        helper.wait()
        for pipe in (helper.stdin, helper.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
