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
    *("create", "destroy", "set", "oom", "refused", "unknown", "killed", "attach", "detach"),
    "lost",
)


class Event(NamedTuple):
    """``time_ns``: the wall clock's, None if the line has none. ``text``: all after the kind."""

    time_ns: int | None
    kind: str
    text: str
    values: dict[str, str]

    @property
    def id(self) -> str | None:
        """The container that it is about, by its full id."""
        if "id" in self.values:
            return self.values["id"]
        # set <gpu>/<id>/<node> <value>; refused <id> <why>
        first, _, _ = self.text.partition(" ")
        if self.kind == "set" and first.count("/") == 2:
            return first.split("/")[1]
        return first if self.kind == "refused" and first else None


def parse(line: str) -> Event:
    """Return the event of a line. Any text gives one: a newer module may know more kinds."""
    stamp, space, rest = line.rstrip("\n").partition(" ")
    time_ns = int(stamp) if space and stamp.isascii() and stamp.isdecimal() else None
    if time_ns is None:
        rest = line.rstrip("\n")
    kind, _, text = rest.partition(" ")
    words = (word.partition("=") for word in text.split() if "=" in word)
    return Event(time_ns, kind, text, {key: value for key, _, value in words})


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
