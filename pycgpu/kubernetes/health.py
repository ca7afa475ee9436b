# SPDX-License-Identifier: MIT
"""
Which cards have failed: by NVIDIA's Xid errors.

Most Xids are a program's own fault and leave the card as it was. Of the others a card does not
recover by itself, so one of them makes it unhealthy until the plugin is started anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ..errors import CgpuError
from ..tree import nvml

#: By NVIDIA's "Xid Errors": raised by the application, contained, or corrected.
HARMLESS = frozenset((13, 31, 32, 43, 45, 63, 68, 92, 94, 109))


class Health:
    """The UUIDs of cards that have failed; *changed* is called with each new one and its Xid."""

    def __init__(self, changed: Callable[[str, int], None]) -> None:
        self.failed: set[str] = set()
        self.ended = threading.Event()
        self._changed = changed

    def tell(self, uuid: str, xid: int) -> None:
        """Take notice of an Xid of a card."""
        if xid not in HARMLESS and uuid not in self.failed:
            self.failed.add(uuid)
            self._changed(uuid, xid)

    def follow(self, uuids: Iterable[str]) -> str | None:
        """Listen until :attr:`ended` is set; return why that was not possible, or None."""
        try:
            for uuid, xid in nvml.xids(uuids, self.ended):
                self.tell(uuid, xid)
        except CgpuError as error:
            return str(error)
        return None
