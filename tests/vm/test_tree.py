# SPDX-License-Identifier: MIT
"""``/proc/cgpu_km`` as its users meet it: files, modes, texts, errnos, and the stream of events."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import output
from tests.vm.loaded import DEADLINE_S, SLOWNESS, until

pytestmark = pytest.mark.kernel("6.1", by_default=True)

ROOT = Path("/proc/cgpu_km")
CARD = {
    **dict.fromkeys(("policy", "max_inst", "memory", "timeslice_us", "overcommit_ratio"), 0o644),
    **dict.fromkeys(("free_weight", "uuid", "stat"), 0o444),
}
GRANT = {
    **dict.fromkeys(("memsize", "weight", "quota", "quota_min", "priority"), 0o644),
    **dict.fromkeys(("oom_action", "uvm_disable", "unknown", "idle_park_s"), 0o644),
    **dict.fromkeys(("id", "meminfo", "procs", "stat", "events", "cid", "group", "state"), 0o444),
}
TOP = {
    **dict.fromkeys(("version", "api_version", "features", "events", "parking"), 0o444),
    **dict.fromkeys(("inst_ctl", "upgrade"), 0o644),
}
DIGEST = "0123456789abcdef" * 4
RING_LINES = 512
MIB = 1 << 20
GIB = 1 << 30


class Member:
    """A process in a cgroup of its own, for a container to be made of."""

    def __init__(self, name: str, program: str = "import time; time.sleep(3600)") -> None:
        self._directory = Path(f"/sys/fs/cgroup/cgpu-tree-{name}")
        self._directory.mkdir()
        join = f"open('{self._directory}/cgroup.procs', 'w').write('0');"
        self.process = subprocess.Popen(
            [sys.executable, "-c", join + "print('in', flush=True);" + program],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert output(self.process).readline() == "in\n"

    @property
    def clause(self) -> str:
        return f"cgroup={self._directory}"

    def ask(self) -> str:
        """Let a program that waits for a line go on; return the line that it answers."""
        print(file=self.process.stdin, flush=True)
        return output(self.process).readline()

    def close(self) -> None:
        until(self._is_emptied, "an empty cgroup")
        self.process.communicate()
        self._directory.rmdir()

    def _is_emptied(self) -> bool:
        """5.10 has no ``cgroup.kill``."""
        members = (self._directory / "cgroup.procs").read_text().split()
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not members


@pytest.fixture
def member() -> Iterator[Callable[..., Member]]:
    """``member()`` starts a process in a new cgroup; both go at the test's end."""
    running: list[Member] = []
    numbers = itertools.count()

    def start(**options: str) -> Member:
        running.append(Member(f"{os.getpid()}-{next(numbers)}", **options))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def tree(sim: Any, km: Any) -> Iterator[Any]:
    """The module over two simulated cards; containers that a test leaves are destroyed."""
    sim(cards="t4,a100")
    cgpu = km(bridge=False)
    yield cgpu
    for id in os.listdir(ROOT / "container"):
        until(lambda id=id: destroyed(cgpu, id), f"destroying {id}")  # type: ignore[misc]  # bound in this round of the loop


def destroyed(cgpu: Any, id: str) -> bool:
    try:
        cgpu.destroy(id)
    except OSError as error:
        # EBUSY: its process is being killed; ENOENT: it was its last and all is gone.
        return error.errno == errno.ENOENT
    return True


