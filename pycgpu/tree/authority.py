# SPDX-License-Identifier: MIT
"""
One host, one authority: the module where it is loaded, otherwise the agent.

Each refuses to start where the other runs. Releases without that check may leave both running;
this module finds that.
"""

from __future__ import annotations

import os

from ..errors import CgpuError
from . import procfs

#: The file with the reason for the agent on this host, as the installation printed it.
BECAUSE = "var/lib/cgpu/agent-because"

_BOTH = (
    "the module and the agent both share this host's cards, without knowing each other's"
    " promises: end {whom} (`systemctl stop cgpu`, if it is a service), or unload the module"
)


def is_modules(prefix: str = "/") -> bool:
    """Whether the module is loaded, also while it has no core or no driver."""
    return os.path.isdir(prefix.rstrip("/") + procfs.KERNEL_DOOR)


def because(prefix: str = "/") -> str:
    """Return why this host was given the agent and no module; "" if no reason was recorded."""
    try:
        with open(f"{prefix.rstrip('/')}/{BECAUSE}", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def refuse_beside_module() -> None:
    """CgpuError: the module is loaded, so that no agent may share the cards."""
    if is_modules():
        raise CgpuError(
            "the module cgpu_km shares this host's cards, and `cgpu run` asks it; to have the agent"
            " instead, unload it: modprobe -r cgpu_km"
        )


def agents_containers(prefix: str = "/") -> list[str] | None:
    """Return the full ids of an agent's containers; None: no agent answers."""
    root = prefix.rstrip("/") + procfs.USER_DOOR_SOCKET
    try:
        if not procfs.is_open(root):
            return None
    except (OSError, CgpuError):
        # A user who may not look into that directory sees no agent.
        return None
    try:
        return sorted(procfs.container_ids(root))
    except CgpuError:
        return []


def complaint(prefix: str = "/") -> str | None:
    """Return what is wrong and what to do, if module and agent share the cards at once."""
    if not is_modules(prefix):
        return None
    ids = agents_containers(prefix)
    if ids is None:
        return None
    return _BOTH.format(whom=f"the agent and its {', '.join(ids)}" if ids else "the agent")
