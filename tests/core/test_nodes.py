# SPDX-License-Identifier: MIT
"""The text of every node: what it shows, what it takes, and the errno of every bad write."""

from __future__ import annotations

import ctypes
import errno
import mmap
import re
import string
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pycgpu._core import ffi, lib
from pycgpu.request import model

MIB = 1 << 20
GIB = 1 << 30
PLACES = {
    lib.CGPU_PLACE_ROOT: "",
    lib.CGPU_PLACE_CARD: "<gpu>/",
    lib.CGPU_PLACE_GRANT: "<gpu>/<id>/",
    lib.CGPU_PLACE_CONTAINER: "container/<id>/",
}
NODES = {
    PLACES[lib.cgpu_node_table[node].place] + ffi.string(lib.cgpu_node_table[node].name).decode(): (
        node
    )
    for node in range(lib.CGPU_NODE_COUNT)
}
LONG_ID = "0123456789abcdef" * 4


class Guarded:
    """Bytes that end where the process's memory does: reading one more is a crash."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 4 * mmap.PAGESIZE)
        self.end = 3 * mmap.PAGESIZE
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mprotect(
            ctypes.c_void_p(self.start + self.end), ctypes.c_size_t(mmap.PAGESIZE), 0
        )
        assert not failed, ctypes.get_errno()

    def put(self, text: bytes) -> Any:
        self._map[self.end - len(text) : self.end] = text
        return ffi.cast("char *", self.start + self.end - len(text))


GUARDED = Guarded()
# Grammars have many corners and each try is cheap.
many = settings(max_examples=max(1000, settings().max_examples))


class Host:
    """Two cards: 0 of 16 GiB with one container on it, and 1, of which the driver told nothing."""

    def __init__(self, *, unlimited: bool = False, id: str = LONG_ID) -> None:
        self.host = ffi.new("struct cgpu_host *")
        self.grant = ffi.new("struct cgpu_grant *")
        self.account = ffi.new("struct cgpu_account *")
        self.ledger = ffi.new("struct cgpu_ledger *")
        self._keep = [ffi.new("char[]", id.encode()), ffi.new("char[]", b"1.2.3")]

        told = {"total_bytes": 16 * GIB, "reserved_bytes": GIB, "uuid": bytes(range(16))}
        lib.cgpu_card_add(self.host, 0, ffi.new("struct cgpu_gpu *", told))
        lib.cgpu_card_add(self.host, 1, ffi.new("struct cgpu_gpu *"))

        create = ffi.new("struct cgpu_create *")
        create.grant[0] = {
            "present": True,
            "unlimited": unlimited,
            "weight_given": True,
            "weight": 3,
            "quota": 50,
            "quota_min": 10,
            "priority": 2,
            "idle_park_s": 300,
            "policy_hint": lib.CGPU_POLICY_END,
            "mem_bytes": 0 if unlimited else 4 * GIB,
        }
        minor = ffi.new("uint32_t *")
        assert lib.cgpu_host_admit(self.host, create, minor) == 0
        self.grant[0] = create.grant[0]
        lib.cgpu_grants_apply(create.grant, self.ledger)
        self.account[0] = self.ledger.account[0]
        self.account.current_bytes = GIB
        self.account.peak_bytes = 2 * GIB
        self.account.oom = 7
        self.account.refused = 8

        self.view = ffi.new("struct cgpu_view *")
        self.view.host_bytes = 9
        self.view.host = self.host
        self.view.minor = 0
        self.view.grant = self.grant
        self.view.account = self.account
        self.view.id, self.view.version = self._keep
        self.ledger.account[0] = self.account[0]
        lib.cgpu_usage_add(ffi.addressof(self.view, "usage"), self.ledger, 0)

    def hold(self, *holders: tuple[int, int, int, bytes]) -> None:
        array = ffi.new("struct cgpu_holder[]", len(holders))
        for one, (pid, container_pid, used_bytes, comm) in zip(array, holders, strict=True):
            one.pid, one.container_pid, one.bytes = pid, container_pid, used_bytes
            ffi.memmove(one.comm, comm, len(comm))
        self.view.holders, self.view.holder_count = array, len(holders)
        self._keep.append(array)

    def count(self, **stats: int) -> None:
        keys = [ffi.new("char[]", key.encode()) for key in stats]
        array = ffi.new("struct cgpu_stat[]", list(zip(keys, stats.values(), strict=True)))
        self.view.stats, self.view.stat_count = array, len(stats)
        self._keep += [*keys, array]

    def away(self, id: bytes, state: str, parked_bytes: int, pid: list[int], **rest: int) -> None:
        """Add a container that is not running."""
        array = ffi.new("struct cgpu_away[]", self.view.away_count + 1)
        if self.view.away_count:
            ffi.memmove(array, self.view.away, self.view.away_count * ffi.sizeof(array[0]))
        one = array[self.view.away_count]
        one.id, one.parked_bytes = id, parked_bytes
        one.state = ["running", "parking", "parked", "resuming"].index(state)
        one.parking = {"pid": pid, "count": len(pid), **rest}
        self.view.away, self.view.away_count = array, self.view.away_count + 1
        self._keep.append(array)

    def show(self, name: str, size: int = 65536) -> str:
        buffer = ffi.new("char[]", size)
        used = lib.cgpu_node_show(self.view, NODES[name], buffer, size)
        assert used >= 0, errno.errorcode[-used]
        return str(ffi.buffer(buffer, used)[:].decode())

    def store(self, name: str, text: bytes | str) -> int:
        raw = text.encode() if isinstance(text, str) else text
        return int(-lib.cgpu_node_store(self.view, NODES[name], GUARDED.put(raw), len(raw)))

    def state(self) -> bytes:
        return b"".join(
            ffi.buffer(part)[:] for part in (self.host, self.grant, self.account, self.view)
        )


def parse(text: bytes | str) -> Any:
    """Return the errno, and the command if it is 0."""
    raw = text.encode() if isinstance(text, str) else text
    command = ffi.new("struct cgpu_command *")
    # what was there before must not show through
    ffi.memmove(command, b"\xa5" * ffi.sizeof(command[0]), ffi.sizeof(command[0]))
    error = -lib.cgpu_parse_inst_ctl(GUARDED.put(raw), len(raw), command)
    return error, None if error else command


# ---- the table


def test_the_tree_has_exactly_the_documented_files_and_modes() -> None:
    modes = {name: lib.cgpu_node_table[node].mode for name, node in NODES.items()}
    writable = {name for name, mode in modes.items() if mode == 0o644}
    assert set(modes.values()) == {0o444, 0o644}
    assert writable == {
        "inst_ctl",
        *(f"<gpu>/{name}" for name in ("policy", "max_inst", "memory", "timeslice_us")),
        "<gpu>/overcommit_ratio",
        *(f"<gpu>/<id>/{name}" for name in ("memsize", "weight", "quota", "quota_min")),
        *(f"<gpu>/<id>/{name}" for name in ("priority", "oom_action", "uvm_disable")),
        "<gpu>/<id>/unknown",
        "<gpu>/<id>/idle_park_s",
    }
    assert set(NODES) - writable == {
        *("version", "api_version", "features", "events", "parking"),
        *(f"<gpu>/{name}" for name in ("free_weight", "uuid", "stat")),
        *(f"<gpu>/<id>/{name}" for name in ("id", "meminfo", "procs", "stat", "events", "cid")),
        "<gpu>/<id>/group",
        "<gpu>/<id>/state",
        "container/<id>/cid",
    }
    assert len(NODES) == lib.CGPU_NODE_COUNT


# ---- what is shown

SHOWN = {
    "version": "1.2.3\n",
    "api_version": "1\n",
    "features": "pid\nmemory\nupgrade\n",
    "inst_ctl": "create <id> pid=<pid>|cgroup=<path> gpu=<n>,mem=<bytes>|max[,weight=<w>]"
    "[,quota=<percent>][,quota_min=<percent>][,priority=<p>][,policy=<policy>]"
    "[,uvm_disable=0|1][,oom_action=fail|kill][,idle_park_s=<s>] [gpu=...] [group=<id>]\n"
    "destroy <id>\n"
    "park <id> pid=<pid>[,<pid>...] [hold=1]\nparked <id>\n"
    "return <id> [foreign=<gpu>:<bytes>] [foreign=...]\nrunning <id>\nno_room <id>\nstay <id>\n"
    "server <id> started|ended|died|lost|killed pid=<pid> [member=<id>] [after=<id>]\n",
    "parking": "one state=parked since_ns=5 bytes=6 asked_ns=7 short_gpu=0 short_bytes=8 pid=9,10\n"
    f"{LONG_ID} state=resuming since_ns=1 bytes=0 hold=1 pid=2\n",
    "<gpu>/policy": "7\n",
    "<gpu>/max_inst": "20\n",
    "<gpu>/free_weight": "17\n",
    "<gpu>/uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f\n",
    "<gpu>/memory": "total 17179869184\nreserved 1073741824\nallocated 4294967296\n"
    "used 1073741824\nfree 11811160064\n",
    "<gpu>/timeslice_us": "5000\n",
    "<gpu>/overcommit_ratio": "100\n",
    "<gpu>/stat": "containers 1\nweight_sum 3\nallocated_bytes 4294967296\n"
    "used_bytes 1073741824\npolicy_by_hand 0\nwindows 12\nbusy_ns 18446744073709551615\n",
    "<gpu>/<id>/id": "0\n",
    "<gpu>/<id>/memsize": "4294967296\n",
    "<gpu>/<id>/meminfo": "Free: 3221225472\nPID: 100 Mem: 1073741824\nPID: 4194304 Mem: 0\n",
    "<gpu>/<id>/weight": "3\n",
    "<gpu>/<id>/quota": "50\n",
    "<gpu>/<id>/quota_min": "10\n",
    "<gpu>/<id>/priority": "2\n",
    "<gpu>/<id>/procs": "100 1 1073741824 python3 -m x\n4194304 0 0 -\n",
    "<gpu>/<id>/stat": "current_bytes 1073741824\npeak_bytes 2147483648\nmax_bytes 4294967296\n"
    "unlimited 0\noom 7\nrefused 8\nhost_bytes 9\nwindows 12\nbusy_ns 18446744073709551615\n",
    "<gpu>/<id>/events": "oom 7\nrefused 8\n",
    "<gpu>/<id>/oom_action": "fail\n",
    "<gpu>/<id>/uvm_disable": "0\n",
    "<gpu>/<id>/unknown": "refuse\n",
    "<gpu>/<id>/cid": f"{LONG_ID}\n",
    "<gpu>/<id>/group": "-\n",
    "<gpu>/<id>/state": "running\n",
    "<gpu>/<id>/idle_park_s": "300\n",
    "container/<id>/cid": f"{LONG_ID}\n",
}


def test_a_view_that_is_detached_shows_what_was_there_though_all_of_it_changes() -> None:
    """Many holders take long to tell of: the locks under which it changes are let go of first."""
    one = Host()
    nodes = ("<gpu>/<id>/memsize", "<gpu>/<id>/meminfo", "<gpu>/policy", "<gpu>/memory")
    before = [one.show(name) for name in nodes]
    copy = ffi.new("struct cgpu_view_copy *")
    lib.cgpu_view_detach(one.view, copy)
    for part in (one.host, one.grant, one.account):
        ffi.memmove(part, bytes(ffi.sizeof(part[0])), ffi.sizeof(part[0]))
    assert [one.show(name) for name in nodes] == before


def shown_host() -> Host:
    one = Host()
    one.hold((100, 1, GIB, b"python3 -m x"), (4194304, 0, 0, b""))
    one.count(windows=12, busy_ns=2**64 - 1)
    one.away(b"one", "parked", 6, since_ns=5, asked_ns=7, short_card=0, short_bytes=8, pid=[9, 10])
    one.away(
        LONG_ID.encode(), "resuming", 0, since_ns=1, held=1, short_card=lib.CGPU_NO_CARD, pid=[2]
    )
    for feature in (lib.CGPU_FEATURE_PID, lib.CGPU_FEATURE_MEMORY, lib.CGPU_FEATURE_UPGRADE):
        one.view.features |= 1 << feature
    return one


@pytest.mark.parametrize("name", sorted(NODES))
def test_a_node_shows_exactly_this(name: Any) -> None:
    if name == "events":
        buffer = ffi.new("char[64]")
        assert lib.cgpu_node_show(Host().view, NODES[name], buffer, 64) == -errno.EINVAL
        return
    assert shown_host().show(name) == SHOWN[name]


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_text_that_does_not_fit_is_enospc_and_nothing_is_written_past_the_buffer(
    name: Any,
) -> None:
    one, length = shown_host(), len(SHOWN[name])
    assert one.show(name, length) == SHOWN[name]
    for size in (0, 1, length - 1):
        buffer = ffi.new("char[]", b"\xa5" * 4096)
        used = lib.cgpu_node_show(one.view, NODES[name], buffer, size)
        assert used == -errno.ENOSPC
        assert ffi.buffer(buffer, 4096)[size:] == b"\xa5" * (4096 - size)


def test_no_such_node() -> None:
    buffer = ffi.new("char[8]")
    one = Host()
    assert lib.cgpu_node_show(one.view, lib.CGPU_NODE_COUNT, buffer, 8) == -errno.EINVAL
    assert lib.cgpu_node_store(one.view, lib.CGPU_NODE_COUNT, buffer, 1) == -errno.EINVAL


def test_every_feature_has_its_word() -> None:
    one = Host()
    one.view.features = 2**lib.CGPU_FEATURE_COUNT - 1
    assert one.show("features") == (
        "pid\ncgroup\nevents\nmemory\nmanaged\nslices\ngate\nupgrade\npark\n"
    )
    one.view.features = 0
    assert one.show("features") == ""


def test_a_card_that_the_driver_told_nothing_of() -> None:
    one = Host()
    one.view.minor = 1
    one.view.usage.used_bytes = 0
    assert one.show("<gpu>/uuid") == "\n"
    assert one.show("<gpu>/memory") == "total 0\nreserved 0\nallocated 0\nused 0\nfree 0\n"


def test_a_container_without_a_limit_shows_max_and_the_cards_size() -> None:
    one = Host(unlimited=True)
    assert one.show("<gpu>/<id>/memsize") == "max\n"
    assert "max_bytes 17179869184\nunlimited 1\n" in one.show("<gpu>/<id>/stat")
    # 16 GiB, 1 held back, 1 used
    assert one.show("<gpu>/<id>/meminfo") == f"Free: {14 * GIB}\n"


@pytest.mark.parametrize(
    ("used_on_card", "free"),
    [(GIB, 3 * GIB), (13 * GIB, 2 * GIB), (15 * GIB, 0), (2**64 - 1, 0)],
)
def test_free_is_never_more_than_the_card_has(used_on_card: Any, free: Any) -> None:
    one = Host()
    one.view.usage.used_bytes = used_on_card
    assert one.show("<gpu>/<id>/meminfo") == f"Free: {free}\n"


def test_free_is_the_containers_own_remainder_on_a_card_of_unknown_size() -> None:
    one = Host()
    one.host.topology.gpu[0].total_bytes = 0
    assert one.show("<gpu>/<id>/meminfo") == f"Free: {3 * GIB}\n"


def test_the_sum_of_usage_does_not_wrap() -> None:
    usage = ffi.new("struct cgpu_usage *")
    ledger = ffi.new("struct cgpu_ledger *")
    ledger.account[0].current_bytes = 2**63
    for expected in (2**63, 2**64 - 1, 2**64 - 1):
        lib.cgpu_usage_add(usage, ledger, 0)
        assert usage.used_bytes == expected


@given(st.binary(max_size=16))
@example(b"x\n1 1 1 y")
@example(b"\xff\x7f\x01")
def test_a_process_cannot_forge_a_line_by_its_name(comm: Any) -> None:
    one = Host()
    one.hold((1, 2, 3, comm), (4, 5, 6, b"last"))
    buffer = ffi.new("char[4096]")
    used = lib.cgpu_node_show(one.view, NODES["<gpu>/<id>/procs"], buffer, 4096)
    lines = ffi.buffer(buffer, used)[:].split(b"\n")
    visible = bytes(ord("?") if c < 0x20 or c == 0x7F else c for c in comm.split(b"\0", 1)[0])
    assert lines == [b"1 2 3 " + (visible or b"-"), b"4 5 6 last", b""]


# ---- what is written


def number(text: bytes) -> int | str:
    """The contract's number: digits, one newline allowed."""
    if not re.fullmatch(rb"[0-9]+\n?", text) or len(text) > 64:
        return "EINVAL"
    return int(text) if int(text) < 2**64 else "ERANGE"


