# SPDX-License-Identifier: MIT
"""
``notebook.py GIB SEED``: a notebook with a model in the card's memory.

The first line on stdin has it load the model, each other one is a cell: a pass over all of the
model. Each answer is one JSON object; a cell's has the seconds that it took and whether the model
is what it was. Ends with its stdin.
"""

from __future__ import annotations

import json
import sys
import time

import torch

_PIECE_BYTES, _PART_BYTES = 1 << 30, 1 << 26


def main(gib: float, seed: int) -> None:
    """Make the model, say ``{"ready": …}``, and answer."""
    if not sys.stdin.readline():
        return
    torch.manual_seed(seed)
    total, pieces = int(gib * (1 << 30)), []
    while total > 0:
        size = min(total, _PIECE_BYTES)
        pieces.append(torch.randint(0, 127, (size,), dtype=torch.uint8, device="cuda"))
        total -= size

    def digest() -> list[int]:
        parts = [part for piece in pieces for part in piece.split(_PART_BYTES)]
        return [int(part.sum(dtype=torch.int64)) for part in parts]

    was = digest()
    print(json.dumps({"ready": True}), flush=True)
    while sys.stdin.readline():
        began = time.monotonic()
        same = digest() == was
        print(json.dumps({"seconds": time.monotonic() - began, "same": same}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
