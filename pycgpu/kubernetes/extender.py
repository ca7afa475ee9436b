# SPDX-License-Identifier: MIT
"""
The scheduler extender: a stock kube-scheduler asks it about pods that want a part of a card.

The scheduler sends node names. The extender keeps the nodes' cards itself, from two watches: the
nodes, whose annotation the device plugin writes, and the pods. It also does the *binding*. Under a
lock it chooses and reserves the pod's cards, and writes them on the pod before it binds the pod. If
two pods were promised the same part, the second is scheduled again.

A scheduler tries a pod again after an event, and may ask before the extender has the same news. So
the extender touches pods that it refused just before room came, which has them tried again.

A scheduler filters all pods of a gang before it binds any, and counts earlier ones by their nodes'
amounts alone. So the extender *plans* each pod: it names one node, and reserves the pod's cards
there. A plan ends when the pod is bound, when another pod of the gang finds no room, or when it
lapses.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from ..errors import CgpuError
from ..tree import http_server
from . import annotated, apiserver, grouped, scheduling
from .families import Family
from .grouped import Groups
from .pods import Part, groups, in_group, parts
from .scheduling import MAX_SCORE, Card, Choice, judge, place

#: On a node: its cards, by the device plugin. On a pod: the cards of each container.
ANNOTATION = "scheduling.cgpu.io/cards"
#: On a pod: when it was last to be tried again.
AGAIN = "scheduling.cgpu.io/again"
RETRY_S = 2.0
#: News that is older than this has come to everybody.
NEWS_S = 5.0
#: The time after which a plan for a pod of a gang lapses.
PLAN_S = 60.0
#: How often plans are looked at whether they have lapsed.
LOOK_S = 1.0
#: How many different requests are cached; nearly all pods of a cluster make one of a few.
KINDS = 64
#: Of a question: a pod, which has at most 1.5 MiB in etcd, and the names of a cluster's nodes.
QUESTION_BYTES_MAX = 8 << 20
_PHASES_ENDED = ("Succeeded", "Failed")

log = logging.getLogger(__name__)


Asked = dict[str, Part]
#: Namespace and name of a PodGroup.
Gang = tuple[str, str]
#: A pod's place: node, what the pod asks for, cards.
Placed = tuple[str, Asked, Choice]


@dataclasses.dataclass
class Round:
    """One look of the scheduler's at a gang's pods, by their uids, one after the other."""

    until_s: float
    last: str = ""
    seen: set[str] = dataclasses.field(default_factory=set)
    refused: bool = False
    #: The places reserved for pods that are not bound yet, by uid.
    plans: dict[str, Placed] = dataclasses.field(default_factory=dict)


class Cluster:
    """The cards of all nodes, with the parts that bound pods hold."""

    def __init__(self, families: Sequence[Family], placement: str) -> None:
        self.families = families
        self.placement = placement
        self.lock = threading.Lock()
        self.nodes: dict[str, list[Card]] = {}
        #: The score of each node by request; None if it has no room.
        self._judged: dict[tuple[Part, ...], dict[str, int | None]] = {}
        self._texts: dict[str, str] = {}
        self._pods: dict[str, Placed] = {}
        self._groups = Groups()
        self._rounds: dict[Gang, Round] = {}
        self._refused: dict[str, tuple[float, str, str, Gang | None]] = {}
        #: Namespace and name of pods to be tried again.
        self.again: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def node(self, name: str, annotations: dict[str, str]) -> None:
        """A node is there, or has changed."""
        text = annotations.get(ANNOTATION, "[]")
        if self._texts.get(name) == text:
            return
        try:
            cards = [
                Card(
                    str(one["uuid"]),
                    int(one["memory"]),
                    # A plugin of before does not tell it.
                    int(one.get("promisable", one["memory"])),
                    free_containers=int(one["containers"]),
                )
                for one in json.loads(text)
            ]
        except (ValueError, KeyError, TypeError) as error:
            log.warning("node %s: cannot read %s: %r", name, ANNOTATION, error)
            return
        with self.lock:
            self._texts[name] = text
            self.nodes[name] = cards
            self._room_came()
            plans = (one.plans for one in self._rounds.values())
            for held in (self._pods, *plans):
                for where, asked, choice in held.values():
                    if where == name:
                        scheduling.apply(asked, choice, cards)
            self._changed(name)

    def node_gone(self, name: str) -> None:
        with self.lock:
            self._texts.pop(name, None)
            self.nodes.pop(name, None)
            self._changed(name)

    def _changed(self, name: str) -> None:
        for judged in self._judged.values():
            judged.pop(name, None)

    def _asked(self, pod: Any) -> Asked:
        """Return what a pod takes of cards. CgpuError: it asks for something that is not there."""
        asked = parts(pod, self.families)
        return asked if grouped.of_pod(pod) is None else in_group(asked)

    def _cards(self, leader: str | None, node: str) -> list[Card]:
        """Return those of a node's cards that a pod may have: its group's, once that has some."""
        cards = self.nodes.get(node, [])
        members = () if leader is None else self._groups.members(leader, node)
        has = {name for uid in members for names in self._pods[uid][2].values() for name in names}
        return [card for card in cards if card.name in has] if has else cards

    def _judge(
        self, asked: Asked, names: Iterable[str], leader: str | None
    ) -> dict[str, int | None]:
        """Return how good each node is for a pod; between two questions few have changed."""
        if leader is not None:
            return {name: judge(asked, self._cards(leader, name), self.placement) for name in names}
        kind = tuple(asked.values())
        known = self._judged.pop(kind, {})
        # The most recently used request is the last in the dictionary.
        self._judged[kind] = known
        if len(self._judged) > KINDS:
            del self._judged[next(iter(self._judged))]
        found = {}
        for name in names:
            if name not in known:
                known[name] = judge(asked, self.nodes.get(name, []), self.placement)
            found[name] = known[name]
        return found

    def pod(self, pod: Any) -> None:
        """A pod is there, or has changed."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if pod.get("status", {}).get("phase") in _PHASES_ENDED:
            return self.pod_gone(uid)
        with self.lock:
            if not node or uid in self._pods:
                return None
            try:
                asked = self._asked(pod)
            except CgpuError as error:
                log.warning("pod %s: %s", pod["metadata"]["name"], error)
                return None
            cards = self.nodes.get(node, [])
            choice = _chosen(pod, asked, cards)
            if choice is None:
                # Bound past us: by its own name of a node, or before we came.
                choice = place(asked, cards, self.placement) or {}
            if asked:
                self._drop_plan(uid)
                self._pods[uid] = (node, asked, choice)
                self._groups.add(pod, node)
                self._count(self._pods[uid])
        return None

    def pod_gone(self, uid: str) -> None:
        with self.lock:
            if self._drop_plan(uid):
                self._room_came()
            held = self._pods.pop(uid, None)
            self._groups.remove(uid)
            if held is not None:
                self._count(held, -1)
                self._room_came()

    def _room_came(self, gangs: Container[Gang] = ()) -> None:
        """Have refused pods tried again, except of *gangs*, which gave up this room themselves."""
        now_s = time.monotonic()
        for at_s, namespace, name, gang in self._refused.values():
            if now_s - at_s < NEWS_S and gang not in gangs:
                self.again.put((namespace, name))
        self._refused = {}

    def _drop_plan(self, uid: str) -> bool:
        """Release a pod's plan; return whether it had one."""
        for one in self._rounds.values():
            if uid in one.plans:
                self._count(one.plans.pop(uid), -1)
                return True
        return False

    def drop_lapsed(self) -> None:
        """Release the plans of pods that were not bound in time."""
        now_s = time.monotonic()
        with self.lock:
            lapsed = [gang for gang, one in self._rounds.items() if one.until_s <= now_s]
            for gang in lapsed:
                self._drop_plans(gang)
                del self._rounds[gang]

    def _drop_plans(self, gang: Gang) -> None:
        plans = [*self._rounds[gang].plans]
        for uid in plans:
            self._drop_plan(uid)
        if plans:
            self._room_came({gang})

    def _count(self, placed: Placed, sign: int = 1) -> None:
        """Take a place's parts from its node's cards, or give them back."""
        node, asked, choice = placed
        scheduling.apply(asked, choice, self.nodes.get(node, []), sign)
        self._changed(node)

    def fitting(self, pod: Any, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return the nodes that have cards for a pod, and why the others have not."""
        asked = self._asked(pod)
        gang = gang_of(pod)
        found, failed = [], {}
        with self.lock:
            part_of = None if gang is None else self._round(gang, pod["metadata"]["uid"])
            leader = grouped.of_pod(pod)
            judged = self._judge(asked, names, leader)
            for name, good in judged.items():
                if good is not None and self.nodes.get(name):
                    found.append(name)
                elif self.nodes.get(name):
                    failed[name] = "no card has room for it"
                else:
                    failed[name] = "no card under cgpu's control"
            if part_of is not None and part_of.refused:
                found, failed = (
                    [],
                    dict.fromkeys(judged, "no card has room for another of its gang"),
                )
            if not found:
                metadata = pod["metadata"]
                self._refused[metadata["uid"]] = (
                    time.monotonic(),
                    metadata["namespace"],
                    metadata["name"],
                    gang,
                )
                if gang is not None:
                    self._rounds[gang].refused = True
                    self._drop_plans(gang)
            elif part_of is not None:
                node = max(found, key=lambda name: judged[name] or 0)
                found = [node]
                self._plan(pod, part_of, asked, node)
        return found, failed

    def _round(self, gang: Gang, uid: str) -> Round:
        """Return the round that this look at a pod is of; one before it is over."""
        found = self._rounds.get(gang)
        if found is not None and uid in found.seen and uid != found.last:
            self._drop_plans(gang)
            found = None
        if found is None:
            found = self._rounds[gang] = Round(0)
        elif uid == found.last:
            # The scheduler asks twice, once of a single node; or there is no other pod.
            self._drop_plan(uid)
            found.refused = False
        found.until_s = time.monotonic() + PLAN_S
        found.seen.add(uid)
        found.last = uid
        return found

    def _plan(self, pod: Any, part_of: Round, asked: Asked, node: str) -> None:
        """Keep a gang's pod its cards on a node that has room."""
        uid = pod["metadata"]["uid"]
        choice = place(asked, self._cards(grouped.of_pod(pod), node), self.placement)
        assert choice is not None  # the node was judged to have room
        part_of.plans[uid] = (node, asked, choice)
        self._count(part_of.plans[uid])

    def scores(self, pod: Any, names: Iterable[str]) -> dict[str, int]:
        """Return how good each node is for a pod, 0 to 10."""
        asked = self._asked(pod)
        leader = grouped.of_pod(pod)
        with self.lock:
            return {
                # A group is local to a node: a pod should join its members rather than start anew.
                name: MAX_SCORE
                if leader is not None and good is not None and self._groups.members(leader, name)
                else good or 0
                for name, good in self._judge(asked, names, leader).items()
            }

    def reserve(self, pod: Any, node: str) -> Choice:
        """
        Choose a pod's cards on a node, and hold them for it.

        Raises:
            CgpuError: others have taken them since the node was found.
        """
        asked = self._asked(pod)
        uid = pod["metadata"]["uid"]
        with self.lock:
            if uid in self._pods:
                raise CgpuError(f"the pod has cards on {self._pods[uid][0]} already")
            # The pod's plan is released; under this lock no other pod can take its cards.
            self._drop_plan(uid)
            choice = place(asked, self._cards(grouped.of_pod(pod), node), self.placement)
            if choice is None:
                raise CgpuError(f"no card of {node} has room any more")
            self._pods[uid] = (node, asked, choice)
            self._groups.add(pod, node)
            self._count(self._pods[uid])
            return choice


def _chosen(pod: Any, asked: Asked, cards: Sequence[Card]) -> Choice | None:
    """
    Return the cards that are written on a pod; None if they do not fit its request.

    A user can write any cards on a pod, which must not change how much it takes.

    Args:
        cards: the cards of its node, if that is known.
    """
    there = {card.name for card in cards}
    try:
        text = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "{}")
        told = {**annotated.cards(pod), **json.loads(text)}
        choice: Choice = {}
        for names in groups(asked):
            # All of these containers have the same cards; an init container's may be missing.
            (named,) = {tuple(map(str, told[name])) for name in names if name in told}
            choice |= dict.fromkeys(names, named)
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    for name, named in choice.items():
        # Each once, and as many as there are ids for.
        if not len(named) == len(set(named)) == asked[name].amounts.cards:
            return None
        if there and not there.issuperset(named):
            return None
    return choice


