# SPDX-License-Identifier: MIT
"""
The record of what containers had of cards, on disk: a file a day, a line of JSON a container.

The files are only appended to, and flushed to the disk. A reader skips a line that a crash cut
short, and the next writer ends it. Durations are by the monotonic clock. The wall clock's times
only say when; where they do not fit the duration, the end counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import CgpuError
from .usage import Spent, Sums

DIRECTORY = "/var/lib/cgpu/usage"
#: Days that a file is kept.
KEPT_DAYS = 400
_DAY_S = 86400
#: Of how much more or less than a line's length its two times may be apart.
_TOLERANCE_S = 2.0


class Line(NamedTuple):
    """What one container, or a whole card, had between two times of the wall clock, in ns."""

    from_ns: int
    to_ns: int
    spent: Spent


class Writer:
    """
    Appends to the record in *directory*, alone.

    Raises:
        CgpuError: another one does, or the directory cannot be written.
    """

    def __init__(self, directory: str = DIRECTORY) -> None:
        self._top = Path(directory)
        try:
            self._top.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CgpuError(f"{directory} is being written by another recorder") from None
        except OSError as error:
            raise CgpuError(f"{directory}: {error.strerror}; recording takes root") from None

    def close(self) -> None:
        """Let another one write."""
        os.close(self._lock)

    def append(self, lines: Iterable[Line]) -> None:
        """Write *lines* to the file of the day on which the first of them ends."""
        found = list(lines)
        if not found:
            return
        text = "".join(_text(line) for line in found)
        path = self._top / f"{_day(found[0].to_ns)}.jsonl"
        is_new = not path.exists()
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    text = "\n" + text
                data = text.encode()
                while data:
                    data = data[os.write(fd, data) :]
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise CgpuError(f"{path}: {error.strerror}") from None
        if is_new:
            os.fsync(self._lock)
            self._forget(found[0].to_ns)

    def _forget(self, now_ns: int) -> None:
        oldest = _day(now_ns - KEPT_DAYS * _DAY_S * 10**9)
        for path in self._top.glob("????-??-??.jsonl"):
            if path.stem < oldest:
                path.unlink(missing_ok=True)


def load(directory: str, since_ns: int, until_ns: int) -> Iterator[Line]:
    """
    Yield the records between two times; of one that overlaps them in part, only that part.

    Raises:
        CgpuError: there is no record, or this user may not read it.
    """
    try:
        paths = sorted(
            name for name in os.listdir(directory) if len(name) == 16 and name.endswith(".jsonl")
        )
    except FileNotFoundError:
        raise CgpuError(
            f"{directory}: nothing was recorded; `cgpu usage --record`, as"
            " cgpu-usage.service does, records"
        ) from None
    except OSError as error:
        raise CgpuError(f"{directory}: {error.strerror}; the record is root's") from None
    # A line stands in the file of the day on which it ends, by a clock that may have been set.
    first, last = _day(since_ns - _DAY_S * 10**9), _day(until_ns + _DAY_S * 10**9)
    for name in paths:
        if not first <= name[:10] <= last:
            continue
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
            for text in file:
                line = _parse(text)
                cut = None if line is None else _cut(line, since_ns, until_ns)
                if cut is not None:
                    yield cut


def _day(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_ns / 1e9))


def _text(line: Line) -> str:
    found = {"from_ns": line.from_ns, "to_ns": line.to_ns, **line.spent._asdict()}
    for key, value in found.pop("sums")._asdict().items():
        found[key] = None if value is None else round(value, 6)
    return json.dumps(found) + "\n"


def _parse(text: str) -> Line | None:
    try:
        found = json.loads(text)
        # A later version may know more.
        sums = Sums(*(found[key] for key in Sums._fields)).scaled(1)
        # An earlier one knew no groups.
        known = {**Spent._field_defaults, **found, "sums": sums}
        known["members"] = tuple(map(str, known["members"]))
        spent = Spent._make(known[key] for key in Spent._fields)
        line = Line(int(found["from_ns"]), int(found["to_ns"]), spent)
    except (ValueError, KeyError, TypeError):
        return None
    return line


def _cut(line: Line, since_ns: int, until_ns: int) -> Line | None:
    start_ns, end_ns = line.from_ns, line.to_ns
    longest_ns = end_ns - start_ns
    # If the clock was set meanwhile, only the end is consistent with later lines.
    lasted_ns = round(line.spent.sums.seconds * 1e9)
    if longest_ns < lasted_ns or longest_ns > lasted_ns + _TOLERANCE_S * 1e9:
        start_ns = end_ns - lasted_ns
    inside = min(end_ns, until_ns) - max(start_ns, since_ns)
    if inside <= 0:
        return None
    if inside >= end_ns - start_ns:
        return line
    part = inside / (end_ns - start_ns)
    spent = line.spent._replace(sums=line.spent.sums.scaled(part))
    return Line(max(start_ns, since_ns), min(end_ns, until_ns), spent)
