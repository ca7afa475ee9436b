# SPDX-License-Identifier: MIT
"""The hook against the real module: many at once, and killed at every step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import procfs
from tests.vm.customer import HOOK, prepare, running
from tests.vm.loaded import until

pytestmark = [
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
    pytest.mark.vm(timeout_s=1500),
    pytest.mark.kernel("6.1", by_default=True),
]

REPOSITORY = Path(__file__).parents[2]
GIB = 1 << 30

# Runs the hook and kills it before the line of its code that has the given number.
KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from pycgpu.oci import hook
last, passed = int(sys.argv.pop(1)), 0
def step(frame, event, argument):
    global passed
    if '/pycgpu/' not in frame.f_code.co_filename:
        return None
    if event == 'line':
        passed += 1
        if passed == last:
            os.kill(os.getpid(), signal.SIGKILL)
    return step
sys.settrace(step)
status = hook.main()
sys.settrace(None)
print(passed)
sys.exit(status)
"""


@pytest.fixture
def host(sim: Any, km: Any) -> Any:
    """Eight cards, and a module that takes 20 containers on each."""
    sim(cards=8, model="v100")
    host = km()
    for card in range(8):
        host.write(f"{card}/max_inst", "20")
    return host


def allocated(host: Any) -> int:
    """Bytes promised to containers, on all cards."""
    return sum(card.allocated_bytes for card in procfs.read_cards(str(host.root)))


def containers(host: Any) -> list[str]:
    return procfs.container_ids(str(host.root))


class Process:
    """The first process of a pid namespace, with a bundle: what a hook gets to see of an engine."""

    def __init__(self, directory: Path, id: str, *env: str) -> None:
        self.id = id
        self.outer = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "sleep", "1000000"]
        )
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        until(lambda: children.read_text().split(), "the first process")
        self.pid = int(children.read_text().split()[0])
        self.bundle = directory / id
        self.bundle.mkdir(parents=True)
        (self.bundle / "config.json").write_text(json.dumps({"process": {"env": list(env)}}))

    def state(self, status: str = "creating") -> bytes:
        state = {"id": self.id, "pid": self.pid, "status": status, "bundle": str(self.bundle)}
        return json.dumps(state).encode()

    def end(self) -> None:
        """End it as an engine does whose hook has failed."""
        self.outer.kill()
        self.outer.wait()


def hook(process: Process, stage: str, *, before: tuple[str, ...] = (str(HOOK),)) -> Any:
    return subprocess.run([*before, stage], input=process.state(), capture_output=True, check=False)


def test_40_containers_in_parallel_leave_nothing_behind(
    host: Any, made: Any, tmp_path: Path
) -> None:
    """Made and removed by hooks in parallel; the sums are right at the top and at the end."""
    with running(made), ThreadPoolExecutor(8) as pool:
        env = "CGPU_MEM=1GiB", "CGPU_QUOTA=5"
        processes = [
            Process(tmp_path, f"c{number}", *env, f"CGPU_GPU={number % 2}") for number in range(40)
        ]
        try:
            created = list(pool.map(lambda process: hook(process, "createRuntime"), processes))
            assert [(run.returncode, run.stderr) for run in created] == [(0, b"")] * 40
            assert len(containers(host)) == 40
            assert allocated(host) == 40 * GIB
            # Quotas of 5 % fill a card with 20: there is no room for one more, of whatever size.
            late = Process(tmp_path, "late", "CGPU_QUOTA=1", "CGPU_GPU=0")
            processes.append(late)
            assert b"0 % free" in hook(late, "createRuntime").stderr
            half = processes[:20]
            removed = list(pool.map(lambda process: hook(process, "poststop"), half))
            assert {run.returncode for run in removed} == {0}
            assert len(containers(host)) == 20
        finally:
            for process in processes:
                process.end()
        # The other half's hooks never run: the module finds their processes gone.
        until(lambda: not containers(host), "the removal of all containers")
        assert allocated(host) == 0


def test_containers_by_runc_in_parallel_leave_nothing_behind(host: Any, made: Any) -> None:
    with running(made) as start, ThreadPoolExecutor(4) as pool:

        def live(number: int) -> None:
            one = start(f"r{number}", CGPU_MEM="1GiB", CGPU_GPU=str(number % 8))
            assert one.simcuda("--gpu", number % 8, "alloc", "512M").returncode == 0
            one.delete()

        list(pool.map(live, range(12)))
        until(lambda: not containers(host), "the removal of all containers")
        assert allocated(host) == 0


