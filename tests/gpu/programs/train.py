# SPDX-License-Identifier: MIT
"""
``train.py FILE [PRODUCTS]``: products of 8192³ in bf16 by cuBLAS, until SIGTERM; progress as
work.cu's. With PRODUCTS steps of so many, each one CUDA graph that is waited for, and 3 ms of the
host's after it; without it the card always has some queued.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator

import torch

WIDTH = 8192
PRODUCTS = 2
QUEUED = 4
HOST_S = 0.003

path = sys.argv[1]
ended: list[int] = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 16)
progress = mmap.mmap(fd, 16)
a = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
b = torch.randn_like(a)
c = torch.empty_like(a)


def steps(products: int) -> Iterator[int]:
    """The work of each, once it is done."""
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.mm(a, b, out=c)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(products):
                torch.mm(a, b, out=c)
    while True:
        graph.replay()
        torch.cuda.synchronize()
        yield products
        time.sleep(HOST_S)


def backlog() -> Iterator[int]:
    """As steps(), with a few ahead of the one that is waited for."""
    queued: deque[torch.cuda.Event] = deque()
    while True:
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=c)
        event = torch.cuda.Event(blocking=True)
        event.record()
        queued.append(event)
        if len(queued) > QUEUED:
            queued.popleft().synchronize()
            yield PRODUCTS


done = 0
for products in steps(int(sys.argv[2])) if len(sys.argv) > 2 else backlog():
    done += products
    progress[:16] = struct.pack("<QQ", done, time.monotonic_ns())
    if ended:
        break
torch.cuda.synchronize()
