# SPDX-License-Identifier: MIT
"""How tests in a guest wait: what they look for has to run on the processor that looks."""

from __future__ import annotations

import time

import pytest

from tests.vm.loaded import until


def test_a_long_wait_looks_ever_more_seldom() -> None:
    end_s = time.monotonic() + 2
    looks: list[float] = []

    def over() -> bool:
        looks.append(time.monotonic())
        return looks[-1] > end_s

    until(over, "the end")
    assert len(looks) < 100, "as every 10 ms would be 200 times"


def test_a_wait_without_a_pause_looks_on() -> None:
    """Looks that became rarer would not be so many before the deadline."""
    looks = iter(range(1000))
    assert until(lambda: next(looks) == 999, "the last look", pause_s=0)


def test_what_does_not_come_is_named() -> None:
    with pytest.raises(AssertionError, match="not within 1 s: the rain"):
        until(lambda: False, "the rain", deadline_s=1)
