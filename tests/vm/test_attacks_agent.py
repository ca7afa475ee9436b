# SPDX-License-Identifier: MIT
"""
What a tenant of the user door may try against it, as root with Docker's capabilities and as an
ordinary user. Each test ran into its limit's other side before the door was closed there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.agent import client
from tests.vm.loaded import SLOWNESS, until
from tests.vm.user_door import START_S, TREE, Door, events, keepers_rests
from tests.vm.work import computing_groups

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
    pytest.mark.vm(append="secretmem.enable=1"),
]

MIB, GIB = 1 << 20, 1 << 30
LIMIT_BYTES = 1024 * MIB
SYS_MEMFD_SECRET = 447
NV_ERR_ILLEGAL_ACTION, NV_ERR_INSERT_DUPLICATE_NAME = 0x16, 0x19
NV_ERR_INSUFFICIENT_RESOURCES, NV_ERR_INVALID_CLASS = 0x1A, 0x22
NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1B
NV_ERR_INVALID_ARGUMENT = 0x1F
NV_ERR_INVALID_CLIENT, NV_ERR_NO_MEMORY, NV_ERR_NOT_SUPPORTED = 0x23, 0x51, 0x56
NV_ERR_UVM_ADDRESS_IN_USE = 0x68
#: kmod/core/call/call.h
MAX_MAPPINGS = 4096
FREE_GROUPS, GROUP_BYTES = 128, 4 * MIB
FREE_VASPACES, VASPACE_BYTES = 128, 64 << 10
PAUSE = Path("/sys/module/nvidia/parameters/pause")
#: Spaces of unified memory that were made with HMM.
HMM_SPACES = Path("/sys/module/nvidia_uvm/parameters/hmm_spaces")
#: Devices that were made with another address space than their own client's.
COMMON_SPACES = Path("/sys/module/nvidia/parameters/common_spaces")
#: NVOS32_ALLOC_FLAGS
FIXED, ALIGNED, BEGIN_END = 0x10, 0x100, 0x20000
#: What `reach host-memory` says that no limit refused.
HOST_MEMORY_MADE = ["made", "40", "status", "0", "again", "0"]
#: What `reach unlisted` asks for, in the order in which it does: one number once.
UNLISTED = ("escape=0x4d", "uvm=0x3e", "control=0x2080ffff", "control=0x2080b0ff", "class=0xffff")
DOCKER = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,"
    "sys_chroot,mknod,audit_write,setfcap"
)
WHO = {
    "docker": ("setpriv", "--bounding-set", "-all,+" + DOCKER.replace(",", ",+"), "--"),
    "user": ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"),
}


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What starts a program as an attacker."""
    return WHO[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user gets to, and that lurk mounts nothing over."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def unseen(made: Callable[[str], Path]) -> str:
    """The attacker's program."""
    return str(made("programs") / "unseen")


@pytest.fixture
def secret_memory() -> None:
    """Memory that no other process can read."""
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_MEMFD_SECRET, 0)
    if fd < 0 and ctypes.get_errno() == errno.ENOSYS:
        pytest.skip("this kernel has no memfd_secret")
    assert fd >= 0, os.strerror(ctypes.get_errno())
    os.close(fd)