def gang_of(pod: Any) -> Gang | None:
    """Return the PodGroup that a pod is of (beta in 1.37)."""
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return None if group is None else (pod["metadata"]["namespace"], group)


def bind(cluster: Cluster, access: apiserver.Access, asked: Any) -> None:
    """
    Bind a pod, its cards written on it first.

    Raises:
        CgpuError: no card has room any more, or the API server refuses; nothing is held then.
    """
    namespace, name, uid = (asked[key] for key in ("podnamespace", "podname", "poduid"))
    pod = apiserver.pod(access, namespace, name)
    if pod["metadata"]["uid"] != uid:
        raise CgpuError(f"pod {namespace}/{name} is another by now")
    choice = cluster.reserve(pod, asked["node"])
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        text = json.dumps(choice, separators=(",", ":"))
        access.call("PATCH", path, {"metadata": {"uid": uid, "annotations": {ANNOTATION: text}}})
        target = {"apiVersion": "v1", "kind": "Node", "name": asked["node"]}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": target,
        }
        access.call("POST", f"{path}/binding", body, "application/json")
    except BaseException:
        cluster.pod_gone(uid)
        raise
    log.info("%s/%s: %s: %s", namespace, name, asked["node"], text)


def follow(cluster: Cluster, access: apiserver.Access, ended: threading.Event) -> None:
    """Keep *cluster* as the API server has it, until *ended*; returns when it is first complete."""

    def nodes(kind: str, node: Any) -> None:
        metadata = node["metadata"]
        if kind == "DELETED":
            cluster.node_gone(metadata["name"])
        else:
            cluster.node(metadata["name"], metadata.get("annotations") or {})

    def pods(kind: str, pod: Any) -> None:
        if kind == "DELETED":
            cluster.pod_gone(pod["metadata"]["uid"])
        else:
            cluster.pod(pod)

    for path, take in (("/api/v1/nodes", nodes), ("/api/v1/pods", pods)):
        complete = threading.Event()
        threading.Thread(
            target=_mirror, args=(access, path, take, ended, complete), daemon=True
        ).start()
        complete.wait()
    threading.Thread(target=_touch, args=(cluster, access), daemon=True).start()
    threading.Thread(target=_look, args=(cluster, ended), daemon=True).start()