def refusal(cgpu: Any, node: str, text: str | bytes) -> str:
    """Return the errno's name of one write, or '' if it was taken."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        descriptor = os.open(ROOT / node, os.O_WRONLY)
        try:
            assert os.write(descriptor, raw) == len(raw)
        finally:
            os.close(descriptor)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def snapshot() -> dict[str, str]:
    """Return the text of every file that is not a stream."""
    files = [path for path in ROOT.rglob("*") if path.is_file() and path != ROOT / "events"]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def modes(directory: Path) -> dict[str, int]:
    return {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in directory.iterdir()
        if path.is_file()
    }


def directories(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_dir()}


def drain(descriptor: int) -> list[str]:
    """Return the lines that are there, by a descriptor that does not block."""
    text = ""
    while True:
        try:
            text += os.read(descriptor, 4096).decode()
        except BlockingIOError:
            return text.splitlines()


# ---- files


@pytest.mark.kernel(by_default=True)
def test_directories_hold_exactly_the_documented_files(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create(DIGEST, member().clause, "gpu=0,mem=1073741824", "gpu=1,mem=max")
    assert modes(ROOT) == TOP
    assert directories(ROOT) == {"0", "1", "container"}
    for minor in ("0", "1"):
        assert modes(ROOT / minor) == CARD
        assert directories(ROOT / minor) == {DIGEST[:12]}
        assert modes(ROOT / minor / DIGEST[:12]) == GRANT
        assert modes(ROOT / "container" / DIGEST / minor) == GRANT
    assert modes(ROOT / "container" / DIGEST) == {"cid": 0o444}
    assert directories(ROOT / "container" / DIGEST) == {"0", "1"}


@pytest.mark.kernel(by_default=True)
def test_everything_belongs_to_root_and_nobody_else_may_write(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create("a", member().clause, "gpu=0,mem=max")
    for path in [ROOT, *ROOT.rglob("*")]:
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (0, 0), path
        assert not found.st_mode & 0o022, path


def test_a_new_container_shows_what_was_granted(tree: Any, member: Callable[..., Member]) -> None:
    one = member()
    tree.create(
        DIGEST,
        one.clause,
        "gpu=0,mem=1073741824,weight=3,quota=40,quota_min=5,priority=7,uvm_disable=1,"
        "oom_action=kill",
    )
    shown = {
        "id": "0\n",
        "memsize": "1073741824\n",
        "meminfo": "Free: 1073741824\n",
        "weight": "3\n",
        "quota": "40\n",
        "quota_min": "5\n",
        "priority": "7\n",
        "procs": "",
        "events": "oom 0\nrefused 0\n",
        "oom_action": "kill\n",
        "uvm_disable": "1\n",
        "unknown": "refuse\n",
        "cid": f"{DIGEST}\n",
    }
    for directory in (f"0/{DIGEST[:12]}", f"container/{DIGEST}/0"):
        for name, text in shown.items():
            assert tree.read(f"{directory}/{name}") == text, name
        assert tree.read(f"{directory}/stat").startswith(
            "current_bytes 0\npeak_bytes 0\nmax_bytes 1073741824\nunlimited 0\noom 0\nrefused 0\n"
        )
    assert tree.read(f"container/{DIGEST}/cid") == f"{DIGEST}\n"
    assert tree.read("0/free_weight") == "17\n"
    assert "allocated 1073741824\n" in tree.read("0/memory")
    assert tree.read("0/stat").startswith(
        "containers 1\nweight_sum 3\nallocated_bytes 1073741824\nused_bytes 0\npolicy_by_hand 0\n"
    )
    tree.destroy(DIGEST)
    assert tree.read("0/free_weight") == "20\n"
    assert "allocated 0\n" in tree.read("0/memory")


def test_the_cards_are_the_drivers(tree: Any) -> None:
    for minor in ("0", "1"):
        assert re.fullmatch(
            r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n", tree.read(f"{minor}/uuid")
        )
        words = [line.split(" ") for line in tree.read(f"{minor}/memory").splitlines()]
        assert [key for key, _ in words] == ["total", "reserved", "allocated", "used", "free"]
        memory = {key: int(value) for key, value in words}
        assert memory["total"] > GIB
        assert memory["free"] == memory["total"] - memory["reserved"]
    assert tree.read("0/uuid") != tree.read("1/uuid")


def test_the_top_says_what_this_is(tree: Any) -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\S*\n", tree.read("version"))
    assert tree.read("api_version") == "1\n"
    assert {"pid", "cgroup", "events"} <= set(tree.read("features").splitlines())
    assert tree.read("inst_ctl").startswith("create <id> ")


def test_a_text_is_read_whole_in_small_pieces(tree: Any) -> None:
    descriptor = os.open(ROOT / "inst_ctl", os.O_RDONLY)
    pieces = iter(lambda: os.read(descriptor, 7), b"")
    assert b"".join(pieces).decode() == tree.read("inst_ctl")
    os.lseek(descriptor, 0, os.SEEK_SET)
    assert os.read(descriptor, 6) == b"create"
    os.close(descriptor)


def test_every_one_of_many_processes_is_listed(tree: Any, member: Callable[..., Member]) -> None:
    count = 200
    one = member(
        program="import os, sys, time\n"
        "sys.stdin.readline()\n"
        "inner, outer = os.pipe()\n"
        f"for _ in range({count}):\n"
        "    if not os.fork():\n"
        "        os.open('/dev/nvidia0', os.O_RDWR)\n"
        "        os.write(outer, b'x')\n"
        "        time.sleep(3600)\n"
        f"for _ in range({count}): os.read(inner, 1)\n"
        "print('open', flush=True)\n"
        "time.sleep(3600)\n"
    )
    tree.create("a", one.clause, "gpu=0,mem=max")
    assert one.ask() == "open\n"
    lines = [line.split(" ", 3) for line in tree.read("0/a/procs").splitlines()]
    pids = [int(words[0]) for words in lines]
    assert len(pids) == count and pids == sorted(set(pids))
    comm = Path(f"/proc/{one.process.pid}/comm").read_text().rstrip("\n")
    assert [words[1:] for words in lines] == [[str(pid), "0", comm] for pid in pids]
    free, *held = tree.read("0/a/meminfo").splitlines()
    assert free.startswith("Free: ")
    assert held == [f"PID: {pid} Mem: 0" for pid in pids]


# ---- inst_ctl


@pytest.mark.parametrize("other", ["", " gpu=1,mem=1073741824"], ids=["alone", "beside"])
def test_a_bad_create_has_its_errno_and_changes_nothing(
    tree: Any, member: Callable[..., Member], other: Any
) -> None:
    here, taken = member(), member()
    tree.create("taken", taken.clause, "gpu=0,mem=1073741824,weight=15")
    before = snapshot()
    good = f"{here.clause}{other} gpu=0,mem=1048576"
    for line, error in {
        "": "EINVAL",
        "create": "EINVAL",
        "create a": "EINVAL",
        "make a pid=1 gpu=0,mem=1048576": "EINVAL",
        f"create -a {good}": "EINVAL",
        f"create {'a' * 65} {good}": "EINVAL",
        f"create policy {good}": "EINVAL",
        f"create ../a {good}": "EINVAL",
        f"create a {here.clause}": "EINVAL",
        f"create a{other} gpu=0,mem=1048576": "EINVAL",
        f"create a {here.clause} pid=1 gpu=0,mem=1048576": "EINVAL",
        f"create a {good} gpu=0,mem=1048576": "EINVAL",
        f"create a {good},mem=1048576": "EINVAL",
        f"create a {good},": "EINVAL",
        f"create a {good},colour=red": "EINVAL",
        f"create a {good},oom_action=maim": "EINVAL",
        f"create a {good} ": "EINVAL",
        f"create a {good}\n\n": "EINVAL",
        f"create a {good}\0": "EINVAL",
        f"create a {here.clause}{other} gpu=0": "EINVAL",
        f"create a {here.clause}{other} gpu=0,mem=1G": "EINVAL",
        f"create a {here.clause}{other} gpu=0,mem=-1": "EINVAL",
        f"create a {here.clause}{other} gpu=0,mem=0": "ERANGE",
        f"create a {here.clause}{other} gpu=0,mem={2**64}": "ERANGE",
        f"create a {good},weight=65": "ERANGE",
        f"create a {good},quota=101": "ERANGE",
        f"create a {good},quota=10,quota_min=11": "ERANGE",
        f"create a {good},priority=16": "ERANGE",
        f"create a {good},policy=10": "ERANGE",
        f"create a {good},uvm_disable=2": "ERANGE",
        "create a pid=0 gpu=0,mem=1048576": "ERANGE",
        f"create a pid={2**31} gpu=0,mem=1048576": "ERANGE",
        f"create a pid={2**22}{other} gpu=0,mem=1048576": "ESRCH",
        f"create a cgroup=/sys/fs/cgroup/not-there{other} gpu=0,mem=1048576": "ENOENT",
        f"create a cgroup=/tmp{other} gpu=0,mem=1048576": "EINVAL",
        f"create a cgroup=/sys/fs/cgroup{other} gpu=0,mem=1048576": "EINVAL",
        f"create a pid=1{other} gpu=0,mem=1048576": "EINVAL",
        f"create a {good} gpu=7,mem=1048576": "ENODEV",
        f"create a {good} gpu=32,mem=1048576": "ENODEV",
        f"create taken {good}": "EEXIST",
        f"create a {here.clause}{other} gpu=0,mem={2**63}": "ENOSPC",
        f"create a {good},weight=6": "ENOSPC",
    }.items():
        assert refusal(tree, "inst_ctl", line) == error, line
        assert snapshot() == before, line
    assert refusal(tree, "inst_ctl", f"create a {good}\n") == ""


def test_a_command_longer_than_4096_bytes_is_refused(
    tree: Any, member: Callable[..., Member]
) -> None:
    one = member()
    line = f"create a {one.clause} gpu=0,mem="
    assert refusal(tree, "inst_ctl", line + str(MIB).zfill(4097 - len(line))) == "EINVAL"
    assert directories(ROOT / "container") == set()
    assert refusal(tree, "inst_ctl", line + str(MIB).zfill(4096 - len(line))) == ""
    assert tree.read("0/a/memsize") == "1048576\n"


def test_max_inst_containers_fit_and_no_more(tree: Any, member: Callable[..., Member]) -> None:
    tree.write("0/max_inst", "2")
    for id in ("a", "b"):
        tree.create(id, member().clause, "gpu=0,mem=1048576")
    one = member()
    assert (
        refusal(tree, "inst_ctl", f"create c {one.clause} gpu=0,mem=1048576 gpu=1,mem=1048576")
        == "ENOSPC"
    )
    assert directories(ROOT / "1") == set()
    assert refusal(tree, "0/max_inst", "1") == "EBUSY"
    tree.destroy("a")
    tree.create("c", one.clause, "gpu=0,mem=1048576")
    assert tree.read("0/c/id") == "0\n"


def test_a_container_that_holds_the_card_is_busy(tree: Any, member: Callable[..., Member]) -> None:
    one = member(
        program="import os,sys; sys.stdin.readline(); f=os.open('/dev/nvidia0', os.O_RDWR);"
        "print('open', flush=True); sys.stdin.readline(); os.close(f);"
        "print('shut', flush=True); sys.stdin.readline()"
    )
    tree.create("a", one.clause, "gpu=0,mem=max")
    assert one.ask() == "open\n"
    comm = Path(f"/proc/{one.process.pid}/comm").read_text()
    assert tree.read("0/a/procs") == f"{one.process.pid} {one.process.pid} 0 {comm}"
    assert tree.read("0/a/meminfo").endswith(f"\nPID: {one.process.pid} Mem: 0\n")
    before = snapshot()
    assert refusal(tree, "inst_ctl", "destroy a") == "EBUSY"
    assert snapshot() == before
    assert one.ask() == "shut\n"
    assert tree.read("0/a/procs") == ""
    assert refusal(tree, "inst_ctl", "destroy a") == ""


def test_a_bad_destroy_has_its_errno_and_changes_nothing(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1048576")
    before = snapshot()
    for line, error in {
        "destroy": "EINVAL",
        "destroy ": "EINVAL",
        "destroy a ": "EINVAL",
        "destroy a b": "EINVAL",
        "destroy A": "ENOENT",
        "destroy aa": "ENOENT",
    }.items():
        assert refusal(tree, "inst_ctl", line) == error, line
        assert snapshot() == before
    assert refusal(tree, "inst_ctl", "destroy a\n") == ""
    assert refusal(tree, "inst_ctl", "destroy a\n") == "ENOENT"
    assert directories(ROOT / "0") == directories(ROOT / "container") == set()


def test_a_container_is_destroyed_by_its_directorys_name_too(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create(DIGEST, member().clause, "gpu=0,mem=1048576")
    assert refusal(tree, "inst_ctl", f"destroy {DIGEST[:11]}") == "ENOENT"
    assert refusal(tree, "inst_ctl", f"destroy {DIGEST[:12]}") == ""
    assert directories(ROOT / "container") == set()


def test_directories_of_ids_with_the_same_beginning_have_more_digits(
    tree: Any, member: Callable[..., Member]
) -> None:
    other = DIGEST[:20] + "0" * 44
    tree.create(DIGEST, member().clause, "gpu=0,mem=1048576")
    tree.create(other, member().clause, "gpu=0,mem=1048576")
    tree.create("a", member().clause, "gpu=0,mem=1048576")
    assert directories(ROOT / "0") == {DIGEST[:12], other[:13], "a"}
    assert tree.read(f"0/{other[:13]}/cid") == f"{other}\n"


def test_an_id_that_is_anothers_directory_is_refused(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create(DIGEST, member().clause, "gpu=0,mem=1048576")
    before = snapshot()
    one = member()
    assert (
        refusal(tree, "inst_ctl", f"create {DIGEST[:12]} {one.clause} gpu=0,mem=1048576")
        == "EEXIST"
    )
    assert snapshot() == before


# ---- values


def test_a_bad_value_has_its_errno_and_changes_nothing(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1073741824,weight=3,quota=50,quota_min=10")
    tree.create("b", member().clause, "gpu=0,mem=1048576,weight=2")
    before = snapshot()
    numbers = ["0/policy", "0/max_inst", "0/timeslice_us", "0/overcommit_ratio"]
    numbers += [f"0/a/{name}" for name in ("memsize", "weight", "quota", "quota_min", "priority")]
    numbers += ["0/a/uvm_disable", "container/a/0/weight"]
    cases: list[tuple[str, str | bytes, str]] = [
        (node, text, "EINVAL")
        for node in numbers
        for text in (b"", b"\n", b"x", b"-1", b"+1", b" 1", b"1 ", b"1\n\n", b"1\0", b"1" * 65)
    ]
    cases += [(node, str(2**64), "ERANGE") for node in numbers]
    cases += [
        ("0/policy", "10", "ERANGE"),
        ("0/policy", "fair", "EINVAL"),
        ("0/max_inst", "0", "ERANGE"),
        ("0/max_inst", "65", "ERANGE"),
        ("0/max_inst", "1", "EBUSY"),
        ("0/max_inst", "4", "EBUSY"),
        ("0/timeslice_us", "999", "ERANGE"),
        ("0/timeslice_us", "1000001", "ERANGE"),
        ("0/overcommit_ratio", "99", "ERANGE"),
        ("0/overcommit_ratio", "1001", "ERANGE"),
        ("0/memory", "total 1099511627776", "EBUSY"),
        ("0/memory", "1099511627776", "EINVAL"),
        ("0/a/memsize", "0", "ERANGE"),
        ("0/a/memsize", "1", "ERANGE"),
        ("0/a/memsize", "1048575", "ERANGE"),
        ("0/a/memsize", str(2**63), "ENOSPC"),
        ("0/a/memsize", "max", "EINVAL"),
        ("0/a/weight", "65", "ERANGE"),
        ("0/a/weight", "19", "ENOSPC"),
        ("0/a/quota", "101", "ERANGE"),
        ("0/a/quota", "9", "ERANGE"),
        ("0/a/quota_min", "51", "ERANGE"),
        ("0/a/priority", "16", "ERANGE"),
        ("0/a/uvm_disable", "2", "ERANGE"),
        ("0/a/oom_action", "maim", "EINVAL"),
        ("0/a/oom_action", "", "EINVAL"),
    ]
    for node, text, error in cases:
        assert refusal(tree, node, text) == error, (node, text)
    assert snapshot() == before


def test_what_is_read_can_be_written_back(tree: Any, member: Callable[..., Member]) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1073741824,quota=50", "gpu=1,mem=max")
    before = snapshot()
    for name, text in before.items():
        path = ROOT / name
        if path.stat().st_mode & 0o200 and path.name not in ("inst_ctl", "memory", "upgrade"):
            assert refusal(tree, name, text) == "", name
    after = snapshot()
    changed = {name for name in before if before[name] != after[name]}
    # the policy is the same, but now it is somebody's own
    assert changed == {"0/stat", "1/stat"}


def test_both_views_of_a_container_are_the_same(tree: Any, member: Callable[..., Member]) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1073741824", "gpu=1,mem=1048576")
    tree.write("0/a/weight", "4\n")
    tree.write("container/a/1/priority", "9")
    assert tree.read("container/a/0/weight") == "4\n"
    assert tree.read("1/a/priority") == "9\n"
    assert tree.read("0/a/priority") == "0\n"
    assert tree.read("0/free_weight") == "16\n"
    tree.write("0/policy", "burst")
    assert tree.read("0/policy") == "8\n"
    assert tree.read("1/policy") == "7\n"


def test_a_hint_gives_way_to_a_policy_set_by_hand(tree: Any, member: Callable[..., Member]) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1048576,policy=2", "gpu=1,mem=1048576,policy=2")
    assert (tree.read("0/policy"), tree.read("1/policy")) == ("2\n", "2\n")
    tree.write("0/policy", "3")
    assert destroyed(tree, "a")
    tree.create("b", member().clause, "gpu=0,mem=1048576,policy=8", "gpu=1,mem=1048576,policy=8")
    assert (tree.read("0/policy"), tree.read("1/policy")) == ("3\n", "8\n")


def test_a_card_that_did_not_answer_is_asked_again_for_its_first_container(
    sim: Any, km: Any, member: Callable[..., Member]
) -> None:
    sim(cards="t4,a100")
    fault = Path("/sys/module/nvidia/parameters/fault")
    # of the module's questions about the first card, the first RM control
    fault.write_text("argument 2a\n")
    cgpu = km(bridge=False)
    assert fault.read_text().strip() == ""
    assert "total 0\n" in cgpu.read("0/memory")
    assert "total 0\n" not in cgpu.read("1/memory")
    assert refusal(cgpu, "inst_ctl", f"create a {member().clause} gpu=0,mem={1 << 40}") == "ENOSPC"
    assert "total 0\n" not in cgpu.read("0/memory")
    cgpu.create("a", member().clause, "gpu=0,mem=1048576")
    assert destroyed(cgpu, "a")


def test_root_itself_cannot_open_a_read_only_file_for_writing(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1048576")
    for path in ROOT.rglob("*"):
        if path.is_file() and not path.stat().st_mode & 0o200:
            with pytest.raises(PermissionError):
                os.open(path, os.O_WRONLY)


def test_what_is_not_there_is_not_created_by_writing_it(
    tree: Any, member: Callable[..., Member]
) -> None:
    tree.create("a", member().clause, "gpu=0,mem=1048576")
    for name in ("0/a/none", "0/none", "none", "0/none/weight"):
        with pytest.raises(FileNotFoundError):
            (ROOT / name).write_text("1")


@pytest.mark.kernel(by_default=True)
def test_root_without_the_hosts_capability_may_only_read(tree: Any) -> None:
    program = (
        "import errno,os\n"
        f"os.read(os.open('{ROOT}/0/policy', os.O_RDONLY), 9)\n"
        "for name in ('inst_ctl', '0/policy'):\n"
        f"    try: os.open('{ROOT}/' + name, os.O_WRONLY)\n"
        "    except OSError as e: print(errno.errorcode[e.errno])\n"
    )
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    run = subprocess.run([*drop, sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("EPERM\nEPERM\n", "")


@pytest.mark.kernel(by_default=True)
def test_a_process_of_a_container_may_not_write_whatever_its_capabilities(
    tree: Any, member: Callable[..., Member]
) -> None:
    one = member(
        program="import errno,os,sys\n"
        "sys.stdin.readline()\n"
        "for name in ('inst_ctl', '0/policy', '0/a/memsize'):\n"
        f"    try: os.open('{ROOT}/' + name, os.O_WRONLY)\n"
        "    except OSError as e: print(errno.errorcode[e.errno], end=' ')\n"
        "print(flush=True)\n"
        "sys.stdin.readline()\n"
    )
    tree.create("a", one.clause, "gpu=0,mem=1048576")
    assert one.ask() == "EPERM EPERM EPERM \n"


# ---- lifetime


@pytest.mark.kernel(by_default=True)
def test_an_open_file_of_a_destroyed_container_is_dead(
    tree: Any, member: Callable[..., Member]
) -> None:
    one = member()
    tree.create("a", one.clause, "gpu=0,mem=1048576,weight=3")
    reader = os.open(ROOT / "0/a/weight", os.O_RDONLY)
    writer = os.open(ROOT / "container/a/0/weight", os.O_WRONLY)
    assert os.read(reader, 9) == b"3\n"
    tree.destroy("a")
    with pytest.raises(OSError):
        os.write(writer, b"5")
    with pytest.raises(OSError):
        os.pread(reader, 9, 0)
    tree.create("a", one.clause, "gpu=0,mem=1048576,weight=2")
    with pytest.raises(OSError):
        os.write(writer, b"5")
    assert tree.read("0/a/weight") == "2\n"
    os.close(reader)
    os.close(writer)


# Reads, or lists, into a page that userfaultfd(2) is asked for and nobody brings.
STUCK = """
import ctypes, fcntl, mmap, os, stat, struct, sys
SYS_userfaultfd, SYS_getdents64 = 323, 217
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall(SYS_userfaultfd, 0)
fcntl.ioctl(faults, UFFDIO_API, bytearray(struct.pack('<QQQ', 0xAA, 0, 0)))
page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
missing = struct.pack('<QQQQ', at, mmap.PAGESIZE, 1, 0)
fcntl.ioctl(faults, UFFDIO_REGISTER, bytearray(missing))
file = os.open(sys.argv[1], os.O_RDONLY)
if stat.S_ISDIR(os.fstat(file).st_mode):
    libc.syscall(SYS_getdents64, file, ctypes.c_void_p(at), mmap.PAGESIZE)
