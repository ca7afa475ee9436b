# SPDX-License-Identifier: MIT
"""What an allocation may ask of the driver, and what it is charged."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pycgpu.core import Abi, Call, Device, Request, Tenant, Topology, Verdict, lib
from tests.core import strategies as nv

ABI = Abi("580.142")
MIB = 1 << 20
LIMIT_BYTES = 1 << 30
CLIENT, OTHER = 0xC1D00001, 0xC1D00777
DEVICE, SUBDEVICE, MEMORY, GROUP, NOTIFIER, CHANNEL = 1, 2, 0x10, 0x20, 0x30, 0x31
FIXED, BEGIN_END, HINT, FORCE = 0x10, 0x20000, 0x80, 0x100
CUDAS_FLAGS = 0x1C101
SIZE_RANGE = 14
NOT_SUPPORTED = 0x56
MULTIPLE_VASPACES = 2


class Program:
    """A process that asks one thing after the other; the driver agrees to all that reaches it."""

    def __init__(self) -> None:
        topology = Topology()
        topology.add(0, uuid=nv.card_uuid(0), total_bytes=80 << 30)
        self.tenant = Tenant(topology)
        self.tenant.give(0, LIMIT_BYTES)
        self.file = self.tenant.open(Device.CTL, 0, 100)
        for client in (CLIENT, OTHER):
            self.ask(nv.ALLOC, nv.rm_alloc(0, 0, client, nv.ROOT_CLIENT))

    def begin(
        self, nr: int, args: bytes | bytearray, params: bytes | bytearray = b""
    ) -> tuple[Verdict, Call]:
        request = Request(ABI, Device.CTL, nr, bytes(args), bytes(params))
        call = self.tenant.call(request, self.file, 100)
        return call.pre(), call

    def ask(
        self, nr: int, args: bytes | bytearray, params: bytes | bytearray = b"", size: int = 0
    ) -> tuple[int, Call]:
        """Return NVIDIA's status, and the call; *size*: that the driver reports of memory."""
        verdict, call = self.begin(nr, args, params)
        if verdict is Verdict.ANSWER:
            return call.status or 0, call
        if size and call.params:
            answer = bytearray(call.params)
            struct.pack_into("<Q", answer, 64, size)
            call.set_params(answer)
        assert call.post(0) is Verdict.DONE
        return 0, call

    def make(
        self, parent: int, new: int, cls: int, params: bytes | bytearray = b"", size: int = 0
    ) -> int:
        return self.ask(nv.ALLOC, nv.rm_alloc(CLIENT, parent, new, cls, params), params, size)[0]

    def device(self, share: int = 0, target: int = 0, mode: int = 0) -> tuple[int, Call]:
        params = nv.put(56, (4, "I", share), (8, "I", target), (48, "I", mode))
        args = nv.rm_alloc(CLIENT, CLIENT, DEVICE, nv.DEVICE, params)
        return self.ask(nv.ALLOC, args, params)

    def charged(self) -> int:
        return int(self.tenant.account(0).current_bytes)


@pytest.fixture
def program() -> Program:
    made = Program()
    assert made.device()[0] == 0
    return made


def memory(size: int, flags: int = 0, alignment: int = 0) -> bytearray:
    params = nv.memory_params(size, flags=flags)
    struct.pack_into("<Q", params, 72, alignment)
    return params


@pytest.mark.parametrize(
    "flags", (FIXED, FIXED | FORCE, BEGIN_END, 0x20, 0x40, 0x200, 0x400000, 0x2000000, 0x80000000)
)
def test_no_program_says_where_in_the_card_its_memory_lies(program: Any, flags: Any) -> None:
    status = program.make(DEVICE, MEMORY, nv.MEMORY_USER, memory(65536, flags, 8 << 30), 65536)
    assert (status, program.charged()) == (NOT_SUPPORTED, 0)
    heap = nv.heap_alloc(CLIENT, DEVICE, MEMORY, 65536, flags=flags)
    assert program.ask(nv.VID_HEAP, heap)[0] == NOT_SUPPORTED
    assert program.charged() == 0


