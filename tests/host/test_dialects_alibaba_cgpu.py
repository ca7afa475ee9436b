# SPDX-License-Identifier: MIT
"""Alibaba cGPU's guide, example by example."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request.admission import admit
from pycgpu.request.model import (
    GIB,
    MIB,
    WEIGHTED,
    Card,
    Grant,
    Refusal,
)
from tests.host.asking import asked, granted

T4 = (Card(0, "GPU-00000000-0000-0000-0000-000000000000", 15109 * MIB),)
FOUR_A10 = tuple(Card(n, f"GPU-{n}{n}{n}{n}aaaa-0000", 22731 * MIB) for n in range(4))


def granted_mib(cards: Any, **env: Any) -> Any:
    grant = granted({f"ALIYUN_COM_GPU_{k}": v for k, v in env.items()}, cards)
    assert isinstance(grant, Grant), grant
    return [(card.memory_bytes or 0) / MIB for card in grant.cards]


def test_6_of_15_on_a_t4_is_6043_mib_as_the_guide_shows() -> None:
    assert granted_mib(T4, MEM_CONTAINER="6", MEM_DEV="15") == [6043]


def test_8_of_15_fits_beside_6_of_15() -> None:
    six = granted({"ALIYUN_COM_GPU_MEM_CONTAINER": "6", "ALIYUN_COM_GPU_MEM_DEV": "15"}, T4)
    t4 = T4[0]._replace(allocated_bytes=six.cards[0].memory_bytes or 0)
    assert granted_mib((t4,), MEM_CONTAINER="8", MEM_DEV="15") == [8058]


@pytest.mark.parametrize(
    ("container", "parts"),
    [("3", [3, 3, 3, 3]), ("3,1", [3, 1, 1, 1]), ("3,4,5,6", [3, 4, 5, 6])],
)
def test_the_last_value_of_a_list_repeats(container: Any, parts: Any) -> None:
    assert granted_mib(FOUR_A10, MEM_CONTAINER=container, MEM_DEV="23") == [
        22731 * part // 23 for part in parts
    ]


def test_the_guides_multi_card_example_names_its_cards() -> None:
    env = {
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3,4,5,6",
        "ALIYUN_COM_GPU_MEM_DEV": "23",
        "NVIDIA_VISIBLE_DEVICES": "0,1,2,3",
    }
    grant = granted(env, FOUR_A10)
    assert [(card.index, (card.memory_bytes or 0) // MIB) for card in grant.cards] == [
        (0, 2964),
        (1, 3953),
        (2, 4941),
        (3, 5929),
    ]


@pytest.mark.parametrize("container", [None, "0", "1,0,0"])
def test_unset_zero_or_a_zero_in_the_list_switches_cgpu_off(container: Any) -> None:
    env = {"ALIYUN_COM_GPU_MEM_DEV": "15", "ALIYUN_COM_GPU_SCHD_WEIGHT": "4"}
    if container is not None:
        env["ALIYUN_COM_GPU_MEM_CONTAINER"] = container
    assert request_from(env) is None


def test_a_list_longer_than_the_cards_is_refused() -> None:
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3,4", "ALIYUN_COM_GPU_MEM_DEV": "15"}
    assert admit(asked(env), T4) == Refusal(("2 limits given for 1 cards (0)",))


def test_without_a_card_size_the_card_is_rounded_up_to_whole_gib() -> None:
    assert granted_mib(T4, MEM_CONTAINER="6") == [15109 * 6 // 15]


@pytest.mark.parametrize(("weight", "policy"), [("1", None), ("2", WEIGHTED), ("8", WEIGHTED)])
def test_a_weight_over_1_asks_for_weighted_preemption(weight: Any, policy: Any) -> None:
    request = asked({"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_SCHD_WEIGHT": weight})
    assert (request.shares[0].weight, request.shares[0].policy) == (int(weight), policy)


@pytest.mark.parametrize("on", ["1", "true", "TRUE"])
def test_cgpu_disable_switches_it_off(on: Any) -> None:
    assert request_from({"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "CGPU_DISABLE": on}) is None


@pytest.mark.parametrize("off", ["0", "false", ""])
def test_cgpu_disable_of_zero_leaves_the_limit(off: Any) -> None:
    assert request_from({"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "CGPU_DISABLE": off}) is not None


def test_high_prio_raises_the_priority() -> None:
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_HIGH_PRIO": "1"}
    assert asked(env).shares[0].priority == 1


def test_visible_devices_other_than_nvidias_mixes_sliced_and_native_cards() -> None:
    env = {
        "ALIYUN_COM_GPU_MEM_CONTAINER": "6",
        "ALIYUN_COM_GPU_VISIBLE_DEVICES": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1111aaaa-0000,0",
    }
    grant = granted(env, FOUR_A10)
    assert [(card.index, card.memory_bytes) for card in grant.cards] == [
        (1, 22731 * 6 // 23 * MIB),
        (0, None),
    ]


def test_all_as_cuda_images_set_it_gives_no_card_without_a_limit() -> None:
    env = {
        "ALIYUN_COM_GPU_MEM_CONTAINER": "6",
        "ALIYUN_COM_GPU_VISIBLE_DEVICES": "1",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }
    assert [card.index for card in granted(env, FOUR_A10).cards] == [1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MEM_CONTAINER", "six"),
        ("MEM_CONTAINER", ""),
        ("MEM_CONTAINER", "3,"),
        ("MEM_CONTAINER", "-3"),
        ("MEM_CONTAINER", "3.5"),
        ("MEM_CONTAINER", "1_0"),
        ("MEM_CONTAINER", "３"),
        ("MEM_CONTAINER", "9" * 5000),
        ("MEM_CONTAINER", "16"),
        ("MEM_DEV", "0"),
        ("MEM_DEV", "15,15"),
        ("MEM_UNIT", "MB"),
        ("SCHD_WEIGHT", "0"),
        ("SCHD_WEIGHT", "two"),
        ("HIGH_PRIO", "maybe"),
        ("VISIBLE_DEVICES", "first"),
    ],
)
def test_a_malformed_value_is_quoted(key: Any, value: Any) -> None:
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "6", "ALIYUN_COM_GPU_MEM_DEV": "15"}
    env[f"ALIYUN_COM_GPU_{key}"] = value
    with pytest.raises(RequestError) as caught:
        request_from(env)
    assert f"ALIYUN_COM_GPU_{key}=" in str(caught.value)
    assert repr(value)[:20].rstrip("'") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_weight_beside_egpu_is_refused() -> None:
    env = {"AMP_VGPU_ENABLE": "1", "ALIYUN_COM_GPU_SCHD_WEIGHT": "2"}
    env["ALIYUN_COM_GPU_MEM_CONTAINER"] = "3"
    with pytest.raises(ConflictError, match=r"ALIYUN_COM_GPU_SCHD_WEIGHT.*AMP_VGPU_ENABLE"):
        request_from(env)


def test_a_card_of_whole_gib_is_not_rounded_up_further() -> None:
    card = Card(0, "GPU-0", 16 * GIB)
    assert granted_mib((card,), MEM_CONTAINER="4") == [4096]
