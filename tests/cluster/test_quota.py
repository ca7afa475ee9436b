# SPDX-License-Identifier: MIT
"""What Kubernetes and Kueue say of parts of cards: how they are counted, and what may change."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import REPOSITORY, ControlPlane
from tests.cluster.objects import claim, pod
from tests.cluster.waiting import until

#: The release of which the page speaks.
KUEUE = "sigs.k8s.io/kueue@v0.17.0"
PAGE = REPOSITORY / "docs/kubernetes.md"


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> ControlPlane:
    until(
        lambda: control_plane.kubectl("get", "serviceaccount", "default", check=False).stdout,
        "the default service account",
    )
    return control_plane


@pytest.fixture(scope="module")
def kueue(api: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kueue's definitions, by the module proxy."""
    told = subprocess.run(
        ["go", "mod", "download", "-json", KUEUE],
        cwd=tmp_path_factory.mktemp("kueue"),
        capture_output=True,
        text=True,
        check=True,
    )
    definitions = Path(json.loads(told.stdout)["Dir"], "config/components/crd/bases")
    api.kubectl("create", "-f", definitions)
    every = ("customresourcedefinitions", "--all")
    api.kubectl("wait", *every, "--for=condition=Established", "--timeout=60s")
    yield
    api.kubectl("delete", *every)


def examples() -> list[Any]:
    """The objects of Kueue on the page."""
    blocks = re.findall("```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "kueue.x-k8s.io" in block]
    return list(yaml.safe_load_all(text))


def created(api: ControlPlane, objects: list[Any]) -> tuple[int, str]:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    words = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    done = api.kubectl(*words, text=listed, check=False)
    return done.returncode, done.stdout + done.stderr


def test_kueue_takes_the_pages_quota(api: ControlPlane, kueue: None) -> None:
    objects = examples()
    assert [one["kind"] for one in objects] == ["ResourceFlavor", "ClusterQueue", "LocalQueue"]
    api.kubectl("create", "namespace", "team")
    code, said = created(api, objects)
    assert code == 0, said
    counted = objects[1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    counted[0]["nominalQuotas"] = counted[0].pop("nominalQuota")
    code, said = created(api, objects)
    assert code != 0 and "nominalQuotas" in said


def test_a_pods_resize_changes_no_part_of_a_card(api: ControlPlane) -> None:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "cpu": "1", "memory": "1Gi"}
    api.apply(pod("part", container={"resources": {"limits": limits}}))

    def resize(name: str, amount: str) -> tuple[int, str]:
        both = {"limits": {name: amount}, "requests": {name: amount}}
        patch = {"spec": {"containers": [{"name": "main", "resources": both}]}}
        base = ("patch", "pod", "part", "--subresource", "resize", "-p", json.dumps(patch))
        done = api.kubectl(*base, check=False)
        return done.returncode, done.stdout + done.stderr

    assert resize("cpu", "2")[0] == 0
    code, said = resize("nvidia.com/gpumem", "6000")
    assert code != 0 and "only cpu and memory resources are mutable" in said


def test_a_claim_that_is_there_does_not_change(api: ControlPlane) -> None:
    api.apply(claim("part", memory="1Gi", cores="10"))
    with pytest.raises(AssertionError, match="immutable"):
        api.apply(claim("part", memory="2Gi", cores="10"))
