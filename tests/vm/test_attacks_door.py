# SPDX-License-Identifier: MIT
"""
What a container may try against the module while one of its calls is in the driver.

The simulated driver holds a call at a named step, so that each race is won on purpose.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import make_nodes, until
from tests.vm.test_identity import end_first_thread
from tests.vm.test_isolation import LIMIT_BYTES, MIB, Host, say

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

# nv_escape.h, nv-ioctl-numbers.h
RM_FREE, RM_CONTROL, RM_ALLOC, REGISTER_FD, EXPORT_TO_DMABUF_FD = 0x29, 0x2A, 0x2B, 0xC9, 0xD9
UVM_FREE, UVM_MAP_EXTERNAL, UVM_REGISTER_GPU, UVM_UNMAP_EXTERNAL = 34, 33, 37, 66
UVM_CREATE_EXTERNAL, UVM_INITIALIZE = 73, 0x30000001
NV_ERR_INVALID_ARGUMENT, NV_ERR_NO_MEMORY = 0x1F, 0x51
PAUSE = Path("/sys/module/nvidia/parameters/pause")
FAULT = Path("/sys/module/nvidia/parameters/fault")
GRAIN = Path("/sys/module/nvidia/parameters/grain_bytes")
#: root with Docker's default capabilities, and an ordinary user, who has none
USERS = pytest.mark.parametrize("uid", [0, 1000], ids=["root", "user"])
#: A copy that is mapped is sealed from Linux 6.10 on, and guarded by a probe before.
SEALED_OR_GUARDED = pytest.mark.kernel("6.1", "6.12", by_default=True)


@pytest.fixture
def host(sim: Callable[..., Sim], km: Callable[..., Km], container: Any, made: Any) -> Host:
    driver = sim(model="t4")
    here = Host(driver, km(), container, made("programs"))
    for name in ("race", "tools"):
        here.programs[f"/bin/{name}"] = made("programs") / name
    return here


class Race:
    """The program `race` in a container, a step at a time."""

    def __init__(self, one: Container, uid: int, *command: str, **environment: str) -> None:
        self.child = one.popen("race", *command, environment=environment, uid=uid)
        self.expect("ready")

    def line(self) -> str:
        """What it says next, "" if it is dead."""
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def expect(self, name: str) -> int:
        """The number that comes with what it says next, which is *name*."""
        said = self.line()
        assert said.startswith(f"{name} "), said
        return int(said.split()[-1])

    def go(self) -> None:
        """Let it take the next step."""
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def call_held(self, step: str, escape: int) -> None:
        """Let it make its call, which is held at *step*."""
        PAUSE.write_text(f"{step} {escape:x}\n")
        self.go()
        self.expect("called")
        until(lambda: PAUSE.read_text() == "held\n", f"a call held at {step}")


@SEALED_OR_GUARDED
@USERS
@pytest.mark.parametrize(
    ("way", "step"),
    [("forge", "params"), ("overwrite", "params"), ("overwrite-argument", "argument")],
)
def test_no_other_request_than_was_looked_at_reaches_the_driver(
    host: Host, uid: int, way: str, step: str
) -> None:
    """
    Row 1, between the decision and the driver's reading: a mapping over the private copies; a
    system call that has the kernel write to them.
    """
    one = host.tenant()
    race = Race(one, uid, way, str(300 * MIB))
    idle_bytes = _used_bytes()
    race.call_held(step, RM_ALLOC)
    race.go()
    replaced = race.expect("replaced")
    # Held again when all is done, before whoever replaced them can be noticed.
    PAUSE.write_text(f"answer {RM_ALLOC:x}\n")
    until(lambda: PAUSE.read_text() == "held\n", "the call held at its end")
    # The module has no figures to compare with before the call is over: this is the driver's own.
    assert _used_bytes() - idle_bytes < MIB, f"replaced: {replaced}"
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == 0
    assert not replaced


@SEALED_OR_GUARDED
@USERS
def test_nobody_else_writes_to_a_copy_that_is_mapped(host: Host, uid: int) -> None:
    """Row 1, of a call that is not one of RM's own: REGISTER_FD."""
    race = Race(host.tenant(), uid, "forge-register")
    race.call_held("argument", REGISTER_FD)
    race.go()
    replaced = race.expect("replaced")
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == 0
    assert not replaced


