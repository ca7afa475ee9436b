# SPDX-License-Identifier: MIT
"""The log of context switches: what each process used, and who lets a window pass."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu._core import ffi, lib
from tests.core.test_sched import FAIR, FIXED, MS, Card

RECORDS = lib.CGPU_SWITCH_LOG_RECORDS
START, END = 6, 7
EPOCH = 1_795_265_305_000_000_000  # the card's clock is not the host's


class Ring:
    """What the driver writes, as NVIDIA's headers lay it out, and what is read from it."""

    def __init__(self) -> None:
        self.header = ffi.new("uint8_t[]", lib.CGPU_SWITCH_LOG_HEADER_BYTES)
        self.records = ffi.new("uint8_t[]", lib.CGPU_SWITCH_LOG_RING_BYTES)
        self.put = 0
        self.seqno = 0
        self.log = ffi.new("struct cgpu_switch_log *")
        lib.cgpu_switch_log_init(self.log)
        self.turns: dict[int, tuple[int, int]] = {}

    def write(self, tag: int, pid: int, at_ns: int) -> None:
        record = struct.pack(
            "<HHIBBHIIHBBQ", 2, 0, 0, tag, 0, self.seqno, 0xBA7, pid, 0, 255, 255, EPOCH + at_ns
        )
        ffi.memmove(self.records + self.put * len(record), record, len(record))
        self.put = (self.put + 1) % RECORDS
        self.seqno = (self.seqno + 1) % 65536
        ffi.memmove(self.header + 4, struct.pack("<I", self.put), 4)

    def read(self, now_ns: int) -> dict[int, int]:
        use = ffi.new("struct cgpu_switch_log_use[]", lib.CGPU_SWITCH_LOG_USES)
        found: dict[int, int] = {}
        batch = ffi.new("struct cgpu_switch_log_batch *", {"use": use})
        while entry := lib.cgpu_switch_log_next(self.log, self.header, self.records, now_ns, batch):
            found[entry.pid] = found.get(entry.pid, 0) + entry.ns
            if entry.turns:
                self.turns[entry.pid] = (entry.turns, entry.shortest_ns)
        return found


def test_a_span_between_start_and_end_is_its_processs() -> None:
    ring = Ring()
    ring.write(START, 100, 5 * MS)
    ring.write(END, 100, 12 * MS)
    ring.write(START, 200, 13 * MS)
    ring.write(END, 200, 14 * MS)
    assert ring.read(20 * MS) == {100: 7 * MS, 200: MS}
    assert ring.read(30 * MS) == {}


def test_who_reads_later_what_was_asked_for_earlier_counts_nothing_twice() -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    assert ring.read(10 * MS) == {100: 0}
    assert ring.read(60 * MS) == {100: 50 * MS}
    assert ring.read(40 * MS) == {100: 0}
    assert ring.read(70 * MS) == {100: 10 * MS}


def test_a_turn_lasts_until_the_next_begins_right_after_it() -> None:
    ring = Ring()
    ring.write(START, 100, 5 * MS)
    ring.write(END, 100, 12 * MS)
    ring.write(START, 200, 12 * MS + 85_000)
    assert ring.read(13 * MS) == {100: 7 * MS, 200: 0}
    assert ring.turns == {100: (1, 7 * MS + 85_000)}
    # Nobody waited for the card, or it was the same process: no turn of a slice.
    ring.write(END, 200, 14 * MS)
    ring.write(START, 300, 15 * MS)
    ring.write(END, 300, 16 * MS)
    ring.write(START, 300, 16 * MS + 85_000)
    ring.read(17 * MS)
    assert ring.turns == {100: (1, 7 * MS + 85_000)}


def test_of_several_turns_since_the_last_reading_the_shortest_counts() -> None:
    ring = Ring()
    at_ns = 0
    for lasted_ns in (5 * MS, 3 * MS, 4 * MS):
        for pid in (100, 200):
            ring.write(START, pid, at_ns)
            ring.write(END, pid, at_ns + lasted_ns - 85_000)
            at_ns += lasted_ns
    ring.read(at_ns)
    # The last of all is not followed yet.
    assert ring.turns == {100: (3, 3 * MS), 200: (2, 3 * MS)}


