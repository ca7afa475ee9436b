# SPDX-License-Identifier: MIT
"""Where USERD of a container's channels is mapped: found by the numbers of CUDA's own calls."""

from __future__ import annotations

import struct

import pytest

from pycgpu.core import Abi, Tenant, Topology, ffi, lib
from tests.core import strategies as nv

NONE = lib.CGPU_USERD_NONE
CLIENT, DEVICE, GROUP, COPY_GROUP, MEMORY = 0xC1D00000, 1, 2, 3, 0x5C000017
GRAPHICS, COPY = 1, 11
#: as recorded of CUDA 13 on an H200: one mapping of 2 MiB, a channel each 12 KiB
LENGTH, FIRST, STEP = 2 << 20, 0x2000, 0x3000


class Process:
    """A container whose one process has a client with a device, and groups on two engines."""

    def __init__(self, version: str = "580.142") -> None:
        self.abi = Abi(version)
        self.tenant = Tenant(Topology())
        self.tenant.give(0)
        self.objects = ffi.addressof(self.tenant.raw.objects)
        self.ledger = ffi.addressof(self.tenant.raw.ledger)
        self.userds = ffi.new("struct cgpu_userds *")
        client = self._add(0, CLIENT, nv.ROOT_CLIENT, 0xFF)
        device = self._add(client, DEVICE, nv.DEVICE)
        self.groups = {
            engine: self._add(device, handle, nv.GROUP)
            for handle, engine in ((GROUP, GRAPHICS), (COPY_GROUP, COPY))
        }
        for engine, group in self.groups.items():
            made = lib.cgpu_object_at(self.objects, group)
            made.engineType = engine
            made.flags = lib.CGPU_OBJECT_SCHEDULED

    def _add(self, parent: int, handle: int, cls: int, card: int = 0) -> int:
        self.tenant.grow()
        index = lib.cgpu_object_add(self.objects, self.ledger, parent, CLIENT, handle, cls)
        assert index
        lib.cgpu_object_at(self.objects, index).card = card
        if cls in (nv.GROUP, nv.CHANNEL):
            lib.cgpu_object_set_runnable(self.objects, index, 0)
        return int(index)

    def channel(
        self, handle: int, offset: int, memory: int = MEMORY, engine: int = GRAPHICS
    ) -> int:
        self._add(self.groups[engine], handle, nv.CHANNEL)
        raw = self.abi.raw
        params = bytearray(raw.channel_alloc_size)
        struct.pack_into("<I", params, raw.channel_userd_offset, memory)
        struct.pack_into("<Q", params, 64 + raw.channel_shift, offset)
        number = lib.cgpu_userd_allocated(
            self.abi.raw, self.userds, self.tenant.raw, CLIENT, handle, bytes(params), len(params)
        )
        return int(number)

    def free(self, handle: int) -> None:
        found = lib.cgpu_object_find(self.objects, CLIENT, handle)
        lib.cgpu_object_remove(self.objects, self.ledger, found)

    def map(self, memory: int = MEMORY, offset: int = 0, length: int = LENGTH) -> int:
        return int(lib.cgpu_userd_mapped(self.userds, CLIENT, memory, offset, length))

    def complete(self) -> bool:
        return bool(lib.cgpu_userd_complete(self.userds, self.tenant.raw, 0))

    def found(self) -> list[tuple[int, int]]:
        """Map and offset of each channel that can be read."""
        out, at, offset = [], 0, ffi.new("uint64_t *")
        while (at := lib.cgpu_userd_next(self.userds, self.tenant.raw, 0, at, offset)) != NONE:
            out.append((self.userds.channel[at].map, offset[0]))
            at += 1
        return out


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_mapping_before_the_channels_holds_all_of_them(process: Process) -> None:
    number = process.map()
    offsets = [FIRST + STEP * i for i in range(8)]
    for i, offset in enumerate(offsets):
        process.channel(0x100 + i, offset)
    assert process.complete()
    assert process.found() == [(number, offset) for offset in offsets]


def test_a_mapping_after_the_channel_holds_it_too(process: Process) -> None:
    process.channel(0x100, FIRST)
    assert (process.complete(), process.found()) == (False, [])
    number = process.map()
    assert (process.complete(), process.found()) == (True, [(number, FIRST)])


def test_the_drivers_own_userd_is_mapped_by_the_channels_handle(process: Process) -> None:
    process.channel(0x100, 0x5000, memory=0)
    number = process.map(memory=0x100, length=4096)
    assert (process.complete(), process.found()) == (True, [(number, 0)])


@pytest.mark.parametrize(("offset", "length"), [(0, FIRST + 511), (FIRST + 4, LENGTH), (0, 0)])
def test_a_mapping_that_lacks_a_part_of_it_does_not_count(
    process: Process, offset: int, length: int
) -> None:
    process.map(offset=offset, length=length)
    process.channel(0x100, FIRST)
    assert not process.complete()


def test_an_offset_that_wraps_around_is_in_no_mapping(process: Process) -> None:
    process.map(length=(1 << 64) - 1)
    process.channel(0x100, (1 << 64) - 16)
    assert not process.complete()


def test_channels_of_copy_engines_are_not_read_and_not_missed(process: Process) -> None:
    process.map()
    process.channel(0x100, FIRST)
    process.channel(0x101, 0x9000, memory=0xBAD, engine=COPY)
    assert process.complete()
    assert len(process.found()) == 1


def test_without_a_compute_channel_nothing_can_be_read(process: Process) -> None:
    process.map()
    process.channel(0x100, FIRST, engine=COPY)
    assert not process.complete()


def test_a_channel_that_was_freed_is_forgotten_though_its_handle_comes_again(
    process: Process,
) -> None:
    number = process.map()
    process.channel(0x100, FIRST)
    process.free(0x100)
    assert not process.complete()
    assert process.userds.map[number].channels == 0
    process.channel(0x100, FIRST + STEP)
    assert process.found() == [(number, FIRST + STEP)]


def test_mappings_that_no_channel_needs_make_room_and_others_stay(process: Process) -> None:
    number = process.map()
    process.channel(0x100, FIRST)
    for i in range(3 * lib.CGPU_USERD_MAPS):
        assert process.map(memory=0x6000 + i, length=4096) not in (number, NONE)
    assert (process.complete(), process.found()) == (True, [(number, FIRST)])


def test_the_same_memory_mapped_again_is_read_where_it_is_now(process: Process) -> None:
    process.map()
    second = process.map()
    process.channel(0x100, FIRST)
    assert process.found() == [(second, FIRST)]


def test_more_channels_than_there_is_room_for_are_a_container_that_cannot_be_read(
    process: Process,
) -> None:
    process.map(length=1 << 40)
    for i in range(lib.CGPU_USERD_CHANNELS):
        assert process.channel(0x100 + i, STEP * i) != NONE
    assert process.complete()
    assert process.channel(0x9999, 0) == NONE
    assert not process.complete()
