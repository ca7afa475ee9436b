# SPDX-License-Identifier: MIT
"""Traces of NVIDIA ioctl traffic: the file format, its reader and writer.

A ``*.trace.xz`` file is an xz stream of::

    "NVTRACE1"  u32 n  n bytes of JSON (the trace's description)  record*

and a tracer's ``*.raw`` file is ``record*`` alone. Numbers are little-endian. A record is::

    u32 length of what follows   u8 type   u8 device   u16 minor   u32 pid   u32 tid
    u64 t_ns (start, CLOCK_MONOTONIC, in a merged trace from its first record)
    u32 dur_ns   i32 fd   body

The bodies are the dataclasses below, in their order of fields; strings run to the record's end.
An ioctl's body is ``u32 cmd, i32 ret, i32 errno, u64 arg, u32 n``, n times ``u8 role, u8 guessed,
u64 address, u32 length, u32 after_length``, then each buffer's bytes before the call and, unless
after_length is 0xffffffff (the call changed nothing), after it.

Shell: ``python3 format.py FILE...`` prints one line a record.
"""

from __future__ import annotations

import enum
import json
import lzma
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replace_field
from pathlib import Path
from typing import Any, ClassVar

MAGIC = b"NVTRACE1"
_HEAD = struct.Struct("<IBBHIIQIi")
_SAME = 0xFFFFFFFF


class Device(enum.IntEnum):
    """The kind of file a descriptor refers to."""

    NONE = 0
    CTL = 1
    GPU = 2
    UVM = 3
    UVM_TOOLS = 4
    MODESET = 5
    CAPS = 6
    OTHER = 7


class Role(enum.IntEnum):
    """What a buffer of an ioctl is.

    ARG: the argument. PARAM: RM_CONTROL's params, RM_ALLOC's pAllocParms. LIST: a list behind a
    pointer in PARAM (FB_GET_INFO and its like). INNER: the argument that XFER_CMD wraps.
    RIGHTS: RM_ALLOC's pRightsRequested.
    """

    ARG = 0
    PARAM = 1
    LIST = 2
    INNER = 3
    RIGHTS = 4


class TraceError(ValueError):
    """A file is not a trace or is cut short; the message names it."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """User memory of one ioctl. ``guessed``: the length is the tracer's guess, not the caller's."""

    role: Role
    guessed: bool
    address: int
    before: bytes
    after: bytes

    def u32(self, offset: int, *, after: bool = True) -> int:
        """The u32 at ``offset``, by default as the driver left it."""
        return int.from_bytes((self.after if after else self.before)[offset : offset + 4], "little")

    def u64(self, offset: int, *, after: bool = True) -> int:
        """The u64 at ``offset``, by default as the driver left it."""
        return int.from_bytes((self.after if after else self.before)[offset : offset + 8], "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all records carry. ``device`` and ``minor`` describe ``fd`` (-1: none)."""

    TYPE: ClassVar[int]
    pid: int
    tid: int
    t_ns: int
    dur_ns: int = 0
    fd: int = -1
    device: Device = Device.NONE
    minor: int = 0

    def body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def parse(cls, head: dict[str, Any], body: bytes) -> Record:
        raise NotImplementedError


