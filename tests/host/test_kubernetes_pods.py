# SPDX-License-Identifier: MIT
"""What a pod asks for, counted as Kubernetes counts it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.errors import CgpuError
from pycgpu.kubernetes.families import FAMILIES, Amounts
from pycgpu.kubernetes.pods import Need, groups, parts, peak, promised
from pycgpu.request.model import MIB

GPU = "nvidia.com/gpu"
CARD_MIB = 16384


def container(name: str, memory: int = 1000, count: int = 1, **rest: Any) -> Any:
    limits = {GPU: str(count), "nvidia.com/gpumem": str(memory)}
    return {"name": name, "resources": {"limits": limits}, **rest}


def sidecar(name: str, memory: int = 1000, count: int = 1) -> Any:
    return container(name, memory, count, restartPolicy="Always")


def pod(*containers: Any, init: tuple[Any, ...] = ()) -> Any:
    return {"spec": {"containers": list(containers), "initContainers": list(init)}}


def counted(made: Any) -> int:
    return peak(parts(made, FAMILIES.values()).values(), CARD_MIB).memory_mib


def test_a_pod_asks_by_its_containers() -> None:
    gpu = {GPU: "1", "nvidia.com/gpumem": "3k"}
    plain = {"name": "plain", "resources": {"limits": {"cpu": "1"}}}
    other = {"name": "other", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}
    first = {"name": "first", "resources": {"limits": gpu}}
    found = parts(pod(first, plain, other), FAMILIES.values())
    assert {name: part.amounts for name, part in found.items()} == {
        "first": Amounts(1, 3000 * MIB),
        "other": Amounts(1, 2048 * MIB),
    }
    both = {"name": "both", "resources": {"limits": {**gpu, "aliyun.com/gpu-mem": "2"}}}
    with pytest.raises(CgpuError, match="both asks for cards under two vendors' names"):
        parts(pod(both), FAMILIES.values())


@pytest.mark.parametrize(
    ("made", "mib"),
    [
        (pod(container("a", 2000), container("b", 2000), init=(container("i", 6000),)), 6000),
        (pod(container("a", 4000), container("b", 4000), init=(container("i", 6000),)), 8000),
        (pod(container("a", 1000), init=(container("i", 6000), container("j", 5000))), 6000),
        # A sidecar is beside the init containers after it, and not beside those before.
        (pod(container("a", 1000), init=(sidecar("s", 2000), container("i", 6000))), 8000),
        (pod(container("a", 1000), init=(container("i", 6000), sidecar("s", 2000))), 6000),
        (pod(container("a", 5000), init=(container("i", 6000), sidecar("s", 2000))), 7000),
    ],
)
def test_a_pod_holds_the_most_that_runs_at_once(made: Any, mib: int) -> None:
    assert counted(made) == mib


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 9000)), max_size=6),
    st.lists(st.integers(1, 9000), min_size=1, max_size=4),
)
def test_it_is_kubernetes_own_sum(inits: list[tuple[bool, int]], mains: list[int]) -> None:
    """As PodRequests() of k8s.io/component-helpers adds it up, step by step."""
    requests, restartable, most = sum(mains), 0, 0
    for is_sidecar, mib in inits:
        if is_sidecar:
            requests += mib
            restartable += mib
            most = max(most, restartable)
        else:
            most = max(most, mib + restartable)
    made = pod(
        *(container(f"c{n}", mib) for n, mib in enumerate(mains)),
        init=tuple(
            sidecar(f"i{n}", mib) if is_sidecar else container(f"i{n}", mib)
            for n, (is_sidecar, mib) in enumerate(inits)
        ),
    )
    assert counted(made) == max(requests, most)


def test_an_init_container_whose_ids_nobody_keeps_is_refused() -> None:
    """The kubelet lists no init container, so the node could not tell whose they are."""
    plain = {"name": "a", "resources": {}}
    for inits in ((container("i"),), (sidecar("s"), container("i"))):
        with pytest.raises(CgpuError, match=r"init container i asks for nvidia.com/gpu, and none"):
            parts(pod(plain, init=inits), FAMILIES.values())
    parts(pod(plain, init=(container("i"), sidecar("s"))), FAMILIES.values())


def test_ids_go_on_to_the_first_that_asks_for_as_many() -> None:
    made = pod(
        container("a"),
        container("b"),
        container("two", count=2),
        init=(
            container("i"),
            container("j"),
            sidecar("s"),
            container("k"),
            container("l", count=2),
        ),
    )
    assert groups(parts(made, FAMILIES.values())) == [
        ("i", "j", "s"),
        ("k", "a"),
        ("l", "two"),
        ("b",),
    ]
    alone = pod(container("a", count=2), init=(container("i"), container("j")))
    assert groups(parts(alone, FAMILIES.values())) == [("i", "j"), ("a",)]


def test_what_runs_is_promised_no_more() -> None:
    held = parts(
        pod(container("a", 2000), container("b", 2000), init=(container("i", 6000),)),
        FAMILIES.values(),
    )
    assert promised(held, (), CARD_MIB) == Need(6000, 0, 2)
    assert promised(held, ("i",), CARD_MIB) == Need(0, 0, 1)
    # An init container may run again: the pod keeps its room.
    assert promised(held, ("a", "b"), CARD_MIB) == Need(2000, 0, 0)
    beside_b = {name: held[name] for name in ("i", "a")}
    assert promised(beside_b, (), CARD_MIB, held["b"]) == Need(2000, 0, 1)
    assert promised(beside_b, ("a",), CARD_MIB, held["b"]) == Need()