def test_a_reading_tells_of_however_many_processes_each_once() -> None:
    ring = Ring()
    for count in (lib.CGPU_SWITCH_LOG_USES, 2 * lib.CGPU_SWITCH_LOG_USES + 1, 0):
        at_ns = (1 + count) * 1000 * MS
        for pid in range(1, count + 1):
            ring.write(START, pid, at_ns + pid * MS)
            ring.write(END, pid, at_ns + pid * MS + 1000)
        told = ring.read(at_ns + 1000 * MS)
        assert told == dict.fromkeys(range(1, count + 1), 1000)


def test_switches_among_the_processes_of_a_container_are_its_own_and_no_others() -> None:
    ring = Ring()
    sched = ffi.new("struct cgpu_sched *")
    lib.cgpu_sched_init(sched, 0)
    slots = {100: 0, 101: 0, 200: 1, 300: lib.CGPU_SCHED_NONE}
    at_ns = 0

    def turns(*pids: int) -> None:
        nonlocal at_ns
        for pid in pids:
            ring.write(START, pid, at_ns + 85_000)
            ring.write(END, pid, at_ns + MS)
            at_ns += MS

    def switched() -> dict[int, int]:
        use = ffi.new("struct cgpu_switch_log_use[]", lib.CGPU_SWITCH_LOG_USES)
        count = lib.cgpu_switch_log_read(ring.log, ring.header, ring.records, at_ns, use)
        for i in range(count):
            lib.cgpu_switch_log_used(ring.log, sched, slots[use[i].pid], use + i)
        return {entry.pid: entry.switched_ns for entry in use[0:count]}

    turns(100, 101, 200)
    assert set(switched().values()) == {0}
    # whose they are is known from there on; who was not right after another followed nobody
    turns(100, 101, 100, 200, 100, 101, 300, 101)
    at_ns += MS
    turns(100)
    assert switched() == {100: 85_000, 101: 2 * 85_000, 200: 0, 300: 0}
    assert sched.slot[0].fair.switched_ns == 3 * 85_000


def charged(ring: Ring, sched: Any, now_ns: int, *slots: int) -> list[int]:
    """What the first two slots are charged with when all that ran is told to be of ``slots``."""
    before = [sched.slot[slot].stat.used_ns for slot in range(2)]
    use = ffi.new("struct cgpu_switch_log_use[]", lib.CGPU_SWITCH_LOG_USES)
    for i in range(lib.cgpu_switch_log_read(ring.log, ring.header, ring.records, now_ns, use)):
        for slot in slots:
            lib.cgpu_switch_log_used(ring.log, sched, slot, use + i)
    return [sched.slot[slot].stat.used_ns - before[slot] for slot in range(2)]


@pytest.fixture
def two() -> Any:
    """A scheduler of two containers."""
    sched = ffi.new("struct cgpu_sched *")
    lib.cgpu_sched_init(sched, 0)
    member = ffi.new("struct cgpu_policy_member *", {"weight": 1})
    for slot in range(2):
        lib.cgpu_sched_set(sched, slot, member, 0)
    return sched


def test_what_a_process_ran_is_charged_though_it_ended_before_the_reading(two: Any) -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    ring.write(END, 100, MS)
    assert charged(ring, two, 10 * MS, 1) == [0, MS]
    ring.write(START, 100, 11 * MS)
    ring.write(END, 100, 19 * MS)
    assert charged(ring, two, 20 * MS, lib.CGPU_SCHED_NONE) == [0, 8 * MS]
    # a process of the host's has its number by now
    ring.write(START, 100, 21 * MS)
    ring.write(END, 100, 29 * MS)
    assert charged(ring, two, 30 * MS, lib.CGPU_SCHED_NONE) == [0, 0]


