# SPDX-License-Identifier: MIT
"""
Containers step off a card and come back, beside others that allocate, free, start and end.

The one promise: whatever happens in between, a container whose room was reserved gets all that it
had.
"""

from __future__ import annotations

import errno

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycgpu.core import MAX_CARDS, Tenant, Topology, ffi, lib
from pycgpu.tree.moving import Moving, State
from tests.core.parking_card import (
    CARD,
    MIB,
    OTHER,
    OWN,
    PARKED,
    PARKING,
    RESUMING,
    RUNNING,
    SECOND,
    Card,
    One,
)  # fmt: skip


@given(st.integers(0, 2**32), st.sampled_from([100, 300]))
@example(2_143_289_344, 100)
def test_whoever_comes_back_finds_all_its_room(seed: int, overcommit_ratio: int) -> None:
    card = Card(seed, overcommit_ratio)
    for _ in range(200):
        card.step()


def tenant(limit: int | None = 100 * MIB) -> Tenant:
    made = Tenant(Topology(), capacity_max=1024)
    made.give(0, limit)
    return made


def begin(one: Tenant, *pids: int) -> int:
    numbers = ffi.new("uint32_t[]", list(pids) or [OWN])
    return int(lib.cgpu_parking_begin(one.raw, numbers, len(pids) or 1, False, 1))


def test_a_container_in_a_group_is_not_parked() -> None:
    for role in (lib.CGPU_ROLE_LEADER, lib.CGPU_ROLE_MEMBER):
        one = tenant()
        one.raw.role = role
        assert begin(one) == -errno.EXDEV
        assert one.raw.ledger.park_state == RUNNING


def test_more_processes_than_can_be_kept_in_mind_are_not_parked() -> None:
    one = tenant()
    assert begin(one, *range(1, 66)) == -errno.E2BIG
    assert begin(one, *range(1, 65)) == 0


def test_a_second_move_waits_for_the_end_of_the_first() -> None:
    one = tenant()
    assert begin(one) == 0
    assert begin(one) == -errno.EBUSY
    rooms = ffi.new("struct cgpu_room[]", MAX_CARDS)
    assert lib.cgpu_parking_reserve(one.raw, rooms, 2) == -errno.EBUSY
    assert lib.cgpu_parking_parked(one.raw, 2) == 0
    assert lib.cgpu_parking_parked(one.raw, 2) == -errno.EBUSY
    assert lib.cgpu_parking_end(one.raw, 2) == 0
    assert lib.cgpu_parking_end(one.raw, 2) == -errno.EBUSY


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3)), min_size=2, max_size=8))
def test_the_queue_is_by_priority_and_then_by_time(wishes: list[tuple[int, int]]) -> None:
    made = []
    for priority, asked in wishes:
        one = tenant()
        if asked:
            lib.cgpu_parking_ask(one.raw, priority, asked)
        made.append((one, priority, asked))
    for one, priority, asked in made:
        for other, others, since in made:
            before = lib.cgpu_parking_precedes(
                ffi.addressof(one.raw, "parking"), ffi.addressof(other.raw, "parking")
            )
            if not asked:
                assert not before
            elif not since:
                assert before
            else:
                assert before == ((-priority, asked) < (-others, since))


def test_asking_again_does_not_lose_its_place() -> None:
    one = tenant()
    lib.cgpu_parking_ask(one.raw, 1, 5)
    lib.cgpu_parking_ask(one.raw, 2, 9)
    assert (one.raw.parking.asked_ns, one.raw.parking.priority) == (5, 2)