else:
    os.readv(file, [page])
"""


@pytest.fixture
def stuck() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """``stuck(path)`` returns a process that is inside reading *path*; killed after."""
    running: list[subprocess.Popen[bytes]] = []

    def start(path: Path) -> subprocess.Popen[bytes]:
        one = subprocess.Popen([sys.executable, "-c", STUCK, str(path)])
        running.append(one)
        stack = Path(f"/proc/{one.pid}/stack")
        until(lambda: "handle_userfault" in stack.read_text(), f"a reader stuck in {path}")
        return one

    yield start
    for one in running:
        one.kill()
        one.wait()


def ends(work: Callable[[], None], release: subprocess.Popen[bytes]) -> bool:
    """Return whether *work* ends; if not, *release* is killed so that it does after all."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10 * SLOWNESS)
    in_time = not thread.is_alive()
    if not in_time:
        release.kill()
        thread.join()
    return in_time


@pytest.mark.kernel(by_default=True)
@pytest.mark.parametrize("name", ["0/a/meminfo", "container/a/0/weight", "container/a/cid"])
def test_who_reads_without_an_end_does_not_keep_a_container_from_going(
    tree: Any, member: Callable[..., Member], stuck: Any, name: str
) -> None:
    """Its page never comes: whoever waited for it would wait for ever, and others for that one."""
    one = member()
    tree.create("a", one.clause, "gpu=0,mem=1048576")
    reader = stuck(ROOT / name)
    assert ends(lambda: tree.destroy("a"), reader)
    assert ends(lambda: tree.create("a", one.clause, "gpu=0,mem=2097152"), reader)
    assert tree.read("0/a/memsize") == "2097152\n"
    reader.kill()
    reader.wait()
    assert tree.read("0/a/memsize") == "2097152\n"


