# SPDX-License-Identifier: MIT
"""The OOM script: which events it answers, and where and as whom it runs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import CgpuError
from pycgpu.oci.confine import NOT_STARTED
from pycgpu.oci.log import HookLog
from pycgpu.oci.oom_watch import Watcher, parse_event, run_script

CID = "4f" * 32


def run_as(script: str, container_id: str, card: int, pid: int) -> int | None:
    """As process *pid* would have run it."""
    fd = os.pidfd_open(pid)
    try:
        return run_script(script, container_id, card, pid, confined_as=(pid, fd))
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (f"123 oom id={CID} gpu=2 pid=4711 bytes=4096", (2, 4711)),
        (f"123 oom id={'5' * 64} gpu=2 pid=4711 bytes=4096", None),
        (f"123 create id={CID}", None),
        (f"oom id={CID} gpu=2 pid=1", None),
        ("", None),
    ],
)
def test_only_the_containers_own_ooms_are_answered(line: Any, event: Any) -> None:
    assert parse_event(line, CID) == event


@pytest.mark.parametrize("line", ["gpu=x pid=1", "gpu=0 pid=", "gpu=0", "pid=1"])
def test_an_oom_that_cannot_be_read_is_an_error(line: Any) -> None:
    with pytest.raises(CgpuError, match="cannot read"):
        parse_event(f"1 oom id={CID} {line}", CID)


@pytest.fixture
def process() -> Iterator[Any]:
    process = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def script_at(tmp_path: Path, body: Any) -> str:
    path = tmp_path / "on_oom.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_script_learns_container_card_and_process(tmp_path: Path, process: Any) -> None:
    out = tmp_path / "out"
    script = script_at(tmp_path, f'echo "$CGPU_CONTAINER_ID $CGPU_GPU $CGPU_PID" > {out}; exit 3')
    assert run_as(script, CID, 2, process.pid) == 3
    assert out.read_text() == f"{CID} 2 {process.pid}\n"


NAMED = (
    "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\xff\\r\\x85Uid:\\t7');"
    " print(flush=True); time.sleep(60)"
)


def test_a_process_whose_name_is_no_text_is_answered_too(tmp_path: Path) -> None:
    """Else it would end the watcher, and whoever runs out of memory next is not killed."""
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-ISc", NAMED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            script = script_at(tmp_path, f"id -u > {out}")
            assert run_as(script, CID, 0, process.pid) == 0
        finally:
            process.kill()
    assert out.read_text() == f"{os.getuid()}\n"


def test_the_script_has_no_capability_and_cannot_gain_one(tmp_path: Path, process: Any) -> None:
    out = tmp_path / "out"
    script = script_at(tmp_path, f"grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status > {out}")
    assert run_as(script, CID, 0, process.pid) == 0
    values = {line.split()[0]: line.split()[1] for line in out.read_text().splitlines()}
    assert values == {
        "CapPrm:": "0" * 16,
        "CapEff:": "0" * 16,
        "CapBnd:": "0" * 16,
        "NoNewPrivs:": "1",
    }


def test_the_script_inherits_nothing_of_who_runs_it(tmp_path: Path, process: Any) -> None:
    """No file that an engine left open, no host's /dev/null, no signal that `nohup` ignores."""
    out = tmp_path / "out"
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    script = script_at(tmp_path, f"ls -l /proc/self/fd > {out}; stat -Lc %t:%T /proc/self/fd/0")
    left = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(left, True)
    Path(f"/proc/{process.pid}/oom_score_adj").write_text("500")
    try:
        assert run_as(script, CID, 0, process.pid) == 0
        links = [line.partition(" -> ")[2] for line in out.read_text().splitlines()[1:]]
        assert str(tmp_path) not in links, links
        # what is opened here is what the process finds there, in its own root
        assert links.count("/dev/null") == 2, links
        script = script_at(tmp_path, f"cat /proc/self/oom_score_adj > {out}")
        assert run_as(script, CID, 0, process.pid) == 0
        assert out.read_text() == "500\n"
        # Python ignores SIGPIPE, whose `yes | head` would never end
        script = script_at(tmp_path, f"grep -E 'Sig(Ign|Blk)' /proc/self/status > {out}")
        assert run_as(script, CID, 0, process.pid) == 0
        assert [int(line.split()[1], 16) for line in out.read_text().splitlines()] == [0, 0]
    finally:
        os.close(left)
        signal.signal(signal.SIGHUP, hang_up)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_a_number_that_is_another_process_by_now_confines_nothing(
    tmp_path: Path, process: Any
) -> None:
    ended = subprocess.Popen(["true"])
    fd = os.pidfd_open(ended.pid)
    ended.wait()
    try:
        script = script_at(tmp_path, "exit 0")
        status = run_script(script, CID, 0, process.pid, confined_as=(process.pid, fd))
        assert status == NOT_STARTED
    finally:
        os.close(fd)


