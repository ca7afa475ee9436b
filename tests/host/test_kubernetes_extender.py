# SPDX-License-Identifier: MIT
"""The extender, asked over HTTP as a scheduler asks, before an API server that it watches."""

from __future__ import annotations

import http.client
import json
import queue
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pycgpu.kubernetes import extender, scheduling
from pycgpu.kubernetes.apiserver import Access
from pycgpu.kubernetes.families import FAMILIES
from pycgpu.kubernetes.pods import parts
from tests.host.json_http import JsonHandler, serving

GPU = "nvidia.com/gpu"


class Api:
    """Pods and nodes, listed and watched; what is patched and bound is kept."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {"/api/v1/nodes": {}, "/api/v1/pods": {}}
        self.events: dict[str, list[Any]] = {path: [] for path in self.objects}
        self.news = threading.Condition()
        self.era = 0
        self.bound: list[tuple[str, str]] = []
        self.refuse_binding = False
        self.touched: queue.Queue[str] = queue.Queue()
        self.lists = 0
        api = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if "watch=1" in query:
                    return self.watch(path, int(query.split("resourceVersion=")[1].split("&")[0]))
                if path in api.objects:
                    api.lists += 1
                    items = list(api.objects[path].values())
                    metadata = {"resourceVersion": str(len(api.events[path]))}
                    return self.answer(200, {"metadata": metadata, "items": items})
                name = path.rpartition("/")[2]
                return self.answer(200, api.objects["/api/v1/pods"][name])

            def watch(self, path: str, at: int) -> None:
                self.send_response(200)
                self.end_headers()
                era = api.era
                while api.era == era:
                    with api.news:
                        while api.era == era and len(api.events[path]) <= at:
                            api.news.wait()
                        new = api.events[path][at:]
                    at += len(new)
                    for event in new:
                        self.wfile.write(json.dumps(event).encode() + b"\n")

            def do_PATCH(self) -> None:
                name = self.path.rpartition("/")[2]
                wanted = self.body()["metadata"]["annotations"]
                pod = api.objects["/api/v1/pods"][name]
                pod["metadata"].setdefault("annotations", {}).update(wanted)
                if extender.AGAIN in wanted:
                    api.touched.put(name)
                self.answer(200, pod)

            def do_POST(self) -> None:
                name = self.path.split("/")[-2]
                if api.refuse_binding:
                    return self.answer(409, {"message": "the pod is bound already"})
                api.bound.append((name, self.body()["target"]["name"]))
                return self.answer(201, {})

        self.server, self.url = serving(Handler)

    def put(self, path: str, kind: str, one: Any) -> None:
        name = one["metadata"]["name"]
        if kind == "DELETED":
            self.objects[path].pop(name)
        else:
            self.objects[path][name] = one
        with self.news:
            self.events[path].append({"type": kind, "object": one})
            self.news.notify_all()

    def end_watches(self) -> None:
        """As the server does after a while."""
        with self.news:
            self.era += 1
            self.news.notify_all()


class Rig:
    def __init__(self) -> None:
        self.api = Api()
        self.ended = threading.Event()
        self.cluster = extender.Cluster((FAMILIES["hami"], FAMILIES["alibaba"]), "binpack")

    def start(self) -> None:
        access = Access(self.api.url, "/nowhere", "/nowhere")
        extender.follow(self.cluster, access, self.ended)
        self.server = extender.server(self.cluster, access, "127.0.0.1", 0)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.api.end_watches()
        self.api.server.shutdown()

    def node(self, name: str, cards: int = 2, kind: str = "ADDED") -> None:
        described = [
            {"uuid": f"{name}-{n}", "memory": 16384, "containers": 20} for n in range(cards)
        ]
        metadata = {
            "name": name,
            "uid": name,
            "annotations": {extender.ANNOTATION: json.dumps(described)},
        }
        self.api.put("/api/v1/nodes", kind, {"metadata": metadata})

    def pod(
        self,
        name: str,
        kind: str = "ADDED",
        node: str | None = None,
        group: str | None = None,
        **limits: int,
    ) -> Any:
        asked = {f"nvidia.com/{key}": str(n) for key, n in {"gpu": 1, **limits}.items()}
        spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": asked}}]}
        if node is not None:
            spec["nodeName"] = node
        metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        if group is not None:
            metadata["annotations"] = {"cgpu.io/group": group}
        made = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        self.api.put("/api/v1/pods", kind, made)
        return made

    def put_away(self, name: str) -> None:
        self.api.put("/api/v1/pods", "DELETED", self.api.objects["/api/v1/pods"][name])

    def ask(self, path: str, **words: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_address[1])
        connection.request("POST", path, json.dumps(words), {"Content-Type": "application/json"})
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found

    def fitting(self, pod: Any, *names: str) -> list[str]:
        found: list[str] = self.ask("/filter", Pod=pod, NodeNames=list(names))["nodenames"]
        return found

    def bind(self, pod: Any, node: str) -> str:
        metadata = pod["metadata"]
        said: str = self.ask(
            "/bind",
            PodName=metadata["name"],
            PodNamespace="default",
            PodUID=metadata["uid"],
            Node=node,
        )["error"]
        return said

    def cards(self, pod: Any) -> list[str]:
        found: list[str] = json.loads(pod["metadata"]["annotations"][extender.ANNOTATION])["main"]
        return found

    def until(self, condition: Any, what: str) -> None:
        waiting = threading.Event()
        for _ in range(300):
            if condition():
                return
            waiting.wait(0.05)
        raise AssertionError(what)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.node("one")
    made.start()
    yield made
    made.stop()


def test_a_pod_is_bound_with_its_cards_on_it(rig: Rig) -> None:
    pod = rig.pod("a", gpucores=60, gpumem=1000)
    assert rig.fitting(pod, "one", "elsewhere") == ["one"]
    assert rig.bind(pod, "one") == ""
    assert rig.api.bound == [("a", "one")]
    assert rig.cards(pod) == ["one-0"]


def test_what_was_bound_counts_at_once(rig: Rig) -> None:
    for name, cards in (("a", ["one-0"]), ("b", ["one-1"])):
        pod = rig.pod(name, gpucores=60, gpumem=1000)
        assert rig.bind(pod, "one") == ""
        assert rig.cards(pod) == cards
    third = rig.pod("c", gpucores=60, gpumem=1000)
    answer = rig.ask("/filter", Pod=third, NodeNames=["one"])
    assert answer == {"nodenames": [], "failedNodes": {"one": "no card has room for it"}}
    assert "no card of one has room any more" in rig.bind(third, "one")
    assert len(rig.api.bound) == 2


def test_a_binding_that_is_refused_holds_nothing(rig: Rig) -> None:
    pod = rig.pod("a", gpumem=16384)
    rig.api.refuse_binding = True
    for _ in range(3):
        assert "the pod is bound already" in rig.bind(pod, "one")
    assert rig.fitting(rig.pod("b", gpu=2, gpumem=16384), "one") == ["one"]


def test_another_pod_of_that_name_is_not_bound(rig: Rig) -> None:
    pod = rig.pod("a", gpumem=1000)
    former = {**pod, "metadata": {**pod["metadata"], "uid": "former"}}
    assert "is another by now" in rig.bind(former, "one")


def test_fuller_nodes_are_better_under_binpack(rig: Rig) -> None:
    rig.node("two")
    rig.until(lambda: rig.fitting(rig.pod("x", gpumem=1), "two") == ["two"], "the second node")
    rig.bind(rig.pod("a", gpumem=8000, gpucores=40), "two")
    scores = rig.ask(
        "/prioritize", Pod=rig.pod("b", gpumem=1000, gpucores=10), NodeNames=["one", "two"]
    )
    by_name = {one["host"]: one["score"] for one in scores}
    assert 0 <= by_name["one"] < by_name["two"] <= 10


@pytest.mark.parametrize("how", ["DELETED", "Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_part_back(rig: Rig, how: str) -> None:
    pod = rig.pod("a", gpu=2, gpumem=16384)
    assert rig.bind(pod, "one") == ""
    pod["spec"]["nodeName"] = "one"
    waiting = rig.pod("b", gpumem=1000)
    assert rig.fitting(waiting, "one") == []
    if how != "DELETED":
        pod["status"]["phase"] = how
    rig.api.put("/api/v1/pods", "DELETED" if how == "DELETED" else "MODIFIED", pod)
    # Who was turned away just before is tried again.
    assert rig.api.touched.get(timeout=15) == "b"
    assert rig.fitting(waiting, "one") == ["one"]


def test_pods_of_before_are_known_by_what_stands_on_them() -> None:
    rig = Rig()
    rig.node("one")
    pod = rig.pod("a", node="one", gpumem=16384)
    pod["metadata"]["annotations"] = {extender.ANNOTATION: '{"main": ["one-1"]}'}
    # This one was bound past the extender.
    rig.pod("b", node="one", gpumem=9000)
    rig.start()
    try:
        pod = rig.pod("c", gpumem=7000)
        assert rig.bind(pod, "one") == ""
        assert rig.cards(pod) == ["one-0"]
        assert rig.fitting(rig.pod("d", gpumem=1000), "one") == []
    finally:
        rig.stop()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        "null",
        "7",
        '{"main": 7}',
        '{"main": [{}]}',
        '{"main": []}',
        '{"main": ["elsewhere"]}',
        '{"main": ["one-0", "one-0", "one-0"]}',
        '{"main": ["one-0", "one-1"]}',
        '{"other": ["one-0"]}',
        "\ufffd",
    ],
)
def test_what_a_pod_says_of_its_cards_takes_no_more_and_no_less(text: str) -> None:
    """Nor does it keep the extender from what others do."""
    rig = Rig()
    rig.node("one")
    for pod in (rig.pod("liar", node="one", gpumem=1024), rig.pod("idle", node="one", gpu=0)):
        pod["metadata"]["annotations"] = {extender.ANNOTATION: text}
    rig.start()
    try:
        (card, other) = rig.cluster.nodes["one"]
        assert sorted((card.free_memory, other.free_memory)) == [15360, 16384]
        assert sorted((card.free_containers, other.free_containers)) == [19, 20]
        pod = rig.pod("late", node="one", gpu=2, gpumem=1024)
        rig.until(lambda: card.free_memory + other.free_memory == 29696, "news of a pod")
    finally:
        rig.stop()


def test_what_happened_between_two_watches_is_noticed(rig: Rig) -> None:
    pod = rig.pod("a", node="one", gpu=2, gpumem=16384)
    other = rig.pod("b", gpumem=1000)
    rig.until(lambda: rig.fitting(other, "one") == [], "the pod")
    lists = rig.api.lists
    rig.api.objects["/api/v1/pods"].pop(pod["metadata"]["name"])
    rig.api.end_watches()
    rig.until(lambda: rig.api.lists > lists, "another list")
    rig.until(lambda: rig.fitting(other, "one") == ["one"], "its end")


def test_a_card_that_fails_takes_no_pods(rig: Rig) -> None:
    assert rig.bind(rig.pod("a", gpumem=1000), "one") == ""
    rig.node("one", cards=1, kind="MODIFIED")
    # Two cards would have room for it.
    rig.until(lambda: rig.fitting(rig.pod("b", gpu=2, gpumem=1), "one") == [], "fewer cards")
    assert rig.fitting(rig.pod("c", gpumem=15384), "one") == ["one"]
    assert rig.fitting(rig.pod("d", gpumem=15385), "one") == []
    rig.node("one", kind="DELETED")
    rig.until(lambda: rig.fitting(rig.pod("e", gpumem=1), "one") == [], "the node's end")


def test_a_pod_that_asks_for_no_part_is_told(rig: Rig) -> None:
    pod = rig.pod("a", gpucores=130)
    assert "gpucores: 130" in rig.ask("/filter", Pod=pod, NodeNames=["one"])["error"]
    assert rig.ask("/filter", Pod=pod) == {"error": "no 'nodenames' in the request"}


def test_an_answer_is_one_packet(rig: Rig) -> None:
    """A second one would wait for the receipt of the first, some 40 ms for each question."""
    asked = json.dumps({"Pod": rig.pod("a", gpumem=1000), "NodeNames": ["one"]}).encode()
    head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(asked)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", rig.server.server_address[1]), 30) as connection:
        connection.sendall(head.encode() + asked)
        said, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["nodenames"] == ["one"]


def test_the_cards_of_a_plugin_of_before_promise_what_they_have() -> None:
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    told: dict[str, Any] = {"uuid": "a", "memory": 16384, "containers": 20}
    for node, more in (("before", {}), ("now", {"promisable": 32768})):
        cluster.node(node, {extender.ANNOTATION: json.dumps([told | more])})
    found = {name: [card.free_memory for card in cards] for name, cards in cluster.nodes.items()}
    assert found == {"before": [16384], "now": [32768]}


def test_nodes_are_judged_as_they_are_now() -> None:
    """What was found for a pod like it before is not kept past a change of the node."""
    chance = random.Random(3)
    cluster = extender.Cluster((FAMILIES["hami"],), "binpack")
    names = ["a", "b", "c"]
    described = json.dumps([{"uuid": f"{n}", "memory": 16384, "containers": 20} for n in range(2)])
    for name in names:
        cluster.node(name, {extender.ANNOTATION: described})
    held: list[str] = []
    for number in range(300):
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": chance.choice((3000, 8000, 16384))}
        pod = {
            "metadata": {"uid": str(number), "name": f"p{number}", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }
        asked = parts(pod, cluster.families)
        fresh = {n: scheduling.judge(asked, cluster.nodes[n], "binpack") for n in names}
        found, failed = cluster.fitting(pod, names)
        assert found == [name for name in names if fresh[name] is not None]
        assert failed.keys() == set(names) - set(found)
        assert cluster.scores(pod, found) == {name: fresh[name] for name in found}
        if found and chance.random() < 0.6:
            cluster.reserve(pod, chance.choice(found))
            held.append(str(number))
        elif held:
            cluster.pod_gone(held.pop(chance.randrange(len(held))))
    assert held


def member(rig: Rig, name: str, *, gpumem: int, gpu: int = 1) -> Any:
    """A pod of a gang."""
    made = rig.pod(name, gpumem=gpumem, gpu=gpu)
    made["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    return made


def test_pods_of_a_gang_are_not_found_the_same_room_before_they_are_bound(rig: Rig) -> None:
    """The scheduler looks at all of them first, and counts those before by the node's amounts."""
    rig.node("two", cards=1)
    rig.until(lambda: len(rig.cluster.nodes) == 2, "the other node")
    gang = [member(rig, f"m{n}", gpumem=9000) for n in range(3)]
    found = [rig.fitting(one, "one", "two") for one in gang]
    assert sorted(found) == [["one"], ["one"], ["two"]]
    assert rig.fitting(rig.pod("other", gpumem=9000), "one", "two") == []
    # Looked at again, each has its own place, and no second one.
    assert [rig.fitting(one, "one", "two") for one in gang] == found
    for one, (node,) in zip(gang, found, strict=True):
        assert rig.bind(one, node) == ""
    assert sorted(rig.cards(one)[0] for one in gang) == ["one-0", "one-1", "two-0"]


