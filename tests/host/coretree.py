# SPDX-License-Identifier: MIT
"""
A directory whose files hold what the core prints for a host: the doors' text without a door.

What a command writes there, :meth:`CoreTree.store` gives to the core, which takes or refuses it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycgpu._core import ffi, lib

GIB = 1 << 30
NAMES = {
    (lib.cgpu_node_table[node].place, ffi.string(lib.cgpu_node_table[node].name).decode()): node
    for node in range(lib.CGPU_NODE_COUNT)
}


class Container:
    """A container on all its cards; holders and statistics are by card."""

    def __init__(self, id: str, name: str, create: Any) -> None:
        self.id = id
        self.name = name
        self.create = create
        self.ledger = ffi.new("struct cgpu_ledger *")
        lib.cgpu_grants_apply(create.grant, self.ledger)
        self.holders: dict[int, list[tuple[int, int, int, bytes]]] = {}
        self.stats: dict[int, dict[str, int]] = {}
        self.parking: Any = None

    @property
    def cards(self) -> list[int]:
        return [card for card in range(lib.CGPU_MAX_CARDS) if self.create.grant[card].present]

    def hold(
        self, card: int, pid: int, inside: int, size_bytes: int, comm: str | bytes
    ) -> Container:
        """A process that has opened the card and taken memory."""
        name = comm.encode() if isinstance(comm, str) else comm
        self.holders.setdefault(card, []).append((pid, inside, size_bytes, name))
        account = self.ledger.account[card]
        account.current_bytes += size_bytes
        account.peak_bytes = max(account.peak_bytes, account.current_bytes)
        return self

    def park(self, state: str, waits: bool = False, **told: int) -> Container:
        """
        It has moved to the host, or is about to: it has no memory on a card.

        Args:
            waits: it wants to come back.
            told: more fields of struct cgpu_parking.
        """
        self.ledger.park_state = getattr(lib, f"CGPU_PARK_{state.upper()}")
        now_ns = time.monotonic_ns()
        self.wants(since_ns=now_ns, asked_ns=now_ns * waits, **told)
        for card in self.cards:
            account = self.ledger.account[card]
            account.parked_bytes, account.current_bytes = account.current_bytes, 0
        self.holders.clear()
        return self

    def wants(self, **told: int) -> Container:
        """Fields of its struct cgpu_parking."""
        self.parking = ffi.new("struct cgpu_parking *", {"count": 1, **told})
        return self

    def count(self, card: int, **stats: int) -> Container:
        """Lines that the engine adds to ``stat``."""
        self.stats.setdefault(card, {}).update(stats)
        return self


class CoreTree:
    """A host of cards, ``(total, reserved)`` bytes each, and its tree below *root*."""

    def __init__(
        self,
        root: Path,
        cards: Sequence[tuple[int, int]] = ((16 * GIB, 0),),
        *,
        version: str = "0.1.0",
        features: Sequence[str] = ("PID", "CGROUP", "EVENTS", "MEMORY"),
    ) -> None:
        self.root = root
        self.host = ffi.new("struct cgpu_host *")
        self.containers: dict[str, Container] = {}
        self.events = ""
        self.stats: dict[int, dict[str, int]] = {}
        self._version = ffi.new("char[]", version.encode())
        self._features = sum(1 << getattr(lib, f"CGPU_FEATURE_{name}") for name in features)
        for minor, (total, reserved) in enumerate(cards):
            told = ffi.new("struct cgpu_gpu *")
            told.total_bytes, told.reserved_bytes = total, reserved
            ffi.memmove(told.uuid, uuid.UUID(int=minor + 1).bytes, 16)
            lib.cgpu_card_add(self.host, minor, told)
        self.write()

    @property
    def cards(self) -> list[int]:
        return [card for card in range(lib.CGPU_MAX_CARDS) if self.host.card[card].present]

    def create(self, id: str, *clauses: str) -> Container:
        """What ``create`` in inst_ctl does; AssertionError with the errno of a refusal."""
        command = ffi.new("struct cgpu_command *")
        text = " ".join(["create", id, "pid=1", *clauses]).encode()
        error = lib.cgpu_parse_inst_ctl(text, len(text), command)
        assert not error, -error
        create = ffi.new("struct cgpu_create *", command.create)
        minor = ffi.new("uint32_t *")
        group = ffi.string(create.group).decode()
        if group not in ("", id):
            create.leader = self.containers[group].create.grant
        error = lib.cgpu_host_admit(self.host, create, minor)
        assert not error, -error
        short = ffi.new("char[65]")
        lib.cgpu_short_name(id.encode(), lib.CGPU_SHORT_ID, short)
        made = Container(id, ffi.string(short).decode(), create)
        self.containers[id] = made
        self.write()
        return made

    def destroy(self, id: str) -> None:
        """The container is gone, and its memory and weight are back."""
        create = self.containers.pop(id).create
        # NULL, too, if its leader went before it.
        group = self.containers.get(ffi.string(create.group).decode())
        leader = ffi.NULL if group is None else group.create.grant
        lib.cgpu_host_release(self.host, create.grant, leader)
        self.write()

    def store(self, path: str) -> int:
        """Give the core the text that a command has written to *path*; return 0 or the errno."""
        *above, name = path.split("/")
        card = int(above[0])
        container = next((c for c in self.containers.values() if above[1:] == [c.name]), None)
        place = lib.CGPU_PLACE_GRANT if container else lib.CGPU_PLACE_CARD
        text = (self.root / path).read_bytes()
        view = self._view(card, container)
        return int(-lib.cgpu_node_store(view, NAMES[place, name], text, len(text)))

    def write(self) -> None:
        """Bring all files up to date, and remove those of containers that are gone."""
        self.root.mkdir(exist_ok=True)
        self._fill(self.root, lib.CGPU_PLACE_ROOT, self._view())
        (self.root / "events").write_text(self.events)
        for card in self.cards:
            directory = self.root / str(card)
            directory.mkdir(exist_ok=True)
            self._fill(directory, lib.CGPU_PLACE_CARD, self._view(card))
            wanted = {c.name: c for c in self.containers.values() if card in c.cards}
            _prune(directory, wanted)
            for name, container in wanted.items():
                (directory / name).mkdir(exist_ok=True)
                self._fill(directory / name, lib.CGPU_PLACE_GRANT, self._view(card, container))
        by_id = self.root / "container"
        by_id.mkdir(exist_ok=True)
        _prune(by_id, self.containers)
        for id, container in self.containers.items():
            directory = by_id / id
            directory.mkdir(exist_ok=True)
            self._fill(directory, lib.CGPU_PLACE_CONTAINER, self._view(None, container))
            for card in container.cards:
                (directory / str(card)).mkdir(exist_ok=True)
                view = self._view(card, container)
                self._fill(directory / str(card), lib.CGPU_PLACE_GRANT, view)

    def _view(self, card: int | None = None, container: Container | None = None) -> Any:
        view = ffi.new("struct cgpu_view *")
        view.host, view.version, view.features = self.host, self._version, self._features
        kept: list[Any] = [view]
        if card is None and container is None:
            kept.append(self._away())
            view.away, view.away_count = kept[-1], len(kept[-1])
        if card is not None:
            view.minor = card
            for other in self.containers.values():
                usage = ffi.addressof(view, "usage")
                lib.cgpu_usage_add(usage, other.ledger, card)
        if container is not None:
            kept.append(ffi.new("char[]", container.id.encode()))
            view.id = kept[-1]
            view.group = container.create.group
        if container is not None and card is not None:
            view.grant = ffi.addressof(container.create.grant, card)
            view.account = ffi.addressof(container.ledger.account, card)
            view.park_state = container.ledger.park_state
            if container.parking is not None:
                view.parking = container.parking
            holders = container.holders.get(card, [])
            array = ffi.new("struct cgpu_holder[]", len(holders))
            for one, (pid, inside, size_bytes, comm) in zip(array, holders, strict=True):
                one.pid, one.container_pid, one.bytes = pid, inside, size_bytes
                ffi.memmove(one.comm, comm, min(len(comm), lib.CGPU_COMM_MAX - 1))
            view.holders, view.holder_count = array, len(holders)
            stats = container.stats.get(card, {})
            keys = [ffi.new("char[]", key.encode()) for key in stats]
            lines = ffi.new("struct cgpu_stat[]", list(zip(keys, stats.values(), strict=True)))
            view.stats, view.stat_count = lines, len(stats)
            kept += [array, lines, *keys]
        if container is None and card is not None:
            stats = self.stats.get(card, {})
            keys = [ffi.new("char[]", key.encode()) for key in stats]
            lines = ffi.new("struct cgpu_stat[]", list(zip(keys, stats.values(), strict=True)))
            view.stats, view.stat_count = lines, len(stats)
            kept += [lines, *keys]
        self._kept = kept
        return view

    def _away(self) -> Any:
        """Return what the file ``parking`` shows."""
        tenant = ffi.new("struct cgpu_tenant *")
        found = []
        for one in self.containers.values():
            tenant.ledger = one.ledger[0]
            tenant.parking = ffi.new("struct cgpu_parking *")[0]
            if one.parking is not None:
                tenant.parking = one.parking[0]
            away = ffi.new("struct cgpu_away *")
            if lib.cgpu_away_note(away, one.id.encode(), tenant):
                found.append(away[0])
        return ffi.new("struct cgpu_away[]", found)

    def _fill(self, directory: Path, place: int, view: Any) -> None:
        buffer = ffi.new("char[]", 1 << 16)
        for (where, name), node in NAMES.items():
            if where != place or node == lib.CGPU_NODE_EVENTS:
                continue
            used = lib.cgpu_node_show(view, node, buffer, 1 << 16)
            assert used >= 0, (name, used)
            (directory / name).write_bytes(ffi.buffer(buffer, used)[:])


def _prune(directory: Path, wanted: Mapping[str, object]) -> None:
    for path in directory.iterdir():
        if path.is_dir() and path.name not in wanted:
            for inner in sorted(path.rglob("*"), reverse=True):
                inner.rmdir() if inner.is_dir() else inner.unlink()
            path.rmdir()