def test_nobody_waits_behind_one_that_stands_still() -> None:
    card = Card(1)
    for priority in (1, 0):
        card.create()
        card.ones[-1].grants[0].priority = priority
    first, second = card.ones
    for one in card.ones:
        assert card.command(f"park {one.id} pid={OWN} hold=1") == 0
        assert card.command(f"parked {one.id}") == 0
        one.account.parked_bytes = MIB
    assert card.command(f"stay {first.id}") == errno.EBUSY, "it does not wait"
    full = f"foreign=0:{CARD}"
    for one, short in ((first, 0), (second, None)):
        assert card.command(f"return {one.id} {full}") == errno.EAGAIN
        found = card.shown(one)
        assert found is not None and (found.short_card, found.held) == (short, True)
    assert card.command(f"return {second.id} foreign=0:0") == errno.EAGAIN
    assert card.command(f"stay {first.id}") == 0
    found = card.shown(first)
    assert found is not None
    assert found == Moving(first.id, State.PARKED, found.since_ns, MIB, (OWN,))
    assert card.command(f"return {second.id}") == 0
    assert card.command(f"return {first.id}") == 0
    assert card.command(f"stay {first.id}") == errno.EBUSY, "it comes back"


@pytest.mark.parametrize("limit", [100 * MIB, None])
def test_slack_does_not_add_up_over_many_returns(limit: int | None) -> None:
    """Whoever makes calls of its own while it comes back gains the slack once."""
    one = One(tenant(limit), limit)
    index = one.charge(100 * MIB, OWN)
    assert index is not None
    one.own.append(index)
    rooms = ffi.new("struct cgpu_room[]", MAX_CARDS)
    for _ in range(20):
        assert begin(one.tenant) == 0
        while one.own:
            one.free(one.own.pop())
        assert lib.cgpu_parking_parked(one.tenant.raw, 2) == 0
        assert lib.cgpu_parking_reserve(one.tenant.raw, rooms, 3) == 0
        for size in (100 * MIB, *[MIB] * 400):
            index = one.charge(size, OWN)
            if index is not None:
                one.own.append(index)
            elif limit is not None:
                break
        lib.cgpu_parking_end(one.tenant.raw, 4)
        if limit is None:
            return
    assert one.used <= 100 * MIB + lib.CGPU_RETURN_SLACK_BYTES + (140 * MIB >> 8)


def charge(one: Tenant, pid: int, size: int) -> int:
    lib.cgpu_tenant_enter(one.raw, pid)
    try:
        return int(lib.cgpu_account_charge(ffi.addressof(one.raw, "ledger"), 0, size))
    finally:
        lib.cgpu_tenant_leave(one.raw)


def uncharge(one: Tenant, size: int) -> None:
    lib.cgpu_account_uncharge(ffi.addressof(one.raw, "ledger"), 0, size)


@pytest.mark.parametrize("late", [False, True])
def test_what_another_process_frees_meanwhile_is_not_kept(late: bool) -> None:
    """A notebook's next program begins while the one before is parked. *late*: files close late."""
    one = tenant()
    account, other = one.raw.ledger.account[0], OWN + 1
    assert charge(one, OWN, 40 * MIB) == 0
    assert begin(one) == 0
    # It grows before it is locked.
    assert charge(one, OWN, 10 * MIB) == 0
    if not late:
        uncharge(one, 50 * MIB)
    assert lib.cgpu_parking_parked(one.raw, 2) == 0
    assert charge(one, other, 30 * MIB) == 0
    uncharge(one, 30 * MIB)
    if late:
        # Until then nobody knows whose that was.
        assert account.parked_bytes == 30 * MIB
        uncharge(one, 50 * MIB)
    for _ in range(10):
        assert charge(one, other, 30 * MIB) == 0
        uncharge(one, 30 * MIB)
    assert (account.current_bytes, account.parked_bytes) == (0, 50 * MIB)
    assert charge(one, other, 50 * MIB) == 0
    assert charge(one, other, 1) == -errno.ENOSPC
    uncharge(one, 50 * MIB)

    rooms = ffi.new("struct cgpu_room[]", MAX_CARDS)
    rooms[0].card_bytes = 100 * MIB
    assert lib.cgpu_parking_reserve(one.raw, rooms, 3) == 0
    # What it takes back it may free again amid its return, which is the driver's affair.
    for size in (50, 20):
        assert charge(one, OWN, size * MIB) == 0
        uncharge(one, 20 * MIB)
        assert account.parked_bytes == 20 * MIB
    assert charge(one, OWN, 20 * MIB) == 0
    assert lib.cgpu_parking_end(one.raw, 4) == 0
    uncharge(one, 50 * MIB)
    assert (account.current_bytes, account.parked_bytes) == (0, 0)


