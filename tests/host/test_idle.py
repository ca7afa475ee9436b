# SPDX-License-Identifier: MIT
"""Who is idle, and who of them is parked: the rules alone, without any container."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.errors import CgpuError
from pycgpu.parking import rules
from pycgpu.parking.idle import Idleness, Idler, Moves, Use, choose

CARDS = (0, 1)
sizes = st.dictionaries(st.sampled_from(CARDS), st.integers(0, 100))
idlers = st.lists(
    st.tuples(st.integers(0, 3), sizes, st.floats(1, 1000)).map(
        lambda drawn: Idler("", drawn[0], drawn[1], drawn[2])
    ),
    max_size=8,
).map(
    lambda found: [Idler(str(n), one.priority, one.held, one.idle_s) for n, one in enumerate(found)]
)


def makes_room(chosen: list[Idler], wanted: dict[int, int]) -> bool:
    return all(sum(one.held.get(card, 0) for one in chosen) >= wanted[card] for card in wanted)


@given(idlers, sizes, st.integers(0, 3), st.integers(0, 8))
def test_those_chosen_make_the_room_and_each_of_them_is_needed(
    found: list[Idler], wanted: dict[int, int], priority: int, most: int
) -> None:
    chosen = choose(found, wanted, priority, most)
    assert len(chosen) <= most
    assert all(one.priority <= priority for one in chosen)
    if chosen:
        assert makes_room(chosen, wanted)
        for left_out in chosen:
            assert not makes_room([one for one in chosen if one is not left_out], wanted)
    elif any(wanted.values()) and most == 8:
        allowed = [one for one in found if one.priority <= priority]
        assert not makes_room(allowed, wanted), "it could have been had"


@given(idlers, st.integers(1, 100))
def test_one_of_a_low_priority_goes_before_one_of_a_higher(found: list[Idler], size: int) -> None:
    equal = [Idler(one.id, one.priority, {0: 100}, one.idle_s) for one in found]
    chosen = choose(equal, {0: size}, 3, 8)
    if equal:
        (one,) = chosen
        assert (one.priority, -one.idle_s) == min((o.priority, -o.idle_s) for o in equal)


def use(submitted: int | None, size: int = 5, idle_park_s: int = 10, since_ns: int = 0) -> Use:
    return Use("one", 0, idle_park_s, submitted, {0: size}, since_ns)


@pytest.mark.parametrize(
    ("uses", "is_idle"),
    [
        ([use(1)] * 11, True),
        ([use(1)] * 10, False),
        ([*[use(1)] * 5, use(2), *[use(2)] * 9], False),
        ([*[use(1)] * 5, use(2), *[use(2)] * 10], True),
        ([*[use(1)] * 10, use(1, size=6)], False),
        ([*[use(1)] * 10, use(None)], False),
        ([*[use(1)] * 5, use(None), *[use(1)] * 10], False),
        ([use(1, size=0)] * 20, False),
        ([use(1, idle_park_s=0)] * 20, False),
        # It came back at second 1, and stays for 15.
        ([use(1, since_ns=10**9)] * 16, False),
        ([use(1, since_ns=10**9)] * 17, True),
    ],
)
def test_idle_is_what_stood_still_for_as_long_as_it_says(uses: list[Use], is_idle: bool) -> None:
    idleness = Idleness()
    for second, one in enumerate(uses):
        found = idleness.idlers([one], float(second), 15 if one.since_ns else 0)
    assert [one.id for one in found] == (["one"] if is_idle else [])


@given(st.lists(st.floats(0, 20), min_size=1, max_size=60), st.integers(0, 12))
def test_no_minute_has_more_moves_than_the_operator_lets_it(steps: list[float], most: int) -> None:
    moves, now_s, begun = Moves(), 0.0, []
    for step in steps:
        now_s += step
        if moves.left(now_s, most):
            moves.begin(now_s)
            begun.append(now_s)
    for at in begun:
        assert len([one for one in begun if at <= one < at + 60]) <= most


def test_the_operators_file_is_read_and_what_is_wrong_in_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "parking.toml"
    assert rules.load(str(path)) == rules.Rules()
    path.write_text('when = "idle"\npark_min_s = 5\nmoves_per_min = 3\npark_host_bytes = 7\n')
    assert rules.load(str(path)) == rules.Rules("idle", 5, 3, 7)
    for text, why in {
        'when = "always"': "when = 'always': write needed or idle",
        "park_min_s = -1": "park_min_s = -1: write 0 to 86400",
        "moves_per_min = 1.5": "moves_per_min = 1.5: write 0 to 600",
        "park_host_bytes = true": "park_host_bytes = True: write 0 to",
        "park_mins = 1": "'park_mins' is unknown; known are when, park_min_s",
        "when": "parking.toml: ",
    }.items():
        path.write_text(text)
        with pytest.raises(CgpuError, match=str(path)) as raised:
            rules.load(str(path))
        assert why in str(raised.value)