@pytest.mark.kernel(by_default=True)
@pytest.mark.parametrize("name", ["upgrade", "version", "0/policy", "container", "0"])
def test_unloading_is_refused_while_somebody_reads_and_does_not_wait(
    tree: Any, stuck: Any, name: str
) -> None:
    reader = stuck(ROOT / name)
    refused: list[str] = []

    def unload() -> None:
        try:
            tree.unload()
        except OSError as error:
            refused.append(str(error))

    assert ends(unload, reader)
    assert "in use" in refused[0]
    reader.kill()
    reader.wait()
    tree.unload()
    tree.load()


@pytest.mark.vm(smp=2)
def test_reading_and_writing_while_containers_come_and_go(
    tree: Any, member: Callable[..., Member]
) -> None:
    one, two = member(), member()
    stop = threading.Event()
    unexpected: list[str] = []
    allowed = {errno.ENOENT, errno.ENODEV, errno.EIO, errno.ENOSPC, errno.EBUSY}

    def hammer() -> None:
        while not stop.is_set():
            try:
                snapshot()
                tree.write("0/a/weight", "2")
            except OSError as error:
                if error.errno not in allowed:
                    unexpected.append(str(error))
                    return

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            tree.create("a", one.clause, "gpu=0,mem=1048576", "gpu=1,mem=1048576")
            tree.create(DIGEST, two.clause, "gpu=1,mem=1048576")
            tree.destroy("a")
            tree.destroy(DIGEST)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert unexpected == []
    assert directories(ROOT / "0") == directories(ROOT / "container") == set()
    assert tree.read("0/free_weight") == "20\n"


