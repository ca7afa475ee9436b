# SPDX-License-Identifier: MIT
"""The server and the trainer as clients of one MPS server, which does not schedule: arithmetic.

All clients are one context: no switches, no slices. Without percentages the card's block scheduler
hands out one kernel's blocks after another's, so the server's kernels wait until a product has none
left to hand out; with percentages both run at once, each on its part of the processors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from .scenario import MS, percentile
from .serving import PRODUCTS, Seen, arrivals, row, server, trainer_rate

#: Fitted to the median of a token, H100. The last of a product's blocks leave processors to others
#: for this part of its time.
TAIL = 0.048
#: Half of the processors do a token at this part of its speed: it waits for memory, mostly.
HALF = 0.645
#: How much longer a token takes with the other's traffic, on average, exponential.
DISTURBED_NS = 100_000


def seen(speed: float, trainer: float, seconds: float = 4) -> Seen:
    """Return both figures if the server runs at ``speed`` and the trainer at ``trainer``."""
    one, draw = server(), random.Random(1)
    tokens, requests = [], []
    now_ns = 0.0
    for arrival_ns in arrivals(4, seconds):
        now_ns = max(now_ns, arrival_ns)
        for _ in range(one.steps):
            token_ns = one.host_ns + one.step_ns / speed + draw.expovariate(1 / DISTURBED_NS)
            tokens.append(token_ns / MS)
            now_ns += token_ns
        requests.append((now_ns - arrival_ns) / MS)
        if now_ns > seconds * 1e9:
            break
    tokens.sort()
    requests.sort()
    return Seen(
        percentile(tokens, 0.5),
        percentile(tokens, 0.99),
        percentile(requests, 0.5),
        percentile(requests, 0.99),
        trainer,
    )


def measured() -> Iterator[tuple[str, Seen, Seen]]:
    """Yield measurements on an H100 (580.159.04): name, measured and modelled figures."""
    yield "MPS", Seen(30.6, 32.2, 2111, 3826, 612), seen(TAIL, PRODUCTS)
    yield "MPS 50 : 50", Seen(2.35, 2.84, 77, 197, 346), seen(HALF, trainer_rate(0.5))


def rows() -> Iterator[str]:
    """Yield the table's rows: measured, and modelled."""
    for name, was, now in measured():
        yield row(name, was, now)
