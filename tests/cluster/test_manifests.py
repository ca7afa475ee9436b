# SPDX-License-Identifier: MIT
"""The manifests, before a real API server: it takes them, and they let through what they should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import MANIFESTS, pod
from tests.cluster.waiting import until


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> ControlPlane:
    control_plane.kubectl("apply", "-f", MANIFESTS)
    control_plane.kubectl("create", "serviceaccount", "user")
    control_plane.kubectl(
        *("create", "rolebinding", "user", "--clusterrole", "edit"),
        *("--serviceaccount", "default:user"),
    )
    until(
        lambda: control_plane.get("serviceaccounts")["items"][0]["metadata"]["name"] == "default",
        "the default service account",
    )
    # A policy holds from when the server has compiled it.
    asking = pod("x", container={"env": [{"name": "EGPU", "value": "x"}]})
    until(lambda: "limits.cgpu.io" in create(control_plane, asking, "user"), "the policy")
    return control_plane


def create(api: ControlPlane, made: Any, account: str) -> str:
    """What the server says to a pod, empty if it takes it."""
    done = api.kubectl(
        *("create", f"--as=system:serviceaccount:default:{account}", "--dry-run=server", "-f", "-"),
        text=json.dumps(made),
        check=False,
    )
    return done.stderr if done.returncode else ""


def test_every_manifest_is_valid_to_its_last_field(control_plane: ControlPlane) -> None:
    for path in sorted(MANIFESTS.glob("*.yaml")):
        done = control_plane.kubectl(
            *("apply", "--dry-run=server", "--validate=strict", "-f", path), check=False
        )
        # In a dry run what a document creates is not there for the next: its namespace.
        others = [line for line in done.stderr.splitlines() if '"cgpu" not found' not in line]
        assert others == []


@pytest.mark.parametrize(
    "name",
    ["CGPU_MEM", "EGPU", "ALIYUN_COM_GPU_MEM_CONTAINER", "CUDA_DEVICE_MEMORY_LIMIT_0"]
    + ["NVIDIA_VISIBLE_DEVICES", "nvidia.com/gpumem", "emr.serverless.mgpu.core"],
)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_cannot_ask_by_environment(api: ControlPlane, name: str, where: str) -> None:
    made = pod("asking")
    asking = {"name": "y", "image": "x", "env": [{"name": name, "value": "1"}]}
    made["spec"].setdefault(where, []).append(asking)
    assert f"{name}: ask for a part of a card by resources.limits" in create(api, made, "user")


@pytest.mark.parametrize(
    "name", ["cgpu.io/CGPU_WEIGHT", "vke.volcengine.com/mgpu-core", "nvidia.com/priority"]
)
def test_a_pod_cannot_ask_by_annotation(api: ControlPlane, name: str) -> None:
    made = pod("asking", metadata={"annotations": {name: "4"}})
    assert f"annotation {name} is for those who may set" in create(api, made, "user")


def test_a_pod_that_asks_by_resources_is_let_through(api: ControlPlane) -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
    env = [{"name": "CUDA_CACHE_PATH", "value": "/tmp"}, {"name": "GPU_COUNT", "value": "1"}]
    made = pod("usual", container={"resources": {"limits": limits}, "env": env})
    made["metadata"]["annotations"] = {"prometheus.io/scrape": "true"}
    assert create(api, made, "user") == ""
    # And one that says nothing at all.
    assert create(api, pod("plain"), "user") == ""


def test_who_may_set_limits_may_annotate(api: ControlPlane) -> None:
    made = pod("weighty", metadata={"annotations": {"cgpu.io/CGPU_WEIGHT": "4"}})
    assert "is for those who may" in create(api, made, "user")
    api.kubectl(
        *("create", "rolebinding", "operator", "--clusterrole", "cgpu-limits"),
        *("--serviceaccount", "default:user"),
    )
    until(lambda: create(api, made, "user") == "", "the server's look at the new role")
    api.kubectl("delete", "rolebinding", "operator")
    until(lambda: create(api, made, "user") != "", "the server's look at the end of it")


def test_a_pods_cards_are_the_extenders_to_write_and_an_operators_pod_can_end(
    api: ControlPlane,
) -> None:
    metadata = {"annotations": {"cgpu.io/CGPU_WEIGHT": "4"}, "finalizers": ["example.com/job"]}
    api.kubectl("create", "-f", "-", text=json.dumps(pod("placed", metadata=metadata)))

    def patch(account: str, change: Any) -> str:
        done = api.kubectl(
            *("patch", "pod", "placed", "--type=merge", "-p", json.dumps({"metadata": change})),
            f"--as=system:serviceaccount:{account}",
            check=False,
        )
        return done.stderr if done.returncode else ""

    cards = {"annotations": {"scheduling.cgpu.io/cards": "{}"}}
    assert "set placements.cgpu.io" in patch("default:user", cards)
    assert patch("cgpu:scheduler", cards) == ""
    weight = {"annotations": {"cgpu.io/CGPU_WEIGHT": None}}
    for account in ("default:user", "cgpu:scheduler"):
        assert "set limits.cgpu.io" in patch(account, weight)
    # What has nothing to do with them is anybody's: a Job's controller takes its finalizer.
    assert patch("default:user", {"labels": {"x": "y"}, "finalizers": None}) == ""
    api.kubectl("delete", "pod", "placed", "--force", "--wait=false")


@pytest.mark.parametrize(
    ("account", "verb", "what", "may"),
    [
        ("device-plugin", "get", "pods", True),
        ("device-plugin", "list", "pods", False),
        ("device-plugin", "create", "pods", False),
        ("device-plugin", "get", "secrets", False),
        ("device-plugin", "get", "nodes", True),
        ("device-plugin", "patch", "nodes/status", True),
        ("device-plugin", "patch", "nodes", False),
        ("device-plugin", "update", "nodes/status", False),
        ("dra-driver", "get", "resourceclaims", True),
        ("dra-driver", "list", "resourceclaims", False),
        ("dra-driver", "update", "resourceclaims/status", False),
        ("dra-driver", "update", "resourceslices", True),
        ("dra-driver", "delete", "resourceslices", False),
        ("dra-driver", "patch", "nodes/status", False),
        ("dra-driver", "list", "pods", False),
        ("dra-driver", "get", "secrets", False),
    ],
)
def test_who_runs_on_a_node_may_do_what_it_does_and_no_more(
    api: ControlPlane, account: str, verb: str, what: str, may: bool
) -> None:
    resource, _, part = what.partition("/")
    words = [*("auth", "can-i", verb, resource), *(["--subresource", part] if part else [])]
    done = api.kubectl(
        *words, f"--as=system:serviceaccount:cgpu:{account}", "-n", "default", check=False
    )
    assert done.stdout.strip() == ("yes" if may else "no")


@pytest.mark.parametrize(("node", "says"), [("mine", ""), ("other", "slice of its own node alone")])
def test_a_dra_driver_writes_the_slice_of_its_own_node(
    api: ControlPlane, node: str, says: str
) -> None:
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu.cgpu.io"},
        "spec": {
            "driver": "gpu.cgpu.io",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }

    def answer() -> str:
        done = api.kubectl(
            *("create", "--dry-run=server", "--as=system:serviceaccount:cgpu:dra-driver"),
            *("--as-user-extra=authentication.kubernetes.io/node-name=mine", "-f", "-"),
            text=json.dumps(made),
            check=False,
        )
        return done.stderr if done.returncode else ""

    # A policy holds from when the server has compiled it.
    until(lambda: says in answer() and bool(answer()) == bool(says), f"{says!r}: {answer()}")


def test_a_namespace_has_a_quota_of_parts_as_of_cards(api: ControlPlane) -> None:
    """ResourceQuota counts what is requested, each resource by its name."""
    quota = {"requests.nvidia.com/gpumem": "8192", "requests.nvidia.com/gpucores": "100"}
    api.kubectl("create", "namespace", "team")
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpu", "namespace": "team"},
            "spec": {"hard": quota},
        }
    )
    until(
        lambda: api.get("resourcequota", "gpu", namespace="team").get("status", {}).get("hard"),
        "the quota's first count",
    )
    until(
        lambda: api.kubectl("get", "sa", "default", "-n", "team", check=False).stdout,
        "the default service account",
    )

    def ask(name: str, mib: int) -> str:
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": 30}
        made = pod(name, "team", container={"resources": {"limits": limits}})
        done = api.kubectl("create", "-f", "-", text=json.dumps(made), check=False)
        return done.stderr if done.returncode else ""

    assert ask("one", 5000) == ""
    assert "requests.nvidia.com/gpumem=5k, used: requests.nvidia.com/gpumem=5k" in ask("two", 5000)
    assert ask("three", 3000) == ""
