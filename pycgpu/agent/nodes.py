# SPDX-License-Identifier: MIT
"""The agent's tree of nodes by path: same names, same text as the kernel door's."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from dataclasses import dataclass

from pycgpu.agent import door

_PLACE_ROOT, _PLACE_CARD, _PLACE_GRANT, _PLACE_CONTAINER = range(4)
_CONTAINERS = "container"
_EVENT_WAIT_MS = 1000
#: The most readers of ``events`` that wait at a time: each takes one of libfuse's ten threads.
WAITERS_MAX = 4
#: The most texts kept for open files: a user may open as many as it likes.
TEXTS_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory: which kind, of which card, of which container."""

    place: int
    minor: int = -1
    container: str = ""


class Nodes:
    """Directories and files; each path is looked up anew, because containers come and go."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, str], door.Node] = {
            (node.place, node.name): node for node in door.nodes()
        }
        self._started = time.time()
        self._lock = threading.Lock()
        self._positions: dict[int, int] = {}
        self._texts: dict[int, bytes] = {}
        self._next = 1
        self._waiters = threading.Semaphore(WAITERS_MAX)

    def directory(self, path: str) -> _Place | None:
        """Return the directory at *path*; None: there is none (``/container`` is one too)."""
        words = [word for word in path.split("/") if word]
        if not words:
            return _Place(_PLACE_ROOT)
        if words[0] == _CONTAINERS and len(words) in (2, 3):
            for found in door.containers():
                if found.id != words[1]:
                    continue
                if len(words) == 2:
                    return _Place(_PLACE_CONTAINER, container=found.id)
                if words[2] in map(str, found.cards):
                    return _Place(_PLACE_GRANT, int(words[2]), found.id)
            return None
        if words[0] not in map(str, door.cards()):
            return None
        minor = int(words[0])
        if len(words) == 1:
            return _Place(_PLACE_CARD, minor)
        if len(words) == 2:
            for found in door.containers():
                if found.name == words[1] and minor in found.cards:
                    return _Place(_PLACE_GRANT, minor, found.id)
        return None

    def file(self, path: str) -> tuple[door.Node, _Place] | None:
        """Return the file at *path* and its directory; None: there is none."""
        parent, _, name = path.rpartition("/")
        place = self.directory(parent)
        node = self._nodes.get((place.place, name)) if place else None
        return (node, place) if node and place else None

    def names(self, path: str) -> list[str]:
        """Return the names in the directory at *path*."""
        if path.strip("/") == _CONTAINERS:
            return [found.id for found in door.containers()]
        place = self.directory(path)
        if place is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        found = [name for kind, name in self._nodes if kind == place.place]
        if place.place == _PLACE_ROOT:
            found += [_CONTAINERS, *map(str, door.cards())]
        elif place.place == _PLACE_CARD:
            found += [c.name for c in door.containers() if place.minor in c.cards]
        elif place.place == _PLACE_CONTAINER:
            found += [str(m) for c in door.containers() if c.id == place.container for m in c.cards]
        return found

    def attributes(self, path: str) -> dict[str, int]:
        """Return what ``stat`` shows."""
        mode, links = 0, 1
        if path.strip("/") == _CONTAINERS or self.directory(path) is not None:
            mode, links = stat.S_IFDIR | 0o555, 2
        else:
            found = self.file(path)
            if found is None:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            mode = stat.S_IFREG | found[0].mode
        return {
            "st_mode": mode,
            "st_nlink": links,
            "st_uid": 0,
            "st_gid": 0,
            "st_size": 0,
            "st_mtime": int(self._started),
            "st_ctime": int(self._started),
            "st_atime": int(self._started),
        }

    def open(self, path: str) -> int:
        """Return a handle; a reader of ``events`` starts at its first line."""
        if self.file(path) is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        with self._lock:
            handle = self._next
            self._next += 1
            self._positions[handle] = 0
        return handle

    def release(self, handle: int) -> None:
        with self._lock:
            self._positions.pop(handle, None)
            self._texts.pop(handle, None)

    def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        """
        Return the file's bytes; ``events`` waits for a line, for a second at a time.

        If too many readers wait already, it does not wait. All pieces of a file come from the text
        at the first read, as in /proc. Otherwise a counter that grows by a digit would be read
        twice in part. If very many files are open, the oldest text is dropped.
        """
        found = self.file(path)
        if found is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        node, place = found
        if node.name == "events" and node.place == _PLACE_ROOT:
            return self._events(size, handle)
        with self._lock:
            text = self._texts.get(handle) if offset else None
        if text is None:
            text = door.show(node.number, place.minor, place.container)
            with self._lock:
                self._texts.pop(handle, None)
                self._texts[handle] = text
                if len(self._texts) > TEXTS_MAX:
                    # the text that was read first
                    del self._texts[next(iter(self._texts))]
        return text[offset : offset + size]

    def text(self, path: str) -> str:
        """Return all that a file says now. OSError ENOENT: there is none."""
        found = self.file(path)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        node, place = found
        # A tenant's thread may have any bytes as its name.
        return door.show(node.number, place.minor, place.container).decode(errors="replace")

    def _events(self, size: int, handle: int) -> bytes:
        start = self._positions.get(handle, 0)
        waits = self._waiters.acquire(blocking=False)
        try:
            self._positions[handle], lines = door.events(
                start, size, _EVENT_WAIT_MS if waits else 0
            )
        finally:
            if waits:
                self._waiters.release()
        return lines

    def write(self, path: str, data: bytes) -> int:
        """Write a file, or run a command of inst_ctl."""
        found = self.file(path)
        if found is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        node, place = found
        if node.name == "inst_ctl":
            door.command(data)
        else:
            door.store(node.number, data, place.minor, place.container)
        return len(data)
