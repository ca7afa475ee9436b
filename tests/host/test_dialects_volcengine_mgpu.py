# SPDX-License-Identifier: MIT
"""Volcengine mGPU: Spark, Ray and custom jobs, and the annotations of VKE."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request.model import BURST, MIB, MIXED, WEIGHTED_CONSERVING, Card, Tenant
from tests.host.asking import asked, granted, refused

A10 = tuple(Card(n, f"GPU-{n}", 22731 * MIB) for n in range(2))
VKE = "vke.volcengine.com/"


@pytest.mark.parametrize("memory_mib", [4096, 1000])
def test_30_percent_and_the_documents_memory(memory_mib: Any) -> None:
    env = {
        "emr.serverless.mgpu.core": "30",
        "emr.serverless.mgpu.memory": str(memory_mib),
        "NVIDIA_VISIBLE_DEVICES": "0",
    }
    (card,) = granted(env, A10).cards
    assert (card.index, card.memory_bytes, card.quota) == (0, memory_mib * MIB, 30)


@pytest.mark.parametrize("core", ["5", "99"])
def test_the_ends_of_the_range_are_in_it(core: Any) -> None:
    env = {"emr.serverless.mgpu.core": core, "emr.serverless.mgpu.memory": "1000"}
    assert asked(env).shares[0].quota == int(core)


@pytest.mark.parametrize("core", ["4", "100", "0", "30%", "", "-5"])
def test_core_outside_5_to_99_is_quoted(core: Any) -> None:
    env = {"emr.serverless.mgpu.core": core, "emr.serverless.mgpu.memory": "1000"}
    with pytest.raises(RequestError, match=f"emr.serverless.mgpu.core='{core}'"):
        request_from(env)


@pytest.mark.parametrize("given", ["core", "memory"])
def test_one_without_the_other_is_refused(given: Any) -> None:
    with pytest.raises(RequestError, match=f"mgpu.{given}='30' without .*; give both"):
        request_from({f"emr.serverless.mgpu.{given}": "30"})


def test_vke_amounts_are_split_evenly_over_the_cards() -> None:
    env = {
        VKE + "mgpu-core": "60",
        VKE + "mgpu-memory": "8192",
        VKE + "container-multiple-gpu": "2",
        "NVIDIA_VISIBLE_DEVICES": "0,1",
    }
    cards = granted(env, A10).cards
    assert [(card.memory_bytes, card.quota) for card in cards] == [(4096 * MIB, 30)] * 2


def test_a_split_that_does_not_come_out_even_is_refused() -> None:
    env = {
        VKE + "mgpu-core": "61",
        VKE + "mgpu-memory": "8192",
        VKE + "container-multiple-gpu": "2",
    }
    with pytest.raises(RequestError, match="mgpu-core='61': cannot be split evenly over 2 cards"):
        request_from(env)


def test_one_card_of_many_is_chosen_the_fullest_that_has_room() -> None:
    env = {VKE + "mgpu-core": "30", VKE + "mgpu-memory": "1024", "NVIDIA_VISIBLE_DEVICES": "all"}
    busy = Tenant("a", quota=80)
    half = Tenant("b", quota=50)
    cards = [
        A10[0],
        A10[0]._replace(index=1, uuid="GPU-1", allocated_bytes=4096 * MIB, tenants=(busy,)),
        A10[0]._replace(index=2, uuid="GPU-2", allocated_bytes=2048 * MIB, tenants=(half,)),
    ]
    assert [card.index for card in granted(env, cards).cards] == [2]
    reason = refused(env, [cards[1], cards[1]._replace(index=3, uuid="GPU-3")]).reason
    assert reason.startswith("1 of 2 cards asked, 0 fit: card 1: 30 % of compute asked, 20 % free")


def test_more_cards_than_asked_for_are_refused() -> None:
    env = {VKE + "mgpu-core": "30", VKE + "mgpu-memory": "1024", "NVIDIA_VISIBLE_DEVICES": "0,1"}
    assert "1 cards asked" in refused(env, A10).reason


@pytest.mark.parametrize(
    ("name", "policy", "quota", "quota_min"),
    [
        ("fixed-share", MIXED, 30, None),
        ("guaranteed-burst-share", BURST, None, 30),
        ("native-burst-share", WEIGHTED_CONSERVING, None, None),
    ],
)
def test_compute_policies(name: Any, policy: Any, quota: Any, quota_min: Any) -> None:
    env = {VKE + "mgpu-core": "30", VKE + "mgpu-memory": "1024", VKE + "mgpu-compute-policy": name}
    share = asked(env).shares[0]
    assert (share.policy, share.quota, share.quota_min) == (policy, quota, quota_min)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mgpu-compute-policy", "fair"),
        ("container-multiple-gpu", "0"),
        ("container-multiple-gpu", "9"),
        ("container-multiple-gpu", "2,1,3"),
        ("mgpu-memory", "4G"),
    ],
)
def test_a_malformed_annotation_is_quoted(key: Any, value: Any) -> None:
    env = {VKE + "mgpu-core": "30", VKE + "mgpu-memory": "1024", VKE + key: value}
    with pytest.raises(RequestError) as caught:
        request_from(env)
    assert str(caught.value).startswith(f"{VKE}{key}={value!r}: ")


def test_both_spellings_at_once_are_refused() -> None:
    env = {VKE + "mgpu-core": "30", "emr.serverless.mgpu.core": "30"}
    with pytest.raises(ConflictError):
        request_from(env)


def test_a_whole_card_and_parts_of_it_exclude_each_other() -> None:
    whole = {VKE + "mgpu-core": "100", "NVIDIA_VISIBLE_DEVICES": "0"}
    part = {VKE + "mgpu-core": "30", VKE + "mgpu-memory": "1024", "NVIDIA_VISIBLE_DEVICES": "0"}
    (card,) = granted(whole, A10).cards
    assert (card.memory_bytes, card.quota) == (22731 * MIB, None)
    small = Tenant("small", quota=5)
    held = A10[0]._replace(tenants=(small,), allocated_bytes=1024 * MIB)
    reason = refused(whole, [held]).reason
    assert "card 0: the whole card asked, 1 container holds a part of it" in reason
    taken = A10[0]._replace(tenants=(Tenant("a"),), allocated_bytes=card.memory_bytes or 0)
    assert "card 0: 1024 MiB asked, 0 MiB free" in refused(part, [taken]).reason
    assert granted(part, [held])


def test_whole_cards_are_chosen_among_those_that_nobody_is_on() -> None:
    whole = {VKE + "mgpu-core": "200", "NVIDIA_VISIBLE_DEVICES": "all"}
    busy = Card(0, "GPU-0", 22731 * MIB, tenants=(Tenant("a"),))
    free = [Card(n, f"GPU-{n}", 22731 * MIB) for n in (1, 2)]
    assert [card.index for card in granted(whole, [busy, *free]).cards] == [1, 2]
    assert "0: the whole card asked" in refused(whole, [busy, free[0]]).reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mgpu-core": "150"}, "mgpu-core='150' without"),
        ({"mgpu-core": "100", "mgpu-memory": "4096"}, "5 to 99 percent"),
        ({"mgpu-core": "200", "container-multiple-gpu": "3"}, "100 percent are a card"),
        ({"mgpu-core": "900"}, "at most 8 cards"),
    ],
)
def test_what_is_neither_a_part_nor_whole_cards_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request_from({VKE + key: text for key, text in settings.items()})
