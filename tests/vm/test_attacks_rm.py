# SPDX-License-Identifier: MIT
"""What a container may name that is not its own, or that nobody has read (simulated driver)."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import SLOWNESS, until
from tests.vm.test_isolation import Host
from tests.vm.work import NEAR, Work, computing_groups, together

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

NV_ERR_INSUFFICIENT_RESOURCES, NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1A, 0x1B
NV_ERR_INVALID_CLASS = 0x22
NV_ERR_INVALID_CLIENT, NV_ERR_NO_MEMORY, NV_ERR_NOT_SUPPORTED = 0x23, 0x51, 0x56
MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
GRAPHICS, COPY = 1, 9
# kmod/core/call/call.h
GROUP_BYTES = 4 << 20
FREE_GROUPS = 128
VASPACE_BYTES, FREE_VASPACES, MAX_MAPPINGS = 64 << 10, 128, 4096
OS_EVENTS = 16384
#: what `reach host-memory` says that no limit refused
HOST_MEMORY_MADE = ["made", "40", "status", "0", "again", "0"]
# kmod/core/memory/ranges.c: of 1 GiB; page_tables.h: free for a container of 1 GiB
TABLES_BYTES = GIB // 512 + GIB // 512 // 512 + 3 * 4096
FREE_TABLES_BYTES = (64 << 20) + GIB // 128
#: Spaces of unified memory that were made with HMM.
HMM_SPACES = Path("/sys/module/nvidia_uvm/parameters/hmm_spaces")
#: Devices that were made with another address space than their own client's.
COMMON_SPACES = Path("/sys/module/nvidia/parameters/common_spaces")
#: Where a call of the simulated driver's is held.
PAUSE = Path("/sys/module/nvidia/parameters/pause")
WORKS_MS = Path("/sys/module/nvidia/parameters/works_ms")
#: NVOS32_ALLOC_FLAGS
FIXED, ALIGNED, BEGIN_END = 0x10, 0x100, 0x20000
#: what `reach unlisted` asks for: escapes (bare and wrapped), UVM, controls, a class
UNLISTED = (
    "escape=0x4d not listed", "uvm=0x3e not listed", "control=0x2080ffff not listed",
    "control=0x2080b0ff not listed", "class=0xffff not listed",
)  # fmt: skip
#: root with Docker's default capabilities, and an ordinary user
USERS = pytest.mark.parametrize("uid", [0, 1000], ids=["root", "user"])


@pytest.fixture
def host(sim: Callable[..., Sim], km: Callable[..., Km], container: Any, made: Any) -> Host:
    driver = sim(model="t4")
    here = Host(driver, km(), container, made("programs"))
    for name in ("reach", "renew"):
        here.programs[f"/bin/{name}"] = made("programs") / name
    return here


def counter(host: Host, name: str) -> int:
    stat = (host.cgpu.root / "0" / "one" / "stat").read_text()
    return int(dict(line.split() for line in stat.splitlines())[name])


def limit_memory(one: Container, limit_bytes: int | None) -> None:
    """Set the limit of its memory cgroup, as engines do."""
    unified = Path(f"/sys/fs/cgroup{one.cgroup}/memory.max")
    if unified.exists():
        unified.write_text("max" if limit_bytes is None else str(limit_bytes))
        return
    limit = "-1" if limit_bytes is None else str(limit_bytes)
    Path(f"/sys/fs/cgroup/memory{one.cgroup}/memory.limit_in_bytes").write_text(limit)


def driver_objects() -> int:
    return driver_says("objects")


def pma_free() -> int:
    return driver_says("free")


def driver_says(word: str) -> int:
    words = Path("/proc/driver/nvidia-sim").read_text().split()
    return int(words[words.index(word) + 1])


@USERS
def test_what_no_list_names_is_refused_told_and_can_be_admitted(host: Host, uid: int) -> None:
    """Row 12."""
    one = host.tenant()

    def ask() -> dict[str, int]:
        run = one.exec("reach", "unlisted", uid=uid)
        return {name: int(value) for name, value in map(str.split, run.stdout.splitlines())}

    assert ask() == {
        "escape": -errno.EINVAL,
        "wrapped": -errno.EINVAL,
        "uvm": -errno.EINVAL,
        "control": NV_ERR_NOT_SUPPORTED,
        "gss": NV_ERR_NOT_SUPPORTED,
        "class": NV_ERR_INVALID_CLASS,
        "registers": NV_ERR_INSUFFICIENT_PERMISSIONS,
    }
    assert counter(host, "refused") == 7
    # the second time nothing is new
    assert ask()["escape"] == -errno.EINVAL
    lines = "\n".join(host.recent_events())
    for told in UNLISTED:
        assert lines.count(told) == 1, lines

    (host.cgpu.root / "0" / "one" / "unknown").write_text("log\n")
    assert ask()["registers"] == NV_ERR_INSUFFICIENT_PERMISSIONS
    assert counter(host, "refused") == 15
    lines = "\n".join(host.recent_events())
    for told in UNLISTED:
        assert lines.count(told) == 2, lines
    assert "unknown id=one " in lines


@USERS
def test_parameters_in_memory_that_is_not_the_callers_are_neither_read_nor_written(
    host: Host, uid: int
) -> None:
    """What asks for a page looks not whose it is before Linux 5.16; the kernel's log says so."""
    answers = host.tenant().exec("reach", "nowhere", uid=uid).stdout.split("\n")
    assert len(answers) == 6 and not answers.pop(), answers
    for line in answers:
        *calls, control, with_list = map(int, line.split())
        assert calls == [-errno.EFAULT] * 9, line
        assert control and with_list, line


