# SPDX-License-Identifier: MIT
"""A process with 64 MiB on the card is checkpointed, restored by another one, and goes on."""

from __future__ import annotations

import ctypes
import subprocess
import sys

BLOCK_BYTES = 64 << 20
WORD = 0xC6A0
#: cuCheckpointProcess…, in their order; all take a number of a process and 64 bytes of options.
STEPS = ("Lock", "Checkpoint", "Restore", "Unlock")

cuda = ctypes.CDLL("libcuda.so.1")
tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)


def mark(text: str) -> None:
    print(text, flush=True)
    if tracer is not None:
        tracer(text.encode())


def must(name: str, *arguments: object) -> None:
    status = getattr(cuda, name)(*arguments)
    if status:
        mark(f"failed {name}: {status}")
        sys.exit(1)


def worker() -> None:
    """Holds a block, and says what is in it for each line that it reads."""
    device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    word = ctypes.c_uint32()
    must("cuInit", 0)
    must("cuDeviceGet", ctypes.byref(device), 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)
    must("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(BLOCK_BYTES))
    must("cuMemsetD32_v2", block, WORD, ctypes.c_size_t(BLOCK_BYTES // 4))
    must("cuCtxSynchronize")
    for _ in sys.stdin:
        word.value = 0
        must("cuMemcpyDtoH_v2", ctypes.byref(word), block, ctypes.c_size_t(4))
        mark(f"read {word.value:#x}")
    must("cuMemFree_v2", block)


def main() -> None:
    must("cuInit", 0)
    process = subprocess.Popen(
        [sys.executable, __file__, "worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    options = (ctypes.c_uint64 * 16)()

    def ask() -> None:
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stdout.readline().strip()
        mark(said)
        if said != f"read {WORD:#x}":
            sys.exit(1)

    ask()
    for step in STEPS:
        must(f"cuCheckpointProcess{step}", ctypes.c_int(process.pid), ctypes.byref(options))
        mark(step)
    ask()
    process.stdin.close()
    sys.exit(process.wait())


worker() if len(sys.argv) > 1 else main()
