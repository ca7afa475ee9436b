# SPDX-License-Identifier: MIT
"""
place.py fixed|aligned COUNT: video memory at an address, or with an alignment, of one's own choice.

Asks NVIDIA's resource manager for pieces of 64 KiB: at a multiple of 8 GiB, whose size is rounded
up to that inside; or aligned to 2 MiB, which leaves nobody else the large page of each.
Writes one line, and holds what it has until a line comes.
"""

import ctypes
import fcntl
import glob
import json
import os
import struct
import sys

ALLOC, ROOT_CLIENT, DEVICE, MEMORY = 0x2B, 0x41, 0x80, 0x40
FIXED, FORCE, SMALL_PAGES = 0x10, 0x100, 1 << 23
PIECE, PLACE, FRAME = 64 << 10, 8 << 30, 2 << 20

control = os.open("/dev/nvidiactl", os.O_RDWR)
cards = [os.open(path, os.O_RDWR) for path in glob.glob("/dev/nvidia[0-9]*")]


def alloc(client: int, parent: int, new: int, cls: int, params: bytes = b"") -> tuple[int, int]:
    """RM_ALLOC: return handle and status."""
    block = ctypes.create_string_buffer(params, 256)
    call = bytearray(
        struct.pack("<4IQ2I", client, parent, new, cls, ctypes.addressof(block), len(params), 0)
    )
    if not params:
        struct.pack_into("<Q", call, 16, 0)
    fcntl.ioctl(control, 3 << 30 | len(call) << 16 | ord("F") << 8 | ALLOC, call)
    return struct.unpack_from("<I", call, 8)[0], struct.unpack_from("<I", call, 28)[0]


def memory(client: int, handle: int, flags: int, alignment: int, place: int) -> int:
    params = struct.pack(
        "<12I7Q6I", 1, 0, flags, 0, 0, 0, SMALL_PAGES, *[0] * 5, 0, 0, PIECE, alignment, place,
        *[0] * 8,
    )  # fmt: skip
    return alloc(client, 1, handle, MEMORY, params)[1]


way, count = sys.argv[1], int(sys.argv[2])
client, status = alloc(0, 0, 0, ROOT_CLIENT)
device = 0
while not status and alloc(client, client, 1, DEVICE, struct.pack("<6I3Q2I", device, *[0] * 10))[1]:
    device += 1
    status = device > 31
made = 0
while not status and made < count:
    if way == "fixed":
        status = memory(client, made + 16, FIXED | FORCE, PLACE, (made + 1) * PLACE)
    else:
        status = memory(client, made + 16, FORCE, FRAME, 0)
    made += not status
print(json.dumps({"made": made, "status": hex(status)}), flush=True)
sys.stdin.readline()