@USERS
def test_a_neighbours_os_events_are_out_of_reach(host: Host, uid: int) -> None:
    """Row 7: the driver knows an event by client and descriptor, whoever asks."""
    victim, thief = host.tenant("victim", mem=256 << 20), host.tenant("thief", mem=256 << 20)
    held = victim.popen("reach", "hold-event")
    assert held.stdin and held.stdout
    _, client, descriptor, status = held.stdout.readline().split()
    assert status == "0"
    run = thief.exec("reach", "take-event", client, descriptor, uid=uid)
    assert run.stdout.splitlines() == [
        f"free {NV_ERR_INVALID_CLIENT}",
        f"squat {NV_ERR_INVALID_CLIENT}",
    ]
    held.stdin.write("\n")
    held.stdin.flush()
    assert held.stdout.readline() == "freed 0\n"


@USERS
def test_an_os_event_does_not_outlive_its_client(host: Host, uid: int) -> None:
    """Row 7: it would be that client's to whom the number comes next, a neighbour's say."""
    run = host.tenant().exec("reach", "orphan-event", uid=uid)
    assert run.stdout == f"orphan {NV_ERR_INVALID_CLIENT}\nkept 0\n"


@USERS
def test_os_events_are_bounded_by_whatever_numbers_they_are_named(host: Host, uid: int) -> None:
    """Row 7: the driver keeps them as long as the file that asked, and walks all of the host's."""
    run = host.tenant().exec("reach", "hoard-events", "20000", uid=uid)
    assert run.stdout == f"made {OS_EVENTS} status {NV_ERR_INSUFFICIENT_RESOURCES}\n"


@USERS
def test_a_quota_holds_for_a_group_that_is_scheduled_by_a_channel(host: Host, uid: int) -> None:
    """Row 4: by this name nothing was ever gated."""
    host.cgpu.write("0/policy", "1\n")
    one = host.tenant(extra=",quota=10")
    work = Work(one, by_channel=True, uid=uid)
    assert together(work)[0] == pytest.approx(10, abs=NEAR)


@USERS
def test_a_quota_holds_for_a_group_that_is_scheduled_by_a_duplicate(host: Host, uid: int) -> None:
    """Row 4: it was gated by that name, which has no channels, and its own ran on."""
    host.cgpu.write("0/policy", "1\n")
    one = host.tenant(extra=",quota=10")
    work = Work(one, by_duplicate=True, uid=uid)
    assert together(work)[0] == pytest.approx(10, abs=NEAR)


@USERS
def test_a_quota_and_a_limit_hold_in_an_address_space_that_is_a_duplicate(
    host: Host, uid: int
) -> None:
    """Row 4: its own client is gone; so are the doorbell and the context share that were first."""
    host.cgpu.write("0/policy", "1\n")
    one = host.tenant(extra=",quota=10")
    work = Work(one, duplicates=True, uid=uid)
    assert together(work)[0] == pytest.approx(10, abs=NEAR)
    fill = one.exec("simcuda", "--duplicates", "--context", "--json", "fill", uid=uid)
    filled = json.loads(fill.stdout.splitlines()[-1])
    assert (filled["status"], filled["bytes"] <= GIB) == (NV_ERR_NO_MEMORY, True)
    assert filled["bytes"] > GIB - (64 << 20)


@USERS
def test_a_quota_holds_for_who_frees_what_its_channels_are_driven_by(host: Host, uid: int) -> None:
    """The driver lets them run on; they were taken for gone, and never shut. It is not freed."""
    host.cgpu.write("0/policy", "1\n")
    work = Work(host.tenant(extra=",quota=10"), free_userd=True, uid=uid)
    assert together(work)[0] == pytest.approx(10, abs=NEAR)


