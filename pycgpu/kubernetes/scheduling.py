# SPDX-License-Identifier: MIT
"""
Pods on the cards of many nodes; pure. A stock scheduler only counts a node's sums.

A node is the rest of each of its cards: memory in MiB, percent of compute, containers. A pod is
the requests of its containers, and their times (:mod:`pycgpu.kubernetes.pods`). It fits a node if
every container finds its cards there. It takes the fullest cards with room (``binpack``), or the
emptiest (``spread``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .pods import Need, Part, Pod, groups, peak

MAX_SCORE = 10
#: A pod's cards: container → names of cards.
Choice = dict[str, tuple[str, ...]]


@dataclasses.dataclass(slots=True)
class Card:
    """
    A card with its rest, in MiB and percent.

    memory: the most that one container can have. promisable: the most of all together.
    """

    name: str
    memory: int
    promisable: int
    free_memory: int = dataclasses.field(init=False)
    free_quota: int = 100
    free_containers: int = 20

    def __post_init__(self) -> None:
        self.free_memory = self.promisable

    def fits(self, need: Need) -> bool:
        return (
            need.memory_mib <= self.free_memory
            and need.quota <= self.free_quota
            and need.containers <= self.free_containers
        )

    def holds(self, part: Part) -> bool:
        """Tell whether a part is no more than the card itself, whatever that promises."""
        return part.amounts.memory_mib(self.memory) <= self.memory

    def take(self, need: Need, sign: int = 1) -> None:
        """Give containers their part; with *sign* -1 take it back."""
        self.free_memory -= sign * need.memory_mib
        self.free_quota -= sign * need.quota
        self.free_containers -= sign * need.containers

    @property
    def free(self) -> float:
        """How much is left, memory and compute counted alike: 0 to 2."""
        return self.free_memory / self.promisable + self.free_quota / 100


def place(pod: Pod, cards: Sequence[Card], placement: str) -> Choice | None:
    """Return the cards for each container of a pod, or None if one finds no room."""
    if (one := _single(pod)) is not None:
        container, asked = one
        best = _best(asked, cards, placement)
        return None if best is None else {container: (best.name,)}
    choice: Choice = {}
    sign = 1 if placement == "binpack" else -1
    mine: dict[str, list[Part]] = {card.name: [] for card in cards}
    taken: dict[str, Need] = dict.fromkeys(mine, Need())
    for names in groups(pod):
        number = pod[names[0]].amounts.cards
        more = {
            card.name: peak([*mine[card.name], *(pod[one] for one in names)], card.memory)
            for card in cards
        }
        fitting = [
            card
            for card in cards
            if card.fits(more[card.name].plus(taken[card.name], -1))
            and all(card.holds(pod[one]) for one in names)
        ]
        if len(fitting) < number:
            break
        # The pod's own cards first: its containers are there to work together.
        fitting.sort(key=lambda card: (not mine[card.name], sign * card.free))
        for card in fitting[:number]:
            card.take(more[card.name].plus(taken[card.name], -1))
            taken[card.name] = more[card.name]
            mine[card.name] += [pod[one] for one in names]
        choice |= dict.fromkeys(names, tuple(card.name for card in fitting[:number]))
    for card in cards:
        card.take(taken[card.name], -1)
    return choice if len(choice) == len(pod) else None


def _single(pod: Pod) -> tuple[str, Part] | None:
    """Return the container of a pod with one that wants one card, the common and fast case."""
    if len(pod) != 1:
        return None
    ((container, asked),) = pod.items()
    return (container, asked) if asked.amounts.cards == 1 else None


def _best(asked: Part, cards: Sequence[Card], placement: str) -> Card | None:
    fitting = [c for c in cards if c.fits(asked.need(c.memory)) and c.holds(asked)]
    if not fitting:
        return None
    free = [card.free for card in fitting]
    return fitting[free.index(min(free) if placement == "binpack" else max(free))]


def apply(pod: Pod, choice: Choice, cards: Sequence[Card], sign: int = 1) -> None:
    """Let a pod take its chosen parts, or give them back; cards that are gone are left out."""
    for card in cards:
        held = [pod[one] for one, names in choice.items() if card.name in names and one in pod]
        if held:
            card.take(peak(held, card.memory), sign)


def judge(pod: Pod, cards: Sequence[Card], placement: str) -> int | None:
    """
    Return 0 to :data:`MAX_SCORE` for a node that a pod fits, or None: how full its cards then are.
    """
    if (one := _single(pod)) is not None:
        best = _best(one[1], cards, placement)
        if best is None:
            return None
        need = one[1].need(best.memory)
        free = [best.free - need.memory_mib / best.promisable - need.quota / 100]
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