# ---- events


@pytest.fixture
def events(tree: Any) -> Iterator[Callable[..., int]]:
    """``events()`` opens the stream without blocking; closed at the test's end."""
    opened: list[int] = []

    def start(flags: int = os.O_NONBLOCK) -> int:
        opened.append(os.open(ROOT / "events", os.O_RDONLY | flags))
        return opened[-1]

    yield start
    for descriptor in opened:
        os.close(descriptor)


def without_time(lines: list[str]) -> list[str]:
    return [line.partition(" ")[2] for line in lines]


def test_events_tell_what_happened_in_order(
    tree: Any, member: Callable[..., Member], events: Callable[..., int]
) -> None:
    stream = events()
    drain(stream)
    tree.create("a", member().clause, "gpu=0,mem=1048576")
    tree.write("0/a/weight", "4\n")
    tree.write("container/a/0/quota", "30")
    tree.write("1/policy", "weak")
    with pytest.raises(OSError):
        tree.write("1/policy", "strong")
    tree.destroy("a")
    lines = drain(stream)
    assert without_time(lines) == [
        "create id=a",
        "set 0/a/weight 4",
        "set 0/a/quota 30",
        "set 1/policy weak",
        "destroy id=a",
    ]
    times = [int(line.split()[0]) for line in lines]
    assert times == sorted(times) and len(str(times[0])) == 19


