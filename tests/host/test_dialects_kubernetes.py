# SPDX-License-Identifier: MIT
"""Kubernetes' GPU-share resources and the environment that HAMi's device plugin passes on."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request.admission import admit
from pycgpu.request.model import MIB, Card, Refusal
from tests.host.asking import asked, granted, refused

T4 = tuple(Card(n, f"GPU-{n}", 12066 * MIB) for n in range(2))


def test_the_first_job_asks_for_30_percent_and_3000_mib() -> None:
    env = {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpucores": "30",
        "nvidia.com/gpumem": "3000",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
    }
    (card,) = granted(env, T4).cards
    assert (card.index, card.memory_bytes, card.quota) == (1, 3000 * MIB, 30)


@pytest.mark.parametrize(("percent", "mib"), [("50", 3000), ("10", 1206)])
def test_of_gpumem_and_a_percentage_the_lesser_holds(percent: Any, mib: Any) -> None:
    env = {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem-percentage": percent,
        "nvidia.com/gpumem": "3000",
        "NVIDIA_VISIBLE_DEVICES": "0",
    }
    (card,) = granted(env, T4).cards
    assert (card.memory_bytes, card.quota) == (mib * MIB, None)


def test_a_percentage_of_the_cards_own_memory() -> None:
    env = {"nvidia.com/gpumem-percentage": "50", "NVIDIA_VISIBLE_DEVICES": "0"}
    assert granted(env, T4).cards[0].memory_bytes == 6033 * MIB


@pytest.mark.parametrize(("hami", "ours"), [("0", 1), ("1", 0)])
def test_hamis_high_priority_is_0(hami: Any, ours: Any) -> None:
    env = {"nvidia.com/gpumem": "3000", "nvidia.com/priority": hami}
    assert asked(env).shares[0].priority == ours


def test_a_pod_that_asked_for_one_card_gets_one_of_those_there_are() -> None:
    env = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "NVIDIA_VISIBLE_DEVICES": "all"}
    assert [card.index for card in granted(env, T4).cards] == [0]


def test_a_pod_that_asked_for_one_card_and_was_shown_two_is_refused() -> None:
    env = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "NVIDIA_VISIBLE_DEVICES": "0,1"}
    assert refused(env, T4).reason == ("1 cards asked, but NVIDIA_VISIBLE_DEVICES shows 2 (0,1)")


def test_hamis_environment_limits_each_card() -> None:
    env = {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "4g",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0",
    }
    cards = granted(env, T4).cards
    assert [(card.index, (card.memory_bytes or 0) // MIB, card.quota) for card in cards] == [
        (1, 3000, 30),
        (0, 4096, 30),
    ]


def test_one_limit_without_a_number_is_for_every_card() -> None:
    cards = granted({"CUDA_DEVICE_MEMORY_LIMIT": "1g"}, T4).cards
    assert [(card.memory_bytes or 0) // MIB for card in cards] == [1024, 1024]


def test_a_card_without_the_limit_of_its_neighbour_is_refused() -> None:
    env = {"CUDA_DEVICE_MEMORY_LIMIT_0": "1g", "NVIDIA_VISIBLE_DEVICES": "0,1"}
    with pytest.raises(RequestError, match="CUDA_DEVICE_MEMORY_LIMIT_1=''"):
        request_from(env)


@pytest.mark.parametrize(
    ("general", "own", "fits"),
    [
        ("CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_MEMORY_LIMIT_0=512m", True),
        ("CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_MEMORY_LIMIT_0=8g", False),
        ("CUDA_DEVICE_SM_LIMIT=30", "CUDA_DEVICE_SM_LIMIT_0=20", True),
        ("CUDA_DEVICE_SM_LIMIT=30", "CUDA_DEVICE_SM_LIMIT_0=31", False),
        ("CUDA_DEVICE_SM_LIMIT=30", "CUDA_DEVICE_SM_LIMIT_0=0", False),
        ("CUDA_DEVICE_SM_LIMIT=0", "CUDA_DEVICE_SM_LIMIT_0=30", True),
    ],
)
def test_a_cards_own_limit_lifts_none_of_what_all_cards_have(
    general: str, own: str, fits: bool
) -> None:
    """The general one is what an operator writes, and the other an image could set."""
    env = dict(pair.split("=") for pair in (general, own)) | {"NVIDIA_VISIBLE_DEVICES": "0"}
    if fits:
        assert len(asked(env).shares) == 1
    else:
        with pytest.raises(RequestError, match=f"{own}'?: more than {general}".replace("=", "='?")):
            request_from(env)


def test_a_host_with_more_cards_than_limits_is_refused() -> None:
    request = asked({"CUDA_DEVICE_MEMORY_LIMIT_0": "1g", "NVIDIA_VISIBLE_DEVICES": "all"})
    assert admit(request, T4) == Refusal(("1 limits given for 2 cards (0,1)",))


@pytest.mark.parametrize(
    ("policy", "quota"), [(None, 30), ("default", 30), ("FORCE", 30), ("disable", None)]
)
def test_core_utilization_policy(policy: Any, quota: Any) -> None:
    env = {"CUDA_DEVICE_SM_LIMIT": "30"}
    if policy:
        env["GPU_CORE_UTILIZATION_POLICY"] = policy
    assert asked(env).shares[0].quota == quota


def test_cuda_disable_control_switches_it_off() -> None:
    env = {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DISABLE_CONTROL": "true"}
    assert request_from(env) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("CUDA_DEVICE_MEMORY_LIMIT", "3000x"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "0"),
        ("CUDA_DEVICE_MEMORY_LIMIT", ""),
        ("CUDA_DEVICE_MEMORY_LIMIT_x", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_01", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_99", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMITS", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_2", "1g"),
        ("CUDA_DEVICE_SM_LIMIT", "101"),
        ("GPU_CORE_UTILIZATION_POLICY", "soft"),
        ("CUDA_DISABLE_CONTROL", "perhaps"),
    ],
)
def test_a_malformed_value_is_quoted(key: Any, value: Any) -> None:
    env = {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "NVIDIA_VISIBLE_DEVICES": "0,1"}
    with pytest.raises(RequestError) as caught:
        request_from(env | {key: value})
    assert str(caught.value).startswith(f"{key}={value!r}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nvidia.com/gpu", "0"),
        ("nvidia.com/gpumem", "3Gi"),
        ("nvidia.com/gpumem-percentage", "0"),
        ("nvidia.com/gpumem-percentage", "101"),
        ("nvidia.com/gpucores", "110"),
        ("nvidia.com/priority", "high"),
    ],
)
def test_a_malformed_resource_is_quoted(key: Any, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        request_from({"nvidia.com/gpumem-percentage": "50", key: value})
    assert str(caught.value).startswith(f"{key}={value!r}: ")


def test_resources_and_environment_at_once_are_refused() -> None:
    with pytest.raises(ConflictError):
        request_from({"nvidia.com/gpumem": "1", "CUDA_DEVICE_SM_LIMIT": "3"})
