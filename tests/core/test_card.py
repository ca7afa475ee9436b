# SPDX-License-Identifier: MIT
"""What may be promised of a card: all cards or none, and never the same thing twice."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pycgpu.core import MAX_CARDS, ffi, lib

MIB = 1 << 20
GIB = 1 << 30
TOTAL = {0: 16 * GIB, 1: 8 * GIB, 2: 0}  # the driver did not tell the size of card 2
U64 = (1 << 64) - 1
NO_HINT = lib.CGPU_POLICY_END
AVERAGE, PREEMPTIVE, WEIGHTED, FIXED, WEAK, NATIVE, MIXED, FAIR, BURST, ONLINE = range(10)

numbers = st.one_of(st.integers(0, 110), st.integers(0, U64))
bytes_ = st.one_of(st.integers(MIB, 20 * GIB), st.sampled_from([GIB, 8 * GIB, 16 * GIB, U64]))
grants = st.fixed_dictionaries({
    "mem_bytes": bytes_, "unlimited": st.booleans(), "weight": st.none() | st.integers(0, 25),
    "policy_hint": st.integers(0, NO_HINT),
})  # fmt: skip


def make_host() -> object:
    host = ffi.new("struct cgpu_host *")
    for minor, total in TOTAL.items():
        gpu = ffi.new("struct cgpu_gpu *")
        gpu.total_bytes = total
        gpu.reserved_bytes = total // 64
        lib.cgpu_card_add(host, minor, gpu)
    return host


class Host(RuleBasedStateMachine):
    """Containers come, change and go; the model adds up what they were given."""

    def __init__(self) -> None:
        super().__init__()
        self.host: Any = make_host()
        self.members: list[Any] = []  # struct cgpu_create *, admitted
        self.max_inst = dict.fromkeys(TOTAL, lib.CGPU_MAX_INST_DEFAULT)
        self.ratio = dict.fromkeys(TOTAL, 100)
        self.policy = dict.fromkeys(TOTAL, lib.CGPU_POLICY_DEFAULT)
        self.by_hand: set[int] = set()
        self.before: dict[int, int] = {}  # the policies that a request's took the place of

    def on(self, minor: int) -> list[Any]:
        return [c.grant[minor] for c in self.members if c.grant[minor].present]

    def weight(self, minor: int) -> int:
        return sum(grant.weight for grant in self.on(minor))

    def memory(self, minor: int) -> int:
        return sum(grant.mem_bytes for grant in self.on(minor) if not grant.unlimited)

    def promisable(self, minor: int) -> int:
        return TOTAL[minor] * self.ratio[minor] // 100 or U64

    def fits(self, minor: int, wish: dict[str, Any]) -> int:
        if minor not in TOTAL:
            return -errno.ENODEV
        no_room = (
            len(self.on(minor)) >= self.max_inst[minor]
            or (not wish["unlimited"]
                and (self.memory(minor) + wish["mem_bytes"] > self.promisable(minor)
                     or wish["mem_bytes"] > (TOTAL[minor] or U64)))
            or (wish["weight"] is not None
                and self.weight(minor) + wish["weight"] > self.max_inst[minor])
        )  # fmt: skip
        if no_room:
            return -errno.ENOSPC
        native = self.policy[minor] == lib.CGPU_POLICY_NATIVE and minor not in self.by_hand
        asks = wish["policy_hint"] in (AVERAGE,) or (
            wish["weight"] and wish["policy_hint"] in (FIXED, WEIGHTED, FAIR, BURST, ONLINE)
        )
        return -errno.EBUSY if native and self.on(minor) and asks else 0

    def snapshot(self) -> bytes:
        return bytes(ffi.buffer(self.host))

    @rule(wishes=st.dictionaries(st.sampled_from([0, 1, 2, 5]), grants, max_size=3))
    def admit(self, wishes: Any) -> None:
        create, minor = ffi.new("struct cgpu_create *"), ffi.new("uint32_t *")
        for card, wish in wishes.items():
            grant = create.grant[card]
            grant.present = True
            grant.mem_bytes, grant.unlimited = wish["mem_bytes"], wish["unlimited"]
            grant.weight_given = wish["weight"] is not None
            grant.weight = wish["weight"] or 0
            grant.policy_hint = wish["policy_hint"]
        before = self.snapshot()
        errors = [(card, self.fits(card, wish)) for card, wish in sorted(wishes.items())]
        wrong = [(card, err) for card, err in errors if err]
        free = {card: self.max_inst[card] - self.weight(card) for card in wishes if card in TOTAL}
        err = lib.cgpu_host_admit(self.host, create, minor)
        if wrong or not wishes:
            assert err == (wrong[0][1] if wrong else -errno.EINVAL)
            assert not wrong or minor[0] == wrong[0][0]
            assert self.snapshot() == before, "all cards or none"
            return
        assert err == 0
        alone = {card for card in wishes if not self.on(card)}
        self.members.append(create)
        for card, wish in wishes.items():
            default = 1 if free[card] > 0 else 0
            wanted = default if wish["weight"] is None else wish["weight"]
            assert create.grant[card].weight == wanted
            if wish["policy_hint"] < NO_HINT and card not in self.by_hand and card in alone:
                self.before[card] = self.policy[card]
                self.policy[card] = wish["policy_hint"]

    @precondition(lambda self: self.members)
    @rule(number=st.integers(0, 99))
    def release(self, number: Any) -> None:
        create = self.members.pop(number % len(self.members))
        lib.cgpu_host_release(self.host, create.grant, ffi.NULL)
        for card in [card for card in self.before if not self.on(card)]:
            self.policy[card] = self.before.pop(card)

    @precondition(lambda self: self.members)
    @rule(number=st.integers(0, 99), minor=st.sampled_from(list(TOTAL)), size=bytes_,
          used=st.integers(0, 20 * GIB))  # fmt: skip
    def resize(self, number: Any, minor: Any, size: Any, used: Any) -> None:
        grant = self.members[number % len(self.members)].grant[minor]
        if not grant.present:
            return
        account = ffi.new("struct cgpu_account *")
        account.current_bytes = used
        account.unlimited, account.max_bytes = grant.unlimited, grant.mem_bytes
        others = self.memory(minor) - (0 if grant.unlimited else grant.mem_bytes)
        before = self.snapshot(), bytes(ffi.buffer(ffi.addressof(grant)))
        err = lib.cgpu_grant_set_memsize(self.host, minor, ffi.addressof(grant), account, size)
        shrinks = not grant.unlimited and size <= grant.mem_bytes
        if size < used:
            assert err == -errno.EBUSY
        elif not shrinks and (
            others + size > self.promisable(minor) or size > (TOTAL[minor] or U64)
        ):
            assert err == -errno.ENOSPC
        else:
            assert err == 0
            assert (grant.mem_bytes, grant.unlimited) == (size, False)
            assert (account.max_bytes, account.unlimited) == (size, False)
            return
        assert before == (self.snapshot(), bytes(ffi.buffer(ffi.addressof(grant))))

    @precondition(lambda self: self.members)
    @rule(number=st.integers(0, 99), minor=st.sampled_from(list(TOTAL)), weight=numbers)
    def reweigh(self, number: Any, minor: Any, weight: Any) -> None:
        grant = self.members[number % len(self.members)].grant[minor]
        if not grant.present:
            return
        others = self.weight(minor) - grant.weight
        before = grant.weight
        err = lib.cgpu_grant_set_weight(self.host, minor, ffi.addressof(grant), weight)
        if weight > lib.CGPU_MAX_INST_MAX:
            assert err == -errno.ERANGE
        elif others + weight > self.max_inst[minor]:
            assert err == -errno.ENOSPC
        else:
            assert (err, grant.weight) == (0, weight)
            return
        assert grant.weight == before

    @rule(minor=st.sampled_from(list(TOTAL)), value=numbers)
    def set_max_inst(self, minor: Any, value: Any) -> None:
        err = lib.cgpu_card_set_max_inst(ffi.addressof(self.host.card[minor]), value)
        if not 1 <= value <= lib.CGPU_MAX_INST_MAX:
            assert err == -errno.ERANGE
        elif value < max(len(self.on(minor)), self.weight(minor)):
            assert err == -errno.EBUSY
        else:
            assert err == 0
            self.max_inst[minor] = value

    @rule(minor=st.sampled_from(list(TOTAL)), percent=st.integers(90, 300) | st.just(1001))
    def set_overcommit_ratio(self, minor: Any, percent: Any) -> None:
        before = self.snapshot()
        err = lib.cgpu_card_set_overcommit_ratio(self.host, minor, percent)
        if not 100 <= percent <= 1000:
            assert err == -errno.ERANGE
        elif TOTAL[minor] and self.memory(minor) > TOTAL[minor] * percent // 100:
            assert err == -errno.EBUSY
        else:
            assert err == 0
            self.ratio[minor] = percent
            return
        assert self.snapshot() == before

    @rule(minor=st.sampled_from(list(TOTAL)), value=numbers)
    def set_policy(self, minor: Any, value: Any) -> None:
        err = lib.cgpu_card_set_policy(ffi.addressof(self.host.card[minor]), value)
        assert err == (0 if value < lib.CGPU_POLICY_END else -errno.ERANGE)
        if not err:
            self.policy[minor] = value
            self.by_hand.add(minor)
            self.before.pop(minor, None)

    @invariant()
    def the_card_has_promised_the_sum_of_its_grants_and_no_more_than_it_has(self) -> None:
        for minor, total in TOTAL.items():
            card, members = self.host.card[minor], self.on(minor)
            assert card.allocated_bytes == self.memory(minor)
            assert card.allocated_bytes <= self.promisable(minor)
            assert card.overcommit_ratio == self.ratio[minor]
            assert (card.members, card.weight_sum) == (len(members), self.weight(minor))
            assert card.policy_by_request == (minor in self.before)
            assert (card.max_inst, card.policy) == (self.max_inst[minor], self.policy[minor])
            free = lib.cgpu_card_free_weight(ffi.addressof(card))
            assert free == self.max_inst[minor] - self.weight(minor)
            most = total * self.ratio[minor] // 100
            left = max(most - total // 64 - self.memory(minor), 0)
            assert lib.cgpu_card_free_bytes(self.host, minor) == left
            # BAR1 and channels are divided by it
            assert self.host.topology.gpu[minor].promisable_bytes == most

    @invariant()
    def every_container_has_its_own_number_and_the_lowest_that_was_free(self) -> None:
        for minor in TOTAL:
            taken = [grant.instance for grant in self.on(minor)]
            assert len(set(taken)) == len(taken)
            assert self.host.card[minor].instances == sum(1 << number for number in taken)


TestHost = Host.TestCase


@given(numbers, numbers)
def test_a_quota_stays_above_its_minimum_and_within_the_card(quota: Any, least: Any) -> None:
    grant = ffi.new("struct cgpu_grant *")
    assert lib.cgpu_grant_set_quota(grant, quota) == (0 if quota <= 100 else -errno.ERANGE)
    kept = grant.quota
    err = lib.cgpu_grant_set_quota_min(grant, least)
    assert err == (0 if least <= (kept or 100) else -errno.ERANGE)
    assert (grant.quota, grant.quota_min) == (kept, 0 if err else least)
    again = lib.cgpu_grant_set_quota(grant, quota)
    assert again == (0 if quota <= 100 and not 0 < quota < grant.quota_min else -errno.ERANGE)


@given(numbers, numbers)
def test_priority_and_timeslice_keep_to_their_bounds(priority: Any, timeslice: Any) -> None:
    grant, card = ffi.new("struct cgpu_grant *"), ffi.new("struct cgpu_card *")
    err = lib.cgpu_grant_set_priority(grant, priority)
    assert (err, grant.priority) == ((0, priority) if priority <= 15 else (-errno.ERANGE, 0))
    err = lib.cgpu_card_set_timeslice_us(card, timeslice)
    good = 1000 <= timeslice <= 1_000_000
    assert (err, card.timeslice_us) == ((0, timeslice) if good else (-errno.ERANGE, 0))


@given(st.dictionaries(st.integers(0, MAX_CARDS - 1), st.tuples(st.booleans(), bytes_)))
def test_grants_become_the_accounts_that_pay(wishes: Any) -> None:
    grants_raw = ffi.new("struct cgpu_grant[]", MAX_CARDS)
    ledger = ffi.new("struct cgpu_ledger *")
    for minor, (flag, size) in wishes.items():
        grant = grants_raw[minor]
        grant.present, grant.mem_bytes = True, size
        grant.unlimited = grant.uvm_disable = flag
        grant.oom_action = lib.CGPU_OOM_KILL if flag else lib.CGPU_OOM_FAIL
    lib.cgpu_grants_apply(grants_raw, ledger)
    for minor in range(MAX_CARDS):
        account = ledger.account[minor]
        assert account.present == (minor in wishes)
        if account.present:
            flag, size = wishes[minor]
            assert account.max_bytes == size
            assert (account.unlimited, account.uvm_disable, account.oom_kill) == (flag,) * 3


@pytest.mark.parametrize("size", [0, 1, 4096, MIB - 1])
def test_a_size_below_1_mib_is_a_forgotten_unit_and_out_of_range(size: int) -> None:
    host, grant = make_host(), ffi.new("struct cgpu_grant *")
    account = ffi.new("struct cgpu_account *")
    assert lib.cgpu_grant_set_memsize(host, 0, grant, account, size) == -errno.ERANGE


def admitted(host: Any, leader: Any = None, *cards: int, **wish: Any) -> tuple[int, Any]:
    """What came of a container that asks for 1 GiB of each of these cards."""
    create, minor = ffi.new("struct cgpu_create *"), ffi.new("uint32_t *")
    for card in cards:
        create.grant[card] = {"present": True, "mem_bytes": GIB, "policy_hint": NO_HINT, **wish}
    create.leader = leader.grant if leader else ffi.NULL
    return lib.cgpu_host_admit(host, create, minor), create


def test_a_member_has_memory_of_its_own_and_its_leaders_part_of_the_card() -> None:
    host: Any = make_host()
    for _ in range(2):
        assert admitted(host, None, 0)[0] == 0
    error, leader = admitted(host, None, 0, weight=3, weight_given=True)
    error, member = admitted(host, leader, 0)
    assert error == 0
    assert [leader.grant[0].instance, member.grant[0].instance] == [2, 3]
    assert [leader.grant[0].entity, member.grant[0].entity] == [2, 2]
    assert lib.cgpu_grant_is_member(ffi.addressof(member.grant[0]))
    assert not lib.cgpu_grant_is_member(ffi.addressof(leader.grant[0]))
    assert (leader.grant[0].weight, host.card[0].weight_sum) == (3, 5)
    assert (host.card[0].members, host.card[0].allocated_bytes) == (4, 4 * GIB)
    lib.cgpu_host_release(host, member.grant, leader.grant)
    assert (host.card[0].weight_sum, host.card[0].allocated_bytes) == (5, 3 * GIB)


def test_a_group_weighs_what_its_members_asked_for_unless_it_was_given_a_weight() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    group, card = ffi.addressof(leader.grant[0]), host.card[0]
    members = [admitted(host, leader, 0, **wish) for wish in (
        {}, {"weight": 4, "weight_given": True}, {}, {"weight": 0, "weight_given": True},
    )]  # fmt: skip
    assert [error for error, _ in members] == [0] * 4
    assert [one.grant[0].weight for _, one in members] == [1, 4, 1, 0]
    assert (group.weight, card.weight_sum) == (6, 6)
    lib.cgpu_host_release(host, members[1][1].grant, leader.grant)
    assert (group.weight, card.weight_sum) == (2, 2)
    assert lib.cgpu_grant_set_weight(host, 0, group, 3) == 0
    lib.cgpu_host_release(host, members[0][1].grant, leader.grant)
    assert admitted(host, leader, 0, weight=9, weight_given=True)[0] == 0
    assert (group.weight, card.weight_sum) == (3, 3), "the operator's word"


def test_a_group_without_members_weighs_as_one_that_asks_for_nothing() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    _, member = admitted(host, leader, 0, weight=7, weight_given=True)
    assert leader.grant[0].weight == 7
    lib.cgpu_host_release(host, member.grant, leader.grant)
    assert (leader.grant[0].weight, host.card[0].weight_sum) == (1, 1)


def test_members_weigh_no_more_than_their_card_has_room_for() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    assert admitted(host, None, 0, weight=15, weight_given=True)[0] == 0
    before = bytes(ffi.buffer(host))
    assert admitted(host, leader, 0, weight=6, weight_given=True)[0] == -errno.ENOSPC
    assert bytes(ffi.buffer(host)) == before
    assert admitted(host, leader, 0, weight=5, weight_given=True)[0] == 0
    error, last = admitted(host, leader, 0)
    assert (error, last.grant[0].weight, leader.grant[0].weight) == (0, 0, 5)
    assert lib.cgpu_card_free_weight(ffi.addressof(host.card[0])) == 0


def test_a_member_whose_leader_was_released_gives_no_weight_back() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    _, member = admitted(host, leader, 0, weight=4, weight_given=True)
    lib.cgpu_host_release(host, leader.grant, ffi.NULL)
    assert host.card[0].weight_sum == 0
    lib.cgpu_host_release(host, member.grant, ffi.NULL)
    assert (host.card[0].weight_sum, host.card[0].members) == (0, 0)


def test_a_group_has_the_floors_of_its_members_together() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    group = ffi.addressof(leader.grant[0])
    members = [admitted(host, leader, 0, quota_min=percent) for percent in (20, 0, 30)]
    assert [error for error, _ in members] == [0] * 3
    assert [one.grant[0].quota_min for _, one in members] == [20, 0, 30]
    assert group.quota_min == 50
    assert lib.cgpu_grant_promised_ppm(ffi.addressof(host.card[0]), group) == 500_000
    assert admitted(host, leader, 0, quota_min=51)[0] == -errno.ENOSPC
    assert lib.cgpu_grant_set_quota(group, 49) == -errno.ERANGE
    assert lib.cgpu_grant_set_quota(group, 60) == 0
    assert admitted(host, leader, 0, quota_min=11)[0] == -errno.ENOSPC, "past the group's ceiling"
    lib.cgpu_host_release(host, members[0][1].grant, leader.grant)
    assert group.quota_min == 30
    assert lib.cgpu_grant_set_quota_min(group, 40) == 0
    assert admitted(host, leader, 0, quota_min=90)[0] == 0
    lib.cgpu_host_release(host, members[2][1].grant, leader.grant)
    assert group.quota_min == 40, "the operator's word"


def test_a_floor_that_a_leader_is_made_with_is_the_groups() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0, quota_min=25)
    assert admitted(host, leader, 0, quota_min=90)[0] == 0
    assert leader.grant[0].quota_min == 25


def test_a_member_that_loses_its_leader_has_no_floor() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    _, member = admitted(host, leader, 0, quota_min=25)
    lib.cgpu_host_release(host, leader.grant, ffi.NULL)
    lib.cgpu_grants_leave_group(host, member.grant)
    assert member.grant[0].quota_min == 0


def test_a_members_quota_is_of_threads_and_neither_of_the_card_nor_changed() -> None:
    host: Any = make_host()
    host.card[0].policy = lib.CGPU_POLICY_NATIVE
    _, leader = admitted(host, None, 0)
    error, member = admitted(host, leader, 0, quota=25)
    grant = ffi.addressof(member.grant[0])
    assert (error, grant.quota, leader.grant[0].quota) == (0, 25, 0)
    assert lib.cgpu_grant_set_quota(grant, 50) == -errno.EBUSY
    lib.cgpu_grants_leave_group(host, member.grant)
    assert grant.quota == 0, "it has the card's time for itself now"


@pytest.mark.parametrize("wish", [{"priority": 1}, {"policy_hint": 0}])
def test_a_member_that_asks_for_a_part_of_the_card_is_refused(wish: Any) -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    before = bytes(ffi.buffer(host))
    assert admitted(host, leader, 0, **wish)[0] == -errno.EINVAL
    assert bytes(ffi.buffer(host)) == before


def test_a_member_has_no_card_that_its_leader_has_not() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    assert admitted(host, leader, 0, 1)[0] == -errno.ENODEV
    assert admitted(host, leader, 1)[0] == -errno.ENODEV


def test_a_member_that_loses_its_leader_is_a_container_like_any_other() -> None:
    host: Any = make_host()
    _, leader = admitted(host, None, 0)
    _, member = admitted(host, leader, 0)
    lib.cgpu_grants_leave_group(host, member.grant)
    lib.cgpu_host_release(host, leader.grant, ffi.NULL)
    _, newcomer = admitted(host, None, 0)
    assert newcomer.grant[0].entity == leader.grant[0].entity, "the number is free again"
    assert member.grant[0].entity == member.grant[0].instance != newcomer.grant[0].entity
    assert (member.grant[0].weight, host.card[0].weight_sum) == (1, 2)


def test_a_new_card_serves_whoever_sets_nothing() -> None:
    host: Any = make_host()
    assert host[0].card[0].policy == lib.CGPU_POLICY_FAIR


def test_whoever_loads_the_module_chooses_the_defaults_of_cards_and_no_bad_ones() -> None:
    host: Any = make_host()
    card = host.card[0]
    wanted = ffi.new("struct cgpu_card_defaults *", (2, 8, 12000))
    assert lib.cgpu_card_set_defaults(ffi.addressof(card), wanted) == 0
    assert (card.policy, card.max_inst, card.timeslice_us) == (2, 8, 12000)
    # a request's hint still counts: nobody has written the file
    assert not card.policy_by_hand
    for bad in ((10, 8, 5000), (7, 0, 5000), (7, 65, 5000), (7, 8, 999), (7, 8, 1000001)):
        wanted[0] = bad
        assert lib.cgpu_card_set_defaults(ffi.addressof(card), wanted) == -errno.ERANGE
        assert (card.policy, card.max_inst, card.timeslice_us) == (2, 8, 12000)


def test_a_card_in_mig_mode_takes_no_container_until_it_has_left_it() -> None:
    host: Any = make_host()
    create = ffi.new("struct cgpu_create *")
    create.grant[0].present = create.grant[0].unlimited = True
    create.grant[0].policy_hint = NO_HINT
    minor = ffi.new("uint32_t *")
    before = bytes(ffi.buffer(host))
    host.topology.gpu[0].mig = lib.CGPU_MIG_ON
    assert lib.cgpu_host_admit(host, create, minor) == -errno.ENXIO
    assert host.card[0].members == 0 and minor[0] == 0
    host.topology.gpu[0].mig = lib.CGPU_MIG_UNTOLD
    assert bytes(ffi.buffer(host)) == before
    assert lib.cgpu_host_admit(host, create, minor) == 0


@pytest.mark.parametrize(
    ("mode", "mig"),
    [
        (lib.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_UNSUPPORTED, lib.CGPU_MIG_OFF),
        (lib.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_ENABLED, lib.CGPU_MIG_ON),
        (lib.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_DISABLED, lib.CGPU_MIG_OFF),
        (lib.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_ENABLE_PENDING, lib.CGPU_MIG_OFF),
        (lib.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_DISABLE_PENDING, lib.CGPU_MIG_ON),
    ],
)
def test_a_mode_counts_from_when_it_is_in_force(mode: int, mig: int) -> None:
    assert lib.cgpu_mig_of(mode) == mig