def between(low: int, high: int) -> Any:
    return lambda value: "" if low <= value <= high else "ERANGE"


def memsize(value: int) -> str:
    if value < MIB:
        return "ERANGE"
    return "EBUSY" if value < GIB else "ENOSPC" if value > 16 * GIB else ""


def weight(value: int) -> str:
    return "ERANGE" if value > 64 else "ENOSPC" if value > 20 else ""


def max_inst(value: int) -> str:
    return "ERANGE" if not 1 <= value <= 64 else "EBUSY" if value < 3 else ""


# What a number does in the host of `Host`: the errno's name, or nothing.
NUMBERS = {
    "<gpu>/policy": between(0, 9),
    "<gpu>/max_inst": max_inst,
    "<gpu>/timeslice_us": between(1000, 1000000),
    "<gpu>/overcommit_ratio": between(100, 1000),
    "<gpu>/<id>/memsize": memsize,
    "<gpu>/<id>/weight": weight,
    "<gpu>/<id>/quota": lambda value: between(10, 100)(value) if value else "",
    "<gpu>/<id>/quota_min": between(0, 50),
    "<gpu>/<id>/priority": between(0, 15),
    "<gpu>/<id>/uvm_disable": between(0, 1),
    "<gpu>/<id>/idle_park_s": between(0, 604800),
}
# Words besides numbers, with what is read afterwards.
WORDS = {
    "<gpu>/policy": {name: str(number) for number, name in enumerate(model.POLICIES)},
    "<gpu>/<id>/oom_action": {"fail": "fail", "kill": "kill"},
    "<gpu>/<id>/unknown": {"refuse": "refuse", "log": "log"},
    "<gpu>/memory": {},
}
WRITABLE = sorted({*NUMBERS, *WORDS})
near_numbers = st.one_of(
    st.integers(0, 2**66).map(str),
    st.integers(0, 130).map(str),
    st.integers(0, 17 * GIB).map(str),
    st.integers(-9, 9).map(str),
    st.sampled_from(
        ["", "\n", "1\n\n", " 1", "1 ", "+1", "1k", "0x1", "1.0", "1e3", "007", "١", "1\0", "max",
         "0" * 63 + "1", "0" * 64 + "1", str(2**64 - 1), str(2**64), *model.POLICIES, "Burst",
         "burst ", "fail", "kill", "kil", "killed", "total 1", "total ", "total"]
    ),
)  # fmt: skip
texts = st.one_of(
    st.tuples(near_numbers, st.sampled_from(["", "\n"])).map("".join).map(str.encode),
    st.binary(max_size=80),
)


