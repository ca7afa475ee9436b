# SPDX-License-Identifier: MIT
"""
Who moves containers, step by step: between any two steps others act, and anything may end.

The books are the core's, the driver and the processes are pretended. A seed gives what happens.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from pycgpu.errors import CgpuError
from pycgpu.parking import moves
from pycgpu.parking.books import Books
from pycgpu.parking.checkpoint import CheckpointError, ProcessState
from pycgpu.parking.moves import Parking
from pycgpu.parking.rules import Rules
from tests.core.parking_card import MIB, PARKED, RUNNING, Card

BUDGET = 5000 * MIB


class MoverEnds(BaseException):
    """Whoever moves containers is killed."""


class Node(Card):
    """A card, its driver's checkpoint, and the tree of its door."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.states: dict[int, ProcessState] = {}
        self.wishes: set[int] = set()
        self.faults = True

    # ---- what others do meanwhile

    def begin(self) -> None:
        before = len(self.ones)
        self.create()
        for one in self.ones[before:]:
            one.pid = 100 + self.made
            self.states[one.pid] = ProcessState.RUNNING

    def grow_one(self) -> None:
        one = self.random.choice(self.ones)
        size = self.random.choice([1, 300, 1000, 2000]) * MIB
        if self.states.get(one.pid) is ProcessState.RUNNING and size <= self.really_free():
            index = self.allocate(one, size, one.pid)
            if index is not None:
                one.own.append(index)

    def die(self) -> None:
        """A process ends, and what it had on the card or on the host goes with it."""
        one = self.random.choice(self.ones)
        self.states.pop(one.pid, None)
        self.wishes.discard(one.pid)
        while one.own:
            one.free(one.own.pop())
        one.pieces.clear()

    def end_one(self) -> None:
        one = self.random.choice(self.ones)
        self.states.pop(one.pid, None)
        self.ones.remove(one)

    def call(self) -> None:
        self.wishes.add(self.random.choice(self.ones).pid)

    def others_act(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 3]) if self.faults else 0):
            able = [self.begin]
            if self.ones:
                able += [self.grow_one, self.grow_one, self.call, self.others_come_and_go]
                able += [self.random.choice([self.die, self.end_one, self.grow_one])]
            self.random.choice(able)()
            self.look_at_all()

    def look_at_all(self) -> None:
        self.the_card_has_what_is_on_it_and_what_is_reserved()
        assert sum(sum(one.pieces) for one in self.ones) <= BUDGET, "of the host's memory"
        for one in self.ones:
            assert one.account.current_bytes == one.used
            if one.state == RUNNING:
                assert not one.pieces, "a process was not brought back"

    # ---- the driver

    def start(self) -> None:
        self.others_act()

    def state(self, pid: int) -> ProcessState:
        self.ask("state", pid)
        return self.states.get(pid, ProcessState.GONE)

    def ask(self, what: str, pid: int) -> None:
        self.others_act()
        fault = self.random.random() if self.faults else 1.0
        if fault < 0.02:
            raise CheckpointError("the helper has ended")
        if fault < 0.03:
            raise MoverEnds
        if what != "state":
            self.do(what, pid)
        if fault < 0.04:
            raise CheckpointError("the helper has ended, and what it asked for is done")
        if fault < 0.05:
            raise MoverEnds

    def do(self, what: str, pid: int) -> None:
        wanted, then = {
            "lock": (ProcessState.RUNNING, ProcessState.LOCKED),
            "checkpoint": (ProcessState.LOCKED, ProcessState.CHECKPOINTED),
            "restore": (ProcessState.CHECKPOINTED, ProcessState.LOCKED),
            "unlock": (ProcessState.LOCKED, ProcessState.RUNNING),
        }[what]
        if self.states.get(pid) is not wanted:
            raise CheckpointError(f"{what} of process {pid}, which is not {wanted.name}")
        one = next(one for one in self.ones if one.pid == pid)
        while what == "checkpoint" and one.own:
            one.pieces.append(one.free(one.own.pop()))
        while what == "restore" and one.pieces:
            self.bring(one, one.pieces.pop(), self.random.randint(0, 8) * MIB)
        self.states[pid] = then
        if what == "unlock":
            self.wishes.discard(pid)

    def lock(self, pid: int) -> None:
        self.ask("lock", pid)

    def checkpoint(self, pid: int) -> None:
        self.ask("checkpoint", pid)

    def restore(self, pid: int) -> None:
        self.ask("restore", pid)

    def unlock(self, pid: int) -> None:
        self.ask("unlock", pid)

    # ---- the tree

    def names(self, path: str) -> list[str]:
        return [] if path == "container" else ["0"]

    def text(self, path: str) -> str:
        if path == "parking":
            return "".join(map(self.line, self.ones))
        found = [one for one in self.ones if f"container/{one.id}/0/procs" == path]
        if not found:
            raise OSError(errno.ENOENT, path)
        sizes = [(one.pid, sum(map(one.size, one.own))) for one in found if one.pid in self.states]
        return "".join(f"{pid} 1 {size} cuda\n" for pid, size in sizes)

    def write(self, path: str, data: bytes) -> int:
        assert path == "inst_ctl"
        # What others have is measured before each return.
        self.host.card[0].foreign_bytes = self.foreign
        if data.decode().split()[1] not in [one.id for one in self.ones]:
            raise OSError(errno.ENOENT, path)
        if err := self.command(data.decode()):
            raise OSError(err, path)
        return len(data)


