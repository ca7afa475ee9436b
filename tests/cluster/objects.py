# SPDX-License-Identifier: MIT
"""Kubernetes' objects, as tests write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
