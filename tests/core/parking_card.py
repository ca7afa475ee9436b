# SPDX-License-Identifier: MIT
"""
The card itself: what every process really has there, whatever the ledger says.

Whoever plays on it calls the core as a door does, and finds an error of the core as an assertion.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import Any

from pycgpu.core import MAX_CARDS, Tenant, Topology, ffi, lib
from pycgpu.tree.moving import Moving, State, parse

MIB = 1 << 20
#: Slack is 32 MiB and 1/256: a card is large beside it.
CARD = 4096 * MIB
RUNNING, PARKING, PARKED, RESUMING = range(4)
OWN, OTHER = 100, 200
SECOND = 10**9


@dataclass
class One:
    """A container, and what its processes have: of the one that is parked, and of another."""

    tenant: Tenant
    limit: int | None
    own: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)  # on the host
    waits: list[tuple[Any, int]] = field(default_factory=list)  # calls of the other, for so much
    priority: int = 0
    asked: int = 0
    id: str = "one"
    grants: Any = None
    pid: int = OWN

    @property
    def ledger(self) -> Any:
        return self.tenant.raw.ledger

    @property
    def account(self) -> Any:
        return self.ledger.account[0]

    @property
    def state(self) -> int:
        return int(self.ledger.park_state)

    def charge(self, size: int, pid: int) -> int | None:
        """Charge as a call of *pid* does; None: refused."""
        index = ffi.new("uint32_t *")
        lib.cgpu_tenant_enter(self.tenant.raw, pid)
        err = lib.cgpu_charge_new(ffi.addressof(self.ledger), 0, size, pid, index)
        lib.cgpu_tenant_leave(self.tenant.raw)
        assert err in (0, -errno.ENOSPC)
        return None if err else index[0]

    def settle(self, index: int, size: int) -> None:
        lib.cgpu_tenant_enter(self.tenant.raw, self.pid)
        assert lib.cgpu_charge_settle(ffi.addressof(self.ledger), index, size) == 0
        lib.cgpu_tenant_leave(self.tenant.raw)

    def size(self, index: int) -> int:
        return int(lib.cgpu_charge_at(ffi.addressof(self.ledger), index).bytes)

    def free(self, index: int) -> int:
        size = self.size(index)
        lib.cgpu_charge_put(ffi.addressof(self.ledger), index)
        return size

    @property
    def used(self) -> int:
        return sum(map(self.size, [*self.own, *self.other]))


class Card:
    """One card; limits add up to more than it has, so that room is short."""

    def __init__(self, seed: int, overcommit_ratio: int = 100) -> None:
        self.random = random.Random(seed)
        self.ones: list[One] = []
        self.foreign = 0
        self.clock = 0
        self.made = 0
        self.host = ffi.new("struct cgpu_host *")
        self.host.topology.gpu[0].total_bytes = CARD
        self.host.card[0].overcommit_ratio = overcommit_ratio
        self.lines: list[str] = []
        self.took_ns = 0

    def command(self, text: str) -> int:
        """Have a step decided, as a door does it; return its errno."""
        command = ffi.new("struct cgpu_command *")
        assert lib.cgpu_parse_inst_ctl(text.encode(), len(text), command) == 0, text
        assert command.verb == lib.CGPU_VERB_MOVE
        name = ffi.string(command.create.id).decode()
        one = next(one for one in self.ones if one.id == name)
        moving = ffi.new("struct cgpu_moving *")
        ffi.memmove(moving, b"\xa5" * ffi.sizeof(moving[0]), ffi.sizeof(moving[0]))
        move = ffi.addressof(command, "move")
        raw = one.tenant.raw
        lib.cgpu_moving_begin(moving, move, self.host, raw, one.grants, self.now())
        for other in self.ones:
            lib.cgpu_moving_beside(moving, other.tenant.raw, other.grants, False)
        line = ffi.new("char[]", b"\xa5" * lib.CGPU_MOVE_LINE)
        result = lib.cgpu_moving_end(moving, raw, name.encode(), self.now(), line)
        self.lines.append(ffi.string(line).decode())
        self.took_ns = moving.took_ns
        return int(-result)

    def line(self, one: One) -> str:
        """What the file `parking` says of a container; "": nothing."""
        view = ffi.new("struct cgpu_view *")
        away = ffi.new("struct cgpu_away *")
        if not lib.cgpu_away_note(away, one.id.encode(), one.tenant.raw):
            return ""
        view.away, view.away_count = away, 1
        text = ffi.new("char[4096]")
        used = lib.cgpu_node_show(view, lib.CGPU_NODE_PARKING, text, 4096)
        assert used > 0
        return bytes(ffi.buffer(text, used)).decode()

    def shown(self, one: One) -> Moving | None:
        said = self.line(one)
        return parse(said.removesuffix("\n")) if said else None

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def rooms(self) -> Any:
        self.host.card[0].foreign_bytes = self.foreign
        rooms = ffi.new("struct cgpu_room[]", MAX_CARDS)
        lib.cgpu_rooms_begin(rooms, self.host)
        for one in self.ones:
            lib.cgpu_room_add(rooms, one.tenant.raw)
        return rooms

    def really_free(self) -> int:
        return CARD - self.foreign - sum(one.used for one in self.ones)

    def allocate(self, one: One, size: int, pid: int) -> int | None:
        """Take memory as a door lets a process do it: the ledger first, and then the driver."""
        lib.cgpu_rooms_limit(self.rooms(), ffi.addressof(one.ledger))
        free = self.really_free()
        if size > free and pid != one.pid and not self.overcommitted:
            return None
        index = one.charge(size, pid)
        assert index is None or size <= free or pid == one.pid, "the ledger gave what is not there"
        return index

    def create(self) -> None:
        limit, priority = self.random.choice([1024, 3072, 4096, None]), self.random.randint(0, 2)
        if len(self.ones) < 3:
            tenant = Tenant(Topology(), capacity_max=1024)
            tenant.give(0, None if limit is None else limit * MIB)
            self.made += 1
            one = One(tenant, limit and limit * MIB, priority=priority, id=f"c{self.made}")
            one.grants = ffi.new("struct cgpu_grant[]", MAX_CARDS)
            one.grants[0] = {"present": True, "priority": priority}
            self.ones.append(one)

    def grow(self) -> None:
        size = self.random.choice([1, 300, 1000, 2000, 3000])
        one = self.random.choice(self.ones)
        pid = OTHER if one.state != RUNNING else self.random.choice([OWN, OTHER])
        if size * MIB <= self.really_free() or (self.overcommitted and one.state == RUNNING):
            index = self.allocate(one, size * MIB, pid)
            if index is not None:
                (one.own if pid == OWN else one.other).append(index)
            elif pid == OTHER:
                self.wait(one, ffi.new("struct cgpu_wait *"), size)

    def wait(self, one: One, wait: Any, size: int) -> None:
        """A call that was refused waits, if it is room that is short."""
        shortage = ffi.addressof(one.ledger, "shortage")
        waits = lib.cgpu_wait_begin(wait, one.tenant.raw, shortage, self.now())
        assert not waits or self.overcommitted or self.reserves()
        if waits:
            one.waits.append((wait, size))

    @property
    def overcommitted(self) -> bool:
        return bool(lib.cgpu_host_is_overcommitted(self.host))

    def reserves(self) -> bool:
        return any(lib.cgpu_parking_moves(ffi.addressof(one.ledger)) for one in self.ones)

    def ask_again(self) -> None:
        """A call that waits is judged again, once it is told to be."""
        one = self.random.choice([o for o in self.ones if o.waits])
        wait, size = one.waits.pop(self.random.randrange(len(one.waits)))
        if self.random.random() < 0.1:
            self.clock += 61 * SECOND
        lib.cgpu_rooms_limit(self.rooms(), ffi.addressof(one.ledger))
        if lib.cgpu_wait_goes_on(wait, one.tenant.raw, self.now()):
            one.waits.append((wait, size))
            return
        refused_by_driver = size * MIB > self.really_free() and not self.overcommitted
        index = self.allocate(one, size * MIB, OTHER)
        if index is not None:
            one.other.append(index)
        elif not refused_by_driver:
            self.wait(one, wait, size)

    def the_caller_dies(self) -> None:
        """Who waits is killed, and with it goes its wish."""
        one = self.random.choice([o for o in self.ones if o.waits])
        wait, _ = one.waits.pop(self.random.randrange(len(one.waits)))
        lib.cgpu_wait_end(wait, one.tenant.raw)

    def nobody_can_be_parked(self) -> None:
        one = self.random.choice([o for o in self.ones if o.waits])
        wants = one.tenant.raw.parking.want_bytes
        assert self.command(f"no_room {one.id}") == (0 if wants else errno.EBUSY)

    def shrink(self) -> None:
        one = self.random.choice(self.ones)
        mine = one.other if one.state != RUNNING else self.random.choice([one.own, one.other])
        if mine:
            one.free(mine.pop())

    def others_come_and_go(self) -> None:
        """Who is in no container takes what is nobody's, and not what is reserved."""
        size = self.random.randint(0, 1000)
        free = self.really_free() + self.foreign
        reserved = sum(lib.cgpu_parking_reserved(ffi.addressof(o.ledger), 0) for o in self.ones)
        self.foreign = max(0, min(size * MIB, free - reserved))

    def park(self) -> None:
        one = self.random.choice(self.ones)
        was = one.state
        hold = self.random.choice(["", " hold=1"])
        err = self.command(f"park {one.id} pid={OWN}{hold}")
        if not err:
            shown = self.shown(one)
            assert shown is not None and shown.held == bool(hold)
        assert err == (0 if was == RUNNING else errno.EBUSY)

    def park_at_once(self) -> None:
        one = self.random.choice([o for o in self.ones if o.state == RUNNING and o.own])
        assert self.command(f"park {one.id} pid={OWN}") == 0
        while one.own:
            one.pieces.append(one.free(one.own.pop()))
        assert self.command(f"parked {one.id}") == 0

    def leave_the_card(self) -> None:
        """The driver frees one piece after another; what has failed goes back to its place."""
        one = self.random.choice([o for o in self.ones if o.state == PARKING])
        if one.own:
            one.pieces.append(one.free(one.own.pop()))
        elif self.random.random() < 0.3:
            self.come_back(one)
        else:
            assert self.command(f"parked {one.id}") == 0

    def resume(self) -> None:
        one = self.random.choice([o for o in self.ones if o.state == PARKED])
        one.asked = one.asked or self.clock + 1
        queue = [o for o in self.ones if o.state == PARKED and o.asked]
        first = min(queue, key=lambda o: (-o.priority, o.asked))
        left = lib.cgpu_room_left(ffi.addressof(self.rooms(), 0))
        err = self.command(f"return {one.id} foreign=0:{self.foreign}")
        if not err:
            assert one.state == RESUMING
            assert one is first
            return
        assert err == errno.EAGAIN
        found = self.shown(one)
        assert found is not None
        assert (found.state, found.asked_ns) == (State.PARKED, one.asked)
        if found.short_card is None:
            assert one is not first
        else:
            assert one is first
            assert found.short_bytes > 0
            assert left + found.short_bytes >= sum(one.pieces)

    def return_to_the_card(self) -> None:
        """In another order, and charged first for more than it takes."""
        one = self.random.choice([o for o in self.ones if o.state == RESUMING])
        if one.pieces:
            self.random.shuffle(one.pieces)
            self.bring(one, one.pieces.pop(), self.random.randint(0, 8) * MIB)
        else:
            self.end(one)

    def end(self, one: One) -> None:
        one.asked = 0
        assert self.command(f"running {one.id}") == 0

    def bring(self, one: One, size: int, over: int) -> None:
        assert size <= self.really_free(), "the driver found no room"
        index = self.allocate(one, size + over, one.pid)
        assert index is not None, "the ledger refused what was reserved"
        one.settle(index, size)
        one.own.append(index)

    def come_back(self, one: One) -> None:
        while one.pieces:
            self.bring(one, one.pieces.pop(), 0)
        self.end(one)

    def the_parked_process_dies(self) -> None:
        one = self.random.choice([o for o in self.ones if o.state == PARKED])
        one.pieces.clear()
        self.end(one)

    def kill(self) -> None:
        self.ones.remove(self.random.choice(self.ones))

    def set_limit(self) -> None:
        """A limit never goes below what a container has, on the card or parked."""
        size = self.random.randint(1, 4096)
        one = self.random.choice(self.ones)
        if one.limit is None:
            return
        host = ffi.new("struct cgpu_host *")
        host.card[0].allocated_bytes = one.limit
        grant = ffi.new("struct cgpu_grant *", {"present": True, "mem_bytes": one.limit})
        account = ffi.addressof(one.ledger.account, 0)
        err = lib.cgpu_grant_set_memsize(host, 0, grant, account, size * MIB)
        has = one.used + sum(one.pieces)
        assert (err == 0) <= (size * MIB >= has)
        if not err:
            one.limit = size * MIB

    def the_card_has_what_is_on_it_and_what_is_reserved(self) -> None:
        reserved = sum(
            lib.cgpu_parking_reserved(ffi.addressof(o.ledger), 0) - o.account.slack_bytes
            for o in self.ones
        )
        assert self.really_free() >= reserved

    def nothing_is_forgotten(self) -> None:
        for one in self.ones:
            account = one.account
            assert account.current_bytes == one.used
            assert account.parked_bytes >= sum(one.pieces)
            if one.limit is not None:
                # Of what a return was charged too much at first, a part was of its slack.
                slack = lib.CGPU_RETURN_SLACK_BYTES + (one.limit >> lib.CGPU_RETURN_SLACK_SHIFT)
                over = slack if one.state == RESUMING else 0
                assert account.current_bytes + account.parked_bytes <= one.limit + over
            if not one.waits:
                assert one.tenant.raw.parking.want_bytes == 0, "nobody waits for that"
            if one.state == RUNNING and not one.waits:
                assert account.parked_bytes == account.slack_bytes == 0
                assert self.shown(one) is None

    def step(self) -> None:
        """Do one thing that can be done now; each kind as often as the others."""
        states = {one.state for one in self.ones}
        able = [self.create]
        if self.ones:
            able += [self.grow, self.grow, self.grow, self.shrink, self.park, self.set_limit]
            able += [self.others_come_and_go]
        if any(one.state == RUNNING and one.own for one in self.ones):
            able += [self.park_at_once]
        if any(one.waits for one in self.ones):
            able += [self.ask_again] * 3 + [self.the_caller_dies, self.nobody_can_be_parked]
        if PARKING in states:
            able += [self.leave_the_card] * 3
        if PARKED in states:
            able += [self.resume] * 2
        if RESUMING in states:
            able += [self.return_to_the_card] * 3
        if self.random.random() < 0.03:
            able = [self.kill] if self.ones else able
            able += [self.the_parked_process_dies] if PARKED in states else []
        self.random.choice(able)()
        self.the_card_has_what_is_on_it_and_what_is_reserved()
        self.nothing_is_forgotten()