def test_no_program_asks_for_memory_between_two_addresses(program: Any) -> None:
    heap = nv.put(184, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", SIZE_RANGE),
                  (44, "I", MEMORY), (80, "Q", 65536))  # fmt: skip
    assert program.ask(nv.VID_HEAP, heap)[0] == NOT_SUPPORTED
    assert program.charged() == 0


@pytest.mark.parametrize("flags", (0, HINT, FORCE, CUDAS_FLAGS))
@pytest.mark.parametrize(
    ("size", "alignment", "charged"),
    (
        (65536, 0, 65536),
        (65536, 4096, 65536),
        (65536, MIB, MIB),
        (65536, 2 * MIB, 2 * MIB),
        (65536, 3 * MIB, 2 * MIB),
        (65536, 8 << 30, 2 * MIB),
        (3 * MIB, 2 * MIB, 4 * MIB),
        (4 * MIB, 2 * MIB, 4 * MIB),
    ),
)
def test_aligned_memory_is_charged_with_the_page_that_nobody_else_gets(
    program: Any, flags: Any, size: Any, alignment: Any, charged: Any
) -> None:
    params = memory(size, flags | 1, alignment)
    assert program.make(DEVICE, MEMORY, nv.MEMORY_USER, params, size) == 0
    assert program.charged() == charged
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, MEMORY))[0] == 0
    assert program.charged() == 0
    heap = nv.heap_alloc(CLIENT, DEVICE, MEMORY, size, flags=flags)
    struct.pack_into("<Q", heap, 96, alignment)
    assert program.ask(nv.VID_HEAP, heap)[0] == 0
    assert program.charged() == max(charged, 4 * MIB if size > 2 * MIB else 0)


@pytest.mark.parametrize("share", (0, CLIENT))
def test_a_devices_address_space_is_its_own_clients(share: Any) -> None:
    program = Program()
    params = nv.put(56, (4, "I", share))
    args = nv.rm_alloc(CLIENT, CLIENT, DEVICE, nv.DEVICE, params)
    verdict, call = program.begin(nv.ALLOC, args, params)
    assert verdict is Verdict.FORWARD
    assert struct.unpack_from("<I", call.params, 4)[0] == CLIENT
    assert call.post(0) is Verdict.DONE
    assert bytes(call.params) == bytes(params)  # the caller's stay as they were


@pytest.mark.parametrize(("share", "target"), ((OTHER, 0), (0, OTHER), (0xDEAD, 0), (0, 0xDEAD)))
def test_a_device_shares_with_no_other_client(share: Any, target: Any) -> None:
    """The driver looks it up when the space is first used: it may be anybody's by then."""
    assert Program().device(share, target)[0] == nv.INVALID_CLIENT


def test_a_device_without_parameters_is_refused() -> None:
    args = nv.rm_alloc(CLIENT, CLIENT, DEVICE, nv.DEVICE)
    assert Program().ask(nv.ALLOC, args)[0] == NOT_SUPPORTED


@pytest.mark.parametrize(("mode", "spaces"), ((0, 1), (1, 1), (MULTIPLE_VASPACES, 0)))
def test_a_devices_own_address_space_counts(mode: Any, spaces: Any) -> None:
    program = Program()
    assert program.device(mode=mode)[0] == 0
    counted = program.tenant.raw.ledger.unseen[lib.CGPU_UNSEEN_VASPACE][0]
    assert counted == spaces


