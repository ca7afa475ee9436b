# SPDX-License-Identifier: MIT
"""Pods on cards: what a node's count hides."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.kubernetes import scheduling
from pycgpu.kubernetes.families import Amounts
from pycgpu.kubernetes.pods import Part
from pycgpu.kubernetes.scheduling import Card, judge, place
from pycgpu.request.model import MIB

GPU = "nvidia.com/gpu"


def node(number: int = 2, memory: int = 16384) -> list[Card]:
    return [Card(f"c{n}", memory, memory) for n in range(number)]


def part(
    memory: int = 1000, quota: int | None = None, cards: int = 1, when: tuple[int, int] = (9, 9)
) -> Part:
    return Part(Amounts(cards, memory * MIB, None, quota), *when, GPU, cards, when[1] < 9)


def take(cards: list[Card], placement: str = "binpack", **pod: Part) -> Any:
    choice = place(pod, cards, placement)
    if choice is not None:
        scheduling.apply(pod, choice, cards)
    return choice


def good(*words: Any) -> int:
    found = judge(*words)
    assert found is not None
    return found


def test_60_and_60_percent_are_not_on_one_card() -> None:
    cards = node(2)
    assert take(cards, a=part(quota=60)) == {"a": ("c0",)}
    assert take(cards, b=part(quota=60)) == {"b": ("c1",)}
    assert take(cards, c=part(quota=60)) is None
    assert take(cards, d=part(quota=40)) == {"d": ("c0",)}


@pytest.mark.parametrize(("placement", "second"), [("binpack", "c0"), ("spread", "c1")])
def test_the_next_pod_goes_where_the_placement_says(placement: str, second: str) -> None:
    cards = node(2)
    assert take(cards, placement, a=part()) == {"a": ("c0",)}
    assert take(cards, placement, a=part()) == {"a": (second,)}


def test_a_pods_containers_share_a_card_if_it_has_room() -> None:
    assert take(node(2), "spread", a=part(4000), b=part(4000)) == {"a": ("c0",), "b": ("c0",)}
    assert take(node(2), "spread", a=part(9000), b=part(9000)) == {"a": ("c0",), "b": ("c1",)}


def test_a_container_of_two_cards_takes_each_part_of_two() -> None:
    cards = node(2)
    assert take(cards, a=part(9000, 50, cards=2)) == {"a": ("c0", "c1")}
    assert [(card.free_memory, card.free_quota) for card in cards] == [(7384, 50)] * 2
    assert take(cards, a=part(1000, cards=3)) is None


def test_without_an_amount_of_memory_the_card_is_whole() -> None:
    cards = node(1)
    assert take(cards, a=Part(Amounts())) == {"a": ("c0",)}
    assert take(cards, b=part(1)) is None


def test_an_overcommitted_card_takes_more_containers_and_none_above_itself() -> None:
    cards = [Card("c", 16384, 2 * 16384)]
    assert take(cards, a=part(16384)) == {"a": ("c",)}
    assert take(cards, b=part(16385)) is None
    assert judge({"b": part(16385)}, cards, "binpack") is None
    assert take(cards, b=part(10000), d=part(6385), c=part(1)) is None
    assert take(cards, b=part(10000), c=part(6384)) == {"b": ("c",), "c": ("c",)}
    assert take(cards, d=part(1)) is None
    assert judge({"d": part(16385)}, [Card("c", 16384, 4 * 16384)], "spread") is None


def test_a_whole_card_is_the_card_itself_whatever_it_promises() -> None:
    cards = [Card("c", 14910, 15360 * 2 - 450)]
    assert take(cards, a=Part(Amounts())) == {"a": ("c",)}
    assert take(cards, b=Part(Amounts())) == {"b": ("c",)}
    assert cards[0].free_memory == 450


@pytest.mark.parametrize(("placement", "first"), [("binpack", "c0"), ("spread", "c1")])
def test_of_cards_with_different_ratios_the_emptier_part_counts(placement: str, first: str) -> None:
    """A card that has promised half of twice itself is fuller than an empty one."""
    cards = [Card("c0", 16384, 2 * 16384), Card("c1", 16384, 16384)]
    cards[0].free_memory = 16384
    assert take(cards, placement, a=part(1000)) == {"a": (first,)}
    good({"a": part(1000)}, cards, placement)


def test_containers_of_a_card_are_counted() -> None:
    cards = [Card("c", 16384, 16384, free_containers=1)]
    assert take(cards, a=part(1)) is not None
    assert take(cards, b=part(1)) is None


def test_fuller_nodes_score_more_under_binpack_and_less_under_spread() -> None:
    empty, full = node(2), node(2)
    take(full, a=part(9000, 50))
    pod = {"a": part(1000, 10)}
    assert good(pod, full, "binpack") > good(pod, empty, "binpack")
    assert good(pod, full, "spread") == good(pod, empty, "spread")
    take(full, "spread", a=part(9000, 50))
    assert good(pod, full, "spread") < good(pod, empty, "spread")


@given(st.integers(1, 16384), st.none() | st.integers(1, 100), st.integers(0, 8000))
def test_a_pod_of_one_container_is_judged_as_any_other(
    memory: int, quota: int | None, held: int
) -> None:
    """What is quick for most pods is what they would take."""
    for placement in ("binpack", "spread"):
        cards = node(2)
        take(cards, a=part(held))
        before = [card.free for card in cards]
        pod = {"a": part(memory, quota)}
        said = good(pod, cards, placement)
        assert [card.free for card in cards] == before
        (name,) = (place(pod, cards, placement) or {})["a"]
        (chosen,) = [card for card in cards if card.name == name]
        chosen.take(pod["a"].need(16384))
        full = 1 - chosen.free / 2
        wanted = 10 * (full if placement == "binpack" else 1 - full)
        assert abs(said - wanted) <= 0.5 + 1e-9


def test_init_containers_and_those_after_them_are_not_there_at_once() -> None:
    """On 8 GiB init 6000, a 2000 and b 2000 fit, and what is left is a card less 6000."""
    cards = node(1, 8192)
    pod = {"init": part(6000, when=(0, 0)), "a": part(2000), "b": part(2000)}
    assert take(cards, "binpack", **pod) == {"init": ("c0",), "a": ("c0",), "b": ("c0",)}
    assert (cards[0].free_memory, cards[0].free_containers) == (2192, 18)
    assert take(cards, c=part(2193)) is None
    beside = {"init": part(6000, when=(0, 0)), "sidecar": part(3000, when=(0, 9))}
    assert take(node(1, 8192), "binpack", **beside) is None
    after = {"init": part(6000, when=(0, 0)), "sidecar": part(3000, when=(1, 9)), "a": part(5000)}
    assert take(node(1, 8192), "binpack", **after) is not None


def test_who_passes_its_ids_on_has_the_cards_of_the_next() -> None:
    cards = node(2)
    take(cards, "binpack", other=part(12000))
    pod = {"init": part(1000, when=(0, 0)), "a": part(8000)}
    assert take(cards, "binpack", **pod) == {"init": ("c1",), "a": ("c1",)}


PODS = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        part,
        st.integers(1, 20000),
        st.none() | st.integers(1, 100),
        st.integers(1, 3),
        st.tuples(st.integers(0, 5), st.integers(5, 9)),
    ),
    min_size=1,
)


@given(st.lists(PODS, max_size=12), st.sampled_from(("binpack", "spread")), st.randoms())
def test_nothing_is_promised_twice_and_all_comes_back(
    pods: list[dict[str, Part]], placement: str, chance: random.Random
) -> None:
    cards = node(3)
    before = [card.free for card in cards]
    placed: list[tuple[Any, Any]] = []
    for pod in pods:
        choice = take(cards, placement, **pod)
        for card in cards:
            assert min(card.free_memory, card.free_quota, card.free_containers) >= 0
        if choice is not None:
            assert {len(set(choice[name])) == pod[name].amounts.cards for name in pod} == {True}
            placed.append((pod, choice))
    chance.shuffle(placed)
    for pod, choice in placed:
        scheduling.apply(pod, choice, cards, -1)
    assert [card.free for card in cards] == before
