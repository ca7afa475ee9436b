# SPDX-License-Identifier: MIT
"""
The code behind the door is replaced while containers work: no call fails, no charge is lost.

Two builds of the same sources under different versions take each other's place by the very code
that `cgpu upgrade` runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import InstallError, NodeError
from pycgpu.install import installation, journal, kernel_door, upgrade
from pycgpu.install.host import Host
from pycgpu.install.upgrade_plan import Request
from tests.host import stops
from tests.vm import installed
from tests.vm.container import Container
from tests.vm.loaded import SLOWNESS, until
from tests.vm.loaded import loaded_modules as names_of_modules

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "km:0.1.1", "bridge", "programs", "rootfs"),
    pytest.mark.vm(memory="3G", timeout_s=2400),
]

MIB = 1 << 20
CONTAINERS = 8
OLD, NEW = "0.1.0", "0.1.1"
TREE = Path("/proc/cgpu_km")
#: Where the simulated driver is told to hold a call.
PAUSE = Path("/sys/module/nvidia/parameters/pause")
VID_HEAP_CONTROL = 0x4A
DUP_OBJECT = 0x34
#: So many upgrades (--upgrades) that each step of one is the last of some.
ALL_STEPS = 50


class Hammer:
    """A container that allocates, frees and computes as fast as it can."""

    def __init__(self, one: Container, held_mib: int) -> None:
        self.id = one.id
        TREE.joinpath("inst_ctl").write_text(
            f"create {one.id} pid={one.pid} gpu=0,mem={1024 * MIB},weight=2,quota=90"
        )
        self._child = one.popen("/bin/hammer", str(held_mib))
        assert self._line() == "ready"
        self.held_bytes = charged(self.id)
        assert self.held_bytes >= held_mib * MIB

    def _line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def _go(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def begin(self) -> None:
        """Let it work."""
        self._go()

    def end(self) -> dict[str, Any]:
        """Stop its work; return what it says of it. It still holds what it held before."""
        self._go()
        told: dict[str, Any] = json.loads(self._line())
        return told

    def close(self) -> None:
        """Let it give back everything."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        assert self._child.wait() == 0


def charged(id: str) -> int:
    return int(numbers(f"0/{id}/stat")["current_bytes"])


def numbers(node: str, tree: Path = TREE) -> dict[str, int]:
    lines = tree.joinpath(node).read_text().splitlines()
    return {line.split()[0]: int(line.split()[1]) for line in lines}


class Versions:
    """Two versions to go to and fro between; the first is installed."""

    def __init__(self, made: installed.Made, directory: Path) -> None:
        self.directories = {
            OLD: installed.modules(made, "km", directory / OLD),
            NEW: installed.modules(made, f"km:{NEW}", directory / NEW),
        }
        self.host = installed.install(self.directories[OLD])

    def request(self, version: str, **options: object) -> Request:
        """Return what leads to *version*."""
        modules = str(self.directories[version])
        return Request(version, modules=modules, **{"prove_s": 0.1} | options)  # type: ignore

    @property
    def other(self) -> str:
        """The version that is not installed."""
        return {OLD: NEW, NEW: OLD}[journal.read(self.host).version]

    def upgrade(self, **options: object) -> list[str]:
        """Go to the other version."""
        return upgrade.upgrade(self.request(self.other, **options), self.host)


@contextlib.contextmanager
def installed_versions(made: installed.Made, directory: Path) -> Iterator[Versions]:
    """The old version installed, uninstalled after."""
    with installed.few_modules(directory / "few"):
        there = Versions(made, directory)
        try:
            yield there
        finally:
            # Who still held a file of the driver, or of ours, would not let them be unloaded.
            until(lambda: not installation.holders(there.host), "the end of all containers")
            installation.uninstall(there.host)


@pytest.fixture
def versions(sim: Any, made: Any, loaded_modules: Any, tmp_path: Path) -> Iterator[Versions]:
    """Both versions over a simulated card."""
    sim(model="t4")
    with installed_versions(made, tmp_path) as there:
        yield there


