# SPDX-License-Identifier: MIT
"""
What the scheduler decides, to the nanosecond. ``python3 -m tests.core.decisions [WORD…]``.

Prints a line for each scenario of `pycgpu.simulate.check`, and for random mixes: its name and a
digest of all that became of it in the simulator. The simulator is deterministic, and draws a
random number at each decision, so that two schedulers that decide the same print the same.
``scripts/dev compare-decisions`` compares the working tree with a commit.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace

from pycgpu.request.model import POLICIES
from pycgpu.simulate import Run, Scenario, check, mixes, run, serving
from pycgpu.simulate.scenario import MS

MIXES = 40
#: Long enough for a trial of slices to fail and the next to be made.
DURATION_NS = 12_000 * MS


def scenarios() -> Iterator[tuple[str, Scenario]]:
    """Yield all of them, named."""
    for policy, name in enumerate(POLICIES):
        for title, scenario in check.matrix(policy):
            for seed in check.seeds(policy, scenario):
                yield f"{name}: {title}, seed {seed}", replace(scenario, seed=seed)
    for seed in range(MIXES):
        yield f"mix {seed}", mixes.mix(seed)
        yield f"mix {seed}, fetched", mixes.mix(seed, fetched=True)
    for name in ("burst", "online", "fixed"):
        policy = POLICIES.index(name)
        for seed in range(MIXES // 4):
            mix = mixes.mix(1000 + seed)
            tenants = tuple(
                replace(t, quota=(0, 30, 50)[i % 3], priority=i % 2)
                for i, t in enumerate(mix.tenants)
            )
            mix = replace(mix, tenants=tenants, policy=policy)
            yield f"mix {1000 + seed}, {name}, quotas, classes", mix
    for seed in range(MIXES // 8):
        mix = mixes.mix(seed)
        several = tuple(replace(t, groups=1 if t.kind == "server" else 4) for t in mix.tenants)
        yield f"mix {seed}, several processes", replace(mix, tenants=several)
    pair = serving.pair(seconds=DURATION_NS // (1000 * MS))
    yield "a server beside a trainer", pair
    yield "no log", replace(pair, reports="none")
    yield "calls fail", replace(pair, fail_ns=3000 * MS)


def digest(result: Run) -> str:
    """Return a digest of all that became of a scenario."""
    became = (
        result.useful,
        result.held,
        result.backlog,
        result.lost,
        result.used,
        result.slowest,
        result.cards,
        result.samples,
    )
    return hashlib.sha256(repr(became).encode()).hexdigest()[:16]


def main(words: list[str]) -> int:
    """Print a line for each scenario whose name has one of *words*; for all, if there are none."""
    for name, scenario in scenarios():
        if not words or any(word in name for word in words):
            print(f"{digest(run(scenario))}  {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
