# SPDX-License-Identifier: MIT
"""The DRA driver before a kubelet's calls and an API server with slices and claims."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pycgpu.errors import RequestError
from pycgpu.kubernetes import claims, messages
from pycgpu.kubernetes.apiserver import Access
from pycgpu.kubernetes.dra import Claims, Driver
from pycgpu.kubernetes.node import Place
from pycgpu.kubernetes.wire import decode, encode
from pycgpu.oci import bundle
from pycgpu.request.model import GIB, MIB, Request
from tests.host.coretree import CoreTree
from tests.host.kubelet import ApiPeer, call
from tests.host.test_kubernetes_plugin import wait

SLICE = "node-gpu.cgpu.io"
DEVICES = [f"gpu-00000000-0000-0000-0000-{n:012}" for n in (1, 2)]


class Rig:
    """A node of two cards of 16 GiB, the driver, and its kubelet's side of the sockets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ungranted("refuse")
        self.tree = CoreTree(path / "tree", ((16 * GIB, 0), (16 * GIB, 0)))
        self.api = ApiPeer()
        self.start()

    def start(self, *, evict: bool = False, overcommit_ratio: int | None = None) -> None:
        place = Place(
            ("/usr/lib/cgpu/cgpu-hook",),
            str(self.tree.root),
            str(self.path),
            str(self.path / "cdi"),
            overcommit_ratio=overcommit_ratio,
        )
        held = Claims(Access(self.api.url, "/nowhere", "/nowhere"), place)
        self.driver = Driver("node", held, str(self.path / "k"), evict=evict)
        self.thread = threading.Thread(target=self.driver.run)
        self.thread.start()
        wait(self.driver.registry.exists, "the driver's socket")

    def ungranted(self, word: str) -> None:
        """What this node does with containers that have no grant."""
        path = self.path / "sys/module/cgpu_km/parameters"
        path.mkdir(parents=True, exist_ok=True)
        (path / "ungranted").write_text(f"{word}\n")

    def stop(self) -> None:
        self.driver.end()
        self.thread.join()

    def claim(self, name: str, *parts: tuple[str, int, str, str], **more: Any) -> messages.Claim:
        """A claim that has been allocated parts: request, number of the card, memory, cores."""
        results = [
            {
                "request": request,
                "driver": claims.DRIVER,
                "pool": "node",
                "device": DEVICES[card],
                "shareID": f"share-{number}",
                "consumedCapacity": {"memory": memory, "cores": cores, "tenants": "1"},
                **more,
            }
            for number, (request, card, memory, cores) in enumerate(parts)
        ]
        self.api.claims[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        return messages.Claim("default", f"uid-{name}", name)

    def prepare(self, *wanted: messages.Claim) -> dict[str, messages.Prepared]:
        method = f"{messages.DRA_PLUGIN}/NodePrepareResources"
        request = messages.ClaimsRequest(list(wanted))
        answer = call(self.driver.socket, method, request, messages.PrepareResponse)
        return {entry.uid: entry.prepared[0] for entry in answer.claims}

    def unprepare(self, claim: messages.Claim) -> str:
        method = f"{messages.DRA_PLUGIN}/NodeUnprepareResources"
        request = messages.ClaimsRequest([claim])
        answer = call(self.driver.socket, method, request, messages.UnprepareResponse)
        (entry,) = answer.claims
        assert entry.uid == claim.uid
        return str(entry.unprepared[0].error)

    def error(self, claim: messages.Claim) -> str:
        prepared = self.prepare(claim)[claim.uid]
        assert not prepared.devices
        assert not self.file(claim).exists()
        return prepared.error

    def file(self, claim: messages.Claim) -> Path:
        return self.path / f"cdi/cgpu-claim-{claim.uid}.json"

    def request(self, claim: messages.Claim) -> tuple[str | None, Request]:
        """The tenant of a container that has the claim, and what the hook asks for it."""
        edits = json.loads(self.file(claim).read_text())["containerEdits"]
        hooks: dict[str, Any] = {}
        tenants: set[str | None] = set()
        for hook in edits["hooks"]:
            words = hook["args"]
            shared = "--tenant" in words
            tenants.add(words[words.index("--tenant") + 1] if shared else None)
            hooks[hook["hookName"]] = [{"path": hook["path"], "args": words}]
        (tenant,) = tenants
        assert set(hooks) == {"createRuntime", "poststop"}
        request = bundle.request_of({"process": {"env": edits["env"]}, "hooks": hooks})
        assert request is not None
        return tenant, request


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.stop()
    made.api.stop()


def test_a_kubelet_that_looks_finds_the_driver(rig: Rig) -> None:
    method = f"{messages.PLUGIN_REGISTRATION}/GetInfo"
    info = call(rig.driver.registry, method, messages.Empty(), messages.PluginInfo)
    assert info == messages.PluginInfo(
        *("DRAPlugin", "gpu.cgpu.io", str(rig.driver.socket)),
        ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"],
    )
    assert rig.driver.registry.parent.name == "plugins_registry"
    told = messages.RegistrationStatus(True)
    method = f"{messages.PLUGIN_REGISTRATION}/NotifyRegistrationStatus"
    assert call(rig.driver.registry, method, told, messages.Empty) == messages.Empty()


def test_a_card_is_a_device_whose_capacities_are_consumed(rig: Rig) -> None:
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    made = rig.api.slices[SLICE]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "uid-node"}
    assert made["metadata"]["ownerReferences"] == [owner]
    spec = made["spec"]
    assert (spec["driver"], spec["nodeName"]) == ("gpu.cgpu.io", "node")
    assert [device["name"] for device in spec["devices"]] == DEVICES
    for device in spec["devices"]:
        assert device["allowMultipleAllocations"]
        values = {name: one["value"] for name, one in device["capacity"].items()}
        assert values == {"memory": "16384Mi", "cores": "100", "tenants": "20"}
        assert device["capacity"]["memory"]["requestPolicy"] == {
            "default": "16384Mi",
            "validRange": {"min": "1Mi", "max": "16384Mi", "step": "1Mi"},
        }


