# SPDX-License-Identifier: MIT
"""
A bundle's mark that its container was registered under an id.

Two engines may use the same id. When the second one's container, refused or without a request,
ends, it must not remove the registration of the first.
"""

from __future__ import annotations

import posix


def leave(bundle: str, container_id: str) -> None:
    """Mark *bundle*; without a mark the door takes the registration back by itself, later."""
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
    try:
        posix.close(posix.open(_path(bundle, container_id), flags, 0o600))
    except OSError:
        return


def take(bundle: str, container_id: str) -> bool:
    """Remove the mark; tell whether it was there."""
    try:
        posix.unlink(_path(bundle, container_id))
    except (OSError, ValueError):
        return False
    return True


def _path(bundle: str, container_id: str) -> str:
    return f"{bundle}/cgpu-registered-{container_id}"
