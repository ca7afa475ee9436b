# SPDX-License-Identifier: MIT
"""What the driver takes of the host's memory for a container, outside its memory cgroup."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pycgpu.core import Call, Device, Request, Tenant, Topology, Verdict, ffi, lib
from tests.core import strategies as nv
from tests.core.test_alloc import ABI, CLIENT, DEVICE, MEMORY, MIB

KIB = 1 << 10
LIMIT = 64 * MIB
CARD_LIMIT = 2 * MIB
CONTIGUOUS, NONCONTIGUOUS = 2 << 27, 1 << 27
ANYWHERE, PCI = 3 << 25, 1 << 25
SMALL_PAGES, BIG_PAGES, HUGE_PAGES = 1 << 23, 2 << 23, 3 << 23
ALLOC_MEMORY, MAP_MEMORY, UNMAP_MEMORY, EXPORT_DMABUF = 39, 78, 79, 217
INVALID_ARGUMENT = 0x1F


class Program:
    """A process whose memory cgroup has a limit; the driver agrees to all that reaches it."""

    def __init__(
        self, limit: int = LIMIT, card_limit: int | None = CARD_LIMIT, **card: int
    ) -> None:
        topology = Topology()
        topology.add(0, uuid=nv.card_uuid(0), **({"total_bytes": 80 << 30} | card))
        self.tenant = Tenant(topology)
        self.tenant.give(0, card_limit)
        self.limit, self.files = limit, 0
        self.file = self.tenant.open(Device.CTL, 0, 100)
        self.ask(nv.ALLOC, nv.rm_alloc(0, 0, CLIENT, nv.ROOT_CLIENT))
        device = nv.put(56, (48, "I", 2))
        self.ask(nv.ALLOC, nv.rm_alloc(CLIENT, CLIENT, DEVICE, nv.DEVICE, device), device)
        self.files = self.held()

    def begin(
        self, nr: int, args: bytes | bytearray, params: bytes | bytearray = b""
    ) -> tuple[Verdict, Call]:
        request = Request(ABI, Device.CTL, nr, bytes(args), bytes(params))
        call = self.tenant.call(request, self.file, 100)
        lib.cgpu_ledger_limit_host(ffi.addressof(self.tenant.raw.ledger), self.limit)
        return call.pre(), call

    def ask(self, nr: int, args: bytes | bytearray, params: bytes | bytearray = b"") -> int:
        """Return NVIDIA's status."""
        verdict, call = self.begin(nr, args, params)
        if verdict is Verdict.ANSWER:
            return call.status or 0
        assert call.post(0) is Verdict.DONE
        return 0

    def take(self, handle: int, size: int, attr: int = PCI) -> int:
        params = nv.memory_params(size, attr)
        return self.ask(nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, handle, 0x3E, params), params)

    def free(self, handle: int) -> None:
        assert self.ask(nv.FREE, nv.rm_free(CLIENT, handle)) == 0

    def held(self) -> int:
        """Besides what its own file takes."""
        return int(self.tenant.raw.ledger.account[lib.CGPU_HOST].current_bytes) - self.files

    def charged(self) -> int:
        return int(self.tenant.account(0).current_bytes)


@pytest.fixture
def program() -> Program:
    return Program()


def test_the_hosts_memory_ends_where_the_cgroups_limit_is(program: Program) -> None:
    taken = 0
    while program.take(MEMORY + taken, 4 * MIB) == 0:
        taken += 1
    assert taken == 15  # the driver's lists of pages are with it
    assert 60 * MIB <= program.held() <= LIMIT
    assert program.tenant.shortage == (lib.CGPU_HOST, 4 * MIB + 32 * KIB)
    assert program.charged() == 0
    program.free(MEMORY)
    assert program.take(MEMORY, 4 * MIB) == 0


def test_without_a_limit_there_is_as_much_as_the_host_has(program: Program) -> None:
    program.limit = 0
    assert program.take(MEMORY, 1 << 40) == 0
    program.limit = LIMIT
    assert program.take(MEMORY + 1, 4 * KIB) == nv.NO_MEMORY, "a limit counts what is there"
    program.free(MEMORY)
    assert program.take(MEMORY + 1, 4 * KIB) == 0


@pytest.mark.parametrize("size", (1 << 63, (1 << 64) - 1))
def test_a_size_without_a_multiple_is_refused_and_charges_nothing(
    program: Program, size: int
) -> None:
    for attr in (PCI, PCI | CONTIGUOUS):
        assert program.take(MEMORY, size, attr) == nv.NO_MEMORY
    assert program.held() == 0