def expected(name: str, text: bytes) -> tuple[str, str]:
    """Return the errno's name, and what is read afterwards if there is none."""
    word = text.removesuffix(b"\n").decode("latin-1")
    if word in WORDS.get(name, {}):
        return "", WORDS[name][word]
    if name == "<gpu>/memory":
        return memory_total(word)
    if name not in NUMBERS:
        return "EINVAL", ""
    value = number(text)
    if isinstance(value, str):
        return value, ""
    return NUMBERS[name](value), str(value)


def memory_total(word: str) -> tuple[str, str]:
    """The driver told this card's size: a good line is EBUSY."""
    if not word.startswith("total "):
        return "EINVAL", ""
    value = number(word.removeprefix("total ").encode("latin-1"))
    if isinstance(value, str):
        return value, ""
    return "EBUSY" if value > GIB else "ERANGE", ""


@many
@given(st.sampled_from(WRITABLE), texts)
def test_a_write_does_what_the_contract_says_or_changes_nothing(name: Any, text: Any) -> None:
    one = Host()
    before = one.state()
    error, value = expected(name, text)
    assert one.store(name, text) == (getattr(errno, error) if error else 0)
    if error:
        assert one.state() == before
    else:
        assert one.show(name) == f"{value}\n"


@given(st.sampled_from(sorted(set(NODES) - {"inst_ctl"} - set(WRITABLE))), texts)
def test_a_read_only_node_takes_no_write(name: Any, text: Any) -> None:
    one = Host()
    before = one.state()
    assert one.store(name, text) == errno.EACCES
    assert one.state() == before


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("name", sorted(set(WRITABLE) - {"<gpu>/memory"}))
def test_what_is_read_can_be_written_back(name: Any, unlimited: Any) -> None:
    one = Host(unlimited=unlimited)
    text = one.show(name)
    assert one.store(name, text) == 0
    assert one.store(name, text.rstrip("\n")) == 0
    assert one.show(name) == text


