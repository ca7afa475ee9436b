# SPDX-License-Identifier: MIT
"""
``frameworks.py NAME`` takes memory by one framework's own allocator until it is refused.

Each prints one JSON object: ``total`` bytes that it sees, ``got`` bytes that it took, ``error`` of
the refusal, and ``after``: the result of a computation afterwards, which is 42.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

BLOCK_BYTES = 256 << 20
MANY = 4096


class Queue(Protocol):
    """What a queue between processes does; torch's own carries tensors of the card."""

    def get(self) -> Any: ...
    def put(self, value: object) -> None: ...


def jax() -> dict[str, object]:
    """XLA takes three quarters of the card at its start, and all else from there."""
    import jax
    import jax.numpy as jnp

    device = jax.devices("gpu")[0]
    held: list[jax.Array] = []
    error = ""
    try:
        while len(held) < MANY:
            held.append(jax.device_put(jnp.zeros(BLOCK_BYTES, jnp.uint8), device))
            held[-1].block_until_ready()
    except Exception as refusal:
        error = str(refusal)
    limit = device.memory_stats()["bytes_limit"]
    got = len(held) * BLOCK_BYTES
    held.clear()
    after = jax.jit(lambda x: (x @ x).sum())(jnp.ones((2, 2)) * 2.2912878)
    return {"total": limit * 4 // 3, "got": got, "error": error, "after": round(float(after))}


def cupy() -> dict[str, object]:
    """CuPy's pool over cudaMalloc, and a kernel compiled by NVRTC."""
    import cupy

    held: list[object] = []
    error = ""
    try:
        while len(held) < MANY:
            held.append(cupy.zeros(BLOCK_BYTES, cupy.uint8))
    except cupy.cuda.memory.OutOfMemoryError as refusal:
        error = str(refusal)
    got = len(held) * BLOCK_BYTES
    held.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    after = int((cupy.arange(BLOCK_BYTES, dtype=cupy.uint8)[:7] * 2).sum())
    return {
        "total": cupy.cuda.runtime.memGetInfo()[1],
        "got": got,
        "error": error,
        "after": after,
    }


def torch() -> dict[str, object]:
    """PyTorch with expandable segments: virtual ranges that physical memory is mapped into."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    held: list[object] = []
    error = ""
    try:
        while len(held) < MANY:
            held.append(torch.zeros(BLOCK_BYTES, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as refusal:
        error = str(refusal)
    got = len(held) * BLOCK_BYTES
    held.clear()
    torch.cuda.empty_cache()
    after = int((torch.arange(7, device="cuda") * 2).sum())
    return {"total": torch.cuda.mem_get_info()[1], "got": got, "error": error, "after": after}


def triton() -> dict[str, object]:
    """A kernel compiled by Triton, which launches through the driver API."""
    # Triton reads a kernel's source from the file that it is in.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        Path(folder, "doubling.py").write_text(
            "import triton\n"
            "import triton.language as tl\n"
            "@triton.jit\n"
            "def double(x, n, BLOCK: tl.constexpr):\n"
            "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
            "    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)\n"
        )
        sys.path.insert(0, folder)
        import doubling
        import torch

        values = torch.arange(7, device="cuda")
        doubling.double[(1,)](values, 7, BLOCK=16)
        return {"total": torch.cuda.mem_get_info()[1], "after": int(values.sum())}


def _add_one(queue: Queue) -> None:
    tensor = queue.get()
    tensor += 1
    queue.put(int(tensor.sum()))


def share() -> dict[str, object]:
    """A tensor handed to another process by PyTorch (CUDA IPC), and changed there."""
    import torch
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    queue = context.SimpleQueue()
    tensor = torch.full((7,), 5, device="cuda")
    child = context.Process(target=_add_one, args=(queue,))
    child.start()
    queue.put(tensor)
    child.join(60)
    return {
        "total": torch.cuda.mem_get_info()[1],
        "there": queue.get() if child.exitcode == 0 else -1,
        "after": int(tensor.sum()),
    }


def nvml() -> dict[str, object]:
    """What NVML tells a tenant: the size, and whose processes."""
    import pynvml
    import torch

    held = torch.zeros(BLOCK_BYTES, dtype=torch.uint8, device="cuda")
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(card)
    return {
        "total": memory.total,
        "used": memory.used,
        "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses(card)),
        "after": int(held.sum()) + 42,
    }


def allreduce() -> dict[str, object]:
    """NCCL between two processes, a card each; each adds 21."""
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    queue = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=_rank, args=(rank, f"file://{folder}/meet", queue))
            for rank in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(80)
        if any(child.exitcode for child in children):
            return {"error": f"exit statuses {[child.exitcode for child in children]}"}
    found = [queue.get() for _ in children]
    return {"total": [one[0] for one in found], "after": int(sum(one[1] for one in found) / 2)}


def nccl() -> dict[str, object]:
    """NCCL on one card: a group of one."""
    import torch
    import torch.distributed as distributed

    with tempfile.TemporaryDirectory() as folder:
        meet = f"file://{folder}/meet"
        distributed.init_process_group("nccl", init_method=meet, rank=0, world_size=1)
        values = torch.full((1 << 24,), 42.0, device="cuda")
        distributed.all_reduce(values)
        distributed.broadcast(values, 0)
        torch.cuda.synchronize()
        after = float(values.mean())
        distributed.destroy_process_group()
    return {"total": torch.cuda.mem_get_info()[1], "after": round(after)}


def _rank(rank: int, meet: str, queue: Queue) -> None:
    import torch
    import torch.distributed as distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=meet, rank=rank, world_size=2)
    values = torch.full((1 << 24,), 21.0, device="cuda")
    for _ in range(10):
        distributed.all_reduce(values, op=distributed.ReduceOp.SUM)
        values /= 2
    distributed.all_reduce(values)
    torch.cuda.synchronize()
    queue.put((torch.cuda.mem_get_info()[1], float(values.mean())))
    distributed.destroy_process_group()


if __name__ == "__main__":
    name = sys.argv[1]
    # The module of a framework has its function's name.
    sys.path = [entry for entry in sys.path if Path(entry or ".") != Path(__file__).parent]
    print(json.dumps({"name": name, **globals()[name]()}))
