# SPDX-License-Identifier: MIT
"""
A door's books of containers that move, read from its tree and changed by its commands.

``kmod/core/tree/move.c`` decides each step. Pids are the host's numbers, sizes are bytes, times are
of the monotonic clock. A refusal by a door is an OSError, with the errno of ``docs/tree.md``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import Protocol

from pycgpu.parking.idle import Use
from pycgpu.tree.moving import Moving, State, parse


class Tree(Protocol):
    """The files of a door by their paths, which begin at its root."""

    def names(self, path: str) -> list[str]:
        """Return what is in a directory."""

    def text(self, path: str) -> str:
        """Return what a file says."""

    def write(self, path: str, data: bytes) -> int:
        """Write a value, or a command."""


class Files:
    """The tree of the module, below a directory."""

    def __init__(self, root: str) -> None:
        self._root = root

    def names(self, path: str) -> list[str]:
        return os.listdir(f"{self._root}/{path}")

    def text(self, path: str) -> str:
        # A tenant's thread may have any bytes as its name.
        with open(f"{self._root}/{path}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> int:
        fd = os.open(f"{self._root}/{path}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            return os.write(fd, data)
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Wanting:
    """Why a container cannot come back: ``card`` lacks bytes; None: other containers are first."""

    card: int | None
    short_bytes: int


class Books:
    """The books of one door."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        #: The text that the file last had: it is read ten times a second, and hardly ever changes.
        self._said: tuple[str, list[Moving]] = ("", [])

    def moving(self) -> list[Moving]:
        """Return the containers that are not running."""
        return [one for one in self.listed() if one.state is not State.RUNNING]

    def listed(self) -> list[Moving]:
        """Return those, and the containers that run and wait for room."""
        text = self._tree.text("parking")
        said, listed = self._said
        if text != said:
            listed = [parse(line) for line in text.splitlines()]
            self._said = text, listed
        return list(listed)

    def park(self, container_id: str, pids: list[int], hold: bool = False) -> None:
        """
        Begin to park these processes. EBUSY, EXDEV: the container is in a group, E2BIG, ENOENT.

        Args:
            hold: the container comes back on request, not when it calls CUDA.
        """
        words = ["park", container_id, f"pid={','.join(map(str, pids))}"]
        self._command(" ".join([*words, "hold=1"] if hold else words))

    def parked(self, container_id: str) -> None:
        """Nothing of the container is on a card any more. EBUSY: it was not parking."""
        self._command(f"parked {container_id}")

    def come_back(self, container_id: str, foreign: dict[int, int]) -> Wanting | None:
        """
        Reserve room for a parked container; None: it has all. EBUSY: it is not parked.

        Args:
            foreign: by card, the bytes that no container has.
        """
        words = [f"foreign={card}:{size}" for card, size in sorted(foreign.items())]
        try:
            self._command(" ".join(["return", container_id, *words]))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            found = [one for one in self.moving() if one.id == container_id]
            return Wanting(found[0].short_card, found[0].short_bytes) if found else Wanting(None, 0)
        return None

    def running(self, container_id: str) -> None:
        """The container is back, or its processes have ended: nothing is reserved any more."""
        self._command(f"running {container_id}")

    def no_room(self, container_id: str) -> None:
        """No container can be parked for its waiting call, which fails. EBUSY: no call waits."""
        self._command(f"no_room {container_id}")

    def stay(self, container_id: str) -> None:
        """The container waits no longer, and no other waits behind it. EBUSY: it does not wait."""
        self._command(f"stay {container_id}")

    def priority(self, container_id: str) -> int:
        """Return the container's highest priority on a card. ENOENT."""
        below = f"container/{container_id}"
        found = [int(self._tree.text(f"{below}/{card}/priority")) for card in self._cards(below)]
        return max(found, default=0)

    def uses(self) -> list[Use]:
        """Return the containers that run and are to be parked when they are idle."""
        found = []
        away = {one.id for one in self.moving()}
        for container_id in self._tree.names("container"):
            if container_id in away:
                continue
            # The container may go during the look.
            with contextlib.suppress(OSError):
                if (use := self._use(container_id)) is not None:
                    found.append(use)
        return found

    def _use(self, container_id: str) -> Use | None:
        below = f"container/{container_id}"
        paths = {card: f"{below}/{card}" for card in self._cards(below)}
        periods_s = [int(self._tree.text(f"{path}/idle_park_s")) for path in paths.values()]
        # A container counts as a whole: it is idle when it is idle on each of its cards.
        if not periods_s or not all(periods_s):
            return None
        first = next(iter(paths.values()))
        grouped = self._tree.text(f"{first}/group").strip() != "-"
        if grouped or self._tree.text(f"{first}/state").strip() != State.RUNNING.value:
            return None
        held, submitted, since_ns = {}, [], 0
        for card, path in paths.items():
            words = self._tree.text(f"{path}/stat").split()
            told = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            held[card] = told["current_bytes"]
            if held[card]:
                submitted.append(told.get("submitted"))
            since_ns = told.get("state_since_ns", 0)
        is_still = bool(submitted) and None not in submitted
        return Use(
            container_id,
            self.priority(container_id),
            max(periods_s),
            tuple(submitted) if is_still else None,
            held,
            since_ns,
        )

    def is_grouped(self, container_id: str) -> bool:
        """Return whether the container is served by MPS, or is the MPS server. ENOENT."""
        below = f"container/{container_id}"
        groups = {self._tree.text(f"{below}/{card}/group").strip() for card in self._cards(below)}
        return not groups <= {"-"}

    def holders(self, container_id: str) -> dict[int, int]:
        """Return the processes that have its cards open, and their bytes of all cards."""
        found: dict[int, int] = {}
        for card in self._cards(f"container/{container_id}"):
            # Only this character is in no name: splitlines() splits at others, too.
            lines = self._tree.text(f"container/{container_id}/{card}/procs").split("\n")
            for line in filter(None, lines):
                pid, inside, size = (int(word) for word in line.split(" ", 3)[:3])
                if inside:
                    found[pid] = found.get(pid, 0) + size
        return found

    def known(self) -> dict[int, int]:
        """Return by card the bytes that the driver keeps for itself and that containers have."""
        found = {}
        for card in self._cards(""):
            words = self._tree.text(f"{card}/memory").split()
            told = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            found[card] = told["reserved"] + told["used"]
        return found

    def _cards(self, path: str) -> list[int]:
        return sorted(int(name) for name in self._tree.names(path) if name.isdecimal())

    def _command(self, text: str) -> None:
        self._tree.write("inst_ctl", text.encode())
