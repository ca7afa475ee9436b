# SPDX-License-Identifier: MIT
"""The harness itself: what a test in the VM can rely on, and that no failure is lost."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.vm import kernels, relay, vm
from tests.vm.loaded import until


def test_the_guest_runs_the_kernel_that_was_asked_for(vm_kernel: str) -> None:
    assert platform.release().startswith(vm_kernel)


def test_the_guest_is_root_over_the_hosts_files() -> None:
    assert os.geteuid() == 0
    assert Path(__file__).exists()


@pytest.mark.parametrize("size", [1, 4096])
def test_a_parameter_goes_with_a_test_into_the_guest(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert (tmp_path / "file").stat().st_size == size


def test_a_container_has_its_own_pid_namespace_and_cgroup(container: Any) -> None:
    one, other = container(), container()
    assert one.exec("sh", "-c", "echo $PPID").stdout == "0\n"
    assert one.exec("cat", "/proc/1/comm").stdout == "sleep\n"
    assert one.cgroup.endswith(f"/cgpu-test/{one.id}")
    assert one.exec("false", check=False).returncode == 1
    namespaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in (one.pid, other.pid, "self")}
    assert len(namespaces) == 3
    one.kill()
    assert not Path(f"/proc/{one.pid}").exists()
    assert other.state()["status"] == "running"


@pytest.mark.vm(cgroup=1)
def test_the_old_cgroup_hierarchies_are_there_on_request(container: Any) -> None:
    assert Path("/sys/fs/cgroup/pids").is_mount()
    one = container()
    assert f"/cgpu-test/{one.id}" in Path(f"/proc/{one.pid}/cgroup").read_text()


@pytest.mark.on_host
def test_a_commands_output_and_status_come_back() -> None:
    result = vm.run(["sh", "-c", "echo out; echo err >&2; exit 7"], "6.1")
    assert (result.status, result.output) == (7, "out\nerr\n")
    assert not result.died and not result.complaint()


@pytest.mark.on_host
def test_what_the_guest_writes_outside_the_share_is_gone(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    result = vm.run(["sh", "-c", f"echo x >{mark} && cat {mark}"], "6.1")
    assert result.output == "x\n"
    assert not mark.exists()


@pytest.mark.on_host
def test_a_guest_is_told_the_rate_of_its_clock_and_does_not_measure_it() -> None:
    """What it measures on a busy machine may be several times too little."""
    told = vm.run(["sh", "-c", "grep -m1 bogomips /proc/cpuinfo; dmesg | grep tsc:"], "6.1").output
    rate = re.search(r"^bogomips.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert rate and told.splitlines()[0] == rate[0]
    assert "reference calibration" not in told


@pytest.mark.on_host
def test_a_machine_that_hangs_is_stopped_when_its_time_is_over() -> None:
    with vm.VM("6.1") as machine:
        machine.start(["sh", "-c", "echo begun; sleep 1000"])
        until(lambda: machine.output() == "begun\n", "the command's first word")
        machine.timeout_s = 1
        result = machine.wait()
    assert result.status == vm.STATUS_TIMEOUT
    assert result.output == "begun\n"
    assert "did not finish in time" in result.complaint()


@pytest.mark.on_host
def test_a_file_of_many_tests_has_its_machines_time_from_each_word_of_them_on(
    request: pytest.FixtureRequest,
) -> None:
    with vm.VM("6.1", timeout_s=60) as machine:
        group = relay.Group("6.1", {}, [], request.config, machine=machine)
        assert machine.overdue
        (machine.share / "reports").write_text('{"kind": "start", "nodeid": "one"}\n')
        group._read()
        assert not machine.overdue


# jmp to itself; cli and hlt; out 0xfe to port 0x64, the keyboard controller's reset line.
FOR_EVER, HALTED, RESET = b"\xeb\xfe", b"\xfa\xf4\xeb\xfe", b"\xb0\xfe\xe6\x64\xeb\xfe"


def silent(path: Path, program: bytes = FOR_EVER) -> Path:
    """A kernel, as the Multiboot specification has it, that runs *program* without a word."""
    address, size = 0x100000, 32 + len(program)
    head = (0x1BADB002, 1 << 16, -(0x1BADB002 + (1 << 16)) & 0xFFFFFFFF)
    where = (address, address, address + size, address + size, address + 32)
    path.write_bytes(struct.pack("<8I", *head, *where) + program)
    return path


@pytest.mark.on_host
def test_a_guest_that_is_silent_is_started_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = kernels.fetch("6.1")
    image = tmp_path / "image"
    image.symlink_to(silent(tmp_path / "silent"))

    def mend() -> None:
        until(lambda: "EIP=00100020" in machine.processors(), "the silent kernel")
        other = tmp_path / "other"
        other.symlink_to(kernel.image)
        other.replace(image)

    with vm.VM(dataclasses.replace(kernel, image=image), life_cpu_s=30) as machine:
        mending = threading.Thread(target=mend)
        mending.start()
        machine.start(["echo", "alive"])
        mending.join()
        result = machine.wait()
    assert (result.status, result.output) == (0, "alive\n")
    # The kernel that was put in its place may hang as well.
    told = capfd.readouterr().err
    assert 1 <= machine.restarts == told.count("vm: no sign of life")
    # The loop's address, of which there is one for each processor that was started.
    assert "vm: no sign of life, the guest's processors at EIP=00100020" in told


@pytest.mark.on_host
def test_a_guest_that_ends_before_its_first_word_is_started_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A reset before the console is there ends QEMU with status 0 and without one byte."""
    kernel = kernels.fetch("6.1")
    image = tmp_path / "image"
    image.symlink_to(silent(tmp_path / "reset", RESET))

    class Mended(vm.VM):
        def _whereabouts(self) -> str:
            other = tmp_path / "other"
            other.symlink_to(kernel.image)
            other.replace(image)
            return super()._whereabouts()

    with Mended(dataclasses.replace(kernel, image=image)) as machine:
        machine.start(["echo", "alive"])
        result = machine.wait()
    assert (result.status, result.output) == (0, "alive\n")
    assert "vm: no sign of life, QEMU ended with status 0" in capfd.readouterr().err


