# SPDX-License-Identifier: MIT
"""What a door keeps of containers that move; ``kmod/core/memory/parking.h`` decides it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class State(Enum):
    """Where a container's memory is, as the file ``state`` has it."""

    RUNNING = "running"
    PARKING = "parking"
    PARKED = "parked"
    RESUMING = "resuming"


@dataclass(frozen=True, slots=True)
class Moving:
    """A container that is not running. It waits for room since ``asked_ns``; 0: it does not."""

    id: str
    state: State
    since_ns: int
    asked_ns: int
    pids: list[int]


@dataclass(frozen=True, slots=True)
class Wanting:
    """Why a container cannot come back: ``minor`` lacks bytes; None: others are first."""

    minor: int | None
    short_bytes: int


class Books(Protocol):
    """One door's. Pids are the host's numbers. What a door refuses is an OSError."""

    def moving(self) -> list[Moving]:
        """Return the containers that are not running."""

    def park(self, container_id: str, pids: list[int]) -> None:
        """Begin to park these processes. EBUSY, EXDEV: it is in a group, E2BIG, ENOENT."""

    def parked(self, container_id: str) -> None:
        """Nothing of them is on a card any more."""

    def come_back(self, container_id: str, foreign: dict[int, int]) -> Wanting | None:
        """
        Reserve room for a parked container. EINVAL: it is not parked.

        Args:
            foreign: by card, the bytes that no container has.
        """

    def running(self, container_id: str) -> None:
        """It is back, or its processes have ended: nothing is reserved any more."""

    def holders(self, container_id: str) -> dict[int, int]:
        """Return the processes that have a card of it open, and their bytes of all cards."""

    def known(self) -> dict[int, int]:
        """Return by card the bytes that the driver keeps for itself and containers have."""

    def parked_bytes(self, container_id: str) -> int:
        """Return what it has on the host, of all cards."""
