# SPDX-License-Identifier: MIT
"""
Cards as devices of ``resource.k8s.io/v1``, and a claim's allocation of them; pure.

A card is one device with capacities that its claims consume: memory in steps of a MiB, cores in
percent of its compute, and tenants, of which a claim is one. The scheduler rounds requests up to
steps, and allocates no more of a card than it has, or than it may promise. A single request is at
most the card itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import dialects
from ..errors import CgpuError, RequestError
from ..request.model import MIB, Card
from .families import quantity, room

#: Of the driver; a DeviceClass selects its devices by it.
DRIVER = "gpu.cgpu.io"
VERSION = "resource.k8s.io/v1"
MEMORY, CORES, TENANTS = "memory", "cores", "tenants"
#: The taint of a card that has failed; its value is the cause.
UNHEALTHY = "gpu.cgpu.io/unhealthy"
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
#: The parameters of a class, and the setting that each stands for.
PARAMETERS = {
    "weight": "CGPU_WEIGHT",
    "priority": "CGPU_PRIORITY",
    "policy": "CGPU_POLICY",
    "group": dialects.GROUP,
    "idlePark": dialects.IDLE_PARK,
}
#: Parameters that a claim may have, too, because they take nothing from others.
_USERS = ("group", "idlePark")


class ClaimError(CgpuError):
    """A claim asks for something that it cannot get."""


class Part(NamedTuple):
    """
    What a claim has of one card; quota 0: compute is not limited.

    ``memory_bytes`` is None for an administrator's access, which has no limit.
    """

    request: str
    pool: str
    device: str
    share: str
    memory_bytes: int | None
    quota: int


def device_name(card: Card) -> str:
    """Return a card's name in a slice, a DNS label."""
    return card.uuid.lower() or f"gpu-{card.index}"


def device(card: Card, cause: str | None = None, effect: str = NO_SCHEDULE) -> dict[str, Any]:
    """Return a card as a device of a ResourceSlice; with *cause* it has failed, by that."""
    can = room(card)
    card_memory = f"{can.one_mib}Mi"
    taint = {"key": UNHEALTHY, "value": cause, "effect": effect}
    return {
        **({"taints": [taint]} if cause is not None else {}),
        "name": device_name(card),
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": card.uuid}, "index": {"int": card.index}},
        "capacity": {
            # A claim without an amount gets all of the card's, as everywhere in cgpu.
            MEMORY: _capacity(f"{can.all_mib}Mi", card_memory, "1Mi", card_memory, step="1Mi"),
            # A claim without cores has no limit of compute.
            CORES: _capacity("100", "0", "0", "100", step="1"),
            TENANTS: {
                "value": str(card.max_inst),
                "requestPolicy": {"default": "1", "validValues": ["1"]},
            },
        },
    }


def _capacity(value: str, default: str, least: str, most: str, *, step: str) -> dict[str, Any]:
    accepted = {"min": least, "max": most, "step": step}
    return {"value": value, "requestPolicy": {"default": default, "validRange": accepted}}


def resource_slice(
    node: str, node_uid: str, devices: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the node's slice: all its devices, in a pool of the node's name."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [*devices],
        },
    }


