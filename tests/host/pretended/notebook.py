# SPDX-License-Identifier: MIT
"""``tests/gpu/programs/notebook.py`` and ``serve.py`` beside the pretended driver."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys

#: What the pretended card has of a program before it grows.
_HELD_MIB, _PIECE_MIB = 8, 512
_SERVED = ("token", "first", "request")


def client(path: str = "clients") -> int:
    """Return a number that no program had before."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("x")
        return 0xC1D00000 + file.tell()


def notebook(gib: float) -> None:
    """Have a program that can be parked hold so much, and call CUDA at each cell."""
    if not sys.stdin.readline():
        return
    command = ["./parkable", str(_HELD_MIB), hex(client())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        said, told = program.stdin, program.stdout
        assert said is not None and told is not None

        def ask(what: str) -> str:
            print(what, file=said, flush=True)
            return told.readline().strip()

        told.readline(), told.readline()
        left = max(0, int(gib * 1024) - _HELD_MIB)
        while left > 0:
            size = min(left, _PIECE_MIB)
            if ask(f"grow {size}") != "grown":
                sys.exit("no memory")
            left -= size
        print(json.dumps({"ready": True}), flush=True)
        while sys.stdin.readline():
            print(json.dumps({"same": ask("work") == "worked"}), flush=True)
        program.kill()


def serve(model: str) -> None:
    """Answer as a server does whose every request takes 1 ms."""
    print(json.dumps({"ready": model}), flush=True)
    for _ in sys.stdin:
        told: dict[str, float] = {"tokens_per_s": 1.0, "requests": 1, "seconds": 1.0}
        for what in _SERVED:
            told |= {f"{what}_{part}_ms": 1.0 for part in ("mean", "p50", "p99")}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    try:
        size = float(sys.argv[1])
    except ValueError:
        serve(sys.argv[1])
    else:
        notebook(size)
