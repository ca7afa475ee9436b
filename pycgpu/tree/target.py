# SPDX-License-Identifier: MIT
"""Which container a user means by an id, the beginning of one, a name or a pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import CgpuError
from . import names, procfs
from .names import ContainerName

#: Names that fit a line of an error.
_LISTED = 6


class Target(NamedTuple):
    """``directories``: name of its directory by card."""

    id: str
    name: ContainerName | None
    directories: dict[int, str]


def listing(root: str, prefix: str = "/") -> list[Target]:
    """Return all containers of the tree, by id."""
    directories: dict[str, dict[int, str]] = {one: {} for one in procfs.container_ids(root)}
    for card in procfs.card_indexes(root):
        for name in procfs.container_names(card, root):
            try:
                container_id = procfs.read(f"{card}/{name}/cid", root).strip()
            except CgpuError:
                # Gone since the directory was listed.
                continue
            directories.setdefault(container_id, {})[card] = name
    known = names.find(directories, prefix)
    return [Target(one, known.get(one), directories[one]) for one in sorted(directories)]


def find(text: str, root: str, prefix: str = "/") -> Target:
    """
    Return the one container that *text* means.

    Raises:
        CgpuError: none fits, or several do.
    """
    every = listing(root, prefix)
    fitting = [
        one
        for one in every
        if any(
            names.matches(text, one.id, short, one.name)
            for short in (*one.directories.values(), one.id)
        )
    ]
    # An id that is the beginning of another's still means itself.
    fitting = [one for one in fitting if one.id == text] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        listed = ", ".join(_shown(one) for one in every[:_LISTED]) or "none"
        if len(every) > _LISTED:
            listed += f" and {len(every) - _LISTED} more (`cgpu ps`)"
        raise CgpuError(f"no container {text!r} on a GPU; there are: {listed}")
    listed = ", ".join(_shown(one) for one in fitting)
    raise CgpuError(f"{text!r} means more than one container: {listed}; write more of the id")


def _shown(target: Target) -> str:
    short = next(iter(target.directories.values()), target.id)
    return short if target.name is None else f"{short} ({target.name})"


def check_card(card: int, there: Iterable[int]) -> None:
    """Raise CgpuError unless *card* is one of those under control, *there*."""
    found = sorted(there)
    if card not in found:
        listed = ", ".join(map(str, found)) or "none"
        raise CgpuError(f"no GPU {card} under control; there are: {listed}")


def choose_cards(target: Target, gpu: int | None) -> list[tuple[int, str]]:
    """
    Return card and directory wherever the container is, or on the card *gpu* alone.

    Raises:
        CgpuError: it does not have that card.
    """
    cards = sorted(target.directories.items())
    if gpu is None:
        return cards
    chosen = [(card, name) for card, name in cards if card == gpu]
    if not chosen:
        listed = ", ".join(str(card) for card, _ in cards) or "none"
        raise CgpuError(f"{_shown(target)} has no GPU {gpu}; it has: {listed}")
    return chosen