def test_a_limit_is_not_lifted_by_max() -> None:
    one = Host()
    before = one.state()
    assert one.store("<gpu>/<id>/memsize", "max") == errno.EINVAL
    assert one.state() == before


def test_a_container_without_a_limit_can_be_given_one() -> None:
    one = Host(unlimited=True)
    assert one.store("<gpu>/<id>/memsize", str(2 * GIB)) == 0
    assert one.show("<gpu>/<id>/memsize") == f"{2 * GIB}\n"
    assert one.account.max_bytes == 2 * GIB and not one.account.unlimited
    assert "allocated 2147483648\n" in one.show("<gpu>/memory")


def test_a_written_policy_counts_as_by_hand_and_a_refused_one_does_not() -> None:
    one = Host()
    assert one.store("<gpu>/policy", "10") == errno.ERANGE
    assert "policy_by_hand 0\n" in one.show("<gpu>/stat")
    assert one.store("<gpu>/policy", "weighted-conserving\n") == 0
    assert one.show("<gpu>/policy") == "7\n"
    assert "policy_by_hand 1\n" in one.show("<gpu>/stat")


def test_a_cards_stat_has_its_mig_mode_once_the_driver_has_told_it() -> None:
    one = Host()
    assert "mig" not in one.show("<gpu>/stat")
    one.host.topology.gpu[0].mig = lib.CGPU_MIG_OFF
    assert "mig 0\n" in one.show("<gpu>/stat")
    one.host.topology.gpu[0].mig = lib.CGPU_MIG_ON
    assert "mig 1\n" in one.show("<gpu>/stat")


def test_what_the_driver_is_to_refuse_follows_the_nodes() -> None:
    one = Host()
    assert one.store("<gpu>/<id>/uvm_disable", "1") == 0
    assert one.store("<gpu>/<id>/oom_action", "kill") == 0
    assert one.store("<gpu>/<id>/unknown", "log") == 0
    assert one.account.uvm_disable and one.account.oom_kill and one.account.admit_unknown
    assert one.store("<gpu>/<id>/uvm_disable", "0") == 0
    assert one.store("<gpu>/<id>/oom_action", "fail\n") == 0
    assert one.store("<gpu>/<id>/unknown", "refuse\n") == 0
    assert not one.account.uvm_disable and not one.account.oom_kill
    assert not one.account.admit_unknown


