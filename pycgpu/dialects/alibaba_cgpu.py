# SPDX-License-Identifier: MIT
"""
Alibaba cGPU: memory as a part of the card, weights, cards native and sliced side by side.

``ALIYUN_COM_GPU_MEM_CONTAINER`` of ``ALIYUN_COM_GPU_MEM_DEV`` parts of each card; a list gives the
cards their own parts, its last value repeats, and a zero anywhere in it switches cGPU off.
"""

from __future__ import annotations

from ..errors import ConflictError
from ..request.model import MIB, WEIGHTED, CardShare, MemoryShare, Request
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
UNIT = "ALIYUN_COM_GPU_MEM_UNIT"
WEIGHT = "ALIYUN_COM_GPU_SCHD_WEIGHT"
HIGH_PRIO = "ALIYUN_COM_GPU_HIGH_PRIO"
SLICED = "ALIYUN_COM_GPU_VISIBLE_DEVICES"


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request, or None where the guide says that cGPU is off, or eGPU has the word.

    Raises:
        RequestError: a malformed value, quoted.
    """
    if value.switch(env, "AMP_VGPU_ENABLE"):
        if WEIGHT in env:
            raise ConflictError(
                f"{WEIGHT} (Alibaba cGPU) beside AMP_VGPU_ENABLE (Alibaba eGPU):"
                " ask for compute by GPU_UTIL_PER_DEVICE"
            )
        return None
    parts = value.integers(
        env, CONTAINER, "write a whole number, or one for each card as in '3,4,5,6'"
    )
    if parts is None or 0 in parts:
        return None
    size = value.integer(env, DEV, 1, None, "write the card's size as a positive whole number")
    if size is not None and max(parts) > size:
        raise value.fail(CONTAINER, env[CONTAINER], f"{max(parts)} is more than {DEV}={size}")
    if env.get(UNIT, "GB") not in ("GB", "GiB"):
        raise value.fail(UNIT, env[UNIT], "the only unit is GB")
    weight = value.integer(env, WEIGHT, 1, None, "write a positive whole number")
    priority = 1 if value.switch(env, HIGH_PRIO) else None
    sliced, native = _cards(env)
    return Request(
        dialect="alibaba_cgpu",
        selectors=sliced,
        native=native,
        shares=tuple(
            CardShare(
                memory=MemoryShare(part, size, granule_bytes=MIB, states_size=True),
                weight=weight,
                policy=WEIGHTED if weight is not None and weight > 1 else None,
                priority=priority,
            )
            for part in parts
        ),
    )


def _cards(
    env: Mapping[str, str],
) -> tuple[tuple[int | str, ...] | None, tuple[int | str, ...]]:
    visible = value.visible_cards(env)
    sliced = value.cards(env, SLICED)
    # `all` is what CUDA images set: it does not ask for further cards without a limit.
    return (visible, ()) if sliced is None else (sliced, visible or ())
