# SPDX-License-Identifier: MIT
"""Who has work by GP_PUT and GP_GET: what a door's looks are turned into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu._core import ffi, lib
from tests.core.test_sched import FAIR, FIXED, MS, NEVER, Card

QUEUED, WORKS, SLEEPS = lib.CGPU_DEMAND_QUEUED, lib.CGPU_DEMAND_WORKS, lib.CGPU_DEMAND_SLEEPS
UNKNOWN = lib.CGPU_DEMAND_UNKNOWN
LOOK = lib.CGPU_DEMAND_LOOK_NS


class Door:
    """Channels of each slot of a card, as the tenants wrote and the card fetched them."""

    def __init__(self, slots: int = 2, channels: int = 20, policy: int = FAIR) -> None:
        self.card = Card(policy)
        for slot in range(slots):
            self.card.add(slot)
        self.card.run(MS)
        self.demand = ffi.new("struct cgpu_demand *")
        lib.cgpu_demand_init(self.demand)
        self.known = [ffi.new("struct cgpu_demand_channel[]", channels) for _ in range(slots)]
        self.words = [[[0, 0] for _ in range(channels)] for _ in range(slots)]
        self.reads = 0
        self.now = self.card.now

    def due(self) -> tuple[int, list[int]]:
        mask = ffi.new("uint64_t *")
        due = lib.cgpu_demand_due(self.demand, self.card.s, self.now, mask)
        return due, [i for i in range(64) if mask[0] >> i & 1]

    def look(self, at: int | None = None, cost: int = 14_000) -> None:
        due, slots = self.due()
        self.now = max(self.now, due) if at is None else at
        for slot in slots:
            for known, (get, put) in zip(self.known[slot], self.words[slot], strict=True):
                if not lib.cgpu_demand_wants(self.demand, slot, ffi.addressof(known)):
                    continue
                self.reads += 1
                if lib.cgpu_demand_sample(self.demand, slot, ffi.addressof(known), get, put):
                    break
        mask = sum(1 << slot for slot in slots)
        lib.cgpu_demand_judge(self.demand, self.card.s, mask, self.now - cost, self.now)

    def submit(self, slot: int, channel: int = 3, fetched: bool = True) -> None:
        words = self.words[slot][channel]
        words[1] = (words[1] + 1) % 1024
        if fetched:
            words[0] = words[1]

    def shut(self, slot: int) -> None:
        lib.cgpu_sched_held(self.card.s, slot, self.now)

    def state(self, slot: int) -> int:
        return int(self.demand.slot[slot].state)


def test_nobody_is_looked_at_who_is_alone_or_whose_part_is_fixed() -> None:
    assert Door(slots=1).due() == (NEVER, [])
    assert Door(policy=FIXED).due() == (NEVER, [])


def test_one_who_always_has_something_queued_is_seldom_looked_at() -> None:
    door = Door()
    for _ in range(100):
        for slot in (0, 1):
            door.submit(slot, fetched=False)
        door.look()
    assert door.state(0) == door.state(1) == QUEUED
    before, reads = door.now, door.reads
    for _ in range(50):
        for slot in (0, 1):
            door.submit(slot, fetched=False)
        door.look()
    assert door.now - before >= 50 * lib.CGPU_DEMAND_REST_NS
    assert door.reads - reads <= 4 * 50


def test_one_who_pauses_beside_one_who_works_is_looked_at_every_millisecond() -> None:
    door = Door()
    for _ in range(20):
        door.submit(0, fetched=False)
        door.submit(1)
        door.look()
    assert (door.state(0), door.state(1)) == (QUEUED, WORKS)
    since, looked = door.now, []
    for _ in range(40):
        looked.extend(door.due()[1])
        door.submit(0, fetched=False)
        door.submit(1)
        door.look()
    assert door.now - since <= 40 * LOOK
    assert looked.count(1) == 40
    assert looked.count(0) <= 11


@pytest.mark.parametrize("slept_ms", (100, 400, 2000))
def test_the_longer_one_has_slept_the_rarer_it_is_looked_at(slept_ms: int) -> None:
    door = Door()
    while door.state(1) == SLEEPS or not door.demand.looks:
        for slot in (0, 1):
            door.submit(slot, fetched=False)
        door.look()
    door.words[1][3][0] = door.words[1][3][1]
    begin = 0
    while not begin or door.now < begin + slept_ms * MS:
        door.submit(0, fetched=False)
        door.look()
        if not begin and door.state(1) == SLEEPS:
            begin = door.now
    assert door.state(1) == SLEEPS
    least, most = (
        min(part * slept_ms * MS // lib.CGPU_DEMAND_BACK_OFF, lib.CGPU_DEMAND_BACK_OFF_MAX_NS)
        for part in (1, 3)
    )
    since, looked = door.now, []
    while door.now < since + 10 * least:
        looked.extend(door.due()[1])
        door.submit(0, fetched=False)
        door.look()
    assert 10 * least // (most + LOOK) <= looked.count(1) <= (door.now - since) // least + 1
    # nobody waits for the one that works
    assert looked.count(0) <= (door.now - since) // lib.CGPU_DEMAND_BACK_OFF_MAX_NS + 1
    since = door.now
    while door.state(1) == SLEEPS:
        door.submit(1, fetched=False)
        door.look()
        assert door.now - since <= most + 3 * LOOK


def test_two_who_work_are_looked_at_more_often_than_one() -> None:
    door = Door(slots=3)
    for _ in range(20):
        for slot in (0, 1):
            door.submit(slot, fetched=False)
        door.look()
    since, looked = door.now, []
    while door.now < since + 100 * MS:
        looked.extend(door.due()[1])
        for slot in (0, 1):
            door.submit(slot, fetched=False)
        door.look()
    for slot in (0, 1):
        assert looked.count(slot) >= 100 * MS // lib.CGPU_DEMAND_GAP_MAX_NS - 3


def test_one_that_launched_many_kernels_once_is_not_held_up_by_its_processor_for_good() -> None:
    """As a server does before it has its graph."""
    door = Door()
    slot = door.demand.slot[1]
    slot.compared_ns, slot.alone.per_second, slot.beside.per_second = door.now, 20_000, 600
    for _ in range(2000):
        door.submit(1)
        door.look(door.now + LOOK)
    assert slot.alone.per_second < lib.CGPU_DEMAND_OFTEN
    # it keeps more than a quarter of its rate beside others, and would be let run there
    assert slot.kept_ppm == 0


def test_a_look_reads_the_channels_that_move_and_seldom_one_more() -> None:
    door = Door(channels=20)
    for _ in range(50):
        door.submit(0, 3, fetched=False)
        door.submit(1, 3)
        door.look()
    before, looks = door.reads, door.demand.looks
    for _ in range(100):
        door.submit(1, 3)
        door.look()
    seen = door.demand.looks - looks
    assert door.reads - before <= 2 * (seen + seen // lib.CGPU_DEMAND_OTHERS + 1)


def test_one_whose_look_read_nothing_does_not_count_as_unreadable() -> None:
    door = Door()
    for _ in range(50):
        door.submit(0, fetched=False)
        door.submit(1)
        door.look()
    # its channel in use goes; none of the others is due
    door.known[1] = ffi.new("struct cgpu_demand_channel[]", list(door.known[1])[:3])
    del door.words[1][3:]
    for _ in range(2 * lib.CGPU_DEMAND_OTHERS):
        door.submit(0, fetched=False)
        door.look()
        assert door.state(1) != UNKNOWN


def test_a_channel_that_moved_long_ago_is_one_of_the_others_again() -> None:
    door = Door()

    def go_on(looks: int) -> int:
        reads, before = door.reads, door.demand.looks
        while door.demand.looks < before + looks:
            door.submit(0, channel=3)
            door.look()
        return door.reads - reads

    for channel in (5, 6, 7, 8):
        door.submit(0, channel=channel)
        door.look()
    first = go_on(40)
    go_on(lib.CGPU_DEMAND_HEAT + 40)
    # of slot 0 the four are no longer read each time; of slot 1 one channel is, as before
    assert go_on(40) <= first - 2 * 40


@pytest.mark.parametrize("moving", (lib.CGPU_DEMAND_READS + 2, 20))
def test_of_more_channels_in_use_than_a_look_reads_each_is_read_in_turn(moving: int) -> None:
    door = Door(channels=20)
    for _ in range(200):
        door.submit(0, 0, fetched=False)
        for channel in range(moving):
            door.submit(1, channel)
        door.look()
    slot = door.demand.slot[1]
    for channel in range(moving):
        door.submit(1, channel)
        seen = 0
        while not seen or slot.moved_ns != slot.looked_ns:
            reads = door.reads
            door.submit(0, 0, fetched=False)
            door.look()
            seen += slot.looked_ns == door.now
            assert seen <= -(-moving // lib.CGPU_DEMAND_READS), channel
            # of slot 0 the first that is queued ends the look
            assert door.reads - reads <= lib.CGPU_DEMAND_READS + 3


def test_many_channels_that_moved_once_do_not_hide_the_one_in_use_for_long() -> None:
    """On an H100 one that used one of its 128 channels was let run beside others for good."""
    door = Door(channels=128)
    for channel in range(128):
        for _ in range(lib.CGPU_DEMAND_OTHERS + 2):
            door.submit(0, 0, fetched=False)
            for moved in range(channel + 1):
                door.submit(1, moved)
            door.look()
    slot = door.demand.slot[1]
    used = next(i for i, channel in enumerate(door.known[1]) if channel.heat > 50)
    assert slot.hots > 10 * lib.CGPU_DEMAND_READS
    # how many move is the tenant's affair
    most_ns = lib.CGPU_DEMAND_PATIENCE_MAX_NS + lib.CGPU_DEMAND_SILENT_MAX_NS
    assert lib.cgpu_demand_patience_ns(door.demand, 1) <= most_ns
    looks = door.demand.looks
    while slot.hots > lib.CGPU_DEMAND_READS:
        door.submit(0, 0, fetched=False)
        door.submit(1, used)
        door.look()
        assert door.demand.looks - looks <= 2 * lib.CGPU_DEMAND_HEAT


@pytest.mark.parametrize("channel", (0, 7, 19))
def test_work_on_a_channel_that_never_moved_is_seen_within_a_round_of_them(channel: int) -> None:
    door = Door(channels=20)
    for _ in range(10):
        door.submit(0, 1, fetched=False)
        door.look()
    assert door.state(1) == SLEEPS
    since = door.demand.looks
    while door.state(1) == SLEEPS:
        door.submit(0, 1, fetched=False)
        door.submit(1, channel)
        door.look()
        assert door.demand.looks - since <= 20


def test_a_channel_in_use_hides_no_work_on_another_that_the_log_tells_of() -> None:
    door = Door()
    s = door.card.s
    for _ in range(10):
        door.submit(0, 1, fetched=False)
        door.submit(1, 1)
        door.look()
    while door.state(1) != SLEEPS:
        door.submit(0, 1, fetched=False)
        door.look()
        door.card.run(door.now)
    for _ in range(40):
        door.submit(0, 1, fetched=False)
        door.look()
        door.card.run(door.now)
    assert s.plan.mode == lib.CGPU_SCHED_DEMAND and door.state(1) == SLEEPS
    lib.cgpu_fair_settle(s, lib.CGPU_SCHED_NONE, door.card.now)
    door.card.run(door.now + 20 * MS)
    lib.cgpu_sched_used(s, 1, 18 * MS)
    lib.cgpu_sched_used(s, 0, 2 * MS)
    lib.cgpu_fair_settle(s, lib.CGPU_SCHED_NONE, door.card.now)
    door.now = door.card.now
    for _ in range(2):
        door.submit(0, 1, fetched=False)
        door.submit(1, 17, fetched=False)
        door.look()
    assert door.state(1) == QUEUED


def test_patience_follows_the_gap_between_submissions() -> None:
    for gap_us, patience_us in ((1500, 1900), (400, 1250), (2500, 3100)):
        door = Door()
        door.shut(0)
        now, nxt = door.now, door.now
        for _ in range(400):
            now += LOOK
            while nxt <= now:
                door.submit(1)
                nxt += gap_us * 1000
            door.submit(0, fetched=False)
            door.look(at=now)
        assert door.state(1) == WORKS
        got = lib.cgpu_demand_patience_ns(door.demand, 1)
        assert got == pytest.approx(patience_us * 1000, rel=0.15)


def test_one_whose_submissions_cease_sleeps_after_its_patience() -> None:
    door = Door()
    for _ in range(50):
        door.submit(0, fetched=False)
        door.submit(1)
        door.look()
    assert door.state(1) == WORKS
    door.shut(0)
    since = door.now
    while door.state(1) != SLEEPS:
        door.look()
    assert door.now - since <= lib.CGPU_DEMAND_PATIENCE_MAX_NS + LOOK


def test_one_who_may_wait_for_another_does_not_sleep() -> None:
    door = Door()
    for _ in range(50):
        door.submit(0, fetched=False)
        door.submit(1)
        door.look()
    period = door.card.s.plan.period_ns
    since = door.now
    while door.now < since + 3 * period // 2:
        assert door.state(1) == WORKS
        door.submit(0, fetched=False)
        door.look()
    while door.state(1) == WORKS:
        assert door.now < since + 2 * period + 2 * lib.CGPU_DEMAND_PATIENCE_MAX_NS
        door.submit(0, fetched=False)
        door.look()


def test_one_that_never_moved_and_runs_all_the_same_is_found_to_work() -> None:
    door = Door()
    s = door.card.s
    # The second rests: nothing divides time for it, and its gate is open.
    for _ in range(100):
        door.submit(0, fetched=False)
        door.look()
        door.card.run(door.now)
    assert s.plan.mode == lib.CGPU_SCHED_DEMAND and s.fair.resting_mask == 2
    assert not s.share[1].share_ppm and not s.gates.shut_mask
    for _ in range(60):
        door.submit(0, fetched=False)
        lib.cgpu_sched_used(s, 1, 18 * MS)
        lib.cgpu_sched_used(s, 0, 2 * MS)
        door.card.run(door.now + 20 * MS)
        lib.cgpu_fair_settle(s, lib.CGPU_SCHED_NONE, door.card.now)
        door.now = door.card.now
        door.look()
    assert door.state(1) in (WORKS, UNKNOWN)
    assert s.share[1].share_ppm == s.share[0].share_ppm


def test_what_cannot_be_read_counts_as_work() -> None:
    door = Door(channels=0)
    door.look()
    assert door.state(0) == door.state(1) == UNKNOWN


@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 1023)), max_size=60), st.data())
def test_whatever_a_tenant_writes_looks_stay_few_and_cheap(
    words: list[tuple[int, int]], data: st.DataObject
) -> None:
    door = Door(channels=40)
    begin = door.now
    for get, put in words:
        channel = data.draw(st.integers(0, 39))
        door.words[1][channel] = [get, put]
        door.submit(0, fetched=False)
        reads = door.reads
        door.look(cost=7000 * 8)
        if door.demand.looks > 1:
            assert door.reads - reads <= 2 * (lib.CGPU_DEMAND_READS + 1)
    if words:
        assert door.demand.looks <= (door.now - begin) // LOOK + 1
        assert lib.cgpu_demand_patience_ns(door.demand, 1) <= lib.CGPU_DEMAND_PATIENCE_MAX_NS
