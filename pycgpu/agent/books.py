# SPDX-License-Identifier: MIT
"""The agent's own books of containers that move, for :mod:`pycgpu.parking`."""

from __future__ import annotations

import errno
import os

from pycgpu.agent import door
from pycgpu.parking.books import Moving, State, Wanting

_STATES = tuple(State)


class AgentBooks:
    """See :class:`pycgpu.parking.books.Books`."""

    def __init__(self) -> None:
        self._nodes = {(node.place, node.name): node.number for node in door.nodes()}

    def moving(self) -> list[Moving]:
        return [
            Moving(one.id, _STATES[one.state], one.since_ns, one.asked_ns, one.pids)
            for one in door.parking()
        ]

    def park(self, container_id: str, pids: list[int]) -> None:
        door.park_begin(container_id, pids)

    def parked(self, container_id: str) -> None:
        door.park_done(container_id)

    def come_back(self, container_id: str, foreign: dict[int, int]) -> Wanting | None:
        wanting = door.park_reserve(container_id, foreign)
        if wanting is None:
            return None
        minor, size = wanting
        return Wanting(minor if minor >= 0 else None, size)

    def running(self, container_id: str) -> None:
        door.park_end(container_id)

    def holders(self, container_id: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for minor in self._cards(container_id):
            for line in self._show("procs", minor, container_id).splitlines():
                pid, inside, size = (int(word) for word in line.split(" ", 3)[:3])
                if inside:
                    found[pid] = found.get(pid, 0) + size
        return found

    def known(self) -> dict[int, int]:
        found = {}
        for minor in door.cards():
            words = door.show(self._nodes[1, "memory"], minor).decode().split()
            told = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            found[minor] = told["reserved"] + told["used"]
        return found

    def parked_bytes(self, container_id: str) -> int:
        total = 0
        for minor in self._cards(container_id):
            words = self._show("stat", minor, container_id).split()
            total += int(dict(zip(words[::2], words[1::2], strict=True)).get("parked_bytes", 0))
        return total

    def _cards(self, container_id: str) -> tuple[int, ...]:
        for one in door.containers():
            if one.id == container_id:
                return one.cards
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), container_id)

    def _show(self, name: str, minor: int, container_id: str) -> str:
        return door.show(self._nodes[2, name], minor, container_id).decode()
