# SPDX-License-Identifier: MIT
"""What pods ask under each vendor's names, and the bytes by which kubelets are spoken to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu import dialects
from pycgpu.errors import CgpuError, RequestError
from pycgpu.kubernetes import families, messages, wire
from pycgpu.kubernetes.families import FAMILIES, Amounts, Family
from pycgpu.request.model import GIB, MIB, Card


@pytest.mark.parametrize(
    ("family", "limits", "amounts"),
    [
        # The two Jobs of the document on GPU sharing under Kubernetes; the API writes 3000 as 3k.
        (
            "hami",
            {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30", "nvidia.com/gpumem": "3k"},
            Amounts(1, 3000 * MIB, None, 30),
        ),
        (
            "hami",
            {
                "nvidia.com/gpu": 1,
                "nvidia.com/gpumem-percentage": 50,
                "nvidia.com/gpumem": 3000,
            },
            Amounts(1, 3000 * MIB),
        ),
        ("hami", {"nvidia.com/gpu": "2"}, Amounts(2)),
        ("hami", {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "0"}, Amounts(2)),
        ("hami", {"nvidia.com/gpumem": "3000"}, None),
        ("hami", {"cpu": "500m", "memory": "1Gi"}, None),
        (
            "alibaba",
            {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-core.percentage": "25"},
            Amounts(1, 3 * GIB, None, 25),
        ),
        (
            "volcengine",
            {"vke.volcengine.com/mgpu-core": "30", "vke.volcengine.com/mgpu-memory": "4096"},
            Amounts(1, 4 * GIB, None, 30),
        ),
        ("tencent", {"tke.cloud.tencent.com/qgpu-core": "200"}, Amounts(2, None, None, 100)),
        (
            "tencent",
            {"tke.cloud.tencent.com/qgpu-core": "20", "tke.cloud.tencent.com/qgpu-memory": "4"},
            Amounts(1, 4 * GIB, None, 20),
        ),
    ],
)
def test_limits_of_a_pod_are_amounts(
    family: str, limits: dict[str, object], amounts: Amounts | None
) -> None:
    assert families.amounts(FAMILIES[family], limits) == amounts


@pytest.mark.parametrize(
    ("family", "limits", "why"),
    [
        ("hami", {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "130"}, "gpucores: 130: 100 are"),
        (
            "hami",
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "101"},
            "gpumem-percentage: 101",
        ),
        ("hami", {"nvidia.com/gpu": "500m"}, "nvidia.com/gpu: '500m' is no whole number"),
        ("tencent", {"tke.cloud.tencent.com/qgpu-core": "130"}, "above 100: whole hundreds"),
    ],
)
def test_an_amount_that_is_no_part_of_a_card_is_quoted(
    family: str, limits: dict[str, object], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        families.amounts(FAMILIES[family], limits)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("3k", 3000), ("1Ki", 1024), ("2M", 2000000), ("1Gi", GIB), ("3e3", 3000)],
)
def test_quantities_are_read_as_the_api_writes_them(text: str, number: int) -> None:
    assert families.quantity("x", text) == number


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_asked_reaches_the_hook_as_asked(name: str) -> None:
    """Amounts become settings, and the hook's dialect makes the same request of them."""
    asked = Amounts(1, 3000 * MIB, None, 30)
    request = dialects.request_from({**asked.settings([16384]), "CGPU_GPU": "0"})
    assert request is not None
    share = request.shares[0]
    assert share.memory is not None
    assert (share.memory.on(16 * GIB), share.quota) == (3000 * MIB, 30)
    assert Amounts().settings([14910]) == {"CGPU_MEM": "14910MiB"}
    assert Amounts(2).settings([14910, 16384]) == {"CGPU_MEM": "14910MiB,16384MiB"}
    assert Amounts(1, None, 95).settings([14910]) == {"CGPU_MEM": "14164MiB"}
    assert FAMILIES[name].anchor_name in FAMILIES[name].resources


def test_what_is_published_is_what_each_card_can_give() -> None:
    """Parts of a unit that two cards have left are no unit that one of them can give."""
    cards = [Card(n, f"GPU-{n}", 15360 * MIB, 450 * MIB) for n in range(2)]
    assert families.capacity(FAMILIES["hami"], cards) == {
        "nvidia.com/gpu": 40,
        "nvidia.com/gpumem": 29820,
        "nvidia.com/gpumem-percentage": 200,
        "nvidia.com/gpucores": 200,
    }
    assert families.capacity(FAMILIES["alibaba"], cards)["aliyun.com/gpu-mem"] == 28


