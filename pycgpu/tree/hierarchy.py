# SPDX-License-Identifier: MIT
"""
Hierarchies of cgroups: where a process is in each, and where each is mounted.

Users who may mount, with ``fusermount`` for example, choose other lines of ``mountinfo``. Such a
line may have an empty source, a path in no encoding, or one with other separators. So the text is
parsed as the kernel writes it: only blanks and line ends are escaped.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import NamedTuple
else:
    from ..request.record import Record as NamedTuple


class Place(NamedTuple):
    """Of a process in a hierarchy; version 2 has the one controller "", version 1 may have it."""

    number: str
    controllers: tuple[str, ...]
    path: str


class Mount(NamedTuple):
    """A hierarchy's directory and its mount options, as controllers of a :class:`Place`."""

    directory: str
    options: tuple[str, ...]


def places(pid: int, proc: str = "/proc") -> list[Place]:
    """Return where a process is; OSError: it has ended."""
    found = []
    for line in _lines(f"{proc}/{pid}/cgroup"):
        number, controllers, path = line.split(":", 2)
        found.append(Place(number, tuple(controllers.split(",")), path))
    return found


def mounts(proc: str = "/proc") -> list[Mount]:
    """
    Return the hierarchies that are mounted whole.

    A path below a part of one would be another's.
    """
    found = []
    for line in _lines(f"{proc}/self/mountinfo"):
        place, _, what = line.partition(" - ")
        fields, (kind, _, options) = place.split(" "), what.split(" ", 2)
        if kind in ("cgroup", "cgroup2") and fields[3] == "/":
            every = ("",) if kind == "cgroup2" else tuple(options.split(","))
            found.append(Mount(fields[4], every))
    return found


def directory(controllers: Collection[str], mounted: Collection[Mount]) -> str | None:
    """Return where the hierarchy of *controllers* is mounted, or None."""
    for mount in mounted:
        if set(controllers) <= set(mount.options):
            return mount.directory
    return None


def _lines(path: str) -> list[str]:
    with open(path, "rb") as file:
        text = file.read().decode(errors="surrogateescape")
    return [line for line in text.split("\n") if line]