def test_a_member_shows_its_group_and_leaves_its_compute_to_it() -> None:
    one = Host()
    keep = ffi.new("char[]", b"leader")
    one.view.group = keep
    assert one.show("<gpu>/<id>/group") == "leader\n"
    one.grant.entity = one.grant.instance + 1
    before = one.state()
    for name in ("weight", "quota", "quota_min", "priority"):
        assert one.store(f"<gpu>/<id>/{name}", "1") == errno.EBUSY
    assert one.state() == before
    for entity in (one.grant.instance, one.grant.instance + 1):
        one.grant.entity = entity
        assert one.store("<gpu>/<id>/idle_park_s", "1") == errno.EBUSY
    assert one.state() == before
    assert one.store("<gpu>/<id>/idle_park_s", "0") == 0
    assert one.store("<gpu>/<id>/group", "other") == errno.EACCES
    assert one.store("<gpu>/<id>/memsize", str(2 * GIB)) == 0


def test_a_cards_size_can_be_told_once_when_the_driver_did_not() -> None:
    one = Host()
    one.view.minor = 1
    one.view.usage.used_bytes = 0
    one.host.card[1].allocated_bytes = 100
    before = one.state()
    for text, error in (
        ("total 0", errno.ERANGE),
        (f"total {2**64}", errno.ERANGE),
        ("total 99", errno.ENOSPC),
        ("total -1", errno.EINVAL),
        ("total", errno.EINVAL),
        ("free 200", errno.EINVAL),
        ("total 200 ", errno.EINVAL),
        ("total  200", errno.EINVAL),
        ("200", errno.EINVAL),
    ):
        assert one.store("<gpu>/memory", text) == error, text
        assert one.state() == before
    assert one.store("<gpu>/memory", "total 200\n") == 0
    assert one.show("<gpu>/memory") == "total 200\nreserved 0\nallocated 100\nused 0\nfree 100\n"
    assert one.store("<gpu>/memory", "total 300\n") == errno.EBUSY
    assert one.store("<gpu>/memory", "total 200\n") == errno.EBUSY


# ---- inst_ctl

RESERVED = (
    *("policy", "max_inst", "free_weight", "uuid", "memory", "timeslice_us", "stat"),
    "overcommit_ratio",
)
BOUNDS = {
    "weight": (0, 64),
    "quota": (0, 100),
    "quota_min": (0, 100),
    "priority": (0, 15),
    "uvm_disable": (0, 1),
    "idle_park_s": (0, 604800),
}


class Refused(Exception):
    """The errno's name."""


def reference_number(text: str, low: int = 0, high: int = 2**64 - 1) -> int:
    if not re.fullmatch("[0-9]+", text, re.ASCII):
        raise Refused("EINVAL")
    if not low <= int(text) <= high:
        raise Refused("ERANGE")
    return int(text)


def reference_id(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text) or text in RESERVED:
        raise Refused("EINVAL")
    return text


def reference_option(key: str, value: str) -> int:
    if key == "mem":
        return -1 if value == "max" else reference_number(value, low=MIB)
    if key == "policy":
        if value in model.POLICIES:
            return model.POLICIES.index(value)
        return reference_number(value, 0, len(model.POLICIES) - 1)
    if key == "oom_action":
        if value not in ("fail", "kill"):
            raise Refused("EINVAL")
        return ("fail", "kill").index(value)
    if key not in BOUNDS:
        raise Refused("EINVAL")
    return reference_number(value, *BOUNDS[key])


def reference_grant(text: str, grants: dict[int, Any]) -> None:
    first, *options = text.split(",")
    if text.endswith(","):
        raise Refused("EINVAL")
    minor = reference_number(first)
    if minor >= 32:
        raise Refused("ENODEV")
    if minor in grants:
        raise Refused("EINVAL")
    grant: dict[str, int] = {}
    grants[minor] = grant
    for option in options:
        key, _, value = option.partition("=")
        if key in grant:
            raise Refused("EINVAL")
        grant[key] = reference_option(key, value)
    if "mem" not in grant:
        raise Refused("EINVAL")
    if grant.get("quota") and grant.get("quota_min", 0) > grant["quota"]:
        raise Refused("ERANGE")


def reference_processes(text: str) -> list[int]:
    found: list[int] = []
    if text.endswith(","):
        raise Refused("EINVAL")
    for word in text.split(","):
        pid = reference_number(word, 1, 2**31 - 1)
        if pid in found:
            raise Refused("EINVAL")
        if len(found) == 64:
            raise Refused("E2BIG")
        found.append(pid)
    return found