def test_a_process_of_the_hosts_namespace_is_refused_with_the_reason(
    tree: Any, events: Callable[..., int]
) -> None:
    stream = events()
    drain(stream)
    assert refusal(tree, "inst_ctl", "create a pid=1 gpu=0,mem=1048576") == "EINVAL"
    assert without_time(drain(stream)) == [
        "refused id=a create pid=1 is in the host's pid namespace: name its cgroup"
    ]


@pytest.mark.kernel(by_default=True)
def test_events_can_be_polled(tree: Any, events: Callable[..., int]) -> None:
    stream = events()
    drain(stream)
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    epoll = select.epoll()
    epoll.register(stream, select.EPOLLIN)
    assert poll.poll(0) == []
    assert epoll.poll(0) == []
    tree.write("0/policy", "1")
    assert poll.poll(0) == [(stream, select.POLLIN)]
    assert epoll.poll(0) == [(stream, select.EPOLLIN)]
    assert without_time(drain(stream)) == ["set 0/policy 1"]
    assert poll.poll(0) == []
    epoll.close()


@pytest.mark.kernel(by_default=True)
def test_a_sleeping_reader_and_a_sleeping_poller_are_woken(
    tree: Any, events: Callable[..., int]
) -> None:
    reading, polling = events(0), events()
    drain_blocking = os.read(reading, 65536)
    drain(polling)
    woken: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda: woken.update(read=os.read(reading, 4096))),
        threading.Thread(target=lambda: woken.update(select=select.select([polling], [], [])[0])),
    ]
    assert drain_blocking
    for thread in threads:
        thread.start()
    tree.write("0/policy", "2")
    for thread in threads:
        thread.join(DEADLINE_S * SLOWNESS)
    assert woken["read"].decode().endswith(" set 0/policy 2\n")
    assert woken["select"] == [polling]


