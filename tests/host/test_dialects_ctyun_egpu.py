# SPDX-License-Identifier: MIT
"""CTyun eGPU's acceptance cases, as far as they are decided before a container starts."""

from typing import Any

import pytest

from pycgpu.dialects import request_from
from pycgpu.errors import RequestError
from pycgpu.request.admission import admit
from pycgpu.request.model import MIB, Card, Grant, Refusal, Tenant
from tests.host.asking import asked, granted, refused

#: A V100 32 GB as nvidia-smi of that age shows it: less than the 32768 MiB that users divide.
V100_BYTES = 32510 * MIB


def egpu(*cards: Any, head: str = "POLICY=0,ONLINE=0,TYPE=DOCKER") -> Any:
    fields = (f"PGPU={n},MEM={mem},WEIGHT={weight}" for n, (mem, weight) in enumerate(cards))
    return {"EGPU": ":".join([head, *fields]), "NVIDIA_VISIBLE_DEVICES": "0,1,2"}


class Host:
    """Four V100 that remember what they granted."""

    def __init__(self, total_bytes: Any = V100_BYTES) -> None:
        self.cards = [Card(n, f"GPU-{n}", total_bytes) for n in range(4)]

    def start(self, env: Any) -> Any:
        result = admit(asked(env), self.cards)
        for given in result.cards if isinstance(result, Grant) else ():
            card = self.cards[given.index]
            tenant = Tenant(f"c{len(card.tenants)}", quota=given.quota)
            self.cards[given.index] = card._replace(
                allocated_bytes=card.allocated_bytes + (given.memory_bytes or 0),
                tenants=(*card.tenants, tenant),
            )
        return result


@pytest.mark.parametrize("mem", [3276, 8192, 10240])
@pytest.mark.parametrize("weight", [10, 50, 100])
def test_cases_1_to_5_memory_and_compute_are_granted_as_written(mem: Any, weight: Any) -> None:
    grant = Host().start(egpu(*[(mem, weight)] * 3))
    assert [(card.index, card.memory_bytes, card.quota) for card in grant.cards] == [
        (n, mem * MIB, weight) for n in range(3)
    ]


def test_case_6_more_memory_than_the_card_is_refused_in_numbers() -> None:
    refusal = Host().start(egpu((20480, 10), (20480, 10), (40960, 10)))
    assert refusal.reason == "card 2: 40960 MiB asked, 32768 MiB on the card"
    assert [card.index for card in refusal.fitting] == [0, 1]


@pytest.mark.parametrize("total_bytes", [V100_BYTES, 32768 * MIB])
def test_case_7_the_fourth_container_finds_no_memory(total_bytes: Any) -> None:
    host = Host(total_bytes)
    assert isinstance(host.start(egpu((20480, 10), (20480, 10), (10240, 10))), Grant)
    assert isinstance(host.start(egpu((10240, 10), (10240, 10), (20480, 10))), Grant)
    assert isinstance(host.start(egpu((2048, 10), (2048, 10), (2048, 10))), Grant)
    refusal = host.start(egpu((1024, 10), (1024, 10), (1024, 10)))
    assert refusal.reasons == tuple(
        f"card {n}: 1024 MiB asked, 0 MiB free of {total_bytes >> 20} MiB"
        f" (3 containers hold {total_bytes >> 20} MiB)"
        for n in range(3)
    )


def test_case_7_the_last_container_is_capped_to_what_the_card_has() -> None:
    host = Host()
    host.start(egpu((20480, 10), (20480, 10), (10240, 10)))
    host.start(egpu((10240, 10), (10240, 10), (20480, 10)))
    grant = host.start(egpu((2048, 10), (2048, 10), (2048, 10)))
    assert [card.memory_bytes >> 20 for card in grant.cards] == [32510 - 30720] * 3
    assert grant.short[0] == (
        "card 0: 2048 MiB asked, the last 1790 MiB of the card granted: of its 32510 MiB"
        " 2 containers hold 30720 MiB"
    )


def test_case_8_more_than_100_percent_is_refused_while_parsing() -> None:
    with pytest.raises(RequestError, match=r"EGPU=.*: card 2: WEIGHT=110 % asked"):
        request_from(egpu((20480, 10), (20480, 10), (10240, 110)))


def test_case_9_the_fourth_container_finds_no_compute() -> None:
    host = Host()
    assert isinstance(host.start(egpu((20480, 25), (20480, 25), (10240, 25))), Grant)
    assert isinstance(host.start(egpu((10240, 25), (10240, 25), (20480, 25))), Grant)
    assert isinstance(host.start(egpu((1024, 50), (1024, 50), (1024, 50))), Grant)
    refusal = host.start(egpu((100, 10), (100, 10), (100, 10)))
    assert refusal.reasons == tuple(
        f"card {n}: 10 % of compute asked, 0 % free (3 containers hold 100 %)" for n in range(3)
    )


def test_a_card_shown_without_a_limit_is_refused() -> None:
    env = egpu((1024, 10), (1024, 10))
    assert admit(asked(env), Host().cards) == Refusal(
        (
            "cards 0,1 are given a limit, but NVIDIA_VISIBLE_DEVICES shows 0,1,2;"
            " name the same cards in both",
        )
    )


def test_the_same_cards_by_uuid_are_the_same_cards() -> None:
    env = egpu((1024, 10), (1024, 10)) | {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0"}
    assert isinstance(granted(env, Host().cards), Grant)


def test_an_unknown_card_is_refused() -> None:
    env = {"EGPU": "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=7,MEM=1,WEIGHT=1"}
    assert refused(env, Host().cards).reason == ("card 7 is not on this host, which has 0,1,2,3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "POLICY=0,ONLINE=0,TYPE=DOCKER",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:",
        "POLICY=0,ONLINE=0:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=7,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=0,ONLINE=2,TYPE=DOCKER:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=VM:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1,MEM=2,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1G,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=0,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1,WEIGHT=0",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0,MEM=1,WEIGHT=1:PGPU=0,MEM=1,WEIGHT=1",
        "POLICY=0,ONLINE=0,TYPE=DOCKER:PGPU=0, MEM=1,WEIGHT=1",
        "PGPU=0,MEM=1,WEIGHT=1",
    ],
)
def test_whatever_breaks_the_grammar_is_quoted(text: Any) -> None:
    with pytest.raises(RequestError) as caught:
        request_from({"EGPU": text})
    assert str(caught.value).startswith(f"EGPU={text!r}: ")
