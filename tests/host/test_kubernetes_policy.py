# SPDX-License-Identifier: MIT
"""Who may ask for a card otherwise than by resources, as the API server would judge it."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from pycgpu.dialects import DIALECTS, request_from, settings
from pycgpu.kubernetes import extender
from pycgpu.request import permit
from tests.host import cel

REPOSITORY = Path(__file__).resolve().parents[2]
KUBERNETES = REPOSITORY / "scripts/kubernetes"
POLICY = cel.Policy(KUBERNETES / "chart/templates/policy.yaml")
CARDS, AGAIN = extender.ANNOTATION, extender.AGAIN
OPERATOR = {("cgpu.io", "limits", "set")}
EXTENDER = {("cgpu.io", "placements", "set")}
NOBODY: set[tuple[str, str, str]] = set()
#: Of the settings that stand for more, one each.
SETTINGS = sorted(
    key.replace("CGPU_*", "CGPU_MEM").replace("*", "_0")
    for _, _, keys, others in DIALECTS
    for key in (*keys, *others)
)


def pod(annotations: Any = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "one", "finalizers": ["batch.kubernetes.io/job-tracking"]}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}


def asking(variable: Any, name: str = "asks") -> dict[str, Any]:
    """A container with a variable: by its name and 1, or as it is written."""
    one = {"name": variable, "value": "1"} if isinstance(variable, str) else variable
    return {"name": name, "env": [{"name": "PATH", "value": "/bin"}, one]}


def says(now: Any, before: Any = None, may: set[tuple[str, str, str]] = NOBODY) -> str | None:
    return POLICY.refuses(now, before, may=lambda *asked: asked in may)


@pytest.mark.parametrize("name", [*SETTINGS, "NVIDIA_VISIBLE_DEVICES", "CGPU_DISABLE"])
@pytest.mark.parametrize("where", ["containers", "initContainers", "ephemeralContainers"])
def test_no_pod_asks_by_a_variable_of_any_dialect(name: str, where: str) -> None:
    made = pod(**{where: [asking(name)]})
    assert str(says(made)).startswith(f"{name}: ask for a part of a card by resources.limits")
    assert says(made, may=OPERATOR) is None


def test_a_variables_name_counts_wherever_its_value_is_from() -> None:
    source = {"configMapKeyRef": {"name": "x", "key": "y"}}
    made = pod(containers=[asking({"name": "CGPU_MEM", "valueFrom": source})])
    assert str(says(made)).startswith("CGPU_MEM: ")


@pytest.mark.parametrize("envs", [["CGPU_MEM=4GiB"], ["CGPU_MEM=4GiB", "CGPU_QUOTA=30"]])
def test_what_an_image_or_env_from_sets_is_the_nodes_to_refuse(envs: list[str]) -> None:
    """The API server does not see it: who gives it, envFrom, is let through, as images are."""
    made = pod(containers=[{"name": "x", "envFrom": [{"prefix": "CGPU_", "configMapRef": {}}]}])
    assert says(made) is None
    denied = permit.parse({"environment": {"deny": ["*"]}})
    with pytest.raises(Exception, match=r"stands in the environment, which asks for nothing"):
        settings(envs, {}, denied)
    # Beside what an operator or the device plugin gave it counts for nothing.
    given = {"cgpu.io/CGPU_MEM": "1GiB"}
    assert request_from(settings(envs, given, denied)) == request_from({"CGPU_MEM": "1GiB"})


def test_who_asks_by_resources_or_not_at_all_is_let_through() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
    usual = [{"name": "x", "resources": {"limits": limits}}, asking("CUDA_CACHE_PATH", "y")]
    assert says(pod({"prometheus.io/scrape": "true"}, containers=usual)) is None
    assert says(pod()) is None


def test_a_pod_may_join_a_group_of_its_namespace() -> None:
    assert says(pod({"cgpu.io/group": "chat"})) is None
    assert says(pod({"cgpu.io/CGPU_GROUP": "chat"})) is not None


def test_a_pod_may_say_after_which_time_it_is_parked() -> None:
    assert says(pod({"cgpu.io/idle-park": "5m"})) is None
    assert says(pod({"cgpu.io/CGPU_IDLE_PARK": "5m"})) is not None


@pytest.mark.parametrize(
    "name", [f"cgpu.io/{SETTINGS[0]}", *(one for one in SETTINGS if "/" in one), "cgpu.io/x"]
)
def test_annotations_that_ask_are_for_operators(name: str) -> None:
    made = pod({"a": "b", name: "4"})
    said = f"annotation {name} is for those who may set limits.cgpu.io"
    assert says(made) == says(made, may=EXTENDER) == said
    assert says(made, may=OPERATOR) is None


@pytest.mark.parametrize("key", [CARDS, AGAIN])
def test_a_pods_cards_are_written_by_the_extender_and_by_no_user(key: str) -> None:
    before, now = pod({"a": "b"}), pod({"a": "b", key: "x"})
    said = f"annotation {key} is for those who may set placements.cgpu.io"
    for was in (None, before, pod({"a": "b", key: "y"})):
        assert says(now, was) == said
        assert says(now, was, EXTENDER) is None and says(now, was, OPERATOR) is None
    assert says(before, now) == said
    # That is all that the extender may.
    assert says(pod({"cgpu.io/CGPU_WEIGHT": "4", key: "x"}), before, EXTENDER) is not None


def test_the_extender_has_that_right_and_not_the_operators() -> None:
    for path in (KUBERNETES / "scheduler.yaml", KUBERNETES / "chart/templates/scheduler.yaml"):
        (role,) = (
            one
            for one in path.read_text().split("---\n")
            if "\nkind: ClusterRole\n" in one and "\n  name: cgpu-scheduler-extender\n" in one
        )
        rule = r'- apiGroups: \["cgpu.io"\]\n    resources: \["(\w+)"\]\n    verbs: \["(\w+)"\]'
        assert re.findall(rule, role) == [("placements", "set")]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["metadata"].update(finalizers=[]),
        lambda one: one["metadata"].update(labels={"x": "y"}),
        lambda one: one["metadata"]["annotations"].update(other="x"),
        lambda one: one.update(status={"phase": "Succeeded"}),
        lambda one: one["spec"]["containers"][0].update(image="y"),
        lambda one: one["spec"]["containers"][0].update(resources={"limits": {"cpu": "2"}}),
        lambda one: one["spec"].update(ephemeralContainers=[asking("PATH", "shell")]),
    ],
    ids=["finalizers", "labels", "annotations", "status", "image", "resize", "debug"],
)
def test_who_changes_a_pod_answers_for_what_it_changes_alone(change: Any) -> None:
    """The Job controller takes its finalizer from a pod that an operator annotated."""
    before = pod(
        {"cgpu.io/CGPU_WEIGHT": "4", "nvidia.com/priority": "0", CARDS: "{}"},
        containers=[asking("CGPU_MEM", "main")],
    )
    now = copy.deepcopy(before)
    change(now)
    assert says(now, before) is None


def test_what_is_there_lends_its_name_to_no_other_container() -> None:
    before = pod(containers=[asking("CGPU_MEM", "main")])
    now = {**before, "spec": {**before["spec"], "ephemeralContainers": [asking("CGPU_MEM", "x")]}}
    assert str(says(now, before)).startswith("CGPU_MEM: ")


@pytest.mark.parametrize("key", ["cgpu.io/CGPU_QUOTA", "vke.volcengine.com/mgpu-core"])
def test_what_an_operator_wrote_is_changed_or_taken_away_by_none_else(key: str) -> None:
    before = pod({key: "30"})
    for now in (pod({key: "90"}), pod({}), pod()):
        assert says(now, before) == (f"annotation {key} is for those who may set limits.cgpu.io")
        assert says(now, before, OPERATOR) is None


def test_a_binding_brings_no_annotation_to_its_pod() -> None:
    """The API server writes a binding's annotations on the pod."""
    binding = {"kind": "Binding", "metadata": {"name": "one"}, "target": {"name": "node"}}
    assert says(binding) is None
    for key in ("cgpu.io/CGPU_WEIGHT", CARDS):
        assert says({**binding, "metadata": {"annotations": {key: "4"}}}) is not None


def test_every_way_to_a_pods_metadata_and_containers_is_judged() -> None:
    """Its status, its resizing and its ephemeral containers are requests of their own."""
    text = (KUBERNETES / "chart/templates/policy.yaml").read_text()
    assert 'resources: ["pods", "pods/*", "bindings"]\n' in text
    assert 'operations: ["CREATE", "UPDATE"]\n' in text


@pytest.mark.parametrize(
    "text", ["a.flatten()", "a.map(k, v, k)", "x ? 1", "a.exists(b", "a b", "a.join(',')"]
)
def test_what_kubernetes_1_31_lacks_is_no_expression_here(text: str) -> None:
    with pytest.raises(ValueError):
        cel.parse(text)({"a": [], "b": 1, "x": True})
