# SPDX-License-Identifier: MIT
"""The tree's file ``parking``: containers that are not running, or wait for room."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..errors import NodeError, ProtocolError
from . import procfs

_FILE = "parking"


class State(Enum):
    """Where a container's memory is, as the file ``state`` has it."""

    RUNNING = "running"
    PARKING = "parking"
    PARKED = "parked"
    RESUMING = "resuming"


class Moving(NamedTuple):
    """
    A container that is not running, or of which a call waits for room.

    Attributes:
        parked_bytes: its memory on the host, of all cards.
        held: it comes back only on request, not when it calls CUDA.
        asked_ns: when it began to wait for room; 0: it does not wait.
        short_card, short_bytes: the card that lacked room when it asked last, and how much; None:
            no card did, or others were first.
        want_card, want_bytes: it runs, and a call of it waits until this card has so much more.
    """

    id: str
    state: State
    since_ns: int
    parked_bytes: int
    pids: tuple[int, ...]
    held: bool = False
    asked_ns: int = 0
    short_card: int | None = None
    short_bytes: int = 0
    want_card: int | None = None
    want_bytes: int = 0


def parse(line: str) -> Moving:
    """Return what a line of the file ``parking`` says. ValueError, KeyError: it is malformed."""
    container_id, *words = line.split(" ")
    told = dict(word.split("=", 1) for word in words)
    return Moving(
        container_id,
        State(told["state"]),
        since_ns=int(told["since_ns"]),
        parked_bytes=int(told["bytes"]),
        pids=tuple(map(int, told["pid"].split(","))) if "pid" in told else (),
        held="hold" in told,
        asked_ns=int(told.get("asked_ns", 0)),
        short_card=int(told["short_gpu"]) if "short_gpu" in told else None,
        short_bytes=int(told.get("short_bytes", 0)),
        want_card=int(told["want_gpu"]) if "want_gpu" in told else None,
        want_bytes=int(told.get("want_bytes", 0)),
    )


def read(root: str) -> dict[str, Moving]:
    """Return them by their ids; none where the door has no such file."""
    found = {}
    try:
        lines = procfs.read_lines(_FILE, root)
    except NodeError as error:
        if not procfs.is_gone(error):
            raise
        return {}
    for number, line in enumerate(lines, 1):
        try:
            one = parse(line)
        except (ValueError, KeyError):
            raise ProtocolError(f"{root}/{_FILE}", number, line) from None
        found[one.id] = one
    return found