def test_a_read_gives_whole_lines_and_a_buffer_too_small_for_one_is_refused(
    tree: Any, events: Callable[..., int]
) -> None:
    stream = events()
    drain(stream)
    for number in (1, 2, 3):
        tree.write("0/policy", str(number))
    with pytest.raises(OSError) as refused:
        os.read(stream, 10)
    assert refused.value.errno == errno.EINVAL
    # a line is 19 digits, a space and "set 0/policy N\n"
    assert without_time(os.read(stream, 80).decode().splitlines()) == [
        "set 0/policy 1",
        "set 0/policy 2",
    ]
    assert without_time(drain(stream)) == ["set 0/policy 3"]


def test_every_reader_has_its_own_position_and_a_new_one_begins_at_the_oldest(
    tree: Any, events: Callable[..., int]
) -> None:
    one = events()
    tree.write("0/policy", "1")
    assert without_time(drain(one))[-1] == "set 0/policy 1"
    assert without_time(drain(events()))[-1] == "set 0/policy 1"
    assert drain(one) == []


def test_a_slow_reader_and_a_late_one_are_told_how_many_lines_they_lost(
    tree: Any, events: Callable[..., int]
) -> None:
    slow = events()
    seen = len(drain(slow))
    for number in range(RING_LINES + 100):
        tree.write("1/timeslice_us", str(1000 + number))
    last = [f"set 1/timeslice_us {1000 + 100 + number}" for number in range(RING_LINES)]
    assert without_time(drain(slow)) == ["lost 100", *last]
    assert drain(slow) == []
    assert without_time(drain(events())) == [f"lost {seen + 100}", *last]


