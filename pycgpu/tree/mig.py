# SPDX-License-Identifier: MIT
"""
Which cards are in MIG mode, in which nobody has the whole of a card.

The driver shows instances in /proc (:func:`.procfs.has_instances`). A card that is in the mode and
has none computes for nobody either. The door asks the driver of that, and its tree tells; NVML,
which takes longer to begin than all that a container's start does, is asked where no door has told,
and whether a card has left the mode since.
"""

from __future__ import annotations

from . import procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..request.model import Card

_LIBRARY = "libnvidia-ml.so.1"
#: Of boards that have no such mode.
_NOT_SUPPORTED = 3
_CALLS = ("nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigMode")


def in_mode(cards: Iterable[Card], root: str) -> frozenset[str]:
    """Return the UUIDs of those *cards* that are in MIG mode, by the tree and by NVML."""
    told = {card.uuid: procfs.read_mig(card.index, root) for card in cards if card.uuid}
    doubtful = [uuid for uuid, mode in told.items() if mode is not False]
    said = _by_nvml(doubtful) if doubtful else {}
    return frozenset(uuid for uuid in doubtful if said.get(uuid, told[uuid]))


def _by_nvml(uuids: Iterable[str]) -> dict[str, bool]:
    """Return what NVML says of boards; of none where it does not answer."""
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
        return {}
    if start():
        return {}
    found = {}
    board, now, pending = Board(), Int(), Int()
    for uuid in uuids:
        if find(uuid.encode(), _ctypes.byref(board)):
            continue
        error = ask(board, _ctypes.byref(now), _ctypes.byref(pending))
        if error in (0, _NOT_SUPPORTED):
            found[uuid] = not error and bool(now.value)
    end()
    return found


def noted(cards: Iterable[Card], divided: Collection[str]) -> list[Card]:
    """Return *cards* with note of what :func:`in_mode` said of them."""
    return [card._replace(mig=card.mig or card.uuid in divided) for card in cards]


def read_cards(root: str, *, tenants: bool = True) -> list[Card]:
    """Return every card under control, as :func:`.procfs.read_cards`, with note of the mode."""
    cards = procfs.read_cards(root, tenants=tenants)
    return noted(cards, in_mode(cards, root))