@pytest.mark.parametrize("ratio", [100, 150, 333, 1000])
def test_an_overcommitted_card_publishes_what_it_may_promise(ratio: int) -> None:
    """As many parts as are published are promised by the door, in MiB and in percent."""
    card = Card(0, "GPU-0", 15360 * MIB, 450 * MIB, overcommit_ratio=ratio)
    found = families.capacity(FAMILIES["hami"], [card])
    assert found["nvidia.com/gpumem"] * MIB <= card.promisable_bytes
    assert found["nvidia.com/gpumem"] == 15360 * ratio // 100 - 450
    assert found["nvidia.com/gpumem-percentage"] == ratio
    assert (found["nvidia.com/gpu"], found["nvidia.com/gpucores"]) == (20, 100)
    one_percent = Amounts(1, None, 1).memory_mib(families.room(card).one_mib)
    assert one_percent == 149
    assert one_percent * ratio <= found["nvidia.com/gpumem"]
    assert Amounts().memory_mib(families.room(card).one_mib) == 14910


def test_a_node_without_a_file_offers_hami_and_alibaba(tmp_path: Path) -> None:
    found = families.load(str(tmp_path / "none"))
    assert [one.name for one in found.families] == ["hami", "alibaba"]
    assert found.placement == "binpack"


def test_names_of_ones_own_stand_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kubernetes.toml"
    path.write_text(
        'families = ["tencent", "mine"]\nplacement = "spread"\n[family.mine]\n'
        'memory = "x.io/mem"\nmemory_unit = "256MiB"\ncores = "x.io/core"\nanchor = "cores"\n'
    )
    found = families.load(str(path))
    assert found.families[1] == Family(
        "mine", memory="x.io/mem", memory_unit_bytes=256 * MIB, cores="x.io/core", anchor="cores"
    )
    assert found.placement == "spread"
    cards = [Card(n, f"GPU-{n}", 15 * GIB) for n in range(2)]
    assert families.capacity(found.families[1], cards) == {
        "x.io/mem": 120,
        "x.io/core": 200,
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("families = []", "no list of names"),
        ('families = ["hamy"]', "'hamy' is unknown; known are hami"),
        ('placement = "tight"', "write binpack or spread"),
        ("famillies = 1", "'famillies' is unknown"),
        ("[family.a]\ncount = 1", "count = 1"),
        ('[family.a]\ncores = "x/c"', "anchor = 'count'"),
        ('[family.a]\ncount = "x/c"\nmemory_unit = "1"', "memory_unit: '1' is 1 bytes"),
        ("families", "kubernetes.toml: "),
    ],
)
def test_a_mistake_in_the_file_is_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "kubernetes.toml"
    path.write_text(text)
    with pytest.raises(CgpuError, match=why):
        families.load(str(path))


# ---- the wire


def test_messages_have_the_bytes_of_the_public_definitions() -> None:
    """As protoc encodes them: field 1 of Register is the version, 4 the options, and so on."""
    request = messages.RegisterRequest("v1beta1", "a.sock", "x/y", [messages.Options(True)])
    assert wire.encode(request) == b"\n\x07v1beta1\x12\x06a.sock\x1a\x03x/y\x22\x02\x08\x01"
    answer = messages.AllocateResponse(
        [messages.ContainerResponse({"A": "b"}, [messages.CdiDevice("k=n")])]
    )
    assert wire.encode(answer) == b"\n\x0f\n\x06\n\x01A\x12\x01b*\x05\n\x03k=n"


TEXT = st.text(max_size=300)
NESTED = st.builds(
    messages.PodResourcesList,
    st.lists(
        st.builds(
            messages.PodResources,
            TEXT,
            TEXT,
            st.lists(
                st.builds(
                    messages.ContainerResources,
                    TEXT,
                    st.lists(
                        st.builds(messages.ContainerDevices, TEXT, st.lists(TEXT)), max_size=3
                    ),
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
)


@given(NESTED | st.builds(messages.ContainerResponse, st.dictionaries(TEXT, TEXT)))
def test_what_is_encoded_is_decoded(message: Any) -> None:
    assert wire.decode(type(message), wire.encode(message)) == message


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_an_error(raw: bytes) -> None:
    try:
        found = wire.decode(messages.PodResourcesList, raw)
    except wire.WireError:
        return
    assert isinstance(found, messages.PodResourcesList)


def test_fields_that_nobody_knows_are_skipped() -> None:
    unknown = b"\x50\x96\x01" + b"\x59" + b"8" * 8 + b"\x5d" + b"4" * 4 + b"\x62\x01x"
    raw = wire.encode(messages.Device("a", "Healthy"))
    assert wire.decode(messages.Device, unknown + raw + unknown) == messages.Device("a", "Healthy")
