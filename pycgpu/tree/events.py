# SPDX-License-Identifier: MIT
"""Lines of the tree's ``events``: ``<ns> <kind> [key=value | word]…``."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

from . import procfs

#: First words that the doors of this release write; docs/tree.md says when.
KINDS = (
    *("create", "destroy", "set", "oom", "oom_host", "refused", "ungranted", "unknown", "killed"),
    *("parked", "not_parked", "waits", "resumed", "park_ended"),
    *("server_started", "server_ended", "server_died", "server_lost"),
    *("policy", "attach", "detach", "verify", "lost"),
)


class Event(NamedTuple):
    """
    ``time_ns``: the wall clock's, None if the line has none. ``text``: all after the kind.
    ``values``: the text's ``key=value`` pairs. ``set`` has gpu, id, file and value; ``attach``,
    ``detach`` and ``verify`` have driver; ``lost`` has lines. ``reason`` is the rest of the text.
    """

    time_ns: int | None
    kind: str
    text: str
    values: dict[str, str]

    @property
    def id(self) -> str | None:
        """The container that it is about, by its full id."""
        return self.values.get("id")


def parse(line: str) -> Event:
    """Return the event of a line. Any text gives one: a newer module may know more kinds."""
    stamp, space, rest = line.rstrip("\n").partition(" ")
    time_ns = int(stamp) if space and stamp.isascii() and stamp.isdecimal() else None
    if time_ns is None:
        rest = line.rstrip("\n")
    kind, _, text = rest.partition(" ")
    return Event(time_ns, kind, text, _values(kind, text.split()))


def _values(kind: str, words: list[str]) -> dict[str, str]:
    # A value that was set may have an equals sign of its own.
    if kind == "set" and len(words) >= 2:
        card, _, rest = words[0].partition("/")
        owner, _, file = rest.rpartition("/")
        named = {"gpu": card, "id": owner, "file": file, "value": " ".join(words[1:])}
        return {key: value for key, value in named.items() if value}
    values = {key: value for key, equals, value in (w.partition("=") for w in words) if equals}
    plain = [word for word in words if "=" not in word]
    if kind in ("attach", "detach") and plain[:1] == ["driver"]:
        values["driver"] = " ".join(plain[1:])
    elif kind == "verify" and plain[:1] == ["driver"]:
        values |= {"driver": " ".join(plain[1:2]), "reason": " ".join(plain[2:])}
    elif kind == "lost" and plain:
        values["lines"] = plain[0]
    elif plain:
        values["reason"] = " ".join(plain)
    return values


def lines(root: str, follow: bool) -> Iterator[str]:
    """
    Yield the ring's lines, oldest first, and with *follow* those to come.

    The errors of :mod:`pycgpu.tree.procfs` are raised at the call, not at the first line.
    """
    return _lines(procfs.open_events(root), follow)


def _lines(descriptor: int, follow: bool) -> Iterator[str]:
    rest = b""
    try:
        while True:
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                if not follow:
                    return
                select.select([descriptor], [], [])
                continue
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    finally:
        os.close(descriptor)