def test_a_hook_killed_at_any_step_leaves_nothing_reserved(host: Any, tmp_path: Path) -> None:
    """Whether it dies before or after its write: with the container's process all is given back."""
    command = (sys.executable, "-ISc", KILLED)
    env = "CGPU_MEM=2GiB", "CGPU_GPU=0,1,2"
    options = "--lock", str(tmp_path / "lock"), "--log", str(tmp_path / "log")
    whole = Process(tmp_path, "whole", *env)
    run = hook(whole, "createRuntime", before=(*command, "-1", *options))
    whole.end()
    assert run.returncode == 0, run.stderr
    steps = int(run.stdout)
    until(lambda: not containers(host), "the removal of the first container")
    reserved = 0
    for number, step in enumerate([*range(1, steps, max(1, steps // 20)), steps - 1, steps]):
        process = Process(tmp_path, f"k{number}", *env)
        killed = hook(process, "createRuntime", before=(*command, str(step), *options))
        assert killed.returncode == -signal.SIGKILL
        # All cards or none, and no lock left behind.
        assert allocated(host) in (0, 6 * GIB)
        reserved += allocated(host) != 0
        process.end()
        until(lambda: not containers(host), "the removal of the container")
        assert allocated(host) == 0
    # Some died before the write and some after it, or this has shown nothing.
    assert 0 < reserved < number


def test_an_engine_destroys_the_container_of_a_hook_that_is_killed(host: Any, made: Any) -> None:
    """runc's own answer to a hook that dies after its write."""
    with running(made):
        real = Path(HOOK)
        program = real.read_text()
        assert program.count("posix._exit(") == 1
        real.write_text(
            program.replace("posix._exit(", "status = (")
            + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
        )
        one = prepare(made, "victim", {"CGPU_MEM": "2GiB"})
        try:
            with pytest.raises(RuntimeError, match="hook"):
                one.start()
            until(lambda: not containers(host), "the removal of the container")
            assert allocated(host) == 0
        finally:
            one.delete()


def test_a_container_of_the_hosts_pid_namespace_is_known_by_its_cgroup(
    host: Any, made: Any
) -> None:
    with running(made):
        one = prepare(made, "hostpid", {"CGPU_MEM": "2GiB", "CGPU_GPU": "0"})
        path = one.bundle / "config.json"
        config = json.loads(path.read_text())
        config["linux"]["namespaces"] = [
            entry for entry in config["linux"]["namespaces"] if entry["type"] != "pid"
        ]
        path.write_text(json.dumps(config))
        try:
            one.start()
            assert os.readlink(f"/proc/{one.pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
            assert one.simcuda("alloc", "3G", check=False).returncode == 2
            one.simcuda("alloc", "1G")
        finally:
            one.delete()
        until(lambda: not containers(host), "the removal of the container")


UNGRANTED = Path("/sys/module/cgpu_km/parameters/ungranted")
#: A process in a pid namespace of its own, as of a container that no hook has seen.
UNSEEN = ("unshare", "--pid", "--fork", "--kill-child")
OPEN = "import os; os.open('/dev/nvidia0', os.O_RDWR)"


def opens(*before: str) -> bool:
    """Tell whether a program can open a card."""
    run = subprocess.run([*before, sys.executable, "-c", OPEN], capture_output=True, check=False)
    assert run.returncode == 0 or b"PermissionError" in run.stderr
    return run.returncode == 0


@pytest.fixture
def ungranted() -> Any:
    before = UNGRANTED.read_text()
    yield UNGRANTED
    UNGRANTED.write_text(before)


def test_a_container_without_a_grant_gets_what_the_parameter_says(
    host: Any, made: Any, ungranted: Path, tmp_path: Path
) -> None:
    assert ungranted.read_text() == "asked\n"
    assert opens(*UNSEEN)
    with running(made):
        asking = Process(tmp_path, "asking", "CGPU_MEM=1GiB", "CGPU_GPU=1")
        try:
            assert hook(asking, "createRuntime").returncode == 0
            assert not opens(*UNSEEN)
        finally:
            asking.end()
    assert not opens(*UNSEEN, *UNSEEN)
    for namespace in ("--user", "--cgroup"):
        assert not opens("unshare", namespace)
    assert opens()
    assert opens("unshare", "--mount")
    files = made("rootfs")
    inside = f"exec chroot {files} sh -c 'exec 3<>/dev/nvidia0'"
    open_there = ("unshare", "--mount", "sh", "-c", f"mount --bind /dev {files}/dev; {inside}")
    refused = subprocess.run(open_there, capture_output=True, text=True, check=False)
    assert refused.returncode and "Permission denied" in refused.stderr
    ungranted.write_text("allow")
    assert opens(*UNSEEN)
    subprocess.run(open_there, check=True)
    ungranted.write_text("refuse\n")
    assert not opens(*UNSEEN)
    assert opens()


def test_who_asked_for_too_much_has_asked(host: Any, tmp_path: Path) -> None:
    greedy = Process(tmp_path, "greedy")
    try:
        assert opens(*UNSEEN)
        with pytest.raises(OSError, match="No space"):
            host.create("greedy", f"pid={greedy.pid}", f"gpu=0,mem={1 << 40}")
        assert not opens(*UNSEEN)
    finally:
        greedy.end()


def test_a_container_without_a_grant_gets_its_share_once_however_it_nests(
    host: Any, ungranted: Path
) -> None:
    ungranted.write_text("25%\n")
    assert ungranted.read_text() == "25%\n"
    held = subprocess.Popen(
        [*UNSEEN, sys.executable, "-c", OPEN + "; import subprocess, sys; print(subprocess.call("
         f"{[*UNSEEN, sys.executable, '-c', OPEN]!r}), flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert held.stdout is not None and held.stdout.readline() == "0\n"
    (name,) = containers(host)
    assert name.startswith("ungranted-")
    quarter = procfs.read_memory(0, str(host.root))["total"] // 100 * 25 >> 20 << 20
    (directory,) = procfs.container_names(0, str(host.root))
    assert procfs.read_memsize(0, directory, str(host.root)) == quarter
    assert procfs.read_quota(0, directory, str(host.root)) == 25
    held.communicate()
    until(lambda: not containers(host), "the removal of the container")


def test_the_parameter_takes_its_words_and_is_not_a_containers_to_write(
    host: Any, ungranted: Path
) -> None:
    for word in ("", "maybe", "25", "0%", "101%", "-1%", "1%%"):
        with pytest.raises(OSError, match=r"Invalid argument|out of range"):
            ungranted.write_bytes(word.encode() or b"\n")
    ungranted.write_text("refuse")
    write = ["sh", "-c", f"echo allow > {ungranted}"]
    assert subprocess.run([*UNSEEN, *write], capture_output=True, check=False).returncode
    assert ungranted.read_text() == "refuse\n"
