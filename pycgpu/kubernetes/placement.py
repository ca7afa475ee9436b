# SPDX-License-Identifier: MIT
"""Which cards of its node a container gets; pure. The hook's own admission judges each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .. import dialects
from ..errors import CgpuError
from ..request import admission
from ..request.admission import format_mib
from ..request.model import MIB, Card, Grant, Request, Tenant
from .families import Amounts, room
from .pods import Need


def reserve(cards: Sequence[Card], promised: Iterable[tuple[str, int, Need]]) -> list[Card]:
    """
    Return *cards* as they will be with the containers to which parts were *promised*.

    Args:
        promised: for each promise a name, a card's index and the need.
    """
    held = {card.index: card for card in cards}
    for name, index, need in promised:
        card = held.get(index)
        if card is None:
            continue
        coming = [Tenant(f"{name}#{number}") for number in range(need.containers)]
        if need.quota:
            coming[:1] = [Tenant(name, need.quota)]
        held[index] = card._replace(
            # A part of the compute of containers that have their places already has none.
            max_inst=card.max_inst + len(coming) - need.containers,
            allocated_bytes=card.allocated_bytes + min(need.memory_mib * MIB, card.free_bytes),
            free_weight=max(0, card.free_weight - need.containers),
            tenants=(*card.tenants, *coming),
        )
    return list(held.values())


def choose(
    asked: Mapping[str, Amounts],
    cards: Mapping[str, Sequence[Card]],
    placement: str,
    wanted: Sequence[int] = (),
) -> list[int]:
    """
    Return the indexes of the cards for containers that have the same cards one after the other.

    Args:
        asked: each container's request; all ask for the same number of cards.
        cards: for each container the healthy cards, with all other promises counted.
        placement: ``binpack`` takes the fullest cards with room, ``spread`` the emptiest.
        wanted: cards to take first if they have room: the pod's own, or the scheduler's.

    Raises:
        CgpuError: too few cards have room; the message says why for each.
    """
    here = {card.index: card for seen in cards.values() for card in seen}
    number = max(one.cards for one in asked.values())
    reasons = {
        card.index: why
        for name, amounts in asked.items()
        for card in cards[name]
        if (why := _refusal(amounts, card)) is not None
    }
    fitting = [card for index, card in here.items() if index not in reasons]
    if len(fitting) < number:
        why = "; ".join(reasons.values()) or "no other card is healthy"
        raise CgpuError(f"{number} of {len(here)} cards asked, {len(fitting)} have room: {why}")
    sign = 1 if placement == "binpack" else -1

    def order(card: Card) -> tuple[bool, float, int]:
        return card.index not in wanted, sign * _free(card), card.index

    return sorted(card.index for card in sorted(fitting, key=order)[:number])


def _refusal(amounts: Amounts, card: Card) -> str | None:
    judged = admission.admit(_request(amounts, card), [card])
    if not isinstance(judged, Grant):
        return judged.reason
    (part,) = judged.cards
    if part.memory_bytes == part.asked_bytes:
        return None
    # Elsewhere the last container may get less than it asked for. Here the scheduler has counted
    # the whole amount, so less is a refusal.
    asked, free = part.asked_bytes or 0, card.grantable_bytes
    return f"card {card.index}: {format_mib(asked)} asked, {format_mib(free)} free"


def _free(card: Card) -> float:
    """How much of a card is left, its memory and its compute counted alike."""
    quotas = sum(tenant.quota or 0 for tenant in card.tenants)
    return card.free_bytes / card.promisable_bytes + (100 - quotas) / 100


def _request(amounts: Amounts, card: Card) -> Request:
    settings = amounts.settings([room(card).one_mib])
    request = dialects.request_from({**settings, "CGPU_GPU": str(card.index)})
    assert request is not None  # CGPU_MEM always asks
    return request
