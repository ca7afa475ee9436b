# SPDX-License-Identifier: MIT
"""
Kubernetes and HAMi: the resources of a pod, and the environment that they become.

``nvidia.com/gpu``, ``gpumem`` (MiB), ``gpumem-percentage`` and ``gpucores`` (percent) as written
in a pod; ``CUDA_DEVICE_MEMORY_LIMIT[_n]`` and ``CUDA_DEVICE_SM_LIMIT[_n]`` as HAMi's device plugin
passes them on, n counting the container's cards from 0. Where both are given, ``gpumem`` and the
percentage, the lesser holds: the one may be the operator's and the other the image's. (HAMi's
plugin, and ours, know that both are the pod's, and take ``gpumem``.)
"""

from __future__ import annotations

from ..errors import ConflictError
from ..request.model import (
    MIB,
    MIXED,
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

GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENTAGE = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"
RESOURCES = (MEMORY, PERCENTAGE, CORES)
MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"
SM_LIMIT = "CUDA_DEVICE_SM_LIMIT"
CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
DISABLE = "CUDA_DISABLE_CONTROL"


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request, or None when ``CUDA_DISABLE_CONTROL`` switches HAMi's control off.

    Raises:
        ConflictError: resources and HAMi's environment ask at once.
        RequestError: a malformed value, quoted, or a card left without the limit of the others.
    """
    if value.switch(env, DISABLE):
        return None
    resources = [key for key in RESOURCES if key in env]
    limits = [key for key in env if key.startswith((MEMORY_LIMIT, SM_LIMIT))]
    if resources and limits:
        raise ConflictError(f"{resources[0]} and {limits[0]} ask at once; keep one of them")
    if not resources:
        return _from_limits(env)
    priority = value.integer(env, PRIORITY, 0, 1, "write 0 (high) or 1 (low)")
    # HAMi counts the other way round: 0 is its high priority.
    priority = None if priority is None else 1 - priority
    return from_resources(env, "kubernetes", (GPU, *RESOURCES), priority)


def from_resources(
    env: Mapping[str, str], dialect: str, names: tuple[str, str, str, str], priority: int | None
) -> Request:
    """Return the request by resources: *names* of cards, MiB, percent of memory and of compute."""
    number, memory_name, percentage, cores = names
    count = value.integer(env, number, 1, None, "write a positive whole number of cards")
    mem = value.integer(env, memory_name, 1, None, "write a positive whole number of MiB")
    percent = value.integer(env, percentage, 1, 100, "write percent, 1 to 100")
    memory: MemoryBytes | MemoryShare | None = None
    mem_bytes = None if mem is None else mem * MIB
    if percent is not None:
        memory = MemoryShare(percent, 100, granule_bytes=MIB, at_most_bytes=mem_bytes)
    elif mem_bytes is not None:
        memory = MemoryBytes(mem_bytes)
    share = CardShare(
        memory=memory,
        quota=_percent(env, cores),
        policy=MIXED if cores in env else None,
        priority=priority,
    )
    return Request(
        dialect=dialect, selectors=value.visible_cards(env), shares=(share,), count=count
    )


def _from_limits(env: Mapping[str, str]) -> Request:
    policy = env.get(CORE_POLICY, "default")
    if policy.lower() not in ("default", "force", "disable"):
        raise value.fail(CORE_POLICY, policy, "write default, force or disable")
    memory = _per_card(env, MEMORY_LIMIT)
    cores = _per_card(env, SM_LIMIT)
    last = max([-1, *memory, *cores])
    selectors = value.visible_cards(env)
    ordinals = range(last + 1) if selectors is None else range(len(selectors))
    if last >= 0 and last not in ordinals:
        key = f"{MEMORY_LIMIT}_{last}" if last in memory else f"{SM_LIMIT}_{last}"
        raise value.fail(key, env[key], f"the container has {len(ordinals)} cards")
    shares = []
    for ordinal in ordinals if last >= 0 else range(1):
        memory_key = _limit_key(env, MEMORY_LIMIT, ordinal, bool(memory))
        sm_key = _limit_key(env, SM_LIMIT, ordinal, bool(cores))
        quota = None if sm_key is None else _percent(env, sm_key)
        _check_general(env, ordinal, quota)
        shares.append(
            CardShare(
                memory=None if memory_key is None else MemoryBytes(_limit_bytes(env, memory_key)),
                quota=None if policy.lower() == "disable" else quota,
                policy=None if sm_key is None else MIXED,
            )
        )
    return Request(
        dialect="kubernetes",
        selectors=selectors,
        shares=tuple(shares),
        repeat_last=last < 0,
    )


def _per_card(env: Mapping[str, str], stem: str) -> set[int]:
    ordinals = set()
    for key in env:
        if not key.startswith(stem) or key == stem:
            continue
        ordinal = key[len(stem) + 1 :]
        if key[len(stem)] != "_" or not value.is_number(ordinal) or int(ordinal) > 63:
            raise value.fail(key, env[key], f"the form is {stem} or {stem}_0, {stem}_1 ...")
        if ordinal != str(int(ordinal)):
            raise value.fail(key, env[key], f"write {stem}_{int(ordinal)}")
        ordinals.add(int(ordinal))
    return ordinals


def _limit_key(env: Mapping[str, str], stem: str, ordinal: int, listed: bool) -> str | None:
    key = f"{stem}_{ordinal}"
    if key in env:
        return key
    if stem in env:
        return stem
    if listed:
        raise value.fail(key, "", f"the other cards have a limit; set it, or {stem} for all")
    return None


def _check_general(env: Mapping[str, str], ordinal: int, quota: int | None) -> None:
    """
    Refuse a card's own limit above that of all cards.

    Under HAMi the former wins; the latter may be the operator's, and the former the image's.
    """
    own, every = f"{MEMORY_LIMIT}_{ordinal}", MEMORY_LIMIT
    more = own in env and every in env and _limit_bytes(env, own) > _limit_bytes(env, every)
    if not more and f"{SM_LIMIT}_{ordinal}" in env and SM_LIMIT in env:
        own, every = f"{SM_LIMIT}_{ordinal}", SM_LIMIT
        more = (quota or 100) > (_percent(env, every) or 100)
    if more:
        raise value.fail(own, env[own], f"more than {every}={env[every]!r}; keep one of them")


def _limit_bytes(env: Mapping[str, str], key: str) -> int:
    try:
        return parse_bytes(env[key])
    except ValueError:
        raise value.fail(key, env[key], "write an amount such as 3000m or 4g") from None


def _percent(env: Mapping[str, str], key: str) -> int | None:
    percent = value.integer(env, key, 0, 100, "write percent, 0 to 100")
    # HAMi: 0 leaves compute alone, and 100 is the whole card.
    return percent or None
