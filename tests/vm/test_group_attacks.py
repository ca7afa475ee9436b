# SPDX-License-Identifier: MIT
"""
What members of a group try, at either door, which the container outside does not notice.

NVIDIA's daemon is stood in for; its server is a program of the simulated driver, with all that a
server shares with its clients.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import group, procfs
from tests.vm import mps
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import SLOWNESS, until
from tests.vm.user_door import START_S, TREE, Door
from tests.vm.work import NEAR

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("programs", "sim", "km"),
]

MODULES = Path("/proc/cgpu_km")
NV_ERR_INVALID_CLIENT = 0x23
DEVICE = 0x5C000002
SECONDS = 6


class Outside:
    """A group of one that sleeps, and a container outside."""

    def __init__(self, door: Door, root: str, programs: Path) -> None:
        self.door, self.root, self.programs = door, root, programs
        self.member("/bin/sleep", "1000", name="idle")
        self.await_(f"{group.DIRECTORY}/chat/pipe/{group.CONTROL_SOCKET}")
        procfs.write_weight(0, "chat", 1, root)

    def await_(self, path: str) -> None:
        until(Path(path).exists, path, START_S)

    def member(self, *command: str, name: str, **options: Any) -> subprocess.Popen[str]:
        return self.door.start(*command, name=name, group="chat", **options)

    def server(self, name: str = "chat") -> str:
        """Of the server's: its client, the group of its channels, two pieces of memory."""
        log = Path(group.DIRECTORY, name, "log")
        found = until(lambda: re.search(r"^[0-9a-f:]{8,}$", log.read_text(), re.M), "its server")
        return found[0]

    def taken(self, *handles: str, **options: Any) -> list[int]:
        """The statuses of duplicates of a client's objects, by a program that ends then."""
        _, out, err = self.door.run(str(self.programs / "group"), *handles, **options)
        assert not err, err
        return list(map(int, out.split()))

    def launch(self, *options: str, seconds: int = SECONDS) -> tuple[str, ...]:
        return self.door.simcuda, "--json", "--wait", *options, "launch", str(seconds), "1"

    def shares(
        self, *programs: subprocess.Popen[str], meanwhile: Callable[[], object] = bool
    ) -> list[float]:
        """Start all at once that are ready by then; return the percent that each had."""
        for one in programs:
            assert one.stdout is not None
            line = one.stdout.readline()
            assert line == "ready\n", line + "".join(one.communicate())
        for one in programs:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        meanwhile()
        told = [one.communicate(timeout=START_S * SLOWNESS) for one in programs]
        return [json.loads(out.splitlines()[-1])["share_permille"] / 10 for out, _ in told]


def part(inside: Sequence[float], alone: float) -> float:
    """Percent that the group has of what was computed: a busy machine leaves some of the card."""
    return sum(inside) / (sum(inside) + alone) * 100


@pytest.fixture(params=["agent", "module"])
def outside(
    request: pytest.FixtureRequest,
    sim: Callable[..., Sim],
    km: Callable[..., Km],
    made: Callable[[str], Path],
    tmp_path: Path,
) -> Iterator[Outside]:
    driver = sim(model="t4")
    root = str(TREE)
    if request.param == "module":
        km()
        root = str(MODULES)
    door = Door(tmp_path, driver)
    with mps.control(driver.programs / "simcuda"):
        yield Outside(door, root, made("programs"))
        door.end()
        # Before the agent, which another would follow for the server's sake.
        until(lambda: not mps.keepers(), "the end of its server", START_S)
        door.close()


def test_a_member_gets_what_mps_needs_and_nothing_else_of_anybodys(outside: Outside) -> None:
    client, *common = outside.server().split(":")
    kept = [f"{DEVICE:x}", client]

    refused = [NV_ERR_INVALID_CLIENT]
    taken = outside.taken
    assert taken(client, *common, *kept, name="m", group="chat") == [0] * 3 + refused * 2
    assert taken(client, *common, name="n") == refused * 3
    assert taken(client, *common, name="o", group="other") == refused * 3
    # What another member has of the very same server's is that one's.
    words = (outside.door.simcuda, "--server", outside.server(), "--announce", "launch", "60", "1")
    other = outside.member(*words, name="two")
    assert other.stderr is not None
    told = other.stderr.readline().split()
    theirs = told[-1].split(",")[0].split(":")[0]
    assert taken(theirs, told[3], name="m", group="chat") == refused


def test_members_have_together_what_one_container_has(outside: Outside) -> None:
    who = ("--server", outside.server())
    members = [outside.member(*outside.launch(*who), name=f"m{n}", told=True) for n in range(2)]
    *inside, alone = outside.shares(
        *members, outside.door.start(*outside.launch(), name="alone", told=True)
    )
    print(inside, alone)
    assert abs(part(inside, alone) - 50) < NEAR and max(inside) - min(inside) < NEAR
    assert "used_ns" not in procfs.read_stat(0, "idle", outside.root)


@pytest.mark.parametrize("way", ["by-channel", "by-duplicate", "duplicates", "any-engine"])
def test_whatever_a_member_makes_of_its_channels_the_group_has_its_part(
    outside: Outside, way: str
) -> None:
    honest = outside.member(*outside.launch("--server", outside.server()), name="m", told=True)
    bad = outside.member(*outside.launch(f"--{way}"), name="bad", told=True)
    other = outside.door.start(*outside.launch(), name="alone", told=True)
    *inside, alone = outside.shares(honest, bad, other)
    print(inside, alone)
    assert part(inside, alone) < 50 + NEAR


@pytest.mark.parametrize("mode", ["moved", "frozen", "spinning"])
def test_whatever_a_member_does_with_its_userd_wins_the_group_nothing(
    outside: Outside, mode: str
) -> None:
    busy = outside.door.start(outside.door.simcuda, "launch", "600", "1", name="busy")
    outside.await_(f"{outside.root}/container/busy")
    liar = outside.member(str(outside.programs / "userd"), mode, "10", "2", name="liar")
    out, err = liar.communicate(timeout=START_S * SLOWNESS)
    assert out, err
    assert json.loads(out.splitlines()[-1])["share_permille"] < 600
    assert busy.poll() is None


@pytest.mark.parametrize("outside", ["agent"], indirect=True)
def test_a_group_goes_on_under_the_next_agent(outside: Outside) -> None:
    def replace_agent() -> None:
        time.sleep(2)
        pid = outside.door.agent()
        os.kill(pid, signal.SIGKILL)
        outside.door.follows(pid)

    who = outside.server()
    words = outside.launch("--server", who, seconds=20)
    members = [outside.member(*words, name=f"m{n}", told=True) for n in range(2)]
    other = outside.door.start(*outside.launch(seconds=20), name="alone", told=True)
    *inside, alone = outside.shares(*members, other, meanwhile=replace_agent)
    print(inside, alone)
    assert abs(part(inside, alone) - 50) < NEAR
    client, *common = who.split(":")
    assert outside.taken(client, *common, name="m", group="chat") == [0] * 3
    assert outside.taken(client, *common, name="n") == [NV_ERR_INVALID_CLIENT] * 3
