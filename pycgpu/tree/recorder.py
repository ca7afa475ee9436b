# SPDX-License-Identifier: MIT
"""Follow a tree and record what its containers have of the cards; nothing of it is held open."""

from __future__ import annotations

import os

from ..errors import CgpuError
from . import events, procfs, snapshot, usage, usage_log
from .names import ContainerName
from .nvml import Nvml
from .usage import Reading, Spent

#: Between two readings. A container that lives shorter is recorded with its times alone.
INTERVAL_S = 10.0
#: A crash loses at most the usage of this time.
FLUSH_S = 60.0

_Key = tuple[object, ...]


class Recorder:
    """
    Adds up usage between readings, and writes the sums about every :data:`FLUSH_S` seconds.

    Args:
        root: the tree; None looks for the open door at every reading.
        prefix: root of the host's files, for the containers' names.
    """

    def __init__(
        self, writer: usage_log.Writer, root: str | None = None, *, prefix: str = "/"
    ) -> None:
        self._writer = writer
        self._root = root
        self._prefix = prefix
        self._names: dict[str, ContainerName] = {}
        self._before: dict[str, Reading] = {}
        self._pending: dict[_Key, usage_log.Line] = {}
        self._flushed_ns: int | None = None

    def sample(self, time_ns: int, clock_ns: int, boards: Nvml | None = None) -> None:
        """
        Read everything.

        Args:
            time_ns, clock_ns: now, by ``time.time_ns()`` and ``time.monotonic_ns()``.
            boards: what NVML says now; default: ask it.
        """
        try:
            root = self._root or procfs.find_root()
            taken = snapshot.take(root, boards=boards, known=self._names, prefix=self._prefix)
            readings = usage.readings(taken, time_ns, clock_ns)
            moves = self._come_and_gone(root)
        except CgpuError:
            # The door is shut; its counters start at 0 when it opens.
            self.flush()
            self._before.clear()
            return
        for after in readings:
            before = self._before.get(_place(after))
            if before is not None:
                self._add(before, after, *moves)
        self._before = {_place(one): one for one in readings}
        there = {one.id for reading in readings for one in reading.containers}
        self._names = {id: name for id, name in self._names.items() if id in there}
        if self._flushed_ns is None:
            self._flushed_ns = clock_ns
        if clock_ns - self._flushed_ns >= FLUSH_S * 1e9:
            self.flush()
            self._flushed_ns = clock_ns

    def flush(self) -> None:
        """Write what has been added up."""
        lines = list(self._pending.values())
        self._pending.clear()
        self._writer.append(lines)

    def _add(
        self,
        before: Reading,
        after: Reading,
        came: dict[str, int],
        went: dict[str, int],
        groups: dict[str, str],
    ) -> None:
        whole, parts = usage.between(before, after, came, went, groups)
        for part in (whole, *parts):
            promised = (part.core, part.memory_bytes, part.group, part.members, part.members_part)
            key = (_place(after), part.id, *promised)
            line = _line(part, before, after)
            earlier = self._pending.get(key)
            if earlier is not None:
                both = part._replace(sums=part.sums.plus(earlier.spent.sums))
                line = line._replace(from_ns=earlier.from_ns, spent=both)
            self._pending[key] = line

    def _come_and_gone(self, root: str) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
        """
        Return when containers came and went, and who their leaders are, as far as the tree
        remembers.
        """
        descriptor = procfs.open_events(root)
        try:
            lines = procfs.new_events(descriptor)
        finally:
            os.close(descriptor)
        since_ns = min((one.time_ns for one in self._before.values()), default=0)
        came: dict[str, int] = {}
        went: dict[str, int] = {}
        groups: dict[str, str] = {}
        for line in lines:
            event = events.parse(line)
            if event.time_ns is None or event.id is None or event.time_ns < since_ns:
                continue
            if event.kind in ("create", "destroy"):
                (came if event.kind == "create" else went)[event.id] = event.time_ns
                if "group" in event.values:
                    groups[event.id] = event.values["group"]
        return came, went, groups


def _line(part: Spent, before: Reading, after: Reading) -> usage_log.Line:
    """Return the line of *part*; one that only came in between ends at *after*."""
    lasted_ns = round(part.sums.seconds * 1e9)
    here = part.id is None or any(one.id == part.id for one in after.containers)
    was = part.id is None or any(one.id == part.id for one in before.containers)
    from_ns = before.time_ns if was or not here else after.time_ns - lasted_ns
    return usage_log.Line(from_ns, after.time_ns if here else from_ns + lasted_ns, part)


def _place(reading: Reading) -> str:
    return reading.uuid or str(reading.card)