def overcommit(rig: Rig, ratio: int) -> None:
    for card in rig.tree.cards:
        rig.tree.host.card[card].overcommit_ratio = ratio
    rig.tree.write()


def test_an_overcommitted_card_gives_more_claims_and_none_above_itself(rig: Rig) -> None:
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    overcommit(rig, 250)
    assert rig.driver.publish()
    for device in rig.api.slices[SLICE]["spec"]["devices"]:
        assert device["capacity"]["memory"] == {
            "value": "40960Mi",
            "requestPolicy": {
                "default": "16384Mi",
                "validRange": {"min": "1Mi", "max": "16384Mi", "step": "1Mi"},
            },
        }
        assert device["capacity"]["cores"]["value"] == "100"


def test_a_ratio_of_the_cluster_is_kept_on_the_nodes_cards(rig: Rig) -> None:
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    rig.stop()
    rig.start(overcommit_ratio=150)

    def amounts() -> list[str]:
        devices = rig.api.slices[SLICE]["spec"]["devices"]
        return [device["capacity"]["memory"]["value"] for device in devices]

    wait(lambda: amounts() == ["24576Mi"] * 2, "the cards' new promises")


def test_parts_of_a_card_that_are_more_than_it_together_are_refused(rig: Rig) -> None:
    """The scheduler counts each part for itself, and a claim is one tenant."""
    overcommit(rig, 250)
    wide = rig.claim("a", ("left", 1, "10Gi", "30"), ("right", 1, "10Gi", "10"))
    assert rig.error(wide) == (
        "cgpu: claim default/a: its requests have 20480 MiB of card"
        f" {DEVICES[1]} together, and a tenant has at most its 16384 MiB: make a claim of each"
    )
    rig.prepare(rig.claim("b", ("left", 1, "8Gi", "30"), ("right", 1, "8Gi", "10")))
    assert (rig.path / "cdi/cgpu-claim-uid-b.json").exists()