@pytest.mark.parametrize(
    ("attr", "size", "taken"),
    (
        (0, 4 * KIB, 64 * KIB),
        (SMALL_PAGES | NONCONTIGUOUS, 68 * KIB, 128 * KIB),
        (BIG_PAGES, 65 * KIB, 128 * KIB),
        (HUGE_PAGES, 64 * KIB, 2 * MIB),
        (CONTIGUOUS, 65 * KIB, 128 * KIB),
        (CONTIGUOUS, 1 * MIB + 1, 2 * MIB),
        (CONTIGUOUS | HUGE_PAGES, 5 * MIB, 8 * MIB),
        (0, 3 * MIB, 4 * MIB),
    ),
)
def test_before_the_driver_answers_the_most_that_it_can_take_is_charged(
    program: Program, attr: int, size: int, taken: int
) -> None:
    params = nv.memory_params(size, PCI | attr)
    args = nv.rm_alloc(CLIENT, DEVICE, MEMORY, 0x3E, params)
    assert program.begin(nv.ALLOC, args, params)[0] is Verdict.FORWARD
    assert program.held() == taken + taken // 128


@pytest.mark.parametrize("location", (PCI, ANYWHERE, 2 << 25))
def test_what_the_heap_places_beside_the_card_is_the_hosts(program: Program, location: int) -> None:
    """Also "anywhere": it was charged to the card, and nobody counted the host's."""
    heap = nv.heap_alloc(CLIENT, DEVICE, MEMORY, 4 * MIB, attr=location)
    assert program.ask(nv.VID_HEAP, heap) == 0
    assert (program.charged(), program.held()) == (0, 4 * MIB + 32 * KIB)
    heap = nv.heap_alloc(CLIENT, DEVICE, MEMORY + 1, LIMIT, attr=location)
    assert program.ask(nv.VID_HEAP, heap) == nv.NO_MEMORY


def test_what_the_driver_rounded_up_is_charged(program: Program) -> None:
    params = nv.memory_params(4 * KIB, PCI)
    args = nv.rm_alloc(CLIENT, DEVICE, MEMORY, 0x3E, params)
    verdict, call = program.begin(nv.ALLOC, args, params)
    assert verdict is Verdict.FORWARD
    answer = bytearray(call.params)
    struct.pack_into("<Q", answer, 64, 2 * MIB)
    call.set_params(answer)
    assert call.post(0) is Verdict.DONE
    assert program.held() == 2 * MIB + 16 * KIB
    # more than there is room for does not stay
    verdict, call = program.begin(nv.ALLOC, args, params)
    struct.pack_into("<Q", answer, 64, LIMIT)
    call.set_params(answer)
    assert call.post(0) is Verdict.UNDO


def test_a_duplicate_keeps_it_charged(program: Program) -> None:
    assert program.take(MEMORY, 4 * MIB) == 0
    held = program.held()
    assert program.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, MEMORY + 1, CLIENT, MEMORY)) == 0
    program.free(MEMORY)
    assert program.held() == held
    program.free(MEMORY + 1)
    assert program.held() == 0


def test_a_failed_allocation_charges_nothing(program: Program) -> None:
    params = nv.memory_params(4 * MIB, PCI)
    args = nv.rm_alloc(CLIENT, DEVICE, MEMORY, 0x3E, params)
    for result in (-14, 0):
        _, call = program.begin(nv.ALLOC, args, params)
        if not result:
            call.set_args(nv.put(len(args), *_status(args)))
        call.post(result)
        assert program.held() == 0


def _status(args: bytearray) -> list[tuple[int, str, int]]:
    fields = [(at, "I", nv.get32(args, at)) for at in range(0, len(args), 4)]
    fields[-2] = (fields[-2][0], "I", nv.NO_MEMORY)
    return fields


def test_an_answer_that_is_lost_keeps_what_was_asked_for(program: Program) -> None:
    params = nv.memory_params(4 * MIB, PCI)
    _, call = program.begin(nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, MEMORY, 0x3E, params), params)
    call.unanswered()
    assert program.held() == 4 * MIB + 32 * KIB


@pytest.mark.parametrize("cls", (0x3E, 0x40, 0x70, 0x02))
def test_the_old_way_to_allocate_is_for_the_callers_own_memory_alone(
    program: Program, cls: Any
) -> None:
    """Its size is another field, which nobody read."""
    args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", MEMORY), (12, "I", cls),
                  (32, "Q", (1 << 40) - 1))  # fmt: skip
    assert program.ask(ALLOC_MEMORY, args) == nv.INSUFFICIENT_PERMISSIONS