@USERS
@pytest.mark.parametrize("leader", ["lives", "has ended"])
def test_memory_is_duplicated_by_no_handle_that_was_anothers(
    host: Host, uid: int, leader: str
) -> None:
    """
    What went with an address space is known still, and its handle is given to memory. Who is
    killed for it dies also when the first thread of each of its processes has ended.
    """
    one = host.tenant(args=("race", "stay"))
    idle_bytes = host.driver_used_bytes()
    environment = {"WITHOUT_LEADER": "1"} if leader == "has ended" else {}
    race = Race(one, uid, "rename", str(300 * MIB), **environment)
    if leader == "has ended":
        end_first_thread(one)
    race.call_held("return", RM_ALLOC)
    race.go()
    race.expect("duplicated")
    PAUSE.write_text("\n")
    race.go()
    # It is killed, and its standard error says why as long as somebody reads it.
    assert re.fullmatch(r"(cgpu: killed this container: .* raced its own ioctl)?", race.line())
    until(lambda: host.driver_used_bytes() - idle_bytes < MIB, "the memory's return")


@USERS
def test_what_is_being_opened_is_none_of_a_container_that_is_destroyed(
    host: Host, uid: int
) -> None:
    """Its memory would be promised anew, and what it computes would be seen by no scheduler."""
    one = host.tenant()
    PAUSE.write_text("open 0\n")
    opening = one.popen("race", "read", "/dev/nvidia0", uid=uid)
    until(lambda: PAUSE.read_text() == "held\n", "an opening that is held")
    host.cgpu.destroy("one")
    PAUSE.write_text("\n")
    assert opening.communicate()[0] == "/dev/nvidia0 Permission denied\n"


@USERS
def test_the_driver_waits_for_no_page_of_the_caller(host: Host, uid: int) -> None:
    """
    Row 1: who has the driver wait in its memory, when all is done, keeps the module from
    hearing of it: of a channel group that is scheduled, for one.
    """
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    race = Race(one, uid, "vanish", str(300 * MIB))
    race.call_held("argument", RM_ALLOC)
    race.go()
    race.expect("gone")
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == errno.EFAULT
    assert host.driver_used_bytes() - idle_bytes >= 300 * MIB
    assert host.charged_bytes() >= 300 * MIB


@SEALED_OR_GUARDED
@USERS
@pytest.mark.parametrize(("way", "number"), [("deny", RM_ALLOC), ("pretend", UVM_UNMAP_EXTERNAL)])
def test_no_other_answer_than_the_drivers_is_counted_by(
    host: Host, uid: int, way: str, number: int
) -> None:
    """
    Row 1, between the driver's writing and our reading: an allocation that did not fail; a
    mapping that did not go.
    """
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    race = Race(one, uid, way, str(300 * MIB))
    race.call_held("return", number)
    race.go()
    race.expect("written")
    PAUSE.write_text("\n")
    race.go()
    status = race.expect("status")
    assert (status == 0) == (way == "deny")
    assert host.driver_used_bytes() - idle_bytes >= 300 * MIB
    assert host.charged_bytes() >= 300 * MIB


def _used_bytes() -> int:
    """Video memory that the driver counts as taken, without asking it by an escape."""
    for line in Path("/proc/driver/nvidia-sim").read_text().splitlines():
        words = line.split()
        if words[:2] == ["card", "0"]:
            return int(words[words.index("total") + 1]) - int(words[words.index("free") + 1])
    raise AssertionError("no card 0 in /proc/driver/nvidia-sim")


@SEALED_OR_GUARDED
@USERS
def test_the_private_copies_cannot_be_taken_away(host: Host, uid: int) -> None:
    one = host.tenant()
    run = one.exec("race", "take-away", uid=uid)
    ways = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines())
    assert len(ways) == 8
    assert set(ways.values()) == {"no"}, ways


@USERS
def test_memory_in_a_dmabuf_stays_charged_whatever_becomes_of_its_descriptor(
    host: Host, uid: int
) -> None:
    """Row 6: another file stands at the descriptor's number when the driver returns."""
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    race = Race(one, uid, "hide-dmabuf", str(300 * MIB))
    race.call_held("answer", EXPORT_TO_DMABUF_FD)
    race.go()
    race.expect("hidden")
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == 0
    # Another dma-buf comes and goes: whoever returns charges has looked at all since.
    before_bytes = host.charged_bytes()
    one.exec("simcuda", "dmabuf", "10M")
    until(lambda: host.charged_bytes() <= before_bytes, "the charge of the second dma-buf")
    # A file's last work is done a moment after its last user has gone.
    until(
        lambda: host.driver_used_bytes() - idle_bytes <= host.charged_bytes(),
        "the second dma-buf's own end",
    )
    assert host.driver_used_bytes() - idle_bytes >= 300 * MIB
    race.child.kill()
    one.kill()
    until(lambda: not (host.cgpu.root / "container/one").exists(), "the removal of one")


