# SPDX-License-Identifier: MIT
"""
The resource names by which pods ask for parts of cards, one family for each vendor; pure.

The kubelet counts one resource of each family by ids, its *anchor*. A container that asks for it
reaches the device plugin. The others are only in the node's status, where the scheduler counts
them, because the kubelet cannot handle one id for each MiB of eight cards.

``/etc/cgpu/kubernetes.toml``::

    families = ["hami", "alibaba"]   # those that this node offers
    placement = "binpack"            # or "spread": which card of the node

    [family.mine]                    # a family of your own, or other names for one of ours
    count = "example.com/gpu"
    memory = "example.com/gpu-memory"
    memory_unit = "1GiB"
    cores = "example.com/gpu-cores"
    anchor = "count"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import CgpuError, RequestError
from ..request.model import GIB, MIB, Card
from ..request.size import parse_bytes, parse_quantity
from ..tree import toml_file

PATH = "/etc/cgpu/kubernetes.toml"
PLACEMENTS = ("binpack", "spread")
#: More ids than these in one list are too many for a kubelet, which takes messages of 4 MiB.
MAX_IDS = 20000


class Family(NamedTuple):
    """
    Names of resources; None: this family lacks it.

    count: cards. memory: of each card, in ``memory_unit_bytes``. percentage: its memory in
    percent. cores: its compute in percent; in a family without ``count``, 200 are two whole cards.
    anchor: which of these the kubelet counts by ids.
    together: amounts are sums over all its cards, divided evenly.
    """

    name: str
    count: str | None = None  # type: ignore[assignment]  # hides tuple.count
    memory: str | None = None
    memory_unit_bytes: int = MIB
    percentage: str | None = None
    cores: str | None = None
    anchor: str = "count"
    together: bool = False

    @property
    def anchor_name(self) -> str:
        return str(getattr(self, self.anchor))

    @property
    def resources(self) -> tuple[str, ...]:
        names = (self.count, self.memory, self.percentage, self.cores)
        return tuple(name for name in names if name is not None)


FAMILIES = {
    one.name: one
    for one in (
        Family(
            "hami",
            count="nvidia.com/gpu",
            memory="nvidia.com/gpumem",
            percentage="nvidia.com/gpumem-percentage",
            cores="nvidia.com/gpucores",
        ),
        Family(
            "alibaba",
            memory="aliyun.com/gpu-mem",
            memory_unit_bytes=GIB,
            cores="aliyun.com/gpu-core.percentage",
            anchor="memory",
        ),
        Family(
            "volcengine",
            memory="vke.volcengine.com/mgpu-memory",
            cores="vke.volcengine.com/mgpu-core",
            anchor="cores",
        ),
        Family(
            "tencent",
            memory="tke.cloud.tencent.com/qgpu-memory",
            memory_unit_bytes=GIB,
            cores="tke.cloud.tencent.com/qgpu-core",
            anchor="cores",
        ),
        Family(
            "volcano",
            count="volcano.sh/vgpu-number",
            memory="volcano.sh/vgpu-memory",
            percentage="volcano.sh/vgpu-memory-percentage",
            cores="volcano.sh/vgpu-cores",
        ),
        Family(
            "koordinator",
            count="koordinator.sh/gpu.shared",
            memory="koordinator.sh/gpu-memory",
            memory_unit_bytes=1,
            percentage="koordinator.sh/gpu-memory-ratio",
            cores="koordinator.sh/gpu-core",
            together=True,
        ),
    )
}


class Config(NamedTuple):
    """What a node offers."""

    families: tuple[Family, ...] = (FAMILIES["hami"], FAMILIES["alibaba"])
    placement: str = "binpack"


class Room(NamedTuple):
    """
    What a card can give of its memory, in MiB.

    one_mib: to a container; percentages are of it. all_mib: to all its containers together, of an
    overcommitted card more. percent: the same, as the sum of percentages.
    """

    one_mib: int
    all_mib: int
    percent: int


class Amounts(NamedTuple):
    """
    What a container asks of each of so many cards.

    memory_bytes, memory_percent: one of them; the first goes before the second. Percent have two
        places at most.
    quota: percent of the compute, or None.
    """

    cards: int = 1
    memory_bytes: int | None = None
    memory_percent: float | None = None
    quota: int | None = None

    def memory_mib(self, card_mib: int) -> int:
        """
        Return the memory of a card that can give *card_mib*.

        The node publishes the same amount, so the scheduler's count agrees with the grant.
        """
        if self.memory_bytes is not None:
            return self.memory_bytes >> 20
        return card_mib * round(100 * (self.memory_percent or 100)) // 10000

    def settings(self, cards_mib: Sequence[int]) -> dict[str, str]:
        """Return the same as the container's settings for cards that can give so much."""
        memory = [f"{self.memory_mib(mib)}MiB" for mib in cards_mib]
        found = {"CGPU_MEM": ",".join(memory if len(set(memory)) > 1 else memory[:1])}
        if self.quota:
            found["CGPU_QUOTA"] = str(self.quota)
        return found


