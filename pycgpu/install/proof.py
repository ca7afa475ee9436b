# SPDX-License-Identifier: MIT
"""
Whether a core that has just taken over holds the former one's containers, promises and charges.

Containers run meanwhile, so a charge may differ a moment later. Values that cannot change are
compared exactly, others by the bounds that hold for every ledger.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..errors import NodeError
from ..tree import procfs

#: Counters of ``stat`` that no call of a container lowers.
GROWING = ("peak_bytes", "oom", "refused", "used_ns", "throttled_ns", "waited_ns")
#: How often a card whose charges do not add up must read the same.
SWEEPS = 5

_FAULT = re.compile(
    r"WARNING: |BUG: |Oops: |kernel BUG at|general protection fault|KASAN:|Kernel panic"
    r"|INFO: task .* blocked|refcount_t: |list_(?:add|del) corruption"
)


class Share(NamedTuple):
    """One container's part of one card; ``promised`` are its settings."""

    promised: tuple[object, ...]
    stat: dict[str, int]


class Snapshot(NamedTuple):
    """
    The tree at one moment.

    cards: the settings by card.
    shares: the container's values by (card, full id).
    """

    cards: dict[int, tuple[object, ...]]
    shares: dict[tuple[int, str], Share]


def take(root: str) -> Snapshot:
    """Read the tree; a container that goes meanwhile is left out."""
    cards: dict[int, tuple[object, ...]] = {}
    shares: dict[tuple[int, str], Share] = {}
    for card in procfs.card_indexes(root):
        memory = procfs.read_memory(card, root)
        cards[card] = (
            procfs.read_uuid(card, root),
            memory["total"],
            memory["reserved"],
            procfs.read_policy(card, root),
            procfs.read_max_inst(card, root),
            procfs.read_timeslice_us(card, root),
            procfs.read_overcommit_ratio(card, root),
        )
        for name in procfs.container_names(card, root):
            try:
                promised = (
                    procfs.read_memsize(card, name, root),
                    procfs.read_weight(card, name, root),
                    procfs.read_quota(card, name, root),
                    procfs.read_quota_min(card, name, root),
                    procfs.read_priority(card, name, root),
                )
                stat = procfs.read_stat(card, name, root)
                shares[card, procfs.read_cid(card, name, root)] = Share(promised, stat)
            except NodeError as error:
                if not procfs.is_gone(error):
                    raise
    return Snapshot(cards, shares)


def differences(before: Snapshot, after: Snapshot, ended: set[str], changed: bool) -> list[str]:
    """
    Return a line for each thing in *before* that *after* lacks.

    Args:
        ended: ids of containers that have been destroyed between the two.
        changed: another process has written to the tree meanwhile, so settings may differ.
    """
    lost = []
    for card, settings in before.cards.items():
        if card not in after.cards:
            lost.append(f"GPU {card} is gone")
        elif settings != after.cards[card] and not changed:
            lost.append(f"GPU {card} was {settings} and is {after.cards[card]}")
    for (card, id), share in before.shares.items():
        there = after.shares.get((card, id))
        if id in ended:
            continue
        if there is None:
            lost.append(f"container {id[:12]} has lost GPU {card}")
            continue
        if share.promised != there.promised and not changed:
            lost.append(f"{card}/{id[:12]}: was promised {share.promised}, now {there.promised}")
        for key in GROWING:
            if there.stat.get(key, 0) < share.stat.get(key, 0):
                was, now = share.stat[key], there.stat.get(key, 0)
                lost.append(f"{card}/{id[:12]}: {key} fell from {was} to {now}")
    for (card, id), share in after.shares.items():
        if share.stat["current_bytes"] > share.stat["peak_bytes"]:
            lost.append(f"{card}/{id[:12]}: more is charged than ever was")
    return lost


def unbalanced(root: str) -> list[str]:
    """Return the cards where the containers' charges do not add up to the card's."""
    return [
        f"GPU {card}: {told}" for card in procfs.card_indexes(root) if (told := _sum(card, root))
    ]


def _sum(card: int, root: str) -> str:
    sweeps = set()
    for _ in range(SWEEPS):
        used, charged = procfs.read_memory(card, root)["used"], []
        for name in procfs.container_names(card, root):
            try:
                charged.append(procfs.read_stat(card, name, root)["current_bytes"])
            except NodeError as error:
                if not procfs.is_gone(error):
                    raise
        sweeps.add((used, *charged))
        if sum(charged) == used or len(sweeps) > 1:
            # The sum is right, or containers allocate between our reads and no verdict is possible.
            return ""
    return f"{used} bytes are charged, its containers' {sum(charged)}"


class Events:
    """The lines of ``events`` since this was made."""

    def __init__(self, root: str) -> None:
        self._fd = procfs.open_events(root)
        self._lines: list[str] = []
        procfs.new_events(self._fd)

    def ended(self) -> set[str]:
        """Return the ids of containers that were destroyed."""
        self._lines += procfs.new_events(self._fd)
        found = (re.search(r" destroy id=(\S+)", line) for line in self._lines)
        return {match[1] for match in found if match}

    def changed(self) -> bool:
        """Whether anything was written to the tree, or lines are lost that might tell."""
        self._lines += procfs.new_events(self._fd)
        return any(re.search(r"^\d+ (set|lost) ", line) for line in self._lines)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class KernelLog:
    """Faults that the kernel has logged since this was made."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._found: list[str] = []

    def faults(self) -> list[str]:
        """Return the lines that tell of a fault."""
        while True:
            try:
                record = os.read(self._fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Records were overwritten before they were read; the next read goes on.
                continue
            if not record:
                break
            line = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            if _FAULT.search(line):
                self._found.append(line)
        return list(self._found)

    def close(self) -> None:
        """Close the log."""
        os.close(self._fd)
