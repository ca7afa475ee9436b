# SPDX-License-Identifier: MIT
"""The trace format, the tracer, and what the committed traces show of NVIDIA's driver."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces import format as traces
from tests.traces.format import Buffer, Device, Heap, Ioctl, Mark, Role, Trace, TraceError

HERE = Path(traces.__file__).parent
COMMITTED = sorted(HERE.glob("*.trace.xz"))
RM_FREE, RM_CONTROL, RM_ALLOC, RM_DUP_OBJECT = 0x29, 0x2A, 0x2B, 0x34
UVM_REGISTER_GPU, UVM_MAP_EXTERNAL_ALLOCATION = 37, 33
NV01_MEMORY_LOCAL_USER = 0x40
FB_GET_INFO, FB_GET_INFO_V2 = 0x20801301, 0x20801303
KIB, MIB = 1 << 10, 1 << 20


@cache
def load(name: str) -> Trace:
    return traces.load(HERE / f"{name}.trace.xz")


# ---- the format ----

u16, u32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
i32, u64 = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**64 - 1)
text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)


@st.composite
def buffers(draw: st.DrawFn) -> Buffer:
    before = draw(st.binary(max_size=64))
    after = draw(st.just(before) | st.binary(min_size=len(before), max_size=len(before)))
    return Buffer(draw(st.sampled_from(Role)), draw(st.booleans()), draw(u64), before, after)


def records() -> st.SearchStrategy[traces.Record]:
    head: dict[str, st.SearchStrategy[Any]] = {
        "pid": u32, "tid": u32, "t_ns": u64, "dur_ns": u32, "fd": i32,
        "device": st.sampled_from(Device), "minor": u16,
    }  # fmt: skip
    kinds: dict[type[traces.Record], dict[str, st.SearchStrategy[Any]]] = {
        traces.Process: {"ppid": u32, "forked": st.integers(0, 1), "argv": text},
        traces.Open: {"flags": i32, "ret": i32, "errno": i32, "path": text},
        traces.Close: {"ret": i32, "errno": i32},
        traces.Dup: {"new_fd": i32},
        traces.Ioctl: {
            "cmd": u32, "ret": i32, "errno": i32, "arg": u64,
            "buffers": st.lists(buffers(), max_size=4).map(tuple),
        },
        traces.Mmap: {
            "want": u64, "length": u64, "prot": i32, "flags": i32, "offset": u64,
            "address": u64, "errno": i32,
        },
        traces.Munmap: {"address": u64, "length": u64, "ret": i32, "errno": i32},
        traces.Heap: {"status": u32, "free_kib": u32},
        traces.Mark: {"text": text},
        traces.SendFd: {"socket": i32},
        traces.RecvFd: {"socket": i32},
        traces.PathCall: {"ret": i32, "errno": i32, "op": st.just("stat"), "path": text},
        traces.Exit: {},
    }  # fmt: skip
    return st.one_of([st.builds(kind, **head, **body) for kind, body in kinds.items()])


@given(st.lists(records(), max_size=8))
def test_what_is_written_is_read(made: Any) -> None:
    data = b"".join(map(traces.encode, made))
    assert list(traces.decode(data)) == made


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_a_file_cut_anywhere_inside_a_record_is_refused(made: Any, data: Any) -> None:
    whole = b"".join(map(traces.encode, made))
    ends = {len(b"".join(map(traces.encode, made[:i]))) for i in range(len(made) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda n: n not in ends))
    with pytest.raises(TraceError, match=r"piece: .*cut short"):
        list(traces.decode(whole[:cut], "piece"))


def test_a_saved_trace_is_loaded_with_its_description(tmp_path: Path) -> None:
    trace = Trace({"name": "x"}, (Mark(pid=1, tid=2, t_ns=3, text="é"),))
    traces.save(tmp_path / "x.trace.xz", trace)
    assert traces.load(tmp_path / "x.trace.xz") == trace


@pytest.mark.parametrize("content", [b"", b"not xz at all"])
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, content: Any) -> None:
    (tmp_path / "x.trace.xz").write_bytes(content)
    with pytest.raises(TraceError, match=r"x\.trace\.xz"):
        traces.load(tmp_path / "x.trace.xz")


def test_merging_orders_processes_by_time_and_drops_those_without_a_device(tmp_path: Path) -> None:
    def raw(name: str, *made: traces.Record) -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(map(traces.encode, made)))
        return path

    opened: dict[str, Any] = {"flags": 2, "ret": 3, "errno": 0, "path": "/dev/nvidiactl"}
    files = [
        raw(
            "1",
            traces.Open(pid=1, tid=1, t_ns=500, **opened),
            Mark(pid=1, tid=1, t_ns=900, text="b"),
        ),
        raw("2", traces.Open(pid=2, tid=2, t_ns=700, **opened)),
        raw("3", Mark(pid=3, tid=3, t_ns=600, text="no device")),
    ]
    trace = traces.merge(files, {"name": "serial 1234"}, {b"1234": b"0000", b"ctl": b"xyz"})
    assert [(r.pid, r.t_ns) for r in trace.records] == [(1, 0), (2, 200), (1, 400)]
    first = trace.records[0]
    assert isinstance(first, traces.Open) and first.path == "/dev/nvidiaxyz"
    assert trace.meta == {"name": "serial 0000"}


# ---- the tracer ----

PROGRAM = """
import ctypes, fcntl, os, socket, struct
mark = ctypes.CDLL(None).nvtrace_mark
mark(b"begin")
fd = os.open("/dev/nvidiactl", os.O_RDWR)
entries = ctypes.create_string_buffer(b"\\2" * 16, 16)
params = ctypes.create_string_buffer(struct.pack("<IIQ", 2, 0, ctypes.addressof(entries)), 16)
call = struct.pack("<IIIIQII", 1, 2, 0x20801301, 0, ctypes.addressof(params), 16, 0)
try:
    fcntl.ioctl(fd, 0xC020462A, bytearray(call))