@USERS
def test_a_dmabuf_is_charged_until_its_memory_is_free(host: Host, uid: int) -> None:
    """Nobody is told when its last user goes: it is looked for."""
    one = host.tenant()
    idle_bytes = _used_bytes()

    def is_free() -> bool:
        # Both only fall by now: in this order, what nobody is charged with is seen.
        charged_bytes = host.charged_bytes()
        assert _used_bytes() - idle_bytes <= charged_bytes
        return not charged_bytes

    for _ in range(5):
        child = one.popen("simcuda", "--hold", "dmabuf", "10M", uid=uid)
        until(lambda: host.charged_bytes() >= 10 * MIB, "the charge of the dma-buf")
        child.terminate()
        until(is_free, "the return of the charge", pause_s=0)


def swap_twice(race: Race, step: str, escape: int) -> int:
    """The status of a call that meets another file than was judged, held before and after."""
    race.call_held(step, escape)
    race.go()
    race.expect("swapped")
    PAUSE.write_text(f"answer {escape:x}\n")
    until(lambda: PAUSE.read_text() == "held\n", "the call held at its end")
    race.go()
    race.expect("restored")
    PAUSE.write_text("\n")
    race.go()
    return race.expect("status")


@USERS
def test_memory_goes_to_no_other_file_than_was_looked_at(host: Host, uid: int) -> None:
    """EXPORT_OBJECT_TO_FD: another file is there while the driver looks, and only then."""
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    status = swap_twice(Race(one, uid, "swap-export", str(300 * MIB)), "params", RM_CONTROL)
    assert host.driver_used_bytes() - idle_bytes <= host.charged_bytes()
    assert status == NV_ERR_INVALID_ARGUMENT


@USERS
def test_no_other_files_clients_are_lent_than_was_looked_at(host: Host, uid: int) -> None:
    """REGISTER_FD likewise."""
    race = Race(host.tenant(), uid, "swap-register")
    assert swap_twice(race, "argument", REGISTER_FD) == errno.EINVAL


# ------------------------------------------------------- what is nobody's attack


@pytest.mark.parametrize("step", ["argument", "answer"])
@pytest.mark.parametrize(
    ("number", "command"),
    [
        (RM_ALLOC, "alloc"),
        (RM_CONTROL, "alloc"),
        (RM_FREE, "free"),
        (REGISTER_FD, "alloc"),
        (EXPORT_TO_DMABUF_FD, "dmabuf"),
        (UVM_INITIALIZE, "map"),
        (UVM_REGISTER_GPU, "map"),
        (UVM_CREATE_EXTERNAL, "map"),
        (UVM_MAP_EXTERNAL, "map"),
        (UVM_FREE, "map"),
    ],
)
def test_copying_that_fails_in_the_driver_ends_no_container(
    host: Host, number: int, command: str, step: str
) -> None:
    """The call fails, or not even that; what it took stays charged until it is gone."""
    one = host.tenant()
    race = Race(one, 0, "peek")  # a neighbour in the container
    idle_bytes, idle_charged_bytes = _used_bytes(), host.charged_bytes()
    FAULT.write_text(f"{step} {number:x}\n")
    run = one.exec("simcuda", command, "10M", check=False)
    assert FAULT.read_text() == "\n", f"no such call: {run.stdout}"
    assert run.returncode >= 0
    assert not [line for line in host.recent_events() if "killed" in line]
    assert race.child.poll() is None
    until(lambda: _used_bytes() <= idle_bytes, "the end of what was allocated")
    until(lambda: host.charged_bytes() <= idle_charged_bytes, "the end of what was charged")
    assert one.exec("simcuda", command, "10M").returncode == 0


def test_what_is_to_be_undone_is_undone_though_copying_fails_once(host: Host) -> None:
    """Memory that comes out larger than was asked, and than the limit."""
    one = host.tenant()
    idle_bytes = _used_bytes()
    GRAIN.write_text(str(2 * LIMIT_BYTES))
    FAULT.write_text(f"argument {RM_FREE:x}\n")
    run = one.exec("race", "take", "1048576", check=False)
    GRAIN.write_text("0")
    assert FAULT.read_text() == "\n", "nothing was undone"
    assert run.stdout.splitlines() == [f"status {NV_ERR_NO_MEMORY}"]
    assert not [line for line in host.recent_events() if "killed" in line]
    until(lambda: _used_bytes() <= idle_bytes, "the end of what was allocated")
    assert host.charged_bytes() == 0
    assert one.exec("simcuda", "info").returncode == 0