class _Fixed(Record):
    """Body of numbers in ``LAYOUT``, named by ``NUMBERS``, then an optional string ``TEXT``."""

    LAYOUT: ClassVar[struct.Struct]
    NUMBERS: ClassVar[tuple[str, ...]]
    TEXT: ClassVar[str | None] = None

    def body(self) -> bytes:
        out = self.LAYOUT.pack(*(getattr(self, name) for name in self.NUMBERS))
        if self.TEXT:
            out += getattr(self, self.TEXT).encode("utf-8", "surrogateescape")
        return out

    @classmethod
    def parse(cls, head: dict[str, Any], body: bytes) -> Record:
        values = dict(zip(cls.NUMBERS, cls.LAYOUT.unpack_from(body), strict=True))
        rest = body[cls.LAYOUT.size :]
        if cls.TEXT:
            values[cls.TEXT] = rest.decode("utf-8", "surrogateescape")
        elif rest:
            raise TraceError(f"{len(rest)} bytes too many in a {cls.__name__} record")
        return cls(**head, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(_Fixed):
    """A process begins to be traced: ``forked`` 0 after exec, 1 after fork (descriptors and
    mappings inherited from ``ppid``). ``argv`` has NUL between arguments."""

    TYPE = 1
    LAYOUT = struct.Struct("<IB")
    NUMBERS = ("ppid", "forked")
    TEXT = "argv"
    ppid: int
    forked: int
    argv: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(_Fixed):
    """open() of a device file; ``fd`` is the result."""

    TYPE = 2
    LAYOUT = struct.Struct("<iii")
    NUMBERS = ("flags", "ret", "errno")
    TEXT = "path"
    flags: int
    ret: int
    errno: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(_Fixed):
    TYPE = 3
    LAYOUT = struct.Struct("<ii")
    NUMBERS = ("ret", "errno")
    ret: int
    errno: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dup(_Fixed):
    """dup, dup2, dup3 or fcntl(F_DUPFD) made ``new_fd`` of ``fd``."""

    TYPE = 4
    LAYOUT = struct.Struct("<i")
    NUMBERS = ("new_fd",)
    new_fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ioctl(Record):
    """One ioctl. ``cmd``: the full 32-bit command; ``arg``: the third argument."""

    TYPE = 5
    cmd: int
    ret: int
    errno: int
    arg: int
    buffers: tuple[Buffer, ...] = field(default=())

    @property
    def nr(self) -> int:
        """The number inside the command (UVM: the command itself)."""
        return self.cmd if self.device in (Device.UVM, Device.UVM_TOOLS) else self.cmd & 0xFF

    def buffer(self, role: Role) -> Buffer | None:
        """The first buffer of that role, or None."""
        return next((b for b in self.buffers if b.role is role), None)

    def __getitem__(self, role: Role) -> Buffer:
        """The first buffer of that role; TraceError if the call has none."""
        if (found := self.buffer(role)) is None:
            raise TraceError(f"no {role.name} in: {describe(self)}")
        return found

    def body(self) -> bytes:
        out = [struct.pack("<IiiQI", self.cmd, self.ret, self.errno, self.arg, len(self.buffers))]
        for b in self.buffers:
            same = b.before == b.after
            out.append(
                struct.pack(
                    "<BBQII", b.role, b.guessed, b.address, len(b.before),
                    _SAME if same else len(b.after),
                )
            )  # fmt: skip
        for b in self.buffers:
            out.append(b.before)
            if b.before != b.after:
                out.append(b.after)
        return b"".join(out)

    @classmethod
    def parse(cls, head: dict[str, Any], body: bytes) -> Ioctl:
        cmd, ret, errno, arg, n = struct.unpack_from("<IiiQI", body)
        at, data = 24, 24 + 18 * n
        buffers = []
        for _ in range(n):
            role, guessed, address, length, after_length = struct.unpack_from("<BBQII", body, at)
            at += 18
            before = after = body[data : data + length]
            data += length
            if after_length != _SAME:
                after = body[data : data + after_length]
                data += after_length
            buffers.append(Buffer(Role(role), bool(guessed), address, before, after))
        if data != len(body):
            raise TraceError(f"an ioctl record holds {len(body)} bytes and announces {data}")
        return cls(**head, cmd=cmd, ret=ret, errno=errno, arg=arg, buffers=tuple(buffers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mmap(_Fixed):
    """mmap of a device file, or (``fd`` -1) a fixed mapping laid over one."""

    TYPE = 6
    LAYOUT = struct.Struct("<QQiiQQi")
    NUMBERS = ("want", "length", "prot", "flags", "offset", "address", "errno")
    want: int
    length: int
    prot: int
    flags: int
    offset: int
    address: int
    errno: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Munmap(_Fixed):
    """munmap of a range that touches a mapping of a device file."""

    TYPE = 7
    LAYOUT = struct.Struct("<QQii")
    NUMBERS = ("address", "length", "ret", "errno")
    address: int
    length: int
    ret: int
    errno: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap(_Fixed):
    """The driver's own free memory (FB_GET_INFO_V2, HEAP_FREE), asked by the tracer after the
    record before it; written when it moved, at marks and at the process's end."""

    TYPE = 8
    LAYOUT = struct.Struct("<II")
    NUMBERS = ("status", "free_kib")
    status: int
    free_kib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(_Fixed):
    """A line that the program wrote into its trace."""

    TYPE = 9
    LAYOUT = struct.Struct("<")
    NUMBERS = ()
    TEXT = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFd(_Fixed):
    """``fd`` is about to be sent through ``socket`` (SCM_RIGHTS)."""

    TYPE = 10
    LAYOUT = struct.Struct("<i")
    NUMBERS = ("socket",)
    socket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecvFd(_Fixed):
    """``fd`` arrived through ``socket``."""

    TYPE = 11
    LAYOUT = struct.Struct("<i")
    NUMBERS = ("socket",)
    socket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCall(Record):
    """Another look at the file system: ``op`` is open, fopen, dir, access, stat or readlink."""

    TYPE = 12
    ret: int
    errno: int
    op: str
    path: str

    def body(self) -> bytes:
        op = self.op.encode()
        path = self.path.encode("utf-8", "surrogateescape")
        return struct.pack("<iiB", self.ret, self.errno, len(op)) + op + path

    @classmethod
    def parse(cls, head: dict[str, Any], body: bytes) -> PathCall:
        ret, errno, n = struct.unpack_from("<iiB", body)
        path = body[9 + n :].decode("utf-8", "surrogateescape")
        return cls(**head, ret=ret, errno=errno, op=body[9 : 9 + n].decode(), path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(_Fixed):
    """The process ends by exit(); one that is killed or calls _exit() has no such record."""

    TYPE = 13
    LAYOUT = struct.Struct("<")
    NUMBERS = ()


_TYPES: dict[int, type[Record]] = {
    c.TYPE: c
    for c in (
        Process, Open, Close, Dup, Ioctl, Mmap, Munmap, Heap, Mark, SendFd, RecvFd, PathCall, Exit,
    )
}  # fmt: skip


def encode(record: Record) -> bytes:
    """The bytes of one record."""
    body = record.body()
    return (
        _HEAD.pack(
            _HEAD.size - 4 + len(body), record.TYPE, record.device, record.minor, record.pid,
            record.tid, record.t_ns, record.dur_ns, record.fd,
        )
        + body
    )  # fmt: skip


def decode(data: bytes, name: str = "trace") -> Iterator[Record]:
    """The records in ``data``; TraceError (with ``name``) where they break off."""
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise TraceError(f"{name}: cut short at byte {at}")
        length, kind, device, minor, pid, tid, t_ns, dur_ns, fd = _HEAD.unpack_from(data, at)
        end = at + 4 + length
        if length < _HEAD.size - 4 or end > len(data):
            raise TraceError(f"{name}: cut short at byte {at}")
        if kind not in _TYPES:
            raise TraceError(f"{name}: record of unknown type {kind} at byte {at}")
        head = {"pid": pid, "tid": tid, "t_ns": t_ns, "dur_ns": dur_ns, "fd": fd,
                "device": Device(device), "minor": minor}  # fmt: skip
        try:
            yield _TYPES[kind].parse(head, data[at + _HEAD.size : end])
        except (struct.error, ValueError) as error:
            raise TraceError(f"{name}: bad record at byte {at}: {error}") from error
        at = end


@dataclass(frozen=True, slots=True)
class Trace:
    """A description (keys: see README.md) and the records in order of start."""

    meta: dict[str, Any]
    records: tuple[Record, ...]

    def ioctls(self) -> Iterator[Ioctl]:
        return (r for r in self.records if isinstance(r, Ioctl))


def load(path: str | Path) -> Trace:
    """Read a ``*.trace.xz`` file."""
    try:
        data = lzma.decompress(Path(path).read_bytes())
    except (lzma.LZMAError, EOFError) as error:
        raise TraceError(f"{path}: not an xz file or cut short ({error})") from error
    if data[:8] != MAGIC or len(data) < 12:
        raise TraceError(f"{path}: not a trace (no {MAGIC.decode()} at its start)")
    end = 12 + int.from_bytes(data[8:12], "little")
    return Trace(json.loads(data[12:end]), tuple(decode(data[end:], str(path))))


def save(path: str | Path, trace: Trace) -> None:
    """Write a ``*.trace.xz`` file."""
    meta = json.dumps(trace.meta, sort_keys=True).encode()
    data = MAGIC + len(meta).to_bytes(4, "little") + meta + b"".join(map(encode, trace.records))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]
    Path(path).write_bytes(lzma.compress(data, filters=filters))


def merge(raw: Iterable[str | Path], meta: dict[str, Any], replace: dict[bytes, bytes]) -> Trace:
    """One trace of the raw files of several processes.

    Processes that never touched a device are dropped, time starts at 0, and each key of ``replace``
    (a card's UUID, say) becomes its value, of the same length, everywhere.
    """
    if any(len(a) != len(b) for a, b in replace.items()):
        raise ValueError("replacements must keep the length")
    records: list[Record] = []
    for path in raw:
        data = Path(path).read_bytes()
        for old, new in replace.items():
            data = data.replace(old, new)
        one = list(decode(data, str(path)))
        if any(isinstance(r, (Open, Ioctl, Close, RecvFd)) for r in one):
            records += one
    records.sort(key=lambda r: r.t_ns)
    start = records[0].t_ns if records else 0
    text = json.dumps(meta)
    for old, new in replace.items():
        text = text.replace(old.decode("latin-1"), new.decode("latin-1"))
    moved = tuple(replace_field(r, t_ns=r.t_ns - start) for r in records)
    return Trace(json.loads(text), moved)


def describe(record: Record) -> str:
    """One line about a record, for people."""
    where = f"{record.device.name.lower()}{record.minor if record.device is Device.GPU else ''}"
    line = f"{record.t_ns / 1e9:10.6f} {record.pid} {record.fd:4d} {where:5s} "
    line += type(record).__name__.upper()
    if isinstance(record, Ioctl):
        line += f" {record.cmd:#x} ret {record.ret} {record.dur_ns / 1e3:.1f}us"
        for b in record.buffers:
            text = f" {b.role.name.lower()}{'?' if b.guessed else ''}[{len(b.before)}]="
            text += b.before[:64].hex()
            if b.after != b.before:
                text += f">{b.after[:64].hex()}"
            line += text
        return line
    common = {"pid", "tid", "t_ns", "dur_ns", "fd", "device", "minor"}
    for name in type(record).__slots__:
        if name not in common:
            value = getattr(record, name)
            line += f" {name}={value:#x}" if isinstance(value, int) else f" {name}={value!r}"
    return line


def main() -> None:
    for name in sys.argv[1:]:
        trace = load(name)
        print(json.dumps(trace.meta, indent=1))
        for record in trace.records:
            print(describe(record))


if __name__ == "__main__":
    main()
