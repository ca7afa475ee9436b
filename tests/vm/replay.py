# SPDX-License-Identifier: MIT
"""
A recorded program, done again: its ioctls and mappings on the driver that is loaded.

``python3 -m tests.vm.replay FILE…`` prints one JSON object per trace. What the driver chose when
the trace was recorded (clients' handles, the card's id and UUID, descriptors, addresses of
buffers) is replaced by what this driver chooses; everything else is the recorded bytes.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.traces import format as traces
from tests.traces.format import Device, Role

NV_ESC_RM_FREE = 41
NV_ESC_RM_CONTROL = 42
NV_ESC_RM_ALLOC = 43
NV_ESC_RM_MAP_MEMORY = 78
NV_ESC_CARD_INFO = 200
NV_ESC_REGISTER_FD = 201
NV_ESC_ALLOC_OS_EVENT = 206
NV_ESC_CHECK_VERSION_STR = 210
NV_ESC_ATTACH_GPUS_TO_FD = 212
NV01_ROOT_CLIENT = 0x41
NV01_EVENT_OS_EVENT = 0x79
#: of NV0005_ALLOC_PARAMETERS
OS_EVENT_FD = 16
NV2080_CTRL_CMD_GPU_GET_GID_INFO = 0x2080014A
CONTROLS_OF_THE_ROOT = 0x10000
UVM_REGISTER_GPU = 37
UVM_MM_INITIALIZE = 75
MAP_FIXED_NOREPLACE = 0x100000

#: Where a command's argument holds a descriptor.
DESCRIPTORS = {
    NV_ESC_REGISTER_FD: 0,
    NV_ESC_RM_MAP_MEMORY: 48,
    NV_ESC_ALLOC_OS_EVENT: 8,
}
#: NVIDIA's status in the argument, by command and size.
STATUS = {(39, 56): 40, (41, 16): 12, (42, 32): 28, (43, 48): 40, (43, 32): 28, (52, 28): 24,
          (53, 24): 20, (74, 184): 20, (78, 56): 40, (79, 32): 24}  # fmt: skip
UVM_STATUS = {0x30000001: 8, 37: 36, 25: 28, 27: 48, 33: 9260, 66: 32, 34: 16, 68: 9240, 73: 16,
              75: 4, 39: 4, 72: 16}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]  # fmt: skip
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]


class Replay:
    """One trace of a single process."""

    def __init__(self, trace: traces.Trace) -> None:
        self.trace = trace
        self.fds: dict[int, int] = {}
        # 4 and 16 byte words that this driver chose differently
        self.words: dict[bytes, bytes] = {}
        # the card's id as recorded and as it is here: too small a number to look for everywhere
        self.gpu_id = (b"", b"")
        self.mapped: dict[int, int] = {}
        self.calls = 0
        self.skipped: Counter[str] = Counter()
        self.different: Counter[str] = Counter()

    def run(self) -> None:
        """Do all of it, then close what is still open."""
        for record in self.trace.records:
            step = getattr(self, type(record).__name__.lower(), None)
            if step:
                step(record)
        for fd in set(self.fds.values()):
            os.close(fd)
        for address, length in self.mapped.items():
            libc.munmap(address, length)

    def open(self, record: traces.Open) -> None:
        if record.ret < 0 or not record.path.startswith("/dev/nvidia"):
            return
        try:
            self.fds[record.ret] = os.open(record.path, record.flags)
        except OSError as error:
            # nvidia-caps and its like, which this driver does not have
            self.skipped[f"open {record.path}: {error.strerror}"] += 1

    def close(self, record: traces.Close) -> None:
        if record.ret == 0 and record.fd in self.fds:
            os.close(self.fds.pop(record.fd))

    def dup(self, record: traces.Dup) -> None:
        if record.fd in self.fds and record.new_fd >= 0:
            self.fds[record.new_fd] = os.dup(self.fds[record.fd])

    def mmap(self, record: traces.Mmap) -> None:
        if record.errno:
            return
        if record.fd < 0:
            self.unmap(record.address, record.length)
        elif record.device is Device.UVM and record.fd in self.fds:
            flags = record.flags | MAP_FIXED_NOREPLACE
            got = libc.mmap(record.address, record.length, record.prot, flags,
                            self.fds[record.fd], record.offset)  # fmt: skip
            if got == record.address:
                self.mapped[got] = record.length
            else:
                self.skipped[f"mmap: {os.strerror(ctypes.get_errno())}"] += 1

    def munmap(self, record: traces.Munmap) -> None:
        self.unmap(record.address, record.length)

    def unmap(self, address: int, length: int) -> None:
        for start in [a for a in self.mapped if address <= a < address + length]:
            libc.munmap(start, self.mapped.pop(start))

    def translate(self, data: bytes) -> bytearray:
        """Recorded bytes with this driver's handles and numbers in them."""
        out = bytearray(data)
        for old, new in self.words.items():
            at = out.find(old)
            while at >= 0:
                if at % 4 == 0:
                    out[at : at + len(old)] = new
                at = out.find(old, at + 1)
        return out

    def ioctl(self, record: traces.Ioctl) -> None:
        if record.fd not in self.fds or record.device not in (Device.CTL, Device.GPU, Device.UVM):
            self.skipped[f"ioctl on {record.device.name}"] += 1
            return
        memory = [
            ctypes.create_string_buffer(bytes(self.translate(buffer.before)), len(buffer.before))
            for buffer in record.buffers
        ]
        for holder in self.named_cards(record, memory):
            ctypes.memmove(holder, self.gpu_id[1], 4)
        # pointers to other buffers, wherever they stand
        for holder, buffer in zip(memory, record.buffers, strict=True):
            for target, pointee in zip(memory, record.buffers, strict=True):
                at = buffer.before.find(struct.pack("<Q", pointee.address))
                if at >= 0 and target is not holder:
                    struct.pack_into("<Q", holder, at, ctypes.addressof(target))
        argument = memory[0] if memory else None
        offset = DESCRIPTORS.get(record.nr) if record.device is not Device.UVM else None
        if record.device is Device.UVM and record.nr == UVM_MM_INITIALIZE:
            offset = 0
        if offset is not None and argument is not None:
            recorded = struct.unpack_from("<i", argument, offset)[0]
            struct.pack_into("<i", argument, offset, self.fds.get(recorded, recorded))
        if self.name(record) == f"alloc {NV01_EVENT_OS_EVENT:#x}" and len(memory) > 1:
            recorded = struct.unpack_from("<i", memory[1], OS_EVENT_FD)[0]
            struct.pack_into("<i", memory[1], OS_EVENT_FD, self.fds.get(recorded, recorded))
        if record.nr == NV_ESC_CHECK_VERSION_STR and record.device is not Device.UVM:
            return  # it names the driver that was recorded
        ret = libc.ioctl(self.fds[record.fd], record.cmd, argument)
        error = ctypes.get_errno() if ret < 0 else 0
        self.calls += 1
        self.learn(record, memory)
        self.compare(record, argument, ret, error)

    def named_cards(
        self, record: traces.Ioctl, memory: list[ctypes.Array[ctypes.c_char]]
    ) -> Iterator[ctypes.Array[ctypes.c_char]]:
        """Buffers that begin with a card's id: parameters of the root's controls, and lists."""
        if record.device is Device.UVM or not self.gpu_id[0]:
            return
        for buffer, holder in zip(record.buffers, memory, strict=True):
            if buffer.before[:4] != self.gpu_id[0]:
                continue
            if record.nr == NV_ESC_ATTACH_GPUS_TO_FD or (
                record.nr == NV_ESC_RM_CONTROL
                and buffer.role is Role.PARAM
                and record.buffers[0].u32(8, after=False) < CONTROLS_OF_THE_ROOT
            ):
                yield holder

    def learn(self, record: traces.Ioctl, memory: list[ctypes.Array[ctypes.c_char]]) -> None:
        """Note what this driver chose in place of what is recorded."""
        if not memory or record.device is Device.UVM:
            return
        before, now = record.buffers[0].after, memory[0].raw
        if record.nr == NV_ESC_RM_ALLOC and struct.unpack_from("<I", before, 12)[0] == (
            NV01_ROOT_CLIENT
        ):
            self.words[before[8:12]] = now[8:12]
        elif record.nr == NV_ESC_CARD_INFO and before[0]:
            self.gpu_id = before[16:20], now[16:20]
        elif record.nr == NV_ESC_RM_MAP_MEMORY:
            self.words[before[32:40]] = now[32:40]  # by which it is unmapped
        param = record.buffer(Role.PARAM)
        if param and record.nr == NV_ESC_RM_CONTROL:
            cmd = struct.unpack_from("<I", before, 8)[0]
            if cmd == NV2080_CTRL_CMD_GPU_GET_GID_INFO and len(param.after) >= 28:
                self.words[param.after[12:28]] = memory[1].raw[12:28]

    def compare(
        self, record: traces.Ioctl, argument: ctypes.Array[ctypes.c_char] | None, ret: int,
        error: int,
    ) -> None:  # fmt: skip
        """Count what answers otherwise than the driver that was recorded."""
        name = self.name(record)
        if (ret < 0) != (record.ret < 0):
            self.different[f"{name}: errno {error}, was {record.errno}"] += 1
        if argument is None or ret < 0 or not record.buffers:
            return
        size = len(record.buffers[0].before)
        offset = UVM_STATUS.get(record.nr) if record.device is Device.UVM else STATUS.get(
            (record.nr, size)
        )  # fmt: skip
        if offset is None or offset + 4 > size:
            return
        was = record.buffers[0].u32(offset)
        now = struct.unpack_from("<I", argument, offset)[0]
        if was != now:
            self.different[f"{name}: status {now:#x}, was {was:#x}"] += 1

    @staticmethod
    def name(record: traces.Ioctl) -> str:
        if record.device is Device.UVM:
            return f"uvm {record.nr}"
        if not record.buffers:
            return f"nr {record.nr}"
        words = struct.unpack_from("<4I", record.buffers[0].before.ljust(16, b"\0"))
        if record.nr == NV_ESC_RM_CONTROL:
            return f"control {words[2]:#x}"
        if record.nr == NV_ESC_RM_ALLOC:
            return f"alloc {words[3]:#x}"
        return f"nr {record.nr}"


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        replay = Replay(traces.load(path))
        replay.run()
        answer = {
            "trace": path.name,
            "calls": replay.calls,
            "skipped": replay.skipped,
            "different": replay.different,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
