# SPDX-License-Identifier: MIT
"""
CTyun eGPU: ``EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=3276,WEIGHT=10:PGPU=1,…``.

MEM is MiB; WEIGHT is percent of the card, enforced even if the container is alone on it. ONLINE=1,
a service that answers requests, runs before ONLINE=0. CTyun's document only shows POLICY=0 and
TYPE=DOCKER, and no card without a WEIGHT. Other forms are refused, not guessed.
"""

from __future__ import annotations

from ..request.model import MIB, MIXED, CardShare, MemoryBytes, Request
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "EGPU"
_GRAMMAR = "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=2048,WEIGHT=50 (MiB, percent; one PGPU a card)"


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request; whatever is out of bounds is refused here, before anything is reserved.

    Raises:
        RequestError: EGPU breaks the grammar, or WEIGHT is over 100; the message quotes it.
    """
    text = env[KEY]
    head, *cards = text.split(":")
    policy, online, kind = _fields(text, head, ("POLICY", "ONLINE", "TYPE"))
    if policy != "0":
        raise value.fail(KEY, text, f"POLICY={policy!r}: the only policy is 0, a fixed part")
    if online not in ("0", "1"):
        raise value.fail(KEY, text, f"ONLINE={online!r}: write 0 or 1")
    if kind != "DOCKER":
        raise value.fail(KEY, text, f"TYPE={kind!r}: the only type is DOCKER, a container")
    if not cards:
        raise value.fail(KEY, text, f"names no card; the form is {_GRAMMAR}")
    priority = 1 if online == "1" else None
    indexes: list[int] = []
    shares: list[CardShare] = []
    for card in cards:
        index, mem, weight = (
            _number(text, name, field)
            for name, field in zip(
                ("PGPU", "MEM", "WEIGHT"),
                _fields(text, card, ("PGPU", "MEM", "WEIGHT")),
                strict=True,
            )
        )
        if index in indexes:
            raise value.fail(KEY, text, f"PGPU={index} is named twice")
        if not mem:
            raise value.fail(KEY, text, f"card {index}: MEM=0: write MiB, more than 0")
        if not 1 <= weight <= 100:
            raise value.fail(
                KEY, text, f"card {index}: WEIGHT={weight} % asked, a card has 1 to 100 %"
            )
        indexes.append(index)
        shares.append(
            CardShare(memory=MemoryBytes(mem * MIB), quota=weight, policy=MIXED, priority=priority)
        )
    return Request(
        dialect="ctyun_egpu",
        selectors=tuple(indexes),
        visible=value.visible_cards(env),
        shares=tuple(shares),
        repeat_last=False,
    )


def _fields(text: str, group: str, names: tuple[str, ...]) -> list[str]:
    found: dict[str, str] = {}
    for field in group.split(","):
        name, equals, content = field.partition("=")
        if not equals or name not in names or name in found:
            raise value.fail(KEY, text, f"{field!r} does not fit; the form is {_GRAMMAR}")
        found[name] = content
    missing = [name for name in names if name not in found]
    if missing:
        raise value.fail(KEY, text, f"{group!r} lacks {missing[0]}; the form is {_GRAMMAR}")
    return [found[name] for name in names]


def _number(text: str, name: str, content: str) -> int:
    if not value.is_number(content):
        raise value.fail(KEY, text, f"{name}={content!r}: write a whole number")
    return int(content)
