# SPDX-License-Identifier: MIT
"""Several dialects in one container, and whatever else an environment may hold."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycgpu.dialects import DIALECTS, FAMILIES, HARMLESS, request_from, settings
from pycgpu.errors import ConflictError, RequestError
from pycgpu.request import permit
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
    "KAI": {"gpu-fraction": "0.5"},
    "Volcano": {"volcano.sh/vgpu-memory": "3000"},
    "Koordinator": {"koordinator.sh/gpu": "50"},
    "cGPU": {"CGPU_MEM": "1g"},
}


def test_every_dialect_is_tried_here() -> None:
    assert {name for _, name, *_ in DIALECTS} == set(ASKING)


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
    "name", [name for name in ASKING if name not in ("Alibaba cGPU", "Alibaba eGPU", "cGPU")]
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


#: All that are known, and of those that stand for more some that are and some that are not.
KEYS = sorted(
    {key for _, _, keys, others in DIALECTS for key in (*keys, *others) if key[-1] != "*"}
    | {"NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT_1"}
    | {f"CGPU_{name}" for name in ("MEM", "QUOTA", "QUOTA_MIN", "WEIGHT", "GPU", "DISABLE", "X")}
    | {"CGPU_IDLE_PARK"}
    | {key for env in ASKING.values() for key in env}
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


VKE = "vke.volcengine.com/"


@pytest.mark.parametrize(
    ("env", "idle"),
    [
        ({"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "GPU_UTIL_PER_DEVICE": "30"}, "GPU_UTIL_PER_DEVICE"),
        (ASKING["Alibaba eGPU"] | {"ALIYUN_COM_GPU_HIGH_PRIO": "1"}, "ALIYUN_COM_GPU_HIGH_PRIO"),
        (
            {"AMP_VGPU_ENABLE": "1", "GPU_MEM_PER_DEVICE": "9" * 10, "ALIYUN_COM_GPU_MEM_DEV": "3"},
            "ALIYUN_COM_GPU_MEM_DEV",
        ),
        (
            ASKING["Volcengine mGPU"] | {VKE + "container-multiple-gpu": "2"},
            VKE + "container-multiple-gpu",
        ),
        (
            {VKE + "mgpu-core": "200", VKE + "mgpu-compute-policy": "bogus"},
            VKE + "mgpu-compute-policy",
        ),
        (
            {"GPU_CONTAINER_QUOTA_PERCENT": "30", "GPU_POLICY": "0"},
            "GPU_CONTAINER_QUOTA_PERCENT",
        ),
        (
            ASKING["Kubernetes (HAMi)"] | {"nvidia.com/priority": "1"},
            "nvidia.com/priority",
        ),
        (ASKING["cGPU"] | {"GPU_IDX": "1"}, "GPU_IDX"),
        (ASKING["CTyun eGPU"] | {"ALIYUN_COM_GPU_SCHD_WEIGHT": "3"}, "ALIYUN_COM_GPU_SCHD_WEIGHT"),
    ],
)
def test_what_has_no_effect_is_refused_and_named(env: Any, idle: str) -> None:
    """A limit that was given beside another and is lost would be one that somebody believes in."""
    with pytest.raises(RequestError) as caught:
        request_from(env)
    assert idle in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "key",
    ["CGPU_DISABLED", "CGPU_DISABLE_", "ALIYUN_COM_GPU_MEM_CONTAINERS", "AMP_VGPU_ENABLED"]
    + ["GPU_CONTAINER_MEMORY", "emr.serverless.mgpu.cores", VKE + "mgpu-quota"],
)
def test_a_setting_that_is_mistyped_is_refused_though_nothing_else_asks(key: str) -> None:
    with pytest.raises(RequestError, match=f"^{key}='1': unknown; known are "):
        request_from({key: "1"})


@pytest.mark.parametrize("name", ["mem", "cgpu_mem", "QUOTA", "PATH", "nvidia.com/gpu-mem"])
def test_an_annotation_of_ours_that_is_no_setting_is_refused(name: str) -> None:
    for env in ([], ["CGPU_MEM=4GiB"]):
        with pytest.raises(RequestError, match=f"^annotation cgpu.io/{name} is no setting; "):
            settings(env, {f"cgpu.io/{name}": "1"})


def test_two_annotations_for_one_setting_are_refused() -> None:
    annotations = {"cgpu.io/nvidia.com/gpumem": "1000", "nvidia.com/gpumem": "9000"}
    for given_in in (annotations, dict(reversed(annotations.items()))):
        with pytest.raises(RequestError, match=r"annotations give nvidia\.com/gpumem as"):
            settings([], given_in)
    assert settings([], dict.fromkeys(annotations, "1000")) == {"nvidia.com/gpumem": "1000"}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_what_vendors_put_beside_a_request_refuses_nobody(asking: Any) -> None:
    beside = dict.fromkeys(HARMLESS, "1") | {"GPU_COUNT": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    beside |= {"nvidia.com/use-gputype": "A100", VKE + "pod-eni": "1"}
    assert request_from(asking | beside) == request_from(asking) is not None


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_when_it_is_parked_a_container_says_beside_any_dialect(asking: Any) -> None:
    request = request_from(asking | {"CGPU_IDLE_PARK": "5m"})
    assert request is not None and request.idle_park_s == 300
    assert request._replace(idle_park_s=None) == request_from(asking)


def test_who_says_only_when_it_is_parked_has_whole_cards() -> None:
    request = request_from(settings([], {"cgpu.io/idle-park": "5m"}))
    assert request is not None and request.shares[0].memory is None
    assert (request.selectors, request.idle_park_s, request.only_given) == (None, 300, False)
    of_pod = request_from({"CGPU_IDLE_PARK": "5m", "io.kubernetes.container.name": "a"})
    assert of_pod is not None and of_pod.only_given
    assert request_from({"CGPU_IDLE_PARK": "5m", "CGPU_DISABLE": "1"}) is None


@given(st.sampled_from(list(ASKING.values())), ENVIRONMENTS)
def test_each_setting_that_is_given_is_effective_or_refused(asking: Any, env: Any) -> None:
    """What is effective is read: no request is made where it holds what nobody can read."""
    env |= asking
    try:
        request = request_from(env)
    except RequestError:
        return
    for key in env if request is not None else ():
        if key not in permit.VARIABLES["disable"]:
            with pytest.raises(RequestError):
                request_from(env | {key: "\x00?"})


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
@example({"AMP_VGPU_": ""})
def test_foreign_variables_ask_for_nothing(env: Any) -> None:
    if not any(key in KEYS or key.startswith((*FAMILIES, "CGPU_", "EGPU")) for key in env):
        assert request_from(env) is None
