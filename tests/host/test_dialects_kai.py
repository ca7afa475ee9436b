# SPDX-License-Identifier: MIT
"""
KAI Scheduler's annotations, by its documents.

"GPU Sharing" (docs/gpu-sharing/README.md with the manifests beside it) and "NvFractions GPU
Sharing" (docs/gpu-sharing/nv-fraction/README.md) of github.com/kai-scheduler/KAI-Scheduler, autumn
2026. Pods are judged as the hook judges them, with what engines tell it, and as the extender does.
"""

from __future__ import annotations

from typing import Any

import pytest

from pycgpu.dialects import CONTAINER, request_from
from pycgpu.errors import CgpuError, RequestError
from pycgpu.kubernetes import annotated, extender
from pycgpu.kubernetes.families import FAMILIES, Amounts
from pycgpu.kubernetes.pods import parts
from pycgpu.oci.bundle import request_of
from pycgpu.request.admission import admit
from pycgpu.request.model import GIB, MIB, Card, Grant, Request

HOST = tuple(Card(n, f"GPU-{n}", 16 * GIB) for n in range(2))
NV = "nvidia.com/container.gpu-workload."
HALF = {"gpu-fraction": "0.5"}
NAMED = {"gpu-fraction-container-name": "gpu-workload"}
#: What KAI's binder has the pod's container see of its choice.
GIVEN = "NVIDIA_VISIBLE_DEVICES=GPU-1"


def by_hook(annotations: dict[str, str], name: str | None, *env: str) -> Request | None:
    """As containerd hands a pod's annotations to each of its containers; None: by hand."""
    told = dict(annotations)
    if name is not None:
        told |= {"io.kubernetes.cri.container-name": name}
        told |= {"io.kubernetes.cri.container-type": "container"}
    return request_of({"process": {"env": list(env)}, "annotations": told})


def granted(request: Request | None) -> dict[int, int | None]:
    assert request is not None
    found = admit(request, HOST)
    assert isinstance(found, Grant), found
    return {card.index: card.memory_bytes for card in found.cards}


def pod(annotations: dict[str, str], *names: str, init: tuple[str, ...] = ()) -> Any:
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations},
        "spec": {
            "containers": [{"name": name} for name in names],
            "initContainers": [{"name": name} for name in init],
        },
    }


def counted(made: Any) -> dict[str, Amounts]:
    return {name: part.amounts for name, part in parts(made, FAMILIES.values()).items()}


@pytest.mark.parametrize(
    ("annotations", "memory_bytes", "amounts"),
    [
        # gpu-sharing.yaml
        (HALF, 8 * GIB, Amounts(1, None, 50)),
        # gpu-memory.yaml, "in Mib"
        ({"gpu-memory": "2000"}, 2000 * MIB, Amounts(1, 2000 * MIB)),
        # Request GPU memory with the gpu-memory annotation
        ({"gpu-memory": "4096"}, 4 * GIB, Amounts(1, 4 * GIB)),
        # Request GPU memory with NvFractions
        ({NV + "gpu-memory.request": "7680Mi"}, 7680 * MIB, Amounts(1, 7680 * MIB)),
        # "If only limit is present, KAI defaults the request to the same value."
        ({NV + "gpu-memory.limit": "8192Mi"}, 8 * GIB, Amounts(1, 8 * GIB)),
        # A limit above the request: what a container may have is promised to it, once.
        (
            {NV + "gpu-memory.request": "4096Mi", NV + "gpu-memory.limit": "8192Mi"},
            8 * GIB,
            Amounts(1, 8 * GIB),
        ),
        # Compute sharing mode within a fractional GPU group
        (
            HALF | {"kai.scheduler/gpu-compute-sharing-mode": "time-slicing"},
            8 * GIB,
            Amounts(1, None, 50),
        ),
        (
            {NV + "gpu-memory.request": "1Gi", NV + "gpu-compute.mode": "time-slicing"},
            GIB,
            Amounts(1, GIB),
        ),
    ],
)
def test_a_pod_of_the_documents_has_its_part(
    annotations: dict[str, str], memory_bytes: int, amounts: Amounts
) -> None:
    assert granted(by_hook(annotations, "gpu-workload", GIVEN)) == {1: memory_bytes}
    assert counted(pod(annotations, "gpu-workload")) == {"gpu-workload": amounts}


def test_the_named_container_has_it_and_no_other() -> None:
    """gpu-sharing-non-default-container.yaml"""
    made = pod(HALF | NAMED, "sidecar", "gpu-workload", "another-sidecar")
    assert list(counted(made)) == ["gpu-workload"]
    for name in ("sidecar", "another-sidecar"):
        assert by_hook(HALF | NAMED, name) is None
        assert by_hook(HALF | NAMED, name, "NVIDIA_VISIBLE_DEVICES=void") is None
    assert granted(by_hook(HALF | NAMED, "gpu-workload", GIVEN)) == {1: 8 * GIB}


def test_an_init_container_may_be_named() -> None:
    """gpu-sharing-init-container.yaml"""
    annotations = HALF | {"gpu-fraction-container-name": "gpu-init"}
    found = parts(pod(annotations, "main-app", init=("gpu-init",)), FAMILIES.values())
    assert list(found) == ["gpu-init"]
    assert (found["gpu-init"].since, found["gpu-init"].until) == (0, 0)
    assert granted(by_hook(annotations, "gpu-init", GIVEN)) == {1: 8 * GIB}
    assert by_hook(annotations, "main-app") is None


