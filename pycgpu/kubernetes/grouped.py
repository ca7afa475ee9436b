# SPDX-License-Identifier: MIT
"""Pods of a namespace's group, and the nodes that they are on; pure."""

from __future__ import annotations

from typing import Any

from ..tree import group
from . import annotated


def of_pod(pod: Any) -> str | None:
    """Return the group that a pod joins, by its leader's id."""
    name = annotated.group(pod)
    return None if name is None else group.of_namespace(pod["metadata"]["namespace"], name)


class Groups:
    """Where the members of groups are."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, str]] = {}
        self._members: dict[tuple[str, str], set[str]] = {}

    def add(self, pod: Any, node: str) -> None:
        """A pod has cards on a node, which counts if it is in a group."""
        leader = of_pod(pod)
        if leader is not None:
            uid = pod["metadata"]["uid"]
            self._places[uid] = leader, node
            self._members.setdefault((leader, node), set()).add(uid)

    def remove(self, uid: str) -> None:
        """A pod has none any more."""
        place = self._places.pop(uid, None)
        if place is not None:
            self._members[place].discard(uid)
            if not self._members[place]:
                del self._members[place]

    def members(self, leader: str, node: str) -> set[str]:
        """Return the uids of a group's pods on a node."""
        return self._members.get((leader, node), set())
