# SPDX-License-Identifier: MIT
"""The scheduler by recent use: what it promises, and what it does not keep yet (docs/recent.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Run, Scenario, Tenant, check, mixes, run, serving
from pycgpu.simulate._runlist import ffi, lib
from pycgpu.simulate.scenario import MS, entitlements

CONSTANTS = Path(__file__).parents[2] / "pycgpu/simulate/recent/constants.h"
SECOND_NS = 1000 * MS
BIN_NS = lib.CGPU_RECENT_BIN_NS
BUSY = Tenant(uncapped=True)

#: Bounds of the matrix that this scheduler misses, by policy: docs/recent.md says why.
MISSED = {
    "weighted": {"a neighbour has bursts", "long bursts", "a quota on one, and bursts"},
    "weak": {
        "a neighbour is idle",
        "a neighbour has bursts",
        "long bursts",
        "one with a quota that waits beside a quota",
        "a quota on one, and bursts",
    },
    "mixed": {
        "a neighbour is idle",
        "long bursts",
        "one with a quota that waits beside a quota",
        "one that waits for results beside a quota",
    },
    "weighted-conserving": {
        "a neighbour is idle",
        "a neighbour has bursts",
        "long bursts",
        "one with a quota that waits beside a quota",
        "random mixes",
    },
    "burst": {
        "a neighbour is idle",
        "a neighbour has bursts",
        "long bursts",
        "one with a quota that waits beside a quota",
        "a quota on one, and bursts",
    },
    "online": {
        "a neighbour is idle",
        "a neighbour has bursts",
        "long bursts",
        "one with a quota that waits beside a quota",
    },
}


def recent(*tenants: Tenant, **other: Any) -> Run:
    values: dict[str, Any] = {"policy": serving.FAIR, "controller": "recent", **other}
    return run(Scenario(tenants, **values))


# ---- account


class Book:
    """The account beside a model of it: every charge with its time."""

    def __init__(self) -> None:
        self.book = ffi.new("struct cgpu_book *")
        self.charges: list[tuple[int, int, int]] = []
        lib.cgpu_book_init(self.book, 0)
        self.now = 0

    def used(self, slot: int) -> int:
        return int(lib.cgpu_book_used(self.book, slot))

    def expected(self, slot: int, since_ns: int) -> int:
        return sum([ns for at, who, ns in self.charges if who == slot and at > since_ns])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("ran", "held", "settle", "pass")),
        st.integers(0, 3),
        st.integers(0, 40 * MS),
    ),
    max_size=60,
)


@given(STEPS)
@example([("ran", 0, 20 * MS), ("settle", 0, 0), ("pass", 0, 40 * MS)] * 20)
def test_nothing_but_the_log_and_the_clock_changes_an_account(
    steps: list[tuple[str, int, int]],
) -> None:
    b = Book()
    told: dict[int, int] = {}
    for kind, slot, ns in steps:
        if kind == "ran":
            lib.cgpu_book_ran(b.book, slot, ns)
            told[slot] = told.get(slot, 0) + ns
        elif kind == "held":
            before = b.used(slot)
            lib.cgpu_book_hold(b.book, slot, ns)
            assert b.used(slot) == before + ns
        elif kind == "settle" and any(ns for ns in told.values()):
            # the log takes the place of what seemed to be
            lib.cgpu_book_settle(b.book, False, 0, b.now)
            b.charges += [(b.now, who, ns) for who, ns in told.items()]
            told = {}
        elif kind == "pass":
            b.now += ns
            lib.cgpu_book_turn(b.book, b.now)
    if any(ns for ns in told.values()):
        lib.cgpu_book_settle(b.book, False, 0, b.now)
        b.charges += [(b.now, who, ns) for who, ns in told.items()]
    else:
        return
    for slot in range(4):
        # the bin in which a second ago falls is forgotten little by little
        assert b.used(slot) <= b.expected(slot, b.now - SECOND_NS - BIN_NS)
        assert b.used(slot) >= b.expected(slot, b.now - SECOND_NS + BIN_NS) - len(b.charges)


def test_who_holds_the_card_and_does_not_run_pays_unless_another_ran() -> None:
    for other, paid in ((0, 30 * MS), (5 * MS, 0)):
        b = Book()
        lib.cgpu_book_hold(b.book, 0, 30 * MS)
        if other:
            lib.cgpu_book_ran(b.book, 1, other)
        lib.cgpu_book_settle(b.book, False, 0, 0)
        assert (b.used(0), b.used(1)) == (paid, other)


# ---- pick

ENTITIES = st.lists(
    st.fixed_dictionaries(
        {
            "runnable": st.booleans(),
            "pauses": st.booleans(),
            "share_ppm": st.integers(1, 10**6),
            "floor_ppm": st.sampled_from((0, 0, 100_000)),
            "priority": st.integers(0, 2),
            "used_ns": st.integers(0, SECOND_NS),
            "ran_ns": st.integers(0, 10**12),
        }
    ),
    min_size=1,
    max_size=8,
)


def has_budget(e: dict[str, int]) -> bool:
    return bool(e["pauses"]) and e["used_ns"] < e["share_ppm"] * 1000


def rank(e: dict[str, int]) -> tuple[bool, int, bool]:
    below = e["floor_ppm"] > 0 and e["used_ns"] < e["floor_ppm"] * 1000
    return below, e["priority"], has_budget(e)


@given(ENTITIES, st.integers(0, 8), st.booleans())
def test_the_highest_rank_runs_and_of_equals_the_least_part_of_its_share(
    entities: list[dict[str, int]], curr: int, over: bool
) -> None:
    array = ffi.new("struct cgpu_pick_entity[]", entities)
    chosen = lib.cgpu_pick(array, len(entities), curr, over)
    ready = [e for e in entities if e["runnable"]]
    if not ready:
        assert chosen == lib.CGPU_PICK_NONE
        return
    assert entities[chosen]["runnable"]
    assert rank(entities[chosen]) == max(map(rank, ready))
    if chosen == curr and not over:
        return

    def part(e: dict[str, int]) -> int:
        return min(10**6, e["used_ns"] * 10**6 // (e["share_ppm"] * 1000))

    equals = [e for e in ready if rank(e) == rank(entities[chosen])]
    assert part(entities[chosen]) == min(map(part, equals))


@given(st.integers(1, 10**6 - 1), st.integers(0, 2 * SECOND_NS), st.booleans())
def test_who_has_used_its_ceiling_is_throttled(ceiling: int, used: int, was: bool) -> None:
    throttled = lib.cgpu_pick_throttled(ceiling, used, was)
    if used >= ceiling * 1000:
        assert throttled
    assert not lib.cgpu_pick_throttled(10**6, used, was)


# ---- in the model

SHARES = st.lists(st.integers(1, 4), min_size=2, max_size=6)


@given(SHARES, st.sampled_from(("average", "fixed", "weak", "weighted-conserving")))
def test_who_always_has_work_gets_its_share_of_any_second(weights: list[int], name: str) -> None:
    policy = POLICIES.index(name)
    tenants = [Tenant(weight=w, uncapped=name.startswith("we")) for w in weights]
    result = recent(
        *tenants, policy=policy, max_inst=max(len(weights), sum(weights)), duration_ns=3 * SECOND_NS
    )
    given_to = entitlements(result.scenario)
    nobodys = max(0.0, 1 - sum(one.share for one in given_to))
    for i, one in enumerate(given_to):
        for share in result.shares(i, SECOND_NS, 200 * MS, nobodys):
            assert share == pytest.approx(one.share, abs=0.0075)


@given(
    quota=st.sampled_from((10, 30, 50, 80)),
    kind=st.sampled_from(("backlogged", "bursty", "server", "spinner")),
    others=st.integers(0, 2),
    seed=st.integers(1, 1000),
)
def test_nobody_exceeds_its_ceiling_in_any_second(
    quota: int, kind: Any, others: int, seed: int
) -> None:
    capped = Tenant(kind, quota=quota, on_ns=30 * MS, off_ns=20 * MS, step_ns=2 * MS)
    result = recent(capped, *[BUSY] * others, seed=seed, duration_ns=4 * SECOND_NS)
    assert max(result.taken(0, SECOND_NS)) <= quota / 100 + 0.01


@pytest.mark.parametrize("beside", (1, 3))
def test_who_wakes_with_budget_left_begins_soon(beside: int) -> None:
    waits = Tenant("server", step_ns=MS, host_ns=40_000, off_ns=20 * MS, uncapped=True)
    for seed in range(3):
        result = recent(waits, *[BUSY] * beside, seed=seed + 1)
        assert result.percentile(0, "wait", 0.99, check.FOUND_NS) <= check.WAIT_MS + 0.4


@pytest.mark.parametrize("policy", (0, 3, 7, 9))
def test_every_gate_opens_on_an_error_and_shares_are_made_again(policy: int) -> None:
    quota = Tenant(quota=30)
    failing = recent(
        quota, BUSY, policy=policy, max_inst=4, fail_ns=SECOND_NS, duration_ns=1500 * MS
    )
    assert failing.cards[0]["failures"] > 0
    assert not failing.cards[0]["shut_at_end"]
    after = recent(
        quota, BUSY, policy=policy, max_inst=4, fail_ns=SECOND_NS, duration_ns=6 * SECOND_NS
    )
    assert max(after.taken(0, SECOND_NS, 4 * SECOND_NS)) <= 0.31


@pytest.mark.parametrize("policy", range(len(POLICIES)), ids=POLICIES)
def test_the_matrix_is_kept_but_for_what_is_known(policy: int) -> None:
    broken = check.check(policy, "recent")["broken"]
    assert set(broken) <= MISSED.get(POLICIES[policy], set()), broken


@pytest.mark.parametrize("fetched", (False, True))
def test_random_mixes_are_kept_but_for_few(fetched: bool) -> None:
    worst = [
        max(mixes.shortfalls(run(mixes.mix(seed, fetched=fetched), controller="recent")))
        for seed in range(check.MIXES)
    ]
    assert sum(missed > check.MIX_SHORTFALL_1S for missed in worst) <= 3


def test_the_smallest_mix_in_which_it_falls_short_does_not_grow_smaller() -> None:
    """One that sleeps for long beside one that never does: once it was 10 points."""
    sleeper = Tenant("bursty", on_ns=400 * MS, off_ns=300 * MS, uncapped=True)
    result = recent(sleeper, BUSY)
    assert min(result.shares(1, SECOND_NS, 200 * MS)) >= 0.38
    assert max(mixes.shortfalls(result)) <= check.MIX_SHORTFALL_1S


def test_a_server_beside_a_trainer_is_served_no_worse_than_by_the_engine() -> None:
    seconds = 20.0
    tenants = (serving.server(seconds), serving.trainer())
    pair = Scenario(tenants, policy=serving.FAIR, duration_ns=20 * SECOND_NS)
    engine, by_use = (run(replace(pair, controller=c)) for c in ("engine", "recent"))
    for kind in ("step", "request", "wait"):
        assert by_use.percentile(0, kind, 0.99) <= engine.percentile(0, kind, 0.99)
    assert by_use.work(1) >= engine.work(1) - 0.01


# ---- its constants


def test_thirty_constants_each_with_what_is_traded() -> None:
    text = CONSTANTS.read_text()
    names = re.findall(r"^\t(CGPU_RECENT_\w+) =", text, re.MULTILINE)
    assert len(names) == len(set(names)) <= 30
    body = text.split("{", 1)[1]
    assert body.lstrip().startswith("/*")
    comments = re.findall(r"/\*.*?\*/", body, re.DOTALL)
    assert len(comments) > len(names) / 2
    assert [one for one in comments if "Traded: " not in one] == []
