# SPDX-License-Identifier: MIT
"""
Every order in which few containers allocate, free, park, resume, die and begin again.

Each state that a card can come to is visited once, and in it all is done that can be done next.
Two are the same if neither the core's books nor what is really on the card differ but in times.
Random orders of larger containers are in ``test_parking.py``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from pycgpu.core import Tenant, Topology, ffi, lib
from tests.core.parking_card import (
    CARD,
    MIB,
    OTHER,
    OWN,
    PARKED,
    PARKING,
    RESUMING,
    RUNNING,
    Card,
    One,
)  # fmt: skip

Step = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """One container that may be there: its priority, and the most pieces that it may have."""

    priority: int = 0
    own: int = 1
    other: int = 0


#: What a container is in: the core's part of it, and the model's.
Kept = tuple[bytes, bytes, list[int], list[int], list[int], int]


class Orders(Card):
    """A card on which every step is one of few, and which can be put back to where it was."""

    def __init__(self, places: list[Place], piece: int, foreign: int, overcommit_ratio: int):
        super().__init__(0, overcommit_ratio)
        self.piece, self.foreigns = piece, (0, foreign)
        self.places: dict[str, Place] = {}
        self.all: dict[str, One] = {}
        for number, place in enumerate(places):
            # Whoever has another process beside the parked one has a limit, which bounds the rest.
            limit = (place.own + place.other) * piece if place.other else None
            one = self.make(f"c{number}", place.priority, limit)
            self.places[one.id], self.all[one.id] = place, one
        self.fresh = {id: self.kept(one) for id, one in self.all.items()}

    @staticmethod
    def make(id: str, priority: int, limit: int | None) -> One:
        tenant = Tenant(Topology(), capacity_max=16)
        tenant.give(0, limit)
        one = One(tenant, limit, priority=priority, id=id)
        one.grants = ffi.new("struct cgpu_grant[]", lib.CGPU_MAX_CARDS)
        one.grants[0] = {"present": True, "priority": priority}
        return one

    # ---- going back

    @staticmethod
    def kept(one: One) -> Kept:
        raw, charges = one.tenant.raw, one.tenant._storage[lib.CGPU_TABLE_CHARGES]
        return (
            bytes(ffi.buffer(raw)), bytes(ffi.buffer(charges)),
            list(one.own), list(one.other), list(one.pieces), one.asked,
        )  # fmt: skip

    @staticmethod
    def put_back(one: One, kept: Kept) -> None:
        raw, charges, own, other, pieces, one.asked = kept
        ffi.memmove(one.tenant.raw, raw, len(raw))
        ffi.memmove(one.tenant._storage[lib.CGPU_TABLE_CHARGES], charges, len(charges))
        one.own[:], one.other[:], one.pieces[:] = own, other, pieces

    def keep(self) -> Any:
        return self.foreign, self.clock, {one.id: self.kept(one) for one in self.ones}

    def go_back(self, kept: Any) -> None:
        self.foreign, self.clock, ones = kept
        self.ones = [self.all[id] for id in ones]
        for one in self.ones:
            self.put_back(one, ones[one.id])

    def key(self) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """What makes a state another one. Those of the same kind of place are alike."""
        asked = sorted(one.asked for one in self.ones if one.asked)
        ones = [
            (
                self.places[one.id].priority,
                one.state,
                len(one.own), len(one.other), len(one.pieces),
                one.account.current_bytes, one.account.parked_bytes, one.account.slack_bytes,
                asked.index(one.asked) if one.asked else -1,
            )
            for one in self.ones
        ]  # fmt: skip
        return self.foreign, tuple(sorted(ones))

    # ---- what can be done

    def steps(self) -> Iterator[Step]:
        for one in self.all.values():
            if one not in self.ones:
                yield partial(self.begin, one)
                continue
            place, pieces = self.places[one.id], len(one.own) + len(one.pieces)
            yield partial(self.ones.remove, one)
            if one.other:
                yield partial(self.let_go, one, one.other)
            if len(one.other) < place.other:
                yield partial(self.take, one, OTHER)
            if one.own or one.pieces:
                # Its container does not end with it, if another process is in it.
                yield partial(self.die, one)
            if one.state == RUNNING:
                if pieces < place.own:
                    yield partial(self.take, one, OWN)
                if one.own:
                    yield partial(self.let_go, one, one.own)
                yield partial(self.command, f"park {one.id} pid={OWN}")
            elif one.state == PARKING:
                yield partial(self.come_back, one)
                yield partial(self.leave, one)
            elif one.state == PARKED:
                yield partial(self.ask, one)
                if not one.pieces:
                    yield partial(self.end, one)
            elif one.pieces:
                yield partial(self.arrive, one)
            else:
                yield partial(self.end, one)
        for foreign in self.foreigns:
            reserved = sum(lib.cgpu_parking_reserved(ffi.addressof(o.ledger), 0) for o in self.ones)
            grows = foreign - self.foreign
            if grows and grows <= self.really_free() - reserved:
                yield partial(setattr, self, "foreign", foreign)

    def begin(self, one: One) -> None:
        self.put_back(one, self.fresh[one.id])
        self.ones.append(one)

    def take(self, one: One, pid: int) -> None:
        if self.piece > self.really_free() and not self.overcommitted:
            return
        index = self.allocate(one, self.piece, pid)
        if index is not None:
            (one.own if pid == OWN else one.other).append(index)

    def let_go(self, one: One, pieces: list[int]) -> None:
        one.free(pieces.pop())

    def die(self, one: One) -> None:
        """Its parked process goes, and what it had; whoever moves it may not know yet."""
        while one.own:
            one.free(one.own.pop())
        one.pieces.clear()

    def leave(self, one: One) -> None:
        if one.own:
            one.pieces.append(one.free(one.own.pop()))
        else:
            assert self.command(f"parked {one.id}") == 0

    def arrive(self, one: One) -> None:
        """One piece, charged first for more than it takes."""
        self.bring(one, one.pieces.pop(), 8 * MIB)

    def ask(self, one: One) -> None:
        one.asked = one.asked or self.clock + 1
        queue = [o for o in self.ones if o.state == PARKED and o.asked]
        first = min(queue, key=lambda o: (-o.priority, o.asked))
        left = lib.cgpu_room_left(ffi.addressof(self.rooms(), 0))
        parked = one.account.parked_bytes
        slack = parked and lib.CGPU_RETURN_SLACK_BYTES + (parked >> lib.CGPU_RETURN_SLACK_SHIFT)
        # Who had nearly all of the card would wait for its slack for ever.
        needed = parked + slack if parked + slack <= CARD else min(parked, CARD)
        comes_back = one is first and needed <= left
        err = self.command(f"return {one.id} foreign=0:{self.foreign}")
        assert err == (0 if comes_back else errno.EAGAIN)
        assert one.state == (RESUMING if comes_back else PARKED)

    # ---- what must hold in each state

    def check(self) -> None:
        self.nothing_is_forgotten()
        moves = [one for one in self.ones if one.state in (PARKING, RESUMING)]
        assert self.really_free() >= sum(sum(one.pieces) for one in moves), "it is reserved"
        for one in self.ones:
            if one.state == RUNNING:
                assert not one.pieces, "a process was not brought back"

    def each_comes_back_once_it_is_alone(self) -> None:
        kept = self.keep()
        for id in [one.id for one in self.ones if one.state != RUNNING]:
            one = self.all[id]
            had = len(one.own) + len(one.pieces)
            self.ones, self.foreign = [one], 0
            if one.state == PARKED:
                assert self.command(f"return {id} foreign=0:0") == 0, "it waits for nothing"
            self.come_back(one)
            assert (one.state, len(one.own)) == (RUNNING, had)
            assert one.account.current_bytes == one.used
            self.go_back(kept)


FEW = [Place(own=2, other=1), Place(own=2, other=1)]
MANY = [Place(), Place(), Place(priority=1)]
WHOLE = [Place(), Place(own=2)]


@pytest.mark.parametrize("overcommit_ratio", [100, 300])
@pytest.mark.parametrize(
    ("places", "piece", "foreign"),
    [
        (FEW, 900 * MIB, 0),
        (MANY, 1500 * MIB, 1500 * MIB),
        (WHOLE, CARD // 2, 0),
    ],
    ids=["pieces", "queue", "whole"],
)
def test_in_every_order_whoever_comes_back_finds_all_its_room(
    places: list[Place], piece: int, foreign: int, overcommit_ratio: int
) -> None:
    assert 2 * piece <= CARD < sum(place.own + place.other for place in places) * piece
    card = Orders(places, piece, foreign, overcommit_ratio)
    seen, left, taken = {card.key()}, [card.keep()], 0
    while left:
        kept = left.pop()
        card.go_back(kept)
        for step in list(card.steps()):
            step()
            taken += 1
            card.check()
            if (key := card.key()) not in seen:
                seen.add(key)
                left.append(card.keep())
                card.each_comes_back_once_it_is_alone()
            card.go_back(kept)
    print(f"{len(seen)} states, {taken} steps")
    states = {state for _, ones in seen for _, state, *_ in ones}
    assert states == {RUNNING, PARKING, PARKED, RESUMING}