@USERS
def test_a_descriptor_that_is_closed_under_a_call_ends_no_container(host: Host, uid: int) -> None:
    """The driver finds none."""
    race = Race(host.tenant(), uid, "drop-register")
    race.call_held("argument", REGISTER_FD)
    race.go()
    race.expect("dropped")
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == errno.EINVAL
    assert not [line for line in host.recent_events() if "killed" in line]


@USERS
def test_the_true_size_of_the_card_is_never_in_the_callers_memory(host: Host, uid: int) -> None:
    """Row 13: FB_GET_INFO writes into a list behind its parameters."""
    one = host.tenant()
    race = Race(one, uid, "peek")
    race.call_held("answer", RM_CONTROL)
    race.go()
    seen = race.expect("seen")
    PAUSE.write_text("\n")
    race.go()
    assert race.expect("status") == 0
    race.go()
    assert race.expect("answer") == LIMIT_BYTES >> 10
    assert seen == 0


def test_the_bridge_cannot_be_unloaded_under_a_container(host: Host, loaded_modules: Any) -> None:
    """Row 13."""
    one = host.tenant()
    with pytest.raises(OSError, match="in use"):
        loaded_modules.unload("cgpu_rm")
    one.kill()
    until(lambda: not (host.cgpu.root / "container/one").exists(), "the removal of one")
    loaded_modules.unload("cgpu_rm")


@USERS
def test_private_copies_are_charged_to_the_containers_memory(host: Host, uid: int) -> None:
    """Row 13: 184 KiB for each four calls that a process has under way."""
    one = host.tenant()
    race = Race(one, uid, "peek")
    race.call_held("answer", RM_CONTROL)
    files = [Path(f"/sys/fs/cgroup{v1}{one.cgroup}/memory.stat") for v1 in ("", "/memory")]
    lines = next(file for file in files if file.exists()).read_text().splitlines()
    PAUSE.write_text("\n")
    stat = dict(line.split() for line in lines)
    if "vmalloc" not in stat:
        pytest.skip("memory.stat tells nothing of vmalloc")
    assert int(stat["vmalloc"]) >= 184 << 10


@USERS
def test_a_container_reads_its_own_files_and_no_neighbours(host: Host, uid: int) -> None:
    """Row 11."""
    one = host.tenant("one")
    host.tenant("two")
    root = str(host.cgpu.root)
    own = [
        f"{root}/{name}"
        for name in ("version", "features", "0/one/meminfo", "0/one/procs", "container/one/cid")
    ]
    hosts = [f"{root}/{name}" for name in ("0/memory", "0/stat", "events", "inst_ctl", "upgrade")]
    others = [
        f"{root}/{name}"
        for name in (
            *("0/two/meminfo", "0/two/procs", "0/two/events"),
            *("container/two/cid", "container/two/0/stat"),
        )
    ]
    run = one.exec("race", "read", *own, *hosts, *others, uid=uid)
    got = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert {got[path] for path in own} == {"read"}
    assert {got[path] for path in hosts} == {"Permission denied"}, got
    assert {got[path] for path in others} == {"No such file or directory"}, got
    assert Path(f"{root}/0/two/meminfo").read_text().startswith("Free: ")


@USERS
def test_a_container_is_listed_no_neighbours_names(host: Host, uid: int) -> None:
    """Row 11."""
    one = host.tenant("one")
    host.tenant("two")
    card, containers = host.cgpu.root / "0", host.cgpu.root / "container"
    run = one.exec("race", "list", str(card), str(containers), uid=uid)
    seen = [line.split() for line in run.stdout.splitlines()]
    assert sorted(name for path, name in seen if path == str(containers)) == [".", "..", "one"]
    # All else of the card's directory, which the host sees whole, is there.
    listed = {name for path, name in seen if path == str(card)}
    assert listed - {".", ".."} == set(os.listdir(card)) - {"two"}
    assert sorted(os.listdir(containers)) == ["one", "two"]