def test_without_a_name_it_is_the_firsts_which_kai_gives_the_card() -> None:
    """GPU Fraction with Non-Default Container: "By default, … the first container (index 0)"."""
    assert list(counted(pod(HALF, "gpu-workload", "sidecar"))) == ["gpu-workload"]
    assert granted(by_hook(HALF, "gpu-workload", GIVEN)) == {1: 8 * GIB}
    for env in ((), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=all",)):
        assert by_hook(HALF, "sidecar", *env) is None


def test_several_devices_have_as_much_each() -> None:
    """Request multiple fractional GPU devices"""
    annotations = {NV + "gpu-memory.request": "7680Mi", "gpu-fraction-num-devices": "2"}
    both = "NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1"
    assert granted(by_hook(annotations, "gpu-workload", both)) == dict.fromkeys((0, 1), 7680 * MIB)
    assert counted(pod(annotations, "gpu-workload")) == {"gpu-workload": Amounts(2, 7680 * MIB)}


def test_the_cards_that_kai_wrote_are_taken() -> None:
    annotations = {NV + "gpu-memory.request": "1Gi", NV + "gpus.devices": "GPU-1"}
    assert granted(by_hook(annotations, "gpu-workload", GIVEN)) == {1: GIB}
    made = pod(annotations, "gpu-workload")
    assert annotated.cards(made) == {"gpu-workload": ["GPU-1"]}
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    described = '[{"uuid":"GPU-0","memory":16384,"containers":20},'
    described += '{"uuid":"GPU-1","memory":16384,"containers":20}]'
    cluster.node("n", {extender.ANNOTATION: described})
    made["spec"]["nodeName"] = "n"
    cluster.pod(made)
    assert [card.free_memory for card in cluster.nodes["n"]] == [16384, 15360]


def test_by_hand_one_container_has_it() -> None:
    """podman run --annotation gpu-fraction=0.5"""
    assert list(granted(by_hook(HALF, None)).values()) == [8 * GIB]
    with pytest.raises(RequestError, match="a container of a pod, and here is none"):
        by_hook({NV + "gpu-memory.request": "1Gi"}, None)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        # Fractional GPU pod is rejected: "gpu-fraction is 1, 0, negative, or not a number", …
        *[({"gpu-fraction": text}, "write a part of a card") for text in ("1", "0", "-1", "half")],
        *[({"gpu-fraction": text}, "write a part of a card") for text in ("0.0", "1.5", "0.12345")],
        *[({"gpu-memory": text}, "positive whole number of MiB") for text in ("0", "2Gi", "x")],
        *[({NV + "gpu-memory.request": text}, "such as 7680Mi") for text in ("x", "0", "-1Gi")],
        (
            {NV + "gpu-memory.request": "9Gi", NV + "gpu-memory.limit": "8Gi"},
            "is more than the limit, 8Gi",
        ),
        ({NV + "gpu-memory.requests": "1Gi"}, "unknown; known are"),
        (HALF | {"gpu-memory": "2000"}, "ask at once; keep one"),
        (HALF | {NV + "gpu-memory.request": "1Gi"}, "ask at once; keep one"),
        (
            {NV + "gpu-memory.request": "1Gi", "gpu-fraction-container-name": "other"},
            "the part is for gpu-workload",
        ),
        (HALF | {"kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"}, "write time-slicing"),
        (
            {NV + "gpu-memory.request": "1Gi", NV + "gpu-compute.mode": "sm-sharing"},
            "write time-slicing",
        ),
        (HALF | {"gpu-fraction-num-devices": "0"}, "positive whole number of cards"),
    ],
)
def test_what_kai_rejects_or_cgpu_cannot_do_is_refused(
    annotations: dict[str, str], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        by_hook(annotations, "gpu-workload", GIVEN)
    with pytest.raises(CgpuError, match=why):
        counted(pod(annotations, "gpu-workload"))


def test_a_name_that_the_pod_has_not_and_a_whole_card_beside_it_are_refused() -> None:
    with pytest.raises(CgpuError, match="container gpu-workload, and the pod has none of it"):
        counted(pod({NV + "gpu-memory.request": "1Gi"}, "main"))
    made = pod(HALF, "gpu-workload")
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    with pytest.raises(CgpuError, match="under two vendors' names"):
        counted(made)


def test_no_environment_says_which_container_this_is() -> None:
    """Nor does a pod, under CRI-O, by the other engine's annotation."""
    with pytest.raises(RequestError, match="two annotations name the container"):
        request_of(
            {
                "process": {"env": [GIVEN]},
                "annotations": HALF
                | NAMED
                | {
                    "io.kubernetes.container.name": "gpu-workload",
                    "io.kubernetes.cri.container-name": "x",
                },
            }
        )
    env = [GIVEN, f"{CONTAINER}=sidecar"]
    found = by_hook(HALF | NAMED, "gpu-workload", *env)
    assert granted(found) == {1: 8 * GIB}
    assert request_from(HALF | {CONTAINER: "gpu-workload"}) is not None
