# SPDX-License-Identifier: MIT
"""
The C core as Python objects: decoded ioctls, and the ledger of one container.

This layer is thin on purpose: ``kmod/core``, which the kernel also runs, takes every decision.
Sizes are bytes; an address is a number; a card is its minor, the N of ``/dev/nvidiaN``.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pycgpu._core import ffi as ffi
from pycgpu._core import lib as lib

NO_CARD: int = lib.CGPU_NO_CARD
NO_OFFSET: int = lib.CGPU_NO_OFFSET
MAX_CARDS: int = lib.CGPU_MAX_CARDS
# The bound of a container's tables, in slots.
CAPACITY_MAX = 1 << 20


class Device(enum.IntEnum):
    """The kind of file that an ioctl came through."""

    CTL = lib.CGPU_DEVICE_CTL
    GPU = lib.CGPU_DEVICE_GPU
    UVM = lib.CGPU_DEVICE_UVM
    DMABUF = lib.CGPU_DEVICE_DMABUF


class Verdict(enum.IntEnum):
    """What to do with a call. UNDO and KILL come from ``Call.post`` alone."""

    FORWARD = lib.CGPU_FORWARD
    ANSWER = lib.CGPU_ANSWER
    DONE = lib.CGPU_DONE
    UNDO = lib.CGPU_UNDO
    KILL = lib.CGPU_KILL


class DecodeError(ValueError):
    """The driver refuses an argument of this size with EINVAL, and so does the core."""


class Abi:
    """The layouts of one driver branch.

    ``branch``: 535, 550, 570, 580, 590, 595, 610, 615 or 620. ``compared``: checked against
    NVIDIA's own headers; if not, docs/drivers.md names the source of the figures.

    ``version`` is the driver's, such as ``550.163.01``. ValueError: not a version, or a branch
    that is not known; with ``newest``, one that is newer than all known has the newest layouts.
    """

    def __init__(self, version: str, *, newest: bool = False) -> None:
        self.raw = ffi.new("struct cgpu_abi *")
        err = lib.cgpu_abi_find(version.encode(), newest, self.raw)
        if err == -errno.EINVAL:
            raise ValueError(f"{version!r} is not a driver version such as 550.163.01")
        if err:
            raise ValueError(f"driver {version}: a branch that is not known")
        self.branch: int = self.raw.branch
        self.compared: bool = self.raw.compared


class Request:
    """One decoded ioctl. The fields are those of ``struct cgpu_request``, by their names there.

    ``args``, ``params`` and ``xlist`` hold bytes. The argument's pointer leads to ``params``, and
    the parameters' pointer to ``xlist``; each may be None.
    """

    def __init__(
        self,
        abi: Abi,
        device: Device,
        nr: int,
        args: bytes,
        params: bytes | None = None,
        xlist: bytes | None = None,
    ) -> None:
        self.abi = abi
        self.raw = ffi.new("struct cgpu_request *")
        self.args = ffi.new("uint8_t[]", args) if args else ffi.NULL
        self.params = self.before = ffi.NULL
        self.xlist = ffi.NULL
        if lib.cgpu_decode(abi.raw, device, nr, self.args, len(args), self.raw):
            raise DecodeError(f"{device.name} command {nr}: the driver takes no {len(args)} bytes")
        wanted = self.raw.params_size
        if wanted:
            held = (params or b"")[:wanted].ljust(wanted, b"\0")
            self.params = ffi.new("uint8_t[]", held)
            self.before = ffi.new("uint8_t[]", held)
            lib.cgpu_decode_params(abi.raw, self.params, wanted, self.raw)
        if self.raw.list_size:
            held = (xlist or b"")[: self.raw.list_size].ljust(self.raw.list_size, b"\0")
            self.xlist = ffi.new("uint8_t[]", held)

    def __getattr__(self, name: str) -> int:
        if name == "raw":
            raise AttributeError(name)
        offset: int = getattr(self.raw, name)
        return offset

    @property
    def gpu_uuid(self) -> bytes:
        """The card's UUID, 16 bytes."""
        return bytes(ffi.buffer(self.raw.gpu_uuid))

    @property
    def depends(self) -> tuple[int, int]:
        """The handles whose free also frees this object; 0: none."""
        return tuple(self.raw.hDepend)


def decode(abi: Abi, device: Device, nr: int, args: bytes, params: bytes | None = None) -> Request:
    """Decode one ioctl: ``nr`` is NVIDIA's number (_IOC_NR), or the bare UVM command.

    DecodeError: the driver refuses this size for this command.
    """
    return Request(abi, device, nr, args, params)


