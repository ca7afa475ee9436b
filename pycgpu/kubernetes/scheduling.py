# SPDX-License-Identifier: MIT
"""
Pods on the cards of many nodes; pure. What a stock scheduler's count of a node cannot tell.

A node is what its cards have left, each for itself: memory in MiB, percent of compute, containers.
A pod is what its containers ask of cards. It fits a node if every container finds its cards there,
and then takes the fullest that have room (``binpack``) or the emptiest (``spread``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import CgpuError
from .families import Amounts, Family, amounts

MAX_SCORE = 10
#: A pod's cards: container → names of cards.
Choice = dict[str, tuple[str, ...]]


@dataclasses.dataclass(slots=True)
class Card:
    """A card with what is left of it."""

    name: str
    memory: int
    free_memory: int
    free_quota: int = 100
    free_containers: int = 20

    def need(self, asked: Amounts) -> tuple[int, int]:
        """Return the MiB and percent that a container takes of this card."""
        if asked.memory_bytes is not None:
            return asked.memory_bytes >> 20, asked.quota or 0
        return self.memory * (asked.memory_percent or 100) // 100, asked.quota or 0

    def fits(self, asked: Amounts) -> bool:
        memory, quota = self.need(asked)
        return memory <= self.free_memory and quota <= self.free_quota and self.free_containers > 0

    def take(self, asked: Amounts, sign: int = 1) -> None:
        """Give a container its part; with *sign* -1 take it back."""
        memory, quota = self.need(asked)
        self.free_memory -= sign * memory
        self.free_quota -= sign * quota
        self.free_containers -= sign

    @property
    def free(self) -> float:
        """How much is left, memory and compute counted alike: 0 to 2."""
        return self.free_memory / self.memory + self.free_quota / 100


Pod = Mapping[str, Amounts]


def asked_by(pod: Any, families: Iterable[Family]) -> dict[str, Amounts]:
    """
    Return what each container of a pod asks of cards; those that ask for none are left out.

    Raises:
        CgpuError: an amount is none, or a container asks under two families' names.
    """
    spec = pod["spec"]
    found: dict[str, Amounts] = {}
    inits: list[Amounts] = []
    for part in (*spec.get("initContainers", ()), *spec["containers"]):
        limits = (part.get("resources") or {}).get("limits") or {}
        wanted = [one for family in families if (one := amounts(family, limits)) is not None]
        if len(wanted) > 1:
            raise CgpuError(f"container {part['name']} asks for cards under two vendors' names")
        if not wanted:
            continue
        if part not in spec["containers"] and part.get("restartPolicy") != "Always":
            inits += wanted
        else:
            found[part["name"]] = wanted[0]
    # An init container's card goes on to one after it, which then has the larger of both.
    for one in inits:
        for name, other in found.items():
            if other.cards == one.cards:
                found[name] = other.joined(one)
                break
    return found


def place(pod: Pod, cards: Sequence[Card], placement: str) -> Choice | None:
    """Return the cards for each container of a pod, or None if one finds no room."""
    if (one := _single(pod)) is not None:
        container, asked = one
        best = _best(asked, cards, placement)
        return None if best is None else {container: (best.name,)}
    taken: list[tuple[Card, Amounts]] = []
    choice: Choice = {}
    sign = 1 if placement == "binpack" else -1
    mine: set[str] = set()
    for container, asked in pod.items():
        fitting = [card for card in cards if card.fits(asked)]
        if len(fitting) < asked.cards:
            break
        # The pod's own cards first: its containers are there to work together.
        fitting.sort(key=lambda card: (card.name not in mine, sign * card.free))
        for card in fitting[: asked.cards]:
            card.take(asked)
            taken.append((card, asked))
        choice[container] = tuple(card.name for card in fitting[: asked.cards])
        mine.update(choice[container])
    for card, asked in taken:
        card.take(asked, -1)
    return choice if len(choice) == len(pod) else None


def _single(pod: Pod) -> tuple[str, Amounts] | None:
    """Return the container of a pod of one that wants one card: nearly all, and soon judged."""
    if len(pod) != 1:
        return None
    ((container, asked),) = pod.items()
    return (container, asked) if asked.cards == 1 else None


def _best(asked: Amounts, cards: Sequence[Card], placement: str) -> Card | None:
    fitting = [card for card in cards if card.fits(asked)]
    if not fitting:
        return None
    free = [card.free for card in fitting]
    return fitting[free.index(min(free) if placement == "binpack" else max(free))]


def apply(pod: Pod, choice: Choice, cards: Sequence[Card], sign: int = 1) -> None:
    """Let a pod take what was chosen for it, or give it back; cards that are gone are left out."""
    by_name = {card.name: card for card in cards}
    for container, names in choice.items():
        for name in names:
            if name in by_name and container in pod:
                by_name[name].take(pod[container], sign)


def judge(pod: Pod, cards: Sequence[Card], placement: str) -> int | None:
    """
    Return 0 to :data:`MAX_SCORE` for a node that a pod fits, or None: how full its cards then are.
    """
    if (one := _single(pod)) is not None:
        best = _best(one[1], cards, placement)
        if best is None:
            return None
        memory, quota = best.need(one[1])
        free = [best.free - memory / best.memory - quota / 100]
    else:
        choice = place(pod, cards, placement)
        if not choice:
            return None if choice is None else 0
        names = {name for chosen in choice.values() for name in chosen}
        apply(pod, choice, cards)
        free = [card.free for card in cards if card.name in names]
        apply(pod, choice, cards, -1)
    full = 1 - sum(free) / len(free) / 2
    return round(MAX_SCORE * (full if placement == "binpack" else 1 - full))
