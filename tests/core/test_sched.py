# SPDX-License-Identifier: MIT
"""The engine by itself: what it asks for, what it remembers, and that it lets go on failure."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pycgpu._core import ffi, lib

AVERAGE, PREEMPTIVE, WEIGHTED, FIXED, WEAK, NATIVE, MIXED, FAIR, BURST, ONLINE = range(10)
MS = 1_000_000
SECOND = 1000 * MS
NEVER = 2**64 - 1
#: Of ``struct cgpu_sched_stat``: what an upgrade compares, and a graph takes the rate of.
TOTALS = ("granted_ns", "used_ns", "throttled_ns", "waited_ns", "switches", "overruns")
OPEN, SHUT, SLICE = lib.CGPU_SCHED_OPEN, lib.CGPU_SCHED_SHUT, lib.CGPU_SCHED_SLICE


class Card:
    """A card whose calls take as long as measured, and the engine that moves its gates."""

    def __init__(self, policy: int, max_inst: int = 20, timeslice_us: int = 5000) -> None:
        self.s = ffi.new("struct cgpu_sched *")
        self.now = 0
        self.shut = 0
        self.slices: dict[int, int] = {}
        self.log: list[tuple[int, int, int, int]] = []
        self.wake = 0
        lib.cgpu_sched_init(self.s, 0)
        assert lib.cgpu_sched_card(self.s, policy, max_inst, timeslice_us, 0) == 0

    def set(self, slot: int, **numbers: int) -> int:
        member = ffi.new("struct cgpu_policy_member *", {"weight": 1, **numbers})
        return int(lib.cgpu_sched_set(self.s, slot, member, self.now))

    def add(self, slot: int, groups: int = 1, **numbers: int) -> None:
        assert self.set(slot, **numbers) == 0
        lib.cgpu_sched_open(self.s, slot, True, groups, self.now)

    def seen(self, slot: int, asleep: bool, empties: bool = False) -> None:
        seen = ffi.new("struct cgpu_sched_seen *", {"asleep": asleep, "empties": empties})
        lib.cgpu_sched_demand(self.s, slot, seen, self.now)

    def tick(self) -> list[tuple[int, int, int]]:
        out = ffi.new("struct cgpu_sched_action[]", lib.CGPU_SCHED_ACTIONS)
        wake = ffi.new("uint64_t *")
        n = lib.cgpu_sched_tick(self.s, self.now, out, wake)
        self.wake = wake[0]
        return [(out[i].kind, out[i].mask, out[i].slice_us) for i in range(n)]

    def done(self, action: tuple[int, int, int], status: int = 0, took: int = 350_000) -> None:
        kind, mask, slice_us = action
        start, self.now = self.now, self.now + took
        made = ffi.new("struct cgpu_sched_action *", {"kind": kind, "mask": mask})
        made.slice_us = slice_us
        if not status:
            if kind == OPEN:
                self.shut &= ~mask
            elif kind == SHUT:
                self.shut |= mask
            else:
                self.slices.update({i: slice_us for i in range(64) if mask >> i & 1})
        self.log.append((self.now, kind, mask, slice_us))
        lib.cgpu_sched_done(self.s, made, start, self.now, status)

    def run(self, until: int) -> None:
        while self.now < until:
            actions = self.tick()
            for action in actions:
                self.done(action)
            if not actions:
                self.now = max(self.now + 1000, min(self.wake, until))

    def stat(self, slot: int) -> Any:
        out = ffi.new("struct cgpu_sched_stat *")
        lib.cgpu_sched_stat(self.s, slot, self.now, out)
        return out


def test_no_container_means_no_call_and_no_timer() -> None:
    card = Card(AVERAGE)
    assert card.tick() == []
    assert card.wake == NEVER


def test_slices_alone_need_no_call_once_they_are_set() -> None:
    card = Card(FAIR)
    card.add(0, weight=1)
    card.add(1, weight=3)
    card.run(100 * MS)
    calls = len(card.log)
    assert card.wake == NEVER
    assert card.slices[1] == pytest.approx(3 * card.slices[0], rel=0.01)
    card.run(10_000 * MS)
    assert len(card.log) == calls


def test_a_slice_is_divided_among_a_containers_groups() -> None:
    card = Card(WEAK)
    card.add(0, groups=1)
    card.add(1, groups=8)
    card.run(10 * MS)
    switches = 7 * lib.CGPU_SCHED_SWITCH_NS // 1000
    assert 8 * card.slices[1] + switches == pytest.approx(card.slices[0], rel=0.01)


def test_native_touches_nothing() -> None:
    card = Card(NATIVE)
    card.add(0, quota=10)
    card.add(1)
    card.run(1000 * MS)
    assert card.log == []


def test_leaving_for_native_opens_every_gate_and_restores_cudas_slice() -> None:
    card = Card(FIXED, max_inst=4)
    card.add(0)
    card.add(1)
    card.run(500 * MS)
    assert card.shut
    assert lib.cgpu_sched_card(card.s, NATIVE, 4, 5000, card.now) == 0
    card.run(card.now + 10 * MS)
    assert card.shut == 0
    assert set(card.slices.values()) == {lib.CGPU_SCHED_SLICE_US_CUDA}
    assert card.wake == NEVER


def test_the_next_gate_opens_before_the_present_one_shuts() -> None:
    card = Card(AVERAGE, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(1000 * MS)
    gates = [(kind, mask) for _, kind, mask, _ in card.log if kind != SLICE][3:]
    for (kind, mask), (kind2, mask2) in zip(gates[::2], gates[1::2], strict=False):
        assert {(kind, kind2)} <= {(OPEN, SHUT), (SHUT, OPEN)}
        assert mask != mask2
    assert card.s.calls.pending == 0


@pytest.mark.parametrize(
    ("policy", "numbers", "max_inst", "expected"),
    [
        (AVERAGE, [{}, {}], 4, [0.25, 0.25]),
        (PREEMPTIVE, [{}, {}], 4, [0.5, 0.5]),
        (WEIGHTED, [{"weight": 1}, {"weight": 3}], 4, [0.25, 0.75]),
        (FIXED, [{"weight": 1}, {"weight": 2}], 10, [0.1, 0.2]),
        (FIXED, [{"weight": 1, "quota": 10}], 1, [0.1]),
        (FAIR, [{"quota": 50}], 20, [0.5]),
    ],
)
def test_card_time_granted_is_the_entitlement(
    policy: int, numbers: list[dict[str, int]], max_inst: int, expected: list[float]
) -> None:
    card = Card(policy, max_inst)
    for slot, values in enumerate(numbers):
        card.add(slot, **values)
    card.run(10_000 * MS)
    for slot, share in enumerate(expected):
        assert card.stat(slot).granted_ns / card.now == pytest.approx(share, abs=0.012)


def test_under_policy_2_a_window_is_weight_times_unit_so_8_to_4_switches_a_quarter_as_often() -> (
    None
):
    switches = []
    for weights in ((2, 1), (8, 4)):
        card = Card(WEIGHTED)
        for slot, weight in enumerate(weights):
            card.add(slot, weight=weight)
        card.run(10_000 * MS)
        switches.append(sum(card.stat(slot).switches for slot in range(2)))
    assert switches[0] == pytest.approx(4 * switches[1], rel=0.05)


def test_a_container_that_is_slow_to_stop_pays_for_it() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    while card.now < 20_000 * MS:
        actions = card.tick()
        for action in actions:
            slow = action[0] == SHUT and action[1] == 2
            card.done(action, took=15 * MS if slow else 350_000)
        if not actions:
            card.now = max(card.now + 1000, card.wake)
    assert card.stat(1).overruns > 0
    assert card.stat(1).granted_ns / card.now == pytest.approx(0.5, abs=0.03)


def test_what_was_had_in_advance_is_kept_while_both_are_away() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(200 * MS)
    while not (card.s.cur.begun and card.s.cur.owner == 1 and not card.s.calls.pending):
        card.run(card.now + MS)
    card.now += 60 * MS  # nobody called us: an overrun of several windows
    lib.cgpu_sched_open(card.s, 0, False, 0, card.now)
    lib.cgpu_sched_open(card.s, 1, False, 0, card.now)
    ahead = -card.stat(1).lag_ns
    assert ahead > 20 * MS
    card.run(card.now + MS)
    lib.cgpu_sched_open(card.s, 0, True, 1, card.now)
    lib.cgpu_sched_open(card.s, 1, True, 1, card.now)
    before = [card.stat(slot).granted_ns for slot in range(2)]
    card.run(card.now + 120 * MS)
    got = [card.stat(slot).granted_ns - before[slot] for slot in range(2)]
    assert got[0] > got[1] + 10 * MS


def test_a_policy_change_takes_effect_within_one_period() -> None:
    card = Card(FAIR)
    card.add(0)
    card.add(1)
    card.run(500 * MS)
    assert lib.cgpu_sched_card(card.s, FIXED, 4, 5000, card.now) == 0
    card.run(card.now + card.s.plan.period_ns)
    before = card.now
    granted = card.stat(0).granted_ns
    card.run(card.now + 1000 * MS)
    assert (card.stat(0).granted_ns - granted) / (card.now - before) == pytest.approx(
        0.25, abs=0.02
    )


def test_who_may_have_work_runs_or_waits_and_who_has_none_does_neither() -> None:
    card = Card(WEIGHTED)
    card.add(0)
    card.add(1)

    def run(*used_ms: int) -> list[int]:
        before = [card.stat(slot).waited_ns for slot in range(2)]
        start = card.now
        for _ in range(100):
            card.run(card.now + 10 * MS)
            for slot, ms in enumerate(used_ms):
                lib.cgpu_sched_used(card.s, slot, ms * MS)
        after = [card.stat(slot).waited_ns for slot in range(2)]
        return [
            round(100 * (b - a) / (card.now - start)) for a, b in zip(before, after, strict=True)
        ]

    assert run(0, 0) == [0, 0]  # no log tells who ran
    lib.cgpu_sched_remove(card.s, 0, card.now)
    lib.cgpu_sched_remove(card.s, 1, card.now)
    card.add(0)
    card.add(1)
    assert run(4, 6) == pytest.approx([60, 40], abs=1)
    card.seen(0, True)
    card.seen(1, True)
    # the context of one that sleeps may stay on the engine
    assert run(5, 0) == [0, 0]
    card.seen(0, False)
    lib.cgpu_sched_open(card.s, 1, False, 0, card.now)
    assert run(2, 0) == pytest.approx([80, 0], abs=1)


def test_what_was_waited_never_falls_when_use_is_told_late() -> None:
    card = Card(WEIGHTED)
    card.add(0)
    lib.cgpu_sched_used(card.s, 0, MS)
    card.run(100 * MS)
    told = [card.stat(0).waited_ns]
    for ms in (50, 0, 30):
        lib.cgpu_sched_used(card.s, 0, ms * MS)
        told.append(card.stat(0).waited_ns)
    assert told == sorted(told) and told[0] == 99 * MS


def test_the_cards_total_keeps_what_those_used_who_are_gone() -> None:
    card = Card(WEIGHTED)
    card.add(0)
    card.add(1)
    lib.cgpu_sched_used(card.s, 0, 3 * MS)
    lib.cgpu_sched_used(card.s, 1, 4 * MS)
    lib.cgpu_sched_remove(card.s, 1, card.now)
    assert card.stat(lib.CGPU_SCHED_NONE).used_ns == 7 * MS
    assert card.stat(0).used_ns == 3 * MS


def test_a_new_container_has_nothing_of_the_one_whose_number_it_got() -> None:
    """The log tells late: what the one before did last came when it was gone."""
    card = Card(WEIGHTED)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    lib.cgpu_sched_remove(card.s, 0, card.now)
    lib.cgpu_sched_used(card.s, 0, 3 * MS)
    lib.cgpu_fair_settle(card.s, lib.CGPU_SCHED_NONE, card.now)
    card.now += MS
    card.add(0)
    stat = card.stat(0)
    assert {key: getattr(stat, key) for key in TOTALS} == dict.fromkeys(TOTALS, 0)


def test_a_container_without_weight_gets_no_compute() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0, weight=2)
    card.add(1, weight=0)
    card.run(1000 * MS)
    assert card.shut == 2
    assert not lib.cgpu_sched_may_run(card.s, 1)


def read_log(card: Card, until: int) -> None:
    """Let the log of context switches be read every 100 ms meanwhile; it tells nothing new."""
    while card.now < until:
        card.run(min(card.now + 100 * MS, until))
        lib.cgpu_fair_settle(card.s, lib.CGPU_SCHED_NONE, card.now)


def test_slices_are_made_without_one_that_has_never_worked_until_it_does() -> None:
    card, full = Card(WEAK), Card(WEAK)
    for slot in range(4):
        card.add(slot)
        full.add(slot)
    full.run(50 * MS)
    card.seen(3, True)
    read_log(card, 200 * MS)
    assert card.slices[0] > 1.05 * full.slices[0]
    card.seen(3, False)
    card.run(card.now + 2 * MS)
    assert card.slices[0] == full.slices[0]
    assert card.s.plan.mode == lib.CGPU_SCHED_SLICES


@given(st.lists(st.integers(1, 9), min_size=3, max_size=25), st.integers(1, 12))
def test_one_that_wakes_finds_slices_hardly_longer_unless_it_slept_for_long(
    weights: list[int], sleepers: int
) -> None:
    card = Card(FAIR)
    for slot, weight in enumerate(weights):
        card.add(slot, weight=weight)
    read_log(card, 100 * MS)
    awake = range(min(sleepers, len(weights) - 2), len(weights))
    before = sum(card.slices[slot] for slot in awake)
    for slot in range(awake.start):
        card.seen(slot, True)
    read_log(card, card.now + 1000 * MS)
    assert card.s.fair.resting_mask == (1 << awake.start) - 1
    longer = sum(card.slices[slot] for slot in awake) - before
    # each slice is rounded to a microsecond
    assert 1000 * longer <= lib.CGPU_SCHED_WAKE_NS + 1000 * len(weights)
    read_log(card, card.now + lib.CGPU_SCHED_DEEP_S * SECOND)
    alone = Card(FAIR)
    for slot in awake:
        alone.add(slot, weight=weights[slot])
    alone.run(50 * MS)
    assert all(card.slices[slot] == alone.slices[slot] for slot in awake)


@pytest.mark.parametrize(("took", "alone"), [(100 * MS, 1.0), (1500 * MS, 0.5)])
def test_who_was_moved_has_had_that_of_its_share_of_the_second(took: int, alone: float) -> None:
    """One that slept goes first until it has had its share of a second; not if a move was that."""
    card = Card(FAIR)
    card.add(0)
    card.add(1)
    for sleep in (200, 200, 2000):
        card.seen(1, False)
        card.run(card.now + 20 * MS)
        card.seen(1, True)
        card.run(card.now + sleep * MS)
    lib.cgpu_sched_took(card.s, 1, took, card.now)
    lib.cgpu_sched_took(card.s, 2, took, card.now)
    card.seen(1, False)
    before = card.stat(0).throttled_ns
    card.run(card.now + 300 * MS)
    assert card.stat(0).throttled_ns - before == pytest.approx(alone * 300 * MS, rel=0.1)


def turned(card: Card, slots: range, after_ns: int, times: int = 60) -> None:
    """Tell that after each one's slice so much passed until the next began."""
    for _ in range(times):
        for slot in slots:
            lib.cgpu_slices_lasted(card.s, slot, 1, card.slices[slot] * 1000 + after_ns)
        card.run(card.now + 20 * MS)


