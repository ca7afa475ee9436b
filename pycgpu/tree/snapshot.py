# SPDX-License-Identifier: MIT
"""
One moment of all cards and containers: the tree, what NVML tells, and the containers' names.

A share is what the engine's counters grew by between two moments (:mod:`.counters`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import ProtocolError
from ..request.model import NATIVE
from . import counters, moving, names, nvml, procfs, status
from .counters import COMPUTE_KEYS, Counters
from .moving import Moving
from .names import ContainerName
from .nvml import Board, Nvml
from .status import CardStatus, ContainerStatus


class Share(NamedTuple):
    """Parts of the time between two readings, 0 to 1 (noise may exceed it); None: not told."""

    granted: float | None = None
    used: float | None = None
    throttled: float | None = None
    waited: float | None = None


class Limit(NamedTuple):
    """
    What the card's policy lets a container have of it now, 0 to 1, as the scheduler computes it.

    floor, ceiling: the bounds, whatever other containers do.
    share: the part while all containers that hold the card open always have work; 0 for others.
    """

    floor: float
    ceiling: float
    share: float


class Wait(NamedTuple):
    """
    The wait of a container for room: a parked one to come back, a running one for a call.

    wait_s: how long it has waited; None: the door does not tell. short_bytes: how much the card
    lacked when it was asked last; 0: others are first.
    """

    wait_s: float | None
    short_bytes: int


class ContainerView(NamedTuple):
    """
    A container on one card. ``name`` is None where no engine knows it. ``limit`` is None where none
    is enforced: without a bridge, under the driver's own sharing, and for a group's member, whose
    limit is its leader's. ``state_s``: how long it has been in its state; None: it never moved.
    ``wait``: its wait for room on this card.
    """

    status: ContainerStatus
    name: ContainerName | None
    share: Share
    limit: Limit | None = None
    state_s: float | None = None
    wait: Wait | None = None

    @property
    def state_word(self) -> str:
        """Its state, or ``waits`` while it waits for room on this card."""
        return self.status.state if self.wait is None else "waits"

    @property
    def used_bytes(self) -> int:
        """Its charged memory, with memory of processes that have ended."""
        return self.status.stat.get("current_bytes", self.status.used_bytes)

    @property
    def held_bytes(self) -> int:
        """Its memory on the card and parked, which counts against its limit."""
        return self.used_bytes + self.status.parked_bytes

    @property
    def label(self) -> str:
        """Its name where one is known, otherwise its short id; tenants choose the name."""
        return self.status.name if self.name is None else str(self.name)


class CardView(NamedTuple):
    """A card; ``board`` is None where NVML is absent or does not know it."""

    status: CardStatus
    board: Board | None
    containers: tuple[ContainerView, ...]

    @property
    def parked_bytes(self) -> int:
        """The memory of its parked containers on the host."""
        return self.status.stat.get("parked_bytes", 0)

    @property
    def reserved_bytes(self) -> int:
        """What is kept free for containers that move, and not taken yet."""
        return self.status.stat.get("reserved_bytes", 0)

    @property
    def utilization(self) -> float | None:
        """Percent of the time in which the card computed, by NVML or as the containers' sum."""
        if self.board is not None and self.board.utilization is not None:
            return self.board.utilization
        used = [one.share.used for one in self.containers if one.share.used is not None]
        return min(100.0, 100 * sum(used)) if used else None


class Snapshot(NamedTuple):
    """``time_ns`` is the wall clock's; ``nvml`` says why boards are missing."""

    time_ns: int
    root: str
    version: str
    features: frozenset[str]
    nvml: Nvml
    cards: tuple[CardView, ...]

    def select(
        self, cards: frozenset[int] | None, wanted: Callable[[ContainerView], bool] | None
    ) -> Snapshot:
        """Return only these cards, and of those only the containers that *wanted* accepts."""
        chosen = []
        for card in self.cards:
            if cards is not None and card.status.card.index not in cards:
                continue
            if wanted is not None:
                kept = tuple(one for one in card.containers if wanted(one))
                if not kept:
                    continue
                card = card._replace(containers=kept)
            chosen.append(card)
        return self._replace(cards=tuple(chosen))


def share(
    before: tuple[int, dict[str, int]] | None, after: tuple[int, dict[str, int]] | None
) -> Share:
    """Return the shares between two readings of one container's counters."""
    if before is None or after is None or after[0] <= before[0]:
        return Share()
    elapsed = after[0] - before[0]
    parts: list[float | None] = []
    for key in COMPUTE_KEYS:
        old, new = before[1].get(key), after[1].get(key)
        # Counters that went back belong to a new container with the same id. An engine that
        # cannot measure the used time says 0, which does not mean that the container was idle.
        told = old is not None and new is not None and new >= old
        if key in ("used_ns", "waited_ns") and not after[1].get("used_ns"):
            told = False
        parts.append((new - old) / elapsed if told else None)  # type: ignore[operator]
    return Share(*parts)


