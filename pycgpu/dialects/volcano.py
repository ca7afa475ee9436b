# SPDX-License-Identifier: MIT
"""
Volcano: the resources ``volcano.sh/vgpu-*`` of a pod, which mean what HAMi's do.

Only Volcano's own scheduler can give a part of a MIG instance, cards by UUID, or spread a PodGroup
over cards. They are refused, because a container would run without them.
"""

from __future__ import annotations

from ..request.model import Request
from . import kubernetes, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
CORES = "volcano.sh/vgpu-cores"
MODE = "volcano.sh/vgpu-mode"
#: By these a pod chooses among cards.
CHOOSING = (
    "volcano.sh/vgpu-use-gpuuuid",
    "volcano.sh/vgpu-nouse-gpuuuid",
    "volcano.sh/vgpu-podgroup-policy",
)


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request.

    Raises:
        RequestError: a malformed value, quoted, or an annotation that is not followed here.
    """
    check(env)
    return kubernetes.from_resources(env, "volcano", (NUMBER, MEMORY, PERCENTAGE, CORES), None)


def check(annotations: Mapping[str, str]) -> None:
    """Raise RequestError if a pod's annotations ask for something that it would not get."""
    mode = annotations.get(MODE, "hami-core")
    if mode != "hami-core":
        raise value.fail(MODE, mode, "parts are of whole cards here; write hami-core")
    for key in CHOOSING:
        if key in annotations:
            raise value.fail(key, annotations[key], "cards are not chosen by it here; leave it out")
