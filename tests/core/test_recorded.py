# SPDX-License-Identifier: MIT
"""What real programs asked an H200's driver for, judged by the core as calls of one container."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pycgpu.core import Abi, Device, Request, Tenant, Topology, Verdict, lib
from tests.core import strategies as nv
from tests.traces import format as traces
from tests.traces.format import Role

HERE = Path(traces.__file__).parent
GIB, MIB = 1 << 30, 1 << 20
XFER = 211
DEVICES = {
    traces.Device.CTL: Device.CTL,
    traces.Device.GPU: Device.GPU,
    traces.Device.UVM: Device.UVM,
}
#: Its calls are wrong on purpose.
PROGRAMS = sorted(path for path in HERE.glob("*.trace.xz") if not path.name.startswith("rmprobe"))


class Replay:
    """A container on an H200 whose BAR1 has that size, and what its processes have open."""

    def __init__(self, trace: traces.Trace, bar1_bytes: int) -> None:
        self.abi = Abi(trace.meta["driver"])
        topology = Topology()
        topology.add(0, uuid=_card_uuid(trace), total_bytes=143771 * MIB, bar1_bytes=bar1_bytes)
        self.tenant = Tenant(topology)
        self.tenant.give(0, 140 * GIB)
        self.files: dict[tuple[int, int], int] = {}
        self.names: Counter[int] = Counter()
        self.waiting: list[tuple[int, int]] = []
        self.refused: Counter[str] = Counter()
        self.mapped_bytes = 0

    def play(self, record: traces.Record) -> None:
        place = record.pid, record.fd
        match record:
            case traces.Process(forked=1):
                for (pid, fd), file in list(self.files.items()):
                    if pid == record.ppid:
                        self.name((record.pid, fd), file)
            case traces.Open(ret=fd) if fd >= 0 and record.device in DEVICES:
                device = DEVICES[record.device]
                self.name((record.pid, fd), self.tenant.open(device, record.minor, record.pid))
            case traces.Dup(new_fd=fd) if place in self.files:
                self.name((record.pid, fd), self.files[place])
            case traces.RecvFd():
                self.waiting.append(place)  # since then; it is sent later
            case traces.SendFd() if place in self.files:
                self.name(self.waiting.pop(0), self.files[place])
            case traces.Close():
                self.forget(place)
            case traces.Exit():
                for pid, fd in [key for key in self.files if key[0] == record.pid]:
                    self.forget((pid, fd))
            case traces.Mmap() if record.device is traces.Device.UVM and place in self.files:
                if not record.errno:
                    assert self.tenant.mmap(self.files[place], record.address, record.length)
            case traces.Ioctl() if place in self.files:
                self.ioctl(record, self.files[place])

    def name(self, place: tuple[int, int], file: int) -> None:
        self.forget(place)
        self.files[place] = file
        self.names[file] += 1

    def forget(self, place: tuple[int, int]) -> None:
        if (file := self.files.pop(place, None)) is not None:
            self.names[file] -= 1
            if not self.names[file]:
                self.tenant.close(file)

    def ioctl(self, record: traces.Ioctl, file: int) -> None:
        device, nr = DEVICES[record.device], record.nr
        argument, params = record.buffer(Role.ARG), record.buffer(Role.PARAM)
        if nr == XFER and device is not Device.UVM:
            assert argument
            nr, argument = argument.u32(0, after=False), record.buffer(Role.INNER)
        before = argument.before if argument else b""
        if device is Device.UVM:
            # a command says no size, and the tracer guessed
            size = lib.cgpu_args_size(self.abi.raw, device, nr)
            before = before[:size].ljust(size, b"\0")
        xlist = record.buffer(Role.LIST)
        held = [buffer.before if buffer else None for buffer in (params, xlist)]
        request = Request(self.abi, device, nr, before, *held)
        named = self.files.get((record.pid, request.fd), 0)
        call = self.tenant.call(request, file, record.pid, fd_file=named)
        if call.pre() is Verdict.ANSWER:
            place = request.status_offset
            if place != lib.CGPU_NO_OFFSET and argument and call.status == argument.u32(place):
                return  # the driver said the same
            self.refused[f"{device.name} {nr} {request.cmd:#x} {request.hClass:#x}"] += 1
            return
        for buffer, put in ((argument, call.set_args), (params, call.set_params),
                            (xlist, call.set_list)):  # fmt: skip
            if buffer:
                put(buffer.after)
        verdict = call.post(-record.errno if record.ret < 0 else 0)
        assert verdict is Verdict.DONE, (nr, verdict)
        used = self.tenant.raw.ledger.account[lib.CGPU_BAR1].current_bytes
        self.mapped_bytes = max(self.mapped_bytes, int(used))


def _card_uuid(trace: traces.Trace) -> bytes:
    """As UVM was told it."""
    for record in trace.ioctls():
        if record.device is traces.Device.UVM and record.nr == 37 and record.buffers:
            return record.buffers[0].before[:16]
    return nv.card_uuid(0)


@pytest.mark.parametrize("bar1_bytes", [262144 * MIB, 256 * MIB], ids=["large", "small"])
@pytest.mark.parametrize("path", PROGRAMS, ids=[path.name.split(".")[0] for path in PROGRAMS])
def test_nothing_that_a_recorded_program_asks_for_is_refused(path: Path, bar1_bytes: int) -> None:
    trace = traces.load(path)
    replay = Replay(trace, bar1_bytes)
    for record in trace.records:
        replay.play(record)
    assert not replay.refused
    if not path.name.startswith(("smi", "nvml")):
        processes = len({record.pid for record in trace.ioctls()})
        assert 2 * MIB <= replay.mapped_bytes <= 2 * MIB * processes  # by a context of each
    for place in list(replay.files):
        replay.forget(place)
    assert replay.tenant.idle()
