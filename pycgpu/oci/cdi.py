# SPDX-License-Identifier: MIT
"""
CDI: cards as ``--device cgpu.io/gpu=0``, without a runtime of our own.

The specification brings the device nodes, the hook in both stages and, if asked, the driver's
libraries. A device names a card, and tells the hook by ``CGPU_CARD_<n>=1``. The environment still
asks for an amount of the card, in any dialect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..dialects.value import CDI_CARD
from ..errors import CgpuError
from ..request.model import Card
from .bundle import CONTROL_DEVICES, FOR_POD, GIVEN, GIVEN_TO, TENANT

KIND = "cgpu.io/gpu"
#: Of devices that are made for one container each.
CONTAINER_KIND = "cgpu.io/container"
#: Of devices of a resource claim, which any number of containers may have.
CLAIM_KIND = "cgpu.io/claim"
#: 0.5.0 is read by Podman 4.3, containerd 1.7, CRI-O 1.26 and Docker 25.
VERSION = "0.5.0"
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
FILE = "cgpu.json"
_LIBRARIES = (
    "libcuda.so",
    "libnvidia-ml.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm.so",
    "libnvidia-opencl.so",
    "libnvcuvid.so",
    "libnvidia-encode.so",
)


def specification(
    cards: Sequence[Card],
    hook: Sequence[str],
    *,
    libraries: Iterable[str] = (),
) -> dict[str, object]:
    """
    Return the CDI specification of *cards*, each by index and by UUID, and ``all``.

    Args:
        hook: the hook's program and options.
        libraries: files of the driver to show in the container, read-only, at the same path.

    Raises:
        CgpuError: there is no card to name.
    """
    if not cards:
        raise CgpuError("no card is under control, so there is no device to specify")
    devices = []
    for card in cards:
        edits = _edits([card])
        devices += [
            {"name": alias, "containerEdits": edits}
            for alias in (str(card.index), card.uuid)
            if alias
        ]
    devices.append({"name": "all", "containerEdits": _edits(cards)})
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": devices,
        "containerEdits": _common(hook, libraries),
    }


def of_container(
    name: str,
    cards: Sequence[Card],
    settings: Mapping[str, Mapping[str, str]],
    hook: Sequence[str],
    *,
    pod: str,
    libraries: Iterable[str] = (),
) -> dict[str, object]:
    """
    Return the CDI specification of one device, :data:`CONTAINER_KIND` *name*.

    It is *cards* with the limits in *settings*, by the names of the containers that have the device
    one after the other. The limits are the hook's arguments, which no image can set, so they count
    like an operator's annotations. Another pod may get this name soon, and an engine that has not
    reloaded the file would give it this device. So the hook gets the uid of the *pod*.
    """
    edits = _edits(cards)
    edits["env"] = _visible(cards)
    given = _given(cards, _common_part(settings))
    for container, own in settings.items():
        for key, value in own.items():
            if f"{key}={value}" not in given:
                given += [GIVEN_TO, f"{container}:{key}={value}"]
    return {
        "cdiVersion": VERSION,
        "kind": CONTAINER_KIND,
        "devices": [{"name": name, "containerEdits": edits}],
        "containerEdits": _common((*hook, FOR_POD, pod, *given), libraries),
    }


def _common_part(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the settings that are the same for all containers."""
    first, *rest = settings.values()
    return {
        key: value for key, value in first.items() if all(other.get(key) == value for other in rest)
    }


def of_claim(
    tenant: str | None,
    devices: Mapping[str, Card],
    settings: Mapping[str, str],
    hook: Sequence[str],
    *,
    libraries: Iterable[str] = (),
) -> dict[str, object]:
    """
    Return the CDI specification of a claim's *devices*, :data:`CLAIM_KIND` by name.

    All containers with one of these devices are one *tenant*, with the *settings* of the cards in
    their order; None if it is always one container. A container only sees the cards of its devices.
    """
    cards = list({card.index: card for card in devices.values()}.values())
    shared = () if tenant is None else (TENANT, tenant)
    edits = _common((*hook, *shared, *_given(cards, settings)), libraries)
    edits["env"] = _visible(cards)
    return {
        "cdiVersion": VERSION,
        "kind": CLAIM_KIND,
        "devices": [
            {
                "name": name,
                "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{card.index}"}]},
            }
            for name, card in devices.items()
        ],
        "containerEdits": edits,
    }


def _name(card: Card) -> str:
    return card.uuid or str(card.index)


def _visible(cards: Iterable[Card]) -> list[str]:
    return [f"NVIDIA_VISIBLE_DEVICES={','.join(map(_name, cards))}"]


def _given(cards: Iterable[Card], settings: Mapping[str, str]) -> list[str]:
    """Return the hook's options for the cards and the settings."""
    every = {"CGPU_GPU": ",".join(map(_name, cards)), **settings}
    return [word for key, value in every.items() for word in (GIVEN, f"{key}={value}")]


def _common(hook: Sequence[str], libraries: Iterable[str]) -> dict[str, object]:
    name = os.path.basename(hook[0])
    common: dict[str, object] = {
        # Also where one is missing now: the engine then says so, and not CUDA later.
        "deviceNodes": [{"path": path} for path in CONTROL_DEVICES],
        "hooks": [
            {"hookName": stage, "path": hook[0], "args": [name, *hook[1:], stage]}
            for stage in ("createRuntime", "poststop")
        ],
    }
    mounts = [
        {
            "hostPath": path,
            "containerPath": path,
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
        for path in libraries
    ]
    if mounts:
        common["mounts"] = mounts
    return common


def _edits(cards: Sequence[Card]) -> dict[str, object]:
    return {
        "deviceNodes": [{"path": f"/dev/nvidia{card.index}"} for card in cards],
        "env": [f"{CDI_CARD}{card.index}=1" for card in cards],
    }


def driver_libraries(cache: str) -> list[str]:
    """Return the driver's 64-bit libraries in *cache*, the output of ``ldconfig -p``."""
    found = set()
    for line in cache.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "x86-64" in name and name.startswith(_LIBRARIES):
            found.add(path)
    return sorted(found)


class Written(NamedTuple):
    """How a specification of all cards was written: the hook's program, and with libraries."""

    hook: str
    libraries: bool


def written(text: str) -> Written | None:
    """Return how the specification *text* was written; None: it is not for our cards."""
    try:
        found = json.loads(text)
        edits = found["containerEdits"]
        ours = found["kind"] == KIND
        return Written(str(edits["hooks"][0]["path"]), bool(edits.get("mounts"))) if ours else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def render(specification: dict[str, object]) -> str:
    """Return the text of the file."""
    return json.dumps(specification, indent=2) + "\n"