def test_the_script_runs_in_the_namespaces_of_the_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = script_at(tmp_path, f"readlink /proc/self/ns/uts /proc/self/ns/ipc > {out}")
    process = subprocess.Popen(
        ["unshare", "--uts", "--ipc", "--", sys.executable, "-ISc", "import time; time.sleep(60)"]
    )
    try:
        deadline = time.monotonic() + 10
        own = os.stat("/proc/self/ns/ipc").st_ino
        while os.stat(f"/proc/{process.pid}/ns/ipc").st_ino == own:
            assert time.monotonic() < deadline
        assert run_as(script, CID, 0, process.pid) == 0
        assert out.read_text().split() == [
            os.readlink(f"/proc/{process.pid}/ns/{name}") for name in ("uts", "ipc")
        ]
    finally:
        process.kill()
        process.wait()


FILTERED = """
import ctypes, os, struct, time
libc = ctypes.CDLL(None)
# uname() fails with EPERM, everything else goes on: BPF of linux/filter.h
code = struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 63, 0x06, 0, 0, 0x50001,
                   0x06, 0, 0, 0x7FFF0000)
text = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))
libc.prctl(38, 1, 0, 0, 0)
assert libc.syscall(317, 1, 0, ctypes.byref(Program(4, ctypes.addressof(text)))) == 0
print("filtered", flush=True)
time.sleep(60)
"""


