# SPDX-License-Identifier: MIT
"""
The driver's files in the hands of a program under no filter.

smuggle.py open NAME            opens the card, and sends its files to the abstract socket NAME
smuggle.py take NAME [bare]     waits for them there, and takes of the card what there is, by pieces
                                of 256 MiB; `bare`: has a device alone, for which no list is kept

Each writes a line of JSON whenever it has more, and stays.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import json
import os
import socket
import struct
import sys
import time

ALLOC, ROOT_CLIENT, DEVICE, SUBDEVICE, MEMORY = 0x2B, 0x41, 0x80, 0x2080, 0x40
PIECE = 256 << 20


def tell(**words: object) -> None:
    print(json.dumps(words), flush=True)


def alloc(control: int, client: int, parent: int, new: int, cls: int, params: bytes = b"") -> int:
    """RM_ALLOC; return the handle of a client, the status of anything else."""
    block = ctypes.create_string_buffer(params, 256)
    address = ctypes.addressof(block) if params else 0
    call = bytearray(struct.pack("<4IQ2I", client, parent, new, cls, address, len(params), 0))
    fcntl.ioctl(control, 3 << 30 | len(call) << 16 | ord("F") << 8 | ALLOC, call)
    at = 8 if cls == ROOT_CLIENT else 28
    return int(struct.unpack_from("<I", call, at)[0])


def memory(control: int, client: int, handle: int) -> int:
    params = struct.pack(
        "<12I7Q6I", 1, 0, 0, 0, 0, 0, 1 << 23, *[0] * 5, 0, 0, PIECE, 0, 0, *[0] * 8
    )
    return alloc(control, client, 1, handle, MEMORY, params)


def send(name: str) -> None:
    paths = ("/dev/nvidiactl", *glob.glob("/dev/nvidia[0-9]*"))
    files = [os.open(path, os.O_RDWR) for path in paths]
    with socket.socket(socket.AF_UNIX) as to:
        to.connect("\0" + name)
        socket.send_fds(to, [b"x"], files)
        tell(sent=len(files))
        time.sleep(1e6)


def take(name: str, bare: bool) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen()
        tell(waits=True)
        came, _ = listening.accept()
    began_s = time.monotonic()
    _, files, _, _ = socket.recv_fds(came, 1, 64)
    control = files[0]
    client = alloc(control, 0, 0, 0, ROOT_CLIENT)
    device = 0
    while alloc(control, client, client, 1, DEVICE, struct.pack("<6I3Q2I", device, *[0] * 10)):
        device += 1
        if device > 31:
            raise SystemExit("no device")
    if not bare:
        alloc(control, client, 1, 2, SUBDEVICE, struct.pack("<I", 0))
    made = 0
    while not memory(control, client, made + 16):
        made += 1
        tell(mib=made * PIECE >> 20, seconds=round(time.monotonic() - began_s, 3))
    tell(full=True)
    time.sleep(1e6)


if sys.argv[1] == "open":
    send(sys.argv[2])
else:
    take(sys.argv[2], "bare" in sys.argv[3:])
