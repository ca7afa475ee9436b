# SPDX-License-Identifier: MIT
"""
One program of all calls that a driver answers without a card behind it, and its answers.

What is recorded of a call is its error or its status, and such fields of the answer as are no
handle and no address. ``535.json`` and ``550.json`` are NVIDIA's own drivers' answers; they are
made anew by the command that ``test_same_answers.py`` names.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.vm import rm

HERE = Path(__file__).parent
#: branches of which there is a recording
RECORDED = (535, 550)

# nv-ioctl-numbers.h, nv_escape.h: those that rm.py has no method for
ALLOC_MEMORY, ALLOC_OBJECT = 0x27, 0x28
IDLE_CHANNELS, VID_HEAP_CONTROL, ACCESS_REGISTRY = 0x41, 0x4A, 0x4D
MAP_MEMORY, UNMAP_MEMORY, GET_EVENT_DATA = 0x4E, 0x4F, 0x52
ALLOC_CONTEXT_DMA2, MAP_MEMORY_DMA, UNMAP_MEMORY_DMA = 0x54, 0x57, 0x58
BIND_CONTEXT_DMA, UPDATE_DEVICE_MAPPING_INFO = 0x59, 0x5E
CARD_INFO, REGISTER_FD, ALLOC_OS_EVENT, FREE_OS_EVENT, STATUS_CODE = 200, 201, 206, 207, 209
ATTACH_GPUS, QUERY_DEVICE_INTR, SYS_PARAMS, NUMA_INFO = 212, 213, 214, 215
SET_NUMA_STATUS, EXPORT_TO_DMABUF, WAIT_OPEN_COMPLETE = 216, 217, 218

DEVICELESS = 0x90CE
"""Memory of the host below a client: what can be made, duplicated and shared without a card."""
INVALID_OBJECT, INVALID_OBJECT_HANDLE = 0x31, 0x33
NOTHING = 0xCAFE0BAD
"""No object's handle, and no client's."""


class Program:
    """The calls, in order; :attr:`answers` tells of each by its name."""

    def __init__(self, branch: int, version: str, wrapped: bool) -> None:
        self.branch, self.version, self.wrapped = branch, version, wrapped
        self.answers: dict[str, str] = {}
        self._handle = 0x5C000000
        self._open = ExitStack()

    def file(self, path: str = "/dev/nvidiactl") -> rm.File:
        return self._open.enter_context(rm.File(Path(path), self.wrapped))

    def new(self) -> int:
        """Return a handle that nobody has."""
        self._handle += 1
        return self._handle

    def tell(self, name: str, answer: object) -> None:
        assert name not in self.answers, name
        said = hex(answer) if isinstance(answer, int) else str(answer)
        # Of no client's handle the driver says one or the other by what others there are.
        self.answers[name] = hex(INVALID_OBJECT_HANDLE) if said == hex(INVALID_OBJECT) else said

    def escape(
        self, name: str, file: rm.File, number: int, argument: bytes, *at: int, size: int = 4
    ) -> bytes:
        """Make a call; of its answer tell the fields of *size* at these offsets."""
        try:
            answer = file.escape(number, argument)
        except OSError as error:
            self.tell(name, errno.errorcode[error.errno or 0])
            return argument
        fields = [hex(int.from_bytes(answer[i : i + size], "little")) for i in at]
        self.tell(name, " ".join(fields) or "done")
        return answer

    def control(
        self, name: str, file: rm.File, client: int, target: int, cmd: int, params: bytes,
        *at: int
    ) -> bytes:  # fmt: skip
        status, answer = file.control(client, target, cmd, params)
        fields = [hex(int.from_bytes(answer[i : i + 4], "little")) for i in at]
        self.tell(name, " ".join([hex(status), *(fields if not status else [])]))
        return answer

    def uvm(self, name: str, file: rm.File, cmd: int, argument: bytes, at: int) -> bytes:
        try:
            answer = file.uvm(cmd, argument)
        except OSError as error:
            self.tell(name, errno.errorcode[error.errno or 0])
            return argument
        self.tell(name, hex(int.from_bytes(answer[at : at + 4], "little")))
        return answer

    def run(self) -> dict[str, str]:
        """Make all calls."""
        parts = (
            self.versions, self.clients, self.allocations, self.arguments, self.controls,
            self.cards, self.sharing, self.descriptors, self.events, self.registered,
            self.other_escapes, self.unified_memory,
        )  # fmt: skip
        for part in parts:
            with ExitStack() as self._open:
                part()
        return self.answers

    def greeted(self) -> tuple[rm.File, int]:
        """Return a control file that has said its version, and a client."""
        file = self.file()
        file.check_version(self.version)
        return file, file.client()

    def memory(self, file: rm.File, client: int, size: int = 4096, attr2: int = 0) -> int:
        """Return the handle of memory below *client*."""
        handle = self.new()
        _, status = file.alloc(client, client, handle, DEVICELESS, self.memory_params(size, attr2))
        assert status == rm.NV_OK, hex(status)
        return handle

    def memory_params(self, size: int, attr2: int = 0) -> bytes:
        params = bytearray(120 if self.branch == 535 else 128)
        struct.pack_into("=I", params, 4, 0)
        # location PCI, cached
        struct.pack_into("=II", params, 24, 1 << 25 | 1 << 12, attr2)
        struct.pack_into("=Q", params, 64, size)
        return bytes(params)

    # ---- parts ----

    def versions(self) -> None:
        file = self.file()
        for name, kind, text in (
            ("right", 0, self.version), ("wrong", 0, "1.2.3"), ("empty", 0, ""),
            ("relaxed and right", ord("1"), self.version),
            ("relaxed and of the branch", ord("1"), f"{self.branch}.1"),
            ("relaxed and wrong", ord("1"), "1.2.3"), ("a question", ord("2"), "1.2.3"),
            ("an unknown kind", ord("9"), self.version),
        ):  # fmt: skip
            packed = struct.pack("=II64s", kind, 0, text.encode())
            answer = self.escape(f"version {name}", file, rm.NV_ESC_CHECK_VERSION_STR, packed, 4)
            if answer != packed:
                said = answer[8:].partition(b"\0")[0].decode()
                self.answers[f"version {name}"] += " ours" if said == self.version else " other"
        self.escape("version short", file, rm.NV_ESC_CHECK_VERSION_STR, bytes(71))
        packed = struct.pack("=II64s", 0, 0, b"9" * 64)
        self.escape("version unterminated", file, rm.NV_ESC_CHECK_VERSION_STR, packed, 4)

    def clients(self) -> None:
        file = self.file()
        one = file.client()
        other = self.file()
        for cls in (0, 1, 0x41):
            params = struct.pack("=I", 0)
            packed = struct.pack("=IIIIQQIIII", 0, 0, 0, cls, 0, 0, len(params), 0, 0, 0)
            answer = self.escape(
                f"client of class {cls:#x}", file, rm.NV_ESC_RM_ALLOC, packed, 12, 40
            )
            handle = struct.unpack_from("=I", answer, 8)[0]
            self.tell(f"client of class {cls:#x} below", hex(handle >> 20))
        named, root, parent = self.new(), self.new(), self.new()
        for name, where, words in (
            ("by an object's handle", file, (0, 0, named)),
            ("by an object's handle again", file, (0, 0, named)),
            ("below a parent", file, (0, parent, 0)),
            ("by a root", file, (root, 0, 0)),
            ("by a root again", file, (root, 0, named)),
            ("by a root again, another file", other, (root, 0, 0)),
            ("by all three", file, (root + 0x1000, root + 0x1000, root + 0x1000)),
            ("by a client", file, (one, one, self.new())),
        ):
            handle, status = where.alloc(*words, rm.NV01_ROOT_CLIENT)
            said = next((hex(i) for i in range(3) if words[i] == handle), "the driver's")
            self.tell(f"client {name}", f"{status:#x} {said if not status else ''}")
        self.tell("client with parameters", file.alloc(0, 0, 0, 0x41, bytes(108))[1])
        self.tell("client with short parameters", file.alloc(0, 0, 0, 0x41, bytes(1))[1])
        self.tell("free by another file", other.free(one, 0, one))
        self.tell("free by another file with parent", other.free(one, one, one))
        self.tell("free", file.free(one, 0, one))
        self.tell("free again", file.free(one, 0, one))
        self.tell("free with nothing's parent", file.free(root, NOTHING, root))
        self.tell("free of no client", file.free(NOTHING, 0, NOTHING))
        self.tell("free of zero", file.free(0, 0, 0))
        two = file.client()
        self.tell("free of nothing", file.free(two, two, NOTHING))
        self.tell("free of nothing below nothing", file.free(two, NOTHING, NOTHING))
        self.tell("free of handle zero", file.free(two, two, 0))
        three = file.client()
        self.tell("free of another client", file.free(two, two, three))
        self.tell("free with another root", file.free(three, 0, two))
        self.tell("dup of a client", file.dup(two, two, self.new(), three, three)[1])
        self.tell("dup of a client with itself", file.dup(two, two, self.new(), two, two)[1])
        with rm.File() as brief:
            gone = brief.client()
        self.tell("control of a closed file's client", self.status(file, gone, gone, 0x201, 128))
        self.tell("free of a closed file's client", file.free(gone, 0, gone))
        self.tell("foreign client's control", self.status(other, two, two, 0x201, 128))
        self.tell("foreign client's object", other.alloc(two, two, self.new(), DEVICELESS)[1])
        self.tell("foreign client's share", other.share(two, two, 0, 1, 1))
        self.tell("foreign client's dup", other.dup(two, two, self.new(), two, two)[1])

    @staticmethod
    def status(file: rm.File, client: int, target: int, cmd: int, size: int) -> int:
        return file.control(client, target, cmd, bytes(size))[0]

    def allocations(self) -> None:
        file, client = self.greeted()
        params = self.memory_params(4096)
        for name, root, parent, handle, cls, block in (
            ("unknown class", client, client, self.new(), 0xBEEF, b""),
            ("unknown class, no client", NOTHING, NOTHING, self.new(), 0xBEEF, b""),
            ("unknown class, no parent", client, NOTHING, self.new(), 0xBEEF, b""),
            ("unknown class with parameters", client, client, self.new(), 0xBEEF, bytes(16)),
            ("class -1", client, client, self.new(), 0xFFFFFFFF, b""),
            ("device without a card's file", client, client, self.new(), 0x80, bytes(56)),
            ("device 7 of none", client, client, self.new(), 0x80, struct.pack("=I52x", 7)),
            ("device 32", client, client, self.new(), 0x80, struct.pack("=I52x", 32)),
            ("device below nothing", client, NOTHING, self.new(), 0x80, bytes(56)),
            ("subdevice below the client", client, client, self.new(), 0x2080, bytes(4)),
            ("subdevice below nothing", client, NOTHING, self.new(), 0x2080, bytes(4)),
            ("group below the client", client, client, self.new(), 0xA06C, bytes(20)),
            ("address space below the client", client, client, self.new(), 0x90F1, bytes(48)),
            ("channel below the client", client, client, self.new(), 0xC36F, bytes(368)),
            ("compute below the client", client, client, self.new(), 0xC5C0, bytes(16)),
            ("context share below the client", client, client, self.new(), 0x9067, bytes(12)),
            ("video memory below the client", client, client, self.new(), 0x40, params),
            ("host memory below the client", client, client, self.new(), 0x3E, params),
            ("registers below the client", client, client, self.new(), 0x3F, b""),
            ("physical memory below the client", client, client, self.new(), 0xC2, bytes(16)),
            ("list of pages below the client", client, client, self.new(), 0x82, bytes(80)),
            ("display below the client", client, client, self.new(), 0x73, b""),
            ("usermode below the client", client, client, self.new(), 0xC361, b""),
            ("debugger below the client", client, client, self.new(), 0x83DE, bytes(12)),
            ("virtual memory below the client", client, client, self.new(), 0x50A0, params),
            ("event buffer of nothing", client, client, self.new(), 0x90CD, bytes(72)),
            ("memory without parameters", client, client, self.new(), DEVICELESS, b""),
            ("memory of no size", client, client, self.new(), DEVICELESS, self.memory_params(0)),
            ("memory of no client", NOTHING, NOTHING, self.new(), DEVICELESS, params),
            ("memory below nothing", client, NOTHING, self.new(), DEVICELESS, params),
            ("memory with the client's handle", client, client, client, DEVICELESS, params),
        ):  # fmt: skip
            given, status = file.alloc(root, parent, handle, cls, block)
            self.tell(f"alloc {name}", status)
            assert given == handle, name
        one = self.memory(file, client)
        self.tell("memory", "0x0")
        self.tell(
            "memory by a handle in use", file.alloc(client, client, one, DEVICELESS, params)[1]
        )
        handle, status = file.alloc(client, client, 0, DEVICELESS, params)
        self.tell("memory by a handle of the driver's", f"{status:#x} {handle >> 20:#x}")
        self.tell("memory below memory", file.alloc(client, one, self.new(), DEVICELESS, params)[1])
        self.tell("device below memory", file.alloc(client, one, self.new(), 0x80, bytes(56))[1])
        self.tell("unknown class below memory", file.alloc(client, one, self.new(), 0xBEEF)[1])
        self.tell("free of memory below another parent", file.free(client, NOTHING, one))
        self.tell("free of memory again", file.free(client, client, one))
        for cls in (
            0x3F,
            0xC2,
            0x82,
            0x83,
            0x80,
            0x3E,
            0x40,
            0x76,
            0x90E6,
            0xDE,
            0xCB33,
            DEVICELESS,
        ):
            self.tell(f"class {cls:#x} for a user", self.in_a_child(0, 0, cls))
        for cls in (0x5, 0x78, 0x79, 0x7E):
            for name, block in (
                ("nothing", struct.pack("=IIIIQ", client, NOTHING, cls, 0, 0)),
                ("the client", struct.pack("=IIIIQ", client, client, cls, 0, file.fd)),
                ("no client", struct.pack("=IIIIQ", NOTHING, client, cls, 0, file.fd)),
                ("a wrong descriptor", struct.pack("=IIIIQ", client, client, cls, 0, 9999)),
            ):
                status = file.alloc(client, client, self.new(), cls, block)[1]
                self.tell(f"event {cls:#x} of {name}", status)
            status = file.alloc(client, client, self.new(), cls)[1]
            self.tell(f"event {cls:#x} without parameters", status)

    def arguments(self) -> None:
        file, client = self.greeted()
        wrong = {
            "free": (rm.NV_ESC_RM_FREE, (0, 12, 15, 17, 20)),
            "control": (rm.NV_ESC_RM_CONTROL, (0, 8, 31, 33, 40)),
            "alloc": (rm.NV_ESC_RM_ALLOC, (0, 16, 31, 33, 40, 47, 49)),
            "dup": (rm.NV_ESC_RM_DUP_OBJECT, (0, 24, 32)),
            "share": (rm.NV_ESC_RM_SHARE, (0, 20, 28)),
            "heap": (VID_HEAP_CONTROL, (0, 176, 192)),
            "object": (ALLOC_OBJECT, (0, 16, 24)),
            "memory": (ALLOC_MEMORY, (48, 56)),
            "map": (MAP_MEMORY, (48, 64)),
            "unmap": (UNMAP_MEMORY, (24, 40)),
            "map for the card": (MAP_MEMORY_DMA, (48, 72)),
            "unmap for the card": (UNMAP_MEMORY_DMA, (32, 56)),
            "idle": (IDLE_CHANNELS, (48, 64)),
            "context dma": (ALLOC_CONTEXT_DMA2, (48, 64)),
            "bind": (BIND_CONTEXT_DMA, (12, 20)),
            "registry": (ACCESS_REGISTRY, (64, 80)),
            "mapping info": (UPDATE_DEVICE_MAPPING_INFO, (32, 48)),
            "os event": (ALLOC_OS_EVENT, (0, 12, 20)),
            "os event's free": (FREE_OS_EVENT, (0, 12, 20)),
            "event data": (GET_EVENT_DATA, (8, 24)),
            "register": (REGISTER_FD, (0, 2, 8)),
            "status code": (STATUS_CODE, (8, 16)),
            "attach": (ATTACH_GPUS, (0, 2, 6)),
            "system": (SYS_PARAMS, (4, 16)),
            "interrupt": (QUERY_DEVICE_INTR, (4, 8)),
            "numa": (NUMA_INFO, (8, 560)),
            "numa status": (SET_NUMA_STATUS, (0, 4)),
            "dma-buf": (EXPORT_TO_DMABUF, (8, 2600)),
        }
        for name, (number, sizes) in wrong.items():
            for size in sizes:
                self.escape(f"{name} of {size} bytes", file, number, bytes(size))
        for number in (0, 1, 0x20, 0x2C, 0x36, 0x50, 0x5D, 0x60, 199, 202, 205, 208, 219, 255):
            self.escape(f"escape {number:#x}", file, number, bytes(16))
        xfer = rm.NV_ESC_IOCTL_XFER_CMD
        for name, size, packed in (
            ("short", 8, bytes(8)),
            ("long", 24, bytes(24)),
            ("at NULL", 16, struct.pack("=IIQ", rm.NV_ESC_RM_FREE, 16, 0)),
            ("too large", 16, struct.pack("=IIQ", rm.NV_ESC_RM_FREE, 16385, 0)),
            ("of nothing", 16, struct.pack("=IIQ", rm.NV_ESC_RM_FREE, 0, 0)),
            ("in another", 16, struct.pack("=IIQ", xfer, 16, 0)),
        ):
            self.bare(f"xfer {name}", file, 3 << 30 | size << 16 | ord("F") << 8 | xfer, packed)
        for name, number, size in (
            ("free", rm.NV_ESC_RM_FREE, 16), ("xfer", xfer, 16),
            ("control", rm.NV_ESC_RM_CONTROL, 32), ("unknown", 0x20, 16),
        ):  # fmt: skip
            request = 3 << 30 | size << 16 | ord("F") << 8 | number
            self.bare(f"argument of {name} at NULL", file, request, None)
        packed = struct.pack("=IIII", client, client, NOTHING, 0)
        for name, request in (
            ("of no direction", 0 << 30 | 16 << 16 | ord("F") << 8 | rm.NV_ESC_RM_FREE),
            ("of another type", 3 << 30 | 16 << 16 | ord("Q") << 8 | rm.NV_ESC_RM_FREE),
        ):
            self.bare(f"free {name}", file, request, packed)

        # parameters of a class and of a control
        def alloc(name: str, cls: int, pointer: int, size: int, parent: int = client) -> None:
            packed = struct.pack(
                "=IIIIQQIIII", client, parent, self.new(), cls, pointer, 0, size, 0, 0, 0
            )
            self.escape(f"alloc, parameters {name}", file, rm.NV_ESC_RM_ALLOC, packed, 40)

        block = ctypes.create_string_buffer(self.memory_params(4096))
        here, size = ctypes.addressof(block), len(block) - 1
        for cls, of in ((DEVICELESS, "memory"), (0xBEEF, "unknown"), (0x80, "device")):
            alloc(f"of {of} at 1", cls, 1, size)
            alloc(f"of {of}, size alone", cls, 0, size)
        for told in (0, 1, size - 1, size + 1, 1 << 20):
            alloc(f"of memory {'right' if told == size else told - size}", DEVICELESS, here, told)
        for name, told in (("narrow", size), ("narrow and no size", 0)):
            packed = struct.pack("=IIIIQII", client, client, self.new(), DEVICELESS, here, told, 0)
            self.escape(f"alloc {name}", file, rm.NV_ESC_RM_ALLOC, packed, 28)
        rights = ctypes.create_string_buffer(b"\0" * 8)
        for name, at in (("none", ctypes.addressof(rights)), ("at 1", 1)):
            packed = struct.pack(
                "=IIIIQQIIII", client, client, self.new(), DEVICELESS, here, at, size, 0, 0, 0
            )
            self.escape(f"alloc, rights {name}", file, rm.NV_ESC_RM_ALLOC, packed, 40)
        packed = struct.pack("=IIIII", client, client, self.new(), 0xBEEF, 0)
        self.escape("alloc object", file, ALLOC_OBJECT, packed, 16)
        packed = struct.pack("=IIIII", client, client, self.new(), DEVICELESS, 0)
        self.escape("alloc object of memory", file, ALLOC_OBJECT, packed, 16)

        def control(name: str, cmd: int, pointer: int, size: int, flags: int = 0) -> None:
            packed = struct.pack("=IIIIQII", client, client, cmd, flags, pointer, size, 0)
            self.escape(f"control, parameters {name}", file, rm.NV_ESC_RM_CONTROL, packed, 28)

        room = ctypes.create_string_buffer(128)
        at = ctypes.addressof(room)
        for told in (0, 4, 64, 127, 129, 256):
            control(f"of {told} bytes", 0x201, at, told)
        control("of a million bytes", 0x201, at, 1 << 20)
        control("of more", 0x201, at, (1 << 20) + 4)
        control("at NULL", 0x201, 0, 128)
        control("at 1", 0x201, 1, 128)
        control("not there", 0x201, 0, 0)
        for flags in (1, 2, 4, 8, 0x80000000):
            control(f"with flags {flags:#x}", 0x201, at, 128, flags)
        control("unknown, at NULL", 0x7F0001, 0, 8)
        control("unknown, at 1", 0x7F0001, 1, 8)
        control("unknown, none", 0x7F0001, 0, 0)

    def bare(self, name: str, file: rm.File, request: int, argument: bytes | None) -> None:
        """Make an ioctl as it is, wrapped or not; None is a null pointer."""
        try:
            buffer = ctypes.create_string_buffer(argument) if argument is not None else None
            fcntl.ioctl(file.fd, request, buffer if buffer is not None else 0)
        except OSError as error:
            self.tell(name, errno.errorcode[error.errno or 0])
        else:
            self.tell(name, "done")

    def controls(self) -> None:
        file, client = self.greeted()
        memory = self.memory(file, client)
        for cmd in (
            0, 1, 0x7F0001, 0x9999, 0x2FF, 0x7F01, 0x00800201, 0x20800102, 0x2080FFFF, 0xA06C0101,
            0xC36F0108, 0x90F10101, 0x90CD0101, 0x0041010A, 0x00410110, 0x83DE0301, 0xFFFFFFFF,
            0x00730001, 0x80000201, 0x0000B001,
        ):  # fmt: skip
            self.tell(f"control {cmd:#x}", self.status(file, client, client, cmd, 8))
            self.tell(f"control {cmd:#x} of memory", self.status(file, client, memory, cmd, 8))
        self.tell("control of nothing", self.status(file, client, NOTHING, 0x201, 128))
        self.tell("control of zero", self.status(file, client, 0, 0x201, 128))
        self.tell("control of memory", self.status(file, client, memory, 0x201, 128))
        self.tell("control of no client", self.status(file, NOTHING, NOTHING, 0x201, 128))
        self.tell("control of client zero", self.status(file, 0, 0, 0x201, 128))
        self.tell("unknown control of no client", self.status(file, NOTHING, NOTHING, 0x9999, 8))
        self.tell("wrong size of no client", self.status(file, NOTHING, NOTHING, 0x201, 8))
        self.tell("wrong size of nothing", self.status(file, client, NOTHING, 0x201, 8))
        self.tell("wrong size of memory", self.status(file, client, memory, 0x201, 8))
        self.tell("unknown control of nothing", self.status(file, client, NOTHING, 0x9999, 8))
        info = struct.Struct("=IIQ")
        for name, target, index in (
            ("the client", client, 1), ("memory", memory, 1), ("nothing", NOTHING, 1),
            ("zero", 0, 1), ("the client, class", client, 2), ("memory, class", memory, 2),
            ("memory, index 0", memory, 0), ("memory, index 3", memory, 3),
        ):  # fmt: skip
            status, block = file.control(client, client, 0xD02, info.pack(target, index, 0))
            result = info.unpack(block)[2]
            known = {client: "client", memory: "memory"}.get(result, hex(result))
            self.tell(f"handle info of {name}", f"{status:#x} {known if not status else ''}")
        self.control("fabric status", file, client, client, 0x136, bytes(4))
        self.control("fabric status, long", file, client, client, 0x136, bytes(8))

    def cards(self) -> None:
        file, client = self.greeted()
        ids = rm.gpu_ids(file, client)
        self.tell("probed ids", len(ids))
        card = ids[0]
        short, long = bytes(len(rm.probed_params()) - 4), bytes(len(rm.probed_params()) + 4)
        self.control("probed ids, short", file, client, client, 0x214, short)
        self.control("probed ids, long", file, client, client, 0x214, long)
        for name, number in (("nothing", 0x12345), ("-1", 0xFFFFFFFF), ("0", 0)):
            words = struct.pack("=I", number)
            self.control(f"id info of {name}", file, client, client, 0x202, words + bytes(44))
            self.control(f"id info 2 of {name}", file, client, client, 0x205, words + bytes(28))
            self.control(f"pci info of {name}", file, client, client, 0x21B, words + bytes(8))
            self.control(f"uuid of {name}", file, client, client, 0x275, words + bytes(264))
        words = struct.pack("=I", card)
        self.control("pci info", file, client, client, 0x21B, words + bytes(8))
        for size in (4, 8, 16):
            self.control(f"pci info of {size}", file, client, client, 0x21B, bytes(size))
        self.control("uuid info of nothing", file, client, client, 0x274, bytes(272))
        self.control("uuid info of another", file, client, client, 0x274, b"GPU-0" + bytes(267))
        for name, listed in (
            ("nothing", [0x12345]), ("none", []), ("nothing after none", [0xFFFFFFFF, 0x12345]),
        ):  # fmt: skip
            block = struct.pack("=33I", *(listed + [0xFFFFFFFF] * 33)[:33])
            answer = self.control(f"attach {name}", file, client, client, 0x215, block, 128)
            self.tell(f"attach {name} failed", struct.unpack("=33I", answer)[32])
            self.control(f"detach {name}", file, client, client, 0x216, block[:128])
        self.control("attach, short", file, client, client, 0x215, bytes(128))
        self.control("detach, long", file, client, client, 0x216, bytes(132))
        shape = 72
        for count in (0, 1, 4, 32):
            size = max(count * shape, 4)
            answer = self.escape(f"card info of {count}", file, CARD_INFO, bytes(size))
            if count:
                valid = [answer[i * shape] for i in range(count)]
                self.tell(f"card info of {count}, valid", " ".join(map(str, valid)))
                vendor = struct.unpack_from("=H", answer, 12)[0]
                self.tell(f"card info of {count}, vendor", vendor)
                gpu = struct.unpack_from("=I", answer, 16)[0]
                self.tell(f"card info of {count}, id", "as probed" if gpu == card else "other")
                self.tell(f"card info of {count}, minor", struct.unpack_from("=I", answer, 56)[0])
        self.escape("card info of 4 and a half", file, CARD_INFO, bytes(4 * shape + 30))
        for name, *listed in (
            ("nothing", 0x12345),
            ("zeroes", 0, 0),
            ("zero and more", 0, 0x12345),
        ):
            packed = struct.pack(f"={len(listed)}I", *listed)
            self.escape(f"attach {name} to a file", file, ATTACH_GPUS, packed)
        self.escape("attach twice to a file", file, ATTACH_GPUS, bytes(8))
        for bus in (0x55, 0xFF):
            packed = struct.pack("=IBB2xI", 0, bus, 9, 0)
            self.escape(f"status code of bus {bus:#x}", file, STATUS_CODE, packed)

    def sharing(self) -> None:
        file, one = self.greeted()
        two = file.client()
        memory = self.memory(file, one)
        for name, parent, handle, source, obj in (
            ("a foreign client", two, self.new(), one, one),
            ("nothing", two, self.new(), one, NOTHING),
            ("handle zero", two, self.new(), one, 0),
            ("memory of no client", two, self.new(), NOTHING, memory),
            ("memory of the wrong client", two, self.new(), two, memory),
            ("memory below nothing", NOTHING, self.new(), one, memory),
            ("memory to the client's handle", two, two, one, memory),
            ("memory", two, memory, one, memory),
            ("memory again", two, memory, one, memory),
            ("memory below memory", memory, self.new(), one, memory),
        ):
            self.tell(f"dup of {name}", file.dup(two, parent, handle, source, obj)[1])
        handle, status = file.dup(two, two, 0, one, memory)
        self.tell("dup with a handle of the driver's", f"{status:#x} {handle >> 20:#x}")
        for flags in (1, 2, 0x80000000):
            packed = struct.pack("=IIIIIII", two, two, self.new(), one, memory, flags, 0)
            name = f"dup with flags {flags:#x}"
            self.escape(name, file, rm.NV_ESC_RM_DUP_OBJECT, packed, 24)
        self.tell("dup for no client", file.dup(NOTHING, two, self.new(), one, memory)[1])
        self.tell("dup within a client", file.dup(one, one, self.new(), one, memory)[1])
        for kind in range(10):
            self.tell(f"share of kind {kind}", file.share(one, memory, two, 1, kind))
            self.tell(f"share of a client of kind {kind}", file.share(one, one, two, 1, kind))
        for name, client, obj, target, mask in (
            ("nothing", one, NOTHING, two, 1), ("no client", NOTHING, memory, two, 1),
            ("zero", one, 0, two, 1), ("no rights", one, memory, two, 0),
            ("unknown rights", one, memory, two, 0xFFFFFFFE),
            ("for nobody", one, memory, NOTHING, 1),
        ):  # fmt: skip
            self.tell(f"share of {name}", file.share(client, obj, target, mask, 3))
        for action in (1, 2, 4, 5, 8, 0x80):
            packed = struct.pack("=IIIIHBBI", one, memory, two, 1, 3, action, 0, 0)
            self.escape(f"share by action {action}", file, rm.NV_ESC_RM_SHARE, packed, 20)
        policy = struct.Struct("=IIHBB")
        for name, cmd, head in (
            ("inherited", 0xD04, b""),
            ("object", 0xD06, struct.pack("=I", memory)),
        ):
            for kind in (1, 3, 8):
                block = head + policy.pack(two, 1, kind, 0, 0)
                self.control(f"{name} share of kind {kind}", file, one, one, cmd, block)
        block = struct.pack("=I", NOTHING) + policy.pack(two, 1, 3, 0, 0)
        self.control("object share of nothing", file, one, one, 0xD06, block)
        self.foreign(file, one, memory)

    def foreign(self, file: rm.File, one: int, memory: int) -> None:
        """What another process may duplicate, by the policy."""
        for name, kind, action in (
            ("nobody", 0, 0), ("all", 1, 0), ("a token", 2, 0), ("a client", 3, 0),
            ("a process", 4, 0), ("smc", 5, 0), ("a card", 6, 0), ("all, revoked", 1, 1),
        ):  # fmt: skip
            packed = struct.pack("=IIIIHBBI", one, memory, 0, 1, kind, action, 0, 0)
            self.escape(f"share with {name}", file, rm.NV_ESC_RM_SHARE, packed, 20)
            self.tell(f"foreign dup, shared with {name}", self.in_a_child(one, memory))
            other = self.file()
            mine = other.client()
            status = other.dup(mine, mine, self.new(), one, memory)[1]
            self.tell(f"dup by another file, shared with {name}", status)

    def in_a_child(self, source: int, obj: int, cls: int = 0) -> int:
        """Return the status of a duplicate, or of *cls*, that another user's process makes."""
        user = 65534
        out, into = os.pipe()
        pid = os.fork()
        if not pid:
            status = 0xDEAD
            try:
                os.setresuid(user, user, user)
                with rm.File() as file:
                    client = file.client()
                    if cls:
                        block = self.memory_params(4096)
                        status = file.alloc(client, client, 0x5D000001, cls, block)[1]
                    else:
                        status = file.dup(client, client, 0x5D000001, source, obj)[1]
            finally:
                os.write(into, struct.pack("=I", status))
                os._exit(0)
        os.waitpid(pid, 0)
        status = struct.unpack("=I", os.read(out, 4))[0]
        os.close(out)
        os.close(into)
        return int(status)

    def descriptors(self) -> None:
        file, client = self.greeted()
        memory = self.memory(file, client)
        carrier, full = self.file(), self.file()
        full.client()
        other = self._open.enter_context(open("/dev/null"))  # noqa: SIM115
        unified = self.file("/dev/nvidia-uvm")
        one = struct.Struct("=IIIIiI")
        for name, kind, obj, fd in (
            ("memory of no type", 0, memory, carrier.fd), ("of type 2", 2, memory, carrier.fd),
            ("nothing", 1, NOTHING, carrier.fd), ("the client", 1, client, carrier.fd),
            ("to no descriptor", 1, memory, 9999), ("to -1", 1, memory, -1),
            ("to a file of the system's", 1, memory, other.fileno()),
            ("to unified memory's", 1, memory, unified.fd),
            ("to a file with clients", 1, memory, full.fd),
            ("to its own file", 1, memory, file.fd), ("memory", 1, memory, carrier.fd),
            ("memory again", 1, memory, carrier.fd),
        ):  # fmt: skip
            block = one.pack(kind, 0, client, obj, fd, 0)
            self.control(f"export {name}", file, client, client, 0x3D05, block)
        back = struct.Struct("=iIIII")
        for name, fd, kind, parent in (
            ("from no descriptor", 9999, 1, client),
            ("from a file of the system's", other.fileno(), 1, client),
            ("from a file that carries nothing", full.fd, 1, client),
            ("of type 0", carrier.fd, 0, client),
            ("below nothing", carrier.fd, 1, NOTHING), ("below the client", carrier.fd, 1, client),
        ):  # fmt: skip
            block = back.pack(fd, kind, 0, parent, self.new())
            self.control(f"import {name}", file, client, client, 0x3D06, block)
        self.tell("client in a carrier", carrier.alloc(0, 0, 0, 0x41)[1])
        size = 76 if self.branch == 535 else 80
        for name, fd in (
            ("a carrier", carrier.fd), ("no descriptor", 9999), ("a file with clients", full.fd),
            ("a file of the system's", other.fileno()),
        ):  # fmt: skip
            block = struct.pack("=i", fd) + bytes(size - 4)
            self.control(f"export info of {name}", file, client, client, 0x3D08, block)
        self.control("export info, short", file, client, client, 0x3D08, bytes(size - 4))
        # CREATE_EXPORT_OBJECT_FD makes a descriptor; EXPORT_OBJECTS and IMPORT_OBJECTS
        for count in (0, 1):
            block = struct.pack("=IH64s2xi", 0, count, b"", 0)
            self.control(f"create a carrier of {count}", file, client, client, 0x3D0A, block)
        many = struct.Struct("=iIH64s2x512IHH")
        for name, fd, objects, count, most in (
            ("of none", self.file().fd, [], 0, 1),
            ("of too many", self.file().fd, [memory], 513, 600),
            ("of nothing", self.file().fd, [NOTHING], 1, 1),
            ("to no descriptor", 9999, [memory], 1, 1),
            ("beyond what it holds", self.file().fd, [memory, memory], 2, 1),
            ("of memory", self.file().fd, [memory], 1, 1),
        ):  # fmt: skip
            block = many.pack(fd, 0, most, b"", *(objects + [0] * 512)[:512], count, 0)
            self.control(f"export objects {name}", file, client, client, 0x3D0B, block)
        more = struct.Struct("=iI128I128BHH")
        for name, fd, count, index in (
            ("none", self.file().fd, 0, 0), ("too many", self.file().fd, 129, 0),
            ("what is not there", self.file().fd, 1, 0), ("of no descriptor", 9999, 1, 0),
        ):  # fmt: skip
            block = more.pack(fd, client, *[0] * 128, *[0] * 128, count, index)
            self.control(f"import objects: {name}", file, client, client, 0x3D0C, block)

    def events(self) -> None:
        file, client = self.greeted()
        other, foreign = self.greeted()
        packed = struct.Struct("=IIII")
        for name, where, number, owner, fd in (
            ("asked for", file, ALLOC_OS_EVENT, client, 7),
            ("asked for again", file, ALLOC_OS_EVENT, client, 7),
            ("asked for again by another file", other, ALLOC_OS_EVENT, client, 7),
            ("of no client", file, ALLOC_OS_EVENT, NOTHING, 7),
            ("of client zero", file, ALLOC_OS_EVENT, 0, 7),
            ("of another's client", file, ALLOC_OS_EVENT, foreign, 8),
            ("of a wild descriptor", file, ALLOC_OS_EVENT, client, 0xFFFFFFFF),
            ("given up that is not there", file, FREE_OS_EVENT, client, 99),
            ("given up of no client", file, FREE_OS_EVENT, NOTHING, 8),
            ("given up by another file", other, FREE_OS_EVENT, client, 7),
            ("given up again", file, FREE_OS_EVENT, client, 7),
            ("given up, another's", other, FREE_OS_EVENT, foreign, 8),
            ("given up, wild", file, FREE_OS_EVENT, client, 0xFFFFFFFF),
            ("asked for once more", file, ALLOC_OS_EVENT, client, 9),
        ):
            self.escape(f"os event {name}", where, number, packed.pack(owner, 0, fd, 0), 12)
        self.tell("free of its client", file.free(client, 0, client))
        argument = packed.pack(client, 0, 9, 0)
        self.escape("os event then given up", file, FREE_OS_EVENT, argument, 12)
        data = ctypes.create_string_buffer(64)
        for name, at in (("nowhere", 0), ("somewhere", ctypes.addressof(data))):
            argument = struct.pack("=QII", at, 0, 0)
            self.escape(f"event data to {name}", file, GET_EVENT_DATA, argument, 8, 12)

    def registered(self) -> None:
        control, second = self.file(), self.file()
        file, _ = self.greeted()
        unified = self.file("/dev/nvidia-uvm")
        other = self._open.enter_context(open("/dev/null"))  # noqa: SIM115
        for name, where, fd in (
            ("no descriptor", file, 9999), ("-1", file, -1), ("itself", file, file.fd),
            ("a file of the system's", file, other.fileno()), ("unified memory", file, unified.fd),
            ("another", second, control.fd), ("another again", second, control.fd),
            ("another after that", second, file.fd), ("a registered one", file, second.fd),
            ("from the other's side", control, second.fd),
        ):  # fmt: skip
            self.escape(f"register {name}", where, REGISTER_FD, struct.pack("=i", fd))
        made = second.client()
        self.tell(
            "control of a registered file's client", self.status(control, made, made, 0x201, 128)
        )
        self.tell("the same by a third file", self.status(file, made, made, 0x201, 128))
        second.close()
        self.tell("control of it, closed", self.status(control, made, made, 0x201, 128))
        second.fd = os.open("/dev/null", os.O_RDWR)

    def other_escapes(self) -> None:
        file, client = self.greeted()
        memory = self.memory(file, client)
        heap = struct.Struct("=IIII")
        for function in (0, 1, 2, 3, 5, 6, 7, 10, 11, 14, 16, 18, 19, 20, 27, 99):
            for name, root, parent in (
                ("", client, client), (" of no client", NOTHING, NOTHING),
                (" below nothing", client, NOTHING), (" below memory", client, memory),
            ):  # fmt: skip
                argument = bytearray(184)
                heap.pack_into(argument, 0, root, parent, function, 0)
                self.escape(f"heap {function}{name}", file, VID_HEAP_CONTROL, bytes(argument), 20)
        for name, root, parent, handle in (
            ("memory", client, client, memory), ("nothing", client, client, NOTHING),
            ("memory of no client", NOTHING, NOTHING, memory),
        ):  # fmt: skip
            argument = bytearray(184)
            heap.pack_into(argument, 0, root, parent, 3, 0)
            struct.pack_into("=III", argument, 40, 0, handle, 1)
            self.escape(f"heap's free of {name}", file, VID_HEAP_CONTROL, bytes(argument), 20)
        memory = self.memory(file, client)
        for name, root, device, obj in (
            ("memory", client, client, memory), ("nothing", client, client, NOTHING),
            ("the client", client, client, client),
            ("memory of no client", NOTHING, NOTHING, memory),
            ("memory of no device", client, NOTHING, memory),
        ):  # fmt: skip
            packed = struct.pack("=IIIIQQQIIiI", root, device, obj, 0, 0, 4096, 0, 0, 0, -1, 0)
            self.escape(f"map of {name}", file, MAP_MEMORY, packed, 40)
            packed = struct.pack("=IIIIQII", root, device, obj, 0, 0, 0, 0)
            self.escape(f"unmap of {name}", file, UNMAP_MEMORY, packed, 24)
            packed = struct.pack("=IIIIQQII", root, device, obj, 0, 0, 0, 0, 0)
            self.escape(f"mapping info of {name}", file, UPDATE_DEVICE_MAPPING_INFO, packed, 32)
            size = 64 if self.branch >= 580 else 56
            packed = (
                struct.pack("=IIII", root, device, obj, obj)
                + bytes(8)
                + struct.pack("=Q", 4096)
                + bytes(size - 32)
            )
            what = f"map for the card of {name}"
            self.escape(what, file, MAP_MEMORY_DMA, packed, size - 8)
            size = 40 if self.branch == 535 else 48
            packed = struct.pack("=IIII", root, device, obj, obj) + bytes(size - 16)
            what = f"unmap for the card of {name}"
            self.escape(what, file, UNMAP_MEMORY_DMA, packed, size - 8)
            packed = struct.pack("=IIII", root, obj, obj, 0)
            self.escape(f"bind of {name}", file, BIND_CONTEXT_DMA, packed, 12)
            packed = struct.pack("=IIIIQQQIIII", root, device, obj, 0, 0, 0, 0, 0, 0, 0, 0)
            self.escape(f"idle of {name}", file, IDLE_CHANNELS, packed, 48)
            packed = struct.pack("=IIIIIIIIQQII", root, 0, self.new(), 2, 0, 0, obj, 0, 0, 0, 0, 0)
            self.escape(f"context dma of {name}", file, ALLOC_CONTEXT_DMA2, packed, 48)
        size = 64 if self.branch >= 580 else 56
        packed = struct.pack("=IIII", client, client, memory, memory).ljust(size, b"\0")
        self.escape("map for the card of no length", file, MAP_MEMORY_DMA, packed, size - 8)
        for name, value in (("first", 1 << 27), ("same", 1 << 27), ("other", 1 << 28)):
            self.escape(f"system parameters, {name}", file, SYS_PARAMS, struct.pack("=Q", value))
        for kind in (0, 1, 2, 99):
            packed = struct.pack("=III4xQI4xQI4xQI8x4x", client, client, kind, 0, 0, 0, 0, 0, 0)
            packed = packed.ljust(72, b"\0")[:72]
            self.escape(f"registry access {kind}", file, ACCESS_REGISTRY, packed, 64)
        if self.branch >= 550:
            self.escape("wait for the opening", file, WAIT_OPEN_COMPLETE, bytes(8), 0, 4)

    def unified_memory(self) -> None:
        here, second, third = (self.file("/dev/nvidia-uvm") for _ in range(3))
        base, mib = 1 << 40, 1 << 20
        span = struct.Struct("=QQ")
        preferred = 32 if self.branch == 535 else 36
        calls: list[tuple[str, int, int, int, bytes]] = [
            ("create a range", 73, 24, 16, span.pack(base, mib)),
            ("create an odd range", 73, 24, 16, span.pack(base + 1, mib)),
            ("create an empty range", 73, 24, 16, span.pack(base, 0)),
            ("create a range that wraps", 73, 24, 16, span.pack((1 << 64) - mib, 2 * mib)),
            ("create a range within", 73, 24, 16, span.pack(base, mib // 2)),
            ("free within a range", 34, 24, 16, span.pack(base + 4096, 4096)),
            ("free more than a range", 34, 24, 16, span.pack(base, 2 * mib)),
            ("free", 34, 24, 16, span.pack(base, mib)),
            ("free again", 34, 24, 16, span.pack(base, mib)),
            ("free of zero", 34, 24, 16, span.pack(0, 0)),
            ("register a card of no name", 37, 40, 36, bytes(16)),
            ("register a card of no name, file -1", 37, 40, 36, bytes(24) + struct.pack("=i", -1)),
            ("unregister a card", 38, 20, 16, bytes(16)),
            ("register an address space", 25, 32, 28, bytes(16)),
            ("unregister an address space", 26, 20, 16, bytes(16)),
            ("register a channel", 27, 56, 48, bytes(16)),
            ("unregister a channel", 28, 28, 24, bytes(16)),
            ("unmap of nothing", 66, 40, 32, span.pack(base, mib)),
            ("sparse of nothing", 74, 40, 32, span.pack(base, mib)),
            ("migrate nothing", 51, 80, 72, span.pack(base, mib)),
            ("migrate zero", 51, 80, 72, span.pack(0, 0)),
            ("prefer a place for nothing", 42, 40, preferred, span.pack(base, mib)),
            ("prefer no place for nothing", 43, 24, 16, span.pack(base, mib)),
            ("accessed by nobody", 46, 40, 32, span.pack(base, mib)),
            ("not accessed by nobody", 47, 40, 32, span.pack(base, mib)),
            ("duplicate reads of nothing", 44, 24, 16, span.pack(base, mib)),
            ("duplicate no reads of nothing", 45, 24, 16, span.pack(base, mib)),
            ("destroy a group of ranges", 24, 16, 8, struct.pack("=Q", 4711)),
            ("set a group of ranges", 31, 32, 24, struct.pack("=QQQ", 4711, base, mib)),
            ("peers of nothing", 29, 36, 32, bytes(32)),
            ("no peers of nothing", 30, 36, 32, bytes(32)),
            ("pageable memory", 39, 8, 4, b""),
            ("pageable memory of no card", 70, 24, 20, b""),
            ("populate nothing", 71, 24, 16, span.pack(base, mib)),
            ("populate zero", 71, 24, 16, span.pack(0, 0)),
            ("validate nothing", 72, 24, 16, span.pack(base, mib)),
            ("clean up", 69, 4, 0, b""),
            ("parallelism of nothing", 65, 40, 32, span.pack(base, mib)),
        ]  # fmt: skip
        for name, cmd, size, at, argument in calls:
            self.uvm(f"uvm before: {name}", here, cmd, argument.ljust(size, b"\0"), at)
        for cmd in (0, 1, 22, 32, 35, 36, 63, 67, 76, 77, 78, 200, 4711, 0x30000003):
            self.uvm(f"uvm before: command {cmd:#x}", here, cmd, bytes(4096), 4092)
        self.uvm("uvm mm before", second, 75, struct.pack("=iI", here.fd, 0), 4)
        flags = struct.Struct("=QII")
        for name, value in (
            ("flags of nobody", 0x80),
            ("plain", 0),
            ("again", 0),
            ("otherwise", 1),
        ):
            self.uvm(f"uvm initialize, {name}", here, rm.UVM_INITIALIZE, flags.pack(value, 0, 0), 8)
        self.bare("uvm initialize at NULL", third, rm.UVM_INITIALIZE, None)
        self.bare("uvm unknown at NULL", third, 4711, None)
        null = os.open("/dev/null", os.O_RDWR)
        for name, where, fd in (
            ("of no descriptor", second, 9999), ("of a file of the system's", second, null),
            ("of itself", here, here.fd), ("of one without a space", second, third.fd),
            ("", second, here.fd), ("again", second, here.fd), ("by a second", third, here.fd),
            ("of such a file", third, second.fd),
        ):  # fmt: skip
            self.uvm(f"uvm mm {name}", where, 75, struct.pack("=iI", fd, 0), 4)
        os.close(null)
        self.uvm(
            "uvm initialize of an mm's file", second, rm.UVM_INITIALIZE, flags.pack(0, 0, 0), 8
        )
        self.uvm("uvm range of an mm's file", second, 73, span.pack(base, mib) + bytes(8), 16)
        for name, cmd, size, at, argument in calls:
            self.uvm(f"uvm: {name}", here, cmd, argument.ljust(size, b"\0"), at)
        for cmd in (0, 1, 22, 32, 35, 36, 63, 67, 76, 77, 78, 200, 4711, 0x30000003):
            self.uvm(f"uvm: command {cmd:#x}", here, cmd, bytes(4096), 4092)
        answer = self.uvm("uvm: create a group of ranges", here, 23, bytes(16), 8)
        group = struct.unpack_from("=Q", answer)[0]
        self.tell("uvm: the group's number", group)
        self.uvm("uvm: destroy it", here, 24, struct.pack("=QII", group, 0, 0), 8)
        self.uvm("uvm: destroy it again", here, 24, struct.pack("=QII", group, 0, 0), 8)
        self.bare("uvm deinitialize", here, rm.UVM_DEINITIALIZE, None)
        self.uvm("uvm: after that", here, 39, bytes(8), 4)


def different(left: dict[str, str], right: dict[str, str]) -> Iterator[str]:
    """Yield a line for each call that was answered differently."""
    for name in left | right:
        if left.get(name) != right.get(name):
            yield f"{name}: {left.get(name)} | {right.get(name)}"


def recorded(branch: int) -> dict[str, str]:
    """Return what NVIDIA's own driver of that branch answered."""
    return dict(json.loads((HERE / f"{branch}.json").read_text()))
