# SPDX-License-Identifier: MIT
"""
Which cards are in MIG mode, in which no container can use a whole card.

The driver shows instances in /proc (:func:`.procfs.has_instances`). A card in the mode without
instances computes for no process. The door asks the driver for the mode, and its tree shows it.
NVML takes longer to initialise than a whole container start. So it is asked only where no door
tells, or whether a card has left the mode since.
"""

from __future__ import annotations

from . import procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..request.model import Card


def in_mode(cards: Iterable[Card], root: str) -> frozenset[str]:
    """Return the UUIDs of those *cards* that are in MIG mode, by the tree and by NVML."""
    told = {card.uuid: procfs.read_mig(card.index, root) for card in cards if card.uuid}
    doubtful = [uuid for uuid, mode in told.items() if mode is not False]
    if not doubtful:
        return frozenset()
    from . import nvml_library

    said = nvml_library.mig_modes(doubtful)
    return frozenset(uuid for uuid in doubtful if said.get(uuid, told[uuid]))


def noted(cards: Iterable[Card], divided: Collection[str]) -> list[Card]:
    """Return *cards* with note of what :func:`in_mode` said of them."""
    return [card._replace(mig=card.mig or card.uuid in divided) for card in cards]


def read_cards(root: str, *, tenants: bool = True) -> list[Card]:
    """Return every card under control, as :func:`.procfs.read_cards`, with note of the mode."""
    cards = procfs.read_cards(root, tenants=tenants)
    return noted(cards, in_mode(cards, root))
