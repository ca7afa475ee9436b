# SPDX-License-Identifier: MIT
"""BAR1, the window through which the processor reaches a card's memory, is shared by all."""

from __future__ import annotations

import struct

import pytest

from pycgpu.core import Verdict, lib
from tests.core import strategies as nv
from tests.core.test_alloc import CLIENT, DEVICE, MIB
from tests.core.test_host_memory import Program

KIB, GIB = 1 << 10, 1 << 30
SMALL, LARGE = 10, 11
BUSY, MAX = 0x1A, (1 << 64) - 1
MOVE_MAPPING = 94


class Mapper(Program):
    """A process with 4 MiB (10) and 1 GiB (11) of a card of 16 GiB, of which it may have 4."""

    def __init__(
        self, bar1_bytes: int, limit_bytes: int | None = 4 * GIB, promisable_bytes: int = 0
    ) -> None:
        super().__init__(0, limit_bytes, total_bytes=16 * GIB, bar1_bytes=bar1_bytes)
        self.tenant.topology.raw.gpu[0].promisable_bytes = promisable_bytes
        for handle, size in ((SMALL, 4 * MIB), (LARGE, GIB)):
            params = nv.memory_params(size)
            args = nv.rm_alloc(CLIENT, DEVICE, handle, nv.MEMORY_USER, params)
            assert self.ask(nv.ALLOC, args, params) == 0

    def map(
        self, handle: int, length: int, at: int = 0, offset: int = 0, refused: bool = False
    ) -> int:
        """Map for the processor; the driver puts it there, or refuses it."""
        args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle),
                      (16, "Q", offset), (24, "Q", length))  # fmt: skip
        verdict, call = self.begin(nv.MAP_MEMORY, args)
        if verdict is Verdict.ANSWER:
            return call.status or 0
        seen = bytearray(call.args)
        struct.pack_into("<Q", seen, 32, at)
        struct.pack_into("<I", seen, 40, 0x56 if refused else 0)
        call.set_args(bytes(seen))
        assert call.post(0) is Verdict.DONE
        return 0

    def unmap(self, handle: int, at: int) -> int:
        args = nv.put(32, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle), (16, "Q", at))
        return self.ask(nv.UNMAP_MEMORY, args)

    def move(self, handle: int, at: int, to: int, refused: bool = False) -> None:
        """What was mapped there is known by another address from now on."""
        args = nv.put(40, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle),
                      (16, "Q", at), (24, "Q", to))  # fmt: skip
        verdict, call = self.begin(MOVE_MAPPING, args)
        assert verdict is Verdict.FORWARD
        seen = bytearray(call.args)
        struct.pack_into("<I", seen, 32, 0x57 if refused else 0)
        call.set_args(bytes(seen))
        assert call.post(0) is Verdict.DONE

    @property
    def mapped(self) -> int:
        return int(self.tenant.raw.ledger.account[lib.CGPU_BAR1].current_bytes)

    @property
    def refused(self) -> int:
        return self.tenant.account(0).refused


@pytest.mark.parametrize(
    ("bar1_bytes", "limit_bytes", "most", "promisable_bytes"),
    [
        (256 * MIB, 4 * GIB, 64 * MIB, 0),  # a quarter of the card
        (256 * MIB, 2 * GIB, 32 * MIB, 0),
        (256 * MIB, 5 * MIB + 2 * GIB, 32 * MIB, 0),  # whole pages
        (128 * MIB, None, 128 * MIB, 0),  # no limit: all of it
        (64 * MIB, 2 * GIB, 16 * MIB, 0),  # eight contexts, whatever it has
        (4 * MIB, 2 * GIB, 4 * MIB, 0),  # but not more than there is
        (32 * GIB, 4 * GIB, 8 * GIB, 0),
        (256 * MIB, 4 * GIB, 32 * MIB, 32 * GIB),  # of what an overcommitted card promises
    ],
)
def test_a_container_maps_the_part_of_bar1_that_it_has_of_the_memory(
    bar1_bytes: int, limit_bytes: int | None, most: int, promisable_bytes: int
) -> None:
    program = Mapper(bar1_bytes, limit_bytes, promisable_bytes)
    handle, step = (LARGE, GIB) if most > GIB else (SMALL, 4 * MIB)
    for at in range(most // step):
        assert program.map(handle, step, at) == 0
    assert program.mapped == most
    refused = program.refused
    assert program.map(handle, step) == BUSY
    assert (program.refused, program.mapped) == (refused + 1, most)
    assert program.unmap(handle, 0) == 0
    assert program.map(handle, step) == 0


@pytest.mark.parametrize(
    ("bar1_bytes", "handle", "offset", "length", "takes"),
    [
        (256 * MIB, SMALL, 0, 1, 64 * KIB),
        (256 * MIB, SMALL, 64 * KIB - 1, 2, 128 * KIB),
        (256 * MIB, LARGE, 0, 2 * MIB, 2 * MIB),
        (512 * MIB, SMALL, 0, 4096, 2 * MIB),
        (512 * MIB, SMALL, MIB, MIB + 1, 4 * MIB),
        (32 * GIB, LARGE, 0, 4096, 512 * MIB),  # it may have pages of so much
    ],
)
def test_a_mapping_takes_whole_pages_of_the_window(
    bar1_bytes: int, handle: int, offset: int, length: int, takes: int
) -> None:
    program = Mapper(bar1_bytes)
    assert program.map(handle, length, 0x10000, offset) == 0
    assert program.mapped == takes
    assert program.unmap(handle, 0x10000) == 0
    assert program.mapped == 0


@pytest.mark.parametrize(("offset", "length"), [(0, MAX), (MAX, 4096), (MAX, MAX), (1, MAX - 1)])
def test_a_window_of_any_length_wraps_nothing(offset: int, length: int) -> None:
    program = Mapper(256 * MIB)
    status = program.map(SMALL, length, 0, offset)
    assert status == (BUSY if length > 4096 else 0)
    assert program.mapped <= 128 * KIB


def test_a_mapping_that_the_driver_refuses_takes_nothing() -> None:
    program = Mapper(256 * MIB)
    assert program.map(SMALL, MIB, refused=True) == 0
    assert program.mapped == 0


def test_mappings_go_with_the_memory_and_with_the_file() -> None:
    program = Mapper(256 * MIB)
    for at in range(4):
        assert program.map(SMALL, MIB, at << 20) == 0
        assert program.map(LARGE, MIB, at << 30) == 0
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, SMALL)) == 0
    assert program.mapped == 4 * MIB
    program.tenant.close(program.file)
    assert program.mapped == 0