def test_who_gets_the_slot_of_one_that_ended_is_charged_for_nothing_of_it(two: Any) -> None:
    """A context stays loaded while nobody else wants the card, and seems to run."""
    ring = Ring()
    ring.write(START, 100, 0)
    assert charged(ring, two, 0, 1) == [0, 0]
    assert charged(ring, two, 10 * MS, 1) == [0, 10 * MS]
    lib.cgpu_sched_remove(two, 1, 10 * MS)
    lib.cgpu_sched_set(two, 1, ffi.new("struct cgpu_policy_member *", {"weight": 1}), 11 * MS)
    assert charged(ring, two, 20 * MS, lib.CGPU_SCHED_NONE) == [0, 0]


def test_what_nobody_ran_is_charged_to_nobody(two: Any) -> None:
    """Number 0 is nobody's, and stands where no process was told of yet."""
    ring = Ring()
    ring.write(START, 0, 0)
    ring.write(END, 0, 5 * MS)
    assert charged(ring, two, 10 * MS, lib.CGPU_SCHED_NONE) == [0, 0]


def test_what_runs_by_a_number_that_two_have_is_charged_to_both(two: Any) -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    ring.write(END, 100, 5 * MS)
    assert charged(ring, two, 10 * MS, 0, 1) == [5 * MS, 5 * MS]


def test_a_turn_with_lost_records_in_it_is_none() -> None:
    ring = Ring()
    ring.write(START, 100, 5 * MS)
    ring.write(END, 100, 12 * MS)
    ring.seqno += 2
    ring.write(START, 200, 12 * MS + 85_000)
    ring.read(13 * MS)
    assert ring.turns == {}


def test_a_context_that_stays_loaded_is_counted_while_it_stays_and_not_twice() -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    assert ring.read(10 * MS) == {100: 0}
    assert ring.read(60 * MS) == {100: 50 * MS}
    assert ring.read(110 * MS) == {100: 50 * MS}
    ring.write(END, 100, 112 * MS)
    assert ring.read(120 * MS) == {100: 12 * MS}


def test_once_the_cards_clock_is_known_a_new_context_counts_from_its_load() -> None:
    ring = Ring()
    ring.write(START, 100, 10 * MS - 20_000)
    ring.read(10 * MS)
    ring.write(END, 100, 12 * MS)
    ring.write(START, 200, 14 * MS)
    # the clock is known to within the 20 us that the freshest record was old
    early = ring.read(20 * MS)
    assert early == {100: 2 * MS + 20_000, 200: pytest.approx(6 * MS - 20_000, abs=1000)}
    # what was counted is not counted again, nor what is loaded while the driver is asked
    ring.write(END, 200, 21 * MS)
    ring.write(START, 300, 30 * MS)
    assert ring.read(30 * MS - 50_000) == {200: 7 * MS - early[200], 300: 0}


def test_a_new_span_of_the_same_process_is_not_taken_for_the_old_one() -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    ring.read(10 * MS)
    ring.write(END, 100, 20 * MS)
    ring.write(START, 100, 30 * MS)
    assert ring.read(31 * MS) == {100: 20 * MS}


def test_an_end_without_its_start_counts_nothing() -> None:
    ring = Ring()
    ring.write(END, 100, 20 * MS)
    assert ring.read(30 * MS) == {100: 0}


def test_records_that_were_overwritten_are_counted_as_lost_and_nobody_is_charged() -> None:
    ring = Ring()
    ring.write(START, 100, 0)
    ring.read(0)
    ring.seqno += 5
    ring.write(END, 100, 900 * MS)
    assert ring.read(900 * MS) == {100: 0}
    assert ring.log.lost == 5


def test_the_records_number_wraps_and_nothing_is_lost() -> None:
    ring = Ring()
    ring.seqno = 65535
    ring.write(START, 100, 0)
    ring.write(END, 100, MS)
    assert ring.read(MS) == {100: MS}
    assert ring.log.lost == 0