def test_a_gang_that_finds_no_room_leaves_it_to_others(rig: Rig) -> None:
    """Those are tried again who were turned away for it, and not itself."""
    gang = [member(rig, f"m{n}", gpumem=9000) for n in range(5)]
    assert [rig.fitting(one, "one") for one in gang[:2]] == [["one"], ["one"]]
    other = rig.pod("other", gpumem=9000)
    assert rig.fitting(other, "one") == []
    # Nor do those that are looked at after the one without room take any in vain.
    assert [rig.fitting(one, "one") for one in gang[2:]] == [[], [], []]
    assert rig.api.touched.get(timeout=30) == "other"
    assert rig.fitting(rig.pod("two", gpu=2, gpumem=9000), "one") == ["one"]
    assert rig.api.touched.empty()


def test_of_a_gang_with_pods_to_spare_those_that_found_room_are_bound(rig: Rig) -> None:
    gang = [member(rig, f"m{n}", gpumem=9000) for n in range(3)]
    assert [rig.fitting(one, "one") for one in gang] == [["one"], ["one"], []]
    assert [rig.bind(one, "one") for one in gang[:2]] == ["", ""]
    assert [rig.fitting(one, "one") for one in gang[2:]] == [[]]


def test_a_plan_lapses(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender, "PLAN_S", 0.1)
    assert rig.fitting(member(rig, "m0", gpu=2, gpumem=9000), "one") == ["one"]
    other = rig.pod("other", gpumem=9000)
    rig.until(lambda: rig.fitting(other, "one") == ["one"], "its room")


