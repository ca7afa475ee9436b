# SPDX-License-Identifier: MIT
"""
Which cards are in MIG mode, in which nobody has the whole of a card.

The driver shows instances in /proc (:func:`.procfs.has_instances`). A card that is in the mode and
has none computes for nobody either, and that only NVML tells. Its bindings take longer to import
than NVML to answer, and every container's start waits for this.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..request.model import Card

_LIBRARY = "libnvidia-ml.so.1"
_CALLS = ("nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigMode")


def in_mode(uuids: Iterable[str]) -> frozenset[str]:
    """Return those boards that NVML says are in MIG mode; none where it does not answer."""
    wanted = [uuid for uuid in uuids if uuid]
    if not wanted:
        return frozenset()
    # What ctypes adds to it takes longer to import than all that the hook does.
    import _ctypes

    class Int(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
        _type_ = "i"

    class Board(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not at run time
        _type_ = "P"

    class Call(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Int

    try:
        library = _ctypes.dlopen(_LIBRARY, 0)
        start, end, find, ask = (Call(_ctypes.dlsym(library, name)) for name in _CALLS)
    except OSError:  # no driver, or one of before there was MIG
        return frozenset()
    if start():
        return frozenset()
    found = set()
    board, now, pending = Board(), Int(), Int()
    for uuid in wanted:
        # refused by boards that have no such mode
        if not (
            find(uuid.encode(), _ctypes.byref(board))
            or ask(board, _ctypes.byref(now), _ctypes.byref(pending))
        ):
            found |= {uuid} if now.value else set()
    end()
    return frozenset(found)


def noted(cards: Collection[Card], divided: Collection[str] | None = None) -> list[Card]:
    """
    Return *cards* with note of those that are in MIG mode.

    Args:
        divided: what :func:`in_mode` said of them, or None to ask it.
    """
    if divided is None:
        divided = in_mode(card.uuid for card in cards)
    return [card._replace(mig=card.mig or card.uuid in divided) for card in cards]