def test_the_slice_is_kept_as_it_should_be(rig: Rig) -> None:
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    right = copy.deepcopy(rig.api.slices[SLICE]["spec"])
    # As the API server writes amounts.
    for device in rig.api.slices[SLICE]["spec"]["devices"]:
        device["capacity"]["memory"]["value"] = "16Gi"
    assert not rig.driver.publish()
    rig.api.slices[SLICE]["spec"]["devices"][0]["capacity"]["cores"]["value"] = "1k"
    assert rig.driver.publish()
    assert rig.api.slices[SLICE]["spec"]["devices"] == right["devices"]
    assert rig.api.slices[SLICE]["spec"]["pool"]["generation"] == 2
    del rig.api.slices[SLICE]
    assert rig.driver.publish()
    assert rig.api.slices[SLICE]["spec"] == right


FIRST = "GPU-00000000-0000-0000-0000-000000000001"


def published(rig: Rig) -> dict[str, list[Any]]:
    """The devices of the slice, and their taints."""
    devices = rig.api.slices[SLICE]["spec"]["devices"] if SLICE in rig.api.slices else []
    return {one["name"]: one.get("taints", []) for one in devices}


def fail(rig: Rig, **said: str) -> None:
    """Have the first card fail, and see the slice say so."""
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    rig.driver.health.tell(FIRST, 79)
    wait(lambda: bool(published(rig)[DEVICES[0]]), "a taint")
    wanted = {"key": "gpu.cgpu.io/unhealthy", "value": "xid-79", **said}
    taints = [{key: one[key] for key in wanted} for one in published(rig)[DEVICES[0]]]
    assert taints == [wanted]
    assert published(rig)[DEVICES[1]] == []


def test_a_failed_card_has_a_taint_that_keeps_its_time(rig: Rig) -> None:
    fail(rig, effect="NoSchedule")
    before = published(rig)
    assert not rig.driver.publish()
    rig.api.slices[SLICE]["spec"]["devices"][1]["capacity"]["cores"]["value"] = "1k"
    assert rig.driver.publish()
    assert published(rig) == before


def test_a_driver_that_evicts_has_the_pods_of_a_failed_card_ended(rig: Rig) -> None:
    rig.stop()
    rig.start(evict=True)
    fail(rig, effect="NoExecute")


def test_where_no_taints_are_kept_a_failed_card_is_left_out(rig: Rig) -> None:
    rig.api.taints = False
    wait(lambda: SLICE in rig.api.slices, "the node's slice")
    rig.driver.health.tell(FIRST, 79)
    wait(lambda: list(published(rig)) == DEVICES[1:], "a slice without it")
    assert not rig.driver.publish()


@pytest.mark.parametrize("service", messages.DRA_HEALTH)
def test_a_kubelet_that_watches_hears_of_a_card_that_fails(rig: Rig, service: str) -> None:
    with grpc.insecure_channel(f"unix://{rig.driver.socket}") as channel:
        watch = channel.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=encode,
            response_deserializer=lambda raw: decode(messages.HealthResponse, raw),
        )(messages.Empty(), timeout=60)

        def hears(health: int, word: str) -> None:
            for answer in watch:
                first, second = answer.devices
                assert [one.device[0].device_name for one in answer.devices] == DEVICES
                assert first.device[0].pool_name == "node"
                assert second.health == messages.DEVICE_UNKNOWN
                if first.health == health:
                    assert word in first.message
                    return
            raise AssertionError("the watch has ended")

        # Nobody listens to NVML here: so nothing is known of a card that has not failed.
        hears(messages.DEVICE_UNKNOWN, "")
        rig.driver.health.tell(FIRST, 79)
        hears(messages.DEVICE_UNHEALTHY, "Xid 79")
        watch.cancel()


