# SPDX-License-Identifier: MIT
"""Asking the agent to park a container, or to bring it back."""

from __future__ import annotations

import errno

from pycgpu.agent import client
from pycgpu.errors import CgpuError
from pycgpu.tree import procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Moves follow one another, and one of 140 GiB takes 80 s (H200).
TIMEOUT_S = 600.0


def park(container_id: str, root: str, *, hold: bool = False, socket: str = client.SOCKET) -> int:
    """
    Move a container's memory to the host; return its bytes.

    Args:
        hold: it comes back by :func:`resume` alone, not when it calls CUDA.

    Raises:
        CgpuError: why it cannot be parked; it goes on as before.
    """
    answer = _ask({"op": "park", "id": container_id, "hold": hold}, root, socket)
    if not answer.get("ok"):
        raise CgpuError(str(answer.get("message")))
    return int(answer["bytes"])


def resume(container_id: str, root: str, *, socket: str = client.SOCKET) -> str:
    """
    Bring a container back; return "", or why it waits.

    Raises:
        CgpuError: it is not parked, or the driver fails.
    """
    answer = _ask({"op": "resume", "id": container_id}, root, socket)
    if not answer.get("ok") and answer.get("errno") != errno.EAGAIN:
        raise CgpuError(str(answer.get("message")))
    return "" if answer.get("ok") else str(answer["message"])


def _ask(message: dict[str, Any], root: str, socket: str) -> dict[str, Any]:
    if "park" not in procfs.read_features(root):
        raise CgpuError(
            f"{root}: this door cannot park: only containers of the agent (`cgpu run`) are parked"
        )
    try:
        return client.ask(message, path=socket, timeout_s=TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise CgpuError(f"the agent does not answer at {socket}: {error}") from error
