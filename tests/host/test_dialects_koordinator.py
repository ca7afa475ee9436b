# SPDX-License-Identifier: MIT
"""
Koordinator's resources, by its documents.

"Enhance the GPU Share API" (docs/proposals/scheduling/20230803-enhance-gpu-share-api.md) and
"Fine-grained Device Scheduling" (20220629-fine-grained-device-scheduling.md) of
github.com/koordinator-sh/koordinator, July 2026.
"""

from __future__ import annotations

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import RequestError
from pycgpu.kubernetes.families import FAMILIES, Amounts, amounts, capacity
from pycgpu.request.model import GIB, Card
from tests.host.asking import granted

K = "koordinator.sh/gpu"
#: "assume 8G memory in bytes per GPU"
HOST = tuple(Card(n, f"GPU-{n}", 8 * GIB) for n in range(4))
FAMILY = FAMILIES["koordinator"]


@pytest.mark.parametrize(
    ("asked", "cards", "memory_bytes", "quota"),
    [
        # Apply whole resources of GPU or part resources of GPU
        ({K: "50"}, 1, 4 * GIB, 50),
        ({K + "-core": "50", K + "-memory-ratio": "50"}, 1, 4 * GIB, 50),
        # Apply koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio separately
        ({K + "-core": "50", K + "-memory-ratio": "60"}, 1, 4915 << 20, 50),
        # Apply koordinator.sh/gpu-core and koordinator.sh/gpu-memory separately
        ({K + "-core": "60", K + "-memory": "4Gi"}, 1, 4 * GIB, 60),
        # Compatible with nvidia.com/gpu: what the scheduler makes of two cards
        ({K + "-core": "200", K + "-memory-ratio": "200"}, 2, 8 * GIB, 100),
        # GPU Share APIs: "each device object allocates gpu-memory=2Gi, gpu-core=50"
        ({K + "-memory": "4Gi", K + "-core": "100", K + ".shared": "2"}, 2, 2 * GIB, 50),
        # "if the memory size is 8Gi, and the gpu-memory-ratio is 50, then 4Gi"
        ({K + "-memory-ratio": "50", K + ".shared": "1"}, 1, 4 * GIB, None),
    ],
)
def test_examples_of_the_documents(
    asked: dict[str, str], cards: int, memory_bytes: int, quota: int | None
) -> None:
    found = granted(asked, HOST).cards
    assert [(card.memory_bytes, card.quota) for card in found] == [(memory_bytes, quota)] * cards


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        # Validating Webhook, rules 2 to 4
        ({K + "-memory": "4Gi", K + "-memory-ratio": "50", K + ".shared": "1"}, "keep one"),
        ({K + "-core": "50", K + ".shared": "1"}, "without memory"),
        ({K: "50", K + "-core": "50"}, "keep one"),
        ({K + "-memory-ratio": "150"}, "up to 100 each"),
        ({K + "-memory-ratio": "75", K + ".shared": "2"}, "split evenly"),
        ({K + "-memory": "4Gi", K + "-core": "101"}, "up to 100 each"),
        ({K + "-memory": "four"}, "write bytes such as 4Gi"),
        ({K + "-memory": "4Gi", K + ".shared": "0"}, "positive whole number of cards"),
        ({K: "50", "nvidia.com/gpumem": "3000"}, "ask at once"),
    ],
)
def test_what_the_webhook_rejects_is_refused(asked: dict[str, str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        request_from(asked)


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (
            {K + "-memory": "4Gi", K + "-core": "100", K + ".shared": "2"},
            Amounts(2, 2 * GIB, None, 50),
        ),
        ({K + "-memory-ratio": "50", K + ".shared": 1}, Amounts(1, None, 50)),
        (
            {K + "-core": "200", K + "-memory-ratio": "200", K + ".shared": "2"},
            Amounts(2, None, 100, 100),
        ),
        ({"cpu": "4", "memory": "8Gi"}, None),
    ],
)
def test_a_pods_resources_are_divided_among_its_cards(limits: Any, found: Any) -> None:
    assert amounts(FAMILY, limits) == found


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({K + "-memory": "4Gi"}, r"gpu-memory without koordinator.sh/gpu.shared"),
        ({K + "-core": "50", K + ".shared": "1"}, "give one of"),
        ({K + ".shared": "1"}, "give one of"),
        ({K + "-memory": "4Gi", K + "-memory-ratio": "50", K + ".shared": "1"}, "give one of"),
        ({K + "-memory-ratio": "75", K + ".shared": "2"}, "cannot be split over 2 cards"),
        ({K + "-memory-ratio": "150", K + ".shared": "1"}, "100 are a card"),
    ],
)
def test_a_pod_that_the_webhook_would_reject_is_given_nothing(limits: Any, why: str) -> None:
    """Where Koordinator's webhook does not run, nobody else would say so."""
    with pytest.raises(RequestError, match=why):
        amounts(FAMILY, limits)


def test_a_node_publishes_bytes_and_hundreds() -> None:
    """Fine-grained Device Scheduling: node A of four cards of 8 GB."""
    cards = [one._replace(max_inst=100) for one in HOST]
    assert capacity(FAMILY, cards) == {
        K + ".shared": 400,
        K + "-memory": 32 * GIB,
        K + "-memory-ratio": 400,
        K + "-core": 400,
    }