def test_a_claim_is_a_tenant_with_its_limits(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    (device,) = rig.prepare(claim)["uid-a"].devices
    assert device == messages.PreparedDevice(
        ["gpu"], "node", DEVICES[1], ["cgpu.io/claim=uid-a-0"], "share-0"
    )
    tenant, request = rig.request(claim)
    assert tenant == "claim-uid-a"
    (share,) = request.shares
    assert share.memory is not None
    assert (share.memory.on(16 * GIB), share.quota) == (3000 * MIB, 30)
    assert request.selectors == ("GPU-00000000-0000-0000-0000-000000000002",)
    specification = json.loads(rig.file(claim).read_text())
    assert specification["kind"] == "cgpu.io/claim"
    assert specification["devices"] == [
        {"name": "uid-a-0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}}
    ]


def own(rig: Rig, **users: list[str]) -> messages.Claim:
    """A claim made for a pod whose containers (``init…``: to begin with) name these claims."""
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "controller": True}
    rig.api.claims["a"]["metadata"]["ownerReferences"] = [owner]
    rig.api.add("pod", None, **{name: {} for name in users})
    pod = rig.api.pods["pod"]
    for part in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        part["resources"] = {"claims": [{"name": one} for one in users[part["name"]]]}
    pod["status"] = {
        "resourceClaimStatuses": [
            {"name": "gpu", "resourceClaimName": "a"},
            {"name": "nic", "resourceClaimName": "b"},
        ]
    }
    return claim


def test_a_claim_of_one_container_is_that_container(rig: Rig) -> None:
    claim = own(rig, main=["gpu", "nic"], other=["nic"])
    rig.ungranted("allow")
    rig.prepare(claim)
    assert rig.request(claim)[0] is None


@pytest.mark.parametrize(
    "users", [{"main": ["gpu"], "other": ["gpu"]}, {"main": ["gpu"], "init": ["gpu"]}]
)
def test_a_claim_of_two_containers_of_a_pod_is_a_tenant(
    rig: Rig, users: dict[str, list[str]]
) -> None:
    claim = own(rig, **users)
    rig.prepare(claim)
    assert rig.request(claim)[0] == "claim-uid-a"


@pytest.mark.parametrize(
    ("users", "tenant"), [(["main"], None), (["main", "other"], "claim-uid-a")]
)
def test_a_claim_for_a_resource_is_of_the_containers_that_ask_for_it(
    rig: Rig, users: list[str], tenant: str | None
) -> None:
    """They name no claim; whose it is, the scheduler has written on the pod."""
    claim = own(rig, main=[], other=[])
    rig.api.pods["pod"]["status"] = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "a",
            "requestMappings": [
                {"containerName": name, "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
                for name in users
            ],
        }
    }
    rig.prepare(claim)
    assert rig.request(claim)[0] == tenant


def test_a_claim_that_many_may_have_takes_a_node_that_refuses_others(rig: Rig) -> None:
    rig.ungranted("allow")
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    assert "cgpu install --ungranted refuse" in rig.error(claim)


def test_no_cores_are_no_limit_of_compute(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 0, "16Gi", "0"))
    rig.prepare(claim)
    assert rig.request(claim)[1].shares[0].quota is None


