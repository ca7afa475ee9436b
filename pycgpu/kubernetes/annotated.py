# SPDX-License-Identifier: MIT
"""What a pod's annotations ask for its containers, besides their resources; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dialects import OPERATOR, kai, volcano
from ..errors import RequestError
from .families import Amounts, Family


def amounts(pod: Any) -> dict[str, Amounts]:
    """
    Return the amounts that annotations ask for a pod's containers, by name, counted as by the hook.

    Raises:
        RequestError: a value cannot be read, or names a container that the pod does not have.
    """
    return {
        name: Amounts(
            part.cards,
            None if part.memory_mib is None else part.memory_mib << 20,
            None if part.memory_percent_100 is None else part.memory_percent_100 / 100,
        )
        for name, part in _parts(pod).items()
    }


def cards(pod: Any) -> dict[str, list[str]]:
    """Return the cards that KAI has written on a pod, by its containers' names."""
    told = _annotations(pod)
    return {
        name: told[part.devices].split(",")
        for name, part in _parts(pod).items()
        if part.devices is not None
    }


def group(pod: Any) -> str | None:
    """Return the group that a pod's containers join, as the pod writes it."""
    return _annotations(pod).get(f"{OPERATOR}group")


def idle_park(pod: Any) -> str | None:
    """Return after which idle time a pod's containers may be parked, as it writes it."""
    return _annotations(pod).get(f"{OPERATOR}idle-park")


def check(pod: Any, family: Family) -> None:
    """Raise RequestError for an annotation of the family's vendor that is not followed here."""
    if family.name == "volcano":
        volcano.check(_annotations(pod))


def _parts(pod: Any) -> dict[str, kai.Part]:
    spec = pod["spec"]
    names = [one["name"] for one in (*spec["containers"], *(spec.get("initContainers") or ()))]
    found = {}
    for name, part in kai.parts(_annotations(pod)).items():
        if name is not None and name not in names:
            raise RequestError(f"annotations ask for container {name}, and the pod has none of it")
        found[names[0] if name is None else name] = part
    return found


def _annotations(pod: Any) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}
