# SPDX-License-Identifier: MIT
"""
The ledger against a container that attacks it: calls in the driver at the same time, in any order.

A call has three moments, as with real threads: the core's ``pre``, the driver's work, the core's
``post`` (and two more if the core wants it undone). A program is a list of moments of up to
a dozen calls in flight. After each one, whatever memory the driver model holds for the container
must be charged to it, and what is charged must be within the limit.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.core import (
    CAPACITY_MAX,
    Abi,
    Device,
    Request,
    Tenant,
    Topology,
    Verdict,
    ffi,
    lib,
    round_memory,
)
from tests.core import strategies as nv
from tests.core.model import Driver

# UVM_FREE says its length, or does not
ABIS = {580: Abi("580.142"), 595: Abi("595.44.03")}
MIB = 1 << 20
LIMITS = (8 * MIB, 5 * MIB)
CARDS = len(LIMITS)
SIZES = (1, 4096, 65536, 100000, MIB, 2 * MIB, 3 * MIB, 5 * MIB)
HANDLES = (0x10, 0x11, 0x12, 0x100, 0x101, 0)
BASES = (0x1000000, 0x1400000, 0x1200000, 0x1800000)
LENGTHS = (0x100000, 0x200000, 0x400000)
MANY_IN_FLIGHT = 12

HUGE_PAGES = 3 << 23


def topology() -> Topology:
    made = Topology()
    for card in range(CARDS):
        made.add(card, uuid=nv.card_uuid(card), total_bytes=80 << 30)
    return made


TOPOLOGY = topology()


@dataclass(eq=False)
class Flight:
    """A call or a close on its way; ``next`` is its next moment, None once it has landed."""

    files: tuple[int, ...]
    next: Callable[[], Callable[..., Any] | None] | None
    lost: bool = False
    """What the driver answers does not arrive: the process is being killed."""


class World:
    """A container, a driver, and what is on its way between them.

    Every operation takes four small numbers and makes sense of them, so that any list of numbers
    is a program. ``at_once`` lands every call before the next: a program without threads.
    """

    def __init__(self, branch: int, limits: tuple[int | None, ...] = LIMITS, *,
                 at_once: bool = False, capacity_max: int = CAPACITY_MAX) -> None:  # fmt: skip
        self.branch = branch
        self.tenant = Tenant(TOPOLOGY, capacity_max)
        for card, limit in enumerate(limits):
            self.tenant.give(card, limit)
        self.limits = limits
        self.full = capacity_max < CAPACITY_MAX
        self.driver = Driver(CARDS, branch)
        self.at_once = at_once
        self.files: dict[int, Device] = {}
        self.flights: list[Flight] = []
        self.verdicts: list[Verdict] = []
        self.killed = False

    # --------------------------------------------------------------- checks

    def check(self) -> None:
        for card, limit in enumerate(self.limits):
            account = self.tenant.account(card)
            alive = self.driver.alive_bytes(card)
            assert self.killed or alive <= account.current_bytes, (
                f"card {card}: memory that nobody is charged for"
            )
            assert limit is None or account.current_bytes <= limit
            assert account.current_bytes == self.sum_of_charges(card)
            raw = self.tenant.raw
            counted = raw.ranges.tables_bytes[card] + raw.ranges.tables_bytes[lib.CGPU_MAX_CARDS]
            counted += raw.ledger.account[card].tables_promised_bytes
            assert self.killed or self.driver.table_bytes(card) <= counted, (
                f"card {card}: page tables that nobody counts"
            )

    def sum_of_charges(self, card: int) -> int:
        charges = self.tenant.raw.ledger.charges
        entries = ffi.cast("struct cgpu_charge *", charges.entries)
        # a free entry holds zeros but for its chain
        total = sum(entries[i].bytes for i in range(1, charges.touched) if entries[i].card == card)
        for file, device in self.files.items():
            raw = lib.cgpu_tenant_file(self.tenant.raw, file)
            if device is Device.UVM and raw.gpu_mask >> card & 1:
                total += raw.managed_bytes
        return int(total)

    # --------------------------------------------------------------- moving

    def land(self, flight: Flight) -> None:
        """One more moment of a call."""
        assert flight.next
        flight.next = flight.next()
        if not flight.next:
            self.flights.remove(flight)

    def launch(self, flight: Flight) -> None:
        self.flights.append(flight)
        while self.at_once and flight.next:
            self.land(flight)

    def call(self, file: int, nr: int, args: bytearray, params: bytes | bytearray = b"",
             fd_file: int = 0, take: int = 0) -> Flight | None:  # fmt: skip
        """Begin an ioctl. None: the core answered by itself."""
        if self.busy(file, closing_only=True) or len(self.flights) >= MANY_IN_FLIGHT:
            return None
        request = Request(ABIS[self.branch], self.files[file], nr, bytes(args), bytes(params))
        call = self.tenant.call(request, file, 100 + file, fd_file=fd_file)
        before = [self.tenant.account(c).current_bytes for c in range(CARDS)]
        verdict = call.pre()
        if verdict is Verdict.ANSWER:
            # as the driver, the core calls it a success to free what is not there
            assert call.status != nv.OK or request.op == lib.CGPU_OP_FREE
            assert before == [self.tenant.account(c).current_bytes for c in range(CARDS)]
            self.refused(file, nr, args, params, take, freed=call.status == nv.OK)
            return None
        assert verdict is Verdict.FORWARD

        def work() -> Callable[..., Any]:
            seen, inner = bytearray(call.args), bytearray(call.params)
            status = self.driver.ioctl(file, nr, seen, inner, take)
            nv.set32(seen, request.status_offset, status)
            return partial(settle, bytes(seen), bytes(inner))

        def settle(seen: bytes, inner: bytes) -> Callable[..., Any] | None:
            if flight.lost:
                verdict = call.unanswered()
            else:
                call.set_args(seen)
                call.set_params(inner)
                verdict = call.post(0)
            self.killed |= verdict is Verdict.KILL
            self.verdicts.append(verdict)
            return undo if verdict is Verdict.UNDO else None

        def undo() -> Callable[..., Any]:
            undo_args = call.undo_args()
            client, handle = nv.get32(undo_args, 0), nv.get32(undo_args, 8)
            # the door may free any client's object: it is not bound to a file
            if client in self.driver.clients and handle in self.driver.clients[client].objects:
                self.driver._free(client, handle)
            return undone

        def undone() -> Callable[..., Any] | None:
            return undo if call.undone() else None

        flight = Flight((file, fd_file), work)
        self.launch(flight)
        return flight

    def refused(self, file: int, nr: int, args: bytearray, params: bytes | bytearray, take: int,
                freed: bool) -> None:  # fmt: skip
        """What is never refused: in a program without threads and limits, what the driver does."""
        if self.at_once and not any(self.limits) and not self.full:
            shadow = copy.deepcopy(self.driver)
            status = shadow.ioctl(file, nr, bytearray(args), bytearray(params), take)
            changed = [shadow.alive_bytes(c) - self.driver.alive_bytes(c) for c in range(CARDS)]
            assert status != nv.OK or (freed and not any(changed)), (
                f"refused what the driver allows: {nr} {bytes(args[:48]).hex()}"
            )

    def busy(self, file: int, *, closing_only: bool = False) -> bool:
        return any(
            file in f.files and (not closing_only or isinstance(f, Closing)) for f in self.flights
        )

    # ---------------------------------------------------------- operations

    def of(self, device: Device, number: int) -> int | None:
        found = [f for f, d in self.files.items() if d is device]
        found = [f for f in found if not self.busy(f, closing_only=True)]
        return found[number % len(found)] if found else None

    def client(self, number: int) -> int:
        known = [*self.driver.clients, 0xC1D00000, 0xC1D00001]
        return known[number % len(known)]

    def file_of(self, client: int, odd: bool) -> int | None:
        """The file that a client's calls come through; ``odd``: some other."""
        found = self.driver.clients.get(client)
        if found and not odd:
            return None if self.busy(found.file, closing_only=True) else found.file
        return self.of(Device.CTL, client)

    def op_open(self, a: int, b: int, c: int, d: int) -> None:
        device = Device.UVM if a % 3 == 0 else Device.CTL
        if sum(1 for one in self.files.values() if one is device) < 3:
            try:
                file = self.tenant.open(device, 0, 100 + len(self.files))
            except MemoryError:
                assert self.full
                return
            self.files[file] = device
            self.driver.open(file, device is Device.UVM)

    def op_close(self, a: int, b: int, c: int, d: int) -> None:
        found = list(self.files)
        if not found or self.busy(found[a % len(found)]):
            return
        file = found[a % len(found)]

        def release() -> Callable[..., Any]:
            self.driver.release(file)
            return forget

        def forget() -> None:
            self.tenant.close(file)
            del self.files[file]

        self.launch(Closing((file,), release))

    def op_root(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.CTL, a)
        if file is not None:
            wanted = 0 if b % 2 else 0xC1D00000 + c % 2
            self.call(file, nv.ALLOC, nv.rm_alloc(0, 0, wanted, nv.ROOT_CLIENT))

    def op_device(self, a: int, b: int, c: int, d: int) -> None:
        client = self.client(a)
        file = self.file_of(client, False)
        if file is not None:
            params = nv.device_params(b % CARDS)
            args = nv.rm_alloc(client, client, 1 + b % CARDS, nv.DEVICE, params)
            self.call(file, nv.ALLOC, args, params)

    def op_alloc(self, a: int, b: int, c: int, d: int) -> None:
        client, size = self.client(a), SIZES[c]
        file = self.file_of(client, d == 7)
        if file is None:
            return
        attr = HUGE_PAGES if d == 6 else 0
        bound = round_memory(size, attr)
        take = (bound, -(-size // 4096) * 4096, -(-size // 65536) * 65536)[d % 3]
        params = nv.memory_params(size, attr)
        parent, new = 1 + b % CARDS, HANDLES[(b // 2 + d) % len(HANDLES)]
        if d == 5:
            args = nv.heap_alloc(client, parent, new, size, attr)
            self.call(file, nv.VID_HEAP, args, take=take)
        else:
            args = nv.rm_alloc(client, parent, new, nv.MEMORY_USER, params)
            self.call(file, nv.ALLOC, args, params, take=take)

    def handle(self, client: int, number: int) -> int:
        found = self.driver.clients.get(client)
        memory = [h for h, o in found.objects.items() if o.memory] if found else []
        known = [*memory, *HANDLES[:4]]
        return known[number % len(known)]

    def op_free(self, a: int, b: int, c: int, d: int) -> None:
        client = self.client(a)
        file = self.file_of(client, d == 7)
        if file is None:
            return
        handle = client if c == 7 else 1 + b % CARDS if c == 6 else self.handle(client, b)
        # a client by this call alone
        if d % 2 or handle == client:
            self.call(file, nv.FREE, nv.rm_free(client, handle))
        else:
            self.call(file, nv.VID_HEAP, nv.heap_free(client, handle))

    def op_dup(self, a: int, b: int, c: int, d: int) -> None:
        client, source = self.client(a), self.client(b)
        file = self.file_of(client, False)
        if file is not None:
            new = HANDLES[d % len(HANDLES)]
            args = nv.rm_dup(client, 1 + d // 6, new, source, self.handle(source, c))
            self.call(file, nv.DUP, args)

    def control(self, client: int, cmd: int, params: bytearray, fd: int) -> None:
        file = self.file_of(client, False)
        if file is not None:
            args = nv.rm_control(client, client, cmd, params)
            self.call(file, nv.CONTROL, args, params, fd_file=fd)

    def op_export(self, a: int, b: int, c: int, d: int) -> None:
        client, fd = self.client(a), self.of(Device.CTL, b)
        if fd is None:
            return
        if d % 2:
            params = nv.export_object(self.handle(client, c), fd)
            self.control(client, nv.EXPORT_OBJECT, params, fd)
        else:
            handles = [self.handle(client, c), self.handle(client, c + 1)][: 1 + d // 4]
            if c % 5 == 0:
                handles[0] = 0
            params = nv.export_objects(handles, fd, d // 2 % 3)
            self.control(client, nv.EXPORT_OBJECTS, params, fd)

    def op_import(self, a: int, b: int, c: int, d: int) -> None:
        client, fd = self.client(a), self.of(Device.CTL, b)
        if fd is None:
            return
        if d % 2:
            params = nv.import_object(1 + c % CARDS, HANDLES[d % len(HANDLES)], fd)
            self.control(client, nv.IMPORT_OBJECT, params, fd)
        else:
            wanted = (HANDLES[d % len(HANDLES)], HANDLES[c % len(HANDLES)])[: 1 + d // 4]
            params = nv.import_objects(
                1 + c % CARDS, 1 + d // 4, fd, d // 2 % 3, wanted if c % 2 else ()
            )
            self.control(client, nv.IMPORT_OBJECTS, params, fd)

    def op_register(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.UVM, a)
        if file is None:
            return
        if c % 3:
            self.call(file, nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(b % CARDS)))
        else:
            self.call(file, nv.UVM_UNREGISTER_GPU, nv.uvm_unregister_gpu(nv.card_uuid(b % CARDS)))

    def op_map(self, a: int, b: int, c: int, d: int) -> None:
        file, client = self.of(Device.UVM, a), self.client(b)
        if file is None:
            return
        uuids = [nv.card_uuid(card) for card in ((0,), (1,), (0, 1), (1, 1))[a // 2 % 4]]
        base, length = BASES[d % len(BASES)], LENGTHS[d // 4 % 2]
        args = nv.uvm_map(base, length, client, self.handle(client, c), uuids)
        self.call(file, nv.UVM_MAP_EXTERNAL, args)

    def op_sparse(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.UVM, a)
        if file is not None:
            base, length = BASES[b % len(BASES)], LENGTHS[c % len(LENGTHS)]
            args = nv.uvm_map_sparse(base, length, nv.card_uuid(d % CARDS))
            self.call(file, nv.UVM_MAP_SPARSE, args)

    def op_unmap(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.UVM, a)
        if file is None:
            return
        base, length = BASES[b % len(BASES)], LENGTHS[c % len(LENGTHS)]
        if d % 2:
            args = nv.uvm_unmap(base, length, nv.card_uuid(d // 2 % CARDS))
            self.call(file, nv.UVM_UNMAP_EXTERNAL, args)
        else:
            by_base = self.branch >= 590
            pools = self.driver.spaces[file].pools.items()
            hit = {b: n for b, n in pools if b < base + length and base < b + n}
            if self.at_once and not by_base and hit and hit != {base: length}:
                # the driver refuses it, and a pool that was to be freed counts as managed
                return
            args = nv.uvm_free_by_base(base) if by_base else nv.uvm_free(base, length)
            self.call(file, nv.UVM_FREE, args)

    def op_create(self, a: int, b: int, c: int, d: int) -> None:
        """Of no meaning before 590: the core does not look at it."""
        file = self.of(Device.UVM, a)
        if file is not None and self.branch >= 590:
            args = nv.uvm_create_external(BASES[b % len(BASES)], LENGTHS[c % len(LENGTHS)])
            self.call(file, nv.UVM_CREATE_EXTERNAL, args)

    def op_pool(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.UVM, a)
        if file is not None:
            args = nv.uvm_semaphore_pool(BASES[b % len(BASES)], LENGTHS[c % len(LENGTHS)])
            self.call(file, nv.UVM_SEMAPHORE_POOL, args)

    def op_mmap(self, a: int, b: int, c: int, d: int) -> None:
        file = self.of(Device.UVM, a)
        if file is None:
            return
        base, length = BASES[b % len(BASES)], LENGTHS[c % len(LENGTHS)]
        # both under the process's own lock, so at once as seen by each other
        self.driver.munmap(file, base, length)
        self.tenant.munmap(file, base, length)
        if d % 3 == 0:
            return
        if self.tenant.mmap(file, base, length) and not self.driver.mmap(file, base, length):
            self.tenant.munmap(file, base, length)

    def op_step(self, a: int, b: int, c: int, d: int) -> None:
        if self.flights:
            self.land(self.flights[(a + 8 * b) % len(self.flights)])

    def op_lose(self, a: int, b: int, c: int, d: int) -> None:
        if self.flights:
            self.flights[(a + 8 * b) % len(self.flights)].lost = True

    def run(self, program: list[tuple[str, int, int, int, int]]) -> None:
        for name, *numbers in program:
            if self.killed:
                break  # the whole container: nobody begins anything
            getattr(self, "op_" + name)(*numbers)
            self.check()

    def end(self) -> None:
        """Everything lands, everything is closed: nothing may be left."""
        while self.flights:
            self.land(self.flights[0])
            self.check()
        for file in list(self.files):
            self.driver.release(file)
            self.tenant.close(file)
            del self.files[file]
            self.check()
        assert not self.driver.memory
        assert [self.tenant.account(card).current_bytes for card in range(CARDS)] == [0, 0]
        assert self.tenant.idle()
        raw = self.tenant.raw
        assert (raw.ledger.charges.used, raw.objects.table.used, raw.ranges.count) == (0, 0, 0)
        assert not raw.objects.first_runnable
        assert not any(raw.ranges.tables_bytes)
        assert not any(one.tables_promised_bytes for one in raw.ledger.account)


class Closing(Flight):
    """A file on its way out: nothing more comes through it."""


OPERATIONS = {
    "open": 3, "close": 2, "root": 2, "device": 3, "alloc": 12, "free": 8, "dup": 6, "export": 5,
    "import": 5, "register": 3, "map": 12, "sparse": 2, "unmap": 5, "create": 3, "pool": 1,
    "mmap": 3, "step": 60, "lose": 2,
}  # fmt: skip
# three control files, two UVM files with both cards, a client with both devices
START = [
    *[("open", 1, 0, 0, 0)] * 3, *[("open", 0, 0, 0, 0)] * 2, ("root", 0, 1, 0, 0),
    ("root", 1, 1, 0, 0), *[("step", 0, 0, 0, 0)] * 4,
    *[("register", file, card, 1, 0) for file in (0, 1) for card in (0, 1)],
    *[("device", client, card, 0, 0) for client in (0, 1) for card in (0, 1)],
    *[("create", file, 0, 2, 0) for file in (0, 1)],
    *[("step", 0, 0, 0, 0)] * 16,
]  # fmt: skip

small = st.integers(0, 7)
weighted = [name for name, weight in OPERATIONS.items() for _ in range(weight)]
branches = st.sampled_from(sorted(ABIS))
programs = st.lists(st.tuples(st.sampled_from(weighted), small, small, small, small), max_size=60)


def random_program(rng: random.Random, steps: int) -> list[tuple[str, int, int, int, int]]:
    names = rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=steps)
    draw = partial(rng.randrange, 8)
    return [(name, draw(), draw(), draw(), draw()) for name in names]


@given(branches, programs)
def test_no_order_of_racing_calls_leaves_memory_uncharged(branch: int, program: Any) -> None:
    world = World(branch)
    world.run(START + program)
    world.end()


@pytest.mark.parametrize("branch", ABIS)
@pytest.mark.parametrize("seed", range(8))
def test_a_long_random_attack_leaves_no_memory_uncharged(seed: Any, branch: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        world = World(branch)
        world.run(START + random_program(rng, 400))
        world.end()


class OneByOne(World):
    """A program without threads: what is charged is what is there, to the byte."""

    def __init__(self, branch: int, limits: tuple[int | None, ...] = LIMITS,
                 **options: int) -> None:  # fmt: skip
        super().__init__(branch, limits, at_once=True, **options)

    def check(self) -> None:
        super().check()
        for card in range(CARDS):
            # a mapping that loses its middle, and no room for two, stays charged as a whole
            assert self.full or (
                self.tenant.account(card).current_bytes == self.driver.alive_bytes(card)
            )
        assert set(self.verdicts) <= {Verdict.DONE}


@given(branches, programs)
def test_without_threads_the_charge_is_what_is_there_and_nothing_is_undone(
    branch: int, program: Any
) -> None:
    world = OneByOne(branch)
    world.run(START + program)
    world.end()


@given(branches, programs)
def test_without_threads_and_limits_only_what_the_driver_refuses_is_refused(
    branch: int, program: Any
) -> None:
    world = OneByOne(branch, (None, None))
    world.run(START + program)
    world.end()


@pytest.mark.parametrize("branch", ABIS)
@pytest.mark.parametrize("seed", range(4))
def test_a_long_program_without_threads_is_charged_to_the_byte(seed: Any, branch: int) -> None:
    rng = random.Random(seed)
    for limits in (LIMITS, (None, None)):
        world = OneByOne(branch, limits)
        world.run(START + random_program(rng, 400))
        world.end()


# Tables of 16 entries, of which the beginning takes the most: nearly every call meets a full one.
FULL = 16


@given(branches, programs)
def test_with_full_tables_no_order_of_racing_calls_leaves_memory_uncharged(
    branch: int, program: Any
) -> None:
    world = World(branch, capacity_max=FULL)
    world.run(START + program)
    world.end()


@pytest.mark.parametrize("branch", ABIS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", [LIMITS, (None, None)])
def test_what_a_full_table_has_no_room_for_is_refused_before_the_driver_makes_it(
    seed: int, limits: tuple[int | None, ...], branch: int
) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        # its check: all that the driver did was taken down, nothing undone, nobody killed
        world = OneByOne(branch, limits, capacity_max=FULL)
        world.run(START + random_program(rng, 400))
        world.end()


#: A class that takes no video memory.
ADDRESSES = 0x50A0


def begin_naming(world: World, client: int, name: str, handle: int) -> Flight | None:
    """What takes memory by the handle of what it takes."""
    file = world.driver.clients[client].file
    if name == "duplicate":
        return world.call(file, nv.DUP, nv.rm_dup(client, 1, 0x999, client, handle))
    if name == "export":
        fd = next(f for f, d in world.files.items() if d is Device.CTL and f != file)
        params = nv.export_object(handle, fd)
        args = nv.rm_control(client, client, nv.EXPORT_OBJECT, params)
        return world.call(file, nv.CONTROL, args, params, fd_file=fd)
    uvm = next(f for f, d in world.files.items() if d is Device.UVM)
    args = nv.uvm_map(BASES[0], LENGTHS[0], client, handle, [nv.card_uuid(0)])
    return world.call(uvm, nv.UVM_MAP_EXTERNAL, args)


@pytest.mark.parametrize("chosen", [True, False], ids=["by the program", "by the driver"])
@pytest.mark.parametrize("name", ["duplicate", "export", "map"])
def test_what_was_freed_with_another_lends_its_handle_to_no_memory(name: str, chosen: bool) -> None:
    """
    The core knows virtual addresses that the driver freed with their address space; their handle
    is given to memory, while another call names it. In every order of the two calls' moments.
    """
    for order in sorted(set(itertools.permutations("AAANNN"))):
        world = World(580)
        world.run(START)
        while world.flights:
            world.land(world.flights[0])
        client, found = next(iter(world.driver.clients.items()))
        handle = 0x10 if chosen else 0x100
        made = world.call(found.file, nv.ALLOC, nv.rm_alloc(client, 1, handle, ADDRESSES))
        while made and made.next:
            world.land(made)
        world.driver._free(client, handle)

        params = nv.memory_params(MIB)
        args = nv.rm_alloc(client, 1, handle if chosen else 0, nv.MEMORY_USER, params)
        begin = {
            "A": partial(world.call, found.file, nv.ALLOC, args, params, take=MIB),
            "N": partial(begin_naming, world, client, name, handle),
        }
        flights: dict[str, Flight | None] = {}
        for call in order:
            flight = flights.get(call)
            if call not in flights:
                flights[call] = begin[call]()
            elif flight and flight.next:
                world.land(flight)
            world.check()
        while world.flights:
            world.land(world.flights[0])
            world.check()
        last = None if world.killed else world.call(found.file, nv.FREE, nv.rm_free(client, handle))
        while last and last.next:
            world.land(last)
        world.check()
        world.end()
