# SPDX-License-Identifier: MIT
"""Cards that promise more memory than they have, and which containers could be parked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...parking import host_memory, rules
from ...request.model import MIB
from ...tree import cards, procfs, status
from .finding import NOTE, WARN, Finding
from .host import Host

_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


def overcommit(host: Host) -> Iterator[Finding]:
    """The host can hold what cards promise beyond their memory."""
    if host.root is None:
        return
    every = procfs.read_cards(host.root, tenants=False)
    more = [card.index for card in every if card.overcommit_ratio > 100]
    if not more:
        return
    if not procfs.parks(host.root):
        yield Finding(
            WARN,
            "overcommit",
            f"GPU {_listed(more)}: limits may add up to more than the card, and this door cannot"
            " park: an allocation that finds no room fails at once",
            f"overcommit_ratio = 100 in {cards.PATH}, or a door whose features have park",
        )
        return
    told = rules.load(str(host.prefix / rules.PATH.lstrip("/")))
    if not told.moves_per_min:
        yield Finding(
            WARN,
            "overcommit",
            f"GPU {_listed(more)}: limits may add up to more than the card, and by moves_per_min ="
            f" 0 in {rules.PATH} no container is parked by itself",
            f"raise it, or overcommit_ratio = 100 in {cards.PATH}",
        )
        return
    found = [status.read(card, host.root, parks=True) for card in more]
    proc = str(host.prefix / "proc")
    stats = [procfs.read_card_stat(card.index, host.root) for card in every]
    parked = sum(stat.get("parked_bytes", 0) for stat in stats)
    yield from _host_memory(found, _left(told, parked, proc))
    for one in found:
        yield from _containers(one, proc)
    yield from _swap(host)
    yield from _small_pages(host)


def _surplus_bytes(one: status.CardStatus) -> int:
    """Return what containers may hold together beyond what the card can give."""
    return max(0, one.card.allocated_bytes - one.card.usable_bytes)


class _Left(NamedTuple):
    """The host memory that is left for parking, what bounds it, and how to change the bound."""

    bytes: int
    by: str
    remedy: str


def _left(told: rules.Rules, parked_bytes: int, proc: str) -> _Left:
    found = [_Left(host_memory.available_bytes(proc), "the host", "free memory of the host")]
    if told.park_host_bytes:
        by = f"park_host_bytes in {rules.PATH}"
        found.append(_Left(told.park_host_bytes - parked_bytes, by, "raise it"))
    least = min(found)
    return least._replace(bytes=max(0, least.bytes))


def _host_memory(found: Sequence[status.CardStatus], left: _Left) -> Iterator[Finding]:
    surplus = sum(map(_surplus_bytes, found))
    if not surplus:
        return
    # Before a container returns to a full card, another one is parked.
    largest = max(held.memory_bytes or 0 for one in found for held in one.containers)
    parked = sum(one.stat.get("parked_bytes", 0) for one in found)
    needed = max(0, surplus - parked) + largest
    if needed > left.bytes:
        yield Finding(
            WARN,
            "overcommit",
            f"GPU {_listed(one.card.index for one in found)}: {needed // MIB} MiB more may have to"
            f" be parked, {largest // MIB} of them while a container comes back, and {left.by} has"
            f" {left.bytes // MIB} MiB for it",
            f"{left.remedy}, lower limits (`cgpu set --mem`), or end containers",
        )


def _containers(one: status.CardStatus, proc: str) -> Iterator[Finding]:
    """Idle times, groups and memory cgroups let a card's promise beyond its memory be parked."""
    index, ratio = one.card.index, one.card.overcommit_ratio
    if one.containers and not any(held.idle_park_s for held in one.containers):
        yield Finding(
            WARN,
            "overcommit",
            f"GPU {index}: limits may add up to {ratio} % of it, and no container on it may be"
            " parked when idle",
            "`cgpu set CONTAINER --idle-park 10m`, or [default] idle_park in /etc/cgpu/policy.toml",
        )
        return
    left: dict[str, int] = {}
    parts = [_parkable(held, left, proc) for held in one.containers]
    parkable, surplus = sum(part.bytes for part in parts), _surplus_bytes(one)
    if surplus > parkable:
        worst = max(parts, key=lambda part: part.stays_bytes)
        yield Finding(
            WARN,
            "overcommit",
            f"GPU {index}: {surplus // MIB} MiB may have to be parked, and its containers can park"
            f" {parkable // MIB} MiB: {worst.why}",
            f"{worst.remedy}, or lower the limits on the card (`cgpu set --mem`)",
        )


class _Part(NamedTuple):
    """The parts of a container's limit that can and cannot be parked, the reason, the remedy."""

    bytes: int
    stays_bytes: int
    why: str
    remedy: str


def _parkable(held: status.ContainerStatus, left: dict[str, int], proc: str) -> _Part:
    """Subtract what could be parked of a container from its memory cgroups' *left*."""
    limit = held.memory_bytes or 0
    if held.group is not None:
        why = f"{held.name} is in a group, which is not parked"
        return _Part(0, limit, why, "start it without one")
    if not held.idle_park_s:
        remedy = f"`cgpu set {held.name} --idle-park 10m`"
        return _Part(0, limit, f"{held.name} may not be parked when idle", remedy)
    try:
        places = host_memory.cgroups(held.processes[0].pid, proc) if held.processes else []
    except OSError:
        places = []  # it has just ended
    for directory, left_bytes in places:
        left.setdefault(directory, left_bytes)
    parked = min(limit, held.parked_bytes)
    tightest = min((directory for directory, _ in places), key=left.__getitem__, default="")
    more = limit - parked
    if tightest:
        more = max(0, min(more, left[tightest]))
    for directory, _ in places:
        left[directory] -= more
    why = f"cgroup {tightest} leaves {held.name} {more // MIB} MiB"
    return _Part(parked + more, limit - parked - more, why, f"raise the memory limit of {tightest}")


def _swap(host: Host) -> Iterator[Finding]:
    """Parked memory may be swapped; say where it is written as it is."""
    for line in host.read("proc/swaps").splitlines()[1:]:
        name, kind = [*line.split(), ""][:2]
        if kind == "partition" and _is_plain(host.prefix, os.path.basename(name)):
            yield Finding(
                NOTE,
                "overcommit",
                f"swap {name} is not encrypted, and parked memory may be written there",
                "encrypt it (crypttab), or `swapoff` it",
            )


def _small_pages(host: Host) -> Iterator[Finding]:
    """Say that moves could be faster: the driver asks for no huge pages, so the host must."""
    enabled = host.read(_HUGE_PAGES)
    if enabled and "[always]" not in enabled:
        yield Finding(
            NOTE,
            "overcommit",
            f"/{_HUGE_PAGES} is not `always`: parking takes 1.3 to 1.4 times as long in small"
            " pages",
            f"`echo always > /{_HUGE_PAGES}`, and boot with transparent_hugepage=always",
        )


def _is_plain(prefix: Path, name: str) -> bool:
    """Tell whether a block device is on a disk without dm-crypt between; False: not known."""
    device = prefix / "sys/class/block" / name
    if not device.exists() or name.startswith("zram"):
        return False
    with contextlib.suppress(OSError):
        if (device / "dm/uuid").read_text().startswith("CRYPT-"):
            return False
    below = [path.name for path in (device / "slaves").glob("*")]
    return all(_is_plain(prefix, one) for one in below)


def _listed(indexes: Iterator[int] | Sequence[int]) -> str:
    return ", ".join(map(str, indexes))
