# SPDX-License-Identifier: MIT
"""
A node's cards for Kubernetes: how much they have, and which container gets which.

A container's cards are chosen when the kubelet is about to make it, because only then it is known
whose the ids are. The kubelet's list of pod resources names the pod and container that has them.
The API server tells the container's request. The choice goes into the mapping, and as a CDI device
into a file that the container's engine reads next. The hook in that file admits the container by
the tree, or refuses it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Mapping as Map
from pathlib import Path
from typing import Any, NamedTuple

from ..dialects import GROUP, IDLE_PARK
from ..errors import CgpuError
from ..oci import cdi
from ..request.model import Card
from ..tree import authority, group, names, procfs
from . import annotated, apiserver, messages, placement, pods
from .families import MAX_IDS, Config, Family, capacity, room
from .health import Health
from .kubelet import Kubelet
from .mapping import Entry, Holder, Mapping, Owner, key, mistakes
from .overcommit import Overcommit
from .pods import Part, Pod

#: Where the engines look for devices that come and go.
CDI_DIRECTORY = cdi.DIRECTORIES[1]
#: On a node: its cards, for a scheduler that places by card. On a pod: the chosen cards.
ANNOTATION = "scheduling.cgpu.io/cards"
#: Of the node: whether the module limits its pods, or the agent in its place.
CONDITION = "CgpuModule"

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """
    Paths on this node, and how much its cards promise; ``prefix`` is the host's root.

    overcommit_ratio: percent that limits on a card may add up to; None: the node's own.
    """

    hook: tuple[str, ...]
    root: str | None = None
    prefix: str = "/"
    cdi_directory: str = CDI_DIRECTORY
    libraries: tuple[str, ...] = ()
    overcommit_ratio: int | None = None


class _Ask:
    """A container that is about to be made, and the outcome."""

    def __init__(self, family: Family, ids: Collection[str], awaited: Callable[[], bool]) -> None:
        self.family = family
        self.ids = ids
        self.awaited = awaited
        self.answer: concurrent.futures.Future[Entry] = concurrent.futures.Future()


class _Look(NamedTuple):
    """
    The state of the node at a container's turn, and the API server that tells its pods' requests.

    Running containers are read before the cards, so one that starts between counts twice, not zero.
    """

    pods: Sequence[messages.PodResources]
    running: Map[Owner, frozenset[str]]
    cards: list[Card]
    api: apiserver.Session


class Node:
    """The cards of one node, and what each container was promised."""

    def __init__(
        self,
        name: str,
        config: Config,
        mapping: Mapping,
        kubelet: Kubelet,
        access: apiserver.Access,
        place: Place,
    ) -> None:
        self.name = name
        self.config = config
        self.mapping = mapping
        self.kubelet = kubelet
        self.access = access
        self.place = place
        self.overcommit = Overcommit(place.overcommit_ratio, place.prefix)
        self.health = Health(self.tell)
        self.changed = threading.Condition()
        self._lock = threading.Lock()
        self._asks: queue.SimpleQueue[_Ask] = queue.SimpleQueue()
        self._clerk = concurrent.futures.ThreadPoolExecutor(1)
        self._verified = False

    def tell(self) -> None:
        """Wake the threads that wait for :attr:`changed`."""
        with self.changed:
            self.changed.notify_all()

    # ---- how much there is

    def root(self) -> str:
        return self.place.root or procfs.find_root()

    def cards(self, *, tenants: bool = False) -> list[Card]:
        """Return every card, failed ones too."""
        return procfs.read_cards(self.root(), tenants=tenants)

    def healthy(self, cards: Iterable[Card]) -> list[Card]:
        return [card for card in cards if card.uuid not in self.health.failed and not card.mig]

    def devices(self, family: Family) -> list[messages.Device]:
        """
        Return the ids of the family's anchor; those on failed cards are unhealthy.

        Raises:
            CgpuError: no door is open, or there are more ids than a kubelet takes.
        """
        cards = self.cards()
        whole = capacity(family, cards)[family.anchor_name]
        if whole > MAX_IDS:
            raise CgpuError(
                f"{family.anchor_name}: {whole} ids, and a kubelet takes {MAX_IDS}: choose another"
                " anchor, or a larger memory_unit"
            )
        lost = whole - capacity(family, self.healthy(cards))[family.anchor_name]
        ids = [f"{family.name}-{number:05}" for number in range(whole)]
        entries = [e for e in self.mapping.entries.values() if e.resource == family.anchor_name]
        hit = {one for e in entries if self.health.failed & set(e.cards) for one in e.ids}
        held = {one for e in entries for one in e.ids}
        # Of the others the last ones, which are handed out last.
        spare = [one for one in reversed(ids) if one not in held][: max(0, lost - len(hit))]
        bad = hit | set(spare)
        return [
            messages.Device(one, messages.UNHEALTHY if one in bad else messages.HEALTHY)
            for one in ids
        ]

    def publish(self) -> bool:
        """Write what the kubelet does not count to the node's status; False: it was right."""
        self.overcommit.keep(self.root())
        cards = self.healthy(self.cards())
        wanted: dict[str, int] = {}
        for family in self.config.families:
            found = capacity(family, cards)
            wanted |= {name: found[name] for name in found if name != family.anchor_name}
        described = [
            {
                "uuid": card.uuid,
                "memory": room(card).one_mib,
                "promisable": room(card).all_mib,
                "containers": card.max_inst,
            }
            for card in cards
        ]
        text = json.dumps(described, separators=(",", ":"))
        said = {ANNOTATION: text}
        return apiserver.publish(self.access, self.name, wanted, said, self._condition())

    def _condition(self) -> dict[str, str]:
        """Return the node's condition: module or agent limits its pods, and why it is the agent."""
        if not procfs.is_users(self.root()):
            told = ("True", "ModuleLoaded", "the module cgpu_km limits the pods of this node")
        else:
            why = authority.because(self.place.prefix)
            message = "the agent limits the pods of this node that name its runtime (cgpu)"
            told = ("False", "AgentInstead", f"{message}: {why}" if why else message)
        return dict(zip(("type", "status", "reason", "message"), (CONDITION, *told), strict=True))

    # ---- which container gets which card

    def prepare(
        self, family: Family, ids: Collection[str], awaited: Callable[[], bool] = lambda: True
    ) -> Entry:
        """
        Choose the cards of the container that has these *ids*, and write its CDI device.

        A repeated call for the same container chooses the same cards, unless it does not run and
        others have taken its part meanwhile.

        Args:
            awaited: whether the caller is still there when its turn comes.

        Raises:
            CgpuError: no container has the ids, or no card has room; nothing is promised then.
        """
        ask = _Ask(family, ids, awaited)
        self._asks.put(ask)
        self._clerk.submit(self._serve)
        return ask.answer.result()

    def _serve(self) -> None:
        with self._lock:
            # In a burst one look serves all that have come while the last ones were served.
            asks = [self._asks.get_nowait() for _ in range(self._asks.qsize())]
            with contextlib.closing(apiserver.Session(self.access)) as api:
                self._answer(asks, api)

    def _answer(self, asks: Sequence[_Ask], api: apiserver.Session) -> None:
        try:
            look = self._look(asks, api) if any(ask.awaited() for ask in asks) else None
        except Exception as error:
            for ask in asks:
                ask.answer.set_exception(error)
            return
        for ask in asks:
            try:
                if look is None or not ask.awaited():
                    # The kubelet will ask again, and would not read this answer.
                    raise CgpuError(f"{min(ask.ids)}: the kubelet has not waited for its turn")
                ask.answer.set_result(self._prepared(ask, look))
            except Exception as error:
                ask.answer.set_exception(error)

    def _look(self, asks: Sequence[_Ask], api: apiserver.Session) -> _Look:
        if not self._verified:
            # The door was not open yet when this program started.
            self._verify()
        pods = self.kubelet.pods()
        live = {
            key(resource, ids)
            for pod in pods
            for container in pod.containers
            for resource, ids in container.ids().items()
            if ids
        }
        live |= {key(ask.family.anchor_name, ask.ids) for ask in asks}
        running = self.running()
        for entry in self.mapping.keep(live | self._unlisted(running, live)):
            self._cdi_file(entry).unlink(missing_ok=True)
        return _Look(pods, running, self.healthy(self.cards(tenants=True)), api)

    def _prepared(self, ask: _Ask, look: _Look) -> Entry:
        entry = self._entry(ask.family, ask.ids, look)
        known = self.mapping.entries.get(key(ask.family.anchor_name, ask.ids))
        if known is not None and known == entry._replace(cards=known.cards):
            entry = known
        if entry != known or entry.running(look.running) is None:
            entry = entry._replace(cards=tuple(self._choose(entry, look)))
        if entry != known:
            self.mapping.put(entry)
            log.info("%s: %s", "/".join(entry.holder), ", ".join(entry.cards))
        self._write_cdi(entry, look.cards)
        return entry

    def _unlisted(
        self, running: Collection[Owner], live: Collection[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """
        Return the keys of containers that run and that a kubelet started anew does not know yet.

        Whoever has been given one of their ids since has made them void.
        """
        return {
            one
            for one, entry in self.mapping.entries.items()
            if entry.running(running) is not None
            and not any((entry.resource, single) in live for single in entry.ids)
        }

    def _entry(self, family: Family, ids: Collection[str], look: _Look) -> Entry:
        """Return the entry of the containers with these ids; its cards are the scheduler's wish."""
        held = {
            Holder(pod.namespace, pod.name, container.name): owned
            for pod in look.pods
            for container in pod.containers
            if (owned := container.ids().get(family.anchor_name)) and not owned.isdisjoint(ids)
        }
        if not held:
            raise CgpuError(
                f"{family.anchor_name}: the kubelet lists no container with {min(ids)}; a card for"
                " an init container alone is not given, ask for it in a container too"
            )
        known = self.mapping.entries.get(key(family.anchor_name, ids))
        holder = next(iter(held))
        try:
            pod = apiserver.pod(look.api, holder.namespace, holder.pod)
        except apiserver.ApiError as error:
            # The mapping still has the request of a container that starts again.
            if known is not None and known.holder in held and not error.code:
                return known
            raise
        keepers = {one.container for one, owned in held.items() if owned == set(ids)}
        found = self._sharing(family, pod, keepers, len(ids))
        # The order is that in which they start: the last one keeps the ids.
        last = list(found)[-1]
        return Entry(
            family.anchor_name,
            tuple(sorted(ids)),
            str(pod["metadata"]["uid"]),
            holder._replace(container=last),
            _scheduled(pod, found),
            found,
            annotated.group(pod) or "",
            annotated.idle_park(pod) or "",
        )

    def _sharing(self, family: Family, pod: Any, keepers: set[str], count: int) -> dict[str, Part]:
        """
        Return the containers of a pod that have the same *count* ids, and what each asks for.

        An init container's ids pass to a later one, and the kubelet does not say which of both it
        is about to start.

        Args:
            keepers: containers for which the kubelet lists exactly these ids; none: an init
                container has the ids, and others have a part of them.
        """
        asked = pods.parts(pod, self.config.families)
        for together in pods.groups(asked):
            part = asked[together[0]]
            if (part.resource, part.ids) != (family.anchor_name, count):
                continue
            if not keepers.isdisjoint(together) or (not keepers and part.passes_on):
                return {one: asked[one] for one in together}
        raise CgpuError(
            f"{family.anchor_name}: no container of pod {pod['metadata']['name']} asks for {count}"
        )

    def _choose(self, entry: Entry, look: _Look) -> list[str]:
        by_name = {name(card): card for card in look.cards}
        # What containers hold by pod and card, without these ids, whose entry is about to change.
        held: dict[str, dict[str, dict[str, Part]]] = {}
        for other in self.mapping.entries.values():
            if (other.resource, other.ids) != (entry.resource, entry.ids):
                for uuid in other.cards:
                    if uuid in by_name:
                        held.setdefault(other.uid, {}).setdefault(uuid, {}).update(_counted(other))
        own = held.pop(entry.uid, {})
        others = [need for uid, of_cards in held.items() for need in _promised(uid, of_cards, look)]
        reserved = placement.reserve(look.cards, others)
        seen = {
            one: placement.reserve(reserved, _promised(entry.uid, own, look, within=part))
            for one, part in _counted(entry).items()
        }
        if entry.group:
            has = self._cards_of_group(entry, look)
            seen = {
                one: [card for card in cards if name(card) in has] if has else cards
                for one, cards in seen.items()
            }
        siblings = [uuid for other in self.mapping.of_pod(entry.uid) for uuid in other.cards]
        wanted = [by_name[uuid].index for uuid in entry.cards or siblings if uuid in by_name]
        chosen = placement.choose(
            {one: part.amounts for one, part in _counted(entry).items()},
            seen,
            self.config.placement,
            wanted,
        )
        return [name(card) for card in look.cards if card.index in chosen]

    def _cards_of_group(self, entry: Entry, look: _Look) -> set[str]:
        """
        Return the cards of a group, by their names; none: it has no member yet.

        Whoever is about to be its first member counts before its server is there.
        """
        leader = group.of_namespace(entry.holder.namespace, entry.group)
        indexes = group.cards_of(leader, self.root())
        others = {
            uuid
            for other in self.mapping.entries.values()
            if other.group
            and (other.resource, other.ids) != (entry.resource, entry.ids)
            and group.of_namespace(other.holder.namespace, other.group) == leader
            for uuid in other.cards
        }
        return {name(card) for card in look.cards if card.index in indexes} or others

    def running(self) -> dict[Owner, frozenset[str]]:
        """Return the pods' containers that are in the tree, and the cards that they have there."""
        root = self.root()
        cards = {card.index: name(card) for card in procfs.find_cards(root)}
        ids = procfs.container_ids(root)
        where: dict[str, set[str]] = {one: set() for one in ids}
        for index, uuid in cards.items():
            for directory in procfs.container_names(index, root):
                with contextlib.suppress(CgpuError):
                    where.setdefault(procfs.read_cid(index, directory, root), set()).add(uuid)
        return {
            Owner(found.uid, found.name): frozenset(where[one])
            for one, found in names.find(ids, self.place.prefix).items()
            if found.uid is not None
        }

    def verify(self) -> list[Entry]:
        """Correct the mapping by the tree, which knows what runs; return the wrong entries."""
        with self._lock:
            return self._verify()

    def _verify(self) -> list[Entry]:
        running = self.running()
        wrong = mistakes(self.mapping.entries.values(), running)
        for entry in wrong:
            owner = entry.running(running)
            assert owner is not None  # or nothing would be known to be wrong
            truth = tuple(sorted(running[owner]))
            log.warning(
                "%s is on %s, not on %s as the mapping had it",
                *("/".join(entry.holder), ", ".join(truth), ", ".join(entry.cards)),
            )
            self.mapping.put(entry._replace(cards=truth))
        self._verified = True
        return wrong

    # ---- the container's device

    def device(self, family: Family, ids: Iterable[str]) -> str:
        """Return the CDI name of the container that has these ids."""
        return f"{cdi.CONTAINER_KIND}={min(ids)}"

    def _cdi_file(self, entry: Entry) -> Path:
        return Path(self.place.cdi_directory) / f"cgpu-{min(entry.ids)}.json"

    def _write_cdi(self, entry: Entry, healthy: Iterable[Card]) -> None:
        cards = [card for card in healthy if name(card) in entry.cards]
        if len(cards) < len(entry.cards):
            # The container runs on a card that has failed since.
            cards = [card for card in self.cards() if name(card) in entry.cards]
        text = cdi.render(
            cdi.of_container(
                min(entry.ids),
                cards,
                {
                    one: part.amounts.settings([room(card).one_mib for card in cards])
                    | ({GROUP: entry.group} if entry.group else {})
                    | ({IDLE_PARK: entry.idle_park} if entry.idle_park else {})
                    for one, part in entry.parts.items()
                },
                self.place.hook,
                pod=entry.uid,
                libraries=self.place.libraries,
            )
        )
        path = self._cdi_file(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Engines read every *.json there, whenever one changes.
        draft = path.with_suffix(".new")
        draft.write_text(text)
        os.replace(draft, path)


def _counted(entry: Entry) -> Pod:
    """Return the parts that the containers of an entry take of their cards."""
    return pods.in_group(entry.parts) if entry.group else entry.parts


def name(card: Card) -> str:
    """Return a card's name in the mapping."""
    return card.uuid or str(card.index)


def _promised(
    uid: str, of_cards: Map[str, Pod], look: _Look, within: Part | None = None
) -> list[tuple[str, int, pods.Need]]:
    """Return a pod's need of each card beyond the tree, with a name and the card's index."""
    running = {owner.container for owner in look.running if owner.uid == uid}
    return [
        (uid, card.index, pods.promised(held, running, room(card).one_mib, within))
        for card in look.cards
        if (held := of_cards.get(name(card)))
    ]


def _scheduled(pod: Any, containers: Iterable[str]) -> tuple[str, ...]:
    """Return the cards that a scheduler has chosen for one of them; a pod may say anything."""
    try:
        told = json.loads(pod["metadata"]["annotations"][ANNOTATION])
        found = next(told[one] for one in containers if one in told)
    except (KeyError, ValueError, TypeError, RecursionError, StopIteration):
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()
