# SPDX-License-Identifier: MIT
"""Page tables of UVM's mappings, which no object shows: free up to a bound, then charged."""

from __future__ import annotations

import pytest

from pycgpu.core import Abi, Device, Verdict, lib
from tests.core import strategies as nv
from tests.core.test_answers import ABI, ABI_590, CLIENT, DEVICE, MIB, Container

GIB = 1 << 30
FREE = lib.CGPU_FREE_TABLES_BYTES
#: An address for each, far from the others.
APART = 1 << 40
MEMORY, OF_THE_HOST = 10, 11


def tables(length: int) -> int:
    """One of 4 KiB for each 2 MiB, for each 512 of these, and one begun on each level."""
    return length // 512 + length // 512 // 512 + 3 * 4096


class Mapper(Container):
    """A container of 1 GiB with memory of the card (10) and of the host (11)."""

    def __init__(self, limit: int | None = GIB, abi: Abi = ABI, size: int = 2 * MIB) -> None:
        super().__init__(limit)
        self.abi = abi
        self.free = FREE + (limit or 0) // 128
        self.memory(MEMORY, size)
        self.alloc(CLIENT, DEVICE, OF_THE_HOST, 0x3E)
        self.before = self.account.current_bytes

    @property
    def charged(self) -> int:
        return self.account.current_bytes - self.before

    def uvm_call(self, nr: int, args: bytes | bytearray, done: bool = True) -> Verdict:
        verdict, call = self.ask(nr, args, device=Device.UVM, abi=self.abi)
        if verdict is not Verdict.FORWARD:
            return verdict
        seen = bytearray(call.args)
        nv.set32(seen, call.raw.req.status_offset, nv.OK if done else nv.INVALID_ARGUMENT)
        call.set_args(bytes(seen))
        return call.post()

    def map(self, base: int, length: int, memory: int = MEMORY, done: bool = True) -> Verdict:
        args = nv.uvm_map(base, length, CLIENT, memory, [nv.card_uuid(1)])
        return self.uvm_call(nv.UVM_MAP_EXTERNAL, args, done)

    def unmap(self, base: int, length: int, done: bool = True) -> Verdict:
        args = nv.uvm_unmap(base, length, nv.card_uuid(1))
        return self.uvm_call(nv.UVM_UNMAP_EXTERNAL, args, done)

    def sparse(self, base: int, length: int) -> Verdict:
        args = nv.uvm_map_sparse(base, length, nv.card_uuid(1))
        return self.uvm_call(nv.UVM_MAP_SPARSE, args)

    def parallel(self, base: int, length: int, done: bool = True) -> Verdict:
        args = nv.uvm_map_sparse(base, length, nv.card_uuid(1))
        return self.uvm_call(nv.UVM_PARALLELISM, args, done)


@pytest.mark.parametrize("memory", [MEMORY, OF_THE_HOST])
def test_what_is_mapped_again_and_again_is_charged_beyond_the_free_tables(memory: int) -> None:
    container = Mapper()
    length = 256 * MIB
    free = container.free // tables(length)
    for i in range(free):
        assert container.map(i * APART, length, memory) is Verdict.DONE
    assert container.charged == 0
    count = free
    while container.map(count * APART, length, memory) is Verdict.DONE:
        count += 1
        assert container.charged == count * tables(length) - container.free
    room = GIB - container.before
    assert count * tables(length) - container.free <= room
    assert (count + 1) * tables(length) - container.free > room
    assert container.account.oom == 1
    for i in range(count):
        assert container.unmap(i * APART, length) is Verdict.DONE
    assert container.charged == 0


