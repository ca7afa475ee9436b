# SPDX-License-Identifier: MIT
"""
Every committed trace, replayed through the decoder and the ledger as one container's doing.

Each ioctl goes through ``pre`` when it began and through ``post`` when it returned, with the bytes
that the real driver left, in the order of time: calls of several threads and processes overlap as
they did. The charge is compared with the free memory that the driver itself reported.
"""

from __future__ import annotations

import errno
import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pycgpu.core import (
    Abi,
    Call,
    DecodeError,
    Device,
    Request,
    Tenant,
    Topology,
    Verdict,
    args_size,
    lib,
    unwrap,
)
from tests.traces import format as traces
from tests.traces.format import Role

TRACES = sorted((Path(__file__).parents[1] / "traces").glob("*.trace.xz"))
UUIDS = [bytes.fromhex(f"c69000005eed400080000000000000a{last}") for last in (5, 6)]
MIB = 1 << 20
LIMIT = 140 << 30
# What a context may take that no ioctl shows: 8.8 MiB were seen for the first one on a card.
UNSEEN_MIB = 16
DEVICES = {
    traces.Device.CTL: Device.CTL, traces.Device.GPU: Device.GPU, traces.Device.UVM: Device.UVM,
}  # fmt: skip
XFER = 211
# By escape and class, what rmprobe asks for as root and what may reach all of video memory:
# NV01_MEMORY_LOCAL_PRIVILEGED, and NV01_MEMORY_LOCAL_USER by the old escape. And all that a client
# of MPS asks for that no other program does: MPS_COMPUTE.
FORBIDDEN = {(0x2B, 0x3F), (0x27, 0x40), (0x2B, 0x900E)}
#: Once by each of the three clients.
REFUSED = {"mps": 3}
#: Recorded with two cards.
TWO_CARDS = {"nccl"}
# Where UVM keeps chunks of managed memory after it is gone, the driver has more than was charged.
MANAGED = {"managed-heap"}


@dataclass(eq=False)
class File:
    """An open file description: ``references`` descriptors of all processes."""

    tenant: Tenant
    number: int
    references: int = 0