def args_size(abi: Abi, device: Device, cmd: int) -> int:
    """Bytes of the argument to copy for the full command ``cmd``; 0: none of our business."""
    return int(lib.cgpu_args_size(abi.raw, device, cmd))


def unwrap(args: bytes) -> tuple[int, int, int]:
    """Return (command, size in bytes, address) of the call that NV_ESC_IOCTL_XFER_CMD wraps.

    DecodeError: the driver refuses it.
    """
    cmd = ffi.new("uint32_t *")
    size = ffi.new("uint32_t *")
    pointer = ffi.new("uint64_t *")
    if lib.cgpu_decode_xfer(ffi.from_buffer(args), len(args), cmd, size, pointer):
        raise DecodeError("the driver refuses this wrapped command")
    return cmd[0], size[0], pointer[0]


def round_memory(size_bytes: int, attr: int = 0, attr2: int = 0) -> int:
    """Video memory that the driver takes at most for a request of ``size_bytes``."""
    return int(lib.cgpu_memory_round(size_bytes, attr, attr2))


def policy_shares(
    policy: int, max_inst: int, members: Sequence[Mapping[str, int | None]], by_hand: bool = False
) -> list[tuple[float, float, float]]:
    """Return what a policy gives the containers of a card: (share, floor, ceiling), parts of it.

    ``members`` have ``weight``, ``quota``, ``quota_min``, ``priority``, ``open``, ``active``, and
    ``policy``, the one that the container asked for (None: none), and ``weight_given``, whether it
    asked for its weight. ValueError: a number that the core rejects.

    Args:
        by_hand: an operator set the card's policy, not a container's request.
    """
    card = ffi.new("struct cgpu_card *", {"max_inst": max_inst, "policy_by_hand": by_hand})
    given = ffi.new("struct cgpu_policy_member[]", len(members))
    grant = ffi.new("struct cgpu_grant *")
    for index, one in enumerate(members):
        for field in ("weight", "quota", "quota_min", "priority"):
            setattr(grant, field, one[field])
        grant.weight_given = bool(one.get("weight_given"))
        asked = one.get("policy")
        grant.policy_hint = lib.CGPU_POLICY_END if asked is None else asked
        given[index] = lib.cgpu_grant_member(card, grant)
        given[index].open, given[index].active = bool(one["open"]), bool(one["active"])
    shares = ffi.new("struct cgpu_policy_share[]", max(1, len(members)))
    error = lib.cgpu_policy_shares(policy, max_inst, given, len(members), shares)
    if error:
        raise ValueError(f"policy {policy}: {errno.errorcode.get(-error, -error)}")
    return [
        tuple(ppm / lib.CGPU_PPM for ppm in (one.share_ppm, one.floor_ppm, one.ceiling_ppm))
        for one in list(shares)[: len(members)]
    ]


class Topology:
    """The cards of a host."""

    def __init__(self) -> None:
        self.raw = ffi.new("struct cgpu_topology *")

    def add(
        self,
        minor: int,
        *,
        uuid: bytes,
        device_instance: int | None = None,
        gpu_id: int = 0,
        total_bytes: int = 0,
        reserved_bytes: int = 0,
        bar1_bytes: int = 0,
    ) -> None:
        """Add a card; ``uuid`` is 16 bytes, ``device_instance`` the minor unless the driver says
        otherwise."""
        gpu = self.raw.gpu[minor]
        gpu.present = True
        gpu.gpu_id = gpu_id
        gpu.device_instance = minor if device_instance is None else device_instance
        ffi.memmove(gpu.uuid, uuid, 16)
        gpu.total_bytes = total_bytes
        gpu.reserved_bytes = reserved_bytes
        gpu.bar1_bytes = bar1_bytes


class Account(NamedTuple):
    """A container on one card; bytes. ``max_bytes`` is None without a limit."""

    max_bytes: int | None
    current_bytes: int
    peak_bytes: int
    oom: int
    refused: int


