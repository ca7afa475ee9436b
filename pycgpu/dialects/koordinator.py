# SPDX-License-Identifier: MIT
"""
Koordinator: ``koordinator.sh/gpu.shared`` cards, and the sums of their memory and compute.

``gpu-memory`` is a Kubernetes quantity of bytes, ``gpu-memory-ratio`` and ``gpu-core`` are percent
of a card, ``gpu`` is both of these. A missing count is computed as by Koordinator's webhook: whole
hundreds of the ratio are cards, anything else is one card.
"""

from __future__ import annotations

from ..errors import ConflictError, RequestError
from ..request.model import MIB, MIXED, CardShare, MemoryBytes, MemoryShare, Request
from ..request.size import parse_quantity
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

GPU = "koordinator.sh/gpu"
MEMORY = "koordinator.sh/gpu-memory"
RATIO = "koordinator.sh/gpu-memory-ratio"
CORE = "koordinator.sh/gpu-core"
SHARED = "koordinator.sh/gpu.shared"


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request.

    Raises:
        ConflictError: two settings ask for the same.
        RequestError: a malformed value, quoted, or compute without memory.
    """
    given = [key for key in (GPU, MEMORY, RATIO) if key in env]
    if not given:
        raise RequestError(f"{CORE}={env[CORE]!r} without memory; give {MEMORY} or {RATIO}", CORE)
    if len(given) > 1 or (GPU in env and CORE in env):
        other = given[1] if len(given) > 1 else CORE
        raise ConflictError(f"{given[0]} and {other} ask at once; keep one of them")
    ratio_key, core_key = (GPU, GPU) if GPU in env else (RATIO, CORE)
    ratio = _percent(env, ratio_key)
    count = value.integer(env, SHARED, 1, None, "write a positive whole number of cards")
    if count is None:
        count = ratio // 100 if ratio and not ratio % 100 else 1
    core = _each(env, core_key, _percent(env, core_key), count)
    memory: MemoryBytes | MemoryShare
    if MEMORY in env:
        memory = MemoryBytes(_bytes(env) // count // MIB * MIB)
    else:
        part = _each(env, ratio_key, ratio, count)
        assert part is not None  # parse() has seen the key
        memory = MemoryShare(part, 100, granule_bytes=MIB, usable=True)
    return Request(
        dialect="koordinator",
        selectors=value.visible_cards(env),
        shares=(CardShare(memory=memory, quota=core, policy=None if core is None else MIXED),),
        count=count,
    )


def _percent(env: Mapping[str, str], key: str) -> int | None:
    return value.integer(env, key, 1, None, "write percent, 100 for each card")


def _each(env: Mapping[str, str], key: str, total: int | None, count: int) -> int | None:
    if total is None:
        return None
    if total % count or total > 100 * count:
        raise value.fail(key, env[key], f"is for {count} cards, up to 100 each, split evenly")
    return total // count


def _bytes(env: Mapping[str, str]) -> int:
    try:
        return parse_quantity(env[MEMORY])
    except ValueError:
        raise value.fail(MEMORY, env[MEMORY], "write bytes such as 4Gi") from None
