# SPDX-License-Identifier: MIT
"""
What members of a group may take of their leader, and what nobody may take of anybody.

A leader, two members, the leader of another group and a container without one share a driver,
which duplicates whatever it is asked for: whoever cannot reach an object is kept from it by the
core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.core import Abi, Device, Request, Tenant, Topology, Verdict, ffi, lib
from tests.core import strategies as nv
from tests.core.model import Driver

ABI = Abi("580.142")
MIB = 1 << 20
CARDS = 2
LIMIT = 8 * MIB
MPS_COMPUTE = 0x900E
GROUP_SCHEDULE, CHANNEL_SCHEDULE = 0xA06C0101, 0xA06F0103
DEVICES = (1, 2)
#: RS_SHARE_TYPE_ALL and _CLIENT, RS_SHARE_ACTION_FLAG_REVOKE
ALL, CLIENT, REVOKE = 1, 3, 1
LEADER, MEMBER, OTHER_MEMBER, OTHER_LEADER, ALONE = range(5)
PARTIES = 5


def rm_share(client: int, handle: int, kind: int = ALL, action: int = 0, mask: int = 1
             ) -> bytearray:  # fmt: skip
    """NVOS57_PARAMETERS."""
    return nv.put(24, (0, "I", client), (4, "I", handle), (8, "I", client), (12, "I", mask),
                  (16, "H", kind), (18, "B", action))  # fmt: skip


class Party:
    """A container with one file, one client and a device on each card."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.client = 0
        self.tenant = Tenant(world.topology)
        for card in range(CARDS):
            self.tenant.give(card, LIMIT)
        self.open()

    def open(self) -> None:
        self.file = self.tenant.open(Device.CTL, 0, 100 + self.number)
        self.world.driver.open(self.driver_file, uvm=False)
        args = nv.rm_alloc(0, 0, 0, nv.ROOT_CLIENT)
        assert self.do(nv.ALLOC, args) == 0
        self.client = nv.get32(self.answer, 8)
        for card, device in enumerate(DEVICES):
            params = nv.device_params(card)
            assert self.do(nv.ALLOC, nv.rm_alloc(self.client, self.client, device, nv.DEVICE,
                                                 params), params) == 0  # fmt: skip
            assert self.make(nv.SUBDEVICE, device + 2, parent=device) == 0

    def close(self) -> None:
        self.world.driver.release(self.driver_file)
        self.tenant.close(self.file)

    @property
    def driver_file(self) -> int:
        return 100 * self.number + self.file

    def steps(self, nr: int, args: bytearray, params: bytearray | bytes = b"", take: int = 0
              ) -> Generator[None, None, int]:  # fmt: skip
        """A call's moments: asked, done by the driver, told. Return: its status."""
        request = Request(ABI, Device.CTL, nr, bytes(args), bytes(params))
        call = self.tenant.call(request, self.file, 100 + self.number)
        self.refused = False
        if call.pre() is Verdict.ANSWER:
            self.refused = bool(call.raw.refused)
            return int(nv.get32(call.args, request.status_offset))
        yield
        seen, inner = bytearray(call.args), bytearray(call.params)
        status = self.world.driver.ioctl(self.driver_file, nr, seen, inner, take)
        nv.set32(seen, request.status_offset, status)
        yield
        self.answer = seen
        call.set_args(bytes(seen))
        call.set_params(bytes(inner))
        verdict = call.post(0)
        while verdict is Verdict.UNDO:
            undo = call.undo_args()
            self.world.driver._free(nv.get32(undo, 0), nv.get32(undo, 8))
            verdict = Verdict.UNDO if call.undone() else Verdict.DONE
        assert verdict is Verdict.DONE
        return status

    def do(self, *args: Any, **more: Any) -> int:
        """All moments of a call, one after the other."""
        return land(self.steps(*args, **more))

    def make(self, cls: int, handle: int, params: bytes | bytearray = b"", *, parent: int = 1
             ) -> int:  # fmt: skip
        args = nv.rm_alloc(self.client, parent, handle, cls, params)
        return self.do(nv.ALLOC, args, params)

    def memory(self, handle: int, size: int = MIB, device: int = 1) -> int:
        params = nv.memory_params(size)
        args = nv.rm_alloc(self.client, device, handle, nv.MEMORY_USER, params)
        return self.do(nv.ALLOC, args, params, take=size)

    def share(self, handle: int, **how: int) -> int:
        return self.do(nv.SHARE, rm_share(self.client, handle, **how))

    def dup(self, source: Party, handle: int, new: int = 0x900, device: int = 1) -> int:
        return self.do(nv.DUP, nv.rm_dup(self.client, device, new, source.client, handle))

    def free(self, handle: int) -> int:
        return self.do(nv.FREE, nv.rm_free(self.client, handle))

    def control(self, handle: int, cmd: int, params: bytes = b"\1\0\0") -> int:
        return self.do(nv.CONTROL, nv.rm_control(self.client, handle, cmd, params), params)

    def channel(self, handle: int, group: int) -> int:
        return self.make(nv.CHANNEL, handle, nv.put(ABI.raw.channel_alloc_size), parent=group)

    def used(self, card: int = 0) -> int:
        return self.tenant.account(card).current_bytes


