# SPDX-License-Identifier: MIT
"""
Which container has which cards: the node's own record of its promises.

The kubelet only knows virtual ids. This file maps them to cards, from before a container is made
until the kubelet no longer lists it. It survives the plugin, the kubelet and a reboot. A container
counts by this file until it is in the tree, which has its actual limits, and then by the tree.
"""

from __future__ import annotations

import collections.abc
import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CgpuError
from .families import Amounts
from .pods import Part

PATH = "/var/lib/cgpu/kubernetes/mapping.json"
VERSION = 2
#: Before it one container alone had an entry, and nothing told when it runs.
_SINGLE = 1


class Holder(NamedTuple):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


class Owner(NamedTuple):
    """A container by its pod's uid, which is unique: names of pods are reused."""

    uid: str
    container: str


class Entry(NamedTuple):
    """
    The promise to containers that have the same ids, one after the other.

    cards: UUIDs, or indexes where none is known. holder: the last container, which keeps the ids.
    parts: each container's part of each card.
    group: the group that they join, or empty.
    idle_park: the idle time after which they may be parked, as their pod writes it, or empty.
    """

    resource: str
    ids: tuple[str, ...]
    uid: str
    holder: Holder
    cards: tuple[str, ...]
    parts: dict[str, Part]
    group: str = ""
    idle_park: str = ""

    @property
    def owners(self) -> list[Owner]:
        return [Owner(self.uid, name) for name in self.parts]

    def running(self, among: Collection[Owner]) -> Owner | None:
        """Return the container of this entry that is *among* those; None: no such."""
        return next((one for one in self.owners if one in among), None)


class Mapping:
    """The record, by resource and lowest id; each change is on the disk when it returns."""

    def __init__(self, path: str = PATH) -> None:
        self.path = Path(path)
        self.entries: dict[tuple[str, str], Entry] = {}
        self._read()

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """
        Keep every other process from keeping this record, which would promise the same again.

        Raises:
            CgpuError: another one keeps it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CgpuError(
                    f"{self.path}: another device plugin runs on this node and keeps it; end that"
                ) from None
            # The former plugin may have written until it ended, so read the file again.
            self.entries = {}
            self._read()
            yield

    def _read(self) -> None:
        try:
            found = json.loads(self.path.read_text())
            if found["version"] not in (_SINGLE, VERSION):
                raise ValueError(f"version {found['version']}")
            for one in found["entries"]:
                holder = Holder(*one["holder"])
                entry = Entry(
                    one["resource"],
                    tuple(one["ids"]),
                    one["uid"],
                    holder,
                    tuple(one["cards"]),
                    _parts(one, holder),
                    one.get("group", ""),
                    one.get("idle_park", ""),
                )
                self.entries[key(entry.resource, entry.ids)] = entry
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CgpuError(
                f"{self.path}: cannot read the mapping ({error!r}); remove it while no pod has a"
                " card"
            ) from None

    def put(self, entry: Entry) -> None:
        """Add or replace a container's entry."""
        self.entries[key(entry.resource, entry.ids)] = entry
        self._save()

    def keep(self, live: Iterable[tuple[str, str]]) -> list[Entry]:
        """Drop the entries whose keys are not *live*; return them."""
        wanted = set(live)
        gone = [entry for one, entry in self.entries.items() if one not in wanted]
        if gone:
            self.entries = {k: entry for k, entry in self.entries.items() if k in wanted}
            self._save()
        return gone

    def of_pod(self, uid: str) -> list[Entry]:
        """Return the entries of a pod."""
        return [entry for entry in self.entries.values() if entry.uid == uid]

    def _save(self) -> None:
        draft = self.path.with_suffix(".new")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {"version": VERSION, "entries": [e._asdict() for e in self.entries.values()]}
        )
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)


def key(resource: str, ids: Iterable[str]) -> tuple[str, str]:
    """Return the key of a container's part of a resource, fixed while it has that."""
    return resource, min(ids)


def mistakes(
    entries: Iterable[Entry], truth: collections.abc.Mapping[Owner, frozenset[str]]
) -> list[Entry]:
    """Return the entries whose container is on other cards in the tree."""
    return [
        entry
        for entry in entries
        if (owner := entry.running(truth)) is not None and truth[owner] != frozenset(entry.cards)
    ]


def _parts(one: Any, holder: Holder) -> dict[str, Part]:
    if "amounts" in one:
        return {holder.container: Part(Amounts(*one["amounts"]))}
    return {name: Part(Amounts(*amounts), *rest) for name, (amounts, *rest) in one["parts"].items()}
