# SPDX-License-Identifier: MIT
"""
NVIDIA's resource manager (RM) from Python: the ioctls that a test needs, as libcuda makes them.

Structures are those of NVIDIA/open-gpu-kernel-modules, ``nvos.h`` and ``nv-ioctl.h``, which are
the same in the branches 535 to 595.
"""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import os
import struct
from pathlib import Path

# nv-ioctl-numbers.h, nv_escape.h
NV_IOCTL_MAGIC = ord("F")
NV_ESC_RM_FREE = 0x29
NV_ESC_RM_CONTROL = 0x2A
NV_ESC_RM_ALLOC = 0x2B
NV_ESC_RM_DUP_OBJECT = 0x34
NV_ESC_RM_SHARE = 0x35
NV_ESC_CHECK_VERSION_STR = 210
NV_ESC_IOCTL_XFER_CMD = 211

# The driver compares the versions strictly; ord("2") would only ask for its own.
NV_RM_API_VERSION_CMD_STRICT = 0

# nvstatuscodes.h
NV_OK = 0x00
NV_ERR_INVALID_CLIENT = 0x23

# class/*.h
NV01_ROOT_CLIENT = 0x41

# ctrl/ctrl0000/*.h
NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS = 0x201
NV0000_CTRL_CMD_GPU_GET_PROBED_IDS = 0x214
NO_GPU = 0xFFFFFFFF

# uvm_linux_ioctl.h
UVM_INITIALIZE = 0x30000001
UVM_DEINITIALIZE = 0x30000002


def _request(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | NV_IOCTL_MAGIC << 8 | number


@dataclasses.dataclass
class File:
    """An open device of the driver."""

    path: Path = Path("/dev/nvidiactl")
    wrapped: bool = False

    def __post_init__(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it, and with it every client that was allocated through it."""
        os.close(self.fd)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def escape(self, number: int, argument: bytes) -> bytes:
        """
        Make one ioctl, wrapped in NV_ESC_IOCTL_XFER_CMD if the file says so.

        Returns:
            The argument as the driver left it.
        """
        buffer = ctypes.create_string_buffer(argument, len(argument))
        if self.wrapped:
            inner = struct.pack("=IIQ", number, len(argument), ctypes.addressof(buffer))
            fcntl.ioctl(self.fd, _request(NV_ESC_IOCTL_XFER_CMD, len(inner)), bytearray(inner))
        else:
            fcntl.ioctl(self.fd, _request(number, len(argument)), buffer)
        return buffer.raw

    def check_version(self, version: str) -> str:
        """Say that this is a program of *version*; return the driver's, OSError if it refuses."""
        argument = struct.pack("=II64s", NV_RM_API_VERSION_CMD_STRICT, 0, version.encode())
        _, reply, text = struct.unpack("=II64s", self.escape(NV_ESC_CHECK_VERSION_STR, argument))
        assert reply, "neither refused nor recognized"
        return str(text.rstrip(b"\0").decode())

    def alloc(
        self, root: int, parent: int, new: int, cls: int, params: bytes = b""
    ) -> tuple[int, int]:
        """RM_ALLOC (NVOS64_PARAMETERS): return handle and status."""
        block = ctypes.create_string_buffer(params, len(params)) if params else None
        pointer = ctypes.addressof(block) if block else 0
        packed = struct.pack(
            "=IIIIQQIIII", root, parent, new, cls, pointer, 0, len(params), 0, 0, 0
        )
        answer = struct.unpack("=IIIIQQIIII", self.escape(NV_ESC_RM_ALLOC, packed))
        return answer[2], answer[8]

    def client(self) -> int:
        """Return a new client's handle."""
        handle, status = self.alloc(0, 0, 0, NV01_ROOT_CLIENT)
        assert status == NV_OK, f"no client: {status:#x}"
        return handle

    def free(self, root: int, parent: int, old: int) -> int:
        """RM_FREE (NVOS00_PARAMETERS): return the status."""
        packed = struct.pack("=IIII", root, parent, old, 0)
        return int(struct.unpack("=IIII", self.escape(NV_ESC_RM_FREE, packed))[3])

    def control(self, client: int, target: int, cmd: int, params: bytes) -> tuple[int, bytes]:
        """RM_CONTROL (NVOS54_PARAMETERS): return status and parameters."""
        block = ctypes.create_string_buffer(params, len(params))
        pointer = ctypes.addressof(block)
        packed = struct.pack("=IIIIQII", client, target, cmd, 0, pointer, len(params), 0)
        status = struct.unpack("=IIIIQII", self.escape(NV_ESC_RM_CONTROL, packed))[6]
        return status, block.raw

    def dup(self, client: int, parent: int, new: int, source: int, object: int) -> tuple[int, int]:
        """RM_DUP_OBJECT (NVOS55_PARAMETERS): return handle and status."""
        packed = struct.pack("=IIIIIII", client, parent, new, source, object, 0, 0)
        answer = struct.unpack("=IIIIIII", self.escape(NV_ESC_RM_DUP_OBJECT, packed))
        return answer[2], answer[6]

    def share(self, client: int, object: int, target: int, mask: int, kind: int) -> int:
        """RM_SHARE (NVOS57_PARAMETERS, RS_SHARE_POLICY): return the status."""
        packed = struct.pack("=IIIIHBBI", client, object, target, mask, kind, 0, 0, 0)
        return int(struct.unpack("=IIIIHBBI", self.escape(NV_ESC_RM_SHARE, packed))[7])

    def uvm(self, cmd: int, argument: bytes) -> bytes:
        """Make one ioctl of the unified memory device."""
        buffer = ctypes.create_string_buffer(argument, len(argument))
        fcntl.ioctl(self.fd, cmd, buffer)
        return buffer.raw

    def uvm_initialize(self) -> int:
        """UVM_INITIALIZE: return the status."""
        return int(struct.unpack("=QII", self.uvm(UVM_INITIALIZE, struct.pack("=QII", 0, 0, 0)))[1])


def _id_words(cmd: int) -> int:
    """Two lists of 32 ids since 535's probed ones, three since 580's."""
    if cmd == NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS:
        return 32
    branch = int(Path("/sys/module/nvidia/version").read_text().partition(".")[0])
    return 96 if branch >= 580 else 64


def probed_params() -> bytes:
    """Parameters of NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, of the size that this driver takes."""
    return bytes(4 * _id_words(NV0000_CTRL_CMD_GPU_GET_PROBED_IDS))


def gpu_ids(file: File, client: int, cmd: int = NV0000_CTRL_CMD_GPU_GET_PROBED_IDS) -> list[int]:
    """Return the ids of the cards that the driver has probed, or of those attached."""
    status, params = file.control(client, client, cmd, bytes(4 * _id_words(cmd)))
    assert status == NV_OK, f"control {cmd:#x}: {status:#x}"
    found = struct.unpack("=32I", params[:128])
    return [number for number in found if number != NO_GPU]