except OSError as error:
    assert error.errno == 25, error
os.close(os.dup(fd))
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [fd])
socket.recv_fds(b, 1, 1)
if os.fork() == 0:
    os.close(fd)
    os._exit(0)
os.wait()
mark(b"end")
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """PROGRAM under the tracer, with a plain file as /dev/nvidiactl in a namespace of its own."""
    work = tmp_path_factory.mktemp("tracer")
    (work / "raw").mkdir()
    library = work / "libnvtrace.so"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", library,
         HERE / "tracer.c", "-ldl", "-pthread"],
        check=True,
    )  # fmt: skip
    inside = 'mount -t tmpfs none /dev && : > /dev/nvidiactl && exec env LD_PRELOAD="$0" "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, library, sys.executable, "-c", PROGRAM],
        env={"NVTRACE_DIR": str(work / "raw"), "NVTRACE_HEAP": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("needs root to put a file in place of /dev/nvidiactl")
    assert done.returncode == 0, done.stderr
    return traces.merge(sorted((work / "raw").iterdir()), {}, {})


def test_the_tracer_records_a_control_with_params_and_the_list_behind_them(traced: Trace) -> None:
    (call,) = traced.ioctls()
    assert (call.device, call.cmd, call.ret, call.errno) == (Device.CTL, 0xC020462A, -1, 25)
    assert [(b.role, len(b.before)) for b in call.buffers] == [
        (Role.ARG, 32),
        (Role.PARAM, 16),
        (Role.LIST, 16),
    ]
    assert call[Role.LIST].before == b"\2" * 16
    assert call[Role.PARAM].address == call[Role.ARG].u64(16)


def test_the_tracer_follows_descriptors_through_dup_sockets_and_fork(traced: Trace) -> None:
    kinds = [type(r).__name__ for r in traced.records if not isinstance(r, (Heap, Ioctl))]
    assert kinds == [
        "Process", "Mark", "Open", "Dup", "Close", "SendFd", "RecvFd",
        "Process", "Close", "Mark", "Exit",
    ]  # fmt: skip
    parent, child = (r for r in traced.records if isinstance(r, traces.Process))
    assert (parent.forked, child.forked, child.ppid) == (0, 1, parent.pid)


# ---- the committed traces ----


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.name.removesuffix(".trace.xz"))
def test_a_committed_trace_reads_to_its_end_and_back(path: Any) -> None:
    trace = traces.load(path)
    assert {"name", "about", "card", "driver", "date", "heap", "stdout"} <= trace.meta.keys()
    assert any(True for _ in trace.ioctls())
    assert [r.t_ns for r in trace.records] == sorted(r.t_ns for r in trace.records)
    data = b"".join(map(traces.encode, trace.records))
    assert tuple(traces.decode(data)) == trace.records


