# SPDX-License-Identifier: MIT
"""Changes of a running container or card, as people write them: checked first, then made."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from ..errors import CgpuError, NodeError
from ..request import idle_time
from ..request.model import MIB, POLICIES, PRIORITY_MAX
from ..request.size import is_number, parse_bytes
from . import procfs

_REASONS = {
    errno.ERANGE: "out of bounds",
    errno.ENOSPC: "the card has no room for it",
    errno.EBUSY: "the container uses more than that now",
    errno.ENOENT: "the container is gone",
    errno.ENODEV: "the container is gone",
}


class Change(NamedTuple):
    """
    ``shown``: old and new value, in words. ``apply`` raises CgpuError where it is refused, and
    ``undo`` writes the old value again.
    """

    shown: str
    apply: Callable[[], None]
    undo: Callable[[], None]


def plan(what: str, card: int, name: str, typed: str, root: str) -> Change:
    """
    Return the change of one value, not made yet.

    Args:
        what: ``weight``, ``quota``, ``quota_min``, ``priority``, ``memory``, ``idle_park`` or
            ``policy``; the last is the card's.
        name: the container's directory below the card's.

    Raises:
        CgpuError: *typed* is no such value, or the container is gone.
    """
    typed = typed.strip()
    if what == "policy":
        policy = parse_policy(typed)
        old = procfs.read_policy(card, root)
        return Change(
            f"{old} {POLICIES[old]} → {policy} {POLICIES[policy]}",
            lambda: procfs.write_policy(card, policy, root),
            lambda: procfs.write_policy(card, old, root),
        )
    if what == "memory":
        limit = parse_memory(typed)
        before = procfs.read_memsize(card, name, root)
        _check_room(card, name, before or 0, limit, root)
        shown = "no limit" if before is None else f"{before // MIB} MiB"
        return _guarded(
            f"memory of {name}",
            f"{shown} → {limit // MIB} MiB",
            lambda: procfs.write_memsize(card, name, limit, root),
            lambda: _limit_again(card, name, before, root),
        )
    if what == "idle_park":
        seconds = parse_idle_park(typed)
        if seconds:
            _check_parks(name, card, root)
        old_s = procfs.read_idle_park_s(card, name, root)
        return _guarded(
            f"idle park of {name}",
            f"{idle_time.shown(old_s)} → {idle_time.shown(seconds)}",
            lambda: procfs.write_idle_park_s(card, name, seconds, root),
            lambda: procfs.write_idle_park_s(card, name, old_s, root),
        )
    number = parse_number(what, typed)
    old_number = _READ[what](card, name, root) or 0
    _check_own(what, old_number, card, name, root)
    if what == "weight":
        free = procfs.read_free_weight(card, root) + old_number
        if number > free:
            raise CgpuError(f"weight of {name} stays {old_number}: card {card} has {free} for it")
    unit = " %" if what.startswith("quota") else ""
    words = ["none" if unit and not value else f"{value}{unit}" for value in (old_number, number)]
    return _guarded(
        f"{what} of {name}",
        " → ".join(words),
        lambda: _WRITE[what](card, name, number, root),
        lambda: _WRITE[what](card, name, old_number, root),
    )


def _check_own(what: str, now: int, card: int, name: str, root: str) -> None:
    """Raise CgpuError if it is a part of the compute of a group's member."""
    leader = procfs.unless_gone(procfs.read_group, card, name, root)
    if leader in (None, procfs.read_cid(card, name, root)):
        return
    option = what.replace("_", "-")
    stays = f"{what} of {name} stays {now or 'none'}: "
    if what == "quota":
        stays += "MPS gives a member its threads as its program starts: start it again with"
        stays += " --quota; for the whole group: "
    else:
        stays += "it is in a group, which has one for all: "
    raise CgpuError(f"{stays}cgpu set {leader} --{option}")


def _check_parks(name: str, card: int, root: str) -> None:
    """Raise CgpuError if the container would never be parked, however long it is idle."""
    stays = f"idle park of {name} stays off: "
    if not procfs.parks(root):
        raise CgpuError(f"{stays}this door ({root}) cannot park")
    if procfs.unless_gone(procfs.read_group, card, name, root) is not None:
        raise CgpuError(f"{stays}no container of a group is parked, because MPS serves it")


