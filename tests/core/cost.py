# SPDX-License-Identifier: MIT
"""What a call costs, on a machine that has other work."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_s(ask: Callable[[], object]) -> float:
    """How long a call takes of the hundreds that disturb it least."""
    took = []
    for _ in range(9):
        began = time.thread_time()
        for _ in range(100):
            ask()
        took.append(time.thread_time() - began)
    return min(took)