def amounts(family: Family, resources: Mapping[str, object]) -> Amounts | None:
    """
    Return the amounts of *family* in a container's ``resources.limits``; None: it asks for none.

    Raises:
        RequestError: an amount is malformed, or no part of a card; it is quoted.
    """
    found = {
        word: quantity(name, resources[name])
        for word in ("count", "memory", "percentage", "cores")
        if (name := getattr(family, word)) is not None and name in resources
    }
    if family.together:
        found = _each(family, found)
    if not found.get(family.anchor):
        return None
    cards = found.get("count", 1)
    quota = found.get("cores") or None
    percent = found.get("percentage") or None
    if quota is not None and quota > 100:
        name = str(family.cores)
        if family.count is not None or quota % 100:
            remedy = "100 are a card" if family.count is not None else "above 100: whole hundreds"
            raise RequestError(f"{name}: {quota}: {remedy}", name, str(quota))
        cards, quota = quota // 100, 100
    if percent is not None and percent > 100:
        name = str(family.percentage)
        raise RequestError(f"{name}: {percent}: 100 are a card", name, str(percent))
    memory = found.get("memory")
    return Amounts(
        cards,
        memory * family.memory_unit_bytes if memory else None,
        None if memory else percent,
        quota,
    )


def _each(family: Family, found: dict[str, int]) -> dict[str, int]:
    """
    Return each card's amounts, of amounts that are given for all cards together.

    The rules are those of Koordinator's webhook, which adds a missing count if it runs.
    """
    if not found:
        return found
    names = {word: str(getattr(family, word)) for word in found}
    memory = [names[word] for word in ("memory", "percentage") if word in found]
    count = found.get("count")
    if not count:
        name = next(iter(names.values()))
        raise RequestError(f"{name} without {family.count}, the number of cards: give both", name)
    if len(memory) != 1:
        name = memory[0] if memory else next(iter(names.values()))
        one_of = f"one of {family.memory} and {family.percentage}"
        raise RequestError(f"{name}: give {one_of} beside {family.count}", name)
    for word in ("percentage", "cores"):
        if found.get(word, 0) % count:
            name = names[word]
            raise RequestError(f"{name}: {found[word]} cannot be split over {count} cards", name)
    return {word: n if word == "count" else n // count for word, n in found.items()}


def quantity(name: str, value: object) -> int:
    """Return a resource's whole number: ``3000``, which the API writes back as ``3k``."""
    try:
        return parse_quantity(str(value))
    except ValueError as error:
        raise RequestError(f"{name}: {error}", name, str(value)) from None


def room(card: Card) -> Room:
    """Return what a card can give: the same room is published, counted and granted."""
    return Room(card.usable_bytes // MIB, card.promisable_bytes // MIB, card.overcommit_ratio)


def capacity(family: Family, cards: Sequence[Card]) -> dict[str, int]:
    """Return the sum over *cards* of each of a family's resources, in whole units of each card."""
    rooms = [room(card) for card in cards]
    found = {
        family.count: sum(card.max_inst for card in cards),
        family.memory: sum(one.all_mib * MIB // family.memory_unit_bytes for one in rooms),
        family.percentage: sum(one.percent for one in rooms),
        family.cores: 100 * len(cards),
    }
    return {name: number for name, number in found.items() if name is not None}


def load(path: str = PATH) -> Config:
    """
    Return the configuration in *path*; the defaults if there is no such file.

    Raises:
        CgpuError: the file cannot be read, or has an unknown setting.
    """
    found = toml_file.read(path)
    if found is None:
        return Config()
    known = dict(FAMILIES)
    own = found.pop("family", {})
    if not isinstance(own, dict):
        raise CgpuError(f"{path}: family is no table; write [family.NAME]")
    for name, table in own.items():
        known[name] = _family(name, table, f"{path}: [family.{name}]")
    placement = found.pop("placement", PLACEMENTS[0])
    if placement not in PLACEMENTS:
        raise CgpuError(f"{path}: placement = {placement!r}: write {' or '.join(PLACEMENTS)}")
    chosen = found.pop("families", ["hami", "alibaba"])
    if not isinstance(chosen, list) or not chosen:
        raise CgpuError(f"{path}: families is no list of names; known are {', '.join(known)}")
    for name in chosen:
        if name not in known:
            raise CgpuError(f"{path}: family {name!r} is unknown; known are {', '.join(known)}")
    if found:
        raise CgpuError(
            f"{path}: {next(iter(found))!r} is unknown; known are families, placement, [family.…]"
        )
    return Config(tuple(known[name] for name in dict.fromkeys(chosen)), placement)


def _family(name: str, table: object, where: str) -> Family:
    if not isinstance(table, dict) or not re.fullmatch(r"[a-z0-9]+", name):
        raise CgpuError(f"{where}: write a table; its name is small letters and digits")
    words = ("count", "memory", "percentage", "cores", "anchor", "memory_unit")
    for key, value in table.items():
        if key not in words or not isinstance(value, str):
            raise CgpuError(f"{where}: {key} = {value!r}: known are {', '.join(words)}, all texts")
    anchor = table.get("anchor", "count")
    if anchor not in ("count", "memory", "cores") or anchor not in table:
        raise CgpuError(f"{where}: anchor = {anchor!r}: write count, memory or cores, with a name")
    try:
        unit_bytes = parse_bytes(table.get("memory_unit", "1MiB"))
    except ValueError as error:
        raise CgpuError(f"{where}: memory_unit: {error}") from None
    names = {key: value for key, value in table.items() if key not in ("memory_unit", "anchor")}
    return Family(name, memory_unit_bytes=unit_bytes, anchor=anchor, **names)