def test_events_tell_what_a_step_has_changed() -> None:
    card = Card(0)
    while not card.ones:
        card.create()
    (one,) = card.ones
    index = one.charge(5 * MIB, OWN)
    assert index is not None
    assert card.command(f"park {one.id} pid={OWN}") == 0
    one.free(index)
    assert card.command(f"parked {one.id}") == 0
    for _ in range(2):
        assert card.command(f"return {one.id} foreign=0:{CARD}") == errno.EAGAIN
    card.clock += 3_000_000
    assert card.command(f"return {one.id} foreign=0:0") == 0
    assert card.command(f"running {one.id}") == 0
    assert card.command(f"park {one.id} pid={OWN}") == 0
    assert card.command(f"running {one.id}") == 0
    assert card.command(f"running {one.id}") == errno.EBUSY
    size = 5 * MIB
    told = [line for line in card.lines if line]
    assert told == [
        f"parked id={one.id} bytes={size}",
        f"waits id={one.id} bytes={size}",
        f"resumed id={one.id} waited_ms=3",
        f"not_parked id={one.id}",
    ]


def test_the_time_of_a_move_is_kept_and_is_the_containers_own() -> None:
    card = Card(0)
    while not card.ones:
        card.create()
    (one,) = card.ones
    parking = one.tenant.raw.parking

    def step(text: str, after_s: int, took_s: int) -> None:
        card.clock += after_s * SECOND
        verb, *words = text.split(" ")
        assert card.command(" ".join([verb, one.id, *words])) == 0
        assert card.took_ns // SECOND == took_s

    step(f"park pid={OWN}", 7, 0)
    step("parked", 4, 4)
    step("return", 100, 0)
    assert parking.return_ns == 0
    step("running", 2, 2)
    assert parking.return_ns // SECOND == 2
    step(f"park pid={OWN}", 7, 0)
    step("running", 3, 3)
    step(f"park pid={OWN}", 7, 0)
    step("parked", 1, 1)
    step("running", 50, 0)
    assert parking.moved_ns // SECOND == 4 + 2 + 3 + 1
    assert parking.return_ns // SECOND == 2, "it did not come back since"


def test_a_step_that_is_refused_changes_nothing() -> None:
    card = Card(0)
    while not card.ones:
        card.create()
    (one,) = card.ones
    states = {
        RUNNING: ("parked", f"return foreign=0:{MIB}", "running"),
        PARKING: (f"park pid={OTHER}", f"return foreign=0:{MIB}"),
        PARKED: (f"park pid={OTHER}", "parked"),
        RESUMING: (f"park pid={OTHER}", f"return foreign=0:{MIB}", "parked"),
    }
    for step in ("", f"park {one.id} pid={OWN}", f"parked {one.id}", f"return {one.id}"):
        assert not step or card.command(step) == 0
        before = bytes(ffi.buffer(one.tenant.raw)), bytes(ffi.buffer(card.host))
        for refused in states[one.state]:
            verb, *words = refused.split(" ")
            assert card.command(" ".join([verb, one.id, *words])) == errno.EBUSY
        assert (bytes(ffi.buffer(one.tenant.raw)), bytes(ffi.buffer(card.host))) == before
        assert not any(card.lines[-len(states[one.state]) :])


def two_that_may_have_all() -> tuple[Card, One, One]:
    """Two containers of an overcommitted card."""
    card = Card(0, overcommit_ratio=300)
    while len(card.ones) < 2:
        card.create()
    for each in card.ones:
        each.tenant.give(0, CARD)
    one, other = card.ones
    return card, one, other