def test_the_ring_is_read_round_its_end() -> None:
    ring = Ring()
    ring.put = ring.log.get = RECORDS - 1
    ring.write(START, 100, 0)
    ring.write(END, 100, MS)
    assert ring.read(MS) == {100: MS}
    assert ring.log.get == 1


def test_more_processes_than_fit_one_reading_lose_nothing() -> None:
    ring = Ring()
    for i in range(200):
        ring.write(START, 1000 + i, i * MS)
        ring.write(END, 1000 + i, i * MS + MS // 2)
    assert ring.read(200 * MS) == {1000 + i: MS // 2 for i in range(200)}


def test_a_put_pointer_beyond_the_ring_reads_nothing() -> None:
    ring = Ring()
    ffi.memmove(ring.header + 4, struct.pack("<I", RECORDS), 4)
    assert ring.read(MS) == {}


@given(
    st.lists(
        st.tuples(st.sampled_from([11, 22, 33]), st.integers(1, 40), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, RECORDS - 1),
)
def test_sums_are_what_was_loaded_whenever_it_is_read(spans: Any, first: int) -> None:
    ring = Ring()
    ring.put = ring.log.get = first
    used: dict[int, int] = {}
    told: dict[int, int] = {}
    now = 0

    def read() -> None:
        for pid, ns in ring.read(now).items():
            told[pid] = told.get(pid, 0) + ns

    for pid, length, look in spans:
        ring.write(START, pid, now)
        if look:
            read()
        now += length * MS
        used[pid] = used.get(pid, 0) + length * MS
        if look:
            read()
        ring.write(END, pid, now)
        now += MS // 10
    read()
    assert told == used
    assert ring.log.lost == 0


@given(st.binary(min_size=32 * 40, max_size=32 * 40), st.integers(0, 40))
def test_whatever_the_ring_holds_reading_it_ends(data: bytes, put: int) -> None:
    ring = Ring()
    ffi.memmove(ring.records, data, len(data))
    ffi.memmove(ring.header + 4, struct.pack("<I", put), 4)
    ring.read(MS)
    assert ring.log.get == put


# ------------------------------------------------------------------ who is idle


class Watched(Card):
    """A card with its log: slot n's work is process n's, who is loaded at the gate's opening."""

    def __init__(self, policy: int, **numbers: int) -> None:
        super().__init__(policy, **numbers)
        self.ring = Ring()
        self.working: set[int] = set()
        self.loaded: int | None = None
        self.looks = 0
        self.ran: dict[int, int] = {}

    def place(self) -> None:
        """The runlist: the loaded one stays while it has work and its gate is open."""
        ready = sorted(slot for slot in self.working if not self.shut >> slot & 1)
        if self.loaded is not None and self.loaded not in ready:
            self.ring.write(END, self.loaded + 1, self.now)
            self.loaded = None
        if self.loaded is None and ready:
            self.loaded = ready[0]
            self.ring.write(START, self.loaded + 1, self.now)

    def pass_time(self, to: int) -> None:
        self.place()
        if self.loaded is not None and to > self.now:
            self.ran[self.loaded] = self.ran.get(self.loaded, 0) + to - self.now
        self.now = max(self.now, to)

    def done(self, action: Any, status: int = 0, took: int = 350_000) -> None:
        self.pass_time(self.now + took)
        super().done(action, status, 0)
        self.place()

    def run(self, until: int) -> None:
        while self.now < until:
            actions = self.tick()
            for action in actions:
                self.done(action)
            if actions:
                continue
            due = lib.cgpu_switch_log_due(self.ring.log, self.s, self.now)
            if self.now < due:
                self.pass_time(min(max(self.now + 1000, min(self.wake, due)), until))
                continue
            self.looks += 1
            for pid, ns in self.ring.read(self.now).items():
                use = ffi.new("struct cgpu_switch_log_use *", {"pid": pid, "ns": ns})
                use.turns, use.shortest_ns = self.ring.turns.pop(pid, (0, 0))
                lib.cgpu_switch_log_used(self.ring.log, self.s, pid - 1, use)
            lib.cgpu_switch_log_judge(self.ring.log, self.s, self.now)


def shares(card: Watched, until: int) -> dict[int, float]:
    """What each slot ran from now on, of the time that passes."""
    before, start = dict(card.ran), card.now
    card.run(until)
    return {
        slot: (card.ran.get(slot, 0) - before.get(slot, 0)) / (card.now - start)
        for slot in range(4)
    }


def test_one_that_wakes_has_its_windows_back_after_two_periods() -> None:
    card = Watched(FAIR)
    card.add(0, quota=30)
    card.add(1)
    card.working = {1}
    card.run(2000 * MS)
    card.working = {0, 1}
    got = shares(card, card.now + 400 * MS)
    assert got[0] > 0.30 * (400 - 2 * 40) / 400 - 0.02


def test_a_busy_container_is_never_taken_to_pause() -> None:
    card = Watched(FAIR)
    for slot in range(3):
        card.add(slot, quota=30)
    card.working = {0, 1, 2}
    while card.now < 3000 * MS:
        card.run(card.now + MS)
        assert not any(card.s.slot[i].idle_ns for i in range(3))


def test_after_one_without_work_nobody_begins_early_where_idle_time_is_nobodys() -> None:
    card = Watched(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.working = {0}
    card.run(1000 * MS)
    assert card.s.slot[1].idle_windows == lib.CGPU_SCHED_TWICE
    assert shares(card, card.now + 2000 * MS)[0] == pytest.approx(0.5, abs=0.005)


def test_one_whose_work_ends_in_its_window_lets_nobody_begin_early() -> None:
    """Its context stays loaded; that the next one ran too long tells."""
    card = Watched(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    while card.now < 3000 * MS:
        ending = card.s.cur.owner == 1 and card.s.cur.end_ns - card.now < 4 * MS
        card.working = {0} if ending else {0, 1}
        card.run(card.now + MS // 4)
    assert card.ran[0] / card.now <= 0.505


class Lasting(Watched):
    """Slot 1 is saved 0.35 ms after its gate was shut, always."""

    def place(self) -> None:
        lasts = self.loaded == 1 and self.shut >> 1 & 1
        now, self.now = self.now, self.now + (350_000 if lasts else 0)
        super().place()
        self.now = now


def test_one_that_always_runs_a_little_longer_is_not_taken_for_one_that_begins_early() -> None:
    card = Lasting(FIXED, max_inst=2)
    card.add(0)
    card.add(1)
    card.working = {0, 1}
    card.run(2000 * MS)
    opened_first = 0
    for _ in range(200):
        card.run(card.now + 5 * MS)
        opened_first += card.s.cur.before != lib.CGPU_SCHED_ENTITIES
    assert opened_first > 150


def test_used_time_is_the_engines_stat() -> None:
    card = Watched(FAIR)
    card.add(0, quota=30)
    card.add(1)
    card.working = {0, 1}
    card.run(5000 * MS)
    for slot in (0, 1):
        assert card.stat(slot).used_ns == pytest.approx(card.ran[slot], abs=101 * MS)


def test_a_card_without_containers_is_not_looked_at() -> None:
    card = Watched(FAIR)
    assert lib.cgpu_switch_log_due(card.ring.log, card.s, 0) == 2**64 - 1


def test_where_everybody_has_a_quota_the_busy_one_is_given_what_its_own_allows() -> None:
    card = Watched(FAIR)
    for slot, quota in enumerate((20, 20, 60)):
        card.add(slot, quota=quota)
    card.working = {2}
    card.run(2000 * MS)
    gates = len(card.log)
    got = shares(card, card.now + 2000 * MS)
    assert got[2] == pytest.approx(0.60, abs=0.02)
    assert (len(card.log) - gates) / 50 <= 8, "gate calls a period"