@pytest.mark.parametrize("how", ["gone", "another node"])
def test_what_is_kept_for_a_gangs_pod_comes_back(rig: Rig, how: str) -> None:
    one = member(rig, "m0", gpu=2, gpumem=9000)
    assert rig.fitting(one, "one") == ["one"]
    if how == "gone":
        rig.api.put("/api/v1/pods", "DELETED", one)
    else:
        rig.node("two")
        rig.until(lambda: len(rig.cluster.nodes) == 2, "the other node")
        assert rig.bind(one, "two") == ""
    other = rig.pod("other", gpumem=9000)
    rig.until(lambda: rig.fitting(other, "one") == ["one"], "its room")


def test_a_node_that_changes_keeps_what_a_gang_has_there(rig: Rig) -> None:
    assert rig.fitting(member(rig, "m0", gpu=2, gpumem=9000), "one") == ["one"]
    rig.node("one", cards=3, kind="MODIFIED")
    rig.until(lambda: rig.fitting(rig.pod("more", gpumem=9000), "one") == ["one"], "a third card")
    assert rig.fitting(rig.pod("two", gpu=2, gpumem=9000), "one") == []


def test_pods_of_a_group_have_its_card_and_prefer_its_node(rig: Rig) -> None:
    rig.node("two")
    first = rig.pod("first", group="chat", gpumem=9000, gpucores=60)
    assert rig.bind(first, "one") == ""
    assert rig.bind(rig.pod("other", gpumem=9500), "one") == ""
    (card,) = rig.cards(first)
    # A member's cores are of its group's threads: more than a card's fit on it.
    second = rig.pod("second", group="default/chat", gpumem=2000, gpucores=60)
    scores = {
        one["host"]: one["score"]
        for one in rig.ask("/prioritize", Pod=second, NodeNames=["one", "two"])
    }
    assert scores["one"] == scheduling.MAX_SCORE > scores["two"]
    assert rig.bind(second, "one") == ""
    assert rig.cards(second) == [card]
    # Its card is full: on another node it would be a group of its own.
    large = rig.pod("large", group="chat", gpumem=6000)
    assert rig.fitting(large, "one", "two") == ["two"]
    assert "has room any more" in rig.bind(large, "one")
    # Once its members have gone the group may be anywhere again.
    for name in ("first", "second", "other"):
        rig.put_away(name)
    rig.until(lambda: rig.fitting(large, "one") == ["one"], "the group's end")