def reference_move(step: str, words: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    foreign: dict[int, int] = {}
    for word in words:
        key, _, value = word.partition("=")
        if step == "park" and key == "pid" and "pids" not in said:
            said["pids"] = reference_processes(value)
        elif step == "park" and word == "hold=1" and "hold" not in said:
            said["hold"] = True
        elif step == "return" and key == "foreign":
            card, _, size = value.partition(":")
            minor = reference_number(card)
            if minor >= 32:
                raise Refused("ENODEV")
            if minor in foreign:
                raise Refused("EINVAL")
            foreign[minor] = reference_number(size)
        else:
            raise Refused("EINVAL")
    if step == "park" and "pids" not in said:
        raise Refused("EINVAL")
    return said | ({"foreign": foreign} if foreign else {})


STEPS = ("park", "parked", "return", "running", "no_room", "stay")


#: Of a group's server: which words each has beside `pid`, and which it may have.
FATES = {
    "started": (set(), set()),
    "ended": (set(), set()),
    "died": (set(), {"after"}),
    "lost": ({"member"}, {"after"}),
    "killed": ({"member"}, set()),
}


def reference_server(words: list[str]) -> dict[str, Any]:
    if not words or words[0] not in FATES:
        raise Refused("EINVAL")
    needs, may = FATES[words[0]]
    told: dict[str, Any] = {"fate": words[0]}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key in told or key not in {"pid", *needs, *may}:
            raise Refused("EINVAL")
        told[key] = reference_number(value, 1, 2**31 - 1) if key == "pid" else reference_id(value)
    if not {"pid", *needs} <= told.keys():
        raise Refused("EINVAL")
    return told


def reference(text: str) -> dict[str, Any]:
    """Return what a line says; raises `Refused` at its first fault from the left."""
    if len(text) > 4096:
        raise Refused("EINVAL")
    line = text.removesuffix("\n")
    verb, *words = line.split(" ")
    verbs = ("create", "destroy", "server", *STEPS)
    if line.endswith(" ") or verb not in verbs or not words:
        raise Refused("EINVAL")
    said: dict[str, Any] = {"verb": verb, "id": reference_id(words[0])}
    if verb == "destroy":
        if words[1:]:
            raise Refused("EINVAL")
        return said
    if verb == "server":
        return said | reference_server(words[1:])
    if verb in STEPS:
        return said | reference_move(verb, words[1:])
    grants: dict[int, dict[str, int]] = {}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key == "gpu":
            reference_grant(value, grants)
        elif key == "group":
            if "group" in said:
                raise Refused("EINVAL")
            said["group"] = reference_id(value)
        elif "pid" in said or "cgroup" in said:
            raise Refused("EINVAL")
        elif key == "pid":
            said["pid"] = reference_number(value, 1, 2**31 - 1)
        elif key == "cgroup":
            if not re.fullmatch(r"/[^\x00-\x1f\x7f]{0,1022}", value):
                raise Refused("EINVAL")
            said["cgroup"] = value
        else:
            raise Refused("EINVAL")
    if not ("pid" in said or "cgroup" in said) or not grants:
        raise Refused("EINVAL")
    return said | {"grants": grants}


def said(command: Any) -> dict[str, Any]:
    """What the core understood, in the reference's words."""
    create = command.create
    id = ffi.string(create.id).decode()
    if command.verb == lib.CGPU_VERB_DESTROY:
        return {"verb": "destroy", "id": id}
    if command.verb == lib.CGPU_VERB_SERVER:
        news = command.news
        told = {"fate": list(FATES)[news.fate], "pid": news.pid}
        ids = {key: ffi.string(getattr(news, key)).decode() for key in ("member", "after")}
        return {"verb": "server", "id": id} | told | {key: one for key, one in ids.items() if one}
    if command.verb == lib.CGPU_VERB_MOVE:
        move = command.move
        foreign = {n: size for n, size in enumerate(move.foreign_bytes) if move.told >> n & 1}
        moved: dict[str, Any] = {"verb": STEPS[move.step], "id": id}
        moved |= {"pids": list(move.pid[0 : move.count])} if move.count else {}
        moved |= {"hold": True} if move.hold else {}
        return moved | ({"foreign": foreign} if foreign else {})
    out: dict[str, Any] = {"verb": "create", "id": id}
    if create.pid:
        out["pid"] = create.pid
    if create.cgroup[0] != b"\0":
        out["cgroup"] = ffi.string(create.cgroup).decode("latin-1")
    if create.group[0] != b"\0":
        out["group"] = ffi.string(create.group).decode("latin-1")
    out["grants"] = {
        minor: {
            "mem": -1 if grant.unlimited else grant.mem_bytes,
            "weight": grant.weight if grant.weight_given else None,
            "quota": grant.quota,
            "quota_min": grant.quota_min,
            "priority": grant.priority,
            "policy": None if grant.policy_hint == lib.CGPU_POLICY_END else grant.policy_hint,
            "uvm_disable": int(grant.uvm_disable),
            "oom_action": grant.oom_action,
            "idle_park_s": grant.idle_park_s,
        }
        for minor, grant in enumerate(create.grant)
        if grant.present
    }
    return out


def with_defaults(line: dict[str, Any]) -> dict[str, Any]:
    absent = {"weight": None, "quota": 0, "quota_min": 0, "priority": 0, "policy": None}
    absent |= {"uvm_disable": 0, "oom_action": 0, "idle_park_s": 0}
    grants = {minor: absent | grant for minor, grant in line.get("grants", {}).items()}
    return line | {"grants": grants} if grants else line


def check(text: str) -> None:
    raw = text.encode("latin-1")
    try:
        want = with_defaults(reference(text))
    except Refused as refused:
        assert parse(raw) == (getattr(errno, str(refused)), None)
        return
    error, command = parse(raw)
    assert error == 0
    assert said(command) == want


def mostly(good: st.SearchStrategy[str], *bad: str) -> st.SearchStrategy[str]:
    """A good value, and once in a while a bad one (ends of ranges are drawn more often)."""
    return st.integers(0, 20).flatmap(lambda n: st.sampled_from(bad) if n == 11 else good)


numbers = st.integers(0, 110).map(str)
ids = mostly(
    st.text(string.ascii_letters + string.digits, min_size=1, max_size=64),
    *("", "-a", ".", "_x", "a/b", "a" * 65, "é", "..", "a..-_", *RESERVED, "a\n", "a\0"),
)
clauses = st.sampled_from(
    ["weight", "quota", "quota_min", "priority", "policy", "uvm_disable", "oom_action"]
    + ["idle_park_s"]
).flatmap(
    lambda key: st.tuples(
        mostly(st.just(key), "", "Mem", "memory", "cpu"),
        mostly(st.just("="), "", "=="),
        mostly(
            {
                "priority": st.integers(0, 16).map(str),
                "policy": st.integers(0, 9).map(str) | st.sampled_from(model.POLICIES),
                "uvm_disable": st.sampled_from(["0", "1"]),
                "oom_action": st.sampled_from(["fail", "kill"]),
                "weight": st.integers(0, 65).map(str),
            }.get(key, numbers),
            *("", "-1", "0", "max", "1 ", str(2**64), "2", "average", "kill\0", "1,"),
        ),
    ).map("".join)
)
identities = mostly(
    st.integers(1, 2**31).map("pid={}".format)
    | st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=30).map(
        "cgroup=/{}".format
    ),
    *("pid=0", "pid=", "pid", "cgroup=", "cgroup=a", "cgroup=/" + "x" * 1022),
    *("cgroup=/" + "x" * 1023, "cgroup=/a\tb", "cgroup=/a\x7f", "name=x"),
)
groups = mostly(ids.map("group={}".format), "group", "group=", "group=policy", "group=a group=a")
gpus = st.tuples(
    mostly(st.integers(0, 33).map(str), "", "a", "-1", str(2**64)),
    mostly(
        st.integers(1, 2**64 - 1).map(",mem={}".format),
        "",
        ",mem=max",
        ",mem=0",
        f",mem={MIB - 1}",
        ",",
    ),
    st.lists(clauses, max_size=3, unique_by=lambda one: one.partition("=")[0]).map(
        lambda found: "".join(f",{one}" for one in found)
    ),
).map(lambda parts: "gpu=" + "".join(parts))
lines = st.tuples(
    mostly(st.just("create "), "destroy ", "Create ", "create", "", " create "),
    ids,
    st.lists(identities, min_size=1, max_size=1)
    .flatmap(
        lambda one: st.lists(
            gpus, min_size=1, max_size=3, unique_by=lambda card: card.partition(",")[0]
        ).flatmap(lambda cards: st.permutations(one + cards))
    )
    .flatmap(lambda words: st.lists(groups, max_size=1).map(lambda more: [*more, *words]))
    .map(lambda words: "".join(f" {word}" for word in words)),
    mostly(st.sampled_from(["", "\n"]), " ", "\n\n", "  pid=1", " pid=1", "\r\n", "\0"),
).map("".join)


