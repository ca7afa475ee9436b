# SPDX-License-Identifier: MIT
"""Quotas beside somebody who pauses: budgets over a second, spent when they are wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Run, Scenario, Tenant, check, mixes, run, serving
from pycgpu.simulate.scenario import LOGGED_EARLY_NS, MS, entitlements

SECOND_NS = 1000 * MS
SETTLED_NS = 2 * SECOND_NS
FAIR = POLICIES.index("weighted-conserving")
#: Policies under which a quota is a ceiling and no fixed part of the card.
BUDGETS = tuple(POLICIES.index(n) for n in ("weak", "weighted-conserving", "burst", "online"))

#: 1 ms of work every 20 ms
NOW_AND_THEN = serving.server(arrivals=(), off_ns=20 * MS, steps=1, step_ns=MS, uncapped=False)
TRAINER = serving.trainer()


def capped(tenant: Tenant, quota: int) -> Tenant:
    return replace(tenant, quota=quota, early_ns=LOGGED_EARLY_NS, uncapped=False)


def loop(step_ns: int, host_ns: int) -> Tenant:
    """One that submits a piece of work, waits for it, and pauses."""
    return capped(
        serving.server(arrivals=(), off_ns=0, steps=1, step_ns=step_ns, host_ns=host_ns), 30
    )


def beside(*tenants: Tenant, policy: int = FAIR, seconds: int = 8) -> Run:
    return run(Scenario(tenants, policy=policy, duration_ns=seconds * SECOND_NS))


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "native"])
def test_one_without_weight_has_no_compute_though_another_pauses(policy: str) -> None:
    """Its gate stood open on demand: it had 98 % of the card."""
    rest = replace(TRAINER, weight=0)
    result = beside(serving.server(8), TRAINER, rest, policy=POLICIES.index(policy), seconds=4)
    assert result.work(2) == 0
    assert result.work(1) > 0


@pytest.mark.parametrize("ppm", (-900, -50, 500))
@pytest.mark.parametrize("quota", (10, 33))
def test_a_quota_lasts_however_the_cards_clock_parts_from_the_hosts(ppm: int, quota: int) -> None:
    """It had 33 % at first, and 19 % after three minutes at 50 ppm: what parts the clocks was
    taken for time that the container ran."""
    tenant = replace(capped(replace(TRAINER, fetched_ns=20 * MS), quota), early_ns=0)
    length_ns = 90 * SECOND_NS
    result = run(Scenario((tenant,), policy=FAIR, duration_ns=length_ns, card_clock_ppm=ppm))
    for since_ns in (SETTLED_NS, length_ns - 30 * SECOND_NS):
        # with one clock it has 31.1 to 33.7 in single seconds, and 31.8 to 33.0 in the last ten
        assert result.work(0, since_ns) * 100 == pytest.approx(quota, abs=1.2)
    worked_ns = sum(result.useful[0])
    assert result.used[0] == pytest.approx(worked_ns, rel=0.01)


@pytest.mark.parametrize("quota", (10, 33, 50))
def test_a_quota_is_of_what_is_done_and_not_of_what_loading_takes(quota: int) -> None:
    """On cards the log counts a part of each loading as run: 10 had 9.7 and 33 had 32.2 %."""
    pauses = Tenant("bursty", on_ns=6 * SECOND_NS, off_ns=600 * MS)
    result = run(
        # it has paused, and does not in what is measured
        Scenario((capped(pauses, quota),), policy=FAIR, duration_ns=6 * SECOND_NS, seed=3)
    )
    assert result.work(0, 2 * SECOND_NS) * 100 == pytest.approx(quota, abs=0.35)


@pytest.mark.parametrize("policy", BUDGETS)
@pytest.mark.parametrize(
    "others",
    [
        pytest.param((), id="alone"),
        pytest.param((TRAINER,), id="beside a trainer"),
        pytest.param((capped(TRAINER, 50),), id="beside a trainer with a quota"),
        pytest.param((capped(TRAINER, 20),) * 3, id="beside three with quotas"),
    ],
)
def test_one_with_a_quota_that_wakes_with_budget_waits_for_a_look_and_a_call(
    policy: int, others: tuple[Tenant, ...]
) -> None:
    result = beside(capped(NOW_AND_THEN, 30), *others, policy=policy)
    assert result.percentile(0, "wait", 0.99, SETTLED_NS) <= check.WAIT_MS + check.PREEMPTION_MS
    assert result.percentile(0, "step", 0.99, SETTLED_NS) <= 4


@pytest.mark.parametrize("policy", BUDGETS)
def test_one_that_wakes_beside_a_quota_waits_no_longer_than_without(policy: int) -> None:
    result = beside(replace(NOW_AND_THEN, uncapped=True), capped(TRAINER, 50), policy=policy)
    assert result.percentile(0, "wait", 0.99, SETTLED_NS) <= check.WAIT_MS + check.PREEMPTION_MS
    assert min(result.shares(1, SECOND_NS, SETTLED_NS)) >= 0.5 - 0.0125


@pytest.mark.parametrize("seed", (4, 5, 18))
def test_one_that_paused_and_spent_its_claim_does_not_wait_for_anothers(seed: int) -> None:
    """
    Who never pauses goes before a claim when it is behind; who had paused up to 2 s before did not:
    at work all the while, it had nothing for as long as another's claim took, up to 650 ms.
    """
    bursts = Tenant(**check.bursts(400, 300))
    tenants = (
        Tenant(quota=15),
        Tenant(uncapped=True),
        replace(bursts, quota=15),
        replace(bursts, uncapped=True),
    )
    result = run(Scenario(tenants, POLICIES.index("mixed"), max_inst=4, seed=seed))
    missed = [max(row) for row in mixes.misses(result, 25 * MS)]
    # 8.6, 9.3 and 6.9 points
    assert max(missed) <= 1


def test_a_request_within_the_budget_is_served_undisturbed() -> None:
    """Requests of 50 ms, half a second apart."""
    spaced = tuple(range(SECOND_NS, 8 * SECOND_NS, SECOND_NS // 2))
    server = capped(serving.server(arrivals=spaced), 30)
    alone = serving.seen(beside(replace(server, quota=0)), since_ns=SETTLED_NS)
    both = serving.seen(beside(server, TRAINER), since_ns=SETTLED_NS)
    assert both.request_p99 and alone.request_p99 and both.token_p99 and alone.token_p99
    assert both.request_p99 <= 1.15 * alone.request_p99
    assert both.token_p99 <= 2 * alone.token_p99


@pytest.mark.parametrize("quota", (10, 30, 60))
@pytest.mark.parametrize(
    "others",
    [
        pytest.param((), id="alone"),
        pytest.param((Tenant("idle"),), id="beside a sleeper"),
        pytest.param((capped(TRAINER, 20),), id="beside another quota"),
        pytest.param((serving.server(8),), id="beside a server"),
    ],
)
@pytest.mark.parametrize(
    "tenant",
    [
        pytest.param(loop(20 * MS, MS // 10), id="silent for 20 ms"),
        pytest.param(loop(20 * MS, 3 * MS), id="silent, and pauses"),
        pytest.param(loop(1000 * MS, 6 * MS), id="silent for a second"),
        pytest.param(loop(8 * MS, 6 * MS), id="as long as it is waited for"),
        pytest.param(loop(50_000, 2_500_000), id="wakes 400 times a second"),
        pytest.param(Tenant("spinner"), id="GP_PUT spins"),
        pytest.param(Tenant("frozen"), id="GP_PUT stands beside GP_GET"),
        pytest.param(Tenant(fetched_ns=50 * MS), id="submits 20 times a second"),
        pytest.param(Tenant(**check.bursts(100, 100)), id="bursts"),
        pytest.param(Tenant(groups=4, **check.bursts(20, 60)), id="four processes"),
    ],
)
def test_no_ceiling_is_exceeded_in_any_second_whatever_a_tenant_does(
    tenant: Tenant, others: tuple[Tenant, ...], quota: int
) -> None:
    result = beside(capped(tenant, quota), *others, seconds=6)
    assert 100 * max(result.taken(0, SECOND_NS)) - quota <= check.CEILING_EXCESS


@pytest.mark.parametrize("others", [(), (capped(TRAINER, 20),)], ids=["alone", "beside another"])
@pytest.mark.parametrize(
    "tenant",
    [
        pytest.param(loop(1000 * MS, 6 * MS), id="a second without a submission"),
        pytest.param(Tenant(fetched_ns=50 * MS), id="20 submissions a second"),
        pytest.param(Tenant(), id="always queued"),
        pytest.param(serving.server(arrivals=(), off_ns=0), id="always a request"),
    ],
)
def test_who_wants_more_gets_its_quota(tenant: Tenant, others: tuple[Tenant, ...]) -> None:
    """Pauses of its host are its own."""
    result = beside(capped(tenant, 30), *others, Tenant("idle"))
    assert result.work(0, SETTLED_NS) >= 0.28


def test_what_one_with_a_quota_leaves_goes_to_one_without() -> None:
    result = beside(capped(NOW_AND_THEN, 50), TRAINER)
    assert result.work(1, SETTLED_NS) >= 0.9


@st.composite
def companies(draw: st.DrawFn) -> Scenario:
    """2 to 8 tenants of all kinds, some of them with quotas."""
    made = []
    for kind in draw(st.lists(st.sampled_from(range(5)), min_size=2, max_size=8)):
        on, off = draw(st.integers(1, 300)), draw(st.integers(1, 300))
        tenant = (
            Tenant(),
            Tenant(**check.bursts(on, off)),
            Tenant("idle"),
            replace(NOW_AND_THEN, step_ns=on * MS // 10, off_ns=off * MS),
            Tenant("waking", on_ns=10 * on * MS, off_ns=10 * off * MS),
        )[kind]
        quota = draw(st.sampled_from((0, 0, 10, 25, 60)))
        made.append(replace(tenant, weight=draw(st.integers(1, 3)), quota=quota, uncapped=False))
    policy = draw(st.sampled_from(BUDGETS))
    seed = draw(st.integers(1, 9))
    return Scenario(tuple(made), policy=policy, duration_ns=6 * SECOND_NS, seed=seed)


@settings(max_examples=60)
@given(companies())
def test_ceilings_hold_in_any_company(scenario: Scenario) -> None:
    result = run(scenario)
    for i, share in enumerate(entitlements(scenario)):
        if scenario.tenants[i].quota:
            excess = 100 * (max(result.taken(i, SECOND_NS)) - share.ceiling)
            # of 700 such tenants two had more than a point, 1.10 at most
            assert excess <= check.CEILING_EXCESS + 0.25