def test_a_call_waits_for_the_room_that_is_short_until_it_is_told_that_there_is_none() -> None:
    card, one, other = two_that_may_have_all()
    big, small = other.charge(CARD - 10 * MIB, OWN), None
    assert big is not None
    assert card.allocate(one, 30 * MIB, OWN) is None
    assert (one.ledger.shortage.room, one.ledger.shortage.bytes) == (True, 30 * MIB)
    assert card.command(f"no_room {one.id}") == errno.EBUSY, "nothing waits yet"
    waits = [ffi.new("struct cgpu_wait *") for _ in range(3)]
    for wait, card_of_it, size in zip(waits, (0, 0, 1), (30, 12, 99), strict=True):
        short = {"card": card_of_it, "bytes": size * MIB, "room": True}
        shortage = ffi.new("struct cgpu_shortage *", short)
        assert lib.cgpu_wait_begin(wait, one.tenant.raw, shortage, 5)
    shown = card.shown(one)
    assert shown is not None and shown.state is State.RUNNING
    assert (shown.want_card, shown.want_bytes) == (0, 20 * MIB)
    assert card.shown(other) is None
    assert lib.cgpu_wait_goes_on(waits[0], one.tenant.raw, SECOND)
    other.free(big)
    small = other.charge(MIB, OWN)
    lib.cgpu_rooms_limit(card.rooms(), ffi.addressof(one.ledger))
    assert card.shown(one) is None, "there is room by now"
    assert card.command(f"no_room {one.id}") == 0
    assert one.tenant.raw.parking.no_room == 1
    assert card.command(f"no_room {one.id}") == errno.EBUSY
    for wait in waits:
        assert not lib.cgpu_wait_goes_on(wait, one.tenant.raw, SECOND), "it was told"
        assert not lib.cgpu_wait_begin(wait, one.tenant.raw, shortage, SECOND)
    assert not any(card.lines)
    assert small is not None and other.charge(CARD, OWN) is None
    assert not other.ledger.shortage.room, "its own limit is in the way"


def test_a_call_waits_for_a_minute_at_most_and_while_others_take_the_room() -> None:
    card, one, other = two_that_may_have_all()
    wait, raw = ffi.new("struct cgpu_wait *"), one.tenant.raw

    def asks(now_s: int) -> bool:
        """Whether it waits for room, if it was refused."""
        if card.allocate(one, CARD, OWN) is not None:
            return False
        return bool(
            lib.cgpu_wait_begin(wait, raw, ffi.addressof(one.ledger, "shortage"), now_s * SECOND)
        )

    def goes_on(now_s: int) -> bool:
        lib.cgpu_rooms_limit(card.rooms(), ffi.addressof(one.ledger))
        return bool(lib.cgpu_wait_goes_on(wait, raw, now_s * SECOND))

    index = other.charge(MIB, OWN)
    assert asks(1) and goes_on(1) and goes_on(40)
    assert index is not None
    other.free(index)
    assert not goes_on(41), "there is room"
    index = other.charge(MIB, OWN)
    assert asks(42), "somebody else was quicker"
    assert goes_on(60) and not goes_on(61)
    assert not asks(62)
    assert card.shown(one) is None
    lib.cgpu_wait_end(wait, raw)
    assert one.account.oom == 3


def test_what_is_judged_again_counts_once() -> None:
    one = One(tenant(MIB), MIB)
    for _ in range(3):
        assert one.charge(2 * MIB, OWN) is None
        lib.cgpu_ledger_judge_again(
            ffi.addressof(one.ledger), ffi.addressof(one.ledger, "shortage")
        )
    assert one.charge(2 * MIB, OWN) is None
    assert one.account.oom == 1
    nothing = ffi.new("struct cgpu_shortage *")
    lib.cgpu_ledger_judge_again(ffi.addressof(one.ledger), nothing)
    assert one.account.oom == 1