def test_all_traces_together_stay_small() -> None:
    assert len(COMMITTED) >= 30
    assert sum(p.stat().st_size for p in COMMITTED) < 3 * MIB


def test_no_trace_names_the_cards_it_was_recorded_on() -> None:
    uuids = {bytes.fromhex(f"c69000005eed400080000000000000{last}") for last in ("a5", "a6")}
    for path in COMMITTED:
        trace = traces.load(path)
        for call in trace.ioctls():
            if call.device is Device.UVM and call.cmd == UVM_REGISTER_GPU:
                assert call[Role.ARG].before[:16] in uuids
        for found in re.findall(r"GPU-[0-9a-f-]{36}", trace.meta["stdout"]):
            assert found == "GPU-c6900000-5eed-4000-8000-0000000000a5"


def controls(trace: Trace, cmd: int) -> Iterator[tuple[Ioctl, Buffer]]:
    """The RM_CONTROL calls of one command and their params."""
    for call in trace.ioctls():
        arg = call.buffer(Role.ARG)
        param = call.buffer(Role.PARAM)
        if call.device is not Device.CTL or call.nr != RM_CONTROL or not arg or not param:
            continue
        if len(arg.before) == 32 and arg.u32(8) == cmd:
            yield call, param


def fb_info(param: Buffer) -> dict[int, int]:
    """The pairs of an FB_GET_INFO_V2 answer."""
    return {param.u32(4 + 8 * i): param.u32(8 + 8 * i) for i in range(param.u32(0))}


def allocations(trace: Trace, of_class: int) -> Iterator[tuple[Ioctl, Buffer, Buffer | None]]:
    """The RM_ALLOC calls (NVOS64) of one class: call, argument, parameters."""
    for call in trace.ioctls():
        arg = call.buffer(Role.ARG)
        if call.device not in (Device.CTL, Device.GPU) or call.nr != RM_ALLOC or not arg:
            continue
        if len(arg.before) == 48 and arg.u32(12) == of_class:
            yield call, arg, call.buffer(Role.PARAM)


@pytest.mark.parametrize("name", ["smi", "smi-busy", "smi-query", "nvml"])
def test_monitoring_asks_for_free_total_and_heap_size(name: Any) -> None:
    asked = [list(fb_info(param)) for _, param in controls(load(name), FB_GET_INFO_V2)]
    assert [0x16, 0x8, 0x9] in asked


def test_nvidia_smi_prints_total_ram_and_what_the_heap_lacks() -> None:
    trace = load("smi-busy")
    info = next(fb_info(p) for _, p in controls(trace, FB_GET_INFO_V2) if p.u32(0) == 3)
    said = re.search(r"(\d+)MiB / (\d+)MiB", trace.meta["stdout"])
    assert said is not None
    used, total = said.groups()
    assert int(total) == info[0x8] // 1024
    assert abs(int(used) - (info[0x9] - info[0x16]) / 1024) <= 1


@pytest.mark.parametrize("name", ["ladder", "oom", "managed", "vmm", "ipc", "train"])
def test_mem_get_info_is_heap_free_of_heap_size(name: Any) -> None:
    """cuMemGetInfo: free is FB_INFO 0x16, total is 0x9 (not 0x8, which nvidia-smi prints)."""
    last: dict[int, dict[int, int]] = {}
    checked = 0
    for record in load(name).records:
        if isinstance(record, Ioctl) and record.device is Device.CTL and record.nr == RM_CONTROL:
            if record[Role.ARG].u32(8) == FB_GET_INFO_V2:
                info = fb_info(record[Role.PARAM])
                if list(info) == [0x16, 0x9, 0x10]:
                    last[record.pid] = info
        elif isinstance(record, Mark) and (
            said := re.search(r"free=(\d+) total=(\d+)", record.text)
        ):
            info = last[record.pid]
            assert (info[0x16] * KIB, info[0x9] * KIB) == tuple(map(int, said.groups()))
            checked += 1
    assert checked >= 5


def test_programs_leave_the_size_of_parameters_zero() -> None:
    """A hook cannot take pAllocParms' size from the caller: user mode passes 0 for every class."""
    for name in ("smi", "nvml", "context", "train"):
        for call in load(name).ioctls():
            if call.device in (Device.CTL, Device.GPU) and call.nr == RM_ALLOC:
                assert call[Role.ARG].u32(32) == 0


