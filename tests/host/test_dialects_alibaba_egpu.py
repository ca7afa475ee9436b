# SPDX-License-Identifier: MIT
"""Alibaba eGPU's interface document, example by example."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request.admission import admit
from pycgpu.request.model import MIB, Card
from tests.host.asking import asked

V100_BYTES = 16160 * MIB
HELD_BACK = 10 * MIB
HOST = tuple(
    Card(n, uuid, V100_BYTES)
    for n, uuid in enumerate(
        [
            "GPU-00000000-aaaa-0000-0000-000000000000",
            "GPU-28df2127-fac9-f8fd-77de-e461c85c8ef2",
            "GPU-22222222-aaaa-0000-0000-000000000000",
            "GPU-7bda088d-4609-6f9d-8ada-6bcba97e664a",
            "GPU-44444444-aaaa-0000-0000-000000000000",
            "GPU-55555555-aaaa-0000-0000-000000000000",
        ]
    )
)


def grant(**env: Any) -> Any:
    env = {"AMP_VGPU_ENABLE": "1", "AMP_USE_HOST_DAEMON": "1"} | env
    return admit(asked(env), HOST)


def test_2g_and_half_the_compute_on_card_1() -> None:
    (card,) = grant(
        GPU_MEM_PER_DEVICE="2000000000", GPU_UTIL_PER_DEVICE="50", NVIDIA_VISIBLE_DEVICES="1"
    ).cards
    assert (card.index, card.memory_bytes, card.quota) == (1, 2_000_000_000 - HELD_BACK, 50)


def test_5g_in_bytes_on_card_0() -> None:
    (card,) = grant(GPU_MEM_PER_DEVICE="5000000000", NVIDIA_VISIBLE_DEVICES="0").cards
    assert (card.index, card.memory_bytes, card.quota) == (0, 5_000_000_000 - HELD_BACK, None)


def test_5_of_16_is_exact_to_the_byte() -> None:
    (card,) = grant(
        ALIYUN_COM_GPU_MEM_CONTAINER="5",
        ALIYUN_COM_GPU_MEM_DEV="16",
        NVIDIA_VISIBLE_DEVICES="0",
    ).cards
    assert card.memory_bytes == V100_BYTES * 5 // 16 - HELD_BACK == 5284823040


def test_without_a_card_size_it_is_rounded_up_to_16_gb() -> None:
    (card,) = grant(ALIYUN_COM_GPU_MEM_CONTAINER="5", NVIDIA_VISIBLE_DEVICES="0").cards
    assert card.memory_bytes == V100_BYTES * 5 // 16 - HELD_BACK


def test_the_proportion_may_be_of_any_granularity() -> None:
    (card,) = grant(
        ALIYUN_COM_GPU_MEM_CONTAINER="333",
        ALIYUN_COM_GPU_MEM_DEV="1000",
        NVIDIA_VISIBLE_DEVICES="0",
    ).cards
    assert card.memory_bytes == V100_BYTES * 333 // 1000 - HELD_BACK


def test_a_third_of_the_card_without_a_memory_limit() -> None:
    (card,) = grant(GPU_UTIL_PER_DEVICE="33", NVIDIA_VISIBLE_DEVICES="0").cards
    assert (card.memory_bytes, card.quota) == (None, 33)


def test_two_cards_by_uuid() -> None:
    cards = grant(
        GPU_MEM_PER_DEVICE="2000000000",
        NVIDIA_VISIBLE_DEVICES=f"{HOST[1].uuid},{HOST[3].uuid}",
    ).cards
    assert [card.index for card in cards] == [1, 3]


def test_two_cards_by_index() -> None:
    cards = grant(GPU_MEM_PER_DEVICE="2000000000", NVIDIA_VISIBLE_DEVICES="3,5").cards
    assert [card.index for card in cards] == [3, 5]


def test_uuid_and_index_mixed() -> None:
    cards = grant(
        GPU_MEM_PER_DEVICE="2000000000",
        NVIDIA_VISIBLE_DEVICES=f"3,{HOST[1].uuid.upper()[:3]}{HOST[1].uuid[3:]}",
    ).cards
    assert [card.index for card in cards] == [3, 1]


@pytest.mark.parametrize(("util", "quota"), [("0", None), ("1", 1), ("95", 95), ("96", None)])
def test_compute_is_not_controlled_at_0_or_above_95(util: Any, quota: Any) -> None:
    (card,) = grant(GPU_UTIL_PER_DEVICE=util, NVIDIA_VISIBLE_DEVICES="0").cards
    assert card.quota == quota


def test_reserved_is_in_mb() -> None:
    (card,) = grant(
        GPU_MEM_PER_DEVICE="2000000000",
        ALIYUN_COM_GPU_MEM_RESERVED="100",
        NVIDIA_VISIBLE_DEVICES="0",
    ).cards
    assert card.memory_bytes == 2_000_000_000 - 100 * MIB


@pytest.mark.parametrize("switch", [None, "0", "", "false"])
def test_without_the_master_switch_nothing_is_changed(switch: Any) -> None:
    env = {"GPU_MEM_PER_DEVICE": "2000000000", "GPU_UTIL_PER_DEVICE": "50"}
    if switch is not None:
        env["AMP_VGPU_ENABLE"] = switch
    assert request_from(env) is None


def test_whoever_exceeds_its_memory_is_killed_after_the_script() -> None:
    result = grant(
        GPU_MEM_PER_DEVICE="2000000000",
        ALIYUN_COM_GPU_OOM_SCRIPT="/opt/on_oom.sh",
        NVIDIA_VISIBLE_DEVICES="0",
    )
    assert (result.cards[0].oom_action, result.oom_script) == ("kill", "/opt/on_oom.sh")


def test_memory_asked_for_both_ways_is_refused() -> None:
    with pytest.raises(ConflictError, match=r"GPU_MEM_PER_DEVICE.*ALIYUN_COM_GPU_MEM_CONTAINER"):
        grant(GPU_MEM_PER_DEVICE="2000000000", ALIYUN_COM_GPU_MEM_CONTAINER="5")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("AMP_VGPU_ENABLE", "yes please"),
        ("AMP_USE_HOST_DAEMON", "0"),
        ("GPU_MEM_PER_DEVICE", "2G"),
        ("GPU_MEM_PER_DEVICE", "0"),
        ("GPU_MEM_PER_DEVICE", "10485760"),
        ("GPU_UTIL_PER_DEVICE", "-1"),
        ("GPU_UTIL_PER_DEVICE", "50%"),
        ("ALIYUN_COM_GPU_MEM_RESERVED", "10MB"),
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "0"),
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "3,1"),
        ("ALIYUN_COM_GPU_MEM_DEV", "15"),
        ("ALIYUN_COM_GPU_OOM_SCRIPT", "on_oom.sh"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
        ("NVIDIA_VISIBLE_DEVICES", "none"),
        ("NVIDIA_VISIBLE_DEVICES", "0,0"),
        ("NVIDIA_VISIBLE_DEVICES", "0:1"),
        ("NVIDIA_VISIBLE_DEVICES", "MIG-41b3359c-e721-56e5-8009-12e5797ed514"),
    ],
)
def test_a_malformed_value_is_quoted(key: Any, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        grant(**{key: value})
    assert str(caught.value).startswith(f"{key}={value!r}: ")


def test_a_reserve_that_leaves_nothing_of_a_share_is_refused_in_numbers() -> None:
    result = grant(
        ALIYUN_COM_GPU_MEM_CONTAINER="1",
        ALIYUN_COM_GPU_MEM_DEV="10000",
        NVIDIA_VISIBLE_DEVICES="2",
    )
    assert result.reason == "card 2: nothing is left of 16160 MiB after what is held back"
