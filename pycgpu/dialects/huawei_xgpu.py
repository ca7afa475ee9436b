# SPDX-License-Identifier: MIT
"""
Huawei xGPU: ``GPU_IDX``, ``GPU_CONTAINER_MEM`` in MiB, ``GPU_CONTAINER_QUOTA_PERCENT``.

xGPU numbers its policies in another order than cGPU; ``POLICY_MAP`` translates.
"""

from __future__ import annotations

from ..request.model import (
    AVERAGE,
    FIXED,
    MIB,
    MIXED,
    NATIVE,
    PREEMPTIVE,
    WEIGHTED,
    WEIGHTED_CONSERVING,
    CardShare,
    MemoryBytes,
    Request,
)
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX = "GPU_IDX"
MEMORY = "GPU_CONTAINER_MEM"
QUOTA = "GPU_CONTAINER_QUOTA_PERCENT"
POLICY = "GPU_POLICY"
PRIORITY = "GPU_CONTAINER_PRIORITY"
#: GPU_POLICY by number: native, fixed, average, preemptive, weighted, mixed, weak weighted.
POLICY_MAP = (NATIVE, FIXED, AVERAGE, PREEMPTIVE, WEIGHTED, MIXED, WEIGHTED_CONSERVING)


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request.

    Raises:
        RequestError: a malformed value, quoted.
    """
    mem = value.integer(env, MEMORY, 1, None, "write a positive whole number of MiB")
    quota = value.integer(env, QUOTA, 1, 100, "write percent, 1 to 100")
    number = value.integer(env, POLICY, 0, 6, "write 0 to 6")
    priority = value.integer(env, PRIORITY, 0, 1, "write 0 (low) or 1 (high)")
    policy = None if number is None else POLICY_MAP[number]
    if policy is None and quota is not None:
        policy = MIXED
    if quota is not None and policy in (NATIVE, AVERAGE, PREEMPTIVE):
        raise value.fail(QUOTA, env[QUOTA], f"has no effect under {POLICY}={number}; leave it out")
    share = CardShare(
        memory=None if mem is None else MemoryBytes(mem * MIB),
        # Under 'fixed' and 'mixed' the percentage is a ceiling; where cards are shared by
        # weight, 5 and 10 percent mean twice the share, not 10 percent at most.
        quota=quota if policy in (FIXED, MIXED) else None,
        weight_percent=quota if policy in (FIXED, WEIGHTED, WEIGHTED_CONSERVING) else None,
        policy=policy,
        priority=priority,
    )
    indexes = value.integers(env, INDEX, "write a card's index, or several as in '0,1'")
    if indexes is not None and len(set(indexes)) < len(indexes):
        raise value.fail(INDEX, env[INDEX], "a card is named twice")
    return Request(
        dialect="huawei_xgpu",
        selectors=value.visible_cards(env) if indexes is None else indexes,
        visible=None if indexes is None else value.visible_cards(env),
        shares=(share,),
    )