def steps(trace: Trace) -> Iterator[tuple[traces.Record, int]]:
    """Each record with what free memory lost by it, KiB (single-process traces only)."""
    assert len({r.pid for r in trace.records}) == 1
    free_kib, last = None, None
    for record in trace.records:
        if isinstance(record, Heap):
            if free_kib is not None and last is not None:
                yield last, free_kib - record.free_kib
                last = None
            free_kib = record.free_kib
        elif not isinstance(record, (Mark, traces.Exit)):
            if last is not None:
                yield last, 0
            last = record


SINGLE = ["context", "ladder", "oom", "kinds", "pools", "graphs", "train"]


def rounded_kib(size: int) -> int:
    """What the driver takes for an allocation whose size it returned: whole 64 KiB pages."""
    return -(-size // (64 * KIB)) * 64


@pytest.mark.parametrize("name", SINGLE)
def test_free_memory_falls_by_the_returned_size_rounded_to_64_kib(name: Any) -> None:
    checked = 0
    for record, lost_kib in steps(load(f"{name}-heap")):
        if not isinstance(record, Ioctl) or record.device is not Device.CTL:
            continue
        arg = record.buffer(Role.ARG)
        if arg is None or record.nr != RM_ALLOC:
            continue
        if arg.u32(12) == NV01_MEMORY_LOCAL_USER and arg.u32(40) == 0:
            assert lost_kib == rounded_kib(record[Role.PARAM].u64(64))
            checked += 1
    assert checked >= 17


@pytest.mark.parametrize("name", SINGLE)
def test_class_40_explains_all_but_nine_mib_at_every_step(name: Any) -> None:
    """Sum of live class 0x40 memory against what the driver counts, with one context."""
    live: dict[int, int] = {}
    taken_kib, worst_kib = 0, 0
    for record, lost_kib in steps(load(f"{name}-heap")):
        taken_kib += lost_kib
        if not isinstance(record, Ioctl) or record.device is not Device.CTL:
            continue
        arg = record.buffer(Role.ARG)
        if arg is None:
            continue
        if record.nr == RM_ALLOC and arg.u32(12) == NV01_MEMORY_LOCAL_USER and arg.u32(40) == 0:
            live[arg.u32(8)] = rounded_kib(record[Role.PARAM].u64(64))
        elif record.nr == RM_FREE and arg.u32(12) == 0:
            live.pop(arg.u32(8), None)
        worst_kib = max(worst_kib, abs(taken_kib - sum(live.values())))
    # One page directory, UVM's registration of the card, a graphics channel group, 20 channels.
    assert worst_kib == 64 + 3264 + 4416 + 20 * 64


def test_a_refused_allocation_is_asked_twice_and_left_as_it_was() -> None:
    refused = [
        (call, call[Role.PARAM])
        for call, arg, _ in allocations(load("oom"), NV01_MEMORY_LOCAL_USER)
        if arg.u32(40) == 0x51
    ]
    assert len(refused) == 6  # three cudaMalloc
    for call, param in refused:
        assert (call.ret, param.before) == (0, param.after)


def test_cuda_ipc_shares_with_all_and_duplicates() -> None:
    shared = [c for c in load("ipc").ioctls() if c.device is Device.CTL and c.nr == 0x35]
    dups = [c for c in load("ipc").ioctls() if c.device is Device.CTL and c.nr == RM_DUP_OBJECT]
    (share,) = (c[Role.ARG] for c in shared)
    (dup,) = (c[Role.ARG] for c in dups)
    assert int.from_bytes(share.before[16:18], "little") == 1  # RS_SHARE_TYPE_ALL
    assert (dup.u32(12), dup.u32(16), dup.u32(24)) == (share.u32(0), share.u32(4), 0)
    assert shared[0].pid != dups[0].pid


def marks(name: str) -> list[str]:
    return [r.text for r in load(name).records if isinstance(r, Mark)]


def test_memory_lives_as_long_as_anything_refers_to_it() -> None:
    """Duplicate, exported descriptor and UVM mapping each outlive RM_FREE of the original."""
    said = [m for m in marks("rmprobe-heap") if "taken" in m]
    alive = [m for m in said if m.startswith(("free of the original", "uvm: free of the mapped"))]
    assert len(alive) == 6
    for line in alive:
        assert re.search(r"status 0, taken (65536|32768) KiB", line), line
    for line in (
        "free of the duplicate",
        "close of the duplicate's file",
        "free of the import",
        "uvm: free of the range",
        "exit of the process that held the duplicate",
    ):
        assert f"{line}: status 0, taken 0 KiB" in said


SIZE = re.compile(r"size (\S+) ask=(\d+) status=0 size=(\d+) limit=(\d+) .* taken_kib=(\d+)")


def test_returned_sizes_are_whole_pages_of_the_size_asked_for() -> None:
    pages = {"4K": 4 * KIB, "big": 64 * KIB, "huge": 2 * MIB}
    checked = 0
    for said in filter(None, map(SIZE.fullmatch, marks("rmprobe-heap"))):
        way, (ask, size, limit, taken_kib) = said[1], map(int, said.groups()[1:])
        page = pages.get(way) or (64 * KIB if ask < 2 * MIB else 2 * MIB)
        assert (size, limit) == (-(-ask // page) * page, size - 1), said[0]
        assert taken_kib == rounded_kib(size), said[0]
        checked += 1
    assert checked == 6 * 20


def test_what_the_driver_answers_to_wrong_calls() -> None:
    said = marks("rmprobe")
    for line in (
        "size default ask=1TiB status=51",
        "class 0x40 with LOCATION PCI status=1f",
        "class 0x40 with flag VIRTUAL status=1f",
        "unknown control: 56",
        "control with a wrong size: 1f",
        "control with a NULL: 1f",
        "control with a bad address: 1e",
        "control on no object: 57",
        "control of no client: 23",
        "control through another file: 23",
        "free through another file: 23",
        "free of no object: 0",
        "free of the client again: 33",
        "unknown class: 22",
        "handle in use: 19",
        "wrong ioctl size: ret -1 errno 22",
        "unknown number: ret -1 errno 22",
        "bad address: ret -1 errno 14",
        "RM_CONTROL on the card's file: ret -1 errno 22",
        "fork: alloc by the child with the parent's file: 0",
    ):
        assert line in said


def test_the_cards_size_shows_in_old_calls_too() -> None:
    said = marks("rmprobe")
    assert f"ALLOC_MEMORY of class 40: ret 0 limit {147221504 * KIB - 1}" in said
    total = 146591680 * KIB
    assert f"VID_HEAP INFO: ret 0 status 0 total {total} free {total}" in said


def test_threads_open_no_descriptors_of_their_own() -> None:
    records = load("threads").records
    start = next(i for i, r in enumerate(records) if isinstance(r, Mark))
    later = records[start:]
    assert len({r.tid for r in later if isinstance(r, Ioctl)}) >= 4
    assert not any(isinstance(r, (traces.Open, traces.Dup)) for r in later)


def test_another_process_duplicates_only_what_was_shared() -> None:
    said = marks("rmprobe")
    assert "duplicate by another process, not shared: 1b" in said
    assert "duplicate by another process, shared with all: 0" in said


def test_the_list_behind_fb_get_info_is_recorded() -> None:
    call, param = next(controls(load("rmprobe"), FB_GET_INFO))
    entries = call[Role.LIST]
    assert (param.u32(0), len(entries.before)) == (3, 24)
    assert [entries.u32(0), entries.u32(8), entries.u32(16)] == [7, 9, 0x16]
    assert entries.u32(4, after=False) == 0
    assert entries.u32(4) == 147221504


def test_managed_memory_is_a_mapping_of_the_uvm_device_at_its_own_address() -> None:
    sizes = [
        r.length
        for r in load("managed").records
        if isinstance(r, traces.Mmap) and r.device is Device.UVM and r.offset == r.address
    ]
    # The first is the context's semaphore pool, announced by UVM_ALLOC_SEMAPHORE_POOL.
    assert sizes == [2 * MIB, 64 * MIB, 128 * MIB, 2 * MIB]


def test_uvm_maps_every_cuda_allocation() -> None:
    """Why RM_FREE alone may not uncharge: UVM holds a duplicate of each mapped allocation."""
    made = {a.u32(8) for _, a, _ in allocations(load("ladder"), NV01_MEMORY_LOCAL_USER)}
    mapped = {
        c[Role.ARG].u32(9256)
        for c in load("ladder").ioctls()
        if c.device is Device.UVM and c.cmd == UVM_MAP_EXTERNAL_ALLOCATION
    }
    assert made <= mapped
