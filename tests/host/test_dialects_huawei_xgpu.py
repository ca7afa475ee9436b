# SPDX-License-Identifier: MIT
"""Huawei xGPU's variables and its own numbering of policies."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import RequestError
from pycgpu.request.model import MIB, Card
from tests.host.asking import asked, granted, refused

HOST = tuple(Card(n, f"GPU-{n}", 15109 * MIB, max_inst=20) for n in range(2))


def test_index_memory_and_percentage() -> None:
    env = {
        "GPU_IDX": "1",
        "GPU_CONTAINER_MEM": "5120",
        "GPU_CONTAINER_QUOTA_PERCENT": "10",
        "GPU_POLICY": "1",
    }
    (card,) = granted(env, HOST).cards
    assert (card.index, card.memory_bytes, card.quota, card.weight) == (1, 5120 * MIB, 10, 2)


@pytest.mark.parametrize(("theirs", "ours"), list(enumerate([5, 3, 0, 1, 2, 6, 7])))
def test_policies_are_renumbered(theirs: Any, ours: Any) -> None:
    env = {"GPU_CONTAINER_MEM": "5120", "GPU_POLICY": str(theirs)}
    assert asked(env).shares[0].policy == ours


def test_weighted_percentages_keep_their_ratio() -> None:
    weights = []
    for percent in ("5", "5", "10"):
        env = {"GPU_CONTAINER_QUOTA_PERCENT": percent, "GPU_POLICY": "4", "GPU_IDX": "0"}
        (card,) = granted(env, HOST).cards
        weights.append((card.weight, card.quota))
    assert weights == [(1, None), (1, None), (2, None)]


@pytest.mark.parametrize(("text", "priority"), [("0", 0), ("1", 1)])
def test_priority(text: Any, priority: Any) -> None:
    env = {"GPU_CONTAINER_MEM": "5120", "GPU_CONTAINER_PRIORITY": text}
    assert asked(env).shares[0].priority == priority


def test_an_index_that_nvidia_shows_otherwise_is_refused() -> None:
    env = {"GPU_CONTAINER_MEM": "5120", "GPU_IDX": "0", "NVIDIA_VISIBLE_DEVICES": "1"}
    assert "NVIDIA_VISIBLE_DEVICES shows 1" in refused(env, HOST).reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("GPU_IDX", "x"),
        ("GPU_IDX", "0,0"),
        ("GPU_CONTAINER_MEM", "0"),
        ("GPU_CONTAINER_MEM", "5G"),
        ("GPU_CONTAINER_QUOTA_PERCENT", "101"),
        ("GPU_CONTAINER_QUOTA_PERCENT", "0"),
        ("GPU_POLICY", "7"),
        ("GPU_CONTAINER_PRIORITY", "2"),
    ],
)
def test_a_malformed_value_is_quoted(key: Any, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        request_from({"GPU_CONTAINER_MEM": "5120"} | {key: value})
    assert str(caught.value).startswith(f"{key}={value!r}: ")


def test_policy_and_index_alone_ask_for_no_limit() -> None:
    assert request_from({"GPU_IDX": "0", "GPU_POLICY": "1"}) is None
