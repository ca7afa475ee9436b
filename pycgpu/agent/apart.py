# SPDX-License-Identifier: MIT
"""
Moves a process of cgpu's out of its starter's cgroups, into some of its own.

A hook runs in its engine's cgroup, `cgpu run` in a session's or a job's. A process that others need
must not end with those.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pycgpu.tree import hierarchy, tenant

_MEMBERS = "cgroup.procs"


def enter(name: str) -> None:
    """Move this process into cgroups of *name*'s, one a hierarchy, where the kernel lets it."""
    for top in _hierarchies():
        try:
            os.makedirs(f"{top}/{_directory(name)}", mode=0o755, exist_ok=True)
            _move(f"{top}/{_directory(name)}")
        except OSError:
            # A cpuset of version 1 takes no process before it is set up.
            with contextlib.suppress(OSError):
                _move(top)


def leave(name: str) -> None:
    """Remove the cgroups; this process moves to the top, where no cgroup ends."""
    for top in _hierarchies():
        with contextlib.suppress(OSError):
            _move(top)
            os.rmdir(f"{top}/{_directory(name)}")


def _directory(name: str) -> str:
    return f"cgpu-group-{name}"


def _move(directory: str) -> None:
    with open(f"{directory}/{_MEMBERS}", "w", encoding="ascii") as file:
        file.write("0")


def _hierarchies() -> Iterator[str]:
    for mount in hierarchy.mounts():
        # The cgroups of this hierarchy are tenants: a place there is a share of the card.
        if f"name={tenant.NAME}" not in mount.options:
            yield mount.directory
