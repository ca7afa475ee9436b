# SPDX-License-Identifier: MIT
"""Address ranges against a set of bytes per range: addresses are small, so every byte is one."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pycgpu.core import NO_CARD, Device, Tenant, Topology, ffi, lib
from tests.core.cost import least_s

ANY_CARD = lib.CGPU_ANY_CARD
U64 = (1 << 64) - 1
EXTERNAL, MANAGED = lib.CGPU_RANGE_EXTERNAL, lib.CGPU_RANGE_MANAGED
RESERVED, EXPORT = lib.CGPU_RANGE_RESERVED, lib.CGPU_RANGE_EXPORT
CREATED = lib.CGPU_RANGE_CREATED
KINDS = (EXTERNAL, MANAGED, RESERVED)

files = st.integers(1, 3)
kinds = st.sampled_from(KINDS)
masks = st.integers(0, 7).map(lambda bits: sum(1 << KINDS[i] for i in range(3) if bits >> i & 1))
cards = st.sampled_from([0, 1])
#: Four of them are a block that managed memory takes of a card.
UNIT = 512 << 10
bases = st.integers(0, 30)
lengths = st.integers(1, 12)


@dataclass
class Range:
    kind: int
    file: int
    card: int
    charge: int
    serial: int
    units: set[int]

    @property
    def blocks(self) -> set[int]:
        return {at * UNIT // lib.CGPU_MANAGED_BLOCK_BYTES for at in self.units}


def in_order(raw: Any, index: int) -> list[Any]:
    """What is below an entry of the tree and at it, which is balanced and knows where it ends."""
    if not index:
        return []
    one = lib.cgpu_range_at(raw, index)
    before, behind = (in_order(raw, child) for child in one.child)
    heights = [lib.cgpu_range_at(raw, child).height if child else 0 for child in one.child]
    assert one.height == 1 + max(heights)
    assert abs(heights[0] - heights[1]) <= 1
    found = [*before, one, *behind]
    assert one.last_end == max(each.base + each.length_bytes for each in found)
    return found


class Ranges(RuleBasedStateMachine):
    """A piece that a cut leaves is a range of its own, with its own reference of the charge."""

    def __init__(self) -> None:
        super().__init__()
        self.tenant = Tenant(Topology())
        self.tenant.give(0)
        self.ledger = ffi.addressof(self.tenant.raw.ledger)
        self.raw = ffi.addressof(self.tenant.raw.ranges)
        self.model: list[Range] = []
        self.charges: set[int] = set()

    @rule(kind=kinds, file=files, card=cards, base=bases, length=lengths, charged=st.booleans())
    def add(self, kind: Any, file: Any, card: Any, base: Any, length: Any, charged: Any) -> None:
        self.tenant.grow()
        index = ffi.new("uint32_t *")
        if charged:
            assert lib.cgpu_charge_new(self.ledger, 0, 1000, 1, index) == 0
            self.charges.add(index[0])
        at, size = base * UNIT, length * UNIT
        taken = lib.cgpu_range_managed(self.raw, file, at, size)
        before = self.managed_blocks(file)
        assert lib.cgpu_range_add(self.raw, kind, file, at, size, index[0], card) == 0
        covered = set(range(base, base + length))
        self.model.append(Range(kind, file, card, index[0], self.raw.serial, covered))
        if kind == MANAGED:
            more = self.managed_blocks(file) - before
            assert taken == len(more) * lib.CGPU_MANAGED_BLOCK_BYTES

    @rule(file=files, mask=masks, card=st.sampled_from([0, 1, ANY_CARD]), base=bases,
          length=st.one_of(lengths, st.just(U64)), back=st.integers(0, 4))  # fmt: skip
    def cut(self, file: Any, mask: Any, card: Any, base: Any, length: Any, back: Any) -> None:
        self.tenant.grow()
        newest = max(self.raw.serial - back, 0) if back else U64
        size = min(length * UNIT, U64)
        cut = lib.cgpu_range_cut(self.raw, self.ledger, file, mask, card, newest, base * UNIT, size)
        before = self.managed_blocks(file)
        kept = []
        for one in self.model:
            hit = {at for at in one.units if base <= at < base + length}
            chosen = one.file == file and mask >> one.kind & 1 and one.serial <= newest
            if not hit or not chosen or card not in (one.card, ANY_CARD):
                kept.append(one)
                continue
            for piece in ({at for at in one.units if at < base},
                          {at for at in one.units if at >= base + length}):  # fmt: skip
                if piece:
                    kept.append(Range(one.kind, one.file, one.card, one.charge, one.serial, piece))
        self.model = kept
        less = before - self.managed_blocks(file)
        assert cut == len(less) * lib.CGPU_MANAGED_BLOCK_BYTES

    def managed_blocks(self, file: int) -> set[int]:
        managed = [one for one in self.model if one.file == file and one.kind == MANAGED]
        return set().union(*(one.blocks for one in managed))

    @rule(file=files, kind=kinds, base=bases, length=lengths)
    def covers(self, file: Any, kind: Any, base: Any, length: Any) -> None:
        wanted = set(range(base, base + length))
        expected = any(
            one.file == file and one.kind == kind and wanted <= one.units for one in self.model
        )
        found = lib.cgpu_range_covers(self.raw, file, kind, base * UNIT, length * UNIT)
        assert found == expected

    @rule(file=files, mask=masks, base=bases, length=lengths)
    def overlaps(self, file: Any, mask: Any, base: Any, length: Any) -> None:
        wanted = set(range(base, base + length))
        expected = any(
            one.file == file and mask >> one.kind & 1 and wanted & one.units for one in self.model
        )
        found = lib.cgpu_range_overlaps(self.raw, file, mask, base * UNIT, length * UNIT)
        assert found == expected

    @invariant()
    def the_ranges_are_those_of_the_model_in_order(self) -> None:
        found, order = [], []
        for one in in_order(self.raw, self.raw.root):
            lane = one.card if one.kind == EXTERNAL else 0
            order.append((one.file, one.kind, lane, one.base, one.serial))
            where = (one.base // UNIT, one.length_bytes // UNIT)
            found.append((one.file, *where, one.kind, one.card, one.charge))
        assert order == sorted(set(order))
        assert len(order) == self.raw.count
        assert sorted(found) == sorted(
            (m.file, min(m.units), len(m.units), m.kind, m.card, m.charge) for m in self.model
        )

    @invariant()
    def those_of_a_file_and_kind_are_found_one_after_the_other(self) -> None:
        for file in (1, 2, 3):
            for kind in KINDS:
                last, found = ffi.new("struct cgpu_range *"), []
                while index := lib.cgpu_range_next(self.raw, file, kind, last):
                    last[0] = lib.cgpu_range_at(self.raw, index)[0]
                    found.append(last.serial)
                assert len(found) == sum((m.file, m.kind) == (file, kind) for m in self.model)

    @invariant()
    def a_charge_lives_while_a_piece_of_its_range_does(self) -> None:
        alive = {one.charge for one in self.model if one.charge}
        assert self.tenant.account(0).current_bytes == 1000 * len(alive)
        assert self.raw.table.used == len(self.model)


TestRanges = Ranges.TestCase


@given(st.integers(1, 12), st.integers(1, 10), st.integers(1, 10))
def test_a_split_without_room_leaves_the_range_whole(length: Any, start: Any, size: Any) -> None:
    tenant = Tenant(Topology(), capacity_max=1024)
    raw, ledger = ffi.addressof(tenant.raw.ranges), ffi.addressof(tenant.raw.ledger)
    whole = length * lib.CGPU_MANAGED_BLOCK_BYTES
    assert lib.cgpu_range_add(raw, MANAGED, 1, 0, whole, 0, NO_CARD) == 0
    while lib.cgpu_range_add(raw, MANAGED, 2, 0, 1, 0, NO_CARD) == 0:
        pass
    assert raw.count == 1023
    block = lib.CGPU_MANAGED_BLOCK_BYTES
    cut = lib.cgpu_range_cut(
        raw, ledger, 1, ~0 & 0xFFFFFFFF, ANY_CARD, U64, start * block, size * block
    )
    splits = start > 0 and start + size < length
    hit = set(range(length)) & set(range(start, start + size))
    assert cut == (0 if splits else len(hit) * block)
    assert raw.count == 1023 - (start == 0 and size >= length)


@given(st.integers(0, U64), st.integers(0, U64))
def test_a_range_beyond_the_last_address_is_refused(base: Any, length: Any) -> None:
    expected = -errno.EINVAL if base + length > U64 else 0
    tenant = Tenant(Topology())
    raw = ffi.addressof(tenant.raw.ranges)
    assert lib.cgpu_range_add(raw, MANAGED, 1, base, length, 0, NO_CARD) == expected
    assert raw.count == (not expected)


def test_an_exported_object_is_found_by_file_and_index() -> None:
    tenant = Tenant(Topology())
    raw, charge = ffi.addressof(tenant.raw.ranges), ffi.new("uint32_t *", 99)
    lib.cgpu_range_add(raw, EXPORT, 4, 2, 1, 7, NO_CARD)
    lib.cgpu_range_add(raw, EXPORT, 4, 3, 1, 0, NO_CARD)
    lib.cgpu_range_add(raw, EXTERNAL, 5, 2, 1, 8, 0)
    assert lib.cgpu_range_in_place(raw, 4, EXPORT, 2, charge)
    assert charge[0] == 7
    assert lib.cgpu_range_in_place(raw, 4, EXPORT, 3, charge)
    assert charge[0] == 0
    for file, index in ((4, 1), (4, 4), (5, 2), (3, 2)):
        assert not lib.cgpu_range_in_place(raw, file, EXPORT, index, charge)


def tenant_with(count: int) -> tuple[Tenant, int, Any]:
    """Whose file has so many ranges that are not managed, and had one of 2^46 bytes."""
    tenant = Tenant(Topology())
    file, raw = tenant.open(Device.UVM), ffi.addressof(tenant.raw.ranges)
    for i in range(count):
        tenant.grow()
        assert not lib.cgpu_range_add(raw, CREATED, file, (i + 1) << 21, 1 << 21, 0, NO_CARD)
    ledger = ffi.addressof(tenant.raw.ledger)
    assert not lib.cgpu_range_add(raw, MANAGED, file, 0, 1 << 46, 0, NO_CARD)
    lib.cgpu_range_cut(raw, ledger, file, 1 << MANAGED, ANY_CARD, U64, 0, U64)
    assert raw.count == count
    return tenant, file, raw


def looks_s(count: int) -> float:
    """How long the looks of an mmap and a munmap take behind all of ``count`` ranges."""
    tenant, file, raw = tenant_with(count)
    at = (count + 5) << 21

    def look() -> None:
        assert not lib.cgpu_tenant_mmap(tenant.raw, file, at, 4096)
        assert lib.cgpu_range_overlaps(raw, file, 1 << MANAGED, at, 1)
        assert not lib.cgpu_range_covers(raw, file, RESERVED, at, 1)
        assert not lib.cgpu_tenant_munmap(tenant.raw, file, at, 4096)
        assert not lib.cgpu_tenant_munmap(tenant.raw, file, 0, 1 << 47)

    return least_s(look)


def test_what_lies_at_an_address_is_found_without_a_look_at_all_ranges() -> None:
    """A huge one, though refused, had each munmap walk all 260,000: 70 ms, and gates waited."""
    assert looks_s(60_000) < 10 * looks_s(10)


def beside_s(count: int) -> float:
    """How long it takes to unmap of one card what ``count`` are mapped beside on another."""
    tenant = Tenant(Topology())
    raw, ledger = ffi.addressof(tenant.raw.ranges), ffi.addressof(tenant.raw.ledger)
    for _ in range(count):
        tenant.grow()
        assert not lib.cgpu_range_add(raw, EXTERNAL, 1, 0, 1 << 30, 0, 0)
    mask = 1 << EXTERNAL | 1 << MANAGED
    took_s = least_s(lambda: lib.cgpu_range_cut(raw, ledger, 1, mask, 1, U64, 4096, 4096))
    assert raw.count == count
    return took_s


def test_what_another_card_has_there_costs_an_unmapping_nothing() -> None:
    """As many mappings at one address as there is room for."""
    assert beside_s(60_000) < 10 * beside_s(10)


def test_much_managed_memory_is_unmapped_in_steps() -> None:
    tenant = Tenant(Topology())
    tenant.give(0)
    file = tenant.open(Device.UVM)
    raw = lib.cgpu_tenant_file(tenant.raw, file)
    raw.gpu_mask = 1
    for i in range(2000):
        assert tenant.mmap(file, (i + 1) << 13, 4096)
    assert tenant.account(0).current_bytes == raw.managed_bytes == 16 << 20
    more, left = True, tenant.raw.ranges.count
    while more:
        more = lib.cgpu_tenant_munmap(tenant.raw, file, 0, U64)
        assert left - tenant.raw.ranges.count <= lib.CGPU_CUT_STEP
        left = tenant.raw.ranges.count
    assert (left, raw.managed_bytes, tenant.account(0).current_bytes) == (0, 0, 0)
