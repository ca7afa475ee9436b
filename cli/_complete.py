# SPDX-License-Identifier: MIT
"""What a shell may complete an argument to; silent where the tree cannot be read."""

from __future__ import annotations

from pycgpu.errors import CgpuError
from pycgpu.request.model import POLICIES
from pycgpu.tree import procfs, target


def containers(incomplete: str) -> list[tuple[str, str]]:
    """Return short ids and names of containers, each with its full id as help."""
    try:
        every = target.listing(procfs.find_root())
    except CgpuError:
        return []
    words = []
    for one in every:
        words += [(short, one.id) for short in sorted(set(one.directories.values()))]
        if one.name is not None:
            words.append((str(one.name), one.id))
    return [(word, text) for word, text in words if word.startswith(incomplete)]


def policies(incomplete: str) -> list[str]:
    """Return the policies' names."""
    return [name for name in POLICIES if name.startswith(incomplete)]
