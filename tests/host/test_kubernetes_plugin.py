# SPDX-License-Identifier: MIT
"""The device plugin before a kubelet and an API server that speak their protocols to it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pycgpu.cli import main
from pycgpu.errors import CgpuError, NodeError, RequestError
from pycgpu.kubernetes import apiserver, extender, messages, placement
from pycgpu.kubernetes.apiserver import Access, ApiError, Session
from pycgpu.kubernetes.device_plugin import FORGOTTEN_S, Plugin
from pycgpu.kubernetes.dra import Driver
from pycgpu.kubernetes.families import FAMILIES, Amounts, Config
from pycgpu.kubernetes.health import HARMLESS
from pycgpu.kubernetes.kubelet import Kubelet
from pycgpu.kubernetes.mapping import Mapping
from pycgpu.kubernetes.node import ANNOTATION, Node, Place
from pycgpu.kubernetes.pods import Need, Part
from pycgpu.oci import bundle
from pycgpu.request import permit
from pycgpu.request.model import GIB, MIB, Card
from pycgpu.tree import procfs
from tests.host import program
from tests.host.coretree import CoreTree
from tests.host.kubelet import ApiPeer, KubeletPeer, Refused

GPU = "nvidia.com/gpu"
TWO_CARDS = ((16 * GIB, 0), (16 * GIB, 0))
FOUR = (FAMILIES["hami"], FAMILIES["alibaba"], FAMILIES["volcengine"], FAMILIES["tencent"])


class Rig:
    """A node of two cards of 16 GiB, its kubelet, its API server and the plugin between them."""

    def __init__(
        self,
        path: Path,
        offered: Config,
        cards: Sequence[tuple[int, int]] = TWO_CARDS,
        ratio: int = 100,
        wanted_ratio: int | None = None,
    ) -> None:
        self.wanted_ratio = wanted_ratio
        self.path = path
        self.offered = offered
        self.forgotten_s = FORGOTTEN_S
        self.tree = CoreTree(path / "tree", cards)
        for card in self.tree.cards:
            self.tree.host.card[card].overcommit_ratio = ratio
        self.tree.write()
        # Short: a socket's path has 107 bytes.
        self.kubelet = KubeletPeer(path / "k")
        self.api = ApiPeer()
        self.cards = [f"GPU-00000000-0000-0000-0000-{n:012}" for n in (1, 2)]

    def start(self, awaited: Sequence[str] | None = None) -> None:
        place = Place(
            ("/usr/lib/cgpu/cgpu-hook",),
            str(self.tree.root),
            str(self.path),
            str(self.path / "cdi"),
            overcommit_ratio=self.wanted_ratio,
        )
        self.node = Node(
            "node",
            self.offered,
            Mapping(str(self.path / "state/mapping.json")),
            Kubelet(str(self.kubelet.directory)),
            Access(self.api.url, "/nowhere", "/nowhere"),
            place,
        )
        self.plugin = Plugin(self.node, self.forgotten_s)
        self.thread = threading.Thread(target=self.plugin.run)
        self.thread.start()
        for resource in awaited or [family.anchor_name for family in self.offered.families]:
            self.kubelet.await_plugin(resource)

    def stop(self) -> None:
        self.plugin.ended.set()
        self.thread.join()

    def run(
        self, name: str, resource: str = GPU, count: int = 1, uid: str | None = None, **limits: int
    ) -> list[str]:
        """A pod of one container, up to where its engine makes it; return the cards it is given."""
        asked = {f"nvidia.com/{key.replace('_', '-')}": str(n) for key, n in limits.items()}
        self.api.add(name, uid, main={resource: str(count), **asked})
        self.kubelet.admit(name, "main", resource, count)
        self.kubelet.start(name, "main", resource)
        return self.given(name, resource)

    def given(self, name: str, resource: str = GPU, container: str = "main") -> list[str]:
        return self.settings(name, resource, container)["CGPU_GPU"].split(",")

    def settings(self, name: str, resource: str = GPU, container: str = "main") -> dict[str, str]:
        """What the container's hook is told."""
        edits = self.specification(name, resource, container)["containerEdits"]
        assert [hook["hookName"] for hook in edits["hooks"]] == ["createRuntime", "poststop"]
        words = edits["hooks"][0]["args"]
        assert words[0] == "cgpu-hook"
        assert words[-1] == "createRuntime"
        pairs = zip(words[1:-1:2], words[2:-1:2], strict=True)
        words = list(pairs)
        assert ("--pod", self.api.pods[name]["metadata"]["uid"]) in words
        own = f"{container}:"
        return dict(
            text.removeprefix(own).split("=", 1)
            for option, text in words
            if option == "--set" or (option == "--set-for" and text.startswith(own))
        )

    def specification(self, name: str, resource: str = GPU, container: str = "main") -> Any:
        ids = self.kubelet.pods["default", name][container][resource]
        specification = json.loads((self.path / f"cdi/cgpu-{min(ids)}.json").read_text())
        assert specification["kind"] == "cgpu.io/container"
        (device,) = specification["devices"]
        assert device["name"] == min(ids)
        return specification

    def config(self, name: str, *environment: str, container: str = "main") -> dict[str, object]:
        """The bundle of its container, whose image and pod set *environment*."""
        specification = self.specification(name, container=container)
        edits = specification["devices"][0]["containerEdits"]
        hooks: dict[str, Any] = {}
        for hook in specification["containerEdits"]["hooks"]:
            rest = {key: value for key, value in hook.items() if key != "hookName"}
            hooks.setdefault(hook["hookName"], []).append(rest)
        # As engines apply a device: what it sets replaces what was there.
        env = dict(entry.split("=", 1) for entry in (*environment, *edits["env"]))
        return {"process": {"env": [f"{k}={v}" for k, v in env.items()]}, "hooks": hooks}

    def enter(self, name: str, cid: str, cards: str, container: str = "main") -> None:
        """The container has been made: the tree has it, and the kubelet's link its name."""
        self.tree.create(cid, *cards.split())
        logs = self.path / "var/log/containers"
        logs.mkdir(parents=True, exist_ok=True)
        uid = self.api.pods[name]["metadata"]["uid"]
        target = f"/var/log/pods/default_{name}_{uid}/{container}/0.log"
        (logs / f"{name}_default_{container}-{cid}.log").symlink_to(target)


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(
        *families: Any,
        placement: str = "binpack",
        cards: Sequence[tuple[int, int]] = TWO_CARDS,
        **ratios: int,
    ) -> Rig:
        rig = Rig(tmp_path, Config(families or (FAMILIES["hami"],), placement), cards, **ratios)
        made.append(rig)
        rig.start()
        return rig

    yield make
    for rig in made:
        rig.stop()
        rig.kubelet.stop()
        rig.api.stop()


