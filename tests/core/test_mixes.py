# SPDX-License-Identifier: MIT
"""What a tenant missed in a second, of what it wanted and was due."""

from __future__ import annotations

import pytest

from pycgpu.simulate import Run, Scenario, Tenant, mixes, serving
from pycgpu.simulate.scenario import MS

TENTH_NS = mixes.SECOND_NS // 10
HELD = {"-": 0, **{str(n): n * TENTH_NS // 10 for n in range(10)}, "x": TENTH_NS}


def three_seconds(tenants: tuple[Tenant, ...], held: str, backlog: str, lost_ns: int = 0) -> Run:
    """
    Return a run in which that became of the first of these tenants, by tenths of a second.

    Args:
        held: how many tenths of each it held: from 0 to 9, or all: x.
        backlog: whether it had work: x, or -.
        lost_ns: to switching, of each.
    """
    others = [[0] * 30 for _ in tenants[1:]]
    mine, work = ([HELD[c] for c in row] for row in (held, backlog))
    return Run(
        Scenario(tenants, serving.FAIR, bin_ns=TENTH_NS, duration_ns=3 * mixes.SECOND_NS),
        useful=[mine, *others],
        held=[mine, *others],
        backlog=[work, *others],
        lost=[[lost_ns] * 30],
        used=[],
        slowest=[],
        cards=[{"period_ns": 40 * MS}],
        samples=[],
    )


HALF = "5" * 10
ALWAYS = "x" * 30


@pytest.mark.parametrize(
    ("held", "backlog", "points"),
    [
        pytest.param(HALF + HALF + HALF, ALWAYS, 0, id="its share"),
        pytest.param(HALF + "5555544444" + HALF, ALWAYS, 5, id="less"),
        pytest.param(HALF + "0000000000" + "xxxxxxxxxx", ALWAYS, 50, id="nothing, and more later"),
        pytest.param("5555555577" + "5555544444" + HALF, ALWAYS, 1, id="ahead by 4 right before"),
        pytest.param("7755555555" + "5555544444" + HALF, ALWAYS, 1, id="ahead a second before"),
        pytest.param("7733555555" + "5555544444" + HALF, ALWAYS, 5, id="and no longer"),
        pytest.param(
            "xxxxxxxxxx" + "0000000000" + HALF, ALWAYS, 1, id="ahead by more than a claim"
        ),
        pytest.param(
            "-" * 15 + "00000" + HALF, "-" * 15 + "x" * 15, 25, id="no more than since it has work"
        ),
        pytest.param(
            "-" * 15 + "00000" + "55" + "-" * 8,
            "-" * 15 + "xxxxxxx" + "-" * 8,
            10,
            id="nor than was left undone",
        ),
        pytest.param(
            "-" * 10 + "111111-000" + HALF,
            "-" * 10 + "xxxxxx-xxx" + "x" * 10,
            15,
            id="nor than since it paused: before that all was done",
        ),
        pytest.param(HALF + "-" * 10 + HALF, "x" * 10 + "-" * 10 + "x" * 10, 0, id="no work"),
    ],
)
def test_what_is_missed_of_half_the_card_in_the_second_second(
    held: str, backlog: str, points: float
) -> None:
    run = three_seconds((Tenant(uncapped=True), Tenant(uncapped=True)), held, backlog)
    ((missed, _),) = mixes.misses(run, mixes.SECOND_NS)
    assert max(0.0, missed) == pytest.approx(points)


def test_seconds_may_begin_anywhere() -> None:
    pair = (Tenant(uncapped=True), Tenant(uncapped=True))
    run = three_seconds(pair, HALF + "5555500000" + "0000055555", ALWAYS)
    assert max(mixes.shortfalls(run)) == pytest.approx(25)
    (anywhere,) = mixes.misses(run, TENTH_NS)
    assert max(anywhere) == anywhere[5] == pytest.approx(50)


def test_switching_takes_from_what_is_nobodys_first() -> None:
    alone = (Tenant(quota=30),)
    run = three_seconds(alone, "2" * 30, ALWAYS, lost_ns=TENTH_NS // 10)
    assert list(mixes.shortfalls(run)) == [pytest.approx(10)]
    full = (Tenant(quota=50), Tenant(uncapped=True))
    run = three_seconds(full, "4" * 30, ALWAYS, lost_ns=TENTH_NS // 10)
    assert list(mixes.shortfalls(run)) == [pytest.approx(100 * (0.5 - 4 / 9))]
