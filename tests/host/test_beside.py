# SPDX-License-Identifier: MIT
"""
Containers of two vendors on one card: what each has beside the other, whoever came first.

Each pair of dialects goes the way that a container goes: settings, request, admission by the tree,
`create`, and the policy's shares, by the core that the kernel runs.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from pycgpu.dialects import request_from
from pycgpu.request import admission
from pycgpu.request.model import (
    FIXED,
    MIXED,
    NATIVE,
    WEIGHTED,
    WEIGHTED_CONSERVING,
    Grant,
    Refusal,
)
from pycgpu.tree import procfs, snapshot, status

from .coretree import GIB, CoreTree

DOCS = Path(__file__).resolve().parents[2] / "docs" / "requests.md"
MEMORY_MIB = "2048"
FIXED_30 = "a fixed 30 %"
ALIBABA = {"ALIYUN_COM_GPU_MEM_CONTAINER": "2", "ALIYUN_COM_GPU_MEM_DEV": "16"}
EGPU = {"AMP_VGPU_ENABLE": "1", "GPU_MEM_PER_DEVICE": str(2 * GIB)}
MGPU = {"vke.volcengine.com/mgpu-core": "30", "vke.volcengine.com/mgpu-memory": MEMORY_MIB}
POLICY = "vke.volcengine.com/mgpu-compute-policy"
XGPU = {"GPU_IDX": "0", "GPU_CONTAINER_MEM": MEMORY_MIB}
HAMI = {"nvidia.com/gpumem": MEMORY_MIB}
VOLCANO = {"volcano.sh/vgpu-memory": MEMORY_MIB}
KOORDINATOR = {"koordinator.sh/gpu-memory": f"{MEMORY_MIB}Mi"}
CGPU = {"CGPU_MEM": f"{MEMORY_MIB}MiB"}
#: What a vendor's words mean, as docs/requests.md calls it: settings that mean it.
MEANINGS: dict[str, dict[str, dict[str, str]]] = {
    "memory alone": {
        "alibaba_cgpu": ALIBABA,
        "alibaba_egpu": EGPU,
        "huawei_xgpu": XGPU,
        "kubernetes": HAMI,
        "kai": {"gpu-memory": MEMORY_MIB},
        "volcano": VOLCANO,
        "koordinator": KOORDINATOR,
        "cgpu": CGPU,
    },
    "a weight of 4": {
        "alibaba_cgpu": ALIBABA | {"ALIYUN_COM_GPU_SCHD_WEIGHT": "4"},
        "huawei_xgpu": XGPU | {"GPU_CONTAINER_QUOTA_PERCENT": "20", "GPU_POLICY": "4"},
        "cgpu": CGPU | {"CGPU_WEIGHT": "4"},
    },
    FIXED_30: {
        "alibaba_egpu": EGPU | {"GPU_UTIL_PER_DEVICE": "30"},
        "ctyun_egpu": {"EGPU": f"POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM={MEMORY_MIB},WEIGHT=30"},
        "volcengine_mgpu": MGPU,
        "huawei_xgpu": XGPU | {"GPU_CONTAINER_QUOTA_PERCENT": "30"},
        "kubernetes": HAMI | {"nvidia.com/gpucores": "30"},
        "volcano": VOLCANO | {"volcano.sh/vgpu-cores": "30"},
        "koordinator": KOORDINATOR | {"koordinator.sh/gpu-core": "30"},
        "cgpu": CGPU | {"CGPU_QUOTA": "30"},
    },
    "30 % guaranteed": {
        "volcengine_mgpu": MGPU | {POLICY: "guaranteed-burst-share"},
    },
    "a weight of 30 %": {
        "volcengine_mgpu": MGPU | {POLICY: "native-burst-share"},
        "huawei_xgpu": XGPU | {"GPU_CONTAINER_QUOTA_PERCENT": "30", "GPU_POLICY": "6"},
    },
}
PLAIN = next(iter(MEANINGS))
DIALECTS = sorted({dialect for by in MEANINGS.values() for dialect in by})


class Card:
    """A card of 16 GiB, its containers, and what each has."""

    def __init__(self, root: Path, policy: int | None = None) -> None:
        self.tree = CoreTree(root, features=("MEMORY", "SLICES", "GATE"))
        self.root = str(root)
        if policy is not None:
            (root / "0" / "policy").write_text(f"{policy}\n")
            assert self.tree.store("0/policy") == 0
            self.tree.write()

    def admit(self, settings: dict[str, str]) -> Grant | Refusal:
        request = request_from(settings)
        assert request is not None
        return admission.admit(request, procfs.read_cards(self.root))

    def start(self, name: str, settings: dict[str, str]) -> Grant:
        grant = self.admit(settings)
        assert isinstance(grant, Grant), grant
        command = procfs.create_command(name, grant, pid=1)
        made = self.tree.create(name, *command.split("pid=1 ", 1)[1].split())
        made.hold(0, 100 + len(self.tree.containers), 1, 0, "work")
        self.tree.write()
        return grant

    @property
    def policy(self) -> int:
        return procfs.read_policy(0, self.root)

    def limits(self) -> dict[str, snapshot.Limit]:
        card = status.read(0, self.root)
        limits = snapshot.limits(card, frozenset({"gate"}))
        return {
            one.id: limit
            for one, limit in zip(card.containers, limits, strict=True)
            if limit is not None
        }

    def percent(self, name: str) -> float:
        """What the container has while all want all that they can get."""
        return round(100 * self.limits()[name].share, 1)

    def promised(self, name: str) -> float:
        """What the container was told that it has whoever else comes, in percent."""
        told = {one.id: one for one in procfs.read_tenants(0, self.root)}[name]
        return told.promised_ppm / 10_000 or (told.quota_min or 0)


def spoken() -> list[tuple[str, str]]:
    return [(meaning, dialect) for meaning, by in MEANINGS.items() for dialect in by]


def documented() -> dict[tuple[str, str], str]:
    """Return the table of docs/requests.md by (first, second)."""
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| first, then")]
    assert len(lines) == 1, "docs/requests.md has one such table"
    table = DOCS.read_text().split(lines[0])[1].split("\n\n")[0].strip().splitlines()[1:]
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    found: dict[tuple[str, str], str] = {}
    for line in table:
        first, *cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        found |= {(first, head): cell for head, cell in zip(heads, cells, strict=True)}
    return found


@pytest.mark.parametrize(("first", "second"), list(itertools.product(spoken(), repeat=2)))
def test_each_pair_of_dialects_has_on_one_card_what_the_documents_say(
    first: tuple[str, str], second: tuple[str, str], tmp_path: Path
) -> None:
    card = Card(tmp_path / "tree")
    card.start("one", MEANINGS[first[0]][first[1]])
    policy, promised = card.policy, card.promised("one")
    card.start("two", MEANINGS[second[0]][second[1]])
    assert card.policy == policy, "whoever is there keeps the policy under which it was promised"
    assert card.promised("one") == promised
    for name in ("one", "two"):
        assert 100 * card.limits()[name].floor >= card.promised(name) - 0.001 or (
            card.percent(name) >= card.promised(name)
        )
    cell = documented()[first[0], second[0]]
    assert f"{card.percent('one'):g} : {card.percent('two'):g}" == cell


@pytest.mark.parametrize(("first", "second"), list(itertools.product(spoken(), repeat=2)))
def test_a_policy_goes_with_the_last_container_whoever_that_is(
    first: tuple[str, str], second: tuple[str, str], tmp_path: Path
) -> None:
    card = Card(tmp_path / "tree")
    card.start("one", MEANINGS[first[0]][first[1]])
    card.start("two", MEANINGS[second[0]][second[1]])
    policy = card.policy
    card.tree.destroy("one")
    assert card.policy == policy
    card.tree.destroy("two")
    assert card.policy == WEIGHTED_CONSERVING


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_third_one_takes_nothing_that_two_were_promised(dialect: str, tmp_path: Path) -> None:
    """As many of each dialect as there is room for, beside a fixed part and a weight."""
    card = Card(tmp_path / "tree")
    card.start("fixed", MEANINGS[FIXED_30]["ctyun_egpu"])
    card.start("heavy", MEANINGS["a weight of 4"]["alibaba_cgpu"])
    for meaning, by in MEANINGS.items():
        for number in range(3 if dialect in by else 0):
            name = re.sub(r"\W+", "-", f"{meaning}-{number}")
            if isinstance(card.admit(by[dialect]), Grant):
                card.start(name, by[dialect])
            assert card.percent("fixed") == 30
            assert card.percent("heavy") >= 20, "4 of max_inst 20, whoever comes"


def test_the_report_a_weight_of_4_takes_nothing_from_a_fixed_part(tmp_path: Path) -> None:
    """A quota of 30 had 305 ‰ of the card, and 200 when a container with a weight of 4 came."""
    card = Card(tmp_path / "tree")
    card.start("quota", MEANINGS[FIXED_30]["alibaba_egpu"])
    assert (card.policy, card.percent("quota")) == (MIXED, 30)
    note = card.start("weight", MEANINGS["a weight of 4"]["alibaba_cgpu"]).notes
    assert (card.policy, card.percent("quota"), card.percent("weight")) == (MIXED, 30, 70)
    assert note == (
        "card 0: policy 2 weighted asked; 6 mixed stays, which is that of the 1 container on it,"
        " and this container has what it asks for within it",
    )
    card.start("plain", MEANINGS[PLAIN]["alibaba_cgpu"])
    assert (card.percent("quota"), card.percent("weight"), card.percent("plain")) == (30, 56, 14)


def test_what_is_promised_never_exceeds_the_card_and_a_refusal_says_it(tmp_path: Path) -> None:
    card = Card(tmp_path / "tree")
    card.start("heavy", MEANINGS["a weight of 4"]["alibaba_cgpu"])
    whole = {"EGPU": f"POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM={MEMORY_MIB},WEIGHT=100"}
    refused = card.admit(whole)
    assert isinstance(refused, Refusal)
    assert refused.reason == ("card 0: 100 % of compute asked, 80 % free (1 container holds 20 %)")
    card.start("most", {"EGPU": whole["EGPU"].replace("100", "80")})
    assert (card.percent("heavy"), card.percent("most")) == (20, 80)
    refused = card.admit(MEANINGS["30 % guaranteed"]["volcengine_mgpu"])
    assert isinstance(refused, Refusal)
    assert "30 % of compute asked, 0 % free (2 containers hold 100 %)" in refused.reason


def test_beside_the_drivers_own_sharing_nothing_is_held_and_it_is_refused(tmp_path: Path) -> None:
    card = Card(tmp_path / "tree")
    card.start("free", XGPU | {"GPU_POLICY": "0"})
    assert card.policy == NATIVE
    for meaning, dialect in spoken():
        result = card.admit(MEANINGS[meaning][dialect])
        if meaning == PLAIN:
            assert isinstance(result, Grant)
            continue
        assert isinstance(result, Refusal)
        assert "has policy 5 native for" in result.reason


def test_an_operators_policy_stays_and_a_fixed_part_is_held_under_it(tmp_path: Path) -> None:
    card = Card(tmp_path / "tree", WEIGHTED_CONSERVING)
    note = card.start("quota", MEANINGS[FIXED_30]["ctyun_egpu"]).notes
    assert "7 weighted-conserving stays, which was set by hand" in note[0]
    card.start("heavy", MEANINGS["a weight of 4"]["alibaba_cgpu"])
    assert (card.policy, card.percent("quota")) == (WEIGHTED_CONSERVING, 30)
    card.tree.destroy("quota")
    card.tree.destroy("heavy")
    assert card.policy == WEIGHTED_CONSERVING


@pytest.mark.parametrize("number", range(1, 7))
def test_each_policy_that_xgpu_asks_for_leaves_a_fixed_part_alone(
    number: int, tmp_path: Path
) -> None:
    """First, it is the card's; second, it counts for its container alone."""
    quota = {"GPU_CONTAINER_QUOTA_PERCENT": "20"} if number not in (2, 3) else {}
    asked = XGPU | {"GPU_POLICY": str(number)} | quota
    card = Card(tmp_path / "tree")
    card.start("xgpu", asked)
    before = card.policy
    card.start("fixed", MEANINGS[FIXED_30]["alibaba_egpu"])
    assert (card.policy, card.percent("fixed")) == (before, 30)
    card = Card(tmp_path / "other")
    card.start("fixed", MEANINGS[FIXED_30]["alibaba_egpu"])
    card.start("xgpu", asked)
    assert (card.policy, card.percent("fixed")) == (MIXED, 30)
    if number == 1:
        assert card.limits()["xgpu"].ceiling == pytest.approx(0.2), (FIXED, "of max_inst")


def test_alone_a_hint_is_the_cards_policy_and_the_tree_says_whose_it_is(tmp_path: Path) -> None:
    card = Card(tmp_path / "tree")
    note = card.start("heavy", MEANINGS["a weight of 4"]["alibaba_cgpu"]).notes
    assert card.policy == WEIGHTED
    assert note == (
        "card 0: policy 2 weighted in place of 7 weighted-conserving, as this container asks, until"
        " the card's last container goes",
    )
    assert procfs.read_card_stat(0, card.root)["policy_by_request"] == 1
    card.tree.destroy("heavy")
    assert "policy_by_request" not in procfs.read_card_stat(0, card.root)