FILE_BYTES = 40 * KIB


def map_memory(handle: int) -> bytearray:
    return nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle), (24, "Q", 4 * KIB),
                  (48, "i", 9))  # fmt: skip


def begin_map(program: Program, handle: int, through: int) -> tuple[Verdict, Call]:
    request = Request(ABI, Device.CTL, MAP_MEMORY, bytes(map_memory(handle)))
    call = program.tenant.call(request, program.file, 100, fd_file=through)
    return call.pre(), call


def test_what_is_mapped_stays_charged_until_the_file_it_was_mapped_through_is_closed(
    program: Program,
) -> None:
    """The driver keeps all of it for one page, and after that until the file is closed."""
    through = program.tenant.open(Device.CTL, 0, 100)
    assert program.take(MEMORY, 4 * MIB) == 0
    held = program.held()
    for _ in range(3):
        verdict, call = begin_map(program, MEMORY, through)
        assert verdict is Verdict.FORWARD
        assert call.post(0) is Verdict.DONE
    unmap = nv.put(32, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", MEMORY))
    assert program.ask(UNMAP_MEMORY, unmap) == 0
    program.free(MEMORY)
    assert program.held() == held
    program.tenant.close(through)
    assert program.held() == held - 4 * MIB - 32 * KIB - FILE_BYTES
    assert program.tenant.raw.objects.mappings == 0, "none is of the card's memory"


def test_a_mapping_that_fails_or_has_no_file_keeps_nothing(program: Program) -> None:
    through = program.tenant.open(Device.CTL, 0, 100)
    assert program.take(MEMORY, 4 * MIB) == 0
    held = program.held()
    verdict, call = begin_map(program, MEMORY, 0)
    assert (verdict, call.status) == (Verdict.ANSWER, INVALID_ARGUMENT)
    _, call = begin_map(program, MEMORY, through)
    call.post(-14)
    program.free(MEMORY)
    assert program.held() == held - 4 * MIB - 32 * KIB


def test_memory_that_drives_a_channel_is_not_freed_before_it(program: Program) -> None:
    """The driver keeps all of it as long as the channel has a page."""
    subdevice, group, channel = 0x51, 0x52, 0x53
    for parent, handle, cls, params in (
        (DEVICE, subdevice, nv.SUBDEVICE, b""),
        (DEVICE, MEMORY, 0x3E, nv.memory_params(4 * MIB, PCI)),
        (DEVICE, group, nv.GROUP, nv.group_params(0, 1)),
        (group, channel, nv.CHANNEL, nv.put(368, (32, "I", MEMORY), (128, "I", 1))),
    ):
        args = nv.rm_alloc(CLIENT, parent, handle, cls, params)
        assert program.ask(nv.ALLOC, args, params) == 0
    held = program.held()
    program.free(MEMORY)
    assert program.held() == held
    verdict, call = program.begin(nv.FREE, nv.rm_free(CLIENT, channel))
    assert (verdict, call.post(0)) == (Verdict.FORWARD, Verdict.UNDO)
    assert call.undo_args() == bytes(nv.rm_free(CLIENT, MEMORY))
    assert not call.undone()
    assert program.held() == 0


def test_lists_of_the_callers_own_pages_are_charged(program: Program) -> None:
    """The same pages many times over: 1 TiB of addresses, and 8 GiB of lists."""

    def own(handle: int, size: int) -> int:
        args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle), (12, "I", 0x71),
                      (32, "Q", size - 1))  # fmt: skip
        verdict, call = program.begin(ALLOC_MEMORY, args)
        if verdict is Verdict.FORWARD:
            call.set_args(args)
            assert call.post(0) is Verdict.DONE
        return call.status or 0

    before = program.held()
    assert own(MEMORY, 1 << 30) == 0
    assert program.held() - before == 8 * MIB
    assert own(MEMORY + 1, 1 << 40) == nv.NO_MEMORY
    program.free(MEMORY)
    assert program.held() == before


@pytest.mark.parametrize(
    ("device", "each"), ((Device.CTL, 40 * KIB), (Device.UVM, 64 * KIB), (Device.GPU, 40 * KIB))
)
def test_open_files_are_charged_with_what_the_driver_has_for_them(
    program: Program, device: Device, each: int
) -> None:
    lib.cgpu_ledger_limit_host(ffi.addressof(program.tenant.raw.ledger), MIB)
    opened = []
    with pytest.raises(MemoryError):
        while True:
            opened.append(program.tenant.open(device, 0, 100))
    assert len(opened) == (MIB - program.files) // each
    assert program.held() == len(opened) * each
    for number in opened:
        program.tenant.close(number)
    assert program.held() == 0