@pytest.mark.on_host
@pytest.mark.parametrize(
    ("program", "life_cpu_s", "idle_s", "where"),
    [(FOR_EVER, 5, 90, "00100020"), (HALTED, 180, 8, "00100022")],
    ids=["busy", "idle"],
)
def test_a_guest_that_stays_silent_is_an_error_that_says_where_it_was(
    tmp_path: Path, program: bytes, life_cpu_s: int, idle_s: int, where: str
) -> None:
    image = silent(tmp_path / "silent", program)
    kernel = dataclasses.replace(kernels.fetch("6.1"), image=image)
    with (
        vm.VM(kernel, life_cpu_s=life_cpu_s, idle_s=idle_s) as machine,
        pytest.raises(
            vm.VMError,
            match=rf"3 times no sign of life: (?:.*EIP={where}.*; then ){{2}}.*EIP={where}",
        ),
    ):
        machine.start(["true"])
    assert not machine.running


@pytest.mark.on_host
def test_every_fault_of_a_guest_test_is_a_failure_here() -> None:
    """faults.py has one test for each way to fail; only two of them may not fail."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--kernel", "6.1"),
            "tests/vm/faults.py",
        ],
        cwd=vm.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = dict(re.findall(r"::(test_\w+)\[6\.1\] (PASSED|FAILED|SKIPPED|ERROR)", done.stdout))
    assert outcomes == {
        "test_passes": "PASSED",
        "test_fails": "FAILED",
        "test_skips_without_an_allowed_reason": "FAILED",
        "test_skips_for_an_allowed_reason": "SKIPPED",
        "test_leaves_a_fault_in_the_kernels_log": "ERROR",
        "test_crashes_the_machine": "FAILED",
        "test_never_runs": "FAILED",
    }, done.stdout
    assert done.returncode == 1
    assert "as it should" in done.stdout
    assert "sysrq_handle_crash" in done.stdout
    assert "before this test while" in done.stdout