@dataclass
class Replay:
    """One trace on its way through the core."""

    trace: traces.Trace
    bar1_bytes: int
    complaints: list[str] = field(default_factory=list)
    # MiB that the driver's free memory fell and nobody was charged for, and for whom it may be
    unseen: list[float] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    forbidden: frozenset[tuple[int, int]] = frozenset(FORBIDDEN)

    def __post_init__(self) -> None:
        topology = Topology()
        cards = range(2 if self.trace.meta["name"] in TWO_CARDS else 1)
        for card in cards:
            bar1_bytes = self.bar1_bytes
            topology.add(card, uuid=UUIDS[card], total_bytes=141 << 30, bar1_bytes=bar1_bytes)
        self.tenant = Tenant(topology)
        for card in cards:
            self.tenant.give(card, LIMIT)
        self.abi = Abi(self.trace.meta["driver"])
        self.tables: dict[int, dict[int, File]] = {}
        # by whom, and what; under way
        self.sent: list[tuple[int, File]] = []
        self.first_free_kib = 0
        self.calls = 0
        # ended, but the driver may not have let go of what they had
        self.ended: list[int] = []
        self.inherited = self.used_unopened()

    def tenant_of(self, pid: int) -> Tenant:
        """The container that the process is in."""
        return self.tenant

    def used_unopened(self) -> dict[int, set[int]]:
        """Of each process the descriptors that it has been started with, by exec too."""
        found: dict[int, set[int]] = {}
        own: dict[int, set[int]] = {}
        for r in self.trace.records:
            mine = own.setdefault(r.pid, set())
            match r:
                case traces.Open() | traces.RecvFd():
                    mine.add(r.fd)
                case _ if r.fd >= 0 and r.fd not in mine:
                    found.setdefault(r.pid, set()).add(r.fd)
            if isinstance(r, traces.Dup):
                mine.add(r.new_fd)
        return found

    def moments(self) -> Iterator[tuple[int, int, Callable[[], None]]]:
        """What happened, each at its time; an ioctl happens twice."""
        order = itertools.count()
        last: dict[int, int] = {}
        for r in self.trace.records:
            last[r.pid] = max(last.get(r.pid, 0), r.t_ns + r.dur_ns)
            end = r.t_ns + r.dur_ns
            match r:
                case traces.Ioctl():
                    flight: list[Call] = []
                    yield r.t_ns, next(order), lambda r=r, f=flight: self.begin(r, f)  # type: ignore[misc]  # bound in this round of the loop
                    yield end, next(order), lambda r=r, f=flight: self.finish(r, f)  # type: ignore[misc]  # bound in this round of the loop
                # a closed number is another thread's before the call returns
                case traces.Process() | traces.Mmap() | traces.SendFd() | traces.Close():
                    yield r.t_ns, next(order), lambda r=r: self.note(r)  # type: ignore[misc]  # bound in this round of the loop
                case _:
                    yield end, next(order), lambda r=r: self.note(r)  # type: ignore[misc]  # bound in this round of the loop
        # An Exit record comes before the tracer's last words, and a killed process has none.
        # The kernel closes its files some time later: see compare().
        for pid, end in last.items():
            yield end, next(order), lambda pid=pid: self.ended.append(pid)  # type: ignore[misc]  # bound in this round of the loop

    def run(self) -> None:
        moments = list(self.moments())
        heapq.heapify(moments)
        while moments:
            heapq.heappop(moments)[2]()
        for pid in list(self.ended):
            self.bury(pid)

    def bury(self, pid: int) -> None:
        self.ended.remove(pid)
        table = self.tables.get(pid, {})
        for fd in list(table):
            self.close(table, fd)

    # ---------------------------------------------------------------- files

    def hold(self, table: dict[int, File], fd: int, file: File) -> None:
        self.close(table, fd)
        file.references += 1
        table[fd] = file

    def close(self, table: dict[int, File], fd: int) -> None:
        file = table.pop(fd, None)
        if file:
            file.references -= 1
            if not file.references:
                file.tenant.close(file.number)

    def note(self, r: traces.Record) -> None:
        table = self.tables.setdefault(r.pid, {})
        match r:
            case traces.Process():
                for fd, file in self.tables.get(r.ppid, {}).items():
                    if r.forked or fd in self.inherited.get(r.pid, ()):
                        self.hold(table, fd, file)
            case traces.Open(errno=0) if r.device in DEVICES:
                tenant = self.tenant_of(r.pid)
                number = tenant.open(DEVICES[r.device], r.minor, r.pid)
                self.hold(table, r.fd, File(tenant, number))
            case traces.Close():
                self.close(table, r.fd)
            case traces.Dup() if r.fd in table:
                self.hold(table, r.new_fd, table[r.fd])
            case traces.SendFd() if r.fd in table:
                self.sent.append((r.pid, table[r.fd]))
                table[r.fd].references += 1
            case traces.RecvFd() if self.sent:
                # two processes may send to each other at once
                others = [sent for sent in self.sent if sent[0] != r.pid]
                found = (others or self.sent)[0]
                self.sent.remove(found)
                file = found[1]
                self.hold(table, r.fd, file)
                file.references -= 1
            case traces.Mmap(errno=0) if r.fd in table and r.device is traces.Device.UVM:
                file = table[r.fd]
                if not file.tenant.mmap(file.number, r.address, r.length):
                    self.complaints.append(f"mmap of {r.length} bytes refused")
            case traces.Munmap(errno=0):
                for file in set(table.values()):
                    file.tenant.munmap(file.number, r.address, r.length)
            case traces.Heap(status=0):
                self.compare(r)

    def unseen_mib(self, r: traces.Heap) -> float:
        taken = (self.first_free_kib - r.free_kib) / 1024
        return taken - self.tenant.account(0).current_bytes / MIB

    def compare(self, r: traces.Heap) -> None:
        self.first_free_kib = self.first_free_kib or r.free_kib
        # less is taken than charged: of the processes that ended, those are gone that explain it
        held = self.tenant.processes(0)
        for pid in sorted(self.ended, key=lambda pid: -held.get(pid, 0)):
            missing = -self.unseen_mib(r)
            if missing > 1 and held.get(pid, 0) / MIB < missing + 2 * UNSEEN_MIB:
                self.bury(pid)
        unseen = self.unseen_mib(r)
        self.unseen.append(unseen)
        contexts = sum(1 for taken in self.tenant.processes(0).values() if taken)
        if unseen >= UNSEEN_MIB * max(contexts, 1):
            self.beyond.append(f"{unseen:.1f} MiB unseen at {traces.describe(r)}")

    # --------------------------------------------------------------- ioctls

    def begin(self, r: traces.Ioctl, flight: list[Call]) -> None:
        table = self.tables.setdefault(r.pid, {})
        if r.fd not in table or r.device not in DEVICES:
            return
        device, cmd = DEVICES[r.device], r.cmd
        arg = r.buffer(Role.ARG)
        nr = cmd if device is Device.UVM else cmd & 0xFF
        if not lib.cgpu_command_known(device, nr) and r.ret == 0:
            self.complaints.append(f"listed nowhere: {traces.describe(r)}")
        if not args_size(self.abi, device, cmd) or not arg:
            return
        try:
            if device is not Device.UVM and r.nr == XFER:
                cmd, _, _ = unwrap(arg.before)
                arg = r.buffer(Role.INNER)
                if not arg:
                    return
            nr = cmd if device is Device.UVM else cmd & 0xFF
            params, xlist = r.buffer(Role.PARAM), r.buffer(Role.LIST)
            request = Request(
                self.abi,
                device,
                nr,
                arg.before,
                params.before if params else None,
                xlist.before if xlist else None,
            )
        except DecodeError as error:
            if r.ret != -1 or r.errno != errno.EINVAL:
                self.complaints.append(f"{error}, but it does: {traces.describe(r)}")
            return
        self.calls += 1
        other = table.get(request.fd)
        call = table[r.fd].tenant.call(
            request, table[r.fd].number, r.pid, fd_file=other.number if other else 0
        )
        if call.pre() is Verdict.FORWARD:
            flight.append(call)
        elif (
            self.went_well(r, request)
            and call.status != 0
            and (request.nr, request.hClass) not in self.forbidden
        ):
            self.complaints.append(f"refused ({call.status}): {traces.describe(r)}")

    @staticmethod
    def went_well(r: traces.Ioctl, request: Request) -> bool:
        arg = r[Role.INNER if r.nr == XFER else Role.ARG]
        has_status = request.status_offset != lib.CGPU_NO_OFFSET
        return r.ret == 0 and not (has_status and arg.u32(request.status_offset))

    def finish(self, r: traces.Ioctl, flight: list[Call]) -> None:
        if not flight:
            return
        call = flight[0]
        arg = r[Role.INNER if r.nr == XFER else Role.ARG]
        call.set_args(arg.after)
        for role, put in ((Role.PARAM, call.set_params), (Role.LIST, call.set_list)):
            if found := r.buffer(role):
                put(found.after)
        verdict = call.post(r.ret if r.ret == 0 else -r.errno)
        if verdict is not Verdict.DONE:
            self.complaints.append(f"{verdict.name}: {traces.describe(r)}")
            while verdict is Verdict.UNDO and call.undone():
                pass


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The differences seen, printed when all traces have been replayed."""
    rows = [
        "trace, BAR1                calls   most charged  unseen by the ledger, MiB: least … most"
    ]
    yield rows
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(rows))


# an H200's, and the smallest of data centre cards
@pytest.mark.parametrize("bar1_bytes", [256 << 30, 256 << 20], ids=["large", "small"])
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name.removesuffix(".trace.xz"))
def test_an_honest_program_is_never_refused_and_its_charge_is_what_the_driver_took(
    path: Any, bar1_bytes: int, table: Any, request: pytest.FixtureRequest
) -> None:
    replay = Replay(traces.load(path), bar1_bytes)
    replay.run()
    name = path.name.removesuffix(".trace.xz")
    span = f"{min(replay.unseen):8.1f} … {max(replay.unseen):.1f}" if replay.unseen else "    –"
    table.append(
        f"{request.node.callspec.id:24} {replay.calls:7} "
        f"{replay.tenant.account(0).peak_bytes / MIB:14.1f} {span}"
    )

    assert not replay.complaints
    # rmprobe asks for what nobody gives, to see what the driver answers
    assert replay.tenant.account(0).refused == REFUSED.get(name, 0) or name.startswith("rmprobe")
    if not name.startswith(("smi", "nvml", "getters", "rmprobe")):
        # by a context of each process; one that is checkpointed has another for that
        contexts = len({record.pid for record in replay.trace.ioctls()})
        contexts += name.startswith("checkpoint")
        mapped = replay.tenant.raw.ledger.account[lib.CGPU_BAR1]
        assert 2 * MIB <= mapped.peak_bytes <= 2 * MIB * contexts
        assert not mapped.current_bytes
    assert replay.tenant.idle()
    assert replay.tenant.raw.objects.table.used == 0
    assert not replay.beyond or name in MANAGED


class GroupReplay(Replay):
    """The server in a container that leads a group, and each client in a member of its own."""

    forbidden = frozenset(FORBIDDEN - {(0x2B, 0x900E)})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tenant.lead()
        self.members: dict[int, Tenant] = {}

    def tenant_of(self, pid: int) -> Tenant:
        if pid not in CLIENTS:
            return self.tenant
        if pid not in self.members:
            self.members[pid] = Tenant(self.tenant.topology)
            self.members[pid].give(0, LIMIT)
            self.members[pid].join(self.tenant)
        return self.members[pid]


#: The programs that `nvidia-cuda-mps-server` serves in mps.trace.xz.
CLIENTS = (7350, 7351, 7371)


def test_an_mps_server_and_its_clients_are_refused_nothing_in_a_group_of_containers() -> None:
    replay = GroupReplay(traces.load(TRACES[0].with_name("mps.trace.xz")), 256 << 30)
    replay.run()
    assert not replay.complaints
    assert sorted(replay.members) == sorted(CLIENTS)
    peaks = {pid: one.account(0).peak_bytes for pid, one in replay.members.items()}
    for one in (replay.tenant, *replay.members.values()):
        assert one.account(0).refused == 0
        assert one.idle()
        assert one.raw.objects.table.used == 0
    # what the server has beside its clients; `ladder` has 11 GiB for itself, nobody else's
    assert 60 * MIB < replay.tenant.account(0).peak_bytes < 80 * MIB
    assert min(peaks.values()) > 400 * MIB
    assert peaks[7371] > 10 << 30 > 3 * max(peaks[7350], peaks[7351])


def test_the_same_clients_are_refused_where_nothing_says_that_they_belong_together() -> None:
    replay = GroupReplay(traces.load(TRACES[0].with_name("mps.trace.xz")), 256 << 30)
    for pid in CLIENTS:
        replay.tenant_of(pid).join(None)
    replay.run()
    assert any("0xc01c4634" in line for line in replay.complaints), "DUP_OBJECT"
    assert all(one.account(0).refused for one in replay.members.values())