@pytest.fixture
def rig(rigs: Callable[..., Rig]) -> Rig:
    return rigs()


def wait(until: Callable[[], bool], what: str) -> None:
    waiting = threading.Event()
    for _ in range(300):
        if until():
            return
        waiting.wait(0.1)
    raise AssertionError(what)


def test_every_familys_anchor_is_ids_and_the_rest_stands_in_the_nodes_status(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(*FOUR)
    anchors = {
        GPU: 40,
        "aliyun.com/gpu-mem": 32,
        "vke.volcengine.com/mgpu-core": 200,
        "tke.cloud.tencent.com/qgpu-core": 200,
    }
    for resource, number in anchors.items():
        devices = rig.kubelet.devices(resource)
        assert len(devices) == number
        assert set(devices.values()) == {"Healthy"}
    status = {
        "nvidia.com/gpumem": "32768",
        "nvidia.com/gpumem-percentage": "200",
        "nvidia.com/gpucores": "200",
        "aliyun.com/gpu-core.percentage": "200",
        "vke.volcengine.com/mgpu-memory": "32768",
        "tke.cloud.tencent.com/qgpu-memory": "32",
    }
    wait(lambda: rig.api.patches > 0, "the node's status")
    assert rig.api.node["status"]["capacity"] == {"cpu": "4", **status}
    assert rig.api.node["status"]["allocatable"] == status
    cards = json.loads(rig.api.node["metadata"]["annotations"][ANNOTATION])
    assert [card["uuid"] for card in cards] == rig.cards
    said = rig.api.conditions["CgpuModule"]
    assert (said["status"], said["reason"]) == ("True", "ModuleLoaded")
    assert not rig.node.publish()


def test_a_pods_amounts_become_settings_of_its_hook(rig: Rig) -> None:
    assert rig.run("job", gpucores=30, gpumem=3000) == [rig.cards[0]]
    assert rig.settings("job") == {
        "CGPU_GPU": rig.cards[0],
        "CGPU_MEM": "3000MiB",
        "CGPU_QUOTA": "30",
    }
    edits = rig.specification("job")["devices"][0]["containerEdits"]
    assert edits == {
        "deviceNodes": [{"path": "/dev/nvidia0"}],
        "env": [f"NVIDIA_VISIBLE_DEVICES={rig.cards[0]}"],
    }


@pytest.mark.parametrize("allowed", [permit.DEFAULT, permit.Permit(annotations_only=True)])
def test_no_image_changes_what_its_pod_was_given(rig: Rig, allowed: permit.Permit) -> None:
    rig.run("job", gpucores=30, gpumem=3000)
    image = ("CGPU_MEM=max", "CGPU_QUOTA=99", "CGPU_GPU=all", "NVIDIA_VISIBLE_DEVICES=all")
    request = bundle.request_of(rig.config("job", *image), allowed)
    assert request is not None
    (share,) = request.shares
    assert share.memory is not None
    assert (share.memory.on(16 * GIB), share.quota) == (3000 * MIB, 30)
    assert request.selectors == (rig.cards[0],)
    off = rig.config(
        "job", "CGPU_DISABLE=1", "EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=3,WEIGHT=1"
    )
    if allowed.annotations_only:
        assert bundle.request_of(off, allowed) == request
    else:
        with pytest.raises(RequestError, match="CGPU_DISABLE='1': an image could set it"):
            bundle.request_of(off, allowed)


def test_allocate_names_the_device_that_is_written_later(rig: Rig) -> None:
    rig.api.add("job", main={GPU: "1"})
    (name,) = rig.kubelet.admit("job", "main", GPU, 1)
    assert not (rig.path / "cdi").exists()
    rig.kubelet.start("job", "main", GPU)
    assert name == f"cgpu.io/container={rig.specification('job')['devices'][0]['name']}"


def test_without_sizes_a_pod_gets_the_whole_card(rig: Rig) -> None:
    assert rig.run("one") == [rig.cards[0]]
    assert rig.settings("one")["CGPU_MEM"] == "16384MiB"
    assert rig.run("two") == [rig.cards[1]]
    with pytest.raises(Refused, match="1 of 2 cards asked, 0 have room: card 0: 16384 MiB asked"):
        rig.run("three")


def test_parts_that_fit_the_node_but_no_card_are_refused(rig: Rig) -> None:
    """60 % and 60 % go to two cards, and a third has nowhere to go."""
    assert rig.run("one", gpucores=60, gpumem=1000) == [rig.cards[0]]
    assert rig.run("two", gpucores=60, gpumem=1000) == [rig.cards[1]]
    with pytest.raises(Refused, match=r"card 0: .*60 % .*card 1: "):
        rig.run("three", gpucores=60, gpumem=1000)
    assert rig.run("four", gpucores=40, gpumem=1000) == [rig.cards[0]]


def test_what_is_promised_counts_before_the_container_is_there(rig: Rig) -> None:
    """A burst: the kubelet makes many containers before the first of them has entered."""
    cards = [rig.run(f"burst{n}", gpumem=3000, gpucores=20)[0] for n in range(10)]
    assert cards == [rig.cards[0]] * 5 + [rig.cards[1]] * 5
    with pytest.raises(Refused, match="0 have room"):
        rig.run("last", gpumem=3000, gpucores=20)


def test_who_has_entered_counts_once(rig: Rig) -> None:
    assert rig.run("one", gpumem=10000) == [rig.cards[0]]
    rig.enter("one", "a" * 64, f"gpu=0,mem={10000 * MIB}")
    assert rig.run("two", gpumem=6000) == [rig.cards[0]]


def test_containers_that_kubernetes_does_not_know_count_too(rig: Rig) -> None:
    rig.tree.create("b" * 64, f"gpu=0,mem={10000 * MIB}")
    assert rig.run("one", gpumem=10000) == [rig.cards[1]]


def test_a_pod_says_after_which_time_it_is_parked(rig: Rig) -> None:
    rig.api.add("a", None, main={GPU: "1", "nvidia.com/gpumem": "2000"})
    rig.api.pods["a"]["metadata"]["annotations"] = {"cgpu.io/idle-park": "10m"}
    rig.kubelet.admit("a", "main", GPU, 1)
    rig.kubelet.start("a", "main", GPU)
    assert rig.settings("a")["CGPU_IDLE_PARK"] == "10m"
    rig.stop()
    rig.kubelet.registered = {}
    rig.start()
    assert rig.settings("a")["CGPU_IDLE_PARK"] == "10m"
    rig.run("b", gpumem=1000)
    assert "CGPU_IDLE_PARK" not in rig.settings("b")


def test_pods_of_a_namespaces_group_get_its_card_and_its_name(rigs: Callable[..., Rig]) -> None:
    rig = rigs(placement="spread")

    def join(pod: str, name: str, **limits: int) -> list[str]:
        rig.api.add(
            pod, None, main={GPU: "1", **{f"nvidia.com/{k}": str(n) for k, n in limits.items()}}
        )
        rig.api.pods[pod]["metadata"]["annotations"] = {"cgpu.io/group": name}
        rig.kubelet.admit(pod, "main", GPU, 1)
        rig.kubelet.start(pod, "main", GPU)
        return rig.given(pod)

    # A member's cores are of its group's threads: more than a card's fit on it.
    first = join("a", "chat", gpumem=2000, gpucores=60)
    assert rig.settings("a")["CGPU_QUOTA"] == "60"
    assert rig.settings("a")["CGPU_GROUP"] == "chat"
    # Others go to the emptiest card; a member where its group is, before the server is there.
    assert rig.run("other", gpumem=1000) != first
    assert join("b", "default/chat", gpumem=2000, gpucores=60) == first
    assert join("c", "work", gpumem=1000) != first
    rig.stop()
    rig.kubelet.registered = {}
    rig.start()
    # A card without room for a member is not made up for by another.
    with pytest.raises(Refused, match="have room"):
        join("d", "chat", gpumem=13000)
    # The server tells, too.
    rig.tree.create("default.late", f"gpu=1,mem={MIB}")
    assert join("e", "late", gpumem=1000) == [rig.cards[1]]


def test_spread_takes_the_emptiest_card(rigs: Callable[..., Rig]) -> None:
    rig = rigs(placement="spread")
    assert rig.run("one", gpumem=1000) == [rig.cards[0]]
    assert rig.run("two", gpumem=1000) == [rig.cards[1]]


def test_the_containers_of_a_pod_get_the_same_card(rigs: Callable[..., Rig]) -> None:
    rig = rigs(placement="spread")
    limits = {GPU: "1", "nvidia.com/gpumem": "1000"}
    rig.api.add("pair", left=limits, right=limits)
    for container in ("left", "right"):
        rig.kubelet.admit("pair", container, GPU, 1)
    for container in ("left", "right"):
        rig.kubelet.start("pair", container, GPU)
    assert rig.given("pair", container="left") == rig.given("pair", container="right")


def test_containers_of_a_pod_get_what_each_asks(rig: Rig) -> None:
    rig.api.add(
        "pair",
        left={GPU: "1", "nvidia.com/gpumem": "1000"},
        right={GPU: "1", "nvidia.com/gpumem": "2000", "nvidia.com/gpucores": "10"},
    )
    for container in ("left", "right"):
        rig.kubelet.admit("pair", container, GPU, 1)
    for container in ("right", "left"):
        rig.kubelet.start("pair", container, GPU)
    assert rig.settings("pair", container="left")["CGPU_MEM"] == "1000MiB"
    assert "CGPU_QUOTA" not in rig.settings("pair", container="left")
    assert rig.settings("pair", container="right")["CGPU_QUOTA"] == "10"


def limits(mib: int, **more: int) -> dict[str, str]:
    others = {f"nvidia.com/{key}": str(n) for key, n in more.items()}
    return {GPU: "1", "nvidia.com/gpumem": str(mib), **others}


def held_to(rig: Rig, name: str, container: str) -> Any:
    """What the hook of a container makes of the device that is there for it now, in MiB."""
    config = rig.config(name, container=container)
    config["annotations"] = {
        "io.kubernetes.cri.container-name": container,
        "io.kubernetes.cri.sandbox-uid": f"uid-{name}",
    }
    request = bundle.request_of(config)
    assert request is not None and request.shares[0].memory is not None
    return request.shares[0].memory.on(16 * GIB) // MIB


@pytest.mark.parametrize("total", [8 * GIB, 16 * GIB])
def test_containers_after_an_init_container_are_held_to_what_they_asked(
    rigs: Callable[..., Rig], total: int
) -> None:
    """They run when it has ended, and the first of them has its ids."""
    rig = rigs(cards=((total, 0),))
    rig.api.add("job", init=limits(6000), a=limits(2000), b=limits(2000, gpucores=10))
    rig.kubelet.admit_pod(rig.api.pods["job"], GPU)
    rig.kubelet.start("job", "init", GPU)
    assert held_to(rig, "job", "init") == 6000
    rig.enter("job", "1" * 64, f"gpu=0,mem={6000 * MIB}", "init")
    rig.tree.destroy("1" * 64)
    for number, container in enumerate("ab", 2):
        rig.kubelet.start("job", container, GPU)
        assert held_to(rig, "job", container) == 2000
        rig.enter("job", str(number) * 64, f"gpu=0,mem={2000 * MIB}", container)
    # Its init container may run again, and the scheduler counts its room, too.
    left = (total >> 20) - 6000
    with pytest.raises(Refused, match="0 have room"):
        rig.run("more", gpumem=left + 1)
    assert rig.run("other", gpumem=left) == rig.cards[:1]


def test_an_init_container_counts_once_while_it_runs(rigs: Callable[..., Rig]) -> None:
    rig = rigs(cards=((16 * GIB, 0),))
    rig.api.add("job", init=limits(6000), a=limits(2000))
    rig.kubelet.admit_pod(rig.api.pods["job"], GPU)
    rig.kubelet.start("job", "init", GPU)
    rig.enter("job", "1" * 64, f"gpu=0,mem={6000 * MIB}", "init")
    assert rig.run("other", gpumem=10000) == rig.cards[:1]


def test_a_sidecar_is_beside_what_comes_after_it(rigs: Callable[..., Rig]) -> None:
    rig = rigs(cards=((8 * GIB, 0),))
    rig.api.add("job", sidecar=limits(2000), init=limits(6000), a=limits(6000))
    rig.kubelet.admit_pod(rig.api.pods["job"], GPU)
    for container in ("sidecar", "init"):
        rig.kubelet.start("job", container, GPU)
        assert rig.settings("job", container=container)["CGPU_MEM"].endswith("000MiB")
    rig.kubelet.start("job", "a", GPU)
    rig.api.add("more", sidecar=limits(1000))
    with pytest.raises(Refused, match="0 have room"):
        rig.run("other", gpumem=1000)


def test_an_init_container_with_more_cards_has_its_own(rig: Rig) -> None:
    rig.api.add("job", init={GPU: "2", "nvidia.com/gpumem": "9000"}, a=limits(1000), b=limits(2000))
    rig.kubelet.admit_pod(rig.api.pods["job"], GPU)
    rig.kubelet.start("job", "init", GPU)
    assert rig.given("job", container="init") == rig.cards
    assert rig.settings("job", container="init")["CGPU_MEM"] == "9000MiB"
    for container, mib in (("a", 1000), ("b", 2000)):
        rig.kubelet.start("job", container, GPU)
        assert rig.settings("job", container=container)["CGPU_MEM"] == f"{mib}MiB"


def test_a_device_of_two_containers_needs_an_engine_that_names_them(rig: Rig) -> None:
    rig.api.add("job", init=limits(6000), a=limits(2000))
    rig.kubelet.admit_pod(rig.api.pods["job"], GPU)
    rig.kubelet.start("job", "init", GPU)
    config = rig.config("job", container="a")
    said: dict[str, str]
    for said in (
        {},
        {"io.kubernetes.cri.container-name": "b"},
        # By the engine's own mark it is one, and by a pod's annotation the other.
        {"io.kubernetes.cri.container-name": "a", "io.kubernetes.container.name": "init"},
    ):
        config["annotations"] = said
        with pytest.raises(RequestError, match="its device is for a, init, and the engine says"):
            bundle.request_of(config)


KEPT = 450 * MIB


@pytest.mark.parametrize(
    ("ratio", "parts"),
    [
        (100, [(95, "percent"), (5, "percent")]),
        (100, [(745, "mib")] * 20),
        (200, [(95, "percent"), (5, "percent"), (100, "percent")]),
        (200, [(7455, "mib")] * 4),
        (150, [(100, "percent"), (7680, "mib")]),
    ],
)
def test_what_is_published_counted_and_given_is_one_number(
    rigs: Callable[..., Rig], ratio: int, parts: list[tuple[int, str]]
) -> None:
    """Of 15360 MiB the driver keeps 450; what the extender finds room for the node gives."""
    rig = rigs(cards=((15360 * MIB, KEPT),), ratio=ratio)
    published = 15360 * ratio // 100 - 450
    wait(lambda: rig.api.patches > 0, "the node's status")
    assert rig.api.node["status"]["capacity"]["nvidia.com/gpumem"] == str(published)
    assert rig.api.node["status"]["capacity"]["nvidia.com/gpumem-percentage"] == str(ratio)
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    cluster.node("node", rig.api.node["metadata"]["annotations"])
    given = 0
    for number, (amount, unit) in enumerate(parts):
        name = f"p{number}"
        key = "gpumem" if unit == "mib" else "gpumem-percentage"
        rig.api.add(name, main={GPU: "1", f"nvidia.com/{key}": str(amount)})
        cluster.reserve({**rig.api.pods[name]}, "node")
        rig.kubelet.admit(name, "main", GPU, 1)
        rig.kubelet.start(name, "main", GPU)
        mib = int(rig.settings(name)["CGPU_MEM"].removesuffix("MiB"))
        rig.enter(name, f"{number:064}", f"gpu=0,mem={mib * MIB}")
        given += mib
        assert cluster.nodes["node"][0].free_memory == published - given
    over = {GPU: "1", "nvidia.com/gpumem": str(published - given + 1)}
    rig.api.add("over", main=over)
    with pytest.raises(CgpuError, match="no card of node has room"):
        cluster.reserve(rig.api.pods["over"], "node")
    with pytest.raises(Refused, match=r"0 (have room|of nvidia.com/gpu)"):
        rig.kubelet.admit("over", "main", GPU, 1)
        rig.kubelet.start("over", "main", GPU)


@pytest.mark.parametrize("ratio", [100, 300])
def test_more_than_a_card_can_give_is_not_given(rigs: Callable[..., Rig], ratio: int) -> None:
    """
    Two cards are published as their sum, by which a stock scheduler takes such a pod.

    So is a card that promises more than it has, of which no container has more than the card.
    """
    rig = rigs(cards=((15360 * MIB, KEPT),) * 2, ratio=ratio)
    wait(lambda: rig.api.patches > 0, "the node's status")
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    cluster.node("node", rig.api.node["metadata"]["annotations"])
    rig.api.add("wide", main={GPU: "1", "nvidia.com/gpumem": "14911"})
    with pytest.raises(CgpuError, match="no card of node has room"):
        cluster.reserve(rig.api.pods["wide"], "node")
    with pytest.raises(Refused, match="15000 MiB asked, 14910 MiB free"):
        rig.run("one", gpumem=15000)
    assert rig.run("two", gpumem=14910) == rig.cards[:1]


def test_a_ratio_of_the_cluster_is_kept_where_the_node_says_none(
    rigs: Callable[..., Rig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "etc/cgpu/cards.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[GPU-00000000-0000-0000-0000-000000000002]\novercommit_ratio = 120\n")
    rig = rigs(FAMILIES["alibaba"], wanted_ratio=200)

    def ratios() -> list[int]:
        root = str(rig.tree.root)
        return [procfs.read_overcommit_ratio(card, root) for card in rig.tree.cards]

    # 32 of the first card, and 120 % of 16, rounded down.
    assert len(rig.kubelet.devices("aliyun.com/gpu-mem")) == 32 + 19
    assert ratios() == [200, 120]
    # As a driver that is loaded anew has them.
    rig.tree.write()
    assert ratios() == [100, 100]
    rig.node.publish()
    assert ratios() == [200, 120]
    file.write_text("[default]\novercommit_ratio = much\n")
    rig.node.publish()
    rig.node.publish()
    assert caplog.text.count("cards keep their overcommit_ratio") == 1
    assert ratios() == [200, 120]


@pytest.mark.parametrize("command", ["device-plugin", "dra-driver"])
def test_a_nodes_programs_take_the_ratio(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(Plugin, "run", lambda self: seen.append(self.node.overcommit.ratio))
    monkeypatch.setattr(Driver, "run", lambda self: seen.append(self.overcommit.ratio))
    options = [command, "--node", "node", "--api", "http://127.0.0.1:1", "--no-libraries"]
    options += ["--mapping", str(tmp_path / "mapping.json")] if command == "device-plugin" else []
    assert program.run(main.app, *options).returncode == 0
    assert program.run(main.app, *options, "--overcommit-ratio", 150).returncode == 0
    assert seen == [None, 150]
    refused = program.run(main.app, *options, "--overcommit-ratio", 99)
    assert (refused.returncode, len(seen)) == (2, 2)


def test_without_a_ratio_of_the_cluster_cards_stay_as_they_are(rigs: Callable[..., Rig]) -> None:
    rig = rigs(ratio=170)
    rig.node.publish()
    assert procfs.read_overcommit_ratio(0, str(rig.tree.root)) == 170


def test_a_card_that_has_promised_more_keeps_its_ratio_and_the_log_says_so(
    rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(card: int, name: str, value: int, root: str) -> None:
        raise NodeError(f"{root}/{card}/{name}", errno.EBUSY, "(EBUSY)", str(value))

    monkeypatch.setattr(procfs, "write_setting", refuse)
    rig = rigs(ratio=200, wanted_ratio=150)
    rig.node.publish()
    assert "card 0 keeps overcommit_ratio 200: " in caplog.text
    described = json.loads(rig.api.node["metadata"]["annotations"][ANNOTATION])
    assert [card["promisable"] for card in described] == [32768, 32768]


def test_a_mapping_of_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    entry = {
        "resource": GPU,
        "ids": ["hami-00001"],
        "uid": "uid-one",
        "holder": ["default", "one", "main"],
        "cards": ["GPU-1"],
        "amounts": [1, 1000 * MIB, None, 30],
    }
    path.write_text(json.dumps({"version": 1, "entries": [entry]}))
    mapping = Mapping(str(path))
    (found,) = mapping.entries.values()
    assert found.parts == {"main": Part(Amounts(1, 1000 * MIB, None, 30))}
    mapping.put(found)
    assert Mapping(str(path)).entries == mapping.entries


def test_the_card_that_the_scheduler_chose_is_taken_if_it_has_room(rig: Rig) -> None:
    def run(name: str, text: str) -> list[str]:
        rig.api.add(name, main={GPU: "1", "nvidia.com/gpumem": "9000"})
        rig.api.pods[name]["metadata"]["annotations"] = {ANNOTATION: text}
        rig.kubelet.admit(name, "main", GPU, 1)
        rig.kubelet.start(name, "main", GPU)
        return rig.given(name)

    assert run("one", json.dumps({"main": [rig.cards[1]]})) == [rig.cards[1]]
    assert run("two", json.dumps({"main": [rig.cards[1]]})) == [rig.cards[0]]
    for number, text in enumerate(("[", '{"main": 1}', '{"main": ["no card"]}')):
        with pytest.raises(Refused, match="0 have room"):
            run(f"more{number}", text)


def test_two_cards_are_two(rig: Rig) -> None:
    assert rig.run("pair", count=2, gpumem=3000) == rig.cards
    edits = rig.specification("pair")["devices"][0]["containerEdits"]
    assert edits["deviceNodes"] == [
        {"path": "/dev/nvidia0"},
        {"path": "/dev/nvidia1"},
    ]


def test_a_container_that_starts_again_keeps_its_card(rig: Rig) -> None:
    assert rig.run("filler", gpumem=9000) == [rig.cards[0]]
    assert rig.run("job", gpumem=9000) == [rig.cards[1]]
    del rig.kubelet.pods["default", "filler"]
    (rig.path / "cdi").rename(rig.path / "before-the-reboot")
    rig.kubelet.start("job", "main", GPU)
    assert rig.given("job") == [rig.cards[1]]


def test_a_container_starts_again_while_the_api_server_is_away(rig: Rig) -> None:
    assert rig.run("job", gpumem=9000) == [rig.cards[0]]
    rig.api.stop()
    rig.kubelet.start("job", "main", GPU)
    with pytest.raises(Refused, match="cgpu: http"):
        rig.run("other", gpumem=1000)


def test_ids_of_a_pod_that_is_gone_promise_nothing(rig: Rig) -> None:
    for n in range(3):
        assert rig.run(f"pod{n}", gpumem=16384) == [rig.cards[0]]
        stale = min(rig.kubelet.pods["default", f"pod{n}"]["main"][GPU])
        del rig.kubelet.pods["default", f"pod{n}"]
        assert list(rig.node.mapping.entries) == [(GPU, stale)]
    assert rig.run("last", "nvidia.com/gpu", gpumem=16384) == [rig.cards[0]]
    assert len(list((rig.path / "cdi").glob("*.json"))) == 1


def test_a_pod_of_the_same_name_is_another(rig: Rig) -> None:
    rig.run("web-0", uid="first", gpumem=2000)
    del rig.kubelet.pods["default", "web-0"]
    rig.run("web-0", uid="second", gpumem=1000)
    assert rig.settings("web-0")["CGPU_MEM"] == "1000MiB"


def test_the_mapping_outlives_the_plugin(rig: Rig) -> None:
    assert rig.run("one", gpumem=10000) == [rig.cards[0]]
    rig.stop()
    rig.kubelet.registered = {}
    rig.start()
    assert rig.run("two", gpumem=10000) == [rig.cards[1]]
    rig.kubelet.start("one", "main", GPU)
    assert rig.given("one") == [rig.cards[0]]


def test_after_a_restart_the_tree_is_believed(rig: Rig) -> None:
    assert rig.run("one", gpumem=1000) == [rig.cards[0]]
    rig.enter("one", "c" * 64, f"gpu=1,mem={1000 * MIB}")
    rig.stop()
    rig.kubelet.registered = {}
    rig.start()
    (entry,) = rig.node.mapping.entries.values()
    assert entry.cards == (rig.cards[1],)
    assert rig.node.verify() == []


def test_what_has_come_since_the_cards_were_read_counts(rig: Rig) -> None:
    """Between two looks a container goes from the promised to those that run."""
    cid = "c" * 64
    for first, asked in (("running", {}), ("cards", {"tenants": True})):
        one, two = f"{first}-one", f"{first}-two"
        assert rig.run(one, gpumem=10000) == [rig.cards[0]]
        whole = getattr(rig.node, first)

        def look(name: str = one, whole: Any = whole, asked: Any = asked, **options: Any) -> Any:
            found = whole(**options)
            if cid not in rig.tree.containers and options == asked:
                rig.enter(name, cid, f"gpu=0,mem={10000 * MIB}")
            return found

        setattr(rig.node, first, look)
        assert rig.run(two, gpumem=10000) == [rig.cards[1]]
        assert cid in rig.tree.containers
        delattr(rig.node, first)
        for name in (one, two):
            del rig.kubelet.pods["default", name]
        rig.tree.destroy(cid)


def test_a_pod_of_the_same_name_may_still_be_ending(rig: Rig) -> None:
    """As after a deletion by force: what the second is promised is not what the first has."""
    assert rig.run("web-0", uid="first", gpumem=1000) == [rig.cards[0]]
    rig.enter("web-0", "c" * 64, f"gpu=0,mem={1000 * MIB}")
    del rig.kubelet.pods["default", "web-0"]
    assert rig.run("web-0", uid="second", gpumem=16000) == [rig.cards[1]]
    assert rig.node.verify() == []
    assert rig.run("other", gpumem=9000) == [rig.cards[0]]


def test_a_container_that_starts_again_goes_where_there_is_room(rig: Rig) -> None:
    assert rig.run("job", gpumem=9000) == [rig.cards[0]]
    rig.tree.create("d" * 64, f"gpu=0,mem={16384 * MIB}")
    rig.kubelet.start("job", "main", GPU)
    assert rig.given("job") == [rig.cards[1]]


def test_what_runs_is_kept_while_a_new_kubelet_does_not_list_it_yet(rig: Rig) -> None:
    rig.run("one", gpumem=1000)
    rig.enter("one", "c" * 64, f"gpu=0,mem={1000 * MIB}")
    listed = rig.kubelet.pods.pop(("default", "one"))
    ids = listed["main"][GPU]
    rig.api.add("two", main={GPU: "1", "nvidia.com/gpumem": "1000"})
    rig.kubelet.pods["default", "two"] = {"main": {GPU: ["hami-00030"]}}
    rig.kubelet.start("two", "main", GPU)
    rig.kubelet.pods["default", "one"] = listed
    assert {entry.ids for entry in rig.node.mapping.entries.values()} == {
        tuple(ids),
        ("hami-00030",),
    }
    assert rig.given("one") == [rig.cards[0]]


def test_a_burst_is_one_look_at_the_node_and_one_connection(rig: Rig) -> None:
    names = [f"p{n}" for n in range(10)]
    for name in (*names, "late"):
        rig.api.add(name, main={GPU: "1", "nvidia.com/gpumem": "3000"})
        rig.kubelet.admit(name, "main", GPU, 1)
    del rig.api.pods["p3"]
    refused: list[str] = []

    def start(name: str) -> None:
        try:
            rig.kubelet.start(name, "main", GPU)
        except Refused as error:
            refused.append(f"{name}: {error}")

    threads = [threading.Thread(target=start, args=(name,)) for name in names]
    with rig.node._lock:
        for thread in threads:
            thread.start()
        wait(lambda: rig.node._asks.qsize() == len(names), "all of them wait")
    for thread in threads:
        thread.join()
    assert rig.kubelet.lists == 1
    assert len(rig.api.connections) == 1
    # One that fails is nobody else's failure, and nobody waits for those after it.
    (why,) = refused
    assert why.startswith("p3: ") and "not found" in why
    cards = [rig.given(name)[0] for name in names if name != "p3"]
    assert [cards.count(card) for card in rig.cards] == [5, 4]
    rig.kubelet.start("late", "main", GPU)
    assert rig.given("late") == [rig.cards[1]]


def test_a_server_that_does_not_answer_keeps_a_burst_waiting_once() -> None:
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def turn_away() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = server.accept()
                    came.append(one)
                    one.close()

        thread = threading.Thread(target=turn_away)
        thread.start()
        port = server.getsockname()[1]
        session = Session(Access(f"http://127.0.0.1:{port}", "/nowhere", "/nowhere"))
        for _ in range(3):
            with pytest.raises(ApiError, match=str(port)) as raised:
                apiserver.pod(session, "default", "one")
            assert raised.value.code == 0
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert len(came) == 1


def test_who_is_served_first_does_not_wait_for_the_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["first", "second"]
    for name in names:
        rig.api.add(name, main={GPU: "1", "nvidia.com/gpumem": "3000"})
        rig.kubelet.admit(name, "main", GPU, 1)
    whole, go_on = rig.node._prepared, threading.Event()
    served: list[Any] = []

    def prepared(*words: Any) -> Any:
        if served:
            assert go_on.wait(30)
        served.append(words)
        return whole(*words)

    monkeypatch.setattr(rig.node, "_prepared", prepared)
    ids = [rig.kubelet.pods["default", name]["main"][GPU] for name in names]
    with concurrent.futures.ThreadPoolExecutor(2) as callers:
        with rig.node._lock:
            asked = [callers.submit(rig.node.prepare, FAMILIES["hami"], one) for one in ids]
            wait(lambda: rig.node._asks.qsize() == 2, "both wait")
        done, _ = concurrent.futures.wait(asked, 30, concurrent.futures.FIRST_COMPLETED)
        assert len(done) == 1
        go_on.set()
    assert all(one.result().cards for one in asked)


def test_what_nobody_waits_for_any_more_is_not_done(rig: Rig) -> None:
    rig.run("one", gpumem=1000)
    (entry,) = rig.node.mapping.entries.values()
    (rig.path / f"cdi/cgpu-{entry.ids[0]}.json").unlink()
    with pytest.raises(CgpuError, match="has not waited"):
        rig.node.prepare(FAMILIES["hami"], entry.ids, lambda: False)
    assert not list((rig.path / "cdi").glob("*.json"))


def test_two_plugins_do_not_promise_the_same(rig: Rig) -> None:
    other = Plugin(rig.node)
    with pytest.raises(CgpuError, match="another device plugin runs on this node"):
        other.run()
    assert rig.run("one", gpumem=1000) == [rig.cards[0]]


def test_an_engine_that_has_not_read_a_pods_device_starts_nothing(rig: Rig) -> None:
    """The same id was another pod's, with other limits, a moment ago."""
    rig.run("one", gpumem=1000)
    config = rig.config("one")
    for key in bundle.POD_UIDS:
        config["annotations"] = {key: "uid-one"}
        assert bundle.request_of(config) is not None
        config["annotations"] = {key: "uid-two"}
        with pytest.raises(RequestError, match="was made for pod uid-one"):
            bundle.request_of(config)


def test_a_kubelet_that_was_started_anew_finds_the_plugin(rig: Rig) -> None:
    rig.run("one", gpumem=1000)
    for _ in range(3):
        rig.kubelet.restart()
        rig.kubelet.await_plugin(GPU)
        rig.kubelet.start("one", "main", GPU)
    assert rig.run("two", gpumem=1000) == [rig.cards[0]]


def test_ids_that_nobody_has_get_nothing(rig: Rig) -> None:
    request = messages.ContainerRequest(["hami-00007"])
    with pytest.raises(Refused, match="the kubelet lists no container with hami-00007"):
        rig.kubelet.call(GPU, "PreStartContainer", request, messages.Empty)
    assert rig.node.mapping.entries == {}


def test_a_failed_card_takes_its_ids_with_it(rig: Rig) -> None:
    rig.run("one", gpumem=1000)
    (held,) = rig.kubelet.pods["default", "one"]["main"][GPU]
    for xid in HARMLESS:
        rig.node.health.tell(rig.cards[0], xid)
    assert set(rig.kubelet.devices(GPU).values()) == {"Healthy"}
    rig.node.health.tell(rig.cards[0], 79)
    devices = rig.kubelet.devices(GPU)
    assert devices[held] == "Unhealthy"
    assert list(devices.values()).count("Unhealthy") == 20
    wait(
        lambda: rig.api.node["status"]["capacity"].get("nvidia.com/gpumem") == "16384",
        "less memory in the node's status",
    )
    assert rig.run("two", gpumem=1000) == [rig.cards[1]]


def test_a_kubelet_that_follows_the_list_no_more_is_told_again(rig: Rig) -> None:
    """It never asks for it again by itself, and takes every card for lost."""
    rig.stop()
    rig.kubelet.registered = {}
    rig.forgotten_s = 1
    rig.start()
    for _ in range(2):
        rig.kubelet.await_list(bool, GPU)
        before = rig.kubelet.registrations[GPU]
        rig.kubelet.drop(GPU)
        wait(lambda n=before: rig.kubelet.registrations[GPU] > n, "a registration")  # type: ignore[misc]
    rig.kubelet.await_list(bool, GPU)
    assert rig.run("one", gpumem=1000) == [rig.cards[0]]


def test_an_error_does_not_end_the_list(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.kubelet.await_list(bool, GPU)
    whole, failures = rig.node.devices, iter((OSError("what"), ValueError("what")))

    def devices(family: Any) -> Any:
        for error in failures:
            raise error
        return whole(family)

    monkeypatch.setattr(rig.node, "devices", devices)
    rig.node.health.tell(rig.cards[0], 79)
    rig.kubelet.await_list(lambda listed: "Unhealthy" in listed.values(), GPU)
    assert next(failures, None) is None
    assert rig.kubelet.registrations[GPU] == 1


def test_a_plugin_that_was_there_before_the_module_offers_its_cards_when_it_comes(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, Config((FAMILIES["hami"],), "binpack"))
    rig.tree.root.rename(tmp_path / "later")
    try:
        rig.start()
        rig.kubelet.await_list(lambda listed: not listed, GPU)
        (tmp_path / "later").rename(rig.tree.root)
        rig.kubelet.await_list(lambda listed: len(listed) == 40, GPU)
        assert rig.run("one", gpumem=1000) == [rig.cards[0]]
    finally:
        rig.stop()
        rig.kubelet.stop()
        rig.api.stop()


def test_a_family_that_the_kubelet_refuses_keeps_no_other_from_it(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(FAMILIES["hami"])
    rig.stop()
    rig.offered = Config((FAMILIES["alibaba"], FAMILIES["hami"]), "binpack")
    rig.kubelet.refused = {"aliyun.com/gpu-mem"}
    rig.kubelet.registered = {}
    rig.kubelet.registrations.clear()
    rig.start((GPU,))
    rig.kubelet.refused = set()
    rig.kubelet.await_plugin("aliyun.com/gpu-mem")
    assert rig.kubelet.registrations[GPU] == 1


@pytest.mark.parametrize(
    ("resource", "count", "settings"),
    [
        ("aliyun.com/gpu-mem", 3, {"CGPU_MEM": "3072MiB"}),
        ("vke.volcengine.com/mgpu-core", 30, {"CGPU_MEM": "16384MiB", "CGPU_QUOTA": "30"}),
    ],
)
def test_an_anchor_that_counts_parts(
    rigs: Callable[..., Rig], resource: str, count: int, settings: dict[str, str]
) -> None:
    rig = rigs(*FOUR)
    assert rig.run("job", resource, count) == [rig.cards[0]]
    assert rig.settings("job", resource).items() >= settings.items()


def test_names_of_two_vendors_share_the_same_cards(rigs: Callable[..., Rig]) -> None:
    rig = rigs(*FOUR)
    assert rig.run("one", gpumem=10000) == [rig.cards[0]]
    assert rig.run("two", "aliyun.com/gpu-mem", 10) == [rig.cards[1]]


def test_a_mapping_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    path.write_text('{"version": 3}')
    with pytest.raises(CgpuError, match="cannot read the mapping"):
        Mapping(str(path))


def test_of_cards_with_room_memory_and_compute_count_alike() -> None:
    cards = [Card(n, f"GPU-{n}", 16 * GIB) for n in range(3)]
    held = placement.reserve(cards, [("a", 0, Need(8192, 0, 1)), ("b", 1, Need(1024, 90, 1))])

    def choose(quota: int | None, where: str, *wanted: int) -> list[int]:
        asked = {"main": Amounts(1, GIB, None, quota)}
        return placement.choose(asked, {"main": held}, where, wanted)

    assert choose(5, "binpack") == [1]
    assert choose(20, "binpack") == [0]
    assert choose(None, "spread") == [2]
    assert choose(None, "spread", 1) == [1]