def test_the_script_has_the_seccomp_filters_of_the_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = script_at(tmp_path, f"grep Seccomp: /proc/self/status > {out}; uname || exit 7")
    process = subprocess.Popen(
        [sys.executable, "-ISc", FILTERED], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "filtered\n"
        assert run_as(script, CID, 0, process.pid) == 7
        assert out.read_text().split() == ["Seccomp:", "2"]
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("path", ["/proc/self/exe", "/proc/thread-self/exe", "/proc/1/exe"])
def test_a_script_that_would_be_the_hosts_own_program_is_not_run(process: Any, path: Any) -> None:
    assert run_as(path, CID, 0, process.pid) == NOT_STARTED


def test_neither_is_a_link_to_one(tmp_path: Path, process: Any) -> None:
    link = tmp_path / "link"
    link.symlink_to("/proc/self/exe")
    assert run_as(str(link), CID, 0, process.pid) == NOT_STARTED


def test_the_script_has_the_resource_limits_of_the_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = script_at(tmp_path, f"ulimit -c > {out}; ulimit -n >> {out}")
    process = subprocess.Popen(["sh", "-c", "ulimit -c 0; ulimit -n 123; echo up; exec sleep 60"],
                               stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert run_as(script, CID, 0, process.pid) == 0
        assert out.read_text().split() == ["0", "123"]
    finally:
        process.kill()
        process.wait()


def test_a_script_that_cannot_be_run_has_a_status_of_its_own(process: Any) -> None:
    assert run_as("/nonexistent", CID, 0, process.pid) == 126


def test_a_watcher_leaves_the_past_runs_the_script_once_and_ends_the_process(
    tmp_path: Path, process: Any
) -> None:
    init = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    root = tmp_path / "cgpu_km"
    root.mkdir()
    os.mkfifo(root / "events")
    out = tmp_path / "out"
    watcher = Watcher(
        CID,
        str(root),
        init.pid,
        True,
        script_at(tmp_path, f"echo once >> {out}"),
        HookLog((str(tmp_path / "log"),)),
    )
    with open(root / "events", "w") as events:
        line = f"1 oom id={CID} gpu=0 pid={process.pid} bytes=1\n"
        past = f"1 oom id={CID} gpu=0 pid={os.getpid()} bytes=1\n2 create id={CID}\n"
        events.write(past + "3 oom id=another gpu=0 pid=1 bytes=1\n" + line + line)
        events.flush()
        init.send_signal(signal.SIGKILL)
        watcher.watch()
    init.wait()
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert out.read_text() == "once\n"
    assert f"process {process.pid} is out of memory" in (tmp_path / "log").read_text()


def until_lines(path: Any, number: Any) -> None:
    deadline = time.monotonic() + 10
    while not path.exists() or len(path.read_text().splitlines()) < number:
        assert time.monotonic() < deadline


def test_an_id_that_is_used_again_begins_anew(tmp_path: Path, process: Any) -> None:
    """What was before its creation is forgotten, whichever read brings that line."""
    init = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    root = tmp_path / "cgpu_km"
    root.mkdir()
    os.mkfifo(root / "events")
    out = tmp_path / "out"
    script = script_at(tmp_path, f"echo $CGPU_GPU >> {out}")
    watcher = Watcher(CID, str(root), init.pid, False, script, HookLog((str(tmp_path / "log"),)))
    watching = threading.Thread(target=watcher.watch)
    with open(root / "events", "w") as events:

        def oom(card: Any) -> str:
            return f"1 oom id={CID} gpu={card} pid={process.pid} bytes=1\n"

        watching.start()
        events.write(oom(0))
        events.flush()
        until_lines(out, 1)
        events.write(oom(1) + f"2 create id={CID}\n" + oom(2))
        events.flush()
        until_lines(out, 2)
        init.kill()
        init.wait()
        watching.join(timeout=10)
    assert not watching.is_alive()
    assert out.read_text() == "0\n2\n"


ENDS = ["true"], ["sh", "-c", "kill -SEGV $$"], ["sh", "-c", "exec true"], ["sh", "-c", "true & "]


@pytest.mark.parametrize("program", ENDS, ids=["exits", "crashes", "execs", "forks"])
def test_a_process_that_ended_at_its_failed_allocation_gets_its_script_and_the_next_is_served(
    tmp_path: Path, process: Any, program: Any
) -> None:
    """It exits, crashes, becomes another program or leaves a child before anybody looks."""
    ended = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ended.wait()
    heard, told = os.pipe()
    init = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"], stderr=told)
    os.close(told)
    root = tmp_path / "cgpu_km"
    root.mkdir()
    os.mkfifo(root / "events")
    out = tmp_path / "out"
    script = script_at(tmp_path, f"echo $CGPU_PID >> {out}")
    watcher = Watcher(CID, str(root), init.pid, True, script, HookLog((str(tmp_path / "log"),)))
    with open(root / "events", "w") as events:
        for pid in (ended.pid, process.pid):
            events.write(f"1 oom id={CID} gpu=0 pid={pid} bytes=1\n")
        events.flush()
        watching = threading.Thread(target=watcher.watch)
        watching.start()
        assert process.wait(timeout=10) == -signal.SIGKILL
        with open(heard) as lines:
            # Before its init ends, whose standard error it is.
            said = [lines.readline().rstrip("\n") for _ in range(3)]
            init.kill()
            init.wait()
            watching.join(timeout=10)
            said += lines.read().splitlines()
    assert not watching.is_alive()
    assert out.read_text().split() == [str(ended.pid), str(process.pid)]
    assert said == [
        f"cgpu: process {ended.pid} is out of GPU memory on card 0",
        f"cgpu: process {process.pid} is out of GPU memory on card 0",
        f"cgpu: process {process.pid} is killed for it (SIGKILL)",
    ]
