# SPDX-License-Identifier: MIT
"""Asks the mover of a door's containers: the agent for its own, ``cgpu parkd`` for the module's."""

from __future__ import annotations

import errno

from pycgpu import parking
from pycgpu.agent import client
from pycgpu.errors import CgpuError
from pycgpu.tree import procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Moves follow one another, and a move of 140 GiB takes 80 s (H200).
TIMEOUT_S = 600.0


def park(container_id: str, root: str, *, hold: bool = False, socket: str | None = None) -> int:
    """
    Move a container's memory to the host; return its bytes.

    Args:
        hold: the container comes back by :func:`resume` alone, not when it calls CUDA.
        socket: the mover's socket; None: that of this door's containers.

    Raises:
        CgpuError: why it cannot be parked; the container goes on as before.
    """
    answer = _ask({"op": "park", "id": container_id, "hold": hold}, root, socket)
    if not answer.get("ok"):
        raise CgpuError(str(answer.get("message")))
    return int(answer["bytes"])


def resume(container_id: str, root: str, *, socket: str | None = None) -> str:
    """
    Bring a container back; return "", or why it waits.

    Raises:
        CgpuError: it is not parked, or the driver fails.
    """
    answer = _ask({"op": "resume", "id": container_id}, root, socket)
    if not answer.get("ok") and answer.get("errno") != errno.EAGAIN:
        raise CgpuError(str(answer.get("message")))
    return "" if answer.get("ok") else str(answer["message"])


def _ask(message: dict[str, Any], root: str, socket: str | None) -> dict[str, Any]:
    if "park" not in procfs.read_features(root):
        raise CgpuError(
            f"{root}: this door cannot park: `cgpu upgrade` takes it to a version that does"
        )
    agents = procfs.is_users(root)
    path = socket or (client.SOCKET if agents else parking.SOCKET)
    try:
        return client.ask(message, path=path, timeout_s=TIMEOUT_S)
    except PermissionError as error:
        raise CgpuError(f"only root may {message['op']} a container: try sudo") from error
    except (OSError, ValueError) as error:
        if agents:
            raise CgpuError(f"the agent does not answer at {path}: {error}") from error
        raise CgpuError(
            f"no cgpu parkd answers at {path}, which parks the module's containers: start it by"
            f" `systemctl start cgpu-parkd`, or `sudo cgpu parkd` ({error})"
        ) from error