def test_a_mapping_through_a_duplicate_is_one_more() -> None:
    program = Mapper(256 * MIB)
    assert program.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, 20, CLIENT, SMALL)) == 0
    assert (program.map(SMALL, MIB, 1 << 20), program.map(20, MIB, 2 << 20)) == (0, 0)
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, SMALL)) == 0
    assert program.mapped == MIB


def test_an_unmapping_elsewhere_returns_nothing() -> None:
    program = Mapper(256 * MIB)
    assert program.map(SMALL, MIB, 1 << 20) == 0
    assert program.unmap(SMALL, 2 << 20) == 0
    assert program.mapped == MIB


def test_a_mapping_goes_by_the_address_that_it_was_moved_to() -> None:
    """CUDA's way: it unmaps by where its mmap lies."""
    program = Mapper(256 * MIB)
    for _ in range(100):
        assert program.map(SMALL, MIB, 1 << 40) == 0
        program.move(SMALL, 1 << 40, 0x7F0000000000)
        assert program.mapped == MIB
        assert program.unmap(SMALL, 0x7F0000000000) == 0
        assert program.mapped == 0


@pytest.mark.parametrize("what", ["to another's", "one of two", "unknown", "refused"])
def test_of_mappings_that_are_not_told_apart_none_goes(what: str) -> None:
    """Which of them the driver moved, or unmaps then, is not known."""
    program = Mapper(256 * MIB)
    assert program.map(SMALL, MIB, 1) == 0
    assert program.map(SMALL, 4 * MIB, 1 if what == "one of two" else 2) == 0
    program.move(SMALL, *{"to another's": (1, 2), "unknown": (9, 2)}.get(what, (1, 3)),
                 refused=what == "refused")  # fmt: skip
    for at in (1, 2, 3):
        assert program.unmap(SMALL, at) == 0
    assert program.mapped == 5 * MIB
    assert program.ask(nv.FREE, nv.rm_free(CLIENT, SMALL)) == 0
    assert program.mapped == 0


def test_of_mappings_that_two_calls_are_about_at_once_none_goes() -> None:
    program = Mapper(256 * MIB)
    args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", SMALL), (24, "Q", MIB))
    _, first = program.begin(nv.MAP_MEMORY, args)
    program.move(SMALL, 0, 5)
    assert first.post(0) is Verdict.DONE
    assert (program.unmap(SMALL, 0), program.unmap(SMALL, 5)) == (0, 0)
    assert program.mapped == MIB


def test_a_smaller_limit_holds_for_what_is_mapped_from_then_on() -> None:
    program = Mapper(256 * MIB)
    assert program.map(LARGE, 40 * MIB, 1) == 0
    program.tenant.raw.ledger.account[0].max_bytes = 2 * GIB
    assert program.map(LARGE, MIB, 2) == BUSY
    assert program.unmap(LARGE, 1) == 0
    assert program.map(LARGE, MIB, 2) == 0


@pytest.mark.parametrize("bar1_bytes", [0, 256 * MIB])
def test_memory_of_the_host_takes_nothing_of_the_window(bar1_bytes: int) -> None:
    """And where the driver tells no size of it, nobody can say what a part is."""
    program = Mapper(bar1_bytes)
    assert program.take(30, MIB) == 0
    for _ in range(8):
        assert program.map(LARGE if not bar1_bytes else 30, GIB) in (0, 0x1F)
    assert program.mapped == 0
