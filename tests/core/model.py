# SPDX-License-Identifier: MIT
"""
A driver in Python: who holds which physical memory, as the real one does it.

One method call is one moment: the real driver works under its own lock. It knows nothing of
containers or limits. Rules taken over from the resource manager and UVM: a handle lives in its
client, a client in the file that made it; freeing takes the subtree along; memory goes with the
last of its handles, UVM mappings and exporting files; a handle or a mapped address is not given
out twice; handles and clients are reused at once, lowest first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tests.core import strategies as nv

KIB64 = 64 << 10
#: UVM's memory of a card comes in pieces of it.
BLOCK = 2 << 20


@dataclass(eq=False)
class Physical:
    """Video memory of one card; ``holders`` keep it alive."""

    card: int
    bytes: int
    holders: set[object] = field(default_factory=set)


@dataclass(eq=False)
class Object:
    handle: int
    cls: int
    parent: int
    card: int | None
    memory: Physical | None = None


@dataclass(eq=False)
class Client:
    file: int
    objects: dict[int, Object] = field(default_factory=dict)


@dataclass(eq=False)
class Mapping:
    base: int
    length: int
    card: int
    memory: Physical | None


@dataclass
class Space:
    """The va_space of one open UVM file."""

    cards: set[int] = field(default_factory=set)
    mappings: list[Mapping] = field(default_factory=list)
    pools: dict[int, int] = field(default_factory=dict)
    externals: dict[int, int] = field(default_factory=dict)
    managed: list[tuple[int, int]] = field(default_factory=list)


class Driver:
    """
    ``files`` are the container's numbers, so that a test need not translate.

    ``branch``: from 590 on, what is mapped must lie in an external range, which UVM_FREE takes
    by its base. All branches have such ranges; before, nobody else had to know of them.
    """

    def __init__(self, cards: int, branch: int = 580) -> None:
        self.cards = cards
        self.by_base = branch >= 590
        self.clients: dict[int, Client] = {}
        self.exports: dict[int, dict[int, tuple[int, Physical | None]]] = {}
        self.spaces: dict[int, Space] = {}
        self.memory: list[Physical] = []

    # ------------------------------------------------------------ physical

    def alive_bytes(self, card: int) -> int:
        """What the card's memory holds for the container, were all managed memory there."""
        rm = sum(m.bytes for m in self.memory if m.card == card)
        blocks = {
            (file, at)
            for file, space in self.spaces.items()
            if card in space.cards
            for base, length in space.managed
            for at in range(base // BLOCK, (base + length - 1) // BLOCK + 1)
        }
        return rm + BLOCK * len(blocks)

    def table_bytes(self, card: int) -> int:
        """Page tables of UVM's mappings, of 4 KiB each: for 2 MiB, 512 MiB and 256 GiB."""
        tables = set()
        for file, space in self.spaces.items():
            mapped = [(m.base, m.length) for m in space.mappings if m.card == card]
            if card in space.cards:
                mapped += [*space.managed, *space.pools.items()]
            for base, length in mapped:
                for bits in (21, 29, 38):
                    within = range(base >> bits, (base + length - 1 >> bits) + 1)
                    tables |= {(file, bits, at) for at in within}
        return 4096 * len(tables)

    def _hold(self, memory: Physical | None, holder: object) -> None:
        if memory:
            memory.holders.add(holder)

    def _drop(self, memory: Physical | None, holder: object) -> None:
        if memory:
            memory.holders.discard(holder)
            if not memory.holders and memory in self.memory:
                self.memory.remove(memory)

    # --------------------------------------------------------------- files

    def open(self, file: int, uvm: bool) -> None:
        if uvm:
            self.spaces[file] = Space()
        else:
            self.exports[file] = {}

    def release(self, file: int) -> None:
        for handle in [h for h, c in self.clients.items() if c.file == file]:
            self._free(handle, handle)
        for place, (_, memory) in self.exports.pop(file, {}).items():
            self._drop(memory, ("export", file, place))
        space = self.spaces.pop(file, None)
        for mapping in space.mappings if space else []:
            self._drop(mapping.memory, mapping)

    # ------------------------------------------------------------- objects

    def _free(self, client: int, handle: int) -> None:
        objects = self.clients[client].objects
        for child in [o.handle for o in objects.values() if o.parent == handle]:
            if child in objects and child != handle:
                self._free(client, child)
        found = objects.pop(handle, None)
        if found:
            self._drop(found.memory, found)
        if handle == client:
            del self.clients[client]

    def _name(self, client: int, wanted: int) -> int | None:
        """The handle to use, None if it is in use."""
        objects = self.clients[client].objects
        if wanted:
            return None if wanted in objects else wanted
        return next(h for h in itertools.count(0x100) if h not in objects)

    def _find(self, file: int, client: int, handle: int) -> Object | int:
        """The object, or the status of the refusal."""
        if client not in self.clients or self.clients[client].file != file:
            return nv.INVALID_CLIENT
        return self.clients[client].objects.get(handle, nv.NOT_FOUND)

    def _new_client(self, file: int, args: bytearray) -> int:
        wanted = nv.get32(args, 8)
        handle = wanted or next(h for h in itertools.count(0xC1D00000) if h not in self.clients)
        if handle in self.clients:
            return nv.DUPLICATE_NAME
        self.clients[handle] = Client(file)
        self.clients[handle].objects[handle] = Object(handle, nv.ROOT_CLIENT, 0, None)
        nv.set32(args, 8, handle)
        return nv.OK

    def _new(self, file: int, client: int, parent: int, wanted: int, cls: int) -> Object | int:
        above = self._find(file, client, parent or client)
        if isinstance(above, int):
            return nv.INVALID_PARENT if above == nv.NOT_FOUND else above
        handle = self._name(client, wanted)
        if handle is None:
            return nv.DUPLICATE_NAME
        made = Object(handle, cls, above.handle, above.card)
        self.clients[client].objects[handle] = made
        return made

    def _alloc(self, file: int, args: bytearray, params: bytearray, take: int) -> int:
        client, parent, wanted, cls = (nv.get32(args, at) for at in (0, 4, 8, 12))
        if cls in (nv.ROOT, nv.ROOT_CLIENT):
            return self._new_client(file, args)
        made = self._new(file, client, parent, wanted, cls)
        if isinstance(made, int):
            return made
        if cls == nv.DEVICE:
            made.card = nv.get32(params, 0)
        if cls == nv.MEMORY_USER:
            self._place(made, take)
            params[64:72] = take.to_bytes(8, "little")
        nv.set32(args, 8, made.handle)
        return nv.OK

    def _place(self, made: Object, take: int) -> None:
        assert made.card is not None
        made.memory = Physical(made.card, (take + KIB64 - 1) // KIB64 * KIB64)
        self._hold(made.memory, made)
        self.memory.append(made.memory)

    def _heap(self, file: int, args: bytearray, take: int) -> int:
        client, function = nv.get32(args, 0), nv.get32(args, 8)
        if function == 3:
            return self._free_call(file, client, nv.get32(args, 44))
        made = self._new(file, client, nv.get32(args, 4), nv.get32(args, 44), nv.MEMORY_USER)
        if isinstance(made, int):
            return made
        self._place(made, take)
        nv.set32(args, 44, made.handle)
        args[88:96] = take.to_bytes(8, "little")
        return nv.OK

    def _free_call(self, file: int, client: int, handle: int) -> int:
        found = self._find(file, client, handle)
        if found == nv.NOT_FOUND:
            return nv.OK
        if isinstance(found, int):
            return found
        self._free(client, handle)
        return nv.OK

    def _dup(self, file: int, args: bytearray) -> int:
        client, parent, wanted, src_client, src = (nv.get32(args, at) for at in range(0, 20, 4))
        source = self.clients.get(src_client)
        found = source.objects.get(src) if source else None
        if not found:
            return nv.NOT_FOUND
        made = self._new(file, client, parent, wanted, found.cls)
        if isinstance(made, int):
            return made
        made.memory = found.memory
        self._hold(made.memory, made)
        nv.set32(args, 8, made.handle)
        return nv.OK

    # -------------------------------------------------------- export, import

    def _export(self, file: int, client: int, handles: list[int], fd: int, first: int) -> int:
        exports = self.exports.get(fd)
        if exports is None:
            return nv.INVALID_ARGUMENT
        found = [self._find(file, client, handle) if handle else None for handle in handles]
        if bad := [f for f in found if isinstance(f, int)]:
            return bad[0]
        for place, one in enumerate(found, first):
            assert not isinstance(one, int)
            if one:
                self._hold(one.memory, ("new export", fd, place))
            if place in exports:
                self._drop(exports.pop(place)[1], ("export", fd, place))
            if one:
                exports[place] = (one.cls, one.memory)
                self._hold(one.memory, ("export", fd, place))
                self._drop(one.memory, ("new export", fd, place))
        return nv.OK

    def _import(self, file: int, client: int, parent: int, wanted: list[int], fd: int, first: int
                ) -> int | list[int]:  # fmt: skip
        """The handles of what was made; 0 where there was nothing."""
        exports = self.exports.get(fd, {})
        handles: list[int] = []
        for place, handle in enumerate(wanted, first):
            if place not in exports:
                handles.append(0)
                continue
            cls, memory = exports[place]
            made = self._new(file, client, parent, handle, cls)
            if isinstance(made, int):
                # also what was there before, where nothing was made
                for done, asked in zip(handles, wanted, strict=False):
                    if client in self.clients and ((done or asked) in self.clients[client].objects):
                        self._free(client, done or asked)
                return made
            made.memory = memory
            self._hold(memory, made)
            handles.append(made.handle)
        return handles

    def _control(self, file: int, args: bytearray, params: bytearray) -> int:
        client, cmd = nv.get32(args, 0), nv.get32(args, 8)
        if client not in self.clients or self.clients[client].file != file:
            return nv.INVALID_CLIENT
        if cmd == nv.EXPORT_OBJECT:
            if self.exports.get(nv.get32(params, 16)):
                return nv.STATE_IN_USE
            return self._export(file, client, [nv.get32(params, 12)], nv.get32(params, 16), 0)
        if cmd == nv.EXPORT_OBJECTS:
            handles = [nv.get32(params, 76 + 4 * i) for i in range(nv.get32(params, 2124) & 0xFFFF)]
            first = nv.get32(params, 2124) >> 16
            return self._export(file, client, handles, nv.get32(params, 0), first)
        if cmd == nv.IMPORT_OBJECT:
            if 0 not in self.exports.get(nv.get32(params, 0), {}):
                return nv.NOT_FOUND
            got = self._import(
                file, client, nv.get32(params, 12), [nv.get32(params, 16)], nv.get32(params, 0), 0
            )
            if isinstance(got, list):
                nv.set32(params, 16, got[0])
            return nv.OK if isinstance(got, list) else got
        if cmd == nv.IMPORT_OBJECTS:
            count, first = nv.get32(params, 648) & 0xFFFF, nv.get32(params, 648) >> 16
            wanted = [nv.get32(params, 8 + 4 * i) for i in range(count)]
            got = self._import(
                file, client, nv.get32(params, 4), wanted, nv.get32(params, 0), first
            )
            if isinstance(got, int):
                return got
            for i, handle in enumerate(got):
                params[520 + i] = 1 if handle else 0
                if handle:
                    nv.set32(params, 8 + 4 * i, handle)
        return nv.OK

    # ------------------------------------------------------------------ UVM

    def _uvm(self, file: int, nr: int, args: bytearray) -> int:
        space = self.spaces[file]
        if nr == nv.UVM_REGISTER_GPU:
            space.cards.add(args[0] - 0x60)
        elif nr == nv.UVM_UNREGISTER_GPU:
            card = args[0] - 0x60
            if card not in space.cards:
                return nv.INVALID_DEVICE
            space.cards.discard(card)
            self._unmap(space, 0, 1 << 64, card)
        elif nr == nv.UVM_MAP_EXTERNAL:
            return self._map(space, args)
        elif nr == nv.UVM_MAP_SPARSE:
            base, length, card = nv.get64(args, 0), nv.get64(args, 8), args[16] - 0x60
            return self._map_on(space, base, length, {card}, None)
        elif nr == nv.UVM_UNMAP_EXTERNAL:
            self._unmap(space, nv.get64(args, 0), nv.get64(args, 8), args[16] - 0x60)
        elif nr == nv.UVM_SEMAPHORE_POOL:
            base, length = nv.get64(args, 0), nv.get64(args, 8)
            if self._taken(space, base, length):
                return nv.ADDRESS_IN_USE
            space.pools[base] = length
        elif nr == nv.UVM_CREATE_EXTERNAL:
            base, length = nv.get64(args, 0), nv.get64(args, 8)
            if self._taken(space, base, length):
                return nv.ADDRESS_IN_USE
            space.externals[base] = length
        elif nr == nv.UVM_FREE and self.by_base:
            base = nv.get64(args, 0)
            if base in space.pools:
                del space.pools[base]
            elif base in space.externals:
                self._unmap(space, base, space.externals.pop(base), None)
            else:
                return nv.INVALID_ADDRESS
        elif nr == nv.UVM_FREE:
            base, length = nv.get64(args, 0), nv.get64(args, 8)
            if base in space.pools:
                if space.pools[base] != length:
                    return nv.INVALID_ARGUMENT
                del space.pools[base]
            else:
                self._unmap(space, base, length, None)
        return nv.OK

    def _taken(self, space: Space, base: int, length: int) -> bool:
        used = [*space.pools.items(), *space.externals.items(), *space.managed]
        used += [(m.base, m.length) for m in space.mappings]
        return any(b < base + length and base < b + n for b, n in used)

    def _map(self, space: Space, args: bytearray) -> int:
        base, length, count = (nv.get64(args, at) for at in (0, 8, 9240))
        client, handle = nv.get32(args, 9252), nv.get32(args, 9256)
        if client not in self.clients:
            return nv.INVALID_CLIENT
        found = self.clients[client].objects.get(handle)
        if not found or not found.memory:
            return nv.NOT_FOUND
        cards = {args[24 + 36 * i] - 0x60 for i in range(count)}
        return self._map_on(space, base, length, cards, found.memory)

    def _map_on(
        self, space: Space, base: int, length: int, cards: set[int], memory: Physical | None
    ) -> int:
        if not cards <= space.cards or not cards:
            return nv.INVALID_DEVICE
        around = space.externals.items()
        if self.by_base and not any(b <= base and base + length <= b + n for b, n in around):
            return nv.INVALID_ADDRESS
        others = [*space.pools.items(), *space.managed]
        others += [(m.base, m.length) for m in space.mappings if m.card in cards]
        if any(b < base + length and base < b + n for b, n in others):
            return nv.ADDRESS_IN_USE
        for card in cards:
            mapping = Mapping(base, length, card, memory)
            self._hold(memory, mapping)
            space.mappings.append(mapping)
        return nv.OK

    def _unmap(self, space: Space, base: int, length: int, card: int | None) -> None:
        end = base + length
        for mapping in [m for m in space.mappings if card in (None, m.card)]:
            low, high = mapping.base, mapping.base + mapping.length
            if low >= end or high <= base:
                continue
            space.mappings.remove(mapping)
            for start, stop in ((low, min(base, high)), (max(end, low), high)):
                if start < stop:
                    part = Mapping(start, stop - start, mapping.card, mapping.memory)
                    self._hold(mapping.memory, part)
                    space.mappings.append(part)
            self._drop(mapping.memory, mapping)

    def mmap(self, file: int, base: int, length: int) -> bool:
        """True: mapped, as managed memory unless a pool lies there."""
        space = self.spaces[file]
        if any(b <= base and base + length <= b + n for b, n in space.pools.items()):
            return True
        if self._taken(space, base, length):
            return False
        space.managed.append((base, length))
        return True

    def munmap(self, file: int, base: int, length: int) -> None:
        left = []
        for b, n in self.spaces[file].managed:
            for start, stop in ((b, min(base, b + n)), (max(base + length, b), b + n)):
                if start < stop:
                    left.append((start, stop - start))
        self.spaces[file].managed = left

    # ---------------------------------------------------------------- entry

    def ioctl(self, file: int, nr: int, args: bytearray, params: bytearray, take: int) -> int:
        """Work on ``args`` and ``params`` in place; memory comes in ``take`` bytes. Return the
        status, which the caller writes where it belongs."""
        if file in self.spaces:
            return self._uvm(file, nr, args)
        if nr == nv.ALLOC:
            return self._alloc(file, args, params, take)
        if nr == nv.VID_HEAP:
            return self._heap(file, args, take)
        if nr == nv.FREE:
            return self._free_call(file, nv.get32(args, 0), nv.get32(args, 8))
        if nr == nv.DUP:
            return self._dup(file, args)
        if nr == nv.CONTROL:
            return self._control(file, args, params)
        if nr == nv.SHARE:
            # what is duplicated is not asked for
            found = self._find(file, nv.get32(args, 0), nv.get32(args, 4))
            return found if isinstance(found, int) else nv.OK
        raise AssertionError(f"the model has no escape {nr}")
