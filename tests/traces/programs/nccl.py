# SPDX-License-Identifier: MIT
"""NCCL: a process a card, and all-reduces between them by P2P and by shared memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

RANKS = 2
WAYS: dict[str, dict[str, str]] = {"P2P": {}, "shared memory": {"NCCL_P2P_DISABLE": "1"}}


def mark(text: str) -> None:
    """Print a line, and leave it in the trace where the tracer is loaded."""
    print(text, flush=True)
    tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)
    if tracer is not None:
        tracer(text.encode())


def rank(number: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", device_id=torch.device("cuda", number))
    mark(f"rank {number}: group")
    summed = torch.full((4 << 20,), float(number + 1), device="cuda")
    dist.all_reduce(summed)
    torch.cuda.synchronize()
    right = bool((summed == RANKS * (RANKS + 1) / 2).all())
    mark(f"rank {number}: reduced, {'right' if right else 'wrong'}")
    dist.destroy_process_group()
    sys.exit(not right)


def main() -> int:
    status = 0
    for index, (way, env) in enumerate(WAYS.items()):
        mark(way)
        common = dict(os.environ, NCCL_NVLS_ENABLE="0", MASTER_ADDR="127.0.0.1", **env)
        common |= {"MASTER_PORT": str(21000 + index), "WORLD_SIZE": str(RANKS)}
        ranks = [
            subprocess.Popen([sys.executable, __file__], env=dict(common, RANK=str(number)))
            for number in range(RANKS)
        ]
        status = max(status, *(abs(one.wait()) for one in ranks))
    return status


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank(int(os.environ["RANK"]))
    sys.exit(main())
