# SPDX-License-Identifier: MIT
"""The project's own variables."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import RequestError
from pycgpu.request import idle_time
from pycgpu.request.model import (
    BURST,
    GIB,
    MIB,
    MIXED,
    WEIGHTED,
    Card,
    Tenant,
)
from tests.host.asking import asked, granted

HOST = tuple(Card(n, f"GPU-{n}", 16 * GIB) for n in range(2))


def test_everything_at_once() -> None:
    env = {
        "CGPU_GPU": "GPU-1,0",
        "CGPU_MEM": "4GiB,25%",
        "CGPU_QUOTA": "50",
        "CGPU_QUOTA_MIN": "10,20",
        "CGPU_WEIGHT": "3",
        "CGPU_POLICY": "burst",
        "CGPU_PRIORITY": "2",
        "CGPU_OOM": "kill",
        "CGPU_OOM_SCRIPT": "/bin/notify",
        "CGPU_UVM_DISABLE": "1",
        "CGPU_IDLE_PARK": "90s",
    }
    grant = granted(env, HOST)
    assert [card[:2] for card in grant.cards] == [(1, 4 * GIB), (0, 4 * GIB)]
    assert [(card.quota, card.quota_min, card.weight) for card in grant.cards] == [
        (50, 10, 3),
        (50, 20, 3),
    ]
    card = grant.cards[0]
    assert (card.policy, card.priority, card.oom_action, card.uvm_disable) == (8, 2, "kill", True)
    assert grant.oom_script == "/bin/notify"
    assert [card.idle_park_s for card in grant.cards] == [90, 90]


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("4194304", 4),
        ("512MiB", 512),
        ("512m", 512),
        ("3276MB", 3276),
        ("8G", 8192),
        ("8gb", 8192),
        ("50%", 8192),
        ("16.66%", 2729),
        ("12.5%", 2048),
    ],
)
def test_amounts_of_memory(text: Any, mib: Any) -> None:
    env = {"CGPU_MEM": text, "CGPU_GPU": "0"}
    assert granted(env, HOST).cards[0].memory_bytes == mib * MIB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4096", "'4096' is 4096 bytes, less than 1 MiB: write 4096MiB or GiB"),
        ("1023K", "'1023K' is 1047552 bytes, less than 1 MiB: the least is 1 MiB"),
        ("2GiB,8", "'8' is 8 bytes, less than 1 MiB: write 8MiB or GiB"),
    ],
)
def test_a_size_whose_unit_was_forgotten_is_refused_with_the_unit(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        request_from({"CGPU_MEM": text})


def test_percent_are_of_what_a_card_can_give() -> None:
    """Of 15360 MiB the driver keeps 450; 95 % and 5 % of the rest both fit."""
    card = Card(0, "GPU-0", 15360 * MIB, 450 * MIB)
    first = granted({"CGPU_MEM": "95%", "CGPU_GPU": "0"}, (card,)).cards[0]
    assert (first.memory_bytes, first.asked_bytes) == (14164 * MIB, 14164 * MIB)
    held = card._replace(allocated_bytes=14164 * MIB, free_weight=19, tenants=(Tenant("one"),))
    second = granted({"CGPU_MEM": "5%", "CGPU_GPU": "0"}, (held,)).cards[0]
    assert (second.memory_bytes, second.asked_bytes) == (745 * MIB, 745 * MIB)


def test_max_is_no_limit() -> None:
    assert granted({"CGPU_MEM": "max"}, HOST).cards[0].memory_bytes is None


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        ({"CGPU_MEM": "1G"}, None),
        ({"CGPU_QUOTA": "50"}, MIXED),
        ({"CGPU_QUOTA": "50", "CGPU_QUOTA_MIN": "10"}, BURST),
        ({"CGPU_WEIGHT": "1"}, None),
        ({"CGPU_WEIGHT": "2"}, WEIGHTED),
        ({"CGPU_WEIGHT": "2", "CGPU_POLICY": "3"}, 3),
    ],
)
def test_the_policy_that_a_request_needs_is_hinted(env: Any, policy: Any) -> None:
    assert asked(env).shares[0].policy == policy


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("off", 0), ("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("168h", 604800)],
)
def test_times_after_which_an_idle_container_is_parked(text: str, seconds: int) -> None:
    assert asked({"CGPU_MEM": "1G", "CGPU_IDLE_PARK": text}).idle_park_s == seconds
    assert asked({"CGPU_MEM": "1G"}).idle_park_s is None
    assert idle_time.parse_seconds(idle_time.shown(seconds)) == seconds


def test_an_unknown_variable_of_the_form_is_refused_so_that_a_typo_is_no_free_card() -> None:
    with pytest.raises(RequestError, match="CGPU_MEMORY='4G': unknown"):
        request_from({"CGPU_MEMORY": "4G"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("CGPU_GPU", "one"),
        ("CGPU_MEM", "4X"),
        ("CGPU_MEM", "4 G"),
        ("CGPU_MEM", "101%"),
        ("CGPU_MEM", "100.01%"),
        ("CGPU_MEM", "0.99%"),
        ("CGPU_MEM", "16.666%"),
        ("CGPU_MEM", "16.%"),
        ("CGPU_MEM", ".5%"),
        ("CGPU_MEM", "%"),
        ("CGPU_MEM", "1G,"),
        ("CGPU_QUOTA", "0"),
        ("CGPU_QUOTA", "101"),
        ("CGPU_QUOTA_MIN", "-1"),
        ("CGPU_WEIGHT", "0"),
        ("CGPU_POLICY", "10"),
        ("CGPU_POLICY", "fair"),
        ("CGPU_PRIORITY", "high"),
        ("CGPU_PRIORITY", "16"),
        ("CGPU_OOM", "explode"),
        ("CGPU_OOM_SCRIPT", "relative"),
        ("CGPU_UVM_DISABLE", "2"),
        ("CGPU_IDLE_PARK", ""),
        ("CGPU_IDLE_PARK", "s"),
        ("CGPU_IDLE_PARK", "5 m"),
        ("CGPU_IDLE_PARK", "-1"),
        ("CGPU_IDLE_PARK", "1.5h"),
        ("CGPU_IDLE_PARK", "never"),
        ("CGPU_IDLE_PARK", "604801"),
        ("CGPU_IDLE_PARK", "169h"),
    ],
)
def test_a_malformed_value_is_quoted(key: Any, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        request_from({key: value})
    assert str(caught.value).startswith(f"{key}={value!r}: ")


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(RequestError, match="CGPU_QUOTA='1,2': write one value, or 3"):
        request_from({"CGPU_MEM": "1G,2G,3G", "CGPU_QUOTA": "1,2"})


def test_a_guarantee_over_the_ceiling_is_refused() -> None:
    with pytest.raises(RequestError, match="CGPU_QUOTA_MIN='60' is more than CGPU_QUOTA='50'"):
        request_from({"CGPU_QUOTA": "50", "CGPU_QUOTA_MIN": "60"})
