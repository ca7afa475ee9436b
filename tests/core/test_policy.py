# SPDX-License-Identifier: MIT
"""Policies as a pure function: the table, cGPU's meanings, and what no input may break."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu._core import ffi, lib
from pycgpu.request.model import POLICIES, PRIORITY_MAX

PPM = lib.CGPU_PPM
AVERAGE, PREEMPTIVE, WEIGHTED, FIXED, WEAK, NATIVE, MIXED, FAIR, BURST, ONLINE = range(10)
STRICT = (AVERAGE, PREEMPTIVE, WEIGHTED, FIXED)
CONSERVING = (WEAK, MIXED, FAIR, BURST, ONLINE)


def shares(policy: int, members: list[dict[str, int]], max_inst: int = 20) -> Any:
    """Return (share, floor, ceiling) of each member in parts per million, or the errno."""
    given_members = ffi.new("struct cgpu_policy_member[]", len(members))
    for member, values in zip(given_members, members, strict=True):
        fields = {"weight": 1, "open": True, "active": True, **values}
        for name, value in fields.items():
            setattr(member, name, value)
    out = ffi.new("struct cgpu_policy_share[]", max(1, len(members)))
    status = lib.cgpu_policy_shares(policy, max_inst, given_members, len(members), out)
    if status:
        return -status
    return [(s.share_ppm, s.floor_ppm, s.ceiling_ppm) for s in list(out)[: len(members)]]


def ceilings(*args: Any, **kwargs: Any) -> list[float]:
    return [round(c / PPM, 4) for _, _, c in shares(*args, **kwargs)]


def parts(*args: Any, **kwargs: Any) -> list[float]:
    return [round(s / PPM, 4) for s, _, _ in shares(*args, **kwargs)]


@st.composite
def members(draw: st.DrawFn, least: int = 0) -> list[dict[str, int]]:
    made = []
    for _ in range(draw(st.integers(least, 25))):
        quota = draw(st.sampled_from((0, 0, 1, 10, 33, 50, 100)))
        is_open = draw(st.booleans())
        made.append(
            {
                "weight": draw(st.integers(0, 10)),
                "quota": quota,
                "quota_min": draw(st.integers(0, quota or 100)),
                "priority": draw(st.integers(0, 15)),
                "own_ppm": draw(st.sampled_from((0, 0, 0, 50_000, 300_000, PPM))),
                "least_ppm": draw(st.sampled_from((0, 0, 50_000, 300_000))),
                "own_weight": draw(st.booleans()),
                "open": is_open,
                "active": is_open and draw(st.booleans()),
            }
        )
    return made


policies = st.integers(0, 9)
instances = st.integers(1, 64)


def test_policies_have_the_names_that_the_package_uses() -> None:
    assert tuple(ffi.string(lib.cgpu_policy_name(p)).decode() for p in range(10)) == POLICIES
    assert lib.cgpu_policy_name(10) == ffi.NULL
    assert lib.CGPU_PRIORITY_MAX == PRIORITY_MAX
    for number, name in enumerate(POLICIES):
        assert lib.cgpu_policy_number(name.encode(), len(name)) == number
    assert lib.cgpu_policy_number(b"averag", 6) == -errno.EINVAL
    assert lib.cgpu_policy_number(b"average ", 8) == -errno.EINVAL


def test_average_gives_one_slot_of_max_inst_even_to_a_container_alone() -> None:
    assert ceilings(AVERAGE, [{}], max_inst=4) == [0.25]
    assert ceilings(AVERAGE, [{}, {"open": False}, {}], max_inst=4) == [0.25] * 3


def test_preemptive_divides_by_those_that_hold_the_gpu_open() -> None:
    assert ceilings(PREEMPTIVE, [{}]) == [1]
    assert parts(PREEMPTIVE, [{}, {}, {"open": False}]) == [0.5, 0.5, 0]
    # idle, but open: its half stays its own
    assert parts(PREEMPTIVE, [{}, {"active": False}]) == [0.5, 0.5]


def test_weighted_counts_containers_that_do_not_use_the_gpu_and_gives_one_alone_all() -> None:
    assert ceilings(WEIGHTED, [{"weight": 8}]) == [1]
    assert ceilings(WEIGHTED, [{"weight": 2}, {"weight": 1, "open": False}]) == [0.6667, 0.3333]


def test_fixed_gives_weight_of_max_inst() -> None:
    assert ceilings(FIXED, [{"weight": 2}, {"weight": 5}], max_inst=10) == [0.2, 0.5]


def test_weak_shares_equally_among_the_active_without_ceiling() -> None:
    assert parts(WEAK, [{}, {"active": False}, {}]) == [0.5, 0, 0.5]
    assert ceilings(WEAK, [{}, {}]) == [1, 1]


def test_native_controls_nothing() -> None:
    assert ceilings(NATIVE, [{"quota": 10}, {"weight": 0}]) == [1, 1]


def test_mixed_keeps_quotas_and_shares_the_remainder() -> None:
    three = [{"quota": 30}, {}, {}]
    assert parts(MIXED, three) == [0.3, 0.35, 0.35]
    assert ceilings(MIXED, three) == [0.3, 0.7, 0.7]
    assert parts(MIXED, [{"quota": 30}, {}, {"active": False}]) == [0.3, 0.7, 0]
    # what was promised to a container that is away is not given to others
    assert parts(MIXED, [{"quota": 30, "open": False}, {}]) == [0, 0.7]


def test_weighted_conserving_divides_by_weight_among_the_active() -> None:
    assert parts(FAIR, [{"weight": 1}, {"weight": 3}]) == [0.25, 0.75]
    assert parts(FAIR, [{"weight": 1}, {"weight": 3, "active": False}]) == [1, 0]


def test_burst_guarantees_quota_min_and_caps_at_quota() -> None:
    assert parts(BURST, [{"quota_min": 60}, {}, {}]) == [0.6, 0.2, 0.2]
    assert parts(BURST, [{"quota": 20, "quota_min": 10}, {}]) == [0.2, 0.8]
    assert parts(BURST, [{"quota": 20, "quota_min": 10}]) == [0.2]


@pytest.mark.parametrize("policy", [p for p in range(10) if p != NATIVE])
def test_a_quota_caps_a_container_even_alone(policy: int) -> None:
    assert ceilings(policy, [{"quota": 10, "weight": 4}], max_inst=4) == [0.1]


@pytest.mark.parametrize("policy", CONSERVING)
def test_what_a_quota_leaves_goes_to_the_others(policy: int) -> None:
    assert sum(parts(policy, [{"quota": 10}, {}, {}])) == 1


def test_each_step_of_priority_doubles_the_pull_and_starves_nobody() -> None:
    assert parts(WEAK, [{"priority": 1}, {}]) == [0.6667, 0.3333]
    low, high = parts(WEAK, [{}, {"priority": 15}])
    assert low > 0.015
    assert high == pytest.approx(64 * low, rel=0.01)
    assert parts(WEAK, [{}, {"priority": 15}]) == parts(WEAK, [{}, {"priority": 6}])
    assert parts(WEAK, [{}, {"priority": 5}]) != parts(WEAK, [{}, {"priority": 6}])


@pytest.mark.parametrize("policy", [p for p in range(10) if p != NATIVE])
def test_an_own_part_is_exactly_that_whoever_else_comes(policy: int) -> None:
    own = {"own_ppm": 300_000}
    assert ceilings(policy, [own]) == [0.3]
    crowds: list[list[dict[str, int]]] = [[{"weight": 4}], [{"weight": 8}, {"priority": 6}], [{}]]
    for others in crowds:
        assert parts(policy, [own, *others])[0] == 0.3
    assert parts(policy, [own, {"own_ppm": 700_000}, {}]) == [0.3, 0.7, 0]


@pytest.mark.parametrize("policy", STRICT)
def test_what_own_parts_leave_is_divided_as_the_policy_says(policy: int) -> None:
    own, two, one = {"own_ppm": 300_000}, {"weight": 2}, {"weight": 1}
    divided = {
        AVERAGE: [0.3, 0.2, 0.2],
        PREEMPTIVE: [0.3, 0.35, 0.35],
        WEIGHTED: [0.3, 0.4667, 0.2333],
        FIXED: [0.3, 0.4, 0.2],
    }
    assert parts(policy, [own, two, one], max_inst=5) == divided[policy]


@pytest.mark.parametrize("policy", [AVERAGE, PREEMPTIVE, WEAK, MIXED])
def test_a_weight_that_was_asked_for_counts_under_policies_that_know_none(policy: int) -> None:
    asked, other = {"weight": 4, "own_weight": True}, {"weight": 2}
    a, b = parts(policy, [asked, other], max_inst=5)
    assert a == pytest.approx(4 * b, abs=0.0002)
    a, b = parts(policy, [{"weight": 4}, other], max_inst=5)
    assert a == b, "that nobody asked for does not"


@pytest.mark.parametrize("policy", [p for p in range(10) if p not in (NATIVE, FIXED, AVERAGE)])
def test_a_guarantee_holds_under_every_policy(policy: int) -> None:
    sure = {"quota_min": 60}
    assert parts(policy, [sure, {}, {}]) == [0.6, 0.2, 0.2]
    assert shares(policy, [sure, {"quota": 40}, {"weight": 9}])[0][1] >= 600_000


@given(policies, instances, members())
def test_nobody_gets_more_than_its_ceiling_and_all_together_not_more_than_the_card(
    policy: int, max_inst: int, given_members: list[dict[str, int]]
) -> None:
    result = shares(policy, given_members, max_inst)
    if policy == NATIVE:
        return
    assert sum(s for s, _, _ in result) <= PPM
    for (share, floor, ceiling), member in zip(result, given_members, strict=True):
        assert share <= ceiling <= PPM
        assert floor <= ceiling
        if member["quota"]:
            assert ceiling <= member["quota"] * PPM // 100 + 1
        if not member["open"]:
            assert share == 0
        if not member["weight"]:
            assert (share, ceiling) == (0, 0)


@given(st.sampled_from((WEAK, FAIR, BURST, ONLINE)), instances, members())
def test_work_conserving_policies_leave_nothing_that_anybody_may_take(
    policy: int, max_inst: int, given_members: list[dict[str, int]]
) -> None:
    result = shares(policy, given_members, max_inst)
    busy = [r for r, m in zip(result, given_members, strict=True) if m["active"] and m["weight"]]
    assert sum(s for s, _, _ in busy) == min(PPM, sum(c for _, _, c in busy))


@given(st.sampled_from((BURST, ONLINE)), members(1), instances)
def test_guarantees_that_fit_the_card_are_kept(
    policy: int, given_members: list[dict[str, int]], max_inst: int
) -> None:
    result = shares(policy, given_members, max_inst)
    floors = sum(f for (_, f, _), m in zip(result, given_members, strict=True) if m["active"])
    for (share, floor, _), member in zip(result, given_members, strict=True):
        if member["active"] and floors <= PPM:
            assert share >= floor


@given(st.sampled_from((WEAK, FAIR, WEIGHTED, FIXED)), st.lists(st.integers(1, 9), min_size=1))
def test_equal_members_get_equal_shares(policy: int, weights: list[int]) -> None:
    weights = (weights * 2)[:24]
    result = shares(policy, [{"weight": w} for w in weights], 64)
    by_weight: dict[int, set[int]] = {}
    for weight, (share, _, _) in zip(weights, result, strict=True):
        by_weight.setdefault(weight, set()).add(share)
    for equals in by_weight.values():
        # a millionth that does not divide goes to somebody
        assert max(equals) - min(equals) <= 1


@pytest.mark.parametrize(
    ("policy", "max_inst", "member", "expected"),
    [
        (10, 20, {}, errno.EINVAL),
        (0, 0, {}, errno.ERANGE),
        (0, 65, {}, errno.ERANGE),
        (0, 20, {"weight": 10001}, errno.ERANGE),
        (0, 20, {"quota": 101}, errno.ERANGE),
        (0, 20, {"quota_min": 101}, errno.ERANGE),
        (0, 20, {"quota": 10, "quota_min": 11}, errno.ERANGE),
        (0, 20, {"priority": 16}, errno.ERANGE),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_its_errno(
    policy: int, max_inst: int, member: dict[str, int], expected: int
) -> None:
    assert shares(policy, [member], max_inst) == expected


def test_more_members_than_a_card_takes_are_refused() -> None:
    assert shares(0, [{}] * 65) == errno.ENOSPC
    assert len(shares(0, [{}] * 64)) == 64