@pytest.mark.parametrize("place", (0, 140))
@pytest.mark.parametrize(
    ("cls", "status"), ((nv.MEMORY_USER, NOT_SUPPORTED), (nv.MEMORY_SYSTEM, 0))
)
def test_the_driver_tells_errors_in_no_memory_of_the_cards(
    program: Any, place: Any, cls: Any, status: Any
) -> None:
    """It writes there, freed or not."""
    assert program.make(DEVICE, SUBDEVICE, nv.SUBDEVICE) == 0
    assert program.make(DEVICE, NOTIFIER, cls, memory(65536), 65536) == 0
    assert program.make(DEVICE, GROUP, nv.GROUP, nv.group_params(0, 1)) == 0
    channel = nv.put(368, (place, "I", NOTIFIER), (128, "I", 1))
    assert program.make(GROUP, CHANNEL, nv.CHANNEL, channel) == status
    # what a group names is looked up anew for each of its channels: it may be the card's by then
    group = nv.put(20, (4 * (place > 0), "I", NOTIFIER), (12, "I", 1))
    assert program.make(DEVICE, GROUP + 1, nv.GROUP, group) == NOT_SUPPORTED


def test_where_errors_are_told_stays_what_it_is_as_long_as_the_channel(program: Any) -> None:
    """The driver writes to the address, whose page may be anybody's by then."""
    for handle in (NOTIFIER, MEMORY):
        assert program.make(DEVICE, handle, nv.MEMORY_SYSTEM, memory(65536), 65536) == 0
    assert program.make(DEVICE, SUBDEVICE, nv.SUBDEVICE) == 0
    assert program.make(DEVICE, GROUP, nv.GROUP, nv.group_params(0, 1)) == 0
    channel = nv.put(368, (0, "I", NOTIFIER), (128, "I", 1), (140, "I", MEMORY))
    args = nv.rm_alloc(CLIENT, GROUP, CHANNEL, nv.CHANNEL, channel)
    verdict, call = program.begin(nv.ALLOC, args, channel)
    assert verdict is Verdict.FORWARD
    for handle in (NOTIFIER, MEMORY):  # while the driver looks it up, and after that
        assert program.ask(nv.FREE, nv.rm_free(CLIENT, handle))[0] == nv.STATE_IN_USE
    assert call.post(0) is Verdict.DONE
    for handle in (NOTIFIER, MEMORY):
        verdict, call = program.begin(nv.FREE, nv.rm_free(CLIENT, handle))
        assert (verdict, call.status) == (Verdict.ANSWER, nv.OK)
    verdict, call = program.begin(nv.FREE, nv.rm_free(CLIENT, CHANNEL))
    assert (verdict, call.post(0)) == (Verdict.FORWARD, Verdict.UNDO)
    freed = [nv.get32(call.undo_args(), 8)]
    assert call.undone()
    freed.append(nv.get32(call.undo_args(), 8))
    assert not call.undone()
    assert set(freed) == {NOTIFIER, MEMORY}


def test_a_client_that_parameters_name_stays_until_the_driver_has_looked(program: Any) -> None:
    """An event of one's other client, whose number would be a neighbour's next."""
    params = nv.put(24, (0, "I", OTHER))
    args = nv.rm_alloc(CLIENT, DEVICE, 0x50, 0x79, params)
    verdict, call = program.begin(nv.ALLOC, args, params)
    assert verdict is Verdict.FORWARD
    assert program.ask(nv.FREE, nv.rm_free(OTHER, OTHER))[0] == nv.STATE_IN_USE
    assert call.post(0) is Verdict.DONE
    assert program.ask(nv.FREE, nv.rm_free(OTHER, OTHER))[0] == 0


VASPACE = 0x40


def make_group(program: Program) -> None:
    assert program.make(DEVICE, GROUP, nv.GROUP, nv.group_params(VASPACE, 1)) == 0


def groups(program: Program) -> int:
    return int(program.tenant.raw.ledger.unseen[lib.CGPU_UNSEEN_GROUP][0])


