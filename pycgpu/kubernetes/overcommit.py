# SPDX-License-Identifier: MIT
"""The overcommit that a cluster wants of its nodes' cards."""

from __future__ import annotations

import logging

from ..errors import CgpuError, ModuleNotLoaded, NodeError
from ..tree import cards, procfs

KEY = "overcommit_ratio"

log = logging.getLogger(__name__)


class Overcommit:
    """
    Keeps a ratio on a node's cards; a card's own setting in cards.toml wins.

    The ratio is lost when the driver is reloaded and when an agent starts.

    Args:
        ratio: in percent; None leaves the cards as they are.
        prefix: where the host's root is mounted.
    """

    def __init__(self, ratio: int | None, prefix: str = "/") -> None:
        self.ratio = ratio
        self._top = prefix.rstrip("/")
        self._said: set[str] = set()

    def keep(self, root: str) -> None:
        """
        Write the ratio to the cards that lack it; log an obstacle once.

        Raises:
            ModuleNotLoaded: no door is open.
        """
        refused = set()
        try:
            for card, now, value in self._lacking(root):
                try:
                    procfs.write_setting(card, KEY, value, root)
                    log.info("card %d: %s %d, and now %d", card, KEY, now, value)
                except NodeError as error:
                    refused.add(f"card {card} keeps {KEY} {now}: {error}")
        except ModuleNotLoaded:
            raise
        except CgpuError as error:
            refused.add(f"cards keep their {KEY}: {error}")
        for text in refused - self._said:
            log.warning("%s", text)
        self._said = refused

    def _lacking(self, root: str) -> list[tuple[int, int, int]]:
        if self.ratio is None:
            return []
        tables = cards.with_default(cards.load(self._top + cards.PATH), KEY, self.ratio)
        found = cards.pending(tables, root, f"{self._top}/proc")
        return [(card, now, value) for card, _, now, value in found]
