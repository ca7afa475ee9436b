# SPDX-License-Identifier: MIT
"""
``serve.py MODEL``: requests by Poisson, each some tokens, the host waiting for every one.

A line ``SECONDS RATE TOKENS SEED`` on stdin is a measurement; its answer is one JSON object. RATE
0: the next request is there when one is done. Ends with its stdin.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: of `graph` and `eager`, and of a server that leaves most of a card empty
LAYERS, WIDTH, BATCH = 96, 4096, 8
SMALL_LAYERS, SMALL_WIDTH = 48, 1024
#: products of a notebook's cell: about 0.16 s of an H100
CELL_PRODUCTS, CELL_WIDTH = 100, 8192
PROMPT = 64

Step = Callable[[int], None]


def _decode_step(layers: int = LAYERS, width: int = WIDTH) -> Callable[[], torch.Tensor]:
    """What a language model does for a token, without its attention: products by its weights."""
    weights = [
        torch.randn(width, width, device="cuda", dtype=torch.bfloat16) * 0.01 for _ in range(layers)
    ]
    x = torch.randn(BATCH, width, device="cuda", dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        h = x
        for w in weights:
            h = torch.nn.functional.silu(h @ w)
        return h

    return step


def eager() -> Step:
    """A token is 192 kernels, launched one by one."""
    step = _decode_step()

    def token(_: int) -> None:
        step()
        torch.cuda.synchronize()

    return token


def _captured(step: Callable[[], torch.Tensor]) -> Step:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
        step()
    torch.cuda.current_stream().wait_stream(aside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()

    # a graph does not keep the weights that its kernels read
    def token(_: int, keeps: object = step) -> None:
        captured.replay()
        torch.cuda.synchronize()

    return token


def graph() -> Step:
    """The same kernels as one CUDA graph."""
    return _captured(_decode_step())


def small() -> Step:
    """A CUDA graph of kernels that leave most of a card empty."""
    return _captured(_decode_step(SMALL_LAYERS, SMALL_WIDTH))


def transformer() -> Step:
    """A Llama of about 0.9 billion random weights by transformers, its KV cache growing."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=20,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=4096,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, config.vocab_size, (1, PROMPT), device="cuda")
    state: dict[str, Any] = {}

    def token(number: int) -> None:
        first = number == 0
        out = model(
            input_ids=prompt if first else state["last"],
            past_key_values=None if first else state["cache"],
            use_cache=True,
        )
        state["cache"] = out.past_key_values
        state["last"] = out.logits[:, -1:].argmax(-1)
        # what every sampler does: the host must know the token
        int(state["last"])

    step: Step = torch.inference_mode()(token)
    return step


def cell() -> Step:
    """A notebook's cell: a while of products, and the user waits for the end."""
    a = torch.randn(CELL_WIDTH, CELL_WIDTH, device="cuda", dtype=torch.bfloat16)
    b = torch.randn_like(a)
    c = torch.empty_like(a)

    def token(_: int) -> None:
        for _ in range(CELL_PRODUCTS):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()

    return token


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 4) if ordered else 0.0


def measure(token: Step, seconds: float, rate: float, tokens: int, seed: int) -> dict[str, float]:
    """Serve for a while; latencies in ms, a request's from its arrival on."""
    arrivals = random.Random(seed)
    token_ms: list[float] = []
    first_ms: list[float] = []
    request_ms: list[float] = []
    begin = arrival = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        if rate:
            arrival += arrivals.expovariate(rate)
            time.sleep(max(arrival - time.perf_counter(), 0))
        else:
            arrival = time.perf_counter()
        start = last = time.perf_counter()
        for number in range(tokens):
            token(number)
            now = time.perf_counter()
            token_ms.append((now - last) * 1e3)
            if number == 0:
                first_ms.append((now - start) * 1e3)
            last = now
        request_ms.append((last - arrival) * 1e3)
    took = time.perf_counter() - begin
    found = {"tokens_per_s": len(token_ms) / took, "requests": len(request_ms), "seconds": took}
    for name, values in (("token", token_ms), ("first", first_ms), ("request", request_ms)):
        found[f"{name}_mean_ms"] = round(sum(values) / (len(values) or 1), 4)
        found[f"{name}_p50_ms"] = _quantile(values, 0.5)
        found[f"{name}_p99_ms"] = _quantile(values, 0.99)
    return found


def main(model: str) -> None:
    token = {f.__name__: f for f in (graph, small, eager, transformer, cell)}[model]()
    for number in range(8):
        token(number)
    print(json.dumps({"ready": model}), flush=True)
    for line in sys.stdin:
        seconds, rate, tokens, seed = line.split()
        found = measure(token, float(seconds), float(rate), int(tokens), int(seed))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