def _look(cluster: Cluster, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        cluster.drop_lapsed()


def _touch(cluster: Cluster, access: apiserver.Access) -> None:
    while True:
        namespace, name = cluster.again.get()
        try:
            access.call(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/pods/{name}",
                {"metadata": {"annotations": {AGAIN: str(time.time_ns())}}},
            )
        except apiserver.ApiError as error:
            # The pod is gone, or its own next event has it tried again.
            log.info("%s", error)


def _tell(take: Callable[[str, Any], None], kind: str, one: Any) -> None:
    try:
        take(kind, one)
    except Exception:  # whatever somebody has written in one, the news of the others goes on
        log.exception("%s %s", kind, one["metadata"]["name"])


def _mirror(
    access: apiserver.Access,
    path: str,
    take: Callable[[str, Any], None],
    ended: threading.Event,
    complete: threading.Event,
) -> None:
    known: dict[str, Any] = {}
    while not ended.is_set():
        try:
            listed = access.call("GET", path)
            now = {one["metadata"]["uid"]: one for one in listed["items"]}
            for uid in known.keys() - now.keys():
                _tell(take, "DELETED", known[uid])
            for one in now.values():
                _tell(take, "ADDED", one)
            known = now
            complete.set()
            for event in access.watch(path, listed["metadata"]["resourceVersion"]):
                one = event["object"]
                if event["type"] == "ERROR":
                    break
                if event["type"] == "DELETED":
                    known.pop(one["metadata"]["uid"], None)
                else:
                    known[one["metadata"]["uid"]] = one
                _tell(take, event["type"], one)
                if ended.is_set():
                    return
        except CgpuError as error:
            log.warning("%s", error)
            ended.wait(RETRY_S)


def server(
    cluster: Cluster, access: apiserver.Access, address: str, port: int
) -> http_server.Server:
    """Return the server that a kube-scheduler asks: ``/filter``, ``/prioritize``, ``/bind``."""

    class Handler(http_server.Handler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: a body of its own would wait 40 ms for the head's receipt.
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            try:
                asked = _question(self.body(QUESTION_BYTES_MAX))
            except http_server.BadRequest as error:
                self.close_connection = True
                self._send({"error": str(error)}, error.status)
                return
            with self.server.answering(self.connection):
                try:
                    body, status = _answer(cluster, access, self.path, asked), 200
                except KeyError as error:
                    body, status = {"error": f"no {error} in the request"}, 400
                except (TypeError, AttributeError, ValueError) as error:
                    body, status = {"error": f"the request is malformed: {error}"}, 400
                self._send(body, status)

        def _send(self, body: Any, status: int) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return http_server.Server(address, port, Handler)


def _question(raw: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(raw)
    except (ValueError, RecursionError):
        raise http_server.BadRequest(400, "the request is no JSON") from None
    if not isinstance(asked, dict):
        raise http_server.BadRequest(400, "the request is no JSON object")
    # Go takes the names of fields in any case, and has written them in more than one.
    return {key.lower(): value for key, value in asked.items()}


def _answer(cluster: Cluster, access: apiserver.Access, path: str, asked: Any) -> Any:
    try:
        if path == "/filter":
            names, failed = cluster.fitting(asked["pod"], asked["nodenames"])
            return {"nodenames": names, "failedNodes": failed}
        if path == "/prioritize":
            found = cluster.scores(asked["pod"], asked["nodenames"])
            return [{"host": name, "score": number} for name, number in found.items()]
        if path == "/bind":
            bind(cluster, access, asked)
            return {"error": ""}
    except CgpuError as error:
        log.warning("%s: %s", path, error)
        if path == "/prioritize":
            return []
        return {"error": f"cgpu: {error}"}
    return {"error": f"no {path}"}