def test_parts_of_two_cards_are_one_tenant_on_both(rig: Rig) -> None:
    claim = rig.claim("a", ("left", 1, "3000Mi", "30"), ("right/small", 0, "1Gi", "10"))
    devices = rig.prepare(claim)["uid-a"].devices
    # Containers name the request, not the alternative that was taken.
    assert [device.request_names for device in devices] == [["left"], ["right"]]
    assert [device.cdi_device_ids for device in devices] == [
        ["cgpu.io/claim=uid-a-0"],
        ["cgpu.io/claim=uid-a-1"],
    ]
    _, request = rig.request(claim)
    assert request.selectors is not None
    assert [str(one)[-1] for one in request.selectors] == ["2", "1"]
    memory = [share.memory.on(16 * GIB) // MIB for share in request.shares if share.memory]
    assert memory == [3000, 1024]
    assert [share.quota for share in request.shares] == [30, 10]


def test_parts_of_the_same_card_are_added(rig: Rig) -> None:
    claim = rig.claim("a", ("left", 1, "3000Mi", "30"), ("right", 1, "1000Mi", "10"))
    rig.prepare(claim)
    _, request = rig.request(claim)
    (share,) = request.shares
    assert share.memory is not None
    assert (share.memory.on(16 * GIB), share.quota) == (4000 * MIB, 40)


def test_a_claim_is_prepared_again_the_same_also_by_the_next_driver(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    first, text = rig.prepare(claim), rig.file(claim).read_text()
    assert rig.prepare(claim) == first
    rig.stop()
    rig.start()
    assert rig.file(claim).read_text() == text
    rig.file(claim).unlink()
    assert rig.prepare(claim) == first
    assert rig.file(claim).read_text() == text


def test_a_claim_is_given_back_once_or_more_often(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    rig.prepare(claim)
    del rig.api.claims["a"]
    for _ in range(2):
        assert rig.unprepare(claim) == ""
        assert list((rig.path / "cdi").iterdir()) == []
    assert (rig.tree.root / "inst_ctl").read_text().startswith("destroy claim-uid-a\n")


def test_one_claim_that_fails_does_not_keep_the_others(rig: Rig) -> None:
    good = rig.claim("good", ("gpu", 1, "3000Mi", "30"))
    bad = messages.Claim("default", "uid-bad", "bad")
    prepared = rig.prepare(bad, good)
    assert "404" in prepared["uid-bad"].error
    assert prepared["uid-good"].error == ""
    assert rig.file(good).exists()


def test_an_administrators_access_has_no_limit(rig: Rig) -> None:
    """Whatever amounts its result names; what the same claim has of another card stays a part."""
    claim = rig.claim("a", ("all", 1, "0", "0"), ("part", 0, "1Gi", "0"))
    result, part = rig.api.claims["a"]["status"]["allocation"]["devices"]["results"]
    del result["consumedCapacity"], result["shareID"]
    result["adminAccess"] = True
    assert rig.prepare(claim)["uid-a"].error == ""
    assert "CGPU_MEM=max,1024MiB" in rig.file(claim).read_text()
    # A part of the same card besides is no limit to it.
    part["device"] = result["device"]
    assert rig.prepare(claim)["uid-a"].error == ""
    assert '"CGPU_MEM=max"' in rig.file(claim).read_text()


def test_what_cannot_be_given_is_refused_with_the_reason(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    assert "is another one by now" in rig.error(messages.Claim("default", "uid-old", "a"))
    rig.api.claims["a"]["status"] = {}
    assert "nothing of gpu.cgpu.io is allocated" in rig.error(claim)
    mixed = rig.claim("b", ("left", 1, "3000Mi", "30"), ("right", 0, "1Gi", "0"))
    assert "all ask for cores, or none" in rig.error(mixed)
    plain = rig.claim("d", ("x", 1, "1Gi", "1"), consumedCapacity={})
    assert "DRAConsumableCapacity" in rig.error(plain)
    far = rig.claim("e", ("x", 1, "1Gi", "1"), device="gpu-elsewhere")
    assert "no card gpu-elsewhere here" in rig.error(far)


def config(source: str, parameters: object, *requests: str) -> dict[str, object]:
    opaque = {"driver": "gpu.cgpu.io", "parameters": parameters}
    return {"source": source, "requests": [*requests], "opaque": opaque}


def configured(rig: Rig, name: str, *given: dict[str, object]) -> messages.Claim:
    claim = rig.claim(name, ("x", 1, "1Gi", "0"), ("y", 0, "1Gi", "0"))
    rig.api.claims[name]["status"]["allocation"]["devices"]["config"] = [*given]
    return claim


def test_a_class_gives_its_tenants_a_weight_a_priority_and_a_policy(rig: Rig) -> None:
    told = {"apiVersion": "gpu.cgpu.io/v1", "weight": 4, "priority": 2, "policy": "weighted"}
    claim = configured(rig, "a", config("FromClass", told))
    assert rig.prepare(claim)["uid-a"].error == ""
    text = rig.file(claim).read_text()
    for setting in ("CGPU_WEIGHT=4", "CGPU_PRIORITY=2", "CGPU_POLICY=weighted"):
        assert setting in text
    each = [config("FromClass", {"weight": 4}, one) for one in ("x", "y")]
    assert rig.prepare(configured(rig, "b", *each))["uid-b"].error == ""


def test_a_claim_or_its_class_names_the_group_of_its_tenant(rig: Rig) -> None:
    for source in ("FromClaim", "FromClass"):
        claim = configured(rig, source.lower(), config(source, {"group": "chat"}))
        assert rig.prepare(claim)[f"uid-{source.lower()}"].error == ""
        assert '"--set", "CGPU_GROUP=chat"' in " ".join(rig.file(claim).read_text().split())


def test_a_claim_or_its_class_says_after_which_time_it_is_parked(rig: Rig) -> None:
    for source in ("FromClaim", "FromClass"):
        claim = configured(rig, source.lower(), config(source, {"idlePark": "10m"}))
        assert rig.prepare(claim)[f"uid-{source.lower()}"].error == ""
        assert '"--set", "CGPU_IDLE_PARK=10m"' in " ".join(rig.file(claim).read_text().split())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([config("FromClaim", {"weight": 4})], "takes group, idlePark alone: a DeviceClass"),
        ([config("FromClaim", "group")], "takes group, idlePark alone: a DeviceClass"),
        ([config("FromClaim", {"idlePark": "soon"})], "CGPU_IDLE_PARK='soon': 'soon' is no time"),
        ([config("FromClass", {"weigth": 4})], "parameter 'weigth' is unknown; known are weight"),
        ([config("FromClass", {"weight": 0})], "CGPU_WEIGHT='0': write a positive"),
        ([config("FromClass", {"priority": 99})], "CGPU_PRIORITY='99': write 0 to 15"),
        ([config("FromClass", {"policy": "fair"})], "CGPU_POLICY='fair': write 0 to 9"),
        ([config("FromClass", "weight")], "parameters are 'weight': write weight"),
        ([config("FromClass", {"weight": 4}, "x")], "classes of one claim have different"),
    ],
)
def test_parameters_that_are_no_administrators_or_mean_nothing_are_refused(
    rig: Rig, given: list[dict[str, object]], why: str
) -> None:
    assert why in rig.error(configured(rig, "a", *given))


def test_what_is_another_drivers_is_left_alone(rig: Rig) -> None:
    claim = rig.claim("a", ("gpu", 1, "3000Mi", "30"))
    allocated = rig.api.claims["a"]["status"]["allocation"]["devices"]
    allocated["results"].append(
        {"request": "nic", "driver": "nic.example.com", "pool": "node", "device": "eth0"}
    )
    allocated["config"] = [{"opaque": {"driver": "nic.example.com", "parameters": {}}}]
    assert len(rig.prepare(claim)["uid-a"].devices) == 1


def test_a_container_of_two_claims_has_the_limits_of_neither(rig: Rig) -> None:
    hooks = []
    for name in ("small", "big"):
        claim = rig.claim(name, ("gpu", 0, "1Gi" if name == "small" else "8Gi", "10"))
        rig.prepare(claim)
        hooks += json.loads(rig.file(claim).read_text())["containerEdits"]["hooks"]
    config: dict[str, object] = {
        "hooks": {"createRuntime": [h for h in hooks if h["hookName"] == "createRuntime"]}
    }
    with pytest.raises(RequestError, match="parts of two claims"):
        bundle.request_of(config)
