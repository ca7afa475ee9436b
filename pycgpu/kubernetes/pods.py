# SPDX-License-Identifier: MIT
"""
What a pod's containers ask of cards, and which of them run at the same time; pure.

The rule is Kubernetes' own: init containers run one after the other, those that restart (sidecars)
with all later ones, and the rest together. From its binding to its end, a pod holds the most that
its containers have of a card at once. The extender and the device plugin count by this file, and
so does the hook through the settings that the plugin gives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import CgpuError
from . import annotated
from .families import Amounts, Family, amounts, quantity


class Need(NamedTuple):
    """What containers take of one card."""

    memory_mib: int = 0
    quota: int = 0
    containers: int = 0

    def plus(self, other: Need, sign: int = 1) -> Need:
        return Need(*(one + sign * two for one, two in zip(self, other, strict=True)))

    def most(self, other: Need) -> Need:
        """Return the larger of both in everything, as Kubernetes counts each resource by itself."""
        return Need(*map(max, self, other))


class Part(NamedTuple):
    """
    A container's request for cards, and when it holds them: the pod's phases *since* to *until*.

    The phases are the starts of its init containers, by their order, and then the time in which its
    containers run.

    resource, ids: the resource that the kubelet counts, and how many; annotations use none. An init
    container that does not restart passes its ids on (*passes_on*).
    """

    amounts: Amounts
    since: int = 0
    until: int = 0
    resource: str = ""
    ids: int = 0
    passes_on: bool = False

    def need(self, card_mib: int) -> Need:
        """Return its need of a card that can give *card_mib* of memory."""
        return Need(self.amounts.memory_mib(card_mib), self.amounts.quota or 0, 1)


#: A pod's containers that ask for cards, by name, in the order in which they start.
Pod = Mapping[str, Part]


def parts(pod: Any, families: Iterable[Family]) -> dict[str, Part]:
    """
    Return what each container of a pod asks of cards; those that ask for none are left out.

    Raises:
        CgpuError: an amount is malformed, a container asks under two families' names, or an init
            container's ids pass to no container that the kubelet lists.
    """
    spec = pod["spec"]
    inits = spec.get("initContainers") or ()
    by_annotations = annotated.amounts(pod)
    found: dict[str, Part] = {}
    for position, part in enumerate((*inits, *spec["containers"])):
        limits = (part.get("resources") or {}).get("limits") or {}
        wanted = [
            (family, one) for family in families if (one := amounts(family, limits)) is not None
        ]
        told = by_annotations.get(part["name"])
        if len(wanted) + (told is not None) > 1:
            raise CgpuError(f"container {part['name']} asks for cards under two vendors' names")
        is_init = position < len(inits)
        ends = is_init and part.get("restartPolicy") != "Always"
        since, until = position if is_init else len(inits), position if ends else len(inits)
        if told is not None:
            found[part["name"]] = Part(told, since, until)
        for family, one in wanted:
            annotated.check(pod, family)
            count = quantity(family.anchor_name, limits[family.anchor_name])
            found[part["name"]] = Part(one, since, until, family.anchor_name, count, ends)
    listed: set[str] = set()
    for name, part_of in reversed(found.items()):
        if part_of.passes_on and part_of.resource not in listed:
            raise CgpuError(
                f"init container {name} asks for {part_of.resource}, and none after it: the"
                " kubelet does not tell its ids, so ask for it in a container, too"
            )
        if not part_of.passes_on:
            listed.add(part_of.resource)
    return found


def in_group(pod: Pod) -> dict[str, Part]:
    """Return a group member's parts without quotas, which are of the group's threads."""
    return {
        name: part._replace(amounts=part.amounts._replace(quota=None)) for name, part in pod.items()
    }


def groups(pod: Pod) -> list[tuple[str, ...]]:
    """
    Return a pod's containers in groups that have the same ids one after the other.

    The kubelet passes an init container's ids to the next container that asks for as many, and does
    not say which of both it is about to make. So both get the same cards.
    """
    found: dict[str, list[str]] = {}
    waiting: dict[tuple[str, int], list[str]] = {}
    for name, part in pod.items():
        before = waiting.setdefault((part.resource, part.ids), [])
        found[name] = [name]
        if part.passes_on:
            before.append(name)
        else:
            for other in before:
                found[name] += found.pop(other)
            before.clear()
    for before in waiting.values():
        for other in before[1:]:
            found[before[0]] += found.pop(other)
    order = list(pod)
    return sorted(
        (tuple(sorted(one, key=order.index)) for one in found.values()),
        key=lambda names: order.index(names[0]),
    )


def peak(taken: Iterable[Part], card_mib: int, within: Part | None = None) -> Need:
    """
    Return the most that these parts have of a card at once, in the phases of *within* or in all.
    """
    held = [(part, part.need(card_mib)) for part in taken]
    most = Need()
    # The sum only grows in phases in which a part begins.
    for phase in {part.since for part, _ in held} | ({within.since} if within else set()):
        if within is not None and not within.since <= phase <= within.until:
            continue
        at_once = Need()
        for part, need in held:
            if part.since <= phase <= part.until:
                at_once = at_once.plus(need)
        most = most.most(at_once)
    return most


def promised(
    held: Pod, running: Collection[str], card_mib: int, within: Part | None = None
) -> Need:
    """
    Return a pod's need of a card beyond what its *running* containers have taken already.

    Args:
        held: its containers that have a part of this card.
        within: a container that is about to be made: only parts held at the same time count.
    """
    taken = Need()
    for name in running:
        if name in held:
            taken = taken.plus(held[name].need(card_mib))
    return peak(held.values(), card_mib, within).plus(taken, -1).most(Need())
