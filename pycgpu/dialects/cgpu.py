# SPDX-License-Identifier: MIT
"""
The project's own variables: everything that a card can be asked for, under plain names.

=================  ==========================================================================
CGPU_GPU           cards by index or UUID, or ``all``; else NVIDIA_VISIBLE_DEVICES decides
CGPU_MEM           memory that is seen: ``4GiB``, ``3276MiB``, bytes, ``25%`` or ``max``;
                   percent (to two places) are of what the card can give to containers
CGPU_QUOTA         most percent of the compute, 1 to 100
CGPU_QUOTA_MIN     least percent, guaranteed
CGPU_WEIGHT        share among those who want to run
CGPU_POLICY        0 to 9 or its name; a hint for a card whose policy nobody set by hand
CGPU_PRIORITY      0 to 15; higher goes first
CGPU_OOM           ``fail`` (the allocation does) or ``kill`` (the process)
CGPU_OOM_SCRIPT    path in the container, run once when an allocation is refused
CGPU_UVM_DISABLE   1 refuses managed memory
CGPU_IDLE_PARK     idle for so long it may be parked: ``90``, ``90s``, ``5m``, ``1h``; ``off``
=================  ==========================================================================

MEM, QUOTA, QUOTA_MIN and WEIGHT take one value for all cards or a comma-separated value for each.
A variable of this form that is not listed is refused: a mistyped limit must not be lost.
``CGPU_DISABLE=1`` switches all of this off. ``CGPU_GROUP`` and ``CGPU_IDLE_PARK`` stand beside any
dialect's words: see :func:`pycgpu.dialects.request_from`.
"""

from __future__ import annotations

from ..errors import RequestError
from ..request.model import (
    BURST,
    MIB,
    MIXED,
    POLICIES,
    PRIORITY_MAX,
    WEIGHTED,
    CardShare,
    MemoryBytes,
    MemoryShare,
    Request,
)
from ..request.size import parse_bytes
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

GPU = "CGPU_GPU"
MEM = "CGPU_MEM"
QUOTA = "CGPU_QUOTA"
QUOTA_MIN = "CGPU_QUOTA_MIN"
WEIGHT = "CGPU_WEIGHT"
POLICY = "CGPU_POLICY"
PRIORITY = "CGPU_PRIORITY"
OOM = "CGPU_OOM"
OOM_SCRIPT = "CGPU_OOM_SCRIPT"
UVM_DISABLE = "CGPU_UVM_DISABLE"
IDLE_PARK = "CGPU_IDLE_PARK"
DISABLE = "CGPU_DISABLE"
GROUP = "CGPU_GROUP"
KNOWN = (
    GPU,
    MEM,
    QUOTA,
    QUOTA_MIN,
    WEIGHT,
    POLICY,
    PRIORITY,
    OOM,
    OOM_SCRIPT,
    UVM_DISABLE,
    IDLE_PARK,
    GROUP,
    DISABLE,
)


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request.

    Raises:
        RequestError: a malformed value, quoted, or lists of different lengths.
    """
    unknown = [
        key
        for key in env
        if key.startswith("CGPU_") and key not in KNOWN and not key.startswith(value.CDI_CARD)
    ]
    if unknown:
        raise value.fail(unknown[0], env[unknown[0]], f"unknown; known are {', '.join(KNOWN)}")
    memory = [_memory(env, part) for part in env[MEM].split(",")] if MEM in env else [None]
    quota = _list(env, QUOTA, 1, 100)
    quota_min = _list(env, QUOTA_MIN, 0, 100)
    weight = _list(env, WEIGHT, 1, None)
    length = max(len(memory), len(quota), len(quota_min), len(weight))
    for key, values in ((MEM, memory), (QUOTA, quota), (QUOTA_MIN, quota_min), (WEIGHT, weight)):
        if len(values) not in (1, length):
            raise value.fail(key, env[key], f"write one value, or {length} as in the other lists")
    wide = [
        values * length if len(values) == 1 else values
        for values in (memory, quota, quota_min, weight)
    ]
    policy = _policy(env)
    priority = value.integer(env, PRIORITY, 0, PRIORITY_MAX, f"write 0 to {PRIORITY_MAX}")
    oom = env.get(OOM)
    if oom not in (None, "fail", "kill"):
        raise value.fail(OOM, oom, "write fail or kill")
    uvm_disable = bool(value.switch(env, UVM_DISABLE))
    shares = []
    for card_memory, card_quota, card_min, card_weight in zip(*wide, strict=True):
        if card_quota is not None and card_min is not None and card_min > card_quota:
            raise RequestError(
                f"{QUOTA_MIN}={env[QUOTA_MIN]!r} is more than {QUOTA}={env[QUOTA]!r}", QUOTA_MIN
            )
        shares.append(
            CardShare(
                memory=card_memory,
                quota=card_quota,
                quota_min=card_min,
                weight=card_weight,
                policy=_hint(policy, card_quota, card_min, card_weight),
                priority=priority,
                uvm_disable=uvm_disable,
                oom_action=oom,
            )
        )
    named = value.cards(env, GPU)
    return Request(
        dialect="cgpu",
        selectors=value.visible_cards(env) if named is None else named,
        visible=None if named is None else value.visible_cards(env),
        shares=tuple(shares),
        repeat_last=length == 1,
        oom_script=value.script(env, OOM_SCRIPT),
        idle_park_s=idle_park_s(env),
    )


def idle_park_s(env: Mapping[str, str]) -> int | None:
    """
    Return the idle seconds after which the container may be parked, 0: never; None: not set.

    Raises:
        RequestError: the value is no time.
    """
    text = env.get(IDLE_PARK)
    if text is None:
        return None
    from ..request import idle_time

    try:
        return idle_time.parse_seconds(text)
    except ValueError as error:
        raise value.fail(IDLE_PARK, text, str(error)) from None


def _list(env: Mapping[str, str], key: str, low: int, high: int | None) -> list[int | None]:
    wanted = f"write {low} to {high} percent" if high else "write a positive whole number"
    values = value.integers(env, key, wanted)
    if values is None:
        return [None]
    if any(number < low or (high is not None and number > high) for number in values):
        raise value.fail(key, env[key], wanted)
    return list(values)


def _memory(env: Mapping[str, str], part: str) -> MemoryBytes | MemoryShare | None:
    if part == "max":
        return None
    if part.endswith("%"):
        whole, point, places = part[:-1].partition(".")
        readable = value.is_number(whole) and (not point or value.is_number(places))
        percent_100 = int(f"{whole}{places:0<2}") if readable and len(places) <= 2 else 0
        if not 100 <= percent_100 <= 10000:
            raise value.fail(MEM, env[MEM], f"{part!r}: write 1% to 100%")
        return MemoryShare(percent_100, 10000, granule_bytes=MIB, usable=True)
    try:
        return MemoryBytes(parse_bytes(part))
    except ValueError as error:
        raise value.fail(MEM, env[MEM], str(error)) from None


def _policy(env: Mapping[str, str]) -> int | None:
    text = env.get(POLICY)
    if text is None:
        return None
    if text in POLICIES:
        return POLICIES.index(text)
    if value.is_number(text) and int(text) < len(POLICIES):
        return int(text)
    raise value.fail(
        POLICY, text, f"write 0 to {len(POLICIES) - 1} or one of {', '.join(POLICIES)}"
    )


def _hint(
    policy: int | None, quota: int | None, quota_min: int | None, weight: int | None
) -> int | None:
    if policy is not None:
        return policy
    if quota_min is not None:
        return BURST
    if quota is not None:
        return MIXED
    return WEIGHTED if weight is not None and weight > 1 else None