pid_lists = st.lists(st.integers(0, 2**31).map(str), max_size=70).map(",".join)
steps = st.tuples(
    st.sampled_from([*STEPS, "parks"]),
    mostly(st.just(" "), "", "  "),
    ids,
    st.lists(
        pid_lists.map(" pid={}".format)
        | st.builds(" foreign={}:{}".format, st.integers(0, 33), st.integers(0, 2**64))
        | st.sampled_from([" pid", " pid=", " pid=1,", " pid=7,7", " foreign=0", " gpu=0:1", " "])
        | st.sampled_from([" hold=1", " hold=1", " hold=0", " hold"]),
        max_size=3,
    ).map("".join),
    mostly(st.sampled_from(["", "\n"]), " ", ",", "\0"),
).map("".join)


@many
@given(steps)
@example("park a pid=1,2")
@example("park a pid=" + ",".join(map(str, range(1, 65))))
@example("park a pid=" + ",".join(map(str, range(1, 66))))
@example("park a")
@example("park a pid=1 pid=2")
@example("park a hold=1")
@example("park a hold=1 pid=1")
@example("park a pid=1 hold=1 hold=1")
@example("return a hold=1")
@example("parked a\n")
@example("parked a pid=1")
@example("return a")
@example("return a foreign=0:0 foreign=31:18446744073709551615\n")
@example("return a foreign=0:1 foreign=0:2")
@example("return a foreign=32:1")
@example("running a")
@example("no_room a")
@example("stay a")
@example("no_room a pid=1")
def test_a_step_of_a_move_is_read_as_the_grammar_says(line: Any) -> None:
    check(line)


news = st.builds(
    " ".join,
    st.tuples(
        st.just("server chat"),
        st.sampled_from([*FATES, "gone"]),
        st.lists(
            st.sampled_from(["pid=1", "pid=0", "pid=2147483648", "member=a", "after=b", "after=",
                             "member=stat", "group=a"]),
            max_size=4,
        ).map(" ".join),
    ),
)  # fmt: skip


@many
@given(news)
@example("server chat started pid=12")
@example("server chat died pid=12 after=b\n")
@example("server chat died after=b pid=12 pid=12")
@example("server chat lost pid=12 member=a after=b")
@example("server chat lost pid=12 after=b")
@example("server chat killed pid=12 member=a after=b")
@example("server chat")
@example("server")
def test_news_of_a_server_are_read_as_the_grammar_says(line: Any) -> None:
    check(line)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("started pid=12", "server_started id=chat group=chat pid=12"),
        ("ended pid=12", "server_ended id=chat group=chat pid=12"),
        ("died pid=12 after=b", "server_died id=chat group=chat pid=12 after=b"),
        ("lost pid=12 member=a", "server_lost id=a group=chat pid=12"),
        ("killed pid=77 member=a", "killed id=a group=chat pid=77 its MPS server has ended"),
        (
            f"lost pid=2147483647 member={'m' * 64} after={'a' * 64}",
            f"server_lost id={'m' * 64} group=chat pid=2147483647 after={'a' * 64}",
        ),
    ],
)
def test_news_of_a_server_are_told_as_the_page_says(command: str, line: str) -> None:
    error, parsed = parse(f"server chat {command}".encode())
    assert error == 0
    text = ffi.new("char[]", lib.CGPU_SERVER_LINE)
    lib.cgpu_server_line(ffi.addressof(parsed, "news"), parsed.create.id, text)
    assert ffi.string(text).decode() == line


@many
@given(lines)
@example("create a pid=1 gpu=0,mem=1048576")
@example("create a gpu=31,mem=max gpu=0,mem=1048576,policy=burst,oom_action=kill cgroup=/a=b/c\n")
@example("create a pid=1 gpu=0,mem=5242880,quota=10,quota_min=11")
@example("create a pid=1 gpu=0,quota_min=11,mem=5242880,quota=0")
@example("create a pid=1 gpu=32,mem=1048576")
@example("create a pid=1 gpu=0,mem=1048576 gpu=0,mem=2097152")
@example("create a pid=1 gpu=0,mem=1048576,mem=2097152")
@example("create a pid=1 cgroup=/x gpu=0,mem=1048576")
@example("create a pid=1 gpu=0,mem=1048576 group=a")
@example("create a group=b pid=1 group=b gpu=0,mem=1048576")
@example("create a pid=1 gpu=0,mem=1048576 group=stat")
@example("create a gpu=0,mem=1048576")
@example("create a pid=1")
@example("create a")
@example("destroy a")
@example("destroy a b")
@example("destroy ")
@example("destroy")
@example("")
@example("\n")
def test_a_command_is_read_as_the_grammar_says(line: Any) -> None:
    check(line)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_as_the_grammar_says(raw: Any) -> None:
    check(raw.decode("latin-1"))


