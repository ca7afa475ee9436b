# SPDX-License-Identifier: MIT
"""Which cards of its node a container gets; pure. The hook's own admission judges each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import dialects
from ..errors import CgpuError
from ..request import admission
from ..request.model import Card, Grant, Request, Tenant
from .families import Amounts


def reserve(cards: Sequence[Card], promised: Iterable[tuple[str, int, Amounts]]) -> list[Card]:
    """
    Return *cards* as they are when those to whom a part was *promised* have come.

    Args:
        promised: a name, a card's index and what is promised of it, for each.
    """
    held = {card.index: card for card in cards}
    for name, index, amounts in promised:
        card = held.get(index)
        if card is None:
            continue
        share = _request(amounts, index).shares[0]
        memory_bytes = 0 if share.memory is None else share.memory.on(card.total_bytes)
        held[index] = card._replace(
            allocated_bytes=card.allocated_bytes + min(memory_bytes, card.free_bytes),
            free_weight=max(0, card.free_weight - 1),
            tenants=(*card.tenants, Tenant(name, share.quota)),
        )
    return list(held.values())


def choose(
    amounts: Amounts,
    cards: Sequence[Card],
    placement: str,
    wanted: Sequence[int] = (),
) -> list[int]:
    """
    Return the indexes of the cards for a container.

    Args:
        cards: those that are healthy, with everything that is promised of them.
        placement: ``binpack`` takes the fullest that have room, ``spread`` the emptiest.
        wanted: cards to take first where they have room: the pod's own, or the scheduler's.

    Raises:
        CgpuError: too few have room; it says why for each.
    """
    fitting: list[Card] = []
    reasons: list[str] = []
    for card in cards:
        judged = admission.admit(_request(amounts, card.index), cards)
        if isinstance(judged, Grant):
            fitting.append(card)
        else:
            reasons.append(judged.reason)
    if len(fitting) < amounts.cards:
        why = "; ".join(reasons) or "no other card is healthy"
        raise CgpuError(
            f"{amounts.cards} of {len(cards)} cards asked, {len(fitting)} have room: {why}"
        )
    sign = 1 if placement == "binpack" else -1

    def order(card: Card) -> tuple[bool, float, int]:
        return card.index not in wanted, sign * _free(card), card.index

    return sorted(card.index for card in sorted(fitting, key=order)[: amounts.cards])


def _free(card: Card) -> float:
    """How much of a card is left, its memory and its compute counted alike."""
    quotas = sum(tenant.quota or 0 for tenant in card.tenants)
    return card.free_bytes / card.total_bytes + (100 - quotas) / 100


def _request(amounts: Amounts, index: int) -> Request:
    request = dialects.request_from({**amounts.settings(), "CGPU_GPU": str(index)})
    assert request is not None  # CGPU_MEM always asks
    return request