@USERS
def test_nobody_is_kept_off_the_processor_with_a_channel_that_is_open_and_not_yet_shut(
    host: Host, uid: int
) -> None:
    """
    By another of its processes, under SCHED_IDLE, between the driver's enabling of a channel and
    the module's shutting of it: 0.4 s of a processor took it 20 s.
    """
    host.cgpu.write("0/policy", "1\n")
    WORKS_MS.write_text("400\n")
    PAUSE.write_text("answer a06c0101\n")  # GPFIFO_SCHEDULE is done, and has not returned
    run = host.tenant(extra=",quota=10").exec("renew", "kept", uid=uid, timeout_s=120 * SLOWNESS)
    PAUSE.write_text("\n")
    WORKS_MS.write_text("0\n")
    assert 400 <= json.loads(run.stdout)["took_ms"] < 10_000 * SLOWNESS, run.stdout


@USERS
def test_a_quota_holds_for_a_group_that_names_no_engine(host: Host, uid: int) -> None:
    """Before Ampere it has that of what its channels get."""
    host.cgpu.write("0/policy", "1\n")
    work = Work(host.tenant(extra=",quota=10"), any_engine=True, uid=uid)
    assert together(work)[0] == pytest.approx(10, abs=NEAR)


@pytest.mark.parametrize(
    ("policy", "uid"),
    [("preemptive", 0), ("weighted-conserving", 1000)],
    ids=["preemptive-root", "weighted-conserving-user"],
)
def test_a_quota_holds_for_who_closes_the_card_with_work_queued(
    host: Host, policy: str, uid: int
) -> None:
    """Its client lives, and its channels: by the files nobody had the card, and none was shut."""
    host.cgpu.write("0/policy", f"{policy}\n")
    left = Work(host.tenant("left", extra=",quota=10"), kernel_ms=20, leave_card=True, uid=uid)
    stays = Work(host.tenant("stays", extra=",quota=50"))
    got = together(left, stays)
    assert got[0] == pytest.approx(10, abs=NEAR)
    assert got[1] == pytest.approx(50, abs=NEAR)


@pytest.mark.parametrize(
    ("handle", "uid"), [("same", 0), ("new", 1000)], ids=["same-root", "new-user"]
)
def test_a_quota_holds_for_channels_that_are_made_anew(host: Host, handle: str, uid: int) -> None:
    """Row 4: a gate that is shut is shut for a channel that comes then, whatever its handle."""
    run = host.tenant(extra=",quota=10").exec("renew", handle, "8", "1", uid=uid)
    told = json.loads(run.stdout)
    assert told["made"] > 20, told
    assert told["share_permille"] <= 200, told


@USERS
def test_a_context_is_interruptible_though_its_program_does_not_ask(host: Host, uid: int) -> None:
    """The driver's own is not, but between blocks: a long one would hold the card against gates."""
    work = Work(host.tenant(), seconds=1, uid=uid)
    assert computing_groups() and all(group["cilp"] for group in computing_groups())
    assert work.go().percent()


@USERS
def test_unified_memory_is_initialised_without_hmm(host: Host, uid: int) -> None:
    """Row 9: malloc'd memory would move to the card, and nobody be charged."""
    run = host.tenant().exec("reach", "hmm", uid=uid)
    assert run.stdout == "status 0 flags 0\n"
    assert HMM_SPACES.read_text() == "0\n"


@USERS
@pytest.mark.parametrize("flags", [FIXED, FIXED | ALIGNED, BEGIN_END])
def test_no_program_says_where_in_the_card_its_memory_lies(
    host: Host, uid: int, flags: int
) -> None:
    """There the driver takes all up to the next multiple of the alignment, and tells nobody."""
    before = pma_free()
    child = host.tenant().popen("reach", "place", str(flags), str(GIB), "1", uid=uid)
    assert child.stdout
    assert child.stdout.readline() == f"made 0 status {NV_ERR_NOT_SUPPORTED}\n"
    assert before - pma_free() < 1 << 20
    child.kill()


@USERS
def test_aligned_pieces_are_charged_with_the_pages_that_nobody_else_gets(
    host: Host, uid: int
) -> None:
    """Of pieces of 64 KiB 3 % of a card would leave nobody a page of 2 MiB."""
    before = pma_free()
    child = host.tenant().popen("reach", "place", str(ALIGNED), str(2 << 20), "1000", uid=uid)
    assert child.stdout
    assert child.stdout.readline() == f"made 512 status {NV_ERR_NO_MEMORY}\n"
    assert counter(host, "current_bytes") == GIB >= before - pma_free()
    child.kill()


