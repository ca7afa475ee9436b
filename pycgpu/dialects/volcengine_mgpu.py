# SPDX-License-Identifier: MIT
"""
Volcengine mGPU: core in percent (5 to 99) and memory in MiB, of one card.

Two spellings: ``emr.serverless.mgpu.*`` of Spark, Ray and custom jobs, and the resources and
annotations ``vke.volcengine.com/mgpu-*``, whose amounts are split evenly over several cards. Whole
cards are asked for by a core of 100 for each and no memory; a card is used whole or in parts.
"""

from __future__ import annotations

from ..errors import ConflictError, RequestError
from ..request.model import (
    BURST,
    MIB,
    MIXED,
    WEIGHTED_CONSERVING,
    CardShare,
    MemoryBytes,
    MemoryShare,
    Request,
)
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EMR = ("emr.serverless.mgpu.core", "emr.serverless.mgpu.memory")
VKE = ("vke.volcengine.com/mgpu-core", "vke.volcengine.com/mgpu-memory")
POLICY = "vke.volcengine.com/mgpu-compute-policy"
CARDS = "vke.volcengine.com/container-multiple-gpu"
CORE_MIN = 5
CORE_MAX = 99
CARDS_MAX = 8


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request.

    Raises:
        ConflictError: both spellings are used.
        RequestError: one half is missing, or a value is malformed or out of bounds.
    """
    emr = [key for key in EMR if key in env]
    vke = [key for key in VKE if key in env]
    if emr and vke:
        raise ConflictError(f"{emr[0]} and {vke[0]} ask at once; keep one of them")
    whole = _whole(env)
    if whole is not None:
        return whole
    core_key, memory_key = EMR if emr else VKE
    for key, other in ((core_key, memory_key), (memory_key, core_key)):
        if key not in env:
            raise RequestError(f"{other}={env[other]!r} without {key}; give both", key)
    count = 1 if emr else _count(env)
    core = _split(env, core_key, count, "percent of the card")
    if not CORE_MIN <= core <= CORE_MAX:
        raise value.fail(
            core_key, env[core_key], f"a card's part is {CORE_MIN} to {CORE_MAX} percent"
        )
    memory = MemoryBytes(_split(env, memory_key, count, "MiB") * MIB)
    return Request(
        dialect="volcengine_mgpu",
        selectors=value.visible_cards(env),
        shares=(_share(env, core, memory),),
        count=count,
    )


def _whole(env: Mapping[str, str]) -> Request | None:
    """Return the request for whole cards: VKE's core in whole hundreds, and no memory."""
    core = env.get(VKE[0], "")
    if VKE[1] in env or not value.is_number(core) or not int(core) or int(core) % 100:
        return None
    count = int(core) // 100
    if CARDS in env and _count(env) != count:
        raise value.fail(VKE[0], core, f"{CARDS} is {env[CARDS]}, and 100 percent are a card")
    if count > CARDS_MAX:
        raise value.fail(VKE[0], core, f"a container has at most {CARDS_MAX} cards")
    share = CardShare(memory=MemoryShare(1, 1), whole=True)
    return Request(
        dialect="volcengine_mgpu", selectors=value.visible_cards(env), shares=(share,), count=count
    )


def _share(env: Mapping[str, str], core: int, memory: MemoryBytes) -> CardShare:
    policy = env.get(POLICY, "fixed-share")
    if policy == "fixed-share":
        return CardShare(memory=memory, quota=core, policy=MIXED)
    if policy == "guaranteed-burst-share":
        return CardShare(memory=memory, quota_min=core, weight_percent=core, policy=BURST)
    if policy == "native-burst-share":
        return CardShare(memory=memory, weight_percent=core, policy=WEIGHTED_CONSERVING)
    raise value.fail(
        POLICY, policy, "write fixed-share, guaranteed-burst-share or native-burst-share"
    )


def _count(env: Mapping[str, str]) -> int:
    counts = value.integers(env, CARDS, "write the number of cards")
    if counts is None:
        return 1
    if len(counts) > 1:
        raise value.fail(
            CARDS, env[CARDS], "names several containers; give this container its own number"
        )
    if not 1 <= counts[0] <= CARDS_MAX:
        raise value.fail(CARDS, env[CARDS], f"write 1 to {CARDS_MAX} cards")
    return counts[0]


def _split(env: Mapping[str, str], key: str, count: int, unit: str) -> int:
    total = value.integer(env, key, 1, None, f"write a positive whole number of {unit}")
    assert total is not None  # parse() has seen the key
    if total % count:
        raise value.fail(key, env[key], f"cannot be split evenly over {count} cards")
    return total // count