def _check_room(card: int, name: str, before_bytes: int, limit_bytes: int, root: str) -> None:
    memory = procfs.read_memory(card, root)
    total_bytes = memory["total"]
    if not total_bytes:
        return
    # The door promises all memory that the board reports, with the part that the driver takes.
    stays = f"memory of {name} stays as it was: "
    promisable_bytes = total_bytes * procfs.read_overcommit_ratio(card, root) // 100
    free_bytes = max(0, promisable_bytes - memory["allocated"])
    more_bytes = limit_bytes - before_bytes
    if more_bytes > free_bytes:
        raise CgpuError(
            f"{stays}{more_bytes // MIB} MiB more, and card {card} has {free_bytes // MIB} MiB free"
        )
    if limit_bytes > total_bytes:
        raise CgpuError(
            f"{stays}{limit_bytes // MIB} MiB asked, and card {card} has {total_bytes // MIB} MiB"
        )


def apply_all(changes: list[Change]) -> None:
    """
    Make all changes or none: when one is refused, those before it are taken back.

    Raises:
        CgpuError: what was refused, and what could not be taken back.
    """
    done: list[Change] = []
    for change in changes:
        try:
            change.apply()
        except CgpuError as error:
            left = [str(error)]
            for earlier in reversed(done):
                try:
                    earlier.undo()
                except CgpuError as other:
                    left.append(str(other))
            raise CgpuError("; ".join(left)) from None
        done.append(change)


def parse_number(what: str, text: str) -> int:
    """Return a whole number, in percent if *what* is a quota. CgpuError: *text* is no number."""
    if not is_number(text):
        raise CgpuError(f"{what} {text[:40]!r}: write a whole number")
    number = int(text)
    if what.startswith("quota") and number > 100:
        raise CgpuError(f"{what} {number}: write 1 to 100 percent, or 0 for none")
    if what == "priority" and number > PRIORITY_MAX:
        raise CgpuError(f"priority {number}: write 0 to {PRIORITY_MAX}")
    return number


def overcommitted(what: str, card: int, root: str) -> int | None:
    """
    Return what the containers on a card have of *what* together, in percent, if it is over 100.

    The hook refuses that. An operator may set it by hand, but should be told.
    """
    held = [getattr(one, what) or 0 for one in procfs.read_tenants(card, root)]
    return sum(held) if sum(held) > 100 else None


def parse_memory(text: str) -> int:
    """Return bytes, of an amount such as ``8GiB``. CgpuError: it is none."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise CgpuError(f"memory: {error}") from None


def parse_idle_park(text: str) -> int:
    """Return seconds, of a time such as ``5m``; 0 is never. CgpuError: it is none."""
    try:
        return idle_time.parse_seconds(text)
    except ValueError as error:
        raise CgpuError(f"idle park: {error}") from None


def parse_policy(text: str) -> int:
    """Return the number of a policy given by number or name. CgpuError: there is none."""
    if text in POLICIES:
        return POLICIES.index(text)
    if is_number(text) and int(text) < len(POLICIES):
        return int(text)
    listed = ", ".join(f"{number} {name}" for number, name in enumerate(POLICIES))
    raise CgpuError(f"no policy {text[:40]!r}; there are: {listed}")


_READ: dict[str, Callable[[int, str, str], int | None]] = {
    "weight": procfs.read_weight,
    "quota": procfs.read_quota,
    "quota_min": procfs.read_quota_min,
    "priority": procfs.read_priority,
}
_WRITE: dict[str, Callable[[int, str, int, str], None]] = {
    "weight": procfs.write_weight,
    "quota": procfs.write_quota,
    "quota_min": procfs.write_quota_min,
    "priority": procfs.write_priority,
}


def _limit_again(card: int, name: str, limit: int | None, root: str) -> None:
    # The door lifts no limit once there is one.
    if limit is None:
        raise CgpuError(f"{name} had no limit on GPU {card} and keeps the new one")
    procfs.write_memsize(card, name, limit, root)


def _guarded(
    subject: str, shown: str, write: Callable[[], None], undo: Callable[[], None]
) -> Change:
    def apply() -> None:
        try:
            write()
        except NodeError as error:
            if error.errno not in _REASONS:
                raise
            text = f"{subject} stays as it was: {error.text}: {_REASONS[error.errno]}"
            raise CgpuError(f"{text} ({errno.errorcode[error.errno]})") from None

    return Change(shown, apply, undo)
