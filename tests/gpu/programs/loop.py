# SPDX-License-Identifier: MIT
"""
``loop.py WIDTH LAYERS BATCH``: a small server that decodes without a pause, a token a CUDA graph.

A line ``SECONDS`` on stdin is a measurement; its answer is one JSON object. Ends with its stdin.
"""

from __future__ import annotations

import json
import sys
import time

import torch


def main() -> None:
    width, layers, batch = map(int, sys.argv[1:4])
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    weights = [torch.randn(width, width, **kind) * 0.01 for _ in range(layers)]
    first = torch.randn(batch, width, **kind)

    def step() -> None:
        found = first
        for weight in weights:
            found = torch.nn.functional.silu(found @ weight)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        try:
            begin = now = time.perf_counter()
            while now - begin < seconds:
                graph.replay()
                torch.cuda.synchronize()
                then, now = now, time.perf_counter()
                times.append((now - then) * 1e3)
        except RuntimeError as error:
            print(json.dumps({"error": str(error).splitlines()[0]}), flush=True)
            return
        times.sort()
        found = {
            "tokens_s": len(times) / (now - begin),
            "p50_ms": times[len(times) // 2],
            "p99_ms": times[int(len(times) * 0.99)],
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
