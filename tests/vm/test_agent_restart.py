# SPDX-License-Identifier: MIT
"""
Agents end while tenants work, and others go on for them: no tenant ends, none is free, no call
fails, and what each was given and has taken is the same as before.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
    pytest.mark.vm(memory="3G", timeout_s=2400),
]

MIB = 1 << 20
#: What an agent is killed by, one after the other.
ENDS = (signal.SIGKILL, signal.SIGTERM)
#: Of a card and of a container: what must be as it was.
OF_CARD = ("policy", "max_inst", "timeslice_us", "memory", "free_weight", "overcommit_ratio")
OF_CONTAINER = ("memsize", "weight", "quota", "quota_min", "priority", "uvm_disable", "oom_action")


class Hammer:
    """A tenant that allocates, maps, exports, frees and computes as fast as it can."""

    def __init__(self, door: Door, program: str, name: str, held_mib: int) -> None:
        self.name = name
        self.child = door.start(program, str(held_mib), name=name, quota=90, told=True)
        assert self._line() == "ready", self.child.communicate(timeout=START_S)
        self.held = self.charged()

    def charged(self) -> int:
        """Bytes that are on its account."""
        lines = (TREE / f"0/{self.name}/stat").read_text().splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}["current_bytes"]

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def go(self) -> None:
        """Let it work, or stop; what it held before it holds still."""
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def told(self) -> dict[str, Any]:
        """What it says of its work."""
        found: dict[str, Any] = json.loads(self._line())
        return found


def _is_whole(tenant: Hammer) -> bool:
    return tenant.charged() == tenant.held


def _books(names: tuple[str, ...]) -> dict[str, str]:
    """What the tree says of what was promised."""
    paths = [TREE / "0" / node for node in OF_CARD]
    paths += [TREE / "0" / name / node for name in names for node in OF_CONTAINER]
    texts = {str(path.relative_to(TREE)): path.read_text() for path in paths if path.exists()}
    return {at: re.sub(r"used \d+\n", "", text) for at, text in texts.items()}


def _end(door: Door, how: signal.Signals) -> int:
    """End the agent; return the process of the one that goes on."""
    pid = door.agent()
    os.kill(pid, how)
    return door.follows(pid)


@pytest.fixture
def hammer(made: Callable[[str], Path]) -> str:
    """The tenant's program."""
    return str(made("programs") / "hammer")


def test_agents_end_under_load_and_no_tenant_notices(
    door: Door, hammer: str, pytestconfig: pytest.Config
) -> None:
    rounds = pytestconfig.getoption("--upgrades")
    tenants = [Hammer(door, hammer, name, held) for name, held in (("one", 16), ("two", 48))]
    forks = door.start(
        "sh",
        "-c",
        f"while :; do {door.simcuda} --json alloc 8M >/dev/null || exit 9; done",
        name="forks",
    )
    until((TREE / "0/forks").exists, "the third tenant", START_S)
    (TREE / "0/one/weight").write_text("7\n")
    (TREE / "0/max_inst").write_text("23\n")
    before = _books(("one", "two", "forks"))
    for tenant in tenants:
        tenant.go()
    for turn in range(rounds):
        _end(door, ENDS[turn % len(ENDS)])
        assert _books(("one", "two", "forks")) == before
        assert forks.poll() is None, forks.communicate()
    for tenant in tenants:
        tenant.go()
        told = tenant.told()
        print(tenant.name, told)
        assert (told["failed"], told["first"]) == (0, "")
        assert told["turns"] and told["kernels"]
        # what went without a call is found within a second
        until(partial(_is_whole, tenant), f"{tenant.name}'s books")
        assert tenant.child.stdin is not None
        tenant.child.stdin.close()
        assert tenant.child.wait(timeout=START_S) == 0
    forks.kill()
    forks.wait()


def test_the_limit_holds_while_no_agent_is_there_and_afterwards(door: Door) -> None:
    tenant = door.start(
        "sh", "-c", f"until [ -e go ]; do sleep 0.1; done; exec {door.simcuda} --json fill"
    )
    until((TREE / "0/one/memsize").exists, "the tenant", START_S)
    pid = door.agent()
    os.kill(pid, signal.SIGKILL)
    (door.folder / "go").touch()
    door.follows(pid)
    out, err = tenant.communicate(timeout=START_S)
    found = json.loads(out.splitlines()[-1])
    assert found["bytes"] <= 1024 * MIB, err
    (door.folder / "go").unlink()
