# SPDX-License-Identifier: MIT
"""
``gang.py RANKS``: data-parallel steps over so many cards, a process a card.

A line ``SECONDS WIDTH MIB`` on stdin is a measurement: steps of four products of WIDTH³ in bf16, an
all-reduce of MIB and a synchronisation; its answer is one JSON object. Ends with its stdin.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

PRODUCTS = 4
WARM = 5
VALUE = 4096


def parent(ranks: int) -> int:
    """Start the ranks; the first has this program's input and output."""
    with tempfile.NamedTemporaryFile() as shared:
        shared.truncate(mmap.PAGESIZE)
        env = dict(
            os.environ,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(20000 + os.getpid() % 20000),
            WORLD_SIZE=str(ranks),
            GANG=shared.name,
        )
        started = [
            subprocess.Popen(
                [sys.executable, __file__],
                env=dict(env, RANK=str(rank)),
                stdin=None if not rank else subprocess.DEVNULL,
            )
            for rank in range(ranks)
        ]
        return max(abs(one.wait()) for one in started)


def asked(rank: int) -> Iterator[list[float]]:
    """What the first rank reads, told to all."""
    import torch
    import torch.distributed as dist

    while True:
        words = [0.0] * 3
        if not rank and (line := sys.stdin.readline()):
            words = [float(word) for word in line.split()]
        told = torch.tensor(words, device="cuda")
        dist.broadcast(told, 0)
        words = told.tolist()
        if not words[0]:
            return
        yield words


def main() -> None:
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    with open(os.environ["GANG"], "r+b") as file:
        last = memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE)).cast("Q")
    if not rank:
        print(json.dumps({"ready": True}), flush=True)
    for seconds, width, mib in asked(rank):
        a = torch.randn(int(width), int(width), device="cuda", dtype=torch.bfloat16)
        b, c = torch.randn_like(a), torch.empty_like(a)
        gradient = torch.full(
            (int(mib) << 19,), float(rank + 1), device="cuda", dtype=torch.bfloat16
        )
        times: list[float] = []
        if not rank:
            last[0] = 0
        dist.barrier()
        begin = then = time.perf_counter()
        while True:
            for _ in range(PRODUCTS):
                torch.mm(a, b, out=c)
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
            torch.cuda.synchronize()
            now = time.perf_counter()
            times.append((now - then) * 1e3)
            then = now
            if len(times) == WARM:
                begin = now
            # Nobody is further than in the step after this one: the reduction waits for all.
            if not rank and not last[0] and now - begin > seconds:
                last[0] = len(times) + 2
            if last[0] == len(times):
                break
        took = then - begin
        mean = (ranks + 1) / 2
        right = bool((gradient == mean).all())
        summed = torch.full((VALUE,), float(rank + 1), device="cuda")
        dist.all_reduce(summed)
        right &= bool((summed == ranks * mean).all())
        if not rank:
            times = sorted(times[WARM:])
            found = {
                "steps_s": len(times) / took,
                "p50_ms": times[len(times) // 2],
                "p99_ms": times[int(len(times) * 0.99)],
                "right": right,
            }
            print(json.dumps(found), flush=True)
        del a, b, c, gradient
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        sys.exit(parent(int(sys.argv[1])))
