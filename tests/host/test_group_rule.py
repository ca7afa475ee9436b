# SPDX-License-Identifier: MIT
"""Who may join which group, by the policy file's words; and how a container asks for one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pycgpu.dialects import CONTAINER, request_from, settings
from pycgpu.errors import CgpuError, RequestError
from pycgpu.oci import membership
from pycgpu.request import group_rule, permit
from pycgpu.request.group_rule import Asker
from pycgpu.request.model import CardShare, MemoryBytes
from pycgpu.request.permit import Permit
from pycgpu.tree import group

BLUE = {"io.kubernetes.cri.sandbox-namespace": "blue"}


def allowed(text: str) -> Permit:
    return permit.parse(tomllib.loads(text), permit.PATH)


def lets(rules: Permit, asker: Asker) -> bool:
    try:
        rules.check_join(asker)
    except RequestError as refused:
        assert "\n" not in str(refused) and permit.PATH in str(refused)
        return False
    return True


def test_without_a_table_that_names_it_a_group_is_open() -> None:
    assert lets(permit.DEFAULT, Asker("chat", 1000))
    named = allowed('[[group]]\nname = "red/*"\nnamespaces = ["red"]')
    assert lets(named, Asker("chat", 1000))
    assert lets(named, Asker("blue/chat", 0, "blue"))


def test_a_table_lets_in_whom_it_lists_alone() -> None:
    users = allowed('[[group]]\nname = "chat"\nusers = ["root", 1000, "nobody-of-this-host"]')
    assert [lets(users, Asker("chat", uid)) for uid in (0, 1000, 1001)] == [True, True, False]
    pods = allowed('[[group]]\nname = "*"\nnamespaces = ["blue"]\nusers = [7]')
    assert lets(pods, Asker("blue/chat", 7, "blue"))
    assert not lets(pods, Asker("blue/chat", 8, "blue"))
    assert not lets(pods, Asker("red/chat", 7, "red"))
    assert not lets(pods, Asker("chat", 7))
    tier = allowed('[[group]]\nname = "*"\nannotations = {tier = "serving"}')
    assert lets(tier, Asker("chat", 0, None, {"tier": "serving", "other": 1}))
    assert not lets(tier, Asker("chat", 0, None, {"tier": "batch"}))
    assert not lets(tier, Asker("chat", 0))


def test_of_several_tables_one_suffices_and_an_empty_one_takes_nobody() -> None:
    both = allowed('[[group]]\nname = "a"\nusers = [1]\n[[group]]\nname = "*"\nusers = [2]')
    assert [lets(both, Asker("a", uid)) for uid in (1, 2, 3)] == [True, True, False]
    assert not lets(allowed('[[group]]\nname = "*"'), Asker("a", 0))


def test_the_example_of_the_module_is_valid() -> None:
    assert group_rule.__doc__ is not None
    read = permit.parse(tomllib.loads(group_rule.__doc__.partition("::\n")[2]))
    assert read.groups[0].annotations == {"tier": "serving"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('group = "chat"', "write [[group]]"),
        ("[[group]]\nusers = [1]", "name = None"),
        ('[[group]]\nname = "a"\nuser = [1]', "'user' is unknown"),
        ('[[group]]\nname = "a"\nusers = [true]', "users = [True]"),
        ('[[group]]\nname = "a"\nnamespaces = [1]', "namespaces = [1]"),
        ('[[group]]\nname = "a"\nannotations = {a = 1}', "annotations = {'a': 1}"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(text: str, named: str) -> None:
    with pytest.raises(RequestError) as refused:
        allowed(text)
    assert named in str(refused.value) and "\n" not in str(refused.value)


# ---- how a container asks


@pytest.mark.parametrize("name", ["group", "CGPU_GROUP"])
@pytest.mark.parametrize(
    "words", [{"CGPU_MEM": "1GiB"}, {"nvidia.com/gpumem": "1024"}, {"gpu-memory": "1024"}]
)
def test_a_group_stands_beside_every_dialect(name: str, words: dict[str, str]) -> None:
    asked = request_from(settings([f"{k}={v}" for k, v in words.items()], {f"cgpu.io/{name}": "a"}))
    assert asked is not None
    assert asked.group == "a"
    assert isinstance(asked.shares[0].memory, MemoryBytes)


def test_a_group_alone_is_for_a_card_that_is_given() -> None:
    found = settings(["NVIDIA_VISIBLE_DEVICES=1"], {"cgpu.io/group": "a"})
    asked = request_from(found)
    assert asked is not None
    assert (asked.group, asked.selectors, asked.shares) == ("a", (1,), (CardShare(),))
    # A pod's annotation is all its containers', and those without a card ask for none.
    assert not asked.only_given
    of_pod = request_from({**found, CONTAINER: "main"})
    assert of_pod is not None and of_pod.only_given
    assert request_from({**found, "CGPU_DISABLE": "1"}) is None


def test_an_image_joins_no_group() -> None:
    with pytest.raises(RequestError, match=r"CGPU_GROUP='a'.*cgpu\.io/group.*allow 'group'"):
        settings(["CGPU_MEM=1GiB", "CGPU_GROUP=a"])
    lets_it = allowed('[environment]\nallow = ["group"]')
    asked = request_from(settings(["CGPU_MEM=1GiB", "CGPU_GROUP=a"], {}, lets_it))
    assert asked is not None and asked.group == "a"
    # The operator's word goes before it.
    asked = request_from(settings(["CGPU_MEM=1GiB", "CGPU_GROUP=a"], {"cgpu.io/group": "b"}))
    assert asked is not None and asked.group == "b"


# ---- which group it is


def of(config: dict[str, Any], tmp_path: Path, name: str = "chat") -> group.Group:
    (tmp_path / "7").mkdir(exist_ok=True)
    (tmp_path / "7/uid_map").write_text("         0     100000       1000\n")
    (tmp_path / "config.json").write_text(json.dumps(config))
    return membership.of(str(tmp_path), config, name, 7, permit.DEFAULT, str(tmp_path))


def test_a_container_without_the_way_to_the_server_is_told_the_runtime(tmp_path: Path) -> None:
    """As one that a hook alone registers: it would run without its group."""
    with pytest.raises(CgpuError, match=r"group chat: .* start it with the runtime cgpu"):
        of({"process": {"env": []}}, tmp_path)


def test_a_user_that_its_namespace_has_not_is_nobody_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(CgpuError, match="its user 1000 is none of its user namespace's"):
        of({"process": {"user": {"uid": 1000}}}, tmp_path)


def test_a_namespaces_group_is_named_apart_from_all_others() -> None:
    assert membership.leader({}, "chat") == "chat"
    assert membership.leader({"annotations": BLUE}, "chat") == "blue.chat"
    assert membership.leader({"annotations": BLUE}, "blue/chat") == "blue.chat"
    for others, name in (
        (BLUE, "red/chat"),
        ({}, "blue/chat"),
        ({**BLUE, "io.kubernetes.pod.namespace": "red"}, "chat"),
    ):
        with pytest.raises(RequestError):
            membership.leader({"annotations": others}, name)
