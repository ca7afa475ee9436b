# SPDX-License-Identifier: MIT
"""
SELinux labels, by which a group's containers may share files and connect to its server.

An engine labels a container's own files with its categories. It leaves bind mounts as they are,
unless ``:z`` asks for the label without categories: the group's directories get that label. A
container may connect only to processes of its own type and of ``spc_t`` (container-selinux), so
the daemon runs as ``spc_t``.
"""

from __future__ import annotations

import contextlib
import os

_ENFORCE, _EXECUTED = "/sys/fs/selinux/enforce", "/proc/thread-self/attr/exec"
_DAEMON = "system_u:system_r:spc_t:s0"
_NAME = "security.selinux"


def shared(mount_label: object) -> str | None:
    """Return an engine's label without its categories; None: it gives none."""
    parts = mount_label.split(":") if isinstance(mount_label, str) else []
    return ":".join(parts[:4]) if len(parts) > 3 else None


def give(directory: int, label: str | None) -> None:
    """Give an open directory a label, which what is made in it inherits."""
    # A host without SELinux has no such attribute, or needs none.
    with contextlib.suppress(OSError):
        if label is not None:
            os.setxattr(directory, _NAME, label.encode() + b"\0")


def execute_as_daemon(enforce: str = _ENFORCE, attribute: str = _EXECUTED) -> None:
    """Have the program that this thread executes next run in a type that containers connect to."""
    if not os.path.exists(enforce):
        return
    # A policy without containers has no such type, and then there is nothing to let in.
    with contextlib.suppress(OSError), open(attribute, "w", encoding="ascii") as file:
        file.write(_DAEMON)
