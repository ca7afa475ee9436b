# SPDX-License-Identifier: MIT
"""Kubernetes' objects, as tests write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ControlPlane

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
