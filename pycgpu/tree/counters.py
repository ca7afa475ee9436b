# SPDX-License-Identifier: MIT
"""
The engine's counters of all containers at one moment.

They only grow, so a share is a difference: they are read twice, some time apart, each with its own
time stamp. A program that shows shares reads them before its slow imports.
"""

from __future__ import annotations

import time

from . import procfs

#: (time in ns, ``stat``) by card and name of the container's directory.
Counters = dict[tuple[int, str], tuple[int, dict[str, int]]]

#: Keys that the engine adds to a container's ``stat``; a door without an engine has none of them.
COMPUTE_KEYS = ("granted_ns", "used_ns", "throttled_ns", "waited_ns")
#: The longest sample: two periods of the engine with 8 containers.
SAMPLE_S = 0.08
#: Of each container in two periods, and for how many at least: shares of less would jump.
_WINDOWS_S = 0.01
_CONTAINERS_MIN = 4


def read(root: str) -> Counters:
    """Return the counters of every container; CgpuError as :mod:`.procfs` raises it."""
    found: Counters = {}
    for card in procfs.card_indexes(root):
        for name in procfs.unless_gone(procfs.container_names, card, root) or ():
            stat = procfs.unless_gone(procfs.read_stat, card, name, root)
            if stat is not None:
                found[card, name] = (time.monotonic_ns(), stat)
    return found


def tell_compute(counters: Counters) -> bool:
    """Whether any container's counters tell of compute, so that waiting for more is worth it."""
    return any(key in stat for _, stat in counters.values() for key in COMPUTE_KEYS)


def sample_s(counters: Counters) -> float:
    """Return for how long to let them grow: two periods of the card with most containers."""
    cards = [card for card, _ in counters]
    most = max(map(cards.count, set(cards)), default=0)
    return min(SAMPLE_S, _WINDOWS_S * max(most, _CONTAINERS_MIN))
