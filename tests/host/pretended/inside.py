# SPDX-License-Identifier: MIT
"""What a test says beside the pretended driver, in its own namespace."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pycgpu.agent import client
from pycgpu.tree.process import directories

T = TypeVar("T")
DEADLINE_S = 60
TREE = Path("/run/cgpu_km")


def until(condition: Callable[[], T | None], what: str) -> T:
    """Return *condition*'s first true value."""
    end_s = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < end_s, what
        time.sleep(0.01)
    return value


def agent() -> int:
    """The agent's process, 0: none answers."""
    with contextlib.suppress(OSError, ValueError):
        return int(client.ask({"op": "ping"})["pid"])
    return 0


def watchdog() -> int:
    """The watchdog's process, 0: there is none."""
    for comm in (one / "comm" for one in directories(Path("/proc"))):
        with contextlib.suppress(OSError):
            if comm.read_text() != "cgpud-watchdog\n":
                continue
            state = (comm.parent / "stat").read_text().rpartition(")")[2].split()[0]
            mine = os.readlink(comm.parent / "ns/mnt") == os.readlink("/proc/self/ns/mnt")
            if state != "Z" and mine:
                return int(comm.parent.name)
    return 0


def follows(pid: int) -> int:
    """Wait for an agent after that one."""
    try:
        return until(lambda: (found := agent()) and found != pid and found, "the next agent")
    except AssertionError:
        print(watchdog(), Path("/run/cgpu/agent.log").read_text()[-4000:], file=sys.stderr)
        raise


def serve(*options: str) -> subprocess.Popen[str]:
    """`cgpu agent`, as a service starts it."""
    before = agent()
    command = [sys.executable, "-m", "pycgpu.cli.main", "agent", *options]
    started = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until(lambda: started.poll() is not None or agent() not in (0, before), "the agent")
    return started


class Tenant:
    """A program under `cgpu run`."""

    def __init__(self, name: str, held: int, client: int) -> None:
        self.name = name
        command = [sys.executable, "-m", "pycgpu.cli.main", "run", "--name", name]
        self.child = subprocess.Popen(
            [*command, "--mem", "1G", "--", "./tenant", str(held), hex(client)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def say(self) -> None:
        """Let it work, or stop, when it has worked for a moment."""
        assert self.child.stdin is not None
        time.sleep(0.3)
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line())
        return found

    def end(self) -> int:
        assert self.child.stdin is not None
        self.child.stdin.close()
        return self.child.wait(DEADLINE_S)

    def charged(self) -> int:
        """Bytes on its account."""
        lines = (TREE / "0" / self.name / "stat").read_text().splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}["current_bytes"]


def taken(client: int) -> int:
    """Bytes that the driver has given to a client: its own books."""
    text = Path(os.environ["CGPU_PRETENDED"]).read_bytes()[8 : 8 + 16 * 4096]
    return sum(size for owner, _, size in struct.iter_unpack("=IIQ", text) if owner == client)


def books() -> dict[str, str]:
    """All that the tree says but what time and work change."""
    moving = {"stat", "events", "meminfo", "procs"}
    nodes = [path for path in sorted(TREE.rglob("*")) if path.is_file()]
    texts = {str(path): path.read_text() for path in nodes if path.name not in moving}
    return {at: re.sub(r"used \d+\n", "", text) for at, text in texts.items()}


def tenants_numbers(pid: int) -> list[int]:
    """Numbers of an agent's descriptors that the next one must have, too."""
    kept = ("anon_inode:seccomp notify", "anon_inode:[pidfd]", "anon_inode:[eventpoll]")
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link) in kept:
                found.append(int(link.name))
    return found


def end_agent() -> None:
    """End it, when it has no tenants any more."""
    if pid := agent():
        os.kill(pid, signal.SIGTERM)
        until(lambda: not agent(), "the agent's end")