@USERS
def test_a_devices_address_space_is_its_own_clients(host: Host, uid: int) -> None:
    """Neither the card's, which all have in common, nor a number that is a neighbour's later."""
    one = host.tenant()
    one.exec("simcuda", "info")  # whereupon the module looks at the card, once
    before = COMMON_SPACES.read_text()
    run = one.exec("reach", "device", uid=uid)
    assert run.stdout == f"0 {NV_ERR_INVALID_CLIENT} 0 \n"
    assert COMMON_SPACES.read_text() == before


@USERS
def test_mappings_are_bounded_and_address_spaces_charged(host: Host, uid: int) -> None:
    """Row 10: page tables that no object shows."""
    one = host.tenant()
    command = ("reach", "page-tables", str(2 * MAX_MAPPINGS), str(FREE_VASPACES + 9))
    child = one.popen(*command, uid=uid)
    assert child.stdin and child.stdout
    assert child.stdout.readline() == (
        f"mapped {MAX_MAPPINGS} status {NV_ERR_INSUFFICIENT_RESOURCES}\n"
    )
    assert child.stdout.readline() == f"spaces {FREE_VASPACES + 9} status 0\n"
    # 2 MiB of memory, and the first address space is one of them
    assert counter(host, "current_bytes") == (2 << 20) + 10 * VASPACE_BYTES
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.wait(60) == 0


@USERS
def test_a_container_has_a_part_of_the_window_to_the_cards_memory(host: Host, uid: int) -> None:
    """BAR1 of a T4 is 256 MiB for all: who filled it kept neighbours from beginning."""
    thief = host.tenant(mem=3900 * MIB)
    child = thief.popen("reach", "window-hold", str(4 * MIB), "100", uid=uid)
    assert child.stdout
    assert child.stdout.readline() == (
        f"mapped 16 status {NV_ERR_INSUFFICIENT_RESOURCES} unmap 0 again 0\n"
    )
    assert counter(host, "refused") == 1
    victim = host.tenant("two", mem=GIB)
    assert victim.exec("reach", "window", str(4 * MIB), "4", uid=uid).stdout.startswith("mapped 4 ")
    child.kill()
    child.wait(60)


@USERS
def test_address_spaces_that_live_by_duplicates_alone_are_charged(host: Host, uid: int) -> None:
    """Row 10."""
    run = host.tenant(mem=16 << 20).exec("reach", "duplicates", "1000", uid=uid)
    # one of those that are free came with a device
    made = FREE_VASPACES - 1 + (16 << 20) // VASPACE_BYTES
    assert run.stdout == f"made {made} status {NV_ERR_NO_MEMORY}\n" * 2


@USERS
def test_a_group_goes_with_the_device_that_its_address_space_is_below(host: Host, uid: int) -> None:
    """What the driver freed was taken for alive, charged and called at each gate."""
    run = host.tenant(mem=16 << 20).exec("reach", "elsewhere", "1000", uid=uid)
    made = FREE_GROUPS + (16 << 20) // GROUP_BYTES
    assert run.stdout == f"made {made} status {NV_ERR_NO_MEMORY}\n" * 2


@USERS
def test_what_is_made_is_counted_though_its_parameters_cannot_be_written_back(
    host: Host, uid: int
) -> None:
    """Row 10: what the driver has made by then it keeps."""
    one = host.tenant()
    count = FREE_VASPACES + 9
    child = one.popen("reach", "read-only", str(count), uid=uid)
    assert child.stdin and child.stdout
    assert child.stdout.readline() == "90f1 failed 0 status 0\n"
    assert child.stdout.readline() == f"3e failed {count} status {-errno.EFAULT}\n"
    assert counter(host, "current_bytes") == 9 * VASPACE_BYTES
    objects = driver_objects()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "freed\n"
    assert objects - driver_objects() == 2 * count
    assert counter(host, "current_bytes") == 0
    child.kill()
    child.wait(60)


@USERS
def test_the_drivers_memory_of_the_host_ends_at_the_containers_limit(host: Host, uid: int) -> None:
    """The driver's own is in no memory cgroup: a container took all that the host had."""
    one = host.tenant()
    command = ("reach", "host-memory", str(4 * MIB), "40")
    assert one.exec(*command, uid=uid).stdout.split() == HOST_MEMORY_MADE
    limit_memory(one, 128 * MIB)
    words = one.exec(*command, uid=uid).stdout.split()
    # beside the driver's lists and what an open file takes
    assert 28 <= int(words[1]) <= 31, words
    assert words[2:] == ["status", str(NV_ERR_NO_MEMORY), "again", "0"]
    assert any(f" oom_host id={one.id} pid=" in line for line in host.recent_events())
    limit_memory(one, None)
    assert one.exec(*command, uid=uid).stdout.split() == HOST_MEMORY_MADE
    until(lambda: "host_bytes 0\n" in host.cgpu.read(f"0/{one.id}/stat"), "all to be given back")


