# SPDX-License-Identifier: MIT
"""
Which containers of a card would do more in a group, and by how much; pure.

The model has one rule for time and one for room. Members of a group run at the same time.

* Time: a member gains the time that it waits for other members. Its waiting is divided among all
  containers that ran on the card, by their time there. So it could run for ``reach = used + waited
  × (part − used) / (whole − used)``. ``part`` is the time of all members, ``whole`` of everybody.
* Room: while the members have the card, they use a part of it, ``filled``. So they do at most
  ``1 / filled`` times as much in the same time.

The gain is the less of both, ``min(sum of reach / part, 1 / filled)``, and never less than 1. For n
containers that always have work it is ``min(n, 1 / filled)``. How much of the card the members fill
is known between bounds, because NVML counts for the whole card or by time alone. So the gain has
bounds. Kernels also slow each other in caches and memory; measurements bound by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .contender import Contender, Owner
from .nvml_load import Load

#: Waiting for less of the time than this is within the error of the log's figures.
WAITED_MIN = 0.02
#: Less than this is not worth the trust that a group takes.
GAIN_MIN = 1.1
#: Of the rate that the model gives them, members that were measured had 77 % to 93 %: two, four and
#: eight decoders (H200, docs/groups.md).
KEPT = 0.75


class Bounds(NamedTuple):
    """``least`` may not be above ``most``."""

    least: float
    most: float


class Advice(NamedTuple):
    """
    Who would gain together.

    members: at most one of them is a group already.
    filled: the part of the card that they use while they have it, 0 to 1.
    gain: how many times as much they would do in the same time of the card.
    """

    members: tuple[Contender, ...]
    owner: Owner
    filled: Bounds
    gain: Bounds

    @property
    def group(self) -> Contender | None:
        """The group that is there, which the others would join."""
        return next((one for one in self.members if one.is_group), None)


class Declined(NamedTuple):
    """``reason``: why no group is advised for a container."""

    contender: Contender
    reason: str


def advise(contenders: Sequence[Contender], load: Load) -> tuple[list[Advice], list[Declined]]:
    """
    Return what groups would pay on a card, and for each other container why none does.

    Args:
        contenders: all containers and groups that have a part of the card.
    """
    found: list[Advice] = []
    declined = []
    apart: dict[tuple[object, ...], list[Contender]] = {}
    for one in contenders:
        reason = _not_competing(one)
        if reason is not None:
            declined.append(Declined(one, reason))
        else:
            # A member has neither a priority nor cards that its group has not.
            apart.setdefault((one.owner, one.priority, one.cards), []).append(one)
    for together in apart.values():
        members, others = _joinable(together)
        declined += [
            Declined(one, "is a group already, and two groups do not become one") for one in others
        ]
        advice = _advice(members, contenders, load)
        if isinstance(advice, str):
            declined += [Declined(one, advice) for one in members]
        else:
            found.append(advice)
    found.sort(key=lambda one: -one.gain.most)
    return found, declined


def _not_competing(one: Contender) -> str | None:
    if one.used is None or one.waited is None:
        return (
            "has no figures: it came meanwhile, its card is not scheduled, or the driver keeps no"
            " log of switches"
        )
    if one.waited < WAITED_MIN:
        return f"waits for {one.waited:.1%} of the time, so that a group gives it nothing"
    if one.used <= 0:
        return "had no time on the card in this sample"
    if one.owner is None:
        return "its user is not known, or its processes are of several"
    return None


def _joinable(together: list[Contender]) -> tuple[list[Contender], list[Contender]]:
    """Return those that can form one group (the busiest group included), and the other groups."""
    groups = sorted((one for one in together if one.is_group), key=lambda one: -_used(one))
    return [one for one in together if not one.is_group] + groups[:1], groups[1:]


def _advice(members: list[Contender], everybody: Sequence[Contender], load: Load) -> Advice | str:
    """Return the advice, or why there is none."""
    owner = members[0].owner
    assert owner is not None
    if len(members) < 2:
        return f"no other of {owner.of} waits for the card with the same priority and cards"
    part = sum(map(_used, members))
    waits = [one for one in everybody if one.used is not None and one.waited is not None]
    # While a container waits, another program runs, which may be outside of cgpu.
    whole = max([sum(map(_used, waits)), *(_used(one) + (one.waited or 0) for one in waits)])
    reach = sum(
        _used(one) + (one.waited or 0) * (part - _used(one)) / (whole - _used(one))
        for one in members
    )
    filled = _filled(members, waits, part, whole, load)
    least, most = (_gain(reach / part, one) for one in (filled.most, filled.least))
    gain = Bounds(max(1.0, KEPT * least), most)
    if gain.most < GAIN_MIN:
        return (
            f"with the others of {owner.of} would do at most {gain.most:.2f} times as much, because"
            f" they {'fill the card' if reach / part >= GAIN_MIN else 'hardly wait for each other'}"
        )
    return Advice(tuple(members), owner, filled, gain)


def _gain(by_time: float, filled: float) -> float:
    return max(1.0, by_time if filled * by_time <= 1 else 1 / filled)


def _filled(
    members: list[Contender], told: list[Contender], part: float, whole: float, load: Load
) -> Bounds:
    """Return how much of the card members fill while they have it."""
    busy = sum(map(_busy, members))
    # The time in which others can have filled the card, programs outside of cgpu included.
    outside = whole - sum(map(_used, told)) + sum(map(_busy, told)) - busy
    whole_card = [one for one in (load.sms, load.filled) if one is not None]
    bounds = [busy / part, 1.0]
    if whole_card:
        bounds.append(max(whole_card) / part)
    if load.kernels is not None:
        bounds.append(load.kernels / part)
    most = min(bounds)
    least = 0.0 if load.filled is None else max(0.0, (load.filled - outside) / part)
    return Bounds(min(least, most), most)


def _used(one: Contender) -> float:
    return one.used or 0.0


def _busy(one: Contender) -> float:
    """Return for how long kernels of it can have run: a context may have the engine without."""
    return _used(one) if one.busy is None else min(one.busy, _used(one))