def mover(node: Node) -> Parking:
    checkpoint: Any = node
    return Parking(Books(node), checkpoint)


def pretended(node: Node) -> dict[str, Any]:
    """What :mod:`pycgpu.parking.moves` asks of the host besides."""

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def has_ended(self) -> bool:
            return self.pid not in node.states

        def wants(self, now_s: float) -> bool:
            return self.pid in node.wishes

        def close(self) -> None:
            pass

    def stirred(found: Iterable[Process]) -> list[Process]:
        return list(found)

    return {
        "Process": Process,
        "stirred": stirred,
        "host_memory": mock.Mock(),
        "rules": mock.Mock(
            changed_ns=lambda: 5, load=lambda: Rules(park_host_bytes=BUDGET), PATH="it"
        ),
        "began": mock.Mock(before=lambda pid, now_ns: True),
        "stopped": mock.Mock(reason=lambda pid: ""),
        "nvml_library": mock.Mock(begin=lambda: False),
        "time": mock.Mock(monotonic=node.now, sleep=lambda pause_s: None),
    }


def one_more(node: Node, parking: Parking) -> None:
    id = node.random.choice([one.id for one in node.ones] or ["none"])
    try:
        what = node.random.random()
        if what < 0.4:
            parking.park(id)
        elif what < 0.6:
            parking.resume(id)
        else:
            parking.look(float(node.now()))
    except CgpuError as error:
        if "was not parked, and goes on" in str(error):
            assert [one.state for one in node.ones if one.id == id] in ([RUNNING], [])


def end(node: Node, parking: Parking) -> None:
    """All that is left comes back, as others go; each of it with all that it had."""
    node.faults, node.foreign = False, 0
    for _ in range(20):
        node.wishes.update(node.states)
        for _ in range(3):
            parking.look(float(node.clock + 1000))
            node.clock += 1000
            node.look_at_all()
        waiting = [one for one in node.ones if one.state != RUNNING]
        back = [one for one in node.ones if one.state == RUNNING]
        if not waiting:
            break
        assert {one.state for one in waiting} == {PARKED}, "what was left halfway is settled"
        assert back, "nobody is in its way"
        node.ones.remove(back[0])
    assert not [one for one in node.ones if one.state != RUNNING]
    assert {node.states.get(one.pid) for one in node.ones} <= {ProcessState.RUNNING, None}


@given(st.integers(0, 2**32))
def test_whatever_ends_amid_a_move_each_process_has_all_that_it_had(seed: int) -> None:
    node = Node(seed)
    with mock.patch.multiple(moves, **pretended(node)):
        parking = mover(node)
        for _ in range(40):
            node.others_act()
            try:
                one_more(node, parking)
            except MoverEnds:
                parking = mover(node)
            node.look_at_all()
        end(node, parking)
