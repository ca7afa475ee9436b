# SPDX-License-Identifier: MIT
"""What a governor does next: it is one loop for the module, the agent and the simulator."""

from __future__ import annotations

import errno
import itertools
from typing import Any

from pycgpu._core import ffi, lib
from tests.core.test_sched import AVERAGE, FAIR, MIXED, MS, NEVER, SECOND, Card

MOVE, READ, LOOK, WAIT = (
    lib.CGPU_LOOP_MOVE,
    lib.CGPU_LOOP_READ,
    lib.CGPU_LOOP_LOOK,
    lib.CGPU_LOOP_WAIT,
)


class Loop:
    """A governor of a pretended card: calls take 350 us, a look or a reading 100 us."""

    def __init__(self, card: Card, *, log: bool = False, demand: bool = False) -> None:
        self.card = card
        self.actions = ffi.new("struct cgpu_sched_action[]", lib.CGPU_SCHED_ACTIONS)
        self.log = ffi.new("struct cgpu_switch_log *")
        self.demand = ffi.new("struct cgpu_demand *")
        lib.cgpu_switch_log_init(self.log)
        lib.cgpu_demand_init(self.demand)
        self.loop = ffi.new("struct cgpu_loop *")
        self.loop.sched = card.s
        self.loop.action = self.actions
        self.loop.log = self.log if log else ffi.NULL
        self.loop.demand = self.demand if demand else ffi.NULL

    def next(self) -> int:
        return int(lib.cgpu_loop_next(self.loop, self.card.now))

    def done(self, step: int, status: int = 0) -> None:
        start = self.card.now
        self.card.now += 350_000 if step == MOVE else 100_000
        action = self.actions[self.loop.taken]
        if step == MOVE and not status and action.kind != lib.CGPU_SCHED_SLICE:
            is_shut = action.kind == lib.CGPU_SCHED_SHUT
            self.card.shut = self.card.shut & ~action.mask | (action.mask if is_shut else 0)
        lib.cgpu_loop_done(self.loop, step, start, self.card.now, status)

    def run(self, until: int, **failing: int) -> list[tuple[int, int]]:
        """Govern; return each step and when it was asked for. *failing*: by name its status."""
        names: dict[int, Any] = {MOVE: "move", READ: "read", LOOK: "look"}
        steps = []
        while self.card.now < until:
            step = self.next()
            steps.append((self.card.now, step))
            if step == WAIT:
                due = min(self.loop.wake_ns, self.loop.due_ns, until)
                assert due > self.card.now
                self.card.now = due
            else:
                self.done(step, failing.get(names[step], 0))
        return steps


def pair(policy: int) -> Card:
    card = Card(policy)
    card.add(0)
    card.add(1)
    return card


def test_each_action_is_reported_before_the_scheduler_is_asked_again() -> None:
    loop = Loop(pair(AVERAGE))
    assert loop.next() == MOVE
    count = loop.loop.count
    assert count > 1
    for taken in range(count):
        assert (loop.loop.taken, loop.next()) == (taken, MOVE)
        loop.done(MOVE)
    assert loop.loop.taken == loop.loop.count == count


def test_without_log_and_channels_nothing_but_the_plan_is_waited_for() -> None:
    loop = Loop(pair(FAIR))
    steps = loop.run(SECOND)
    assert {step for _, step in steps} == {MOVE, WAIT}
    assert loop.loop.due_ns == NEVER
    assert loop.loop.wake_ns == NEVER


def test_the_log_is_read_and_the_scheduler_asked_in_turn() -> None:
    steps = [step for _, step in Loop(pair(MIXED), log=True).run(SECOND)]
    assert steps.count(READ) > 5
    assert LOOK not in steps
    assert all(after != READ for before, after in itertools.pairwise(steps) if before == READ)


def test_channels_are_looked_at_when_they_are_due() -> None:
    steps = [step for _, step in Loop(pair(MIXED), log=True, demand=True).run(SECOND)]
    assert steps.count(LOOK) > 5


def test_a_log_that_cannot_be_read_holds_up_no_hand_over_and_is_not_spun_on() -> None:
    card = Card(MIXED)
    card.add(0, quota=30)
    card.add(1)
    steps = Loop(card, log=True).run(SECOND, read=-errno.EBUSY)
    reads = [at for at, step in steps if step == READ]
    apart = [after - before for before, after in itertools.pairwise(reads)]
    assert len(reads) > 5
    assert min(apart) >= lib.CGPU_DEMAND_LOOK_NS
    moves = [at for at, step in steps if step == MOVE]
    assert max(b - a for a, b in itertools.pairwise(moves)) < 200 * MS


def test_a_failed_action_opens_every_gate() -> None:
    card = pair(AVERAGE)
    loop = Loop(card)
    loop.run(100 * MS)
    assert card.shut
    while loop.next() != MOVE:
        card.now = min(loop.loop.wake_ns, card.now + MS)
    loop.done(MOVE, -errno.EIO)
    loop.run(card.now + 50 * MS)
    assert not card.shut
    assert card.s.plan.mode == lib.CGPU_SCHED_FREE