@USERS
def test_page_tables_of_unified_memory_are_charged(host: Host, uid: int) -> None:
    """Row 10: no object shows them, and of sparse mappings one call takes gigabytes."""
    one = host.tenant(mem=GIB)
    child = one.popen("reach", "sparse", str(TIB), str(GIB), uid=uid)
    assert child.stdin and child.stdout
    assert child.stdout.readline() == f"whole {NV_ERR_NO_MEMORY}\n"
    made, status = map(int, child.stdout.readline().split()[1::2])
    assert (made > 0, status) == (True, NV_ERR_NO_MEMORY)
    charged = counter(host, "current_bytes")
    assert charged <= GIB < charged + TABLES_BYTES
    assert made * TABLES_BYTES <= charged + FREE_TABLES_BYTES
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.wait(60) == 0


@USERS
def test_a_computing_channel_without_a_group_is_refused(host: Host, uid: int) -> None:
    """Row 5: nobody could set the timeslice of the group that RM would make for it."""
    run = host.tenant().exec("reach", "groupless", str(GRAPHICS), "1", uid=uid)
    assert run.stdout == f"made 0 status {NV_ERR_NOT_SUPPORTED}\n"


@USERS
def test_groups_that_only_uvm_keeps_are_charged(host: Host, uid: int) -> None:
    """Row 5: UVM_REGISTER_CHANNEL makes a duplicate of the group, which RM_FREE leaves alone."""
    one = host.tenant()
    command = ("reach", "retained", str(GRAPHICS), "140")
    child = one.popen(*command, uid=uid)
    assert child.stdin and child.stdout
    assert child.stdout.readline() == "made 140 status 0\n"
    # the program's context has four groups of its own
    charged = counter(host, "current_bytes")
    assert charged >= (140 + 4 - FREE_GROUPS) * GROUP_BYTES
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "gone 140\n"
    assert counter(host, "current_bytes") == charged - (140 + 4 - FREE_GROUPS) * GROUP_BYTES
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.wait(60) == 0


@USERS
@pytest.mark.parametrize("flags", [0, 2], ids=["alone", "several"])
def test_managed_memory_of_a_process_that_ended_counts_until_its_file_is_closed(
    host: Host, uid: int, flags: int
) -> None:
    """Initialised for several processes UVM keeps it (UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE).

    Else the driver frees it, but after the kernel has told of the end.
    """
    half = GIB // 2 + (64 << 20)
    run = host.tenant().exec("reach", "survive", str(flags), str(half), str(half), uid=uid)
    assert run.stdout == f"beside {NV_ERR_NO_MEMORY}\nafter 0\n"


@USERS
@pytest.mark.parametrize("way", ["mapped", "sent"])
def test_memory_of_a_file_that_nobody_has_a_descriptor_of_is_charged(
    host: Host, uid: int, way: str
) -> None:
    """A mapping keeps it open, or a message that nobody has received."""
    child = host.tenant().popen("reach", "undescribed", way, str(700 << 20), uid=uid)
    assert child.stdout
    assert child.stdout.readline() == f"beside {NV_ERR_NO_MEMORY}\n"
    assert host.charged_bytes() >= 700 << 20
    child.kill()


@USERS
def test_managed_memory_of_which_pieces_are_left_counts_by_what_the_card_keeps(
    host: Host, uid: int
) -> None:
    """8 GiB stayed taken by 16 MiB that was mapped (H100, 580.159.04)."""
    one = host.tenant()
    run = one.exec("reach", "pieces", str(700 << 20), uid=uid)
    assert run.stdout == f"second {errno.ENOMEM}\n"


@USERS
def test_channels_without_a_group_are_charged_as_groups(host: Host, uid: int) -> None:
    """Row 5: they took memory that nobody was charged for."""
    one = host.tenant()
    child = one.popen("reach", "groupless", str(COPY), "140", uid=uid)
    assert child.stdin and child.stdout
    made, status = map(int, child.stdout.readline().split()[1::2])
    assert (made, status) == (140, 0)
    # the program's context has four groups of its own
    beyond = 140 + 4 - FREE_GROUPS
    assert counter(host, "current_bytes") >= beyond * GROUP_BYTES
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.wait(60) == 0
