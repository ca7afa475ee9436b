# SPDX-License-Identifier: MIT
"""
``cgpu run --group`` under either door: the group's server is there from the first member to the
last. NVIDIA's daemon is stood in for by a program of the same name.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.tree import events, group, procfs
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until
from tests.vm.mps import keepers
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [pytest.mark.kernel("6.1", by_default=True), pytest.mark.needs("sim", "km")]

MODULES = Path("/proc/cgpu_km")
SOURCE = Path(__file__).parents[1] / "host/pretended/mps_control.c"


@pytest.fixture
def door(
    sim: Callable[..., Sim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Door]:
    daemon = tmp_path / "bin" / group.CONTROL
    daemon.parent.mkdir()
    subprocess.run(["gcc", "-O1", "-o", daemon, SOURCE], check=True)
    monkeypatch.setenv("PATH", f"{daemon.parent}:{os.environ['PATH']}")
    made = Door(tmp_path, sim(model="t4"))
    yield made
    made.end()
    made.close()
    for tree in (MODULES, TREE):
        if (tree / "container").exists():
            until(lambda at=tree: not os.listdir(at / "container"), "the containers' end")  # type: ignore[misc]


def containers(root: str) -> set[str]:
    """Those that there are; none while no agent has started, or when it has ended."""
    there = Path(root, "container").is_dir()
    return set(procfs.container_ids(root)) if there else set()


def told_since_start(root: str) -> list[str]:
    found = [events.parse(line) for line in events.lines(root, follow=False)]
    return [f"{one.kind} {one.text}" for one in found]


@pytest.mark.parametrize("by_module", [False, True], ids=["agent", "module"])
def test_a_groups_server_is_there_from_its_first_member_to_its_last(
    door: Door, km: Callable[..., Km], by_module: bool
) -> None:
    if by_module:
        km()
    root = str(MODULES if by_module else TREE)
    members = []
    for name in ("one", "two"):
        members.append(door.start("/bin/sleep", "1000", name=name, group="chat", quota=50))
        until(lambda one=name: one in containers(root), "the member", START_S)  # type: ignore[misc]
    assert containers(root) == {"chat", "one", "two"}
    told = {name: procfs.read_group(0, name, root) for name in ("chat", "one", "two")}
    assert set(told.values()) == {"chat"}, told
    # A member's quota is of threads; of the card the group has what all asked for.
    assert [procfs.read_quota(0, name, root) for name in ("chat", "one")] == [None, 50]
    assert procfs.read_weight(0, "chat", root) == 2
    assert group.answers("chat")
    status, _, err = door.run("/bin/true", name="three", group="chat", policy="weighted")
    assert (status, err.count("\n")) == (125, 1)
    assert "--policy 2 asked, and card 0 has 7" in err
    members[0].kill()
    members[0].wait()
    until(lambda: "one" not in containers(root), "its end", START_S)
    assert procfs.read_weight(0, "chat", root) == 1
    assert door.run("/bin/true", name="four", group="chat", quota=50)[0] == 0
    members[1].kill()
    members[1].wait()
    until(lambda: not containers(root), "the server's end", START_S)
    assert not group.answers("chat")
    told_of = told_since_start(root)
    for line in ("create id=chat", "create id=one", "destroy id=one", "destroy id=chat"):
        assert f"{line} group=chat" in told_of
    assert [line.split(" pid=")[0] for line in told_of if line.startswith("server_")] == [
        "server_started id=chat group=chat",
        "server_ended id=chat group=chat",
    ]
    # And one that comes after it starts another.
    assert door.run("/bin/true", name="five", group="chat", quota=50)[0] == 0
    until(lambda: not containers(root), "that one's end", START_S)


@pytest.mark.parametrize("by_module", [False, True], ids=["agent", "module"])
def test_a_group_goes_on_and_ends_when_who_keeps_its_server_is_killed(
    door: Door, km: Callable[..., Km], by_module: bool
) -> None:
    if by_module:
        km()
    root = str(MODULES if by_module else TREE)
    member = door.start("/bin/sleep", "1000", name="one", group="chat")
    until(lambda: "one" in containers(root), "the member", START_S)
    until(lambda: len(keepers()["chat"]) == 2, "its keepers")
    for _ in range(3):
        # Whichever of both it is: the other has another take its place.
        (gone, stays) = keepers()["chat"]
        os.kill(gone, signal.SIGKILL)
        until(
            lambda gone=gone, stays=stays: (  # type: ignore[misc]
                stays in (now := keepers()["chat"]) and gone not in now and len(now) == 2
            ),
            "another",
        )
    assert containers(root) == {"chat", "one"} and group.answers("chat")
    assert door.run("/bin/true", name="two", group="chat")[0] == 0
    member.kill()
    member.wait()
    until(lambda: not containers(root), "the server's end", START_S)
    until(lambda: not keepers(), "its keepers' end", START_S)
    assert [line.split(" ")[0] for line in told_since_start(root) if "server_" in line] == [
        "server_started",
        "server_ended",
    ]
