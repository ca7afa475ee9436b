# SPDX-License-Identifier: MIT
"""
KAI Scheduler: a pod's annotations, which give one container a part of a card's memory.

``gpu-fraction`` is a part of the card, ``gpu-memory`` MiB; both are the first container's, or that
of ``gpu-fraction-container-name``. NvFractions name the container in the annotation
``nvidia.com/container.<name>.gpu-memory.request`` and ``.limit``. No memory is promised twice here,
so a container gets its limit, and its limit counts.

A hook does not know which container is the pod's first. KAI gives only that one a card, so an
annotation without a container's name is for the container that is given a card.
"""

from __future__ import annotations

from ..errors import ConflictError
from ..request.model import MIB, CardShare, MemoryBytes, MemoryShare, Request
from ..request.size import is_number, parse_quantity
from . import CONTAINER, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from ..request.record import Record as NamedTuple

FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
NAME = "gpu-fraction-container-name"
NUMBER = "gpu-fraction-num-devices"
MODE = "kai.scheduler/gpu-compute-sharing-mode"
NV = "nvidia.com/container."
WORDS = ("gpu-memory.request", "gpu-memory.limit", "gpus.devices", "gpu-compute.mode")
#: The decimal places of a fraction that count: hundredths of a percent.
PLACES = 4


class Part(NamedTuple):
    """
    What a container has of each of its cards.

    memory_mib, memory_percent_100: one of them. devices: the annotation in which KAI wrote its
    choice, or None.
    """

    cards: int
    memory_mib: int | None = None
    memory_percent_100: int | None = None
    devices: str | None = None


def parts(annotations: Mapping[str, str]) -> dict[str | None, Part]:
    """
    Return the containers' parts by name; None stands for the pod's first.

    Raises:
        ConflictError: two annotations ask for the same container.
        RequestError: a malformed value, or an unsupported annotation; it is quoted.
    """
    by_name = _by_name(annotations)
    cards = value.integer(annotations, NUMBER, 1, None, "write a positive whole number of cards")
    cards = 1 if cards is None else cards
    _check_mode(annotations, MODE)
    found: dict[str | None, Part] = {}
    for container, keys in by_name.items():
        limit_mib = _limit_mib(annotations, keys)
        if "gpu-compute.mode" in keys:
            _check_mode(annotations, keys["gpu-compute.mode"])
        if limit_mib is not None:
            found[container] = Part(cards, limit_mib, None, keys.get("gpus.devices"))
    name = annotations.get(NAME)
    asking = [key for key in (FRACTION, MEMORY) if key in annotations]
    if len(asking) > 1 or (asking and found):
        raise ConflictError(
            f"{asking[0]} and {asking[1] if len(asking) > 1 else f'{NV}{next(iter(found))}'} ask at"
            " once; keep one of them"
        )
    if name is not None and found and name not in found:
        raise value.fail(NAME, name, f"the part is for {next(iter(found))}; name the same")
    if asking:
        devices = by_name.get(name or "", {}).get("gpus.devices")
        mib = value.integer(annotations, MEMORY, 1, None, "write a positive whole number of MiB")
        found[name] = Part(cards, mib, None if mib else _fraction(annotations), devices)
    return found


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request of this container, or None if the pod's request is for another one.

    Raises:
        ConflictError: two annotations ask at once.
        RequestError: a malformed value, quoted, or nothing tells which container this is.
    """
    found = parts(env)
    name = env.get(CONTAINER)
    if name is not None and "," in name:
        raise value.fail(CONTAINER, name, "two annotations name the container; leave the pod's out")
    for named in found:
        if named is not None and name is None:
            raise value.fail(NAME, named, "is a container of a pod, and here is none; leave it out")
    part = found.get(name) or found.get(None)
    if part is None or (name is not None and env.get(value.VISIBLE) in ("", "none", "void")):
        return None
    devices = None if part.devices is None else value.cards(env, part.devices)
    visible = value.visible_cards(env)
    memory: MemoryBytes | MemoryShare
    if part.memory_mib is not None:
        memory = MemoryBytes(part.memory_mib * MIB)
    else:
        memory = MemoryShare(part.memory_percent_100 or 0, 10000, granule_bytes=MIB, usable=True)
    return Request(
        dialect="kai",
        selectors=visible if devices is None else devices,
        visible=None if devices is None else visible,
        shares=(CardShare(memory=memory),),
        count=part.cards,
        only_given=name is not None,
    )


def _by_name(annotations: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return NvFractions' annotations by container and word."""
    found: dict[str, dict[str, str]] = {}
    for key in annotations:
        if not key.startswith(NV):
            continue
        name, _, word = key[len(NV) :].partition(".")
        if not name or word not in WORDS:
            known = ", ".join(f"{NV}<name>.{one}" for one in WORDS)
            raise value.fail(key, annotations[key], f"unknown; known are {known}")
        found.setdefault(name, {})[word] = key
    return found


def _limit_mib(annotations: Mapping[str, str], keys: Mapping[str, str]) -> int | None:
    """Return the larger of request and limit, in whole MiB, or None."""
    amounts = {
        word: _mib(annotations, keys[word])
        for word in ("gpu-memory.request", "gpu-memory.limit")
        if word in keys
    }
    if len(amounts) == 2 and amounts["gpu-memory.request"] > amounts["gpu-memory.limit"]:
        key = keys["gpu-memory.request"]
        limit = annotations[keys["gpu-memory.limit"]]
        raise value.fail(key, annotations[key], f"is more than the limit, {limit}")
    return max(amounts.values(), default=None)


def _mib(annotations: Mapping[str, str], key: str) -> int:
    text = annotations[key]
    try:
        amount_bytes = parse_quantity(text)
    except ValueError:
        amount_bytes = 0
    if amount_bytes < MIB:
        raise value.fail(key, text, "write an amount such as 7680Mi, 1Mi at least")
    return -(-amount_bytes // MIB)


def _fraction(annotations: Mapping[str, str]) -> int:
    text = annotations[FRACTION]
    whole, _, places = text.partition(".")
    readable = whole in ("", "0") and is_number(places) and len(places) <= PLACES
    if not readable or not int(places):
        raise value.fail(
            FRACTION, text, f"write a part of a card, more than 0 and less than 1, {PLACES} places"
        )
    return int(f"{places:0<{PLACES}}")


def _check_mode(annotations: Mapping[str, str], key: str) -> None:
    mode = annotations.get(key, "time-slicing")
    if mode != "time-slicing":
        raise value.fail(key, mode, "containers share by time here; write time-slicing")