def test_memory_that_is_mapped_once_in_pieces_of_2_mib_costs_nothing() -> None:
    """As cuMemMap and frameworks with their own allocators map it."""
    container = Mapper(16 * GIB, size=0x10000)
    container.memory(20, 16 * GIB - 64 * MIB)
    before = container.account.current_bytes
    for i in range((16 * GIB - 64 * MIB) // (2 * MIB)):
        assert container.map(GIB + i * 2 * MIB, 2 * MIB, 20) is Verdict.DONE
    assert container.account.current_bytes == before


def test_many_small_mappings_far_apart_are_charged_at_a_table_on_each_level() -> None:
    container = Mapper()
    for i in range(20_000):
        assert container.map(i * APART, 4096) is Verdict.DONE
    assert container.charged == 20_000 * tables(4096) - container.free
    # they take 4 KiB each on each of three levels at most
    assert container.charged + container.free >= 20_000 * 3 * 4096


@pytest.mark.parametrize("terabytes", [1, 64, 1 << 16])
def test_one_sparse_mapping_of_terabytes_is_refused(terabytes: int) -> None:
    container = Mapper()
    assert container.sparse(0, terabytes << 40) is Verdict.ANSWER
    assert (container.charged, container.account.oom) == (0, 1)
    assert container.sparse(0, 64 * MIB) is Verdict.DONE


@pytest.mark.parametrize("abi", [ABI, ABI_590])
def test_regions_without_memory_are_charged_until_the_driver_has_freed_them(abi: Abi) -> None:
    container = Mapper(abi=abi)
    count = container.free // tables(4096) + 10
    for i in range(count):
        assert container.parallel(i * APART, 4096) is Verdict.DONE
    charged = count * tables(4096) - container.free
    assert container.charged == charged

    def free(i: int, done: bool = True) -> None:
        by_base = abi is ABI_590
        args = nv.uvm_free_by_base(i * APART) if by_base else nv.uvm_free(i * APART, 4096)
        assert container.uvm_call(nv.UVM_FREE, args, done) is Verdict.DONE

    free(3, done=False)
    assert container.charged == charged, "the driver has refused to free it"
    free(4)
    assert container.charged == charged - tables(4096)
    assert container.parallel(count * APART, 4096, done=False) is Verdict.DONE
    assert container.charged == charged - tables(4096), "the driver has refused to map it"


def test_semaphore_pools_are_mapped_too() -> None:
    container = Mapper()
    pool = 1024 * MIB
    for i in range(container.free // tables(pool) + 1):
        args = nv.uvm_semaphore_pool(i * APART, pool)
        assert container.uvm_call(nv.UVM_SEMAPHORE_POOL, args) is Verdict.DONE
    assert container.charged > 0


def test_managed_memory_far_apart_is_charged_for_its_tables() -> None:
    container = Mapper()
    count = container.free // tables(4096) + 5
    for i in range(count):
        assert container.tenant.mmap(container.uvm, i * APART, 4096)
    # no card is registered yet: its memory is nobody's, its tables are counted
    assert container.charged == count * tables(4096) - container.free
    for i in range(count):
        container.tenant.munmap(container.uvm, i * APART, 4096)
    assert container.charged == 0


def test_a_mapping_that_the_driver_refuses_is_not_charged() -> None:
    container = Mapper()
    container.sparse(0, 32 * GIB)
    before = container.charged
    assert container.map(APART, 16 * GIB, done=False) is Verdict.DONE
    assert container.charged == before


def test_mappings_that_threads_make_at_once_are_bounded_together() -> None:
    container = Mapper()
    length = 8 * GIB
    args = [nv.uvm_map_sparse(i * APART, length, nv.card_uuid(1)) for i in range(200)]
    calls = [container.ask(nv.UVM_MAP_SPARSE, one, device=Device.UVM) for one in args]
    begun = [call for verdict, call in calls if verdict is Verdict.FORWARD]
    assert len(begun) == (GIB - container.before + container.free) // tables(length)
    for call in begun:
        assert call.post() is Verdict.DONE
    assert container.charged == len(begun) * tables(length) - container.free


def test_a_closed_file_takes_its_tables_along() -> None:
    container = Mapper()
    assert container.sparse(0, 100 * GIB) is Verdict.DONE
    assert container.charged == tables(100 * GIB) - container.free
    container.tenant.close(container.uvm)
    assert container.charged == 0


def test_a_container_without_a_limit_pays_nothing() -> None:
    container = Mapper(None)
    assert container.sparse(0, 1 << 46) is Verdict.DONE
    assert container.charged == 0


def test_a_card_that_is_not_the_containers_is_not_mapped_on() -> None:
    container = Mapper()
    args = nv.uvm_map_sparse(0, MIB, nv.card_uuid(0))
    verdict, call = container.ask(nv.UVM_MAP_SPARSE, args, device=Device.UVM)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)
