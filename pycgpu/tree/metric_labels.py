# SPDX-License-Identifier: MIT
"""By which labels a card's and a container's metrics are told apart."""

from __future__ import annotations

from .snapshot import CardView, ContainerView

CARD_LABELS = ("gpu", "uuid", "device")
#: Of a container, on whichever cards it is.
OWN_LABELS = ("container", "id", "name", "pod", "namespace")
CONTAINER_LABELS = ("gpu", "uuid", *OWN_LABELS)


def of_card(view: CardView) -> list[str]:
    """Return the values of :data:`CARD_LABELS`."""
    card = view.status.card
    name = None if view.board is None else view.board.name
    return [str(card.index), card.uuid, name or ""]


def of_own(view: ContainerView) -> list[str]:
    """Return the values of :data:`OWN_LABELS`."""
    one, name = view.status, view.name
    return [
        one.name,
        one.id,
        "" if name is None else name.name,
        "" if name is None else name.pod or "",
        "" if name is None else name.namespace or "",
    ]


def of_container(card: CardView, view: ContainerView) -> list[str]:
    """Return the values of :data:`CONTAINER_LABELS`."""
    return [str(view.status.card), card.status.card.uuid, *of_own(view)]
