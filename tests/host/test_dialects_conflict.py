# SPDX-License-Identifier: MIT
"""Several dialects in one container, and whatever else an environment may hold."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycgpu.dialects import DIALECTS, request_from, settings
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request.admission import admit
from pycgpu.request.model import GIB, Card, Grant, Refusal, Request

HOST = tuple(Card(n, f"GPU-{n}{n}", 16 * GIB) for n in range(4))
ASKING = {
    "Alibaba cGPU": {"ALIYUN_COM_GPU_MEM_CONTAINER": "3"},
    "Alibaba eGPU": {"AMP_VGPU_ENABLE": "1"},
    "CTyun eGPU": {"EGPU": "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1024,WEIGHT=10"},
    "Volcengine mGPU": {"emr.serverless.mgpu.core": "30", "emr.serverless.mgpu.memory": "4096"},
    "Huawei xGPU": {"GPU_CONTAINER_MEM": "1024"},
    "Kubernetes (HAMi)": {"CUDA_DEVICE_MEMORY_LIMIT": "1g"},
    "cGPU": {"CGPU_MEM": "1g"},
}


def test_every_dialect_is_tried_here() -> None:
    assert {name for _, name, _ in DIALECTS} == set(ASKING)


#: eGPU's master switch gives it cGPU's memory variables, so those two do not conflict.
PAIRS = [
    pair for pair in itertools.combinations(ASKING, 2) if pair != ("Alibaba cGPU", "Alibaba eGPU")
]


@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
def test_two_dialects_at_once_are_refused_and_both_named(pair: Any) -> None:
    with pytest.raises(ConflictError) as caught:
        request_from(ASKING[pair[0]] | ASKING[pair[1]])
    assert pair[0] in str(caught.value)
    assert pair[1] in str(caught.value)


@pytest.mark.parametrize(
    "name", ["CTyun eGPU", "Volcengine mGPU", "Huawei xGPU", "Kubernetes (HAMi)"]
)
def test_cgpu_disable_does_not_switch_off_what_another_vendor_asks(name: Any) -> None:
    with pytest.raises(ConflictError, match="CGPU_DISABLE='1'"):
        request_from(ASKING[name] | {"CGPU_DISABLE": "1"})


@pytest.mark.parametrize("name", ["Alibaba cGPU", "Alibaba eGPU", "cGPU"])
def test_cgpu_disable_switches_its_own_family_off(name: Any) -> None:
    assert request_from(ASKING[name] | {"CGPU_DISABLE": "1"}) is None


def test_a_malformed_cgpu_disable_is_quoted() -> None:
    with pytest.raises(RequestError, match="CGPU_DISABLE='maybe'"):
        request_from({"CGPU_DISABLE": "maybe"})


@pytest.mark.parametrize("env", [{}, {"PATH": "/bin"}, {"NVIDIA_VISIBLE_DEVICES": "all"}])
def test_an_environment_that_asks_for_nothing_is_no_request(env: Any) -> None:
    assert request_from(env) is None


def test_annotations_are_settings_under_known_names_only() -> None:
    found = settings(
        ["A=1=2", "junk"], {"vke.volcengine.com/mgpu-core": "30", "io.kubernetes.cri": "x"}
    )
    assert found == {"A": "1=2", "vke.volcengine.com/mgpu-core": "30"}


def test_a_setting_given_twice_differently_is_refused() -> None:
    with pytest.raises(RequestError, match="CGPU_MEM is given as '1G' and as '9G'"):
        settings(["CGPU_MEM=1G", "CGPU_MEM=9G"])


@pytest.mark.parametrize("listed", [("all", "0"), ("0", "all"), ("all", "0", "0")])
def test_the_cards_of_gpus_go_before_the_all_of_an_image(listed: tuple[str, ...]) -> None:
    """`docker run --gpus '"device=0"'` and `--gpus 1` add theirs behind what the image has."""
    env = [f"NVIDIA_VISIBLE_DEVICES={cards}" for cards in listed]
    assert settings([*env, "CGPU_MEM=1G"])["NVIDIA_VISIBLE_DEVICES"] == "0"
    with pytest.raises(RequestError, match="given as '0' and as '1'"):
        settings([*env, "NVIDIA_VISIBLE_DEVICES=1"])


def test_other_variables_may_be_given_twice() -> None:
    assert settings(["PATH=/bin", "PATH=/sbin"]) == {"PATH": "/bin"}


@pytest.mark.parametrize(("env", "annotations"), [([3], None), ([None], None), ([], [1])])
def test_what_is_no_text_is_refused(env: Any, annotations: Any) -> None:
    with pytest.raises(RequestError):
        settings(env, annotations)


KEYS = sorted(
    {key for env in ASKING.values() for key in env}
    | {
        "ALIYUN_COM_GPU_MEM_DEV",
        "ALIYUN_COM_GPU_MEM_RESERVED",
        "ALIYUN_COM_GPU_SCHD_WEIGHT",
        "ALIYUN_COM_GPU_VISIBLE_DEVICES",
        "ALIYUN_COM_GPU_OOM_SCRIPT",
        "GPU_MEM_PER_DEVICE",
        "GPU_UTIL_PER_DEVICE",
        "NVIDIA_VISIBLE_DEVICES",
        "GPU_IDX",
        "GPU_POLICY",
        "GPU_CONTAINER_QUOTA_PERCENT",
        "CUDA_DEVICE_MEMORY_LIMIT_0",
        "CUDA_DEVICE_SM_LIMIT_1",
        "CUDA_DISABLE_CONTROL",
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "vke.volcengine.com/mgpu-core",
        "vke.volcengine.com/mgpu-memory",
        "vke.volcengine.com/container-multiple-gpu",
        "CGPU_QUOTA",
        "CGPU_QUOTA_MIN",
        "CGPU_WEIGHT",
        "CGPU_GPU",
        "CGPU_DISABLE",
        "CGPU_X",
    }
)
TEXTS = st.one_of(
    st.sampled_from(["0", "1", "3,1", "1,0,0", "all", "none", "", "GPU-00", "50", "4GiB", "25%"]),
    st.from_regex(r"[0-9]{1,20}(,[0-9]{1,3}){0,5}", fullmatch=True),
    st.text("0123456789,=:.GMKiBPUWEIHT-_ %\x00\n٣", max_size=40),
    st.text(max_size=20),
    st.builds(
        "POLICY={},ONLINE={},TYPE={}:PGPU={},MEM={},WEIGHT={}".format,
        *[st.sampled_from(["0", "1", "", "x", "99999999999999999999", "-1", "DOCKER"])] * 6,
    ),
)
ENVIRONMENTS = st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=6)


@given(ENVIRONMENTS)
@example({"EGPU": "\ud800"})
def test_any_environment_gives_a_request_or_one_line_that_says_why_not(env: Any) -> None:
    try:
        request = request_from(env)
    except RequestError as error:
        assert str(error)
        assert "\n" not in str(error)
        return
    assert request is None or isinstance(request, Request)
    if request is not None:
        assert isinstance(admit(request, HOST), (Grant, Refusal))


@given(ENVIRONMENTS)
def test_no_card_that_was_shown_is_left_without_a_grant_of_its_own(env: Any) -> None:
    try:
        request = request_from(env)
    except RequestError:
        return
    if request is None:
        return
    result = admit(request, HOST)
    if isinstance(result, Refusal):
        return
    indexes = [card.index for card in result.cards]
    assert len(set(indexes)) == len(indexes)
    visible = env.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible != "all":
        assert len(visible.split(",")) <= len(indexes)
    for card in result.cards:
        assert card.memory_bytes is None or 0 < card.memory_bytes <= 16 * GIB
        assert card.quota is None or 0 < card.quota <= 100


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=5))
def test_foreign_variables_ask_for_nothing(env: Any) -> None:
    if not any(key.startswith(("CGPU_", "EGPU")) for key in env):
        assert request_from(env) is None
