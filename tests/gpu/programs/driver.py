# SPDX-License-Identifier: MIT
"""
A tenant through the driver's own library alone: no toolkit, no PyTorch.

``driver.py size | fill | spin FILE SECONDS``: what the card's size is said to be; how many MiB it
gives before it is out of memory, freed and taken again; or kernels of a fixed size, counted in
FILE as work.cu does.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys
import time
from typing import Any

PTX = b"""
.version 6.0
.target sm_52
.address_size 64
.visible .entry spin(.param .u64 out, .param .u64 loops)
{
    .reg .pred %again;
    .reg .f32 %sum, %step;
    .reg .u64 %left, %at;
    ld.param.u64 %at, [out];
    ld.param.u64 %left, [loops];
    cvta.to.global.u64 %at, %at;
    mov.f32 %sum, 0f3F800000;
    mov.f32 %step, 0f3F800001;
again:
    fma.rn.f32 %sum, %sum, %step, %step;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %again, %left, 0;
    @%again bra again;
    st.global.f32 [%at], %sum;
    ret;
}
"""
OUT_OF_MEMORY = 2
CHUNK = 64 << 20
LOOPS = 30_000
QUEUED = 4
MULTIPROCESSORS = 16

cuda = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64


def call(name: str, *arguments: object) -> int:
    """Call the library; an error but out of memory ends the program."""
    error = getattr(cuda, name)(*arguments)
    if error and error != OUT_OF_MEMORY:
        sys.exit(f"driver.py: {name}: error {error}")
    return int(error)


def context() -> int:
    """A context on the first card; return its number of multiprocessors."""
    device, made, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device)
    call("cuCtxSetCurrent", made)
    call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSORS, device)
    return count.value


def sizes() -> dict[str, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return {"free": free.value, "total": total.value}


def fill() -> list[u64]:
    """Take all there is, in pieces."""
    held: list[Any] = []
    while True:
        at = u64()
        if call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(CHUNK)) == OUT_OF_MEMORY:
            return held
        held.append(at)


def release(held: list[u64]) -> None:
    for at in held:
        call("cuMemFree_v2", at)


def spin(path: str, seconds: float, multiprocessors: int) -> None:
    """Kernels without a pause, a few of them queued."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 16)
    progress = mmap.mmap(fd, 16)
    module, kernel, out = ctypes.c_void_p(), ctypes.c_void_p(), u64()
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
    call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(4))
    loops = u64(LOOPS)
    arguments = (ctypes.c_void_p * 2)(
        *(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in (out, loops))
    )
    blocking_no_timing = 3
    events = [ctypes.c_void_p() for _ in range(QUEUED)]
    for event in events:
        call("cuEventCreate", ctypes.byref(event), blocking_no_timing)
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        event = events[done % QUEUED]
        if done >= QUEUED:
            call("cuEventSynchronize", event)
            progress[:16] = struct.pack("<QQ", done, time.monotonic_ns())
        shape = (8 * multiprocessors, 1, 1, 256, 1, 1, 0)
        call("cuLaunchKernel", kernel, *shape, None, arguments, None)
        call("cuEventRecord", event, None)
        done += 1
    call("cuCtxSynchronize")


def main() -> None:
    multiprocessors = context()
    if sys.argv[1] == "spin":
        spin(sys.argv[2], float(sys.argv[3]), multiprocessors)
        return
    found = sizes()
    if sys.argv[1] == "fill":
        held = fill()
        found["mib"] = len(held) * (CHUNK >> 20)
        release(held)
        held = fill()
        found["again_mib"] = len(held) * (CHUNK >> 20)
    print(json.dumps(found))


main()
