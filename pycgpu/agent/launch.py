# SPDX-License-Identifier: MIT
"""Turning this process into a tenant: agent, container, filter, program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from pycgpu.agent import filter, server
from pycgpu.errors import CgpuError
from pycgpu.request.model import Grant
from pycgpu.tree import procfs

_START_S = 60
_LOG = f"{server.DIRECTORY}/agent.log"
#: An agent started on demand goes when it has had no tenant for this long.
IDLE_S = 60


def ensure_agent(force_branch: bool = False) -> None:
    """Start the agent if none runs. CgpuError: it does not start, and why."""
    if _answers():
        return
    server.own_directory()
    command = [sys.executable, "-m", "pycgpu.agent", "--idle", str(IDLE_S)]
    if force_branch:
        command.append("--force-branch")
    with open(_LOG, "w", opener=_private) as log:
        try:
            started = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
                timeout=_START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise CgpuError(f"the agent does not start within {_START_S} s: see {_LOG}") from None
    # Another `cgpu run` may have been faster.
    if started and not _answers():
        with open(_LOG) as log:
            lines = log.read().strip().splitlines()
        reason = lines[-1].removeprefix("cgpu: ") if lines else f"status {started}"
        raise CgpuError(f"the agent does not start: {reason}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _answers() -> bool:
    try:
        return bool(server.ask({"op": "ping"}).get("ok"))
    except (OSError, ValueError):
        return False


def run(
    container_id: str, grant: Grant, program: Sequence[str], *, force_branch: bool = False
) -> NoReturn:
    """
    Become *program* as the tenant *container_id*: same process, so signals and status are its own.

    CgpuError: no root, no agent, the request is refused, or the program is not there.
    """
    if os.geteuid() != 0:
        raise CgpuError("run needs root: try sudo")
    ensure_agent(force_branch)
    command = procfs.create_command(container_id, grant, pid=os.getpid())
    try:
        listener = filter.install()
    except OSError as error:
        raise CgpuError(
            f"the kernel installs no seccomp listener: {error.strerror}: Linux 5.6 or newer is"
            " needed, and not inside another container's seccomp agent"
        ) from None
    try:
        answer = server.ask({"op": "run", "create": command}, (listener,))
    except (OSError, ValueError) as error:
        raise CgpuError(f"the agent went away: {error}; see {_LOG}") from None
    finally:
        os.close(listener)
    if not answer.get("ok"):
        raise CgpuError(f"{container_id}: {answer.get('message', 'the agent refused')}")
    # CUDA gives up at a card that it is refused, so it must not try.
    if answer.get("devices"):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(answer["devices"]))
    try:
        os.execvp(program[0], list(program))
    except OSError as error:
        raise CgpuError(f"{program[0]}: {error.strerror}") from None