def test_a_dma_buf_has_room_for_no_more_objects_than_a_call_takes(program: Program) -> None:
    """The driver makes room for all that it is told of: 4 GiB for one of 2^26."""
    assert program.take(MEMORY, 4 * MIB) == 0
    for total, status in ((128, None), (129, 0x1A), (0xFFFFFFFF, 0x1A)):
        args = nv.put(ABI.raw.dmabuf_size, (0, "i", -1), (4, "I", CLIENT), (8, "I", total),
                      (12, "I", 1), (ABI.raw.dmabuf_handles, "I", MEMORY))  # fmt: skip
        verdict, call = program.begin(EXPORT_DMABUF, args)
        assert (verdict is Verdict.ANSWER) is (status is not None)
        if status is not None:
            assert call.status == status
        else:
            call.post(-12)


@pytest.mark.parametrize("notify", (0x25, 0x30000001, nv.WITHOUT_EVENT_DATA | 0x9F))
@pytest.mark.parametrize("hClass", (5, 0x79))
def test_an_event_keeps_no_data(program: Program, hClass: int, notify: int) -> None:
    """Each would keep some for whatever happens, until somebody asks for it."""
    params = nv.put(24, (0, "I", CLIENT), (8, "I", hClass), (12, "I", notify))
    args = nv.rm_alloc(CLIENT, DEVICE, 0x60, hClass, params)
    verdict, call = program.begin(nv.ALLOC, args, params)
    assert verdict is Verdict.FORWARD
    assert struct.unpack_from("<I", call.params, 12)[0] == notify | nv.WITHOUT_EVENT_DATA
    assert call.post(0) is Verdict.DONE
    assert bytes(call.params) == bytes(params)  # the caller's stay as they were


def test_an_event_that_cannot_be_told_to_keep_no_data_is_refused(program: Program) -> None:
    args = nv.rm_alloc(CLIENT, DEVICE, 0x60, 0x79, b"")
    assert program.ask(nv.ALLOC, args, b"") == 0x56


def test_an_operators_event_keeps_data(program: Program) -> None:
    program.tenant.raw.ledger.account[0].admit_unknown = True
    params = nv.put(24, (0, "I", CLIENT), (8, "I", 0x79))
    _, call = program.begin(nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, 0x61, 0x79, params), params)
    assert bytes(call.params) == bytes(params)


def test_range_groups_have_a_bound_that_destroying_and_closing_return(program: Program) -> None:
    create, destroy = 23, 24
    files = [program.tenant.open(Device.UVM, 0, 100) for _ in range(2)]

    def ask(command: int, file: int, result: int = 0) -> Verdict:
        request = Request(ABI, Device.UVM, command, bytes(16))
        call = program.tenant.call(request, file, 100)
        verdict = call.pre()
        if verdict is Verdict.FORWARD:
            call.post(result)
        return verdict

    for i in range(lib.CGPU_MAX_RANGE_GROUPS):
        assert ask(create, files[i % 2]) is Verdict.FORWARD
    assert ask(create, files[0]) is Verdict.ANSWER
    assert ask(destroy, files[0], -22) is Verdict.FORWARD, "one that there is not"
    assert ask(create, files[0]) is Verdict.ANSWER
    assert ask(destroy, files[0]) is Verdict.FORWARD
    assert ask(create, files[1], -12) is Verdict.FORWARD, "what failed is none"
    assert ask(create, files[1]) is Verdict.FORWARD
    assert ask(create, files[1]) is Verdict.ANSWER
    program.tenant.close(files[0])
    assert program.tenant.raw.range_groups == lib.CGPU_MAX_RANGE_GROUPS // 2 + 1
    assert ask(create, files[1]) is Verdict.FORWARD


def test_a_list_of_the_kernels_own_is_nothing_to_name(program: Program) -> None:
    """By RM_ALLOC the driver follows the number that stands there, in the kernel (535 to 595)."""
    params = nv.put(64, (0, "I", 1), (8, "Q", 0xFFFF888000000000), (16, "Q", 4095))
    old = nv.put(20, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", MEMORY), (12, "I", 0x71))
    new = nv.rm_alloc(CLIENT, DEVICE, MEMORY, 0x71, params)
    for nr, args in ((nv.ALLOC, new), (nv.ALLOC_OBJECT, old)):
        assert program.ask(nr, args, params) == 0x56
