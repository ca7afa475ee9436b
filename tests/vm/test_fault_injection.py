# SPDX-License-Identifier: MIT
"""
The kernel finds no memory, or a page is not there: in each call that a container makes, in each
write to the tree, and while modules come and go, at each place where that can be.

``programs/starve.c`` makes the calls, again and again, with the first, second, … allocation or
copy failing, and asks after each whether what the driver holds is charged. What is asked here is
that nothing is left afterwards and nobody was killed; the kernel's log is the harness's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until
from tests.vm.test_isolation import Host
from tests.vm.vm import STARVING

pytestmark = [
    pytest.mark.kernel("6.1-debug"),
    pytest.mark.needs("programs"),
    pytest.mark.vm(smp=2, memory="3G", timeout_s=3600),
]

SIM = Path("/proc/driver/nvidia-sim")
KMSG = Path("/dev/kmsg")
INJECTORS = Path("/sys/kernel/debug")
STAT = "/proc/cgpu_km/0/one/stat"
#: Processes end so often, each time with another allocation failing.
ENDS = 40
#: What the module says when it goes on for good without something that it should have.
DEGRADED = re.compile(
    r"cgpu: .*(?:cannot be|no memory for|will not open|a container may|leaving that pointer).*"
)


@pytest.fixture
def injectors() -> None:
    """Allocations that may sleep fail too; it is not told each time."""
    for name in ("failslab", "fail_page_alloc", "fail_usercopy"):
        (INJECTORS / name / "verbose").write_text("0")
    for name in ("failslab", "fail_page_alloc"):
        (INJECTORS / name / "ignore-gfp-wait").write_text("N")
    (INJECTORS / "fail_page_alloc/min-order").write_text("0")
    KMSG.write_text(f"{STARVING}\n")


@pytest.fixture
def host(
    injectors: None,
    sim: Callable[..., Sim],
    km: Callable[..., Km],
    container: Any,
    made: Any,
) -> Host:
    driver = sim(model="t4")
    here = Host(driver, km(), container, made("programs"))
    here.programs["/bin/starve"] = made("programs") / "starve"
    return here


def held() -> dict[str, int]:
    """What the simulated driver has: objects, memories, open files, and bytes of the card."""
    words = SIM.read_text().split()

    def after(name: str) -> int:
        return int(words[words.index(name) + 1])

    found = {name: after(name) for name in ("objects", "memories", "files")}
    return found | {"used": after("total") - after("free")}


def said_since(size: int) -> str:
    """What the kernel has logged behind *size* characters."""
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout[size:]


def starved(host: Host, *command: str) -> None:
    """Run `starve` in a container, which is its own again afterwards, and nobody's but its."""
    one = host.tenant()
    before = held()
    run = one.exec("starve", *command, check=False, timeout_s=300)
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    assert " from 1 to " in run.stdout
    assert not [line for line in host.recent_events() if "killed" in line]
    assert one.exec("simcuda", "alloc", "10M").returncode == 0
    until(lambda: held() == before, "the return of all that the driver had given")
    assert host.charged_bytes() == 0
    assert host.cgpu.read("0/one/procs") == ""
    one.kill()
    until(lambda: not (host.cgpu.root / "container/one").exists(), "the removal of one")


def test_a_call_that_finds_no_memory_fails_alone(host: Host) -> None:
    starved(host, "calls", STAT)


def test_a_process_that_begins_or_ends_without_memory_leaves_nothing(host: Host) -> None:
    starved(host, "lives", STAT, str(ENDS))


def test_a_shut_container_stays_shut_though_its_gate_finds_no_memory(host: Host) -> None:
    host.cgpu.write("0/policy", "0\n")
    # It is open for one second of sixty-four.
    host.cgpu.write("0/max_inst", "64\n")
    host.cgpu.write("0/timeslice_us", "1000000\n")
    starved(host, "shut", STAT)


def test_a_write_to_the_tree_that_finds_no_memory_changes_nothing(host: Host, made: Any) -> None:
    starve = made("programs") / "starve"
    one = host.tenant()
    two = host._container("two", programs=host.programs)
    root = host.cgpu.root
    before = {name: host.cgpu.read(f"0/{name}") for name in ("memory", "free_weight", "policy")}
    create = f"create two pid={two.pid} gpu=0,mem={64 << 20},weight=2,quota=10\n"
    for there, what, back, former in [
        ("inst_ctl", create, "inst_ctl", "destroy two\n"),
        ("0/one/weight", "3\n", "0/one/weight", "1\n"),
        ("0/one/quota", "20\n", "0/one/quota", "0\n"),
        ("0/one/memsize", f"{512 << 20}\n", "0/one/memsize", f"{1 << 30}\n"),
        ("0/policy", "1\n", "0/policy", before["policy"]),
    ]:
        arguments = [str(root / there), what, str(root / back), former]
        run = subprocess.run([starve, "write", *arguments], capture_output=True, text=True)
        print(run.stdout, run.stderr)
        assert run.returncode == 0, run.stderr
        assert host.cgpu.read("0/one/memsize") == f"{1 << 30}\n"
        assert os.listdir(root / "container") == ["one"]
        assert {name: host.cgpu.read(f"0/{name}") for name in before} == before
    for node in ("0/one/stat", "0/one/procs", "0/memory", "inst_ctl", "events"):
        run = subprocess.run([starve, "read", root / node], capture_output=True, text=True)
        print(run.stdout, run.stderr)
        assert run.returncode == 0, run.stderr
    assert one.exec("simcuda", "info").returncode == 0


@pytest.mark.needs("km", "bridge")
def test_modules_load_whole_or_not_at_all_and_leave_the_driver_as_it_was(
    injectors: None,
    sim: Callable[..., Sim],
    made: Any,
) -> None:
    """Who is gone while the driver still calls it is a panic."""
    sim(model="t4")
    (core,) = made("km").glob("cgpu_core_*.ko")
    built = [made("km") / "cgpu_km.ko", core, made("bridge")]
    # In memory of the guest: after failures in reading files of the host neither this module
    # nor rmmod could be read any more (EINVAL).
    folder = Path(tempfile.mkdtemp(dir="/run"))
    paths = [Path(shutil.copy(path, folder)) for path in built]
    arguments = [word for path in paths for word in (str(path), path.stem)]
    size = len(said_since(0))
    command = [str(made("programs") / "starve"), "modules", *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout, run.stderr)
    assert run.returncode == 0, run.stderr
    # What is loaded in spite of a failure lacks nothing.
    assert not DEGRADED.findall(said_since(size))