@many
@given(lines, st.data())
def test_a_damaged_command_is_read_as_the_grammar_says(line: Any, data: Any) -> None:
    raw = bytearray(line.encode("latin-1", "replace"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        cut = data.draw(st.integers(0, 2))
        raw[at : at + cut] = data.draw(st.sampled_from([b"", b" ", b",", b"=", b"\n", b"\0", b"9"]))
    check(raw.decode("latin-1"))


def test_a_command_may_have_4096_bytes_and_no_more() -> None:
    line = "create a pid=1" + "".join(f" gpu={n},mem=1048576" for n in range(32))
    room, last = 4096 - len(line), str(MIB)
    line = line.removesuffix(last)
    check(line + "0" * room + last)
    assert parse(line + "0" * room + last)[0] == 0
    assert parse(line + "0" * (room - 1) + last + "\n")[0] == 0
    assert parse(line + "0" * room + last + "\n")[0] == errno.EINVAL
    assert parse(line + "0" * (room + 1) + last)[0] == errno.EINVAL


def test_all_cards_of_a_host_fit_into_one_command() -> None:
    longest = f"mem={2**64 - 1},weight=64,quota=100,quota_min=100,priority=15,uvm_disable=1"
    line = f"create {LONG_ID} pid=1" + "".join(f" gpu={n},{longest}" for n in range(32))
    error, command = parse(line)
    assert error == 0
    assert len(said(command)["grants"]) == 32


@pytest.mark.parametrize("name", RESERVED)
def test_a_container_cannot_take_the_place_of_a_cards_file(name: Any) -> None:
    assert parse(f"create {name} pid=1 gpu=0,mem=1048576")[0] == errno.EINVAL
    assert parse(f"create {name}2 pid=1 gpu=0,mem=1048576")[0] == 0
    assert parse(f"create {name[:-1]} pid=1 gpu=0,mem=1048576")[0] == 0


# ---- names of directories


@pytest.mark.parametrize("node", list(NODES))
def test_a_process_of_a_container_opens_what_is_its_own_and_nothing_of_others(node: str) -> None:
    opened = lib.cgpu_node_open
    assert opened(NODES[node], lib.CGPU_ASKER_HOST, False, False) == 0
    assert opened(NODES[node], lib.CGPU_ASKER_OWN, False, True) == 0
    public = node in ("version", "api_version", "features")
    assert opened(NODES[node], lib.CGPU_ASKER_OTHER, False, True) == (
        0 if public else -errno.EACCES
    )
    writable = lib.cgpu_node_table[NODES[node]].mode & 0o200
    refused = -errno.EPERM if writable else -errno.EACCES
    for asker in (lib.CGPU_ASKER_OWN, lib.CGPU_ASKER_OTHER):
        assert opened(NODES[node], asker, True, True) == refused
    assert opened(NODES[node], lib.CGPU_ASKER_HOST, True, False) == refused
    assert opened(NODES[node], lib.CGPU_ASKER_HOST, True, True) == (0 if writable else refused)


@given(
    st.text("0123456789abcdefABCDEF", min_size=63, max_size=64)
    | st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=64),
    st.integers(0, 70),
)
def test_only_a_full_digest_is_shortened(id: Any, digits: Any) -> None:
    out = ffi.new("char[]", b"\xa5" * 66)
    length = lib.cgpu_short_name(id.encode(), digits, out)
    digest = re.fullmatch("[0-9a-fA-F]{64}", id)
    want = id[: min(max(digits, 12), 64)] if digest else id
    assert ffi.string(out).decode() == want
    assert length == len(want)
    assert ffi.buffer(out)[length + 1 :] == (b"\xa5" * 66 + b"\0")[length + 1 :]


@pytest.mark.parametrize("state", ["running", "parking", "parked", "resuming"])
def test_a_container_that_moves_shows_what_it_has_left_and_what_is_reserved(state: str) -> None:
    one = Host()
    number = ["running", "parking", "parked", "resuming"].index(state)
    one.view.park_state = number
    assert "parked_bytes" not in one.show("<gpu>/<id>/stat")
    parking = ffi.new("struct cgpu_parking *", {"since_ns": 5, "asked_ns": 6, "moved_ns": 8})
    one.view.parking = parking
    one.account.parked_bytes, one.account.slack_bytes = 70, 7
    assert one.show("<gpu>/<id>/state") == f"{state}\n"
    reserved = 77 if state in ("parking", "resuming") else 0
    assert (
        f"parked_bytes 70\nreserved_bytes {reserved}\nstate_since_ns 5\nwaits_for_room 1\n"
        "moves_ns 8\n"
    ) in one.show("<gpu>/<id>/stat")
    assert "last_return_ns" not in one.show("<gpu>/<id>/stat")
    parking.return_ns = 3
    assert "moves_ns 8\nlast_return_ns 3\n" in one.show("<gpu>/<id>/stat")
    one.ledger.park_state = number
    one.ledger.account[0] = one.account[0]
    lib.cgpu_usage_add(ffi.addressof(one.view, "usage"), one.ledger, 0)
    shown = one.show("<gpu>/stat")
    assert ("parked_bytes 70\n" in shown) == (state == "parked")
    assert ("reserved_bytes 77\n" in shown) == bool(reserved)


def test_what_is_parked_counts_against_the_limit() -> None:
    one = Host()
    one.account.parked_bytes = GIB
    assert one.show("<gpu>/<id>/meminfo").startswith(f"Free: {2 * GIB}\n")
    assert one.store("<gpu>/<id>/memsize", str(2 * GIB - 1)) == errno.EBUSY
