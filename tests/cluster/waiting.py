# SPDX-License-Identifier: MIT
"""Waiting for what a cluster does without keeping its processors from doing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.vm import loaded

T = TypeVar("T")

PAUSE_S = 0.1


def until(condition: Callable[[], T | None], what: str, deadline_s: float = loaded.DEADLINE_S) -> T:
    """As :func:`tests.vm.loaded.until`; what is asked is a server that has others to answer."""
    return loaded.until(condition, what, deadline_s, PAUSE_S)
