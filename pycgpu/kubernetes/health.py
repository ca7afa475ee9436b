# SPDX-License-Identifier: MIT
"""
Which cards have failed, by NVIDIA's Xid errors or because they are silent, or are in MIG mode.

Most Xids are a program's own fault and leave the card intact. A card does not recover from the
others by itself, so one of them makes it unhealthy until the plugin restarts. A card that does not
answer is unhealthy until it answers.

The plugin listens to each card separately until it ends. It tries again if it cannot listen to a
card, or if NVML is not there yet. So the plugin, the driver and a card may start in any order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from ..errors import CgpuError
from ..tree import nvml

#: By NVIDIA's "Xid Errors": raised by the application, contained, or corrected.
HARMLESS = frozenset((13, 31, 32, 43, 45, 63, 68, 92, 94, 109))
#: The interval between retries, and between looks for new cards.
RETRY_S = 10.0
#: The interval at which NVML is initialised again for cards that it does not find. That takes
#: seconds without persistence mode, in which the plugin does not listen to the other cards.
ANEW_S = 120.0
#: How long the waits for all cards' events may outlast the wish to end them.
_ROUND_MS = 2000

log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why a card is unhealthy: ``cause`` as the value of a label may be, ``message`` for people."""

    cause: str
    message: str


#: The driver divides the card itself.
MIG = "mig"


class Health:
    """The cards that have failed; *changed* is called when one has, or is well again."""

    def __init__(
        self, changed: Callable[[], None], retry_s: float = RETRY_S, anew_s: float = ANEW_S
    ) -> None:
        self.ended = threading.Event()
        self._changed = changed
        self._retry_s = retry_s
        self._anew_s = anew_s
        self._xids: dict[str, int] = {}
        self._lost: set[str] = set()
        self._mig: set[str] = set()
        #: The UUIDs of cards whose Xids are listened to.
        self._heard: set[str] = set()
        self._said: dict[str, str] = {}

    @property
    def failed(self) -> frozenset[str]:
        """The UUIDs of failed cards, and of those that the driver divides itself."""
        return frozenset(self._xids) | self._lost | self._mig

    def failure(self, uuid: str) -> Failure | None:
        """Return why a card is unhealthy; None: no failure is known."""
        if (xid := self._xids.get(uuid)) is not None:
            return Failure(f"xid-{xid}", f"Xid {xid}, of which a card does not recover by itself")
        if uuid in self._lost:
            return Failure("silent", "the card does not answer NVML")
        if uuid in self._mig:
            return Failure(MIG, f"in MIG mode: nvidia-smi -i {uuid} -mig 0")
        return None

    def is_heard(self, uuid: str) -> bool:
        """Tell whether a failure of a card would be noticed."""
        return uuid in self._heard

    def tell(self, uuid: str, xid: int) -> None:
        """Take notice of an Xid of a card."""
        if xid not in HARMLESS and uuid not in self._xids:
            self._xids[uuid] = xid
            log.error("card %s: Xid %d: unhealthy until this program is started again", uuid, xid)
            self._changed()

    def follow(self, cards: Callable[[], Collection[str]]) -> None:
        """
        Listen to *cards*, which are looked for again and again, until :attr:`ended` is set.

        Args:
            cards: returns the UUIDs of those that there are.
        """
        while not self.ended.is_set():
            try:
                with nvml.initialised():
                    self._say("", None)
                    self._listen(cards)
            except CgpuError as error:
                self._deaf(str(error))
            except Exception as error:  # whatever it is, cards fail later, too
                self._deaf(repr(error))
            self.ended.wait(self._retry_s)

    def _listen(self, cards: Callable[[], Collection[str]]) -> None:
        """Listen until NVML should be begun anew."""
        anew_s = time.monotonic() + self._anew_s
        look_s = 0.0
        heard: dict[str, nvml.Xids] = {}
        try:
            while not self.ended.is_set():
                if time.monotonic() >= look_s:
                    look_s = time.monotonic() + self._retry_s
                    missing = self._look(set(cards()), heard)
                    if missing and time.monotonic() >= anew_s:
                        return
                if not heard:
                    self.ended.wait(self._retry_s)
                for uuid, xids in [*heard.items()]:
                    if not self._hear(uuid, xids, _ROUND_MS // len(heard)):
                        heard.pop(uuid).close()
        finally:
            for xids in heard.values():
                xids.close()

    def _look(self, uuids: set[str], heard: dict[str, nvml.Xids]) -> bool:
        """Listen to cards that are not heard; return whether NVML does not find one of them."""
        for uuid in heard.keys() - uuids:
            heard.pop(uuid).close()
        self._divided({uuid for uuid in uuids if nvml.in_mig_mode(uuid)})
        missing = False
        for uuid in sorted(uuids - heard.keys()):
            try:
                heard[uuid] = nvml.Xids(uuid)
            except nvml.NoEvents as error:
                self._hears(self._heard - {uuid})
                self._answers(uuid)
                self._say(uuid, str(error))
            except CgpuError as error:
                missing = True
                self._fails(uuid, error)
        return missing

    def _hear(self, uuid: str, xids: nvml.Xids, timeout_ms: int) -> bool:
        """Wait for a card's Xids; return False if listening fails."""
        try:
            xid = xids.wait(timeout_ms)
        except CgpuError as error:
            self._fails(uuid, error)
            return False
        self._answers(uuid)
        self._hears(self._heard | {uuid})
        self._say(uuid, None)
        if xid is not None:
            self.tell(uuid, xid)
        return True

    def _divided(self, uuids: set[str]) -> None:
        """Offer no card in MIG mode, because no container can have the whole of it."""
        for uuid in sorted(uuids - self._mig):
            log.error("card %s: unhealthy in MIG mode: nvidia-smi -i %s -mig 0", uuid, uuid)
        for uuid in sorted(self._mig - uuids):
            log.info("card %s: no longer in MIG mode", uuid)
        if uuids != self._mig:
            self._mig = uuids
            self._changed()

    def _deaf(self, why: str) -> None:
        self._say("", why)
        self._hears(set())

    def _hears(self, uuids: set[str]) -> None:
        if uuids != self._heard:
            self._heard = uuids
            self._changed()

    def _answers(self, uuid: str) -> None:
        if uuid in self._lost:
            self._lost.discard(uuid)
            log.info("card %s: answers again", uuid)
            self._changed()

    def _fails(self, uuid: str, error: CgpuError) -> None:
        self._hears(self._heard - {uuid})
        if not isinstance(error, nvml.BoardLost):
            self._say(uuid, str(error))
        elif uuid not in self._lost:
            self._lost.add(uuid)
            log.error("card %s: unhealthy while it does not answer: %s", uuid, error)
            self._changed()

    def _say(self, uuid: str, why: str | None) -> None:
        """Log why a card, or with an empty *uuid* any, is not listened to; each reason once."""
        if why is not None and self._said.get(uuid) != why:
            which = f"card {uuid}" if uuid else "any card"
            log.warning("failures of %s are not noticed: %s", which, why)
        if why is None:
            self._said.pop(uuid, None)
        else:
            self._said[uuid] = why