def _used_bytes(door: Door) -> int:
    """Video memory that the driver itself counts as taken."""
    run = subprocess.run(
        [door.simcuda, "--json", "info"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    return int(found["total"]) - int(found["free"])


def _words(door: Door, *command: str) -> list[str]:
    _, out, err = door.run(*command)
    assert out, err
    return out.split()


@pytest.fixture
def limited() -> Iterator[tuple[str, ...]]:
    """What starts a program in a cgroup whose memory has a limit of 128 MiB."""
    root = Path("/sys/fs/cgroup")
    unified = (root / "cgroup.procs").exists()
    if unified:
        (root / "cgroup.subtree_control").write_text("+memory")
    group = (root if unified else root / "memory") / "limited"
    group.mkdir()
    limit = "memory.max" if unified else "memory.limit_in_bytes"
    (group / limit).write_text(str(128 * MIB))
    inner = group / "inner"
    inner.mkdir()
    yield ("sh", "-c", f'echo $$ > {inner}/cgroup.procs && exec "$@"', "sh")
    until(lambda: not (inner / "cgroup.procs").read_text(), "the end of what runs there")
    inner.rmdir()
    group.rmdir()


def test_the_drivers_memory_of_the_host_ends_at_the_containers_limit(
    door: Door, who: tuple[str, ...], made: Callable[[str], Path], limited: tuple[str, ...]
) -> None:
    """The driver's own is in no memory cgroup: a container took all that the host had."""
    command = (*who, str(made("programs") / "reach"), "host-memory", str(4 * MIB), "40")
    assert _words(door, *command) == HOST_MEMORY_MADE
    words = _words(door, *limited, *command)
    # beside the driver's lists and what an open file takes; the limit is of the cgroup above
    assert 28 <= int(words[1]) <= 31, words
    assert words[2:] == ["status", str(NV_ERR_NO_MEMORY), "again", "0"]
    assert " oom_host id=" in events()


def test_a_container_has_a_part_of_the_window_to_the_cards_memory(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """BAR1 of a T4 is 256 MiB for all; what is mapped counts until its memory is freed."""
    words = _words(door, *who, reach, "window", str(4 * MIB), "100")
    refused = str(NV_ERR_INSUFFICIENT_RESOURCES)
    assert words == ["mapped", "4", "status", refused, "unmap", "0", "again", refused]


@pytest.mark.usefixtures("secret_memory")
@pytest.mark.parametrize("lead", ["0", "64"])
def test_parameters_that_the_agent_cannot_read_take_nothing(
    door: Door, who: tuple[str, ...], unseen: str, lead: str
) -> None:
    granted = _words(door, *who, unseen, "params", lead, str(LIMIT_BYTES))
    assert granted == ["granted", "0", "status", str(-errno.EFAULT)]


@pytest.mark.usefixtures("secret_memory")
def test_controls_that_the_agent_cannot_read_do_nothing(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    found = _words(door, *who, unseen, "control")
    assert found == ["params", str(-errno.EFAULT), "list", str(-errno.EFAULT)]


def test_numbers_of_the_driver_on_other_files_do_not_go_on(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    found = " ".join(_words(door, *who, unseen, "other-files"))
    refused = errno.ENOTTY
    assert found == (
        f"idle {refused} idle on ctl {errno.EINVAL} counters {refused} tools {refused} "
        f"rm {refused} uvm {refused} uvm on ctl {refused} rm on uvm {refused} other 0"
    )


@pytest.mark.vm(smp=2)
def test_a_descriptor_that_is_exchanged_takes_no_memory(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    before = _used_bytes(door)
    tenant = door.start("env", "HOLD=1", *who, unseen, "swap-descriptor", str(256 * MIB), "3")
    assert tenant.stdout is not None
    line = tenant.stdout.readline().split()
    if line:
        assert int(line[3]) <= LIMIT_BYTES // (256 * MIB), line
        assert _used_bytes(door) - before <= LIMIT_BYTES
    else:
        # It was ended if the file that was exchanged came into the agent's hands often enough.
        assert tenant.wait(timeout=START_S) == -signal.SIGKILL
        assert "exchanges descriptors under its calls" in events()
        until(lambda: _used_bytes(door) == before, "the memory's return", START_S)
    tenant.kill()


def test_a_client_has_no_number_that_its_maker_chose(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    """The driver takes it, though it is one that a neighbour may have or is to have."""
    assert _words(door, *who, unseen, "named-client") == ["status", str(NV_ERR_NOT_SUPPORTED)]


@pytest.mark.vm(smp=2)
def test_memory_in_a_dmabuf_stays_charged_whatever_stands_at_its_number(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    """Row 6: a second thread puts another file there as soon as the dma-buf is."""
    half = LIMIT_BYTES // 2 + 64 * MIB
    found = _words(door, *who, unseen, "hide-dmabuf", str(half))
    assert found == ["kept", "1", "again", str(NV_ERR_NO_MEMORY)]


def _continued() -> int:
    return int(client.ask({"op": "counters"})["counters"]["continued"])


@pytest.mark.vm(smp=2)
def test_no_control_goes_on_in_memory_that_the_tenant_can_change(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    keeper = door.start("sleep", str(60 * SLOWNESS), name="keeper")
    until((TREE / "container/keeper").exists, "the agent", START_S)
    counts = []
    for calls in ("2", "202"):
        before = _continued()
        assert _words(door, *who, unseen, "harmless", calls) == ["calls", calls]
        counts.append(_continued() - before)
    # What a program's start takes, of which mmap of its libraries is most.
    assert abs(counts[1] - counts[0]) < 50, counts
    keeper.kill()


@pytest.mark.vm(smp=2)
def test_memory_in_the_place_of_a_client_ends_the_container(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    before = _used_bytes(door)
    tenant = door.start("env", "HOLD=1", *who, unseen, "swap-class", str(2048 * MIB), "20")
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == -signal.SIGKILL, (out, err)
    until(lambda: _used_bytes(door) == before, "the memory's return", START_S)
    assert "holds memory that it was not given" in events()


@pytest.mark.vm(smp=2)
def test_who_only_holds_the_files_of_a_container_that_is_killed_ends_with_it(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    """A child that makes no call: else the memory would be its own, and on no account."""
    before = _used_bytes(door)
    swap = ("env", "HEIR=1", "HOLD=1", *who, unseen, "swap-class", str(2048 * MIB), "20")
    tenant = door.start(*swap)
    tenant.communicate(timeout=START_S)
    assert tenant.returncode == -signal.SIGKILL
    until(lambda: _used_bytes(door) == before, "the memory's return", START_S)


@pytest.fixture
def lurk(made: Callable[[str], Path]) -> str:
    """What makes a look at a process find something else than there is."""
    return str(made("programs") / "lurk")


def test_managed_memory_is_charged_whatever_its_node_is_called(
    door: Door, who: tuple[str, ...], lurk: str
) -> None:
    twice = (lurk, "managed-twice", str(700 * MIB), "0")
    assert _words(door, *who, *twice) == ["second", str(errno.ENOMEM)]
    assert _words(door, "env", "ALIAS=1", *who, *twice) == ["second", str(errno.ENOMEM)]


def test_managed_memory_is_charged_though_it_has_many_holes(
    door: Door, who: tuple[str, ...], lurk: str
) -> None:
    found = _words(door, *who, lurk, "managed-twice", str(700 * MIB), "2100")
    assert found == ["second", str(errno.ENOMEM)]


def test_managed_memory_of_which_pieces_are_left_counts_by_what_the_card_keeps(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    found = _words(door, *who, reach, "pieces", str(700 * MIB))
    assert found == ["second", str(errno.ENOMEM)]


@pytest.mark.vm(smp=2)
def test_managed_memory_is_charged_to_the_file_that_has_the_card(
    door: Door, who: tuple[str, ...], lurk: str
) -> None:
    """What a file without a card announced in the same address space charges nobody."""
    tenant = door.start(*who, lurk, "managed-elsewhere", str(700 * MIB), "2")
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == -signal.SIGKILL, (out, err)
    assert "mapped managed memory past its limit" in events()


def test_a_process_by_the_number_of_a_thread_is_not_taken_for_that_threads(
    door: Door, lurk: str
) -> None:
    """As root, to choose the number; who may not has to try some thousand times."""
    assert _words(door, lurk, "renumbered", str(700 * MIB)) == ["second", str(errno.ENOMEM)]


def test_managed_memory_outlives_its_process_whatever_its_node_is_called(
    door: Door, who: tuple[str, ...], lurk: str, reach: str, folder: Path
) -> None:
    half = str(LIMIT_BYTES // 2 + 64 * MIB)
    # where the programs are built a user gets to nothing that lurk executes
    program = str(shutil.copy(reach, folder))
    outlive = (lurk, "run", program, "outlive", "exit", half, half)
    found = _words(door, "env", "ALIAS=1", *who, *outlive)
    assert found == ["beside", str(NV_ERR_NO_MEMORY), "after", "0"]


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


# six thousand processes take a minute, and root's would be no others
@pytest.mark.parametrize("who", ["user"], indirect=True)
def test_processes_that_end_leave_nothing_in_the_agent(
    door: Door, who: tuple[str, ...], lurk: str
) -> None:
    keeper = door.start("sleep", "600", name="keeper")
    until((TREE / "container/keeper").exists, "the agent", START_S)
    pid = door.agent()
    before = _resident_bytes(pid)
    tenant = door.start(*who, lurk, "few", "6000")
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "made 6000\n"
    # 2 KiB each would be 12 MiB; the container itself takes some, too.
    assert _resident_bytes(pid) - before < 6 * MIB
    tenant.kill()
    tenant.wait()
    until(lambda: not (TREE / "container/one").exists(), "the container's end", START_S)
    tenant = door.start(*who, lurk, "crowd", "300")
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "made 300\n"
    # 64 numbers, which programs start with, it never gives to anything of a tenant's.
    assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 150 + 64
    tenant.kill()
    keeper.kill()


@pytest.mark.vm(smp=2)
def test_a_container_that_takes_long_to_look_at_delays_no_look_at_another(
    door: Door, who: tuple[str, ...], lurk: str, unseen: str
) -> None:
    slow = door.start(*who, lurk, "vast", "300", "30000", name="slow")
    assert slow.stdout is not None
    assert slow.stdout.readline() == "files 300\n"
    began = time.monotonic()
    tenant = door.start("env", "HOLD=1", *who, unseen, "swap-class", str(2048 * MIB), "20")
    assert tenant.wait(timeout=START_S) == -signal.SIGKILL
    told = f"{time.monotonic() - began:.0f} s"
    assert time.monotonic() - began < 90, told
    slow.kill()


@pytest.fixture
def reach(made: Callable[[str], Path]) -> str:
    """What names what is not its own, or what nobody has read."""
    return str(made("programs") / "reach")


def _a_quota_of_10_holds(door: Door, who: tuple[str, ...], way: str) -> None:
    tenant = door.start(*who, door.simcuda, "--json", way, "launch", "6", "1", quota=10)
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == 0, err
    assert int(json.loads(out.splitlines()[-1])["share_permille"]) <= 200


def test_a_quota_holds_for_a_group_that_is_scheduled_by_a_channel(
    door: Door, who: tuple[str, ...]
) -> None:
    """Row 4."""
    _a_quota_of_10_holds(door, who, "--by-channel")


def test_a_quota_holds_for_a_group_that_names_no_engine(door: Door, who: tuple[str, ...]) -> None:
    """Before Ampere it has that of what its channels get; to the scheduler it was no group."""
    _a_quota_of_10_holds(door, who, "--any-engine")


@pytest.mark.parametrize("who", ["user"], indirect=True)
def test_a_quota_holds_in_an_address_space_that_is_a_duplicate(
    door: Door, who: tuple[str, ...]
) -> None:
    """Row 4: its own client is gone; so are the doorbell and the context share that were first."""
    _a_quota_of_10_holds(door, who, "--duplicates")


def test_a_context_is_interruptible_though_its_program_does_not_ask(
    door: Door, who: tuple[str, ...]
) -> None:
    """The driver's own is not, but between blocks: a long one would hold the card against gates."""
    tenant = door.start(*who, door.simcuda, "launch", "4", "1")
    until(lambda: any(group["scheduled"] for group in computing_groups()), "its group", START_S)
    assert all(group["cilp"] for group in computing_groups())
    tenant.kill()
    tenant.wait()


@pytest.mark.parametrize("handle", ["same", "new"])
def test_a_quota_holds_for_channels_that_are_made_anew(
    door: Door, who: tuple[str, ...], made: Callable[[str], Path], handle: str
) -> None:
    """Row 4: a gate that is shut is shut for a channel that comes then, whatever its handle."""
    renew = str(made("programs") / "renew")
    tenant = door.start(*who, renew, handle, "8", "1", quota=10)
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == 0, err
    told = json.loads(out.splitlines()[-1])
    assert told["made"] > 20, told
    assert told["share_permille"] <= 200, told


@pytest.fixture
def heir(made: Callable[[str], Path]) -> str:
    """What works in its parent's client, or waits while it executes another program."""
    return str(made("programs") / "heir")


def test_a_quota_holds_for_a_client_that_a_child_used_first(
    door: Door, who: tuple[str, ...], heir: str
) -> None:
    """The log of context switches has the number of the process that allocated it."""
    tenant = door.start(*who, heir, "child", "8", "1", quota=10)
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["share_permille"] <= 200, out


#: A file system whose files are read when the second argument's is gone.
SLOW_FILES = """
import os, stat, sys, time
import mfusepy

class Slow(mfusepy.Operations):
    use_ns = False

    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        return {"st_mode": stat.S_IFREG | 0o666, "st_nlink": 1, "st_size": 4096}

    def open(self, path, flags):
        return 1

    def read(self, path, size, offset, fh):
        while os.path.exists(sys.argv[2]):
            time.sleep(0.1)
        return bytes(size)

mfusepy.FUSE(Slow(), sys.argv[1], foreground=True, allow_other=True)
"""


def _gate_calls() -> int:
    lines = (TREE / "0/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("gate_calls "))


def test_a_process_that_executes_a_program_for_long_keeps_no_gate_waiting(
    door: Door, heir: str, folder: Path, tmp_path: Path
) -> None:
    """
    The kernel then lets nobody have a descriptor of it, by which slices are set. Of both users
    one at once.
    """
    hold = tmp_path / "hold"
    hold.touch()
    # the agent loads what file systems like this need
    busy = door.start(door.simcuda, "launch", "600", "1", name="busy", quota=30)
    until(lambda: (TREE / "0/busy").exists() and _gate_calls() > 100, "gates' calls", START_S)
    files = subprocess.Popen([sys.executable, "-c", SLOW_FILES, folder, hold])
    try:
        until(folder.is_mount, "the file system", START_S)
        waits = (heir, "exec", str(folder / "file"), "4", "1")
        slow = [door.start(*who, *waits, name=name, quota=25) for name, who in WHO.items()]
        for tenant in slow:
            assert tenant.stdout is not None
            assert tenant.stdout.readline() == "executes\n"
        # under each its slice is another; at once, before somebody else waits for the process
        for policy in "03737":
            time.sleep(0.1)
            (TREE / "0/policy").write_text(policy)
        before = _gate_calls()
        time.sleep(3)
        assert _gate_calls() - before > 30
        assert [tenant.poll() for tenant in slow] == [None, None]
        hold.unlink()
        assert [tenant.wait(timeout=START_S) for tenant in slow] == [0, 0]
        busy.kill()
    finally:
        hold.unlink(missing_ok=True)
        subprocess.run(["umount", "--lazy", folder], check=False)
        files.kill()


def test_an_os_event_of_a_foreign_client_is_out_of_reach(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 7."""
    found = _words(door, *who, reach, "take-event", str(0xC1D0FFFF), "5")
    assert found == ["free", str(NV_ERR_INVALID_CLIENT), "squat", str(NV_ERR_INVALID_CLIENT)]


def test_an_os_event_does_not_outlive_its_client(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 7: it would be that client's to whom the number comes next, a neighbour's say."""
    found = _words(door, *who, reach, "orphan-event")
    assert found == ["orphan", str(NV_ERR_INVALID_CLIENT), "kept", "0"]


def test_unified_memory_is_initialised_without_hmm(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 9."""
    before = int(HMM_SPACES.read_text())
    found = _words(door, *who, reach, "hmm")
    assert found[:2] == ["status", "0"]
    assert int(HMM_SPACES.read_text()) == before


def test_unified_memory_that_was_initialised_with_hmm_all_the_same_gets_no_card(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """The flag is taken back while the driver is held before it reads the argument."""
    before = int(HMM_SPACES.read_text())
    PAUSE.write_text("argument 30000001\n")
    tenant = door.start(*who, reach, "hmm-back")
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "back 0\n"
    until(lambda: PAUSE.read_text() == "held\n", "a call held at its argument", START_S)
    PAUSE.write_text("\n")
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert _told(out.split()) == [("initialize", 0), ("register", NV_ERR_ILLEGAL_ACTION)], err
    assert int(HMM_SPACES.read_text()) == before + 1


@pytest.mark.parametrize("flags", [2, 3, 4])
def test_unified_memory_is_of_one_process(
    door: Door, who: tuple[str, ...], reach: str, flags: int
) -> None:
    """What several share maps into any address space, and lives until its last file is closed."""
    found = _words(door, *who, reach, "initialise", str(flags))
    assert found == ["initialize", str(NV_ERR_NOT_SUPPORTED)]


def test_managed_memory_is_known_by_its_own_file_alone(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Else what is mapped in two address spaces of a process, by exec(), would count once."""
    found = _words(door, *who, reach, "second", str(300 * MIB), str(500 * MIB))
    # the first file's address space is the same here, and nobody can tell
    assert found == ["register", "0", "mapped", "0", "beside", str(NV_ERR_NO_MEMORY)]


def test_a_file_is_not_forgotten_under_a_call_of_its_own(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Its last descriptor is closed meanwhile: it got the card, and nobody was charged."""
    found = _words(door, *who, reach, "late", str(2 * LIMIT_BYTES), "20")
    assert found == ["given", "0", "status", str(NV_ERR_NO_MEMORY)]


def test_managed_memory_is_charged_where_it_lies(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """That is its offset in the file; the address that is asked for is a hint."""
    found = _words(door, *who, reach, "unasked", str(700 * MIB))
    assert found == ["mapped", "0", "mapped", str(errno.ENOMEM)]


def test_a_dmabuf_that_a_call_names_is_none_of_the_agents_files(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    found = _words(door, *who, reach, "staged", "200")
    assert found == ["first", str(NV_ERR_NOT_SUPPORTED), "other", "0"]


def test_memory_of_an_address_space_that_nobody_can_look_at_is_given_back(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Its process has ended, and another that it began may map there what it likes."""
    half = LIMIT_BYTES // 2 + 64 * MIB
    found = _words(door, *who, reach, "unwatched", str(half))
    assert found == ["beside", str(NV_ERR_NO_MEMORY), "later", "0"]


#: Has so many descriptors until its standard input is closed.
MANY_DESCRIPTORS = """
import os, resource, sys
count = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64, count + 64))
null = os.open("/dev/null", os.O_RDONLY)
for _ in range(count):
    os.dup(null)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_bystanders_many_descriptors_hold_up_nobody(door: Door) -> None:
    """Whose process has ended, all are looked through for the files that it had."""
    many = [sys.executable, "-c", MANY_DESCRIPTORS, "200000"]
    script = (
        f"{door.simcuda} --hold context & sleep 5; kill -9 $!; wait; "
        f"date +%s%N; {door.simcuda} info > /dev/null; date +%s%N"
    )
    took = []
    for bystander in (False, True):
        other = subprocess.Popen(
            many if bystander else ["cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert other.stdin is not None and other.stdout is not None
        if bystander:
            assert other.stdout.readline() == "ready\n"
        _, out, err = door.run("sh", "-c", script)
        began_ns, ended_ns = map(int, out.split()[-2:])
        took.append((ended_ns - began_ns) / 1e9)
        other.stdin.close()
        other.wait()
    # 25 s when each look went through all of them
    assert took[1] < took[0] + 8 * SLOWNESS, (took, err)


@pytest.mark.parametrize("flags", [FIXED, FIXED | ALIGNED, BEGIN_END])
def test_no_program_says_where_in_the_card_its_memory_lies(
    door: Door, who: tuple[str, ...], reach: str, flags: int
) -> None:
    """There the driver takes all up to the next multiple of the alignment, and tells nobody."""
    found = _words(door, *who, reach, "place", str(flags), str(1 << 30), "1")
    assert found == ["made", "0", "status", str(NV_ERR_NOT_SUPPORTED)]


def test_aligned_pieces_are_charged_with_the_pages_that_nobody_else_gets(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Of pieces of 64 KiB 3 % of a card would leave nobody a page of 2 MiB."""
    found = _words(door, *who, reach, "place", str(ALIGNED), str(2 * MIB), "1000")
    assert found == ["made", str(LIMIT_BYTES // (2 * MIB)), "status", str(NV_ERR_NO_MEMORY)]


def test_a_devices_address_space_is_its_own_clients(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Neither the card's, which all have in common, nor a number that is a neighbour's later."""
    before = COMMON_SPACES.read_text()
    assert _words(door, *who, reach, "device") == ["0", str(NV_ERR_INVALID_CLIENT), "0"]
    assert COMMON_SPACES.read_text() == before


def test_mappings_are_bounded(door: Door, who: tuple[str, ...], reach: str) -> None:
    """Row 10."""
    found = _words(door, *who, reach, "page-tables", str(2 * MAX_MAPPINGS), "0")
    assert found[:4] == ["mapped", str(MAX_MAPPINGS), "status", str(NV_ERR_INSUFFICIENT_RESOURCES)]


def test_address_spaces_that_live_by_duplicates_alone_are_charged(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 10."""
    _, out, err = door.run(*who, reach, "duplicates", "1000", mem="16M")
    # one of those that are free came with a device
    made = FREE_VASPACES - 1 + 16 * MIB // VASPACE_BYTES
    assert out == f"made {made} status {NV_ERR_NO_MEMORY}\n" * 2, err


def test_groups_that_only_uvm_keeps_are_charged(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 5: what is charged returns when UVM has forgotten the channels, not with RM_FREE."""
    found = _words(door, *who, reach, "retained", "1", "600")
    # the program's context has four groups of its own
    made = FREE_GROUPS - 4 + LIMIT_BYTES // GROUP_BYTES
    assert found[:6] == ["made", found[1], "status", str(NV_ERR_NO_MEMORY), "gone", found[1]]
    assert made - 16 < int(found[1]) <= made
    assert found[6:] == ["again", found[1]]


def test_page_tables_of_unified_memory_are_charged(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 10."""
    found = _words(door, *who, reach, "sparse", str(1024 * GIB), str(GIB))
    assert found[:2] == ["whole", str(NV_ERR_NO_MEMORY)]
    made, status = map(int, found[3::2])
    # 1/512 of what is mapped, beyond what is free
    assert 0 < made <= 2 + (LIMIT_BYTES * 129 // 128 + 64 * MIB) // (2 * MIB)
    assert status == NV_ERR_NO_MEMORY


def test_what_the_driver_refuses_to_unmap_stays_charged(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    found = _words(door, *who, reach, "keep-mapped", str(256 * MIB), "12")
    made = LIMIT_BYTES // (256 * MIB)
    assert found == ["made", str(made), "refused", str(3 * made), "status", str(NV_ERR_NO_MEMORY)]


def test_what_no_list_names_is_refused_and_told_once(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """Row 12."""
    found = _words(door, *who, reach, "unlisted")
    assert dict(zip(found[::2], map(int, found[1::2]), strict=True)) == {
        "escape": -errno.EINVAL,
        "wrapped": -errno.EINVAL,
        "uvm": -errno.EINVAL,
        "control": NV_ERR_NOT_SUPPORTED,
        "gss": NV_ERR_NOT_SUPPORTED,
        "class": NV_ERR_INVALID_CLASS,
        "registers": NV_ERR_INSUFFICIENT_PERMISSIONS,
    }
    # each tenant of the name is a container of its own
    told = [line for line in events().splitlines() if "not listed" in line]
    last = told[-len(UNLISTED) :]
    assert [line.split()[-3] for line in last] == list(UNLISTED), told


@pytest.mark.parametrize("way", ["exit", "touch", "exec", "leader", "table"])
def test_managed_memory_is_charged_as_long_as_its_address_space_lives(
    door: Door, who: tuple[str, ...], reach: str, way: str
) -> None:
    """Whoever uses its file meanwhile, and whether its process still is there."""
    half = LIMIT_BYTES // 2 + 64 * MIB
    found = _words(door, *who, reach, "outlive", way, str(half), str(half))
    assert found == ["beside", str(NV_ERR_NO_MEMORY), "after", "0"]


@pytest.mark.parametrize("way", ["mapped", "sent"])
def test_memory_of_a_file_that_nobody_has_a_descriptor_of_is_given_back(
    door: Door, who: tuple[str, ...], reach: str, way: str
) -> None:
    """A mapping keeps it open, or a message that nobody has received: nothing tells."""
    tenant = door.start(*who, reach, "undescribed", way, str(700 * MIB))
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "beside 0\n"
    assert 700 * MIB <= _used_bytes(door) < LIMIT_BYTES
    tenant.kill()


def _await_look(pid: int) -> None:
    """Wait for the agent's look at all files, which is due each second, two times over."""
    # a tenant's keeper rests once a second
    before = keepers_rests(pid)
    until(lambda: keepers_rests(pid) >= before + 3, "a look at all files")


def test_a_file_that_the_agent_cannot_look_for_is_not_taken_for_gone(
    door: Door, reach: str
) -> None:
    """What it had would be given back, and charged to nobody, while it is in use."""
    tenant = door.start(reach, "moved", str(256 * MIB))
    assert tenant.stdout is not None
    ready, own_pid = tenant.stdout.readline().split()
    assert ready == "ready"
    used = _used_bytes(door)
    assert used >= 256 * MIB
    pid = door.agent()
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    # it can look at all where it can open three files; threads that wait in accept() have a
    # number each that is not seen
    limits = sorted(set(range(max(taken) + 5)) - taken)
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limits[0], usual[1]))
        # where it was seen last it is no more, so that everybody is asked
        os.kill(int(own_pid), signal.SIGUSR1)
        assert tenant.stdout.readline() == "moved\n"
        for limit in limits:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, usual[1]))
            _await_look(pid)
            assert _used_bytes(door) == used, limit
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
    assert tenant.poll() is None
    tenant.kill()


def test_a_file_that_was_forgotten_gets_no_card_and_maps_nothing(
    door: Door, who: tuple[str, ...], reach: str
) -> None:
    """What is mapped through it already would be charged to nobody on the card."""
    found = _words(door, *who, reach, "forgotten", str(700 * MIB))
    assert _told(found) == [
        ("initialize", NV_ERR_INVALID_ARGUMENT),
        ("register", NV_ERR_ILLEGAL_ACTION),
        ("mapped", errno.EBADFD),
    ]


def test_what_others_hold_is_not_told(door: Door, who: tuple[str, ...], reach: str) -> None:
    """Their processes look as such that hold nothing."""
    holder = door.start(door.simcuda, "--json", "--hold", "alloc", str(64 * MIB), name="holder")
    assert holder.stdout is not None
    assert holder.stdout.readline()
    pid = str(holder.pid)
    # the host's own question, without a door
    asked = subprocess.run([reach, "pid-info", pid], capture_output=True, text=True, check=True)
    assert int(asked.stdout.split()[-1]) >= 64 * MIB
    assert " ".join(_words(door, *who, reach, "pid-info", pid)) == "status 0 result 0 bytes 0"
    holder.kill()


@pytest.fixture
def blind(made: Callable[[str], Path]) -> str:
    """What the driver refuses where the agent does not hear of it."""
    return str(made("programs") / "blind")


def _told(found: list[str]) -> list[tuple[str, int]]:
    return list(zip(found[::2], map(int, found[1::2]), strict=True))


@pytest.mark.parametrize("what", ["device", "descriptor"])
def test_what_is_allocated_by_a_handle_in_use_erases_nothing(
    door: Door, who: tuple[str, ...], blind: str, what: str
) -> None:
    found = _words(door, *who, blind, "over", what, str(700 * MIB))
    assert _told(found) == [
        ("first", 0),
        ("full", NV_ERR_NO_MEMORY),
        ("over", NV_ERR_INSERT_DUPLICATE_NAME),
        ("second", NV_ERR_NO_MEMORY),
    ]


def test_a_handle_that_the_driver_refused_can_be_used_again(
    door: Door, who: tuple[str, ...], blind: str
) -> None:
    found = _words(door, *who, blind, "again")
    assert _told(found) == [
        ("refused", 1),
        ("device", 0),
        ("memory", 0),
        ("twice", NV_ERR_INSERT_DUPLICATE_NAME),
        ("more", 0),
        ("freed", 0),
        ("refused", 1),
        ("descriptor", 0),
    ]


def test_a_client_by_the_number_of_one_that_was_closed_is_charged(
    door: Door, who: tuple[str, ...], blind: str
) -> None:
    Path("/sys/module/nvidia/parameters/reuse_handles").write_text("Y")
    found = _words(door, *who, blind, "reopen", str(700 * MIB))
    assert found[:8] == ["client", "0", "device", "0"] * 2
    assert found[8:] == ["same", "1", "first", "0", "second", str(NV_ERR_NO_MEMORY)]


def test_a_pool_that_the_driver_refuses_makes_no_managed_memory_free(
    door: Door, who: tuple[str, ...], blind: str
) -> None:
    found = _words(door, *who, blind, "pool", str(2900 * MIB))
    assert _told(found) == [
        ("before", errno.ENOMEM),
        ("pool", 0),
        ("again", NV_ERR_UVM_ADDRESS_IN_USE),
        ("mapped", 0),
        ("free", 0),
        ("after", errno.ENOMEM),
    ]