@pytest.fixture
def sim_programs(made: Any) -> Path:
    """The programs that come with the simulated driver."""
    return Path(made("sim") / "simcuda")


@pytest.fixture
def hammers(
    versions: Versions, container: Any, made: Any
) -> Iterator[Callable[[int], list[Hammer]]]:
    """``hammers(8)`` starts so many containers at work."""
    containers: list[Container] = []

    def start(count: int) -> list[Hammer]:
        TREE.joinpath("0/policy").write_text("2\n")
        for number in range(count):
            programs = {"/bin/hammer": made("programs") / "hammer"}
            containers.append(container(f"job-{number}", programs=programs))
        return [Hammer(one, 16 * (1 + number)) for number, one in enumerate(containers)]

    yield start
    # Before the versions are: they cannot go while a container is there.
    for one in containers:
        one.delete()


@pytest.mark.vm(smp=2)
def test_upgrades_under_load_lose_no_call_no_charge_and_no_share(
    versions: Versions,
    hammers: Callable[[int], list[Hammer]],
    record_property: Any,
    pytestconfig: pytest.Config,
) -> None:
    upgrades = pytestconfig.getoption("--upgrades")
    working = hammers(CONTAINERS)
    settings = {one.id: TREE.joinpath(f"0/{one.id}/weight").read_text() for one in working}
    for one in working:
        one.begin()
    took_s = []
    for _ in range(upgrades):
        begin_s = time.monotonic()
        wanted = versions.other
        versions.upgrade()
        took_s.append(time.monotonic() - begin_s)
        assert installed.running(versions.host) == kernel_door.core_name(wanted)
    told = [one.end() for one in working]
    door = kernel_door.read(str(TREE))
    assert door is not None
    measured = {
        "upgrades": upgrades,
        "median upgrade s": round(sorted(took_s)[len(took_s) // 2], 2),
        "longest pause ms": door.pause_ns_max / 1e6,
        "longest ioctl ms": max(one["longest_ns"] for one in told) / 1e6,
        "calls": sum(one["calls"] for one in told),
        "kernels": sum(one["kernels"] for one in told),
    }
    print(json.dumps(measured))
    record_property("measured", measured)
    assert [(one["failed"], one["first"]) for one in told] == [(0, "")] * CONTAINERS
    assert all(one["turns"] > 0 and one["kernels"] > 0 for one in told)
    assert (door.switches, door.reverts) == (upgrades, 0)
    # What the clients hold now is what they held before they began.
    until(
        lambda: [charged(one.id) for one in working] == [one.held_bytes for one in working],
        "the charges that the clients hold",
    )
    assert numbers("0/memory")["used"] == sum(one.held_bytes for one in working)
    assert settings == {one.id: TREE.joinpath(f"0/{one.id}/weight").read_text() for one in working}
    for one in working:
        one.close()
    until(lambda: numbers("0/memory")["used"] == 0, "the return of all memory")


@pytest.mark.vm(smp=2)
def test_open_files_and_calls_on_their_way_outlive_the_core_that_began_them(
    versions: Versions, container: Any, made: Any
) -> None:
    from tests.vm.guest import KernelLog

    one = container("job", programs={"/bin/hammer": made("programs") / "hammer"})
    hammer = Hammer(one, 16)
    policy = os.open(TREE / "0/policy", os.O_RDWR)
    limit = os.open(TREE / "0/job/memsize", os.O_RDWR)
    events = os.open(TREE / "events", os.O_RDONLY | os.O_NONBLOCK)
    log = KernelLog()
    hammer.begin()
    try:
        versions.upgrade()
        assert os.pread(policy, 16, 0) == TREE.joinpath("0/policy").read_bytes()
        os.write(policy, b"4\n")
        assert TREE.joinpath("0/policy").read_text() == "4\n"
        os.write(limit, b"536870912\n")
        assert TREE.joinpath("0/job/memsize").read_text() == "536870912\n"
        told = hammer.end()
        assert (told["failed"], told["first"]) == (0, "")
        lines = os.read(events, 65536).decode()
        assert " create id=job" in lines and " set 0/policy 4" in lines
        assert charged("job") == hammer.held_bytes
        hammer.close()
        assert "WARNING" not in log.text()
    finally:
        for descriptor in (policy, limit, events):
            os.close(descriptor)
        one.delete()


def test_refusals_are_counted_on_when_the_core_that_made_the_container_is_gone(
    versions: Versions, container: Any, sim_programs: Path
) -> None:
    one = container("job", programs={"/bin/simcuda": sim_programs / "simcuda"})
    TREE.joinpath("inst_ctl").write_text(f"create job pid={one.pid} gpu=0,mem={32 * MIB}")
    for count in (1, 2):
        # 2: the driver's answer is the status of memory that is out.
        assert one.exec("simcuda", "alloc", "64M", check=False).returncode == 2
        assert numbers("0/job/events")["oom"] == count
        if count == 1:
            versions.upgrade()
            assert kernel_door.core_name(OLD) not in names_of_modules()
    one.delete()


def test_a_core_that_nobody_accepts_gives_way_to_the_former_one(
    versions: Versions, hammers: Callable[[int], list[Hammer]]
) -> None:
    (one,) = hammers(1)
    one.begin()
    core = kernel_door.core_name(NEW)
    subprocess.run(["insmod", versions.directories[NEW] / f"{core}.ko"], check=True)
    kernel_door.tell(kernel_door.switch(core, 1500 * SLOWNESS))
    assert installed.running(versions.host) == core
    until(lambda: installed.running(versions.host) == kernel_door.core_name(OLD), "the way back")
    door = kernel_door.read(str(TREE))
    assert door is not None
    assert (door.reverts, door.trial_ms) == (1, 0)
    with pytest.raises(NodeError):
        kernel_door.tell(kernel_door.ACCEPT)
    told = one.end()
    assert (told["failed"], told["first"]) == (0, "")
    assert charged(one.id) == one.held_bytes
    subprocess.run(["rmmod", core], check=True)
    one.close()


@pytest.mark.parametrize("end", ["answered", "killed"])
def test_calls_are_counted_by_whichever_core_they_end_under(
    versions: Versions, container: Any, sim_programs: Path, end: str
) -> None:
    """One begins before a trial, another in it, and ends after the way back."""
    one = container("job", programs={"/bin/simcuda": sim_programs / "simcuda"})
    TREE.joinpath("inst_ctl").write_text(f"create job pid={one.pid} gpu=0,mem={256 * MIB}")
    core = kernel_door.core_name(NEW)
    subprocess.run(["insmod", versions.directories[NEW] / f"{core}.ko"], check=True)

    def held() -> None:
        PAUSE.write_text(f"return {VID_HEAP_CONTROL:x}\n")
        one.popen("simcuda", "--heap", "2", "--hold", "alloc", "64M")
        until(lambda: PAUSE.read_text() == "held\n", "a call held on its way out of the driver")

    def gone() -> None:
        for line in TREE.joinpath("0/job/procs").read_text().splitlines():
            os.kill(int(line.split()[0]), signal.SIGKILL)
        until(lambda: charged("job") == 0, "the return of all memory")

    def ended(mib: int) -> None:
        if end == "killed":
            gone()
        PAUSE.write_text("\n")
        until(lambda: charged("job") == (0 if end == "killed" else mib * MIB), "the call's end")

    held()
    kernel_door.tell(kernel_door.switch(core, 600_000))
    assert charged("job") == 64 * MIB
    ended(64)
    held()
    kernel_door.tell(kernel_door.REVERT)
    assert installed.running(versions.host) == kernel_door.core_name(OLD)
    ended(128)
    gone()
    assert numbers("0/memory")["used"] == 0
    subprocess.run(["rmmod", core], check=True)
    one.delete()


def test_a_group_goes_on_and_a_duplicate_of_its_leaders_ends_under_the_next_core(
    versions: Versions, container: Any, sim_programs: Path, made: Any
) -> None:
    programs = {"/bin/simcuda": sim_programs / "simcuda", "/bin/group": made("programs") / "group"}
    lead, member = (container(id, programs=programs) for id in ("lead", "member"))
    for one in (lead, member):
        TREE.joinpath("inst_ctl").write_text(
            f"create {one.id} pid={one.pid} gpu=0,mem={256 * MIB} group=lead"
        )
    server = lead.popen("simcuda", "--serves", "--context", "--hold", "info")
    client, group, memory, _ = server.stdout.readline().strip().split(":")
    PAUSE.write_text(f"return {DUP_OBJECT:x}\n")
    taking = member.popen("group", client, memory)
    until(lambda: PAUSE.read_text() == "held\n", "a duplicate held on its way out of the driver")
    versions.upgrade()
    assert charged("member") == 2 * MIB, "what the leader's memory counts for"
    PAUSE.write_text("\n")
    assert taking.communicate()[0] == "0\n"
    until(lambda: charged("member") == 0, "the end of the client")
    # the leader's memory is let go of: it can be freed, and duplicated again
    assert member.exec("group", client, group, memory, client).stdout == "0\n0\n35\n"
    assert TREE.joinpath("0/member/group").read_text() == "lead\n"
    with pytest.raises(OSError, match="busy"):
        TREE.joinpath("0/member/weight").write_text("1\n")
    server.terminate()
    server.communicate()
    until(lambda: charged("lead") == 0, "the end of the server")
    lead.delete()
    assert TREE.joinpath("0/lead").exists(), "it has a member"
    member.delete()
    until(lambda: not TREE.joinpath("0/lead").exists(), "the end of the group")


def test_who_waits_for_its_own_address_space_holds_up_no_upgrade(
    versions: Versions, container: Any, made: Any
) -> None:
    """A thread of the process holds it, here in the driver, while another makes its first call."""
    one = container("job", programs={"/bin/race": made("programs") / "race"})
    (TREE / "inst_ctl").write_text(f"create job pid={one.pid} gpu=0,mem={1024 * MIB}")
    child = one.popen("race", "first-call")
    assert child.stdout.readline() == "ready 0\n"
    group = Path("/sys/fs/cgroup") / one.cgroup.lstrip("/")
    (first,) = {int(pid) for pid in (group / "cgroup.procs").read_text().split()} - {one.pid}
    PAUSE.write_text("map ff\n")
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "mapping 0\n"
    until(lambda: PAUSE.read_text() == "held\n", "a mapping that is held")
    child.stdin.write("\n")
    child.stdin.flush()
    stat = Path(f"/proc/{first}/stat")
    until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "D", "the first call's wait")
    versions.upgrade()
    assert installed.running(versions.host) == kernel_door.core_name(NEW)
    PAUSE.write_text("\n")
    assert child.stdout.readline() == "status 0\n"
    one.delete()


@pytest.mark.needs("km:0.1.2:-DCGPU_STATE_VERSION=99")
def test_another_form_of_the_state_is_refused_and_nothing_changes(
    versions: Versions, hammers: Callable[[int], list[Hammer]], made: Any, tmp_path: Path
) -> None:
    (one,) = hammers(1)
    one.begin()
    strange = installed.modules(made, "km:0.1.2:-DCGPU_STATE_VERSION=99", tmp_path / "strange")
    before, modules = kernel_door.read(str(TREE)), names_of_modules()
    with pytest.raises(InstallError, match=r"no hot upgrade: the state that runs is of version"):
        upgrade.upgrade(Request("0.1.2", modules=str(strange)), versions.host)
    # The kernel does not rely on it.
    loading = subprocess.run(
        ["insmod", strange / f"{kernel_door.core_name('0.1.2')}.ko"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert loading.returncode and "rotocol error" in loading.stderr
    assert kernel_door.read(str(TREE)) == before
    assert names_of_modules() == modules
    told = one.end()
    assert (told["failed"], told["first"]) == (0, "")
    one.close()


def change_cores(modules: Any, first: Path, second: Path, end: str) -> None:
    """Load the door with one core, and let another one take its place, for good or not."""
    old, new = (next(directory.glob("cgpu_core_*.ko")) for directory in (first, second))
    modules.load(first / "cgpu_km.ko")
    modules.load(old)
    modules.load(new)
    kernel_door.tell(kernel_door.switch(new.stem, 600_000))
    kernel_door.tell(end)


@pytest.mark.needs("km:0.1.2:+file")
def test_a_file_of_a_core_that_was_given_up_goes_with_the_tree(
    sim: Any, made: Any, loaded_modules: Any
) -> None:
    sim(model="t4")
    change_cores(loaded_modules, made("km"), made("km:0.1.2:+file"), kernel_door.REVERT)
    with pytest.raises(OSError):
        TREE.joinpath("later").read_text()
    loaded_modules.unload(kernel_door.core_name("0.1.2"))
    loaded_modules.unload(kernel_door.core_name(OLD))
    assert set(os.listdir(TREE)) == {"events", "upgrade"}


def test_a_core_that_begins_afresh_ends_containers(
    sim: Any, made: Any, loaded_modules: Any, pid_namespace: int
) -> None:
    """It was in charge before, and stood by behind the one that is unloaded."""
    sim(model="t4")
    change_cores(loaded_modules, made("km"), made(f"km:{NEW}"), kernel_door.ACCEPT)
    loaded_modules.unload(kernel_door.core_name(NEW))
    TREE.joinpath("inst_ctl").write_text(f"create job pid={pid_namespace} gpu=0,mem={64 * MIB}")
    os.kill(pid_namespace, signal.SIGKILL)
    until(lambda: not os.listdir(TREE / "container"), "the container's end")


def test_killed_at_any_step_it_leaves_a_working_host_and_the_next_run_goes_on(
    versions: Versions, hammers: Callable[[int], list[Hammer]], pytestconfig: pytest.Config
) -> None:
    # Two upgrades for each step take half a minute in an emulated machine.
    stride = max(1, ALL_STEPS // pytestconfig.getoption("--upgrades"))
    (one,) = hammers(1)
    one.begin()
    last, killed = 0, []
    while True:
        # Nothing here waits for a trial's end, which must not come first on a busy machine.
        wanted = versions.request(versions.other, trial_s=300 * SLOWNESS)

        def run(steps: stops.Steps, wanted: Request = wanted) -> None:
            upgrade.upgrade(wanted, versions.host)

        if not stops.killed_after(last, run):
            break
        assert charged(one.id) >= one.held_bytes
        working(versions.host)
        killed.append(journal.read(versions.host).layer is not None)
        upgrade.upgrade(wanted, versions.host)
        assert installed.running(versions.host) == kernel_door.core_name(wanted.version)
        held = journal.read(versions.host)
        assert (held.version, held.layer, held.retired) == (wanted.version, None, ())
        assert len(kernel_door.cores(names_of_modules())) == 1
        last += stride
    print(f"{last} steps, {sum(killed)} of them inside the upgrade")
    assert last > 20 and any(killed)
    told = one.end()
    assert (told["failed"], told["first"]) == (0, "")
    assert charged(one.id) == one.held_bytes
    one.close()


def working(host: Host) -> None:
    """One of the versions decides, and what would be loaded at boot is whole."""
    assert installed.running(host) in {kernel_door.core_name(version) for version in (OLD, NEW)}
    found = sorted(Path(f"/lib/modules/{host.release}/updates/cgpu").glob("cgpu_core_*.ko"))
    assert found