def renewed(said: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the replacement of the API server's slice; None: that one is right."""
    if _comparable(said["spec"]) == _comparable(wanted["spec"]):
        return None
    pool = {**wanted["spec"]["pool"], "generation": said["spec"]["pool"]["generation"] + 1}
    since = {
        (one["name"], *_taint(taint)): taint
        for one in said["spec"].get("devices", ())
        for taint in one.get("taints", ())
    }
    # A taint that stays keeps its time, by which tolerations of some seconds end.
    devices = [
        {
            **one,
            "taints": [since.get((one["name"], *_taint(taint)), taint) for taint in one["taints"]],
        }
        if "taints" in one
        else one
        for one in wanted["spec"]["devices"]
    ]
    version = said["metadata"]["resourceVersion"]
    return {
        **wanted,
        "metadata": {**wanted["metadata"], "resourceVersion": version},
        "spec": {**wanted["spec"], "pool": pool, "devices": devices},
    }


def _taint(taint: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a taint without its time, which the server sets."""
    return tuple(taint.get(key) for key in ("key", "value", "effect"))


def drops_taints(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether an API server has made a slice without the taints that were *wanted*."""
    kept = {one["name"] for one in made["spec"].get("devices", ()) if one.get("taints")}
    return any(one.get("taints") and one["name"] not in kept for one in wanted["spec"]["devices"])


def _comparable(spec: Mapping[str, Any]) -> object:
    """The server writes amounts in its own way, and generations are its past."""
    return (
        [spec.get(key) for key in ("driver", "nodeName")],
        [spec["pool"].get(key) for key in ("name", "resourceSliceCount")],
        [
            {
                **one,
                "capacity": {key: _amounts(found) for key, found in one["capacity"].items()},
                "taints": [_taint(taint) for taint in one.get("taints", ())],
            }
            if isinstance(one.get("capacity"), dict)
            else one
            for one in spec.get("devices", ())
        ],
    )


def _amounts(value: object) -> object:
    if isinstance(value, dict):
        return {key: _amounts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_amounts(one) for one in value]
    return quantity("capacity", value)


def parts(claim: Mapping[str, Any]) -> list[Part]:
    """
    Return the parts of our cards that a ResourceClaim has been allocated.

    Raises:
        ClaimError: it has no part, or asks for something that does not exist.
    """
    allocation = claim.get("status", {}).get("allocation") or {}
    devices = allocation.get("devices") or {}
    found = []
    for result in devices.get("results", ()):
        if result["driver"] != DRIVER:
            continue
        place = (result["request"], result["pool"], result["device"], result.get("shareID", ""))
        if result.get("adminAccess"):
            # The API server lets an administrator's namespace alone ask for it.
            found.append(Part(*place, None, 0))
            continue
        consumed = result.get("consumedCapacity") or {}
        if not {MEMORY, CORES} <= consumed.keys():
            raise ClaimError(
                f"request {result['request']}: allocated without capacities: the cluster's"
                " scheduler needs the feature DRAConsumableCapacity (Kubernetes 1.36)"
            )
        found.append(
            Part(*place, quantity(MEMORY, consumed[MEMORY]), quantity(CORES, consumed[CORES]))
        )
    if not found:
        raise ClaimError(f"nothing of {DRIVER} is allocated to the claim")
    return found


def parameters(claim: Mapping[str, Any]) -> dict[str, str]:
    """
    Return a DeviceClass's settings for the tenants of its devices, by :data:`PARAMETERS`.

    Weight, priority and policy take from others. So only classes set them, which an administrator
    writes, and not claims, which users write. A claim may name a group, which is its namespace's,
    and the idle time after which it may be parked.

    Raises:
        ClaimError: the claim sets a class's parameter, one is unknown or malformed, or requests
            have different ones.
    """
    devices = (claim.get("status", {}).get("allocation") or {}).get("devices") or {}
    said: dict[str, dict[str, str]] = {
        one["request"]: {} for one in devices.get("results", ()) if one["driver"] == DRIVER
    }
    for one in devices.get("config", ()):
        opaque = one.get("opaque") or {}
        if opaque.get("driver") != DRIVER:
            continue
        given = opaque.get("parameters")
        others = {*given} - {*_USERS, "apiVersion", "kind"} if isinstance(given, dict) else True
        if one.get("source") != "FromClass" and others:
            raise ClaimError(
                f"of a claim's own config {DRIVER} takes {', '.join(_USERS)} alone: a DeviceClass"
                " gives the rest"
            )
        named = one.get("requests")
        for request, found in said.items():
            if not named or request in named or request.partition("/")[0] in named:
                found |= _parameters(given)
    values = list(said.values()) or [{}]
    if any(other != values[0] for other in values):
        raise ClaimError("classes of one claim have different parameters: make a claim of each")
    return values[0]


def _parameters(given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ClaimError(f"parameters are {given!r}: write {', '.join(PARAMETERS)} in a map")
    found = {}
    for key, value in given.items():
        if key in ("apiVersion", "kind"):
            continue
        if key not in PARAMETERS:
            raise ClaimError(f"parameter {key!r} is unknown; known are {', '.join(PARAMETERS)}")
        found[PARAMETERS[key]] = str(value)
    try:
        dialects.request_from({"CGPU_MEM": "max", **found})
    except RequestError as error:
        raise ClaimError(f"parameters: {error}") from None
    return found


def settings(wanted: Sequence[Part]) -> dict[str, str]:
    """
    Return the limits of a claim's tenant: for each card the sum of its parts there.

    The cards are in the order of their first parts.
    """
    memory: dict[str, list[int | None]] = {}
    quota: dict[str, int] = {}
    for part in wanted:
        memory.setdefault(part.device, []).append(part.memory_bytes)
        quota[part.device] = quota.get(part.device, 0) + part.quota
    found = {"CGPU_MEM": ",".join(_sum(sizes) for sizes in memory.values())}
    if all(part.quota for part in wanted):
        found["CGPU_QUOTA"] = ",".join(map(str, quota.values()))
    elif any(quota.values()):
        raise ClaimError("of a claim's requests all ask for cores, or none: add it to the others")
    return found


def _sum(sizes: Sequence[int | None]) -> str:
    known = [size for size in sizes if size is not None]
    return f"{sum(known) // MIB}MiB" if len(known) == len(sizes) else "max"


def repeated(wanted: Sequence[Part]) -> dict[str, int]:
    """Return the memory in bytes of each device of which a claim has more than one part."""
    parts: dict[str, list[int]] = {}
    for part in wanted:
        if part.memory_bytes is not None:
            parts.setdefault(part.device, []).append(part.memory_bytes)
    return {device: sum(sizes) for device, sizes in parts.items() if len(sizes) > 1}


def sole_user(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod's own claim is named by one of its containers alone."""
    status = pod.get("status", {})
    # The scheduler makes this claim for an extended resource that names a class (KEP-5004).
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName") == claim["metadata"]["name"]:
        return len({one["containerName"] for one in extended["requestMappings"]}) == 1
    named = {
        one["name"]
        for one in status.get("resourceClaimStatuses", ())
        if one.get("resourceClaimName") == claim["metadata"]["name"]
    }
    spec = pod["spec"]
    users = [
        container["name"]
        for container in (*spec["containers"], *spec.get("initContainers", ()))
        if any(one["name"] in named for one in (container.get("resources") or {}).get("claims", ()))
    ]
    return len(users) == 1


def owner(claim: Mapping[str, Any]) -> str | None:
    """Return the pod for which a claim was made from a template, and which alone may use it."""
    for one in claim["metadata"].get("ownerReferences", ()):
        if one.get("kind") == "Pod" and one.get("controller"):
            return str(one["name"])
    return None