def test_slices_and_what_follows_them_fill_the_round() -> None:
    card = Card(FAIR)
    for slot in range(8):
        card.add(slot)
    card.run(10 * MS)
    turned(card, range(8), 355_000)
    taken = sum(card.slices[slot] * 1000 + 355_000 for slot in range(8))
    assert taken == pytest.approx(card.s.plan.period_ns, abs=8 * lib.CGPU_SCHED_AFTER_STEP_NS)


def test_what_follows_a_slice_is_known_within_a_second_and_slices_are_set_once_for_it() -> None:
    card = Card(FAIR)
    for slot in range(2):
        card.add(slot)
    card.run(10 * MS)
    slices = []
    for _ in range(10):
        for slot in range(2):
            lib.cgpu_slices_lasted(card.s, slot, 4, card.slices[slot] * 1000 + 430_000)
        card.run(card.now + 100 * MS)
        slices.append(card.slices[0])
    assert len(set(slices)) == 2
    taken = sum(card.slices[slot] * 1000 + 430_000 for slot in range(2))
    assert taken == pytest.approx(card.s.plan.period_ns, abs=2 * lib.CGPU_SCHED_AFTER_STEP_NS)


@pytest.mark.parametrize(("groups", "more_ns"), [(2, 355_000), (1, -1), (1, -3 * MS), (1, MS)])
def test_a_turn_that_was_not_a_whole_slice_says_nothing(groups: int, more_ns: int) -> None:
    card = Card(FAIR)
    card.add(0, groups=groups)
    card.add(1)
    card.run(10 * MS)
    calls = len(card.log)
    turned(card, range(1), more_ns)
    assert card.s.after_ns == lib.CGPU_SCHED_SWITCH_NS
    assert len(card.log) == calls


