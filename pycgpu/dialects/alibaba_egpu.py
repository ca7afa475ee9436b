# SPDX-License-Identifier: MIT
"""
Alibaba eGPU: a master switch, memory in bytes or as a part of the card, compute in percent.

Available = asked − ``ALIYUN_COM_GPU_MEM_RESERVED``, exact to the byte. A process that takes more is
ended, after the OOM script if one is named.
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
from . import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ENABLE = "AMP_VGPU_ENABLE"
DAEMON = "AMP_USE_HOST_DAEMON"
MEMORY = "GPU_MEM_PER_DEVICE"
UTIL = "GPU_UTIL_PER_DEVICE"
RESERVED = "ALIYUN_COM_GPU_MEM_RESERVED"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
OOM_SCRIPT = "ALIYUN_COM_GPU_OOM_SCRIPT"
#: Megabytes subtracted from the request. The document counts 16160 MB as 15.78 GB: 1024-based.
RESERVED_DEFAULT_MB = 10
#: Above this many percent compute is not controlled.
UTIL_MAX = 95


def parse(env: Mapping[str, str]) -> Request | None:
    """
    Return the request, or None when the master switch is off.

    Raises:
        ConflictError: memory is asked for in bytes and as a part.
        RequestError: a malformed value, quoted.
    """
    if not value.switch(env, ENABLE):
        return None
    if env.get(DAEMON, "1") != "1":
        raise value.fail(DAEMON, env[DAEMON], "the only value is 1")
    util = value.integer(env, UTIL, 0, None, "write percent, 0 to 100")
    # A quota needs a policy with no other limit. Containers without a quota share the rest, which
    # is the meaning of 'not controlled' on a shared card.
    share = CardShare(
        memory=_memory(env),
        quota=util if util is not None and 0 < util <= UTIL_MAX else None,
        policy=MIXED,
        oom_action="kill",
    )
    return Request(
        dialect="alibaba_egpu",
        selectors=value.visible_cards(env),
        shares=(share,),
        oom_script=value.script(env, OOM_SCRIPT),
    )


def _memory(env: Mapping[str, str]) -> MemoryBytes | MemoryShare | None:
    reserved_mb = value.integer(env, RESERVED, 0, None, "write a whole number of MB")
    reserved_bytes = (RESERVED_DEFAULT_MB if reserved_mb is None else reserved_mb) * MIB
    asked_bytes = value.integer(env, MEMORY, 1, None, "write a positive whole number of bytes")
    part = value.integer(env, CONTAINER, 1, None, "write a positive whole number")
    size = value.integer(env, DEV, 1, None, "write a positive whole number")
    if asked_bytes is not None and part is not None:
        raise ConflictError(f"{MEMORY} and {CONTAINER} both ask for memory; keep one of them")
    if part is None and size is not None:
        raise value.fail(DEV, env[DEV], f"{CONTAINER} is missing")
    if asked_bytes is not None:
        if asked_bytes <= reserved_bytes:
            raise value.fail(
                MEMORY, env[MEMORY], f"nothing is left after the {reserved_bytes} bytes held back"
            )
        return MemoryBytes(asked_bytes - reserved_bytes)
    if part is None:
        return None
    if size is not None and part > size:
        raise value.fail(CONTAINER, env[CONTAINER], f"{part} is more than {DEV}={size}")
    return MemoryShare(part, size, reserved_bytes, states_size=True)