def test_a_group_is_not_forgotten_with_an_address_space_before_its_own(program: Any) -> None:
    """
    While RM_FREE of an address space is on its way out of the driver, another thread makes one by
    the same handle, and a third a group in it.
    """
    space = bytes(48)
    assert program.make(DEVICE, VASPACE, nv.VASPACE, space) == 0
    make_group(program)
    _, freeing = program.begin(nv.FREE, nv.rm_free(CLIENT, VASPACE))
    args = nv.rm_alloc(CLIENT, DEVICE, VASPACE, nv.VASPACE, space)
    verdict, making = program.begin(nv.ALLOC, args, space)
    assert verdict is Verdict.FORWARD
    make_group(program)
    assert freeing.post(0) is Verdict.DONE
    assert making.post(0) is Verdict.DONE
    assert groups(program) == 1
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, VASPACE))[0] == 0
    assert groups(program) == 0


def test_a_group_is_not_forgotten_with_what_had_its_address_spaces_handle(program: Any) -> None:
    """The core knows something by that handle which the driver freed with something else."""
    space = bytes(48)
    assert program.make(DEVICE, VASPACE, 0x50A0, nv.memory_params(MIB, flags=0x400)) == 0
    args = nv.rm_alloc(CLIENT, DEVICE, VASPACE, nv.VASPACE, space)
    verdict, making = program.begin(nv.ALLOC, args, space)
    assert verdict is Verdict.FORWARD
    make_group(program)
    assert making.post(0) is Verdict.DONE
    assert groups(program) == 1


def test_a_groups_handle_is_no_memorys_while_its_address_space_is_freed(program: Any) -> None:
    """Its handle is the driver's to give out, and what is duplicated by it may be memory."""
    space = bytes(48)
    assert program.make(DEVICE, VASPACE, nv.VASPACE, space) == 0
    make_group(program)
    duplicate = nv.rm_dup(CLIENT, DEVICE, MEMORY, CLIENT, GROUP)
    verdict, duplicating = program.begin(nv.DUP, duplicate)
    assert verdict is Verdict.FORWARD
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, VASPACE))[0] == nv.STATE_IN_USE
    assert duplicating.post(-5) is Verdict.DONE

    verdict, freeing = program.begin(nv.FREE, nv.rm_free(CLIENT, VASPACE))
    assert verdict is Verdict.FORWARD
    assert program.ask(nv.DUP, duplicate)[0] == nv.NOT_FOUND
    assert freeing.post(-5) is Verdict.DONE
    assert program.ask(nv.DUP, duplicate)[0] == 0


@pytest.mark.parametrize("cls", [0x05, 0x79])
def test_an_event_of_no_clients_object_lives_as_long_as_its_client(
    program: Program, cls: int
) -> None:
    """The driver makes it the client's own: it was forgotten with the device, and never freed."""
    assert program.device()[0] == 0
    for named, event in ((0, 0x100), (OTHER, 0x101), (CLIENT, 0x102)):
        params = nv.put(24, (0, "I", named), (8, "I", 0x79))
        assert program.make(DEVICE, event, cls, params) == 0
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, DEVICE))[0] == 0
    verdicts = [
        program.begin(nv.FREE, nv.rm_free(CLIENT, event))[0] for event in range(0x100, 0x103)
    ]
    assert verdicts == [Verdict.FORWARD, Verdict.FORWARD, Verdict.ANSWER]


@pytest.mark.parametrize("made", [False, True])
def test_memory_whose_call_failed_after_it_was_made_can_be_freed(
    program: Program, made: bool
) -> None:
    """Where the descriptor that it names is not the driver's: its status alone tells."""
    assert program.device()[0] == 0
    args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 0x77), (12, "I", 0x71),
                  (48, "i", -1))  # fmt: skip
    verdict, call = program.begin(39, args)
    assert verdict is Verdict.FORWARD
    if made:
        call.set_args(args)
    assert call.post(-22) is Verdict.DONE
    freed = program.begin(nv.FREE, nv.rm_free(CLIENT, 0x77))[0]
    assert freed is (Verdict.FORWARD if made else Verdict.ANSWER)