def limits(card: CardStatus, features: frozenset[str]) -> list[Limit | None]:
    """Return the limits that the policy sets each container of *card*, by the core's function."""
    if features.isdisjoint(("slices", "gate")) or card.card.policy == NATIVE:
        return [None] * len(card.containers)
    # Imported late: not every reader of a tree needs the core.
    from .. import core

    # A process that ended may have left memory that another process holds.
    holders = {
        one.leader or one.id
        for one in card.containers
        if any(process.container_pid for process in one.processes)
    }
    members = []
    for one in card.containers:
        is_open = one.id in holders
        members.append(
            {
                # A member's are of its group.
                "weight": 0 if one.leader else one.weight,
                "quota": 0 if one.leader else one.quota or 0,
                "quota_min": one.quota_min or 0,
                "priority": one.priority,
                "policy": one.stat.get("policy_asked"),
                "weight_given": one.stat.get("promised_ppm", 0) > 0,
                "open": is_open,
                "active": is_open,
            }
        )
    by_hand = bool(card.stat.get("policy_by_hand"))
    try:
        shares = core.policy_shares(card.card.policy, card.card.max_inst, members, by_hand)
    except ValueError:
        # A policy of a later version.
        return [None] * len(members)
    return [
        None if one.leader else Limit(floor, ceiling, part)
        for one, (part, floor, ceiling) in zip(card.containers, shares, strict=True)
    ]


class _Tree(NamedTuple):
    """What the tree and the engines' files say; takes as long to read as there are containers."""

    version: str
    features: frozenset[str]
    cards: list[tuple[CardStatus, list[Limit | None]]]
    moving: dict[str, Moving]


def _read_tree(root: str, known: dict[str, ContainerName], prefix: str) -> _Tree:
    features = procfs.read_features(root)
    parks = "park" in features
    cards = procfs.card_indexes(root)
    found = [procfs.unless_gone(status.read, card, root, parks) for card in cards]
    there = [one for one in found if one is not None]
    ids = {container.id for one in there for container in one.containers}
    known.update(names.find(ids - known.keys(), prefix))
    return _Tree(
        procfs.read_version(root),
        features,
        [(one, limits(one, features)) for one in there],
        moving.read(root) if parks else {},
    )


def _wait(one: ContainerStatus, told: Moving | None, now_ns: int) -> Wait | None:
    if told is None:
        return None
    if one.state == "running":
        return Wait(None, told.want_bytes) if told.want_card == one.card else None
    if one.state != "parked" or not told.asked_ns or told.short_card not in (None, one.card):
        return None
    return Wait(_seconds_since(told.asked_ns, now_ns), told.short_bytes)


def _seconds_since(then_ns: int | None, now_ns: int) -> float | None:
    return None if then_ns is None else max(0, now_ns - then_ns) / 1e9


def _composed(
    root: str,
    tree: _Tree,
    boards: Nvml,
    known: dict[str, ContainerName],
    before: Counters | None,
    after: Counters | None,
) -> Snapshot:
    now_ns = time.monotonic_ns()
    cards = []
    for one, granted in tree.cards:
        index = one.card.index
        views = [
            ContainerView(
                container,
                known.get(container.id),
                share(
                    (before or {}).get((index, container.name)),
                    (after or {}).get((index, container.name)),
                ),
                limit,
                _seconds_since(container.state_since_ns, now_ns),
                _wait(container, tree.moving.get(container.id), now_ns),
            )
            for container, limit in zip(one.containers, granted, strict=True)
        ]
        cards.append(CardView(one, boards.board(one.card.uuid, index), tuple(views)))
    return Snapshot(time.time_ns(), root, tree.version, tree.features, boards, tuple(cards))


def take(
    root: str,
    *,
    before: Counters | None = None,
    after: Counters | None = None,
    boards: Nvml | None = None,
    known: dict[str, ContainerName] | None = None,
    prefix: str = "/",
) -> Snapshot:
    """
    Return everything as it is now.

    Args:
        before, after: counters of two moments; shares are unknown without them.
        boards: NVML's answer; default: ask it.
        known: names by id; the names of newly found containers are added to it.
        prefix: root of the host's files, for the names.
    """
    boards = nvml.read() if boards is None else boards
    known = {} if known is None else known
    return _composed(root, _read_tree(root, known, prefix), boards, known, before, after)


def sample(
    root: str,
    *,
    before: Counters | None = None,
    sample_s: float | None = None,
    prefix: str = "/",
    boards: Callable[[], Nvml] | None = None,
    detailed: bool = False,
) -> Snapshot:
    """
    Return a snapshot with shares measured over *sample_s* seconds, or as long as it takes.

    NVML, which is slow anyway, is asked meanwhile. Without compute counters nothing is waited for.
    It raises :class:`~pycgpu.errors.CgpuError` as the functions of :mod:`pycgpu.tree.procfs` do.

    Args:
        before: counters that were read earlier.
        boards: waits for NVML and returns its answer; default: ask it now.
        detailed: also ask NVML for the fields of :class:`.nvml.Detail`.
    """
    version = procfs.read_api_version(root)
    if version != procfs.API_VERSION:
        raise ProtocolError(f"{root}/api_version", 1, str(version))
    before = before or counters.read(root)
    known: dict[str, ContainerName] = {}
    tree = _read_tree(root, known, prefix)
    told = nvml.read(detailed) if boards is None else boards()
    if not counters.tell_compute(before):
        return _composed(root, tree, told, known, None, None)
    since_s = max(then_ns for then_ns, _ in before.values()) / 1e9
    due_s = since_s + (counters.sample_s(before) if sample_s is None else sample_s)
    time.sleep(max(0.0, due_s - time.monotonic()))
    return _composed(root, tree, told, known, before, counters.read(root))