def land(moments: Generator[None, None, int]) -> int:
    while True:
        try:
            next(moments)
        except StopIteration as end:
            return int(end.value)


class World:
    def __init__(self) -> None:
        self.topology = Topology()
        for card in range(CARDS):
            self.topology.add(card, uuid=nv.card_uuid(card), total_bytes=80 << 30)
        self.driver = Driver(CARDS)
        self.party = [Party(self, number) for number in range(PARTIES)]
        self.leader, self.member, self.other, self.foreign, self.alone = self.party
        self.leader.tenant.lead()
        self.foreign.tenant.lead()
        self.member.tenant.join(self.leader.tenant)
        self.other.tenant.join(self.leader.tenant)

    def check(self) -> None:
        """What a container has a handle of, it is charged for."""
        for party in self.party:
            clients = [c for c in self.driver.clients.values() if c.file // 100 == party.number]
            for card in range(CARDS):
                held = {
                    one.memory
                    for client in clients
                    for one in client.objects.values()
                    if one.memory and one.memory.card == card
                }
                assert sum(memory.bytes for memory in held) <= party.used(card) <= LIMIT


@pytest.fixture
def world() -> World:
    return World()


GROUP, CHANNEL, MEMORY = 0x20, 0x21, 0x30


def serve(leader: Party) -> None:
    """What an MPS server has when its first client comes."""
    assert leader.make(nv.GROUP, GROUP, nv.group_params(0, 1)) == 0
    assert leader.channel(CHANNEL, GROUP) == 0
    assert leader.control(GROUP, GROUP_SCHEDULE) == 0
    assert leader.memory(MEMORY, 2 * MIB) == 0
    assert leader.share(MEMORY) == 0


def test_a_member_takes_the_leaders_group_and_what_it_has_shared(world: World) -> None:
    serve(world.leader)
    member = world.member
    before = member.used()
    assert member.make(MPS_COMPUTE, 0x800, parent=member.client) == 0
    assert member.dup(world.leader, GROUP, 0x901) == 0
    assert member.dup(world.leader, MEMORY, 0x902) == 0
    assert member.used() == before + 2 * MIB
    assert member.make(nv.VASPACE, 0x910, nv.put(ABI.raw.vaspace_alloc_size)) == 0
    assert member.make(nv.CONTEXT_SHARE, 0x911, nv.put(12, (0, "I", 0x910)), parent=0x901) == 0
    assert member.channel(0x912, 0x901) == 0
    assert member.control(0x912, CHANNEL_SCHEDULE) == 0
    assert member.tenant.gate(0, True) == [(member.client, 0x912)]
    assert world.leader.tenant.gate(0, True) == [(world.leader.client, CHANNEL)]
    world.check()
    for handle in (0x901, 0x902):
        assert member.free(handle) == 0
    assert member.used() == before


def test_each_member_is_charged_for_the_leaders_memory_whoever_frees_it_first(world: World) -> None:
    serve(world.leader)
    assert world.member.dup(world.leader, MEMORY) == 0
    assert world.other.dup(world.leader, MEMORY) == 0
    assert world.leader.free(MEMORY) == 0
    world.check()
    assert (world.leader.used(), world.member.used(), world.other.used()) == (0, 2 * MIB, 2 * MIB)
    world.leader.close()
    world.check()
    world.member.close()
    world.other.close()
    assert not world.driver.alive_bytes(0)
    assert [one.used() for one in world.party] == [0] * PARTIES
    assert all(one.tenant.idle() for one in (world.leader, world.member, world.other))


def test_a_member_over_its_limit_gets_no_memory_of_the_leaders(world: World) -> None:
    serve(world.leader)
    assert world.member.memory(0x50, 7 * MIB) == 0
    assert world.member.dup(world.leader, MEMORY) == nv.NO_MEMORY
    assert not world.member.refused, "it is a shortage"
    assert world.member.tenant.account(0).oom == 1
    assert world.member.free(0x50) == 0
    assert world.member.dup(world.leader, MEMORY) == 0


#: Of the leader's, by what it is made; the last are of a class that members may have.
OBJECTS: dict[str, Callable[[Party, int], int]] = {
    "device": lambda one, h: one.do(nv.ALLOC, nv.rm_alloc(one.client, one.client, h, nv.DEVICE,
                                    nv.device_params(0)), nv.device_params(0)),
    "subdevice": lambda one, h: one.make(nv.SUBDEVICE, h),
    "address space": lambda one, h: one.make(nv.VASPACE, h, nv.put(ABI.raw.vaspace_alloc_size)),
    "channel": lambda one, h: one.channel(h, GROUP),
    "context share": lambda one, h: one.make(nv.CONTEXT_SHARE, h, nv.put(12), parent=GROUP),
    "host memory": lambda one, h: one.make(nv.MEMORY_SYSTEM, h, nv.memory_params(4096)),
    "user mode": lambda one, h: one.make(0xC661, h, parent=3),
    "memory that it keeps": lambda one, h: one.memory(h),
    "group that does not run": lambda one, h: one.make(nv.GROUP, h, nv.group_params(0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("what", OBJECTS)
def test_of_the_leaders_other_objects_a_member_gets_none(world: World, what: str) -> None:
    serve(world.leader)
    assert OBJECTS[what](world.leader, 0x70) == 0
    if what != "memory that it keeps":
        assert world.leader.share(0x70) == 0
    assert world.member.dup(world.leader, 0x70) == nv.INVALID_CLIENT
    assert world.member.refused
    assert world.member.tenant.account(0).refused == 1


@pytest.mark.parametrize("how", [{"kind": CLIENT}, {"action": REVOKE}, {"mask": 2}])
def test_memory_shared_in_another_way_is_not_shared_with_members(world: World, how: Any) -> None:
    assert world.leader.memory(MEMORY) == 0
    assert world.leader.share(MEMORY, **how) == 0
    assert world.member.dup(world.leader, MEMORY) == nv.INVALID_CLIENT


@pytest.mark.parametrize(
    ("who", "whose"),
    [(one, two) for one, two in itertools.permutations(range(PARTIES), 2)
     if (one, two) not in ((MEMBER, LEADER), (OTHER_MEMBER, LEADER))],
)  # fmt: skip
def test_nobody_takes_anything_of_another_than_its_leader(
    world: World, who: int, whose: int
) -> None:
    taker, owner = world.party[who], world.party[whose]
    serve(owner)
    for handle in (GROUP, MEMORY, CHANNEL, 1, owner.client):
        assert taker.dup(owner, handle) == nv.INVALID_CLIENT
        assert taker.refused
    assert taker.used() == 0


@pytest.mark.parametrize("whose", [LEADER, OTHER_MEMBER])
def test_a_member_acts_by_nobody_elses_client(world: World, whose: int) -> None:
    """By its own file with another's client: it frees, changes and makes nothing there."""
    member, owner = world.member, world.party[whose]
    serve(owner)
    before = owner.used(), set(world.driver.clients[owner.client].objects)
    params = nv.memory_params(MIB)
    calls = [
        (nv.FREE, nv.rm_free(owner.client, MEMORY), b""),
        (nv.FREE, nv.rm_free(owner.client, GROUP), b""),
        (nv.FREE, nv.rm_free(owner.client, owner.client), b""),
        (nv.SHARE, rm_share(owner.client, CHANNEL), b""),
        (nv.CONTROL, nv.rm_control(owner.client, CHANNEL, CHANNEL_SCHEDULE, b"\1\0\0"), b"\1\0\0"),
        (nv.ALLOC, nv.rm_alloc(owner.client, 1, 0x71, nv.MEMORY_USER, params), params),
        (nv.DUP, nv.rm_dup(owner.client, 1, 0x72, owner.client, MEMORY), b""),
    ]
    for nr, args, inner in calls:
        assert member.do(nr, args, inner) == nv.INVALID_CLIENT, nr
        assert member.refused, "by the core, before the driver is asked"
    assert (owner.used(), set(world.driver.clients[owner.client].objects)) == before
    assert member.used() == 0
    world.check()


def test_a_member_has_no_more_memory_however_much_its_leader_has(world: World) -> None:
    """Not by a higher limit of the leader's, nor by memory that the leader makes for it."""
    world.leader.tenant.give(0, 16 * LIMIT)
    serve(world.leader)
    assert world.member.memory(0x50, LIMIT + MIB) == nv.NO_MEMORY
    assert world.leader.memory(0x51, 2 * LIMIT) == 0
    assert world.leader.share(0x51) == 0
    assert world.member.dup(world.leader, 0x51) == nv.NO_MEMORY
    assert world.member.used() == 0
    assert world.member.memory(0x50, LIMIT - MIB) == 0
    assert world.member.dup(world.leader, MEMORY) == nv.NO_MEMORY


def test_a_member_passes_nothing_on_that_is_the_leaders(world: World) -> None:
    serve(world.leader)
    assert world.member.dup(world.leader, MEMORY) == 0
    assert world.member.share(0x900) == 0
    for taker in (world.other, world.leader, world.alone):
        assert taker.dup(world.member, 0x900) == nv.INVALID_CLIENT


@pytest.mark.parametrize("who", [LEADER, OTHER_LEADER, ALONE])
def test_the_class_of_mps_clients_is_for_members_alone(world: World, who: int) -> None:
    party = world.party[who]
    assert party.make(MPS_COMPUTE, 0x800, parent=party.client) != 0
    assert party.tenant.account(0).refused == 1


def test_a_member_without_its_leader_is_alone(world: World) -> None:
    serve(world.leader)
    assert world.member.dup(world.leader, GROUP) == 0
    world.member.tenant.join(None)
    assert world.member.dup(world.leader, MEMORY, 0x901) == nv.INVALID_CLIENT
    assert world.member.make(MPS_COMPUTE, 0x800, parent=world.member.client) != 0
    # what it has it keeps, its slices too
    assert world.member.channel(0x950, 0x900) == 0
    assert lib.cgpu_tenant_groups(world.member.tenant.raw, 0, ffi.NULL, 0) == 1


def test_a_card_that_the_member_has_not_is_out_of_reach(world: World) -> None:
    serve(world.leader)
    world.member.tenant.raw.ledger.account[0].present = False
    assert world.member.dup(world.leader, GROUP, device=2) == nv.INVALID_CLIENT


def test_what_runs_on_a_card_is_duplicated_below_a_device_of_that_card(world: World) -> None:
    serve(world.leader)
    assert world.member.dup(world.leader, GROUP, device=2) == nv.INVALID_PARENT


def test_the_group_counts_once_and_its_slices_are_the_leaders_while_it_has_it(world: World) -> None:
    serve(world.leader)
    assert world.member.dup(world.leader, GROUP) == 0

    def groups(one: Party) -> int:
        return int(lib.cgpu_tenant_groups(one.tenant.raw, 0, ffi.NULL, 0))

    world.member.tenant.inherit()
    assert (groups(world.leader), groups(world.member)) == (1, 0)
    assert world.leader.free(GROUP) == 0
    world.member.tenant.inherit()
    assert (groups(world.leader), groups(world.member)) == (0, 1)


def test_the_group_as_a_whole_is_scheduled_once_and_by_the_leader(world: World) -> None:
    """It would start channels of others, which are marked as not yet started."""
    serve(world.leader)
    assert world.member.dup(world.leader, GROUP) == 0
    assert world.member.channel(0x950, 0x900) == 0
    assert world.member.control(0x900, GROUP_SCHEDULE) == nv.NOT_SUPPORTED
    assert world.leader.channel(CHANNEL + 1, GROUP) == 0
    assert world.leader.control(GROUP, GROUP_SCHEDULE) == nv.NOT_SUPPORTED
    assert world.leader.control(CHANNEL + 1, CHANNEL_SCHEDULE) == 0
    assert world.member.control(0x950, CHANNEL_SCHEDULE) == 0
    # nothing is left to start
    assert world.member.control(0x900, GROUP_SCHEDULE) == 0


@pytest.mark.parametrize("handle", [GROUP, MEMORY])
def test_what_a_member_is_taking_stays_what_it_is(world: World, handle: int) -> None:
    serve(world.leader)
    args = nv.rm_dup(world.member.client, 1, 0x900, world.leader.client, handle)
    taking = world.member.steps(nv.DUP, args)
    next(taking)
    assert world.leader.free(handle) == nv.STATE_IN_USE
    assert land(taking) == 0
    assert world.leader.free(handle) == 0
    world.check()


def test_a_leader_that_closes_while_a_member_takes_leaves_nothing_behind(world: World) -> None:
    serve(world.leader)
    args = nv.rm_dup(world.member.client, 1, 0x900, world.leader.client, MEMORY)
    taking = world.member.steps(nv.DUP, args)
    next(taking)
    next(taking)
    world.leader.close()
    assert not world.leader.tenant.idle(), "a call needs it"
    assert land(taking) == 0
    assert world.leader.tenant.idle()
    world.check()


# ---- any order of anybody's calls ----

HANDLES = (0x10, 0x11, 0x12)
small = st.integers(0, 7)


class Mob(World):
    """All of them at once; every operation makes sense of its numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.flights: list[tuple[Party, Generator[None, None, int]]] = []

    def begin(self, party: Party, nr: int, args: bytearray, params: bytes | bytearray = b"",
              take: int = 0) -> None:  # fmt: skip
        self.flights.append((party, party.steps(nr, args, params, take)))

    def act(self, what: str, a: int, b: int, c: int) -> None:
        party, handle = self.party[a % PARTIES], HANDLES[b % 3]
        whose = self.party[(0, c % PARTIES)[b % 2]]
        client = party.client
        if what == "alloc":
            params, size = nv.memory_params((1 + c % 3) * MIB), (1 + c % 3) * MIB
            args = nv.rm_alloc(client, 1 + c % 2, handle, nv.MEMORY_USER, params)
            self.begin(party, nv.ALLOC, args, params, size)
        elif what == "share":
            self.begin(party, nv.SHARE, rm_share(client, handle))
        elif what == "free":
            self.begin(party, nv.FREE, nv.rm_free(client, handle))
        elif what == "dup":
            args = nv.rm_dup(client, 1 + c // 4, HANDLES[c % 3], whose.client, handle)
            self.begin(party, nv.DUP, args)
        elif what == "reopen" and not self.flights:
            party.close()
            party.open()
        elif self.flights:
            at = (a + 8 * b) % len(self.flights)
            try:
                next(self.flights[at][1])
            except StopIteration:
                del self.flights[at]


OPERATIONS = ["alloc"] * 4 + ["share"] * 3 + ["free"] * 2 + ["dup"] * 5 + ["reopen"] + ["step"] * 20


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), small, small, small), max_size=60))
def test_no_order_of_calls_in_a_group_leaves_memory_uncharged_or_in_foreign_hands(
    program: Any,
) -> None:
    world = Mob()
    owner: dict[Any, Party] = {}
    for step in program:
        world.act(*step)
        world.check()
        for client in world.driver.clients.values():
            party = world.party[client.file // 100]
            for memory in {one.memory for one in client.objects.values() if one.memory}:
                first = owner.setdefault(memory, party)
                allowed = first is world.leader and party in (world.member, world.other)
                assert party is first or allowed
    for _, moments in world.flights:
        land(moments)
        world.check()
    for party in world.party:
        party.close()
        assert party.tenant.idle()
    assert not any(world.driver.alive_bytes(card) for card in range(CARDS))
