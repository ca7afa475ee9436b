# SPDX-License-Identifier: MIT
"""A memory pool shared with a second process by a descriptor, and what is allocated from it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

MIB = 1 << 20
BLOCK_BYTES = 64 * MIB
POSIX_DESCRIPTOR, PINNED, DEVICE, READ_WRITE = 1, 1, 1, 3

cuda = ctypes.CDLL("libcuda.so.1")
tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class PoolProperties(ctypes.Structure):
    _fields_ = (
        ("allocation", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("most_bytes", ctypes.c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    )


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def mark(text: str) -> None:
    print(text, flush=True)
    if tracer is not None:
        tracer(text.encode())


def must(name: str, *arguments: object) -> None:
    status = getattr(cuda, name)(*arguments)
    if status:
        mark(f"failed {name}: {status}")
        sys.exit(1)


def start() -> ctypes.c_int:
    """A context on the first card."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    must("cuInit", 0)
    must("cuDeviceGet", ctypes.byref(device), 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)
    return device


def allocate(pool: ctypes.c_void_p) -> ctypes.c_uint64:
    block = ctypes.c_uint64()
    must("cuMemAllocFromPoolAsync", ctypes.byref(block), ctypes.c_size_t(BLOCK_BYTES), pool, None)
    must("cuStreamSynchronize", None)
    return block


def peer(descriptor: int) -> None:
    """The second process: reads each block whose name comes on its input, and says what it has."""
    start()
    pool = ctypes.c_void_p()
    must("cuMemPoolImportFromShareableHandle", ctypes.byref(pool), ctypes.c_void_p(descriptor),
         POSIX_DESCRIPTOR, ctypes.c_uint64(0))  # fmt: skip
    access = Access(Location(DEVICE, 0), READ_WRITE)
    must("cuMemPoolSetAccess", pool, ctypes.byref(access), ctypes.c_size_t(1))
    print("imported", flush=True)
    for line in sys.stdin:
        data = (ctypes.c_ubyte * 64)(*bytes.fromhex(line))
        block, word = ctypes.c_uint64(), ctypes.c_uint32()
        must("cuMemPoolImportPointer", ctypes.byref(block), pool, ctypes.byref(data))
        must("cuMemcpyDtoH_v2", ctypes.byref(word), block, ctypes.c_size_t(4))
        must("cuMemFreeAsync", block, None)
        must("cuStreamSynchronize", None)
        print(f"read {word.value:#x}", flush=True)
    must("cuMemPoolDestroy", pool)


def owner() -> None:
    device = start()
    pool, descriptor = ctypes.c_void_p(), ctypes.c_int(-1)
    properties = PoolProperties(PINNED, POSIX_DESCRIPTOR, Location(DEVICE, device.value))
    must("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
    blocks = [allocate(pool)]
    mark("allocated one")
    must("cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), pool, POSIX_DESCRIPTOR,
         ctypes.c_uint64(0))  # fmt: skip
    mark(f"exported {descriptor.value}")
    second = subprocess.Popen(
        [sys.executable, __file__, str(descriptor.value)],
        pass_fds=[descriptor.value],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert second.stdin and second.stdout
    mark(second.stdout.readline().strip())
    blocks += [allocate(pool) for _ in range(2)]
    mark("allocated three")
    for index, block in enumerate(blocks):
        data = (ctypes.c_ubyte * 64)()
        must("cuMemsetD32_v2", block, 0xC6A0 + index, ctypes.c_size_t(BLOCK_BYTES // 4))
        must("cuMemPoolExportPointer", ctypes.byref(data), block)
        second.stdin.write(bytes(data).hex() + "\n")
        second.stdin.flush()
        said = second.stdout.readline().strip()
        mark(said)
        if said != f"read {0xC6A0 + index:#x}":
            sys.exit(1)
    second.stdin.close()
    if second.wait():
        sys.exit(1)
    for block in blocks:
        must("cuMemFreeAsync", block, None)
    must("cuStreamSynchronize", None)
    must("cuMemPoolDestroy", pool)
    os.close(descriptor.value)
    mark("closed")


peer(int(sys.argv[1])) if len(sys.argv) > 1 else owner()