@USERS
def test_no_container_opens_a_driver_that_is_not_hooked_yet(
    sim: Callable[..., Sim],
    km: Callable[..., Km],
    container: Any,
    made: Any,
    loaded_modules: Any,
    uid: int,
) -> None:
    """
    Row 13: a driver is loaded anew under a container. It is found by its nodes, which are
    late; the container has its own.
    """
    host = Host(sim(model="t4"), km(bridge=False), container, made("programs"))
    host.programs["/bin/race"] = made("programs") / "race"
    one = host.tenant()
    nodes = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"]
    host.driver.unload()
    for name, parameters in (("nvidia", {"model": "t4"}), ("nvidia-uvm", {})):
        loaded_modules.load(host.driver.directory / f"{name}.ko", **parameters)
    run = one.exec("race", "read", *nodes, "/dev/null", uid=uid)
    got = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert {got[node] for node in nodes} == {"Resource temporarily unavailable"}, got
    assert got["/dev/null"] == "read"
    make_nodes()
    until(
        lambda: one.exec("simcuda", "info", check=False, uid=uid).returncode == 0,
        "the hooked driver",
    )
    assert say(one.exec("simcuda", "--json", "info", uid=uid))["total"] == LIMIT_BYTES


def counted(host: Host) -> int:
    """The requests of one's that were refused."""
    return int(dict(line.split() for line in host.cgpu.read("0/one/stat").splitlines())["refused"])


def use_tools(host: Host) -> str:
    """What a process of the host's has of UVM's second device."""
    program = host.programs["/bin/tools"]
    run = subprocess.run([program, "open"], input="\n", capture_output=True, text=True, check=True)
    return run.stdout


@USERS
def test_no_container_uses_the_tools_of_uvm(host: Host, uid: int) -> None:
    """They pin pages that nobody counts; a file of theirs comes from the host, inherited."""
    one = host.tenant()
    before = counted(host)
    run = one.exec("tools", "open", uid=uid)
    assert run.stdout == f"open {-errno.EACCES}\n"
    assert counted(host) == before + 1
    told = [line for line in host.recent_events() if line.endswith(" open nvidia-uvm-tools")]
    assert len(told) == 1 and " refused id=one pid=" in told[0], told
    inherited = f"runc exec --preserve-fds 1 --user {uid} one tools inherited"
    run = subprocess.run(
        ["sh", "-c", f"exec {inherited} 3<>/dev/nvidia-uvm-tools"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == f"track {-errno.EPERM}\n"
    assert use_tools(host) == "open 0\ntrack 0\n"


@USERS
def test_tools_of_uvm_that_were_opened_before_are_of_no_use(
    host: Host, container: Any, uid: int
) -> None:
    one = container("one", programs=host.programs)
    child = one.popen("tools", "open", uid=uid)
    assert child.stdout is not None
    assert child.stdout.readline() == "open 0\n"
    host.cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    assert child.communicate("\n")[0] == f"track {-errno.EPERM}\n"


@USERS
def test_no_container_opens_tools_of_uvm_that_are_not_hooked_yet(
    sim: Callable[..., Sim], km: Callable[..., Km], container: Any, made: Any, uid: int
) -> None:
    """Their node is made later than UVM's, on the host; the container has its own."""
    driver = sim(model="t4")
    programs = {
        "/bin/simcuda": driver.programs / "simcuda",
        "/bin/tools": made("programs") / "tools",
    }
    one = container("one", programs=programs)
    Path("/dev/nvidia-uvm-tools").unlink()
    host = Host(driver, km(), container, made("programs"))
    host.programs.update(programs)
    host.cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    assert one.exec("tools", "open", uid=uid).stdout == f"open {-errno.EAGAIN}\n"
    assert say(one.exec("simcuda", "--json", "info", uid=uid))["total"] == LIMIT_BYTES
    make_nodes()
    refused = f"open {-errno.EACCES}\n"
    until(lambda: one.exec("tools", "open", uid=uid).stdout == refused, "the hooked tools")
    assert use_tools(host) == "open 0\ntrack 0\n"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_container_whose_directories_fail_never_was(
    host: Host, loaded_modules: Any, container: Any, number: int
) -> None:
    """Three directories are made for a container on one card; each gets no memory once."""
    one = container("one", programs=host.programs)
    free = host.cgpu.read("0/free_weight")
    module = host.driver.directory / "nvsim-check.ko"
    subprocess.run(["insmod", module, f"fail_mkdir={number}"], check=True)
    loaded_modules.names.append("nvsim_check")
    with pytest.raises(OSError, match="Cannot allocate memory"):
        host.cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    loaded_modules.unload("nvsim_check")
    assert os.listdir(host.cgpu.root / "container") == []
    assert "one" not in os.listdir(host.cgpu.root / "0")
    assert host.cgpu.read("0/free_weight") == free
    assert "allocated 0" in host.cgpu.read("0/memory")
    host.cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
