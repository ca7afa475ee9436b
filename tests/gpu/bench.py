# SPDX-License-Identifier: MIT
"""The GPU ring: what the user door promises, on a real card. Run by scripts/dev bench-gpu."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.gpu.accounting import accounting
from tests.gpu.allowed import allowed
from tests.gpu.asked import getters, pools, tools
from tests.gpu.cards import cards
from tests.gpu.churn import churn
from tests.gpu.crowd import crowd
from tests.gpu.escapes import escapes
from tests.gpu.faults import attacks, faults
from tests.gpu.frameworks import frameworks
from tests.gpu.gang import gang
from tests.gpu.group_harm import group_harm
from tests.gpu.groups import group_pausing, groups
from tests.gpu.memory import memory, overhead
from tests.gpu.mps import mps
from tests.gpu.parking import notebooks, park_cycles, park_natively, parking
from tests.gpu.peers import peers
from tests.gpu.report import Report
from tests.gpu.serving import (
    adversaries,
    decoding,
    pausing,
    serving,
    several,
    steps,
    trainers,
    transformer,
)
from tests.gpu.shares import alone, latency, many, quotas, resnet, weights
from tests.gpu.tenants import Bench
from tests.gpu.used import used

SECTIONS = (
    *(memory, frameworks, allowed, getters, pools, tools, overhead, alone, weights, quotas),
    *(used, accounting, many, crowd),
    *(faults, churn, attacks, escapes, latency, resnet, peers, mps, cards, gang),
    *(groups, group_pausing, group_harm),
    *(park_natively, parking, park_cycles, notebooks),
    *(serving, decoding, transformer, several, trainers, pausing, steps, adversaries),
)
#: need none of the programs that are compiled
OF_PYTHON = (park_natively, parking, park_cycles, notebooks)
#: compare with what they measure themselves, not with fixed work alone
OF_THEMSELVES = (
    *(allowed, getters, pools, tools, gang),
    *(groups, group_pausing, group_harm),
    *OF_PYTHON,
    *(serving, decoding, transformer, several, trainers, pausing, steps),
)


def main(out: Path, names: Sequence[str]) -> int:
    """Run the sections named, or all; return how many checks failed."""
    known = [section.__name__ for section in SECTIONS]
    needs_alone = not names or set(names) - {section.__name__ for section in OF_THEMSELVES}
    for name in names:
        if name not in known:
            print(f"bench-gpu: no section {name!r}: {', '.join(known)}", file=sys.stderr)
            return 2
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out)
    with tempfile.TemporaryDirectory(prefix="cgpu-bench-") as work:
        bench = Bench(Path(work), report)
        if not names or set(names) - {section.__name__ for section in OF_PYTHON}:
            bench.build()
        for section in SECTIONS:
            wanted = not names or section.__name__ in names
            if not wanted and not (section is alone and needs_alone):
                continue
            start = time.monotonic()
            report.section = section.__name__
            try:
                section(bench)
            except Exception as error:
                traceback.print_exc()
                report.check(f"{section.__name__}: ended early", repr(error), "", "", False)
            print(f"-- {section.__name__}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"{len(report.checks)} checks, {len(report.failed)} failed")
    return len(report.failed)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]), sys.argv[2:]), 1))
