# SPDX-License-Identifier: MIT
"""
Volcano's resources, by its documents.

"Volcano vGPU User Guide" (docs/user-guide/how_to_use_volcano_vgpu.md) and "Dynamic MIG"
(docs/design/dynamic-mig.md) of github.com/volcano-sh/volcano, August 2026.
"""

from __future__ import annotations

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import CgpuError, RequestError
from pycgpu.kubernetes.families import FAMILIES, Amounts, capacity
from pycgpu.kubernetes.pods import parts
from pycgpu.request.model import GIB, MIB, Card
from tests.host.asking import granted

HOST = tuple(Card(n, f"GPU-{n}", 16 * GIB) for n in range(4))
V = "volcano.sh/vgpu-"
UUID = "GPU-03f69c50-207a-2038-9b45-23cac89cb67d"


def pod(limits: dict[str, object]) -> dict[str, Any]:
    one = {"name": "cuda-container", "resources": {"limits": limits}}
    return {
        "metadata": {"name": "p", "annotations": {}},
        "spec": {"containers": [one]},
    }


@pytest.mark.parametrize(
    ("limits", "amounts"),
    [
        # HAMI-core Usage
        ({V + "number": 1, V + "cores": 50, V + "memory": 3000}, Amounts(1, 3000 * MIB, None, 50)),
        # GPU Exclusivity
        ({V + "number": "4", V + "memory": "16384"}, Amounts(4, 16384 * MIB)),
        # Dynamic MIG, its Examples
        ({V + "number": 2, V + "memory": 8000}, Amounts(2, 8000 * MIB)),
    ],
)
def test_pods_of_the_documents_are_counted(limits: Any, amounts: Amounts) -> None:
    found = parts(pod(limits), FAMILIES.values())
    assert found["cuda-container"].amounts == amounts
    assert found["cuda-container"].resource == V + "number"


def test_the_mode_of_the_document_is_followed_and_mig_is_refused() -> None:
    """HAMI-core Usage says vgpu-mode hami-core; Dynamic MIG Usage says mig."""
    limits: dict[str, object] = {V + "number": 1, V + "memory": 3000}
    plain = parts(pod(limits), FAMILIES.values())
    made = pod(limits)
    made["metadata"]["annotations"] = {V + "mode": "hami-core"}
    assert parts(made, FAMILIES.values()) == plain
    made["metadata"]["annotations"] = {V + "mode": "mig"}
    with pytest.raises(CgpuError, match="vgpu-mode='mig': parts are of whole cards here"):
        parts(made, FAMILIES.values())


@pytest.mark.parametrize(
    ("key", "text"),
    [("podgroup-policy", "spread"), ("use-gpuuuid", UUID), ("nouse-gpuuuid", UUID)],
)
def test_what_chooses_among_cards_is_refused_where_it_would_be_lost(key: str, text: str) -> None:
    """PodGroup Device Spread, Selecting vGPU Devices by UUID."""
    made = pod({V + "number": 1, V + "memory": 3000})
    made["metadata"]["annotations"] = {V + key: text}
    with pytest.raises(CgpuError, match=f"{key}='{text}': cards are not chosen by it here"):
        parts(made, FAMILIES.values())
    with pytest.raises(RequestError, match=f"{key}='{text}'"):
        request_from({V + "memory": "3000", V + key: text})
    # Beside what a device of the plugin asks it says nothing; the plugin has judged it.
    assert request_from({"CGPU_MEM": "3000MiB", V + "mode": "hami-core"}) is not None


def test_a_node_publishes_what_the_document_validates() -> None:
    """Validate Setup: MiB of all cards, and a number of vGPUs."""
    cards = [Card(n, f"GPU-{n}", 11178 * MIB, max_inst=10) for n in range(8)]
    found = capacity(FAMILIES["volcano"], cards)
    assert (found[V + "memory"], found[V + "number"]) == (89424, 80)


def test_a_container_asks_by_annotations_as_a_pod_by_resources() -> None:
    (card,) = granted({V + "number": "1", V + "cores": "50", V + "memory": "3000"}, HOST).cards
    assert (card.memory_bytes, card.quota) == (3000 * MIB, 50)
    (card,) = granted({V + "number": "1", V + "memory-percentage": "25"}, HOST).cards
    assert card.memory_bytes == 4 * GIB
    cards = granted({V + "number": "2", V + "memory": "8000"}, HOST).cards
    assert [card.memory_bytes for card in cards] == [8000 * MIB] * 2


@pytest.mark.parametrize(
    ("key", "text"), [("memory", "3G"), ("memory", "0"), ("cores", "101"), ("number", "0")]
)
def test_a_malformed_value_is_quoted(key: str, text: str) -> None:
    with pytest.raises(RequestError, match=f"^{V}{key}='{text}': write "):
        request_from({V + "memory": "3000", V + key: text})