def test_all_groups_fit_into_their_window() -> None:
    for unit_us, groups in ((2500, 2), (2500, 8), (5000, 12), (20_000, 12)):
        card = Card(WEIGHTED, timeslice_us=unit_us)
        card.add(0, groups=groups)
        card.add(1)
        card.run(100 * MS)
        switches = groups * lib.CGPU_SCHED_SWITCH_NS // 1000
        assert groups * card.slices[0] + switches < unit_us


def test_periods_of_windows_and_of_slices_divide_the_second() -> None:
    for policy, count in itertools.product((FIXED, FAIR), (2, 3, 8, 25)):
        card = Card(policy, max_inst=count)
        for slot in range(count):
            card.add(slot)
        card.run(MS)
        assert 10**9 % card.s.plan.period_ns <= 10**9 // card.s.plan.period_ns
        if count <= 8:
            assert card.s.plan.period_ns <= 63 * MS
        if count <= 5:
            assert card.s.plan.period_ns <= 40 * MS


@pytest.mark.parametrize("count", range(2, 13))
def test_periods_of_equal_windows_leave_room_for_a_slow_call_over_100_ms(count: int) -> None:
    card = Card(AVERAGE, max_inst=count)
    for slot in range(count):
        card.add(slot)
    card.run(MS)
    period, time = card.s.plan.period_ns, 100 * MS
    width = period / count

    def held(until: float) -> float:
        return float(until // period * width + min(until % period, width))

    # a window begins or ends where the time does
    edges = [0.0, width, -time % period, (width - time) % period]
    deviations = [abs(held(at + time) - held(at) - time / count) for at in edges]
    assert max(deviations) <= period * (1 - 1 / count) / count - 0.75 * MS


@pytest.mark.parametrize("kind", [OPEN, SHUT, SLICE])
def test_an_error_of_the_driver_opens_every_gate_and_is_tried_again_later(kind: int) -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    failed = False
    while not failed:
        actions = card.tick()
        for action in actions:
            fails = action[0] == kind and not failed
            card.done(action, status=-errno.EIO if fails else 0)
            failed |= fails
        if not actions:
            card.now = max(card.now + 1000, card.wake)
    card.run(card.now + 10 * MS)
    assert card.shut == 0
    assert card.s.plan.mode == lib.CGPU_SCHED_FREE
    assert card.s.calls.failures == 1
    card.run(card.now + 2000 * MS)
    assert card.s.plan.mode == lib.CGPU_SCHED_WINDOWS


def test_a_call_that_never_returns_ends_in_open_gates() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    while not (actions := card.tick()):
        card.now = max(card.now + 1000, card.wake)
    card.now += lib.CGPU_SCHED_SECOND_NS + 1
    again = card.tick()
    for action in again:
        card.done(action)
    assert card.s.calls.failures == 1
    assert card.s.gates.shut_mask == 0
    assert actions


def test_suspend_opens_every_gate_and_resume_goes_on() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    lib.cgpu_sched_suspend(card.s, True, card.now)
    card.run(card.now + 5 * MS)
    assert card.shut == 0
    assert card.wake == NEVER
    lib.cgpu_sched_suspend(card.s, False, card.now)
    card.run(card.now + 100 * MS)
    assert card.shut != 0


def test_telling_the_same_again_asks_for_nothing() -> None:
    card = Card(FAIR)
    card.add(0)
    card.add(1)
    card.run(50 * MS)
    calls = len(card.log)
    card.add(0)
    card.add(1)
    assert lib.cgpu_sched_card(card.s, FAIR, 20, 5000, card.now) == 0
    card.run(card.now + 50 * MS)
    assert len(card.log) == calls


def test_new_groups_get_slice_and_gate_anew() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    while card.shut != 2 or card.s.calls.pending:
        card.run(card.now + MS)
    calls = len(card.log)
    lib.cgpu_sched_open(card.s, 1, True, 2, card.now)
    card.run(card.now + 2 * MS)
    kinds = [(kind, mask) for _, kind, mask, _ in card.log[calls:]]
    assert (SHUT, 2) in kinds
    assert (SLICE, 2) in kinds


@pytest.mark.parametrize("told", ("groups", "reapply", "held"))
def test_a_gate_is_not_forgotten_shut_when_the_engine_is_told_anew(told: str) -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    while card.shut != 2 or card.s.calls.pending:
        card.run(card.now + MS)
    if told == "groups":
        lib.cgpu_sched_open(card.s, 1, True, 2, card.now)
    elif told == "reapply":
        lib.cgpu_sched_reapply(card.s, 1, card.now)
    else:
        # new channels of the one that runs, stopped on the way to its window's end
        lib.cgpu_sched_held(card.s, 0, card.now)
        card.shut |= 1
    assert lib.cgpu_sched_card(card.s, NATIVE, 2, 5000, card.now) == 0
    card.run(card.now + 10 * MS)
    assert card.shut == 0
    assert card.wake == NEVER


def test_a_gate_is_not_forgotten_shut_when_a_call_fails_after_its_container_closed() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.run(100 * MS)
    lib.cgpu_sched_open(card.s, 0, False, 0, card.now)
    card.run(200 * MS)
    lib.cgpu_sched_held(card.s, 0, card.now)
    card.shut |= 1
    for action in card.tick():
        card.done(action, status=-errno.EIO)
    assert card.shut == 1
    card.run(card.now + 20 * MS)
    assert card.shut == 0


def test_new_channels_that_were_stopped_run_at_once_if_they_may() -> None:
    card = Card(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    while card.shut != 2 or card.s.calls.pending:
        card.run(card.now + MS)
    lib.cgpu_sched_held(card.s, 0, card.now)
    card.shut |= 1
    card.run(card.now + MS)
    assert card.shut == 2


def test_bad_numbers_are_refused_and_change_nothing() -> None:
    card = Card(FAIR)
    card.add(0, weight=3)
    assert lib.cgpu_sched_card(card.s, 10, 20, 5000, 0) == -errno.EINVAL
    assert lib.cgpu_sched_card(card.s, FAIR, 0, 5000, 0) == -errno.ERANGE
    assert lib.cgpu_sched_card(card.s, FAIR, 20, 10, 0) == -errno.ERANGE
    assert card.set(0, quota=101) == -errno.ERANGE
    assert card.set(64) == -errno.ERANGE
    assert card.s.slot[0].member.weight == 3
    assert card.s.config.policy == FAIR


@given(st.lists(st.integers(1, 9), min_size=1, max_size=25), st.sampled_from((0, 1, 2, 3)))
def test_gates_never_all_stay_shut_while_somebody_is_entitled(
    weights: list[int], policy: int
) -> None:
    card = Card(policy, max_inst=64)
    for slot, weight in enumerate(weights):
        card.add(slot, weight=weight)
    card.run(1000 * MS)
    before = [card.stat(slot).granted_ns for slot in range(len(weights))]
    card.run(card.now + 3000 * MS)
    for slot in range(len(weights)):
        assert card.stat(slot).granted_ns > before[slot]


def shut_one(policy: int = FAIR) -> Card:
    """Return a card whose slot 0 has its gate shut, by its quota."""
    card = Card(policy)
    card.add(0, quota=10)
    until(lambda: card.shut & 1, card)
    return card


def until(holds: Callable[[], Any], card: Card) -> None:
    for _ in range(1000):
        if holds():
            return
        card.run(card.now + MS)
    raise AssertionError("never")


def test_what_one_took_whose_share_a_new_plan_took_away_is_nobodys_to_be_paid_back() -> None:
    card = Card(FIXED)
    card.add(0)
    card.add(1, weight=0)
    card.run(2 * MS + 350_000)
    assert lib.cgpu_sched_card(card.s, AVERAGE, 1, 1000, card.now) == 0
    card.run(card.now + 30 * MS)
    assert card.s.plan.mode == lib.CGPU_SCHED_WINDOWS
    assert abs(lags(card)) <= 20_000


def test_what_one_took_whose_share_went_with_it_is_owed_to_the_others_by_it() -> None:
    card = Card(FIXED)
    assert lib.cgpu_sched_card(card.s, FIXED, 1, 1000, card.now) == 0
    card.set(0, weight=0)
    card.set(1, weight=1)
    lib.cgpu_sched_open(card.s, 0, True, 1, card.now)
    card.run(card.now + MS)
    lib.cgpu_sched_held(card.s, 0, card.now)
    lib.cgpu_sched_remove(card.s, 1, card.now)
    card.run(card.now + MS)
    assert card.s.plan.mode == lib.CGPU_SCHED_WINDOWS
    assert 20_000 < lags(card) <= 20_000 + owed_by_the_shareless(card)


def test_time_at_a_shut_gate_is_counted_once_when_new_channels_are_shut_too() -> None:
    card = shut_one()
    before, began = card.stat(0).throttled_ns, card.now
    card.now += 3 * MS
    lib.cgpu_sched_open(card.s, 0, True, 2, card.now)
    for action in card.tick():
        card.done(action)
    assert card.shut & 1
    assert card.stat(0).throttled_ns - before == card.now - began


def test_time_at_a_shut_gate_counts_while_the_card_is_open_and_no_longer() -> None:
    card = shut_one()
    before, began = card.stat(0).throttled_ns, card.now
    card.now += 3 * MS
    lib.cgpu_sched_open(card.s, 0, False, 1, card.now)
    waited = card.now - began
    assert card.stat(0).throttled_ns - before == waited
    card.run(card.now + 50 * MS)
    lib.cgpu_sched_open(card.s, 0, True, 1, card.now)
    assert card.stat(0).throttled_ns - before == waited


def test_a_log_read_late_costs_one_with_a_quota_a_second_and_no_more() -> None:
    """Parts of a second are kept in 32 bits: what came at once and was more stayed for ever."""
    card = shut_one()
    for ns in (5 * SECOND, 2**33 + 1):
        lib.cgpu_sched_used(card.s, 0, ns)
        lib.cgpu_fair_settle(card.s, lib.CGPU_SCHED_NONE, card.now)
        assert card.s.slot[0].budget.used.sum_ns == SECOND
        card.run(card.now + 2 * SECOND)
        assert card.s.slot[0].budget.used.sum_ns == 0
        assert not card.s.slot[0].budget.is_spent


def lags(card: Card) -> int:
    """What all together are behind, and ahead below zero: of those who have a share, and nobody."""
    entities = [*range(6), lib.CGPU_SCHED_NOBODY]
    for entity in entities:
        lib.cgpu_entity_settle(card.s, entity)
    return sum(card.s.entity[i].lag_ns for i in entities if card.s.entity[i].share_ppm)


def owed_by_the_shareless(card: Card) -> int:
    """What those whose share a plan took in their own window owe the others until the next plan."""
    return sum(max(-card.s.entity[i].lag_ns, 0) for i in range(6) if not card.s.entity[i].share_ppm)


class Events(RuleBasedStateMachine):
    """Any order of events: never two answers at once, every gate known, all let go at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.card = Card(FIXED)
        self.present: set[int] = set()
        self.totals: dict[int, dict[str, int]] = {}

    @rule(
        slot=st.integers(0, 5),
        weight=st.integers(0, 4),
        quota=st.sampled_from((0, 10, 60)),
        quota_min=st.sampled_from((0, 10)),
        priority=st.sampled_from((0, 0, 1, 15)),
    )
    def sets(self, slot: int, weight: int, quota: int, quota_min: int, priority: int) -> None:
        numbers = {"weight": weight, "quota": quota, "quota_min": quota_min, "priority": priority}
        assert self.card.set(slot, **numbers) == 0
        if slot not in self.present:
            stat = self.card.stat(slot)
            assert not any(getattr(stat, key) for key in TOTALS)
        self.present.add(slot)

    @rule(slot=st.integers(0, 5), is_open=st.booleans(), groups=st.integers(1, 3))
    def opens(self, slot: int, is_open: bool, groups: int) -> None:
        if slot in self.present:
            lib.cgpu_sched_open(self.card.s, slot, is_open, groups, self.card.now)

    @rule(slot=st.integers(0, 5))
    def told_anew(self, slot: int) -> None:
        lib.cgpu_sched_reapply(self.card.s, slot, self.card.now)

    @rule(slot=st.integers(0, 5))
    def holds(self, slot: int) -> None:
        lib.cgpu_sched_held(self.card.s, slot, self.card.now)

    @rule(slot=st.integers(0, 5))
    def removes(self, slot: int) -> None:
        lib.cgpu_sched_remove(self.card.s, slot, self.card.now)
        self.present.discard(slot)
        self.totals.pop(slot, None)

    @rule(slot=st.integers(0, 5), asleep=st.booleans(), empties=st.booleans())
    def sleeps(self, slot: int, asleep: bool, empties: bool) -> None:
        self.card.seen(slot, asleep, empties)

    @rule(ran_us=st.lists(st.integers(0, 2_000_000), min_size=6, max_size=6))
    def reads_the_log(self, ran_us: list[int]) -> None:
        for slot, us in enumerate(ran_us):
            lib.cgpu_sched_used(self.card.s, slot, 1000 * us)
        lib.cgpu_fair_settle(self.card.s, lib.CGPU_SCHED_NONE, self.card.now)

    @rule(policy=st.integers(0, 9), max_inst=st.integers(1, 64), unit=st.integers(1000, 50_000))
    def changes(self, policy: int, max_inst: int, unit: int) -> None:
        assert lib.cgpu_sched_card(self.card.s, policy, max_inst, unit, self.card.now) == 0

    @rule(ms=st.integers(1, 300))
    def waits(self, ms: int) -> None:
        self.card.run(self.card.now + ms * MS)
        for action in self.card.tick():
            self.card.done(action)
        # what is divided by share is divided in microseconds
        if self.card.s.plan.mode == lib.CGPU_SCHED_WINDOWS:
            assert -20_000 <= lags(self.card) <= 20_000 + owed_by_the_shareless(self.card)

    @precondition(lambda self: self.card.now > 0)
    @rule(took=st.integers(0, 30 * MS), fails=st.booleans())
    def calls(self, took: int, fails: bool) -> None:
        for action in self.card.tick():
            self.card.done(action, -errno.EIO if fails else 0, took)

    @invariant()
    def wakes(self) -> None:
        assert self.card.s.calls.pending == 0

    @invariant()
    def a_second_is_the_sum_of_its_parts(self) -> None:
        for slot in self.card.s.slot[0:6]:
            for second in (slot.budget.used, slot.fair.held):
                assert second.sum_ns == sum(second.bin_ns)

    @invariant()
    def no_total_falls(self) -> None:
        for slot in self.present:
            stat = self.card.stat(slot)
            now = {key: getattr(stat, key) for key in TOTALS}
            for key, was in self.totals.get(slot, {}).items():
                assert now[key] >= was, f"{key} of slot {slot} fell from {was} to {now[key]}"
            self.totals[slot] = now

    def teardown(self) -> None:
        lib.cgpu_sched_suspend(self.card.s, True, self.card.now)
        self.card.run(self.card.now + 5 * MS)
        assert self.card.s.gates.shut_mask == 0


TestEvents = Events.TestCase
#: The first run that saw a total fall took more than the default's hundred.
TestEvents.settings = settings(max_examples=600, stateful_step_count=60, deadline=None)


def _under_way(policy: int, kind: int) -> tuple[Card, list[tuple[int, int, int]]]:
    """A card of two, a call of that kind, not told of yet, and those that follow it at once."""
    card = Card(policy, max_inst=2)
    card.add(0)
    card.add(1)
    card.run(100 * MS)
    while True:
        actions = card.tick()
        while actions:
            if actions[0][0] == kind:
                return card, actions
            card.done(actions.pop(0))
        card.now += MS


@pytest.mark.parametrize("policy", [WEIGHTED, FIXED])
def test_a_gate_that_shuts_is_shut_again_for_a_channel_that_came_meanwhile(policy: int) -> None:
    """It came after the call was made and before that was known: nobody shut it."""
    card, actions = _under_way(policy, SHUT)
    for slot in range(2):
        lib.cgpu_sched_renewed(card.s, slot)
    for action in actions:
        card.done(action)
    assert actions[0][:2] in [found[:2] for found in card.tick()]


@pytest.mark.parametrize("policy", [WEIGHTED, FIXED])
def test_a_gate_that_opens_is_opened_again_for_a_channel_that_was_shut_meanwhile(
    policy: int,
) -> None:
    """It stayed shut for good where nobody else wanted the card any more."""
    card, actions = _under_way(policy, OPEN)
    for slot in range(2):
        if actions[0][1] >> slot & 1:
            lib.cgpu_sched_held(card.s, slot, card.now)
    for action in actions:
        card.done(action)
    assert actions[0][:2] in [found[:2] for found in card.tick()]


class Gates(RuleBasedStateMachine):
    """
    Calls take time, and channels come meanwhile: in the end each is as its gate is marked.

    As the doors do it: a call moves the channels that are there when it is made, and who makes a
    channel while the gate is shut shuts it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.card = Card(WEIGHTED)
        #: of each slot: whether each of its channels is held off the card
        self.channels: dict[int, list[bool]] = {}
        #: the first of them is made, and nobody has been told of it
        self.under_way: list[tuple[int, int, int]] = []
        for slot in range(2):
            self.comes(slot, 0)
            self.makes_a_channel(slot, True)

    @rule(slot=st.integers(0, 2), quota=st.sampled_from((0, 10)))
    def comes(self, slot: int, quota: int) -> None:
        if slot not in self.channels:
            self.channels[slot] = []
        assert self.card.set(slot, weight=1, quota=quota) == 0

    @rule(slot=st.integers(0, 2))
    def goes(self, slot: int) -> None:
        lib.cgpu_sched_remove(self.card.s, slot, self.card.now)
        self.channels.pop(slot, None)

    @rule(slot=st.integers(0, 2), told_first=st.booleans())
    def makes_a_channel(self, slot: int, told_first: bool) -> None:
        if slot not in self.channels:
            return
        channels = self.channels[slot]
        channels.append(False)

        def tell() -> None:
            lib.cgpu_sched_open(self.card.s, slot, True, 1, self.card.now)
            lib.cgpu_sched_renewed(self.card.s, slot)

        # the module's thread, which makes the calls too, tells of them
        told_first |= bool(self.under_way)
        if told_first:
            tell()
        if not lib.cgpu_sched_may_run(self.card.s, slot):
            channels[:] = [True] * len(channels)
            lib.cgpu_sched_held(self.card.s, slot, self.card.now)
        if not told_first:
            tell()

    @rule(slot=st.integers(0, 2))
    def frees_all_channels(self, slot: int) -> None:
        if slot in self.channels:
            self.channels[slot] = []
            lib.cgpu_sched_open(self.card.s, slot, True, 0, self.card.now)

    @rule(slot=st.integers(0, 2), ran_us=st.integers(0, 200_000))
    def is_told_its_use(self, slot: int, ran_us: int) -> None:
        lib.cgpu_sched_used(self.card.s, slot, 1000 * ran_us)
        lib.cgpu_fair_settle(self.card.s, lib.CGPU_SCHED_NONE, self.card.now)

    @rule(slot=st.integers(0, 2), asleep=st.booleans())
    def sleeps(self, slot: int, asleep: bool) -> None:
        self.card.seen(slot, asleep)

    @rule(policy=st.sampled_from((AVERAGE, WEIGHTED, FIXED, NATIVE, BURST)))
    def changes(self, policy: int) -> None:
        assert lib.cgpu_sched_card(self.card.s, policy, 4, 5000, self.card.now) == 0

    def _call(self) -> None:
        kind, mask, _ = self.under_way[0]
        for slot, channels in self.channels.items():
            if mask >> slot & 1 and kind != SLICE:
                channels[:] = [kind == SHUT] * len(channels)

    @precondition(lambda self: not self.under_way)
    @rule(us=st.integers(0, 30_000))
    def asks(self, us: int) -> None:
        self.card.now += 1000 * us
        self.under_way = self.card.tick()
        if self.under_way:
            self._call()

    @precondition(lambda self: self.under_way)
    @rule()
    def hears_of_it(self) -> None:
        self.card.done(self.under_way.pop(0))
        if self.under_way:
            self._call()

    @rule()
    def settles(self) -> None:
        for _ in range(64):
            while self.under_way:
                self.hears_of_it()
            self.asks(0)
            if not self.under_way:
                break
        assert not self.under_way
        for slot, channels in self.channels.items():
            shut = bool(self.card.s.gates.shut_mask >> slot & 1)
            assert channels == [shut] * len(channels), f"slot {slot}"

    def teardown(self) -> None:
        self.settles()


TestGates = Gates.TestCase
TestGates.settings = settings(max_examples=600, stateful_step_count=60, deadline=None)