def test_events_cannot_be_written_or_moved_in(tree: Any, events: Callable[..., int]) -> None:
    stream = events()
    with pytest.raises(OSError) as refused:
        os.lseek(stream, 0, os.SEEK_SET)
    assert refused.value.errno == errno.ESPIPE
    with pytest.raises(PermissionError):
        os.open(ROOT / "events", os.O_RDWR)


@pytest.mark.kernel(by_default=True)
def test_the_module_stays_while_somebody_reads_events(
    tree: Any, events: Callable[..., int]
) -> None:
    stream = events()
    with pytest.raises(OSError, match="in use"):
        tree.unload()
    assert tree.read("api_version") == "1\n"
    assert drain(stream) is not None


def test_a_card_in_mig_mode_takes_no_container_until_it_has_left_it(
    tree: Any, member: Callable[..., Member]
) -> None:
    """Nothing tells of the change: the module asks for a card's first container."""
    mode = Path("/sys/module/nvidia/parameters/mig")
    create = f"create mig {member().clause} gpu=1,mem={MIB}"
    assert "mig 0\n" in (ROOT / "0/stat").read_text()
    try:
        mode.write_text("2")
        assert refusal(tree, "inst_ctl", create) == "ENXIO"
        assert "mig 0\n" in (ROOT / "0/stat").read_text()
        assert "mig 1\n" in (ROOT / "1/stat").read_text()
        assert not os.listdir(ROOT / "container")
    finally:
        mode.write_text("0")
    assert refusal(tree, "inst_ctl", create) == ""
    assert "mig 0\n" in (ROOT / "1/stat").read_text()
