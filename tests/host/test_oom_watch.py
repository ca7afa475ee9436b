# SPDX-License-Identifier: MIT
"""The OOM script: which events it answers, and where and as whom it runs."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pycgpu.errors import CgpuError
from pycgpu.hook_log import HookLog
from pycgpu.oom_watch import Watcher, parse_event, run_script

CID = "4f" * 32


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
def test_only_the_containers_own_ooms_are_answered(line, event):
    assert parse_event(line, CID) == event


@pytest.mark.parametrize("line", ["gpu=x pid=1", "gpu=0 pid=", "gpu=0", "pid=1"])
def test_an_oom_that_cannot_be_read_is_an_error(line):
    with pytest.raises(CgpuError, match="cannot read"):
        parse_event(f"1 oom id={CID} {line}", CID)


@pytest.fixture
def process():
    process = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def script_at(tmp_path, body):
    path = tmp_path / "on_oom.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_script_learns_container_card_and_process(tmp_path, process):
    out = tmp_path / "out"
    script = script_at(tmp_path, f'echo "$CGPU_CONTAINER_ID $CGPU_GPU $CGPU_PID" > {out}; exit 3')
    assert run_script(script, CID, 2, process.pid) == 3
    assert out.read_text() == f"{CID} 2 {process.pid}\n"


def test_the_script_has_no_capability_and_cannot_gain_one(tmp_path, process):
    out = tmp_path / "out"
    script = script_at(tmp_path, f"grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status > {out}")
    assert run_script(script, CID, 0, process.pid) == 0
    values = {line.split()[0]: line.split()[1] for line in out.read_text().splitlines()}
    assert values == {
        "CapPrm:": "0" * 16,
        "CapEff:": "0" * 16,
        "CapBnd:": "0" * 16,
        "NoNewPrivs:": "1",
    }


def test_the_script_runs_in_the_namespaces_of_the_process(tmp_path):
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
        assert run_script(script, CID, 0, process.pid) == 0
        assert out.read_text().split() == [
            os.readlink(f"/proc/{process.pid}/ns/{name}") for name in ("uts", "ipc")
        ]
    finally:
        process.kill()
        process.wait()


def test_a_script_that_cannot_be_run_has_a_status_of_its_own(process):
    assert run_script("/nonexistent", CID, 0, process.pid) == 126


def test_a_watcher_leaves_the_past_runs_the_script_once_and_ends_the_process(tmp_path, process):
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


def until_lines(path, number):
    deadline = time.monotonic() + 10
    while not path.exists() or len(path.read_text().splitlines()) < number:
        assert time.monotonic() < deadline


def test_an_id_that_is_used_again_begins_anew(tmp_path, process):
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

        def oom(card):
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
