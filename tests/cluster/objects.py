# SPDX-License-Identifier: MIT
"""Kubernetes' objects, as tests write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ControlPlane

#: The image of the two Jobs of the vendor's document, of which ours has the name alone.
IMAGE = "docker.io/4pdosc/ai-benchmark:2.4.1-gpu"
MANIFESTS = Path(__file__).resolve().parents[2] / "scripts/kubernetes"


def pod(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """Return a pod; what is said of its one container is merged into it."""
    container = {"name": "main", "image": "x", **spec.pop("container", {})}
    metadata = {"name": name, "namespace": namespace, **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def manifests(api: ControlPlane, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, as kubectl reads it."""
    text = api.kubectl("create", "--dry-run=client", "-o", "json", "-f", path).stdout
    while text := text.strip():
        one, end = json.JSONDecoder().raw_decode(text)
        text = text[end:]
        yield from one.get("items", [one])


def _request(**capacity: str) -> dict[str, Any]:
    asked = {"deviceClassName": "gpu.cgpu.io", "capacity": {"requests": capacity}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}


def claim(name: str, **capacity: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": _request(**capacity),
    }


def template(name: str, **capacity: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": _request(**capacity)},
    }


def claimant(name: str, *sources: dict[str, str], command: str | None = None) -> dict[str, Any]:
    """A pod that has claims; it tells its card and sleeps, or does as it is told."""
    names = [f"c{number}" for number in range(len(sources))]
    container = {"image": IMAGE, "resources": {"claims": [{"name": one} for one in names]}}
    if command is not None:
        container["command"] = ["sh", "-c", command]
    return pod(
        name,
        container=container,
        resourceClaims=[
            {"name": one, **source} for one, source in zip(names, sources, strict=True)
        ],
        terminationGracePeriodSeconds=0,
    )


def slices(api: ControlPlane) -> list[Any]:
    """What the driver has published."""
    return [
        one["spec"]
        for one in api.get("resourceslices")["items"]
        if one["spec"]["driver"] == "gpu.cgpu.io"
    ]