class Tenant:
    """All that the core keeps of one container. Not for use from two threads at once."""

    def __init__(self, topology: Topology, capacity_max: int = CAPACITY_MAX) -> None:
        self.topology = topology
        self.raw = ffi.new("struct cgpu_tenant *")
        self.leader: Tenant | None = None
        self._storage: dict[int, object] = {}
        seed = int.from_bytes(os.urandom(8), "little")
        lib.cgpu_tenant_init(self.raw, capacity_max, seed)
        self.grow()

    def grow(self) -> None:
        """Give every table the room that the next call may need."""
        capacity = ffi.new("uint32_t *")
        for table in range(lib.CGPU_TABLE_COUNT):
            while size := lib.cgpu_tenant_wants(self.raw, table, capacity):
                storage = ffi.new("uint8_t[]", size)
                lib.cgpu_tenant_grow(self.raw, table, storage, capacity[0])
                self._storage[table] = storage

    def give(
        self,
        card: int,
        max_bytes: int | None = None,
        *,
        uvm_disable: bool = False,
        oom_kill: bool = False,
        slices_owned: bool = False,
    ) -> None:
        """Let the container use ``card``, with ``max_bytes`` of its memory or without a limit."""
        account = self.raw.ledger.account[card]
        account.present = True
        account.unlimited = max_bytes is None
        account.max_bytes = max_bytes or 0
        account.uvm_disable = uvm_disable
        account.oom_kill = oom_kill
        account.slices_owned = slices_owned

    def lead(self) -> None:
        """The container runs the MPS server of a group."""
        self.raw.role = lib.CGPU_ROLE_LEADER

    def join(self, leader: Tenant | None) -> None:
        """Make the container a member of ``leader``'s group; None: of no group."""
        self.leader = leader
        self.raw.role = lib.CGPU_ROLE_MEMBER if leader else lib.CGPU_ROLE_ALONE
        self.inherit()

    def inherit(self) -> None:
        """Let the container set timeslices of groups that the leader no longer has."""
        objects = ffi.addressof(self.leader.raw, "objects") if self.leader else ffi.NULL
        lib.cgpu_object_inherit(ffi.addressof(self.raw, "objects"), objects)

    def account(self, card: int) -> Account:
        """The container's account of ``card``."""
        raw = self.raw.ledger.account[card]
        return Account(
            None if raw.unlimited else raw.max_bytes,
            raw.current_bytes,
            raw.peak_bytes,
            raw.oom,
            raw.refused,
        )

    def open(self, device: Device, minor: int = 0, pid: int = 1) -> int:
        """A file was opened by ``pid``. Return its number. MemoryError: the tables are full."""
        self.grow()
        file = lib.cgpu_tenant_open(self.raw, device, minor, pid)
        if not file:
            raise MemoryError("the container has too many open files")
        return int(file)

    def close(self, file: int) -> None:
        """The driver has released the file."""
        lib.cgpu_tenant_close(self.raw, file)
        self.let_go()

    def let_go(self) -> None:
        """Of closed files that no call needs any more."""
        while lib.cgpu_tenant_close_step(self.raw):
            pass

    def mmap(self, file: int, address: int, length_bytes: int) -> bool:
        """Before the driver maps the UVM device. False: refused, answer ENOMEM."""
        self.grow()
        return not lib.cgpu_tenant_mmap(self.raw, file, address, length_bytes)

    @property
    def shortage(self) -> tuple[int, int] | None:
        """The card whose limit refused the last call or mmap, and the requested bytes."""
        raw = self.raw.ledger.shortage
        return None if raw.card == lib.CGPU_NO_CARD else (raw.card, raw.bytes)

    def munmap(self, file: int, address: int, length_bytes: int) -> None:
        """A mapping of the UVM device, or a part of it, is gone or was refused by the driver."""
        while lib.cgpu_tenant_munmap(self.raw, file, address, length_bytes):
            pass

    def call(
        self,
        request: Request,
        file: int,
        pid: int = 1,
        *,
        fd_file: int = 0,
    ) -> Call:
        """An ioctl of ``pid`` through ``file``; ``fd_file`` is the file that ``request.fd`` is."""
        return Call(self, request, file, pid, fd_file)

    def idle(self) -> bool:
        """True while nothing is open and nothing is charged."""
        return bool(lib.cgpu_tenant_idle(self.raw))

    def held(self, card: int) -> Iterator[list[tuple[int, int]]]:
        """The memory of processes on ``card``, in chunks: (host's pid, bytes)."""
        out, place = ffi.new("struct cgpu_process[]", lib.CGPU_HELD_STEP), ffi.new("uint32_t *")
        while True:
            count = lib.cgpu_tenant_held(self.raw, card, place, out)
            yield [(out[i].pid, out[i].bytes) for i in range(count)]
            if not place[0]:
                return

    def processes(self, card: int) -> dict[int, int]:
        """Bytes of ``card`` by process (host's number)."""
        out = ffi.new("struct cgpu_process[]", [one for step in self.held(card) for one in step])
        count = lib.cgpu_processes_sum(out, len(out))
        return {out[i].pid: out[i].bytes for i in range(count)}

    def gate(self, card: int, shut: bool, most: int = 64) -> list[tuple[int, int]]:
        """(client, channel) of those on ``card`` that are to be shut or opened now."""
        out = ffi.new("struct cgpu_handle[]", most)
        count = lib.cgpu_tenant_gate(self.raw, card, shut, out, most)
        return [(out[i].hClient, out[i].hObject) for i in range(count)]


