# SPDX-License-Identifier: MIT
"""Who may ask for what: an image's environment, an operator's annotation, the node's policy."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from pycgpu.cli import main
from pycgpu.dialects import request_from, settings
from pycgpu.errors import CgpuError, RequestError
from pycgpu.kubernetes import families
from pycgpu.oci import log
from pycgpu.request import permit
from pycgpu.request.admission import admit
from pycgpu.request.model import GIB, Card, CardGrant, Grant, Refusal, Request
from pycgpu.request.permit import VARIABLES, Permit
from pycgpu.tree import cards

OPERATORS = ["CGPU_MEM=4GiB"]
SHARES = ["ALIYUN_COM_GPU_MEM_CONTAINER=6", "ALIYUN_COM_GPU_MEM_DEV=15"]
T4 = Card(index=0, uuid="GPU-1", total_bytes=15109 << 20)


def asked(
    env: list[str], annotations: dict[str, str] | None = None, allowed: Permit = permit.DEFAULT
) -> Request | None:
    return request_from(settings(env, annotations, allowed))


@pytest.mark.parametrize(
    ("operators", "images"),
    [
        (OPERATORS, "CGPU_DISABLE=1"),
        (OPERATORS, "CGPU_POLICY=5"),
        (OPERATORS, "CGPU_WEIGHT=20"),
        (OPERATORS, "CGPU_PRIORITY=9"),
        (OPERATORS, "CGPU_QUOTA_MIN=90"),
        (SHARES, "CGPU_DISABLE=true"),
        (SHARES, "ALIYUN_COM_GPU_SCHD_WEIGHT=16"),
        (SHARES, "ALIYUN_COM_GPU_HIGH_PRIO=1"),
        (["GPU_CONTAINER_MEM=1024"], "GPU_POLICY=0"),
        (["GPU_CONTAINER_MEM=1024"], "GPU_CONTAINER_PRIORITY=1"),
        ([], "EGPU=POLICY=0,ONLINE=1,TYPE=DOCKER:PGPU=0,MEM=1024,WEIGHT=10"),
        (["CUDA_DEVICE_MEMORY_LIMIT=1g"], "CUDA_DISABLE_CONTROL=true"),
        (["CUDA_DEVICE_SM_LIMIT=30"], "GPU_CORE_UTILIZATION_POLICY=disable"),
        ([*SHARES, "NVIDIA_VISIBLE_DEVICES=0,1"], "ALIYUN_COM_GPU_VISIBLE_DEVICES=1"),
        (["nvidia.com/gpumem=3000"], "nvidia.com/priority=0"),
        (["emr.serverless.mgpu.core=10"], "vke.volcengine.com/mgpu-compute-policy=native-burst"),
    ],
)
def test_what_an_image_could_set_to_have_more_is_refused_and_says_how_to_ask(
    operators: Any, images: Any
) -> None:
    name = images.partition("=")[0]
    with pytest.raises(RequestError) as refused:
        asked([*operators, images])
    assert str(refused.value).startswith(f"{name}=")
    assert f"cgpu.io/{name}" in str(refused.value) and permit.PATH in str(refused.value)


def test_what_binds_the_container_alone_is_the_environments_to_ask() -> None:
    env = ["CGPU_MEM=4GiB", "CGPU_QUOTA=30", "CGPU_OOM=kill", "CGPU_UVM_DISABLE=1", "CGPU_GPU=0"]
    request = asked([*env, "CGPU_OOM_SCRIPT=/opt/on_oom", "CGPU_IDLE_PARK=5m"])
    assert request is not None and request.idle_park_s == 300
    share = request.shares[0]
    assert (share.quota, share.oom_action, share.uvm_disable) == (30, "kill", True)


@pytest.mark.parametrize("value", ["1", "true", "", "0"])
def test_an_image_that_is_switched_off_starts_where_nobody_limits_it(value: Any) -> None:
    assert asked([f"CGPU_DISABLE={value}"]) is None


@pytest.mark.parametrize(
    "images",
    ["CUDA_DISABLE_CONTROL=true", "GPU_CORE_UTILIZATION_POLICY=disable",
     "ALIYUN_COM_GPU_VISIBLE_DEVICES=0"],
)  # fmt: skip
def test_another_vendors_switch_lifts_nothing_and_refuses_nobody(images: str) -> None:
    request = asked([*OPERATORS, images])
    assert request is not None and request.shares[0].memory is not None


def test_an_annotation_goes_before_the_environment_and_may_ask_for_everything() -> None:
    annotations = {"cgpu.io/CGPU_WEIGHT": "4", "cgpu.io/CGPU_MEM": "2GiB", "other/CGPU_MEM": "1GiB"}
    request = asked(["CGPU_MEM=24GiB"], annotations)
    assert request is not None and request.shares[0].weight == 4
    assert request.shares[0].memory is not None
    assert request.shares[0].memory.on(0) == 2 * GIB


def test_an_annotation_that_switches_off_lifts_the_limit() -> None:
    assert asked([], {"cgpu.io/CGPU_DISABLE": "1"}) is None


@pytest.mark.parametrize("word", [word for word in permit.DENIED if word != "disable"])
def test_a_node_allows_what_it_names(word: Any) -> None:
    allowed = permit.parse({"environment": {"allow": [word]}})
    assert [name for name in permit.DENIED if name != word] == list(allowed.denied)
    for variable in VARIABLES[word]:
        assert allowed.denies(variable, "1") is None


@pytest.mark.parametrize(
    ("operators", "images", "words"),
    [
        (OPERATORS, "CGPU_WEIGHT=4", ("set", "--weight")),
        (OPERATORS, "CGPU_PRIORITY=1", ("set", "--priority")),
        (OPERATORS, "CGPU_QUOTA_MIN=30", ("set", "--quota-min")),
        (OPERATORS, "CGPU_POLICY=6", ("policy", "GPU", "POLICY")),
    ],
)
def test_a_docker_without_annotations_is_told_what_it_can_do(
    operators: Any, images: Any, words: Any
) -> None:
    """Docker 20.10 has no --annotation; a container that runs can be given it by root."""
    with pytest.raises(RequestError) as refused:
        asked([*operators, images])
    said = log.shown(str(refused.value))
    assert "(--annotation of podman, and of docker from 24 on, a pod's)" in said
    command, *rest = words
    assert re.search(rf"start it without and run 'cgpu {command} .*{rest[-1]}", said), said
    command_line = typer.main.get_command(import_module(main.COMMANDS[command][0]).app)
    taken = {word for one in command_line.params for word in (*one.opts, str(one.metavar))}
    assert set(rest) - {"GPU"} <= taken, "the program takes what the remedy says"


def test_where_environments_ask_for_nothing_the_file_is_a_remedy_too() -> None:
    allowed = permit.parse({"environment": {"deny": ["*"]}})
    with pytest.raises(RequestError, match=r"a pod's\), or take its deny out$"):
        asked(["CGPU_MEM=4GiB"], None, allowed)


def test_a_node_may_take_annotations_alone() -> None:
    allowed = permit.parse({"environment": {"deny": ["*"]}})
    with pytest.raises(RequestError, match=r"cgpu\.io/CGPU_MEM"):
        asked(["CGPU_MEM=4GiB"], None, allowed)
    # An image's wish does not count beside the operator's word, whatever its dialect.
    request = asked([*SHARES, "NVIDIA_VISIBLE_DEVICES=0"], {"cgpu.io/CGPU_MEM": "1GiB"}, allowed)
    assert request is not None and request.dialect == "cgpu" and request.selectors == (0,)
    assert asked(["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"], None, allowed) is None


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (CardGrant(0, 5 << 30, quota=50), "card 0: 5120 MiB memory"),
        (CardGrant(0, None, quota=50), "card 0: all memory"),
        (CardGrant(0, 1 << 30, quota=60), "card 0: quota 60 %"),
        (CardGrant(0, 1 << 30), "card 0: quota 100 %"),
        (CardGrant(0, 1 << 30, quota=50, weight=5), "card 0: weight 5"),
        (CardGrant(0, 1 << 30, quota=50, priority=2), "card 0: priority 2"),
    ],
)
def test_more_than_a_maximum_is_refused_in_numbers(card: Any, reason: Any) -> None:
    maximum = {"memory": "4GiB", "quota": 50, "weight": 4, "priority": 1}
    reasons = permit.parse({"maximum": maximum}).exceeded(Grant((card,)))
    assert len(reasons) == 1 and reasons[0].startswith(reason) and permit.PATH in reasons[0]


def test_more_than_a_maximum_is_a_refusal() -> None:
    allowed = permit.parse({"maximum": {"quota": 50}})
    found = allowed.bounded(Grant((CardGrant(0, None, quota=60),)), lambda: True)
    assert isinstance(found, Refusal) and "quota 60 %" in found.reason


@pytest.mark.parametrize(
    ("text", "asked_s", "given_s"),
    [
        ({"default": {"idle_park": "5m"}}, None, 300),
        ({"default": {"idle_park": 90}}, 0, 0),
        ({"default": {"idle_park": "5m"}}, 3600, 3600),
        ({"maximum": {"idle_park": "1h"}}, None, 3600),
        ({"maximum": {"idle_park": "1h"}, "default": {"idle_park": "5m"}}, None, 300),
        ({"maximum": {"idle_park": "1h"}}, 60, 60),
        ({"default": {"idle_park": "off"}}, None, None),
        ({}, None, None),
    ],
)
def test_who_does_not_say_when_it_is_parked_has_the_nodes_word(
    text: Any, asked_s: int | None, given_s: int | None
) -> None:
    grant = Grant((CardGrant(0, GIB, idle_park_s=asked_s), CardGrant(1, GIB, idle_park_s=asked_s)))
    found = permit.parse(text).bounded(grant, lambda: True)
    assert isinstance(found, Grant) and not found.notes
    assert [card.idle_park_s for card in found.cards] == [given_s, given_s]


@pytest.mark.parametrize(("asked_s", "words"), [(3601, "idle park 3601s"), (0, "idle park off")])
def test_longer_idle_than_the_maximum_is_refused(asked_s: int, words: str) -> None:
    allowed = permit.parse({"maximum": {"idle_park": "1h"}})
    found = allowed.bounded(Grant((CardGrant(0, GIB, idle_park_s=asked_s),)), lambda: True)
    assert isinstance(found, Refusal)
    assert found.reason == f"card 0: {words}, a container may have 1h on this node ({permit.PATH})"


def test_a_default_that_the_door_cannot_hold_is_noted() -> None:
    allowed = permit.parse({"default": {"idle_park": "5m"}})
    found = allowed.bounded(Grant((CardGrant(0, GIB),)), lambda: False)
    assert isinstance(found, Grant) and found.cards[0].idle_park_s is None
    assert found.notes == (f"idle park 5m of {permit.PATH} does not hold: this door cannot park",)


def test_a_node_may_keep_images_from_saying_when_they_are_parked() -> None:
    allowed = permit.parse({"environment": {"deny": ["idle_park"]}})
    with pytest.raises(RequestError, match=r"CGPU_IDLE_PARK='off'.*cgpu\.io/idle-park "):
        asked([*OPERATORS, "CGPU_IDLE_PARK=off"], None, allowed)
    request = asked([*OPERATORS, "CGPU_IDLE_PARK=off"], {"cgpu.io/idle-park": "90s"}, allowed)
    assert request is not None and request.idle_park_s == 90


def test_a_grant_within_the_maxima_passes() -> None:
    maximum = {"memory": "4GiB", "quota": 50, "weight": 4, "priority": 1}
    card = CardGrant(0, 4 << 30, quota=50, weight=4, priority=1)
    assert permit.parse({"maximum": maximum}).exceeded(Grant((card,))) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[enviroment]\n", "'enviroment' is unknown"),
        ("[environment]\nalow = []\n", "'alow' is unknown"),
        ('[environment]\nallow = ["wieght"]\n', "wieght"),
        ('[environment]\nallow = ["weight"]\ndeny = ["weight"]\n', "both allowed and denied"),
        ('[maximum]\nmemory = "much"\n', "much"),
        ("[maximum]\nquota = -1\n", "quota = -1"),
        ("[maximum]\nweight = true\n", "weight = True"),
        ('[environment]\nallow = [["weight"]]\n', "[['weight']]"),
        ("[environment]\ndeny = [{}]\n", "[{}]"),
        ("environment = 3\n", "environment is not a table"),
        ("[default]\nquota = 3\n", "'quota' is unknown; known are idle_park"),
        ('[default]\nidle_park = "5 min"\n', "[default] idle_park: '5 min' is no time: write"),
        ("[default]\nidle_park = true\n", "[default] idle_park: 'True' is no time"),
        ('[maximum]\nidle_park = "8000h"\n', "'8000h' is more than 7 days (604800 s)"),
        ('[maximum]\nidle_park = "off"\n', "[maximum] idle_park is never: leave it out"),
        ('[maximum]\nidle_park = "5m"\n[default]\nidle_park = "6m"\n', "is more than that of"),
        ('[maximum]\nidle_park = "5m"\n[default]\nidle_park = "off"\n', "is more than that of"),
        ("[environment\n", "policy.toml"),
    ],
)
def test_a_policy_that_cannot_be_read_names_file_and_fault(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(RequestError) as error:
        permit.load(str(path))
    assert str(path) in str(error.value) and named in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_on_a_file_system_that_is_not_mounted_allows_nothing(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").symlink_to(tmp_path / "unmounted" / "policy.toml")
    with pytest.raises(RequestError, match="a link to a file that is not there"):
        permit.load(str(tmp_path / "policy.toml"))


@pytest.mark.parametrize("load", [permit.load, cards.load, families.load])
def test_a_setting_that_is_no_file_is_told_in_plain_words(tmp_path: Path, load: Any) -> None:
    with pytest.raises(CgpuError) as refused:
        load(str(tmp_path))
    assert str(refused.value) == f"{tmp_path}: Is a directory"


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert permit.load(str(tmp_path / "none")) == permit.DEFAULT


@pytest.mark.parametrize(("size", "refused"), [("6", True), ("13", True), ("14", False),
                                               ("15", False), ("100", False)])  # fmt: skip
def test_a_card_that_is_said_to_be_smaller_than_it_is_gives_nobody_more_of_it(
    size: Any, refused: Any
) -> None:
    """The operator gave 6 of 15; an image that says 6 would have 6 of 6."""
    request = asked(["ALIYUN_COM_GPU_MEM_CONTAINER=6", f"ALIYUN_COM_GPU_MEM_DEV={size}"])
    assert request is not None
    result = admit(request, [T4])
    assert isinstance(result, Refusal) == refused
    if isinstance(result, Refusal):
        assert result.reason == f"card 0: 6 of {size} GiB asked, and the card has 14"


def test_the_example_in_the_file_s_own_words_is_valid() -> None:
    """What the module's text shows can be pasted."""
    import tomllib

    assert permit.__doc__ is not None
    shown = permit.__doc__.partition("::\n")[2]
    read = permit.parse(tomllib.loads(shown))
    assert read.memory_bytes == 24 * GIB and "weight" not in read.denied
    assert (read.idle_park_s, read.idle_park_most_s) == (600, 3600)
    assert json.dumps(read.denied)