class Call:
    """One ioctl on its way: ``pre``, the driver's own work on ``args`` and ``params``, ``post``."""

    def __init__(self, tenant: Tenant, request: Request, file: int, pid: int, fd_file: int) -> None:
        self.tenant = tenant
        self.request = request
        self._leader = tenant.leader
        self.raw = ffi.new("struct cgpu_call *")
        self.raw.req = request.raw[0]
        self.raw.args = request.args
        self.raw.params = request.params
        self.raw.before = request.before
        self.raw.list = request.xlist
        self.raw.file = file
        self.raw.pid = pid
        self.raw.fd_file = fd_file

    def pre(self) -> Verdict:
        """Decide: FORWARD, or ANSWER with the answer in ``args`` and ``error``."""
        self.tenant.grow()
        leader = self._leader = self.tenant.leader
        if leader and lib.cgpu_call_wants_leader(self.tenant.raw, self.raw):
            self.raw.leader = leader.raw
        verdict = lib.cgpu_call_pre(self.tenant.raw, self.tenant.topology.raw, self.raw)
        self._let_go()
        return Verdict(verdict)

    def post(self, result: int = 0) -> Verdict:
        """Settle after the driver: ``result`` is 0 or -errno of its ioctl."""
        verdict = lib.cgpu_call_post(self.tenant.raw, self.tenant.topology.raw, self.raw, result)
        self._let_go()
        return Verdict(verdict)

    def unanswered(self) -> Verdict:
        """In place of ``post``: the driver was asked, its answer did not arrive."""
        verdict = lib.cgpu_call_unanswered(self.tenant.raw, self.tenant.topology.raw, self.raw)
        self._let_go()
        return Verdict(verdict)

    def _let_go(self) -> None:
        self.tenant.let_go()
        if self._leader:
            self._leader.let_go()

    def occupied(self) -> int:
        """The serial of the object that already has the handle of the call's new one, or 0."""
        return int(lib.cgpu_call_occupied(self.tenant.raw, self.raw))

    def vacate(self, serial: int) -> bool:
        """The driver does not know it: true if it is forgotten."""
        return bool(lib.cgpu_call_vacate(self.tenant.raw, self.raw, serial))

    def undo_args(self) -> bytes:
        """NVOS00_PARAMETERS (16 bytes) for the driver, after post said UNDO."""
        args = ffi.new("uint8_t[16]")
        lib.cgpu_call_undo_args(self.raw, args)
        return bytes(args)

    def undone(self) -> bool:
        """The driver has freed the object of ``undo_args``; true: they name another one by now."""
        more = lib.cgpu_call_undone(self.tenant.raw, self.raw)
        self._let_go()
        return bool(more)

    @property
    def error(self) -> int:
        """After ANSWER: the ioctl's return value, 0 or -errno."""
        return int(self.raw.error)

    @property
    def kill(self) -> bool:
        """After ANSWER: the process asked for too much memory, and is to be killed for it."""
        return bool(self.raw.shortage.kill)

    @property
    def args(self) -> bytes:
        """The argument as it stands."""
        return bytes(ffi.buffer(self.raw.args, self.raw.req.args_size)) if self.raw.args else b""

    @property
    def params(self) -> bytes:
        """The parameters as they stand."""
        size = self.raw.req.params_size
        return bytes(ffi.buffer(self.raw.params, size)) if self.raw.params else b""

    @property
    def list_bytes(self) -> bytes:
        """The list behind the parameters as it stands."""
        size = self.raw.req.list_size
        return bytes(ffi.buffer(self.raw.list, size)) if self.raw.list else b""

    def set_args(self, data: bytes | bytearray) -> None:
        """What the driver left in the argument."""
        ffi.memmove(self.raw.args, data, min(len(data), self.raw.req.args_size))

    def set_params(self, data: bytes | bytearray) -> None:
        """What the driver left in the parameters."""
        if self.raw.params:
            ffi.memmove(self.raw.params, data, min(len(data), self.raw.req.params_size))

    def set_list(self, data: bytes | bytearray) -> None:
        """What the driver left in the list."""
        if self.raw.list:
            ffi.memmove(self.raw.list, data, min(len(data), self.raw.req.list_size))

    @property
    def status(self) -> int | None:
        """NVIDIA's status in the argument, None: the command has none."""
        offset = self.raw.req.status_offset
        return None if offset == NO_OFFSET else lib.cgpu_get32(self.raw.args, offset)
