# SPDX-License-Identifier: MIT
"""The simulated driver keeps to what NVIDIA's does: sizes, lifetimes, identity, errors, sharing."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree.process import directories
from tests.vm import loaded, rm
from tests.vm.drivers import Sim
from tests.vm.loaded import until

pytestmark = pytest.mark.kernel("6.1", by_default=True)

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
T4_BYTES = 15109 * MIB

NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1B
NV_ERR_INVALID_ARGUMENT = 0x1F
NV_ERR_ILLEGAL_ACTION = 0x16
NV_ERR_INVALID_OBJECT_HANDLE = 0x33
NV_ERR_INVALID_OBJECT_PARENT = 0x36
NV_ERR_INVALID_OWNER = 0x39
NV_ERR_NO_MEMORY = 0x51
NV_ERR_NOT_SUPPORTED = 0x56
NV_ERR_OBJECT_NOT_FOUND = 0x57

NV01_DEVICE_0 = 0x80
NV20_SUBDEVICE_0 = 0x2080
NV01_MEMORY_LOCAL_USER = 0x40
OWNER = 0x5C000001
FERMI_VASPACE_A, FERMI_CONTEXT_SHARE_A, KEPLER_CHANNEL_GROUP_A = 0x90F1, 0x9067, 0xA06C
TURING_USERMODE_A = 0xC461
RS_SHARE_TYPE_ALL = 1
RS_ACCESS_DUP_OBJECT = 1

# Measured on an H200, CUDA 13: what a context takes that no allocation shows.
FIRST_CONTEXT_BYTES = 9024 * KIB
FURTHER_CONTEXT_BYTES = 5696 * KIB

Simcuda = Callable[..., dict[str, Any]]


@pytest.fixture
def t4(sim: Callable[..., Sim]) -> Sim:
    return sim(cards="t4")


def program(driver: Sim, name: str = "simcuda") -> Path:
    return driver.programs / name


def run(driver: Sim, *arguments: str | int, name: str = "simcuda", **kwargs: Any) -> dict[str, Any]:
    """Run simcuda; its last JSON line, whatever its exit status."""
    done = subprocess.run(
        [program(driver, name), "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,
    )
    assert done.stdout, f"simcuda {arguments}: rc {done.returncode}, {done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


class Held:
    """A simcuda that keeps what it has until it is killed."""

    def __init__(self, driver: Sim, *arguments: str | int) -> None:
        self.process = subprocess.Popen(
            [program(driver), "--json", "--hold", *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def sim_state() -> dict[str, int]:
    """The simulation's own counters, and the first card's free bytes."""
    text = Path("/proc/driver/nvidia-sim").read_text()
    state = {key: int(value) for key, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}
    state["free"] = int(re.search(r"^card 0 .* free (\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return state


# ---- the card ----


@pytest.mark.parametrize(
    ("model", "board_mib", "heap_mib"),
    [
        ("t4", 15109, 15109),
        ("v100", 32768, 32510),
        ("a10", 23028, 22516),
        ("a100", 40960, 40536),
        ("h200", 143771, 143156),
    ],
)
def test_a_card_has_its_models_memory(
    sim: Callable[..., Sim], model: str, board_mib: int, heap_mib: int
) -> None:
    info = run(sim(cards=model), "info")
    assert (info["board"], info["total"]) == (board_mib * MIB, heap_mib * MIB)
    assert info["free"] == info["total"]


def test_eight_cards_have_memories_of_their_own(sim: Callable[..., Sim]) -> None:
    driver = sim(cards=8, model="t4,a100")
    with Held(driver, "--gpu", 1, "alloc", GIB):
        free = [run(driver, "--gpu", n, "info") for n in range(8)]
    assert [card["used"] for card in free] == [0, GIB, 0, 0, 0, 0, 0, 0]
    assert len({card["uuid"] for card in free}) == 8


@pytest.mark.parametrize("branch", [535, 550, 570, 580, 590, 595, 610])
def test_every_branch_serves_a_whole_context(sim: Callable[..., Sim], branch: int) -> None:
    driver = sim(cards="t4", branch=branch)
    said = run(driver, "context")
    assert said["hidden"] == FIRST_CONTEXT_BYTES
    assert run(driver, "--context", "alloc", 3 * MIB)["bytes"] == 4 * MIB
    assert run(driver, "map", 64 * MIB)["after_unmap"] == 0
    assert run(driver, "dmabuf", 2 * MIB)["after_close"] == 0
    assert Path("/sys/module/nvidia/version").read_text().startswith(f"{branch}.")
    names = {line.split()[-1] for line in Path("/proc/devices").read_text().splitlines() if line}
    front = {"nvidia-frontend"} if branch == 535 else {"nvidia", "nvidiactl"}
    assert front | {"nvidia-uvm"} <= names


def test_bad_parameters_load_nothing(sim: Callable[..., Sim]) -> None:
    for wrong in ({"cards": 9}, {"cards": 0}, {"cards": "rtx"}, {"branch": 555}):
        with pytest.raises(OSError):
            sim(**wrong)
    assert "nvidia" not in loaded.loaded_modules()


# ---- memory ----


def test_an_allocation_is_rounded_up_to_its_page(t4: Sim) -> None:
    """64 KiB pages below 2 MiB, 2 MiB pages from there on, as measured on an H200."""
    for asked, taken in (
        (1, 64 * KIB),
        (64 * KIB, 64 * KIB),
        (64 * KIB + 1, 128 * KIB),
        (2 * MIB - 1, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (100 * MIB + 5, 102 * MIB),
    ):
        said = run(t4, "alloc", asked)
        assert (said["bytes"], T4_BYTES - said["free"]) == (taken, taken), asked


@pytest.mark.parametrize("name", ["simcuda", "simcuda32"])
def test_a_card_is_full_at_its_size_by_every_path(t4: Sim, name: str) -> None:
    """Both forms of RM_ALLOC, wrapped, VID_HEAP_CONTROL; from 64-bit and 32-bit programs."""
    heap = [["--heap", function] for function in ("2", "6", "14")]
    for options in ([], ["--old-alloc"], ["--xfer"], *heap):
        said = run(t4, *options, "fill", name=name)
        assert said["status"] == NV_ERR_NO_MEMORY, options
        assert (said["bytes"], said["free"]) == (T4_BYTES, 0), options
        assert sim_state()["free"] == T4_BYTES, options


def test_no_size_and_too_great_a_size_are_told_apart(t4: Sim) -> None:
    assert run(t4, "alloc", 0)["status"] == NV_ERR_INVALID_ARGUMENT
    assert run(t4, "alloc", 64 * GIB)["status"] == NV_ERR_NO_MEMORY


def test_every_answer_shows_the_same_memory(t4: Sim) -> None:
    """FB_GET_INFO, its second version, VID_HEAP_CONTROL INFO and the old ALLOC_MEMORY."""
    with Held(t4, "alloc", GIB):
        said = run(t4, "query")
    totals = "total_ram_size", "ram_size", "heap_size", "v1_heap_size", "heap_info_total"
    assert {said[key] for key in totals} == {T4_BYTES}
    assert {
        said[key] for key in ("heap_free", "largest_free", "v1_heap_free", "heap_info_free")
    } == {T4_BYTES - GIB}
    assert said["alloc_memory_limit"] == T4_BYTES - 1


def test_memory_lives_as_long_as_anything_holds_it(t4: Sim) -> None:
    size = 64 * MIB
    dup = run(t4, "dup", size)
    assert (dup["with_both"], dup["with_copy"], dup["with_none"]) == (size, size, 0)
    mapped = run(t4, "map", size)
    assert (mapped["taken"], mapped["after_unmap"]) == (size, 0)
    for way in "export", "dmabuf":
        said = run(t4, way, size)
        assert (said["taken"], said["after_close"]) == (size, 0), way
    pool = run(t4, "pool", size, 3)
    assert [pool[key] for key in ("taken", "child", "without_one", "after_close")] == [
        *(3 * size, 3, 2 * size, 0)
    ]
    imported = run(t4, "import", size)
    assert imported["child"] == 0
    assert (imported["taken"], imported["after_close"]) == (size, 0)


def test_map_free_repeat_fills_the_card(t4: Sim) -> None:
    """What UVM has duplicated RM_FREE does not give back."""
    said = run(t4, "map", GIB, 100)
    assert said["status"] == NV_ERR_NO_MEMORY
    assert said["bytes"] == said["taken"] == 14 * GIB
    assert run(t4, "info")["used"] == 0


def test_a_killed_process_gives_everything_back(t4: Sim) -> None:
    held = Held(t4, "--context", "alloc", GIB)
    assert run(t4, "info")["used"] == GIB + FIRST_CONTEXT_BYTES
    held.kill()
    until(lambda: sim_state()["free"] == T4_BYTES, "the memory's return")
    assert {key: sim_state()[key] for key in ("objects", "memories", "files")} == {
        "objects": 0,
        "memories": 0,
        "files": 0,
    }


def test_managed_memory_takes_the_card_when_moved_there(t4: Sim) -> None:
    said = run(t4, "managed", 64 * MIB)
    assert said["mapped"] == 0
    assert said["on_card"] == 64 * MIB
    assert said["after_touch"] == 62 * MIB  # the block that the host touched came back
    assert said["after_free"] == 0


def test_an_allocation_pushes_managed_memory_to_the_host(t4: Sim) -> None:
    with Held(t4, "managed", 8 * GIB) as managed:
        assert managed.said["on_card"] == 8 * GIB
        said = run(t4, "fill")
        assert said["bytes"] == T4_BYTES - FIRST_CONTEXT_BYTES
        assert run(t4, "info")["used"] == FIRST_CONTEXT_BYTES


@pytest.mark.vm(smp=2)
def test_racing_threads_and_processes_never_get_more_than_there_is(t4: Sim) -> None:
    said = run(t4, "threads", 16, 16 * MIB)
    assert said["other_errors"] == 0
    assert said["bytes"] == T4_BYTES // (16 * MIB) * (16 * MIB)
    assert run(t4, "processes", 4, 64 * MIB)["bytes"] == T4_BYTES


def test_a_context_takes_what_was_measured(t4: Sim) -> None:
    with Held(t4, "context") as first:
        assert first.said["hidden"] == FIRST_CONTEXT_BYTES
        assert run(t4, "context")["hidden"] == FURTHER_CONTEXT_BYTES
    until(lambda: sim_state()["free"] == T4_BYTES, "the context's memory")


# ---- identity and errors ----


@pytest.fixture
def control(t4: Sim) -> Iterator[rm.File]:
    with rm.File() as file:
        yield file


def test_a_device_needs_the_card_to_be_open(control: rm.File) -> None:
    client = control.client()
    params = bytes(56)
    _, status = control.alloc(client, client, 0x5C000002, NV01_DEVICE_0, params)
    assert status == NV_ERR_INSUFFICIENT_PERMISSIONS
    with rm.File(Path("/dev/nvidia0")):
        _, status = control.alloc(client, client, 0x5C000002, NV01_DEVICE_0, params)
        assert status == rm.NV_OK


def test_a_client_belongs_to_the_file_that_made_it(control: rm.File) -> None:
    client = control.client()
    with rm.File() as other:
        status, _ = other.control(client, client, 0x201, bytes(128))
        assert status == rm.NV_ERR_INVALID_CLIENT
        assert other.free(client, client, client) == rm.NV_ERR_INVALID_CLIENT
    status, _ = control.control(client, client, 0x201, bytes(128))
    assert status == rm.NV_OK


def test_a_child_may_use_the_file_that_it_inherited(control: rm.File) -> None:
    client = control.client()
    child = os.fork()
    if not child:
        status, _ = control.control(client, client, 0x201, bytes(128))
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_wrong_sizes_and_wrong_devices_are_einval(control: rm.File) -> None:
    with rm.File(Path("/dev/nvidia0")) as card:
        wrong = [
            (control, rm.NV_ESC_RM_FREE, 12),
            (control, rm.NV_ESC_RM_ALLOC, 40),
            (control, rm.NV_ESC_RM_CONTROL, 40),
            (control, 0x27, 56),  # ALLOC_MEMORY belongs on a card's file
            (control, 250, 16),
            (card, rm.NV_ESC_RM_CONTROL, 32),
            (card, rm.NV_ESC_RM_FREE, 16),
            (card, rm.NV_ESC_CHECK_VERSION_STR, 72),
        ]
        for file, number, size in wrong:
            with pytest.raises(OSError) as refused:
                file.escape(number, bytes(size))
            assert refused.value.errno == errno.EINVAL, (number, size)


def test_statuses_are_the_drivers(control: rm.File) -> None:
    client = control.client()
    assert control.control(client, client, 0x201, bytes(64))[0] == NV_ERR_INVALID_ARGUMENT
    assert control.control(client, client, 0x9999, bytes(8))[0] == NV_ERR_NOT_SUPPORTED
    assert control.control(client, 0x1234, 0x201, bytes(128))[0] == NV_ERR_OBJECT_NOT_FOUND
    assert control.control(0xC1DFFFFF, 0xC1DFFFFF, 0x201, bytes(128))[0] == rm.NV_ERR_INVALID_CLIENT
    assert control.alloc(client, client, 1, 0x9999)[1] == 0x22
    assert control.alloc(client, client, 1, NV20_SUBDEVICE_0, bytes(4))[1] == 0x36
    assert control.alloc(client, 0x77, 1, NV20_SUBDEVICE_0, bytes(4))[1] == NV_ERR_OBJECT_NOT_FOUND
    assert control.free(client, client, 0x5555) == rm.NV_OK
    with rm.File(Path("/dev/nvidia0")):
        assert control.alloc(client, client, 7, NV01_DEVICE_0, bytes(56))[1] == rm.NV_OK
        assert control.alloc(client, client, 7, NV01_DEVICE_0, bytes(56))[1] == 0x19
        handle, status = control.alloc(client, client, 0, NV01_DEVICE_0, bytes(56))
        assert status == rm.NV_OK and handle >= 0xCAF00000


def device(file: rm.File, cls: int = NV01_DEVICE_0, handle: int = 0x5C000002) -> int:
    client = file.client()
    assert file.alloc(client, client, handle, cls, bytes(56))[1] == rm.NV_OK
    return client


def vidmem(size: int) -> bytes:
    params = bytearray(128)
    struct.pack_into("=I", params, 0, OWNER)
    struct.pack_into("=Q", params, 64, size)
    return bytes(params)


def test_memory_of_nobody_is_refused_as_a_card_does(control: rm.File) -> None:
    with rm.File(Path("/dev/nvidia0")):
        client = device(control)
        for owner, expected in (
            (0, NV_ERR_INVALID_OWNER),
            (0xFFFFFFFF, NV_ERR_INVALID_OWNER),
            (client, rm.NV_OK),
        ):
            params = struct.pack("=I", owner) + vidmem(MIB)[4:]
            _, status = control.alloc(client, 0x5C000002, 10, NV01_MEMORY_LOCAL_USER, params)
            assert status == expected, owner


def test_freeing_a_parent_frees_what_is_below(control: rm.File) -> None:
    with rm.File(Path("/dev/nvidia0")):
        client = device(control)
        for handle in range(10, 20):
            _, status = control.alloc(
                client, 0x5C000002, handle, NV01_MEMORY_LOCAL_USER, vidmem(MIB)
            )
            assert status == rm.NV_OK
        assert sim_state()["free"] == T4_BYTES - 10 * MIB
        assert control.free(client, client, 0x5C000002) == rm.NV_OK
        assert sim_state()["free"] == T4_BYTES
        assert sim_state()["objects"] == 1


def test_dup_needs_the_same_process_or_a_share_with_all(control: rm.File) -> None:
    with rm.File(Path("/dev/nvidia0")):
        client = device(control)
        params = vidmem(MIB)
        assert control.alloc(client, 0x5C000002, 9, NV01_MEMORY_LOCAL_USER, params)[1] == rm.NV_OK

        def child() -> int:
            pid = os.fork()
            if not pid:
                with rm.File() as mine:
                    own = device(mine)
                    os._exit(mine.dup(own, 0x5C000002, 9, client, 9)[1])
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert child() == NV_ERR_INSUFFICIENT_PERMISSIONS
        assert control.share(client, 9, client, RS_ACCESS_DUP_OBJECT, RS_SHARE_TYPE_ALL) == rm.NV_OK
        assert child() == rm.NV_OK


def test_an_address_space_lives_by_its_duplicates_and_what_runs_in_it_goes_with_one(
    control: rm.File,
) -> None:
    """A duplicate of a group, or of a context share, goes with its own client's object for it."""
    dev, space, group, share, door = 0x5C000002, 3, 4, 5, 6
    with rm.File(Path("/dev/nvidia0")):
        one, two = device(control), device(control)
        empty = sim_state()
        for client in (one, two):
            assert control.alloc(client, dev, 2, NV20_SUBDEVICE_0, bytes(4))[1] == rm.NV_OK
        group_params = struct.pack("=IIIII", 0, 0, space, 1, 0)
        share_params = struct.pack("=III", space, 0, 0)
        for parent, new, cls, params in (
            (dev, space, FERMI_VASPACE_A, bytes(48)),
            (dev, group, KEPLER_CHANNEL_GROUP_A, group_params),
            (group, share, FERMI_CONTEXT_SHARE_A, share_params),
            (2, door, TURING_USERMODE_A, b""),
        ):
            assert control.alloc(one, parent, new, cls, params)[1] == rm.NV_OK

        def dup(parent: int, new: int, old: int) -> int:
            return control.dup(two, parent, new, one, old)[1]

        # where each may be
        for old in (space, group, door):
            assert dup(two, 20, old) == NV_ERR_INVALID_OBJECT_PARENT
            assert dup(0x77, 20, old) == NV_ERR_OBJECT_NOT_FOUND
        assert dup(dev, 20, door) == NV_ERR_INVALID_OBJECT_PARENT
        assert dup(2, 20, group) == NV_ERR_INVALID_OBJECT_PARENT
        assert dup(dev, 20, share) == NV_ERR_INVALID_OBJECT_HANDLE
        assert dup(2, 20, space) == rm.NV_OK
        assert dup(dev, 21, group) == rm.NV_OK
        assert dup(21, 22, share) == rm.NV_OK
        assert dup(2, 23, door) == rm.NV_OK
        # the space's own object takes group and context share along, and it stays
        objects = sim_state()["objects"]
        assert control.free(one, one, space) == rm.NV_OK
        assert objects - sim_state()["objects"] == 3
        assert control.free(two, two, 20) == rm.NV_OK
        assert objects - sim_state()["objects"] == 6
        assert empty["free"] == sim_state()["free"]
        for client in (one, two):
            assert control.free(client, client, client) == rm.NV_OK
        assert sim_state()["objects"] == 0


def test_classes_that_reach_all_memory_need_administration(t4: Sim) -> None:
    # A copy where anybody may run it.
    anybody = Path(shutil.copy(program(t4), "/run/simcuda"))
    for cls in "c2", "82", "83", "3f":
        assert run(t4, "class", cls)["status"] == rm.NV_OK, cls
        refused = subprocess.run(
            [anybody, "--json", "class", cls], user=65534, group=65534, capture_output=True
        )
        assert json.loads(refused.stdout)["status"] == NV_ERR_INSUFFICIENT_PERMISSIONS, cls


def test_unified_memory_refuses_what_comes_before_its_initialization(t4: Sim) -> None:
    with rm.File(Path("/dev/nvidia-uvm")) as memory:
        answer = memory.uvm(73, struct.pack("=QQII", 1 << 40, MIB, 0, 0))
        assert struct.unpack("=QQII", answer)[2] == NV_ERR_ILLEGAL_ACTION
        assert memory.uvm_initialize() == rm.NV_OK
        with pytest.raises(OSError) as refused:
            memory.uvm(4711, bytes(64))
        assert refused.value.errno == errno.EINVAL


def insmod_check(t4: Sim, stack: loaded.Modules, *words: str, fds: tuple[int, ...] = ()) -> None:
    subprocess.run(["insmod", t4.directory / "nvsim-check.ko", *words], pass_fds=fds, check=True)
    stack.names.append("nvsim_check")


def test_a_hook_that_swaps_a_files_operations_breaks_the_card(
    t4: Sim, control: rm.File, loaded_modules: loaded.Modules
) -> None:
    with rm.File(Path("/dev/nvidia0")) as card:
        insmod_check(t4, loaded_modules, f"fd={card.fd}", fds=(card.fd,))
        client = control.client()
        status = control.alloc(client, client, 2, NV01_DEVICE_0, bytes(56))[1]
        loaded_modules.unload("nvsim_check")
        assert status == NV_ERR_INSUFFICIENT_PERMISSIONS
        assert control.alloc(client, client, 2, NV01_DEVICE_0, bytes(56))[1] == rm.NV_OK


def test_a_hook_that_swaps_a_files_operations_breaks_unified_memory(
    t4: Sim, loaded_modules: loaded.Modules
) -> None:
    uvm = Path("/dev/nvidia-uvm")
    with rm.File(uvm) as memory, rm.File(uvm) as mm:
        assert memory.uvm_initialize() == rm.NV_OK
        insmod_check(t4, loaded_modules, f"fd={memory.fd}", fds=(memory.fd,))
        status = struct.unpack("=iI", mm.uvm(75, struct.pack("=iI", memory.fd, 0)))[1]
        loaded_modules.unload("nvsim_check")
        assert status == NV_ERR_INVALID_ARGUMENT
        assert struct.unpack("=iI", mm.uvm(75, struct.pack("=iI", memory.fd, 0)))[1] == rm.NV_OK


def test_a_kernel_client_shakes_hands_and_controls_any_client(
    t4: Sim, control: rm.File, loaded_modules: loaded.Modules
) -> None:
    client = control.client()
    insmod_check(t4, loaded_modules, f"client={client}")
    parameters = Path("/sys/module/nvsim_check/parameters")
    said = {path.name: path.read_text().strip() for path in parameters.iterdir()}
    assert said["version"] == Path("/sys/module/nvidia/version").read_text().strip()
    assert (said["first_status"], said["second_status"]) == (str(0xFFFF), "0")
    assert (said["control_status"], said["gpus"]) == ("0", "1")
    assert (said["map_status"], said["map_value"]) == ("0", "4711")
    assert said["unmap_status"] == str(NV_ERR_OBJECT_NOT_FOUND)


def test_the_driver_does_not_unload_while_it_is_open(t4: Sim, control: rm.File) -> None:
    assert subprocess.run(["rmmod", "nvidia"], capture_output=True).returncode
    assert "nvidia" in loaded.loaded_modules()


def test_nothing_is_left_after_many_processes(t4: Sim) -> None:
    for turn in range(30):
        held = Held(t4, "--context", "alloc", 10 * MIB)
        if turn % 2:
            held.kill()
        else:
            held.process.terminate()
            held.process.wait()
    until(lambda: sim_state()["files"] == 0, "all files closed")
    assert sim_state()["objects"] == sim_state()["memories"] == 0
    assert sim_state()["free"] == T4_BYTES


# ---- work ----


class Work:
    """A simcuda that launches kernels, and its channels by name."""

    def __init__(self, driver: Sim, seconds: float, ms: float, *slice_us: int) -> None:
        self.process = subprocess.Popen(
            [
                program(driver),
                "--json",
                "--announce",
                "launch",
                str(seconds),
                str(ms),
                *map(str, slice_us),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr
        words = self.process.stderr.readline().split()
        self.channels = words[-1]

    def result(self) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        told: dict[str, Any] = json.loads(out)
        return told


def busy_ns(runlist: int = 0) -> int:
    text = Path("/proc/driver/nvidia-sim").read_text()
    found = re.search(rf"^runlist {runlist} busy_ns (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def group_busy_ns() -> list[int]:
    """Engine time that each group of the graphics engine has had, shortest slice first."""
    text = Path("/proc/driver/nvidia-sim").read_text().partition("runlist 1 ")[0]
    found = re.findall(r"^ group (\d+) slice_us (\d+) busy_ns (\d+)", text, re.MULTILINE)
    groups = sorted((int(slice_us), int(number), int(ns)) for number, slice_us, ns in found)
    return [ns for _, _, ns in groups]


def test_alone_a_program_has_the_whole_engine(t4: Sim) -> None:
    assert Work(t4, 2, 1).result()["share_permille"] > 980


@pytest.mark.parametrize(("slices", "ratio"), [((2048, 2048), 1.0), ((1000, 9000), 9.0)])
def test_shares_follow_the_slices(t4: Sim, slices: tuple[int, int], ratio: float) -> None:
    both = [Work(t4, 60, 5, slice_us) for slice_us in slices]
    until(lambda: min(group_busy_ns() + [0] * (2 - len(group_busy_ns()))) > 0, "both at work")
    before = group_busy_ns()
    until(lambda: sum(group_busy_ns()) - sum(before) > 1_500_000_000, "a second and a half")
    first, second = (after - start for after, start in zip(group_busy_ns(), before, strict=True))
    for work in both:
        work.process.terminate()
        work.result()
    assert second / first == pytest.approx(ratio, rel=0.1)


def test_the_gate_stops_a_kernel_in_the_middle_and_lets_it_go_on(t4: Sim) -> None:
    """Also through a client of somebody else's: the stock driver does not mind."""
    work = Work(t4, 4, 500)
    until(lambda: busy_ns() > 0, "the kernel's start")
    assert run(t4, "gate", "off", work.channels)["status"] == 0
    stopped = busy_ns()
    # Far longer than the driver takes: the count must not move at all.
    subprocess.run(["sleep", "0.5"], check=True)
    assert busy_ns() == stopped
    assert run(t4, "gate", "on", work.channels)["status"] == 0
    until(lambda: busy_ns() > stopped, "the kernel's going on")
    assert work.result()["kernels"] > 0


def test_disabling_scheduling_alone_does_not_stop_a_long_kernel(t4: Sim) -> None:
    work = Work(t4, 3, 2000)
    until(lambda: busy_ns() > 0, "the kernel's start")
    assert run(t4, "gate", "drain", work.channels)["status"] == 0
    before = busy_ns()
    until(lambda: busy_ns() > before + 200_000_000, "the kernel going on behind the gate")
    assert run(t4, "gate", "on", work.channels)["status"] == 0
    work.result()


def test_a_slice_is_what_was_set_and_cuda_sets_2048(t4: Sim) -> None:
    assert run(t4, "slice", 500) == {"status": 0, "slice_us": 500}
    assert run(t4, "slice", 0) == {"status": NV_ERR_INVALID_ARGUMENT, "slice_us": 2048}


def test_an_idle_card_uses_no_processor(t4: Sim) -> None:
    def ticks() -> int:
        for stat in (one / "stat" for one in directories(Path("/proc"))):
            text = stat.read_text()
            if "(nvsim/0)" in text:
                return sum(map(int, text.rsplit(")", 1)[1].split()[11:13]))
        raise AssertionError("no engine thread")

    with Held(t4, "context"):
        before = ticks()
        subprocess.run(["sleep", "1"], check=True)
        assert ticks() - before <= 1


# ---- the log of context switches ----

NV_ESC_RM_MAP_MEMORY = 0x4E
NV01_MEMORY_DEVICELESS = 0x90CE
NV_EVENT_BUFFER = 0x90CD
START, END = 6, 7

# Seen on an H200: from one context's end to the next one's start.
RESTORE_NS = 80_000
SWITCH_NS = 150_000


class Switches:
    """The first card's log of context switches, read as a profiler does."""

    DEVICE, SUBDEVICE, HEADER, RECORDS, BUFFER = range(0x5C000002, 0x5C000007)
    COUNT, BYTES = 8192, 32

    def __init__(self, read_only: bool = True) -> None:
        self.file, self.card = rm.File(), rm.File(Path("/dev/nvidia0"))
        self.client = device(self.file, handle=self.DEVICE)
        assert self._alloc(self.DEVICE, self.SUBDEVICE, NV20_SUBDEVICE_0, bytes(4)) == rm.NV_OK
        self.got = 0
        self.maps: list[mmap.mmap] = []
        for handle, size in (self.HEADER, 4096), (self.RECORDS, self.COUNT * self.BYTES):
            params = bytearray(vidmem(size))
            struct.pack_into("=I", params, 28, read_only << 22)
            status = self._alloc(self.client, handle, NV01_MEMORY_DEVICELESS, bytes(params))
            assert status == rm.NV_OK
        self.status = self.allocate()

    def _alloc(self, parent: int, handle: int, cls: int, params: bytes) -> int:
        return self.file.alloc(self.client, parent, handle, cls, params)[1]

    def allocate(self, header: int = HEADER, count: int = COUNT) -> int:
        """Allocate the buffer; return the status."""
        params = bytearray(72)
        struct.pack_into("=II", params, 16, self.BYTES, count)
        struct.pack_into("=I", params, 52, self.SUBDEVICE)
        struct.pack_into("=II", params, 60, header, self.RECORDS)
        return self._alloc(self.client, self.BUFFER, NV_EVENT_BUFFER, bytes(params))

    def map(self, handle: int, size: int, flags: int = 1) -> mmap.mmap | int:
        """Map memory, by default for reading; return the status where the driver refuses."""
        with rm.File() as file:
            packed = struct.pack(
                "=IIIIQQQIIiI",
                *(self.client, self.client, handle, 0, 0, size, 0, 0, flags, file.fd, 0),
            )
            answer = self.file.escape(NV_ESC_RM_MAP_MEMORY, packed)
            status = struct.unpack_from("=I", answer, 40)[0]
            return status or mmap.mmap(file.fd, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def begin(self) -> Switches:
        """Map the ring and turn the log on, for all users' contexts; return itself."""
        assert self.status == rm.NV_OK
        header, records = self.map(self.HEADER, 4096), self.map(self.RECORDS, 32 * self.COUNT)
        assert isinstance(header, mmap.mmap) and isinstance(records, mmap.mmap)
        self.header, self.records = header, records
        self.maps += [header, records]
        bind = struct.pack("=IIIIB3xI", self.BUFFER, 24, 0, 0, 1, 0)
        for target, cmd, params in (
            (self.SUBDEVICE, 0x20801238, bind),
            (self.BUFFER, 0x90CD0101, struct.pack("=B3xI", 1, 2)),  # keeping the newest
        ):
            assert self.file.control(self.client, target, cmd, params)[0] == rm.NV_OK
        return self

    def now_ns(self) -> int:
        """Return the card's clock."""
        status, answer = self.file.control(self.client, self.SUBDEVICE, 0x20800403, bytes(8))
        assert status == rm.NV_OK
        return int(struct.unpack("=Q", answer)[0])

    def arrived(self) -> int:
        """Return how many records are in the ring that have not been taken."""
        return int((struct.unpack_from("=I", self.header, 4)[0] - self.got) % self.COUNT)

    def take(self, flush: bool = True) -> list[tuple[int, int, int, int]]:
        """Return the records since the last call: tag, number, pid, time in ns."""
        if flush:
            packed = struct.pack("=IIIIQII", self.client, self.BUFFER, 0x90CD0104, 0, 0, 0, 0)
            answer = self.file.escape(rm.NV_ESC_RM_CONTROL, packed)
            assert struct.unpack_from("=I", answer, 28)[0] == rm.NV_OK
        taken = []
        for _ in range(self.arrived()):
            kind, zero, tag, number, pid, gpu, compute, ns = struct.unpack_from(
                "=HxxIBxHxxxxIxxBBQ", self.records, self.got * self.BYTES
            )
            assert (kind, zero, gpu, compute) == (2, 0, 0xFF, 0xFF)
            taken.append((tag, number, pid, ns))
            self.got = (self.got + 1) % self.COUNT
        return taken

    def close(self) -> None:
        for mapping in self.maps:
            mapping.close()
        for file in (self.file, self.card):
            file.close()


@pytest.fixture
def switches(t4: Sim) -> Iterator[Switches]:
    log = Switches()
    yield log.begin()
    log.close()


def test_the_log_of_switches_tells_who_had_the_engine_and_for_how_long(
    t4: Sim, switches: Switches
) -> None:
    both = [Work(t4, 60, 5, slice_us) for slice_us in (2000, 6000)]
    until(lambda: len(group_busy_ns()) == 2 and min(group_busy_ns()) > 0, "both at work")
    until(lambda: sum(group_busy_ns()) > 1_500_000_000, "a second and a half")
    # What they have had is over with this, for the log and for the driver's own figures.
    assert run(t4, "gate", "off", ",".join(work.channels for work in both))["status"] == 0
    groups = group_busy_ns()
    text = Path("/proc/driver/nvidia-sim").read_text()
    runlist = r"^runlist 0 busy_ns (\d+) switch_ns (\d+) switches (\d+)"
    ((busy, switch, count),) = (map(int, row) for row in re.findall(runlist, text, re.M))
    records = switches.take()
    starts, ends = records[::2], records[1::2]
    assert {tag for tag, *_ in starts} == {START} and {tag for tag, *_ in ends} == {END}
    assert [number for _, number, *_ in records] == list(range(len(records)))
    assert [pid for *_, pid, _ in starts] == [pid for *_, pid, _ in ends]
    gaps = [start - end for (*_, end), (*_, start) in zip(ends, starts[1:], strict=False)]
    # Each of the two that were disabled may have cut a counted switch short.
    assert count - 2 <= len(gaps) <= count and set(gaps[:-1]) == {RESTORE_NS}
    spans = {work.process.pid: 0 for work in both}
    for (*_, pid, start), (*_, end) in zip(starts, ends, strict=True):
        spans[pid] += end - start
    assert sum(spans.values()) + sum(gaps) == pytest.approx(busy + switch, rel=0.001)
    for work, own_ns in zip(both, groups, strict=True):
        saving_ns = count / 2 * (SWITCH_NS - RESTORE_NS)
        assert spans[work.process.pid] == pytest.approx(own_ns + saving_ns, rel=0.01)
    for work in both:
        work.process.kill()
        work.process.communicate()


def test_a_context_stays_loaded_while_idle_until_its_channels_are_disabled(
    t4: Sim, switches: Switches
) -> None:
    work = subprocess.Popen(
        [program(t4), "--json", "--announce", "--hold", "launch", "0.2", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert work.stdout and work.stderr
    channels = work.stderr.readline().split()[-1]
    work.stdout.readline()
    until(switches.arrived, "the record's arrival without a flush")
    assert [(tag, pid) for tag, _, pid, _ in switches.take(flush=False)] == [(START, work.pid)]
    subprocess.run(["sleep", "0.3"], check=True)
    assert switches.take() == []
    before_ns = switches.now_ns()
    assert run(t4, "gate", "off", channels)["status"] == 0
    ((tag, _, pid, ns),) = switches.take()
    assert (tag, pid) == (END, work.pid)
    assert before_ns < ns < switches.now_ns()
    assert run(t4, "gate", "on", channels)["status"] == 0
    work.kill()
    work.communicate()
    other = Work(t4, 0.2, 1)
    other.result()
    assert [(tag, pid) for tag, _, pid, _ in switches.take()] == [
        (START, other.process.pid),
        (END, other.process.pid),
    ]


def test_an_event_buffer_is_as_guarded_as_the_drivers(t4: Sim) -> None:
    writable = Switches(read_only=False)
    assert writable.status == NV_ERR_INVALID_ARGUMENT
    writable.close()
    log = Switches()
    assert log.file.free(log.client, log.client, log.RECORDS) == rm.NV_OK
    assert log.allocate() == NV_ERR_OBJECT_NOT_FOUND  # the buffer has gone with its memory
    assert log.allocate(header=0) == NV_ERR_NOT_SUPPORTED
    assert log.map(log.HEADER, 4096, flags=0) == NV_ERR_INVALID_ARGUMENT
    log.close()


def test_the_log_hides_whose_contexts_they_are_from_other_users(t4: Sim) -> None:
    both = [Work(t4, 60, 1) for _ in range(2)]
    until(lambda: len(group_busy_ns()) == 2 and min(group_busy_ns()) > 0, "both at work")
    child = os.fork()
    if not child:
        seen: set[tuple[int, int]] = set()
        try:
            os.setgid(65534)
            os.setuid(65534)
            log = Switches().begin()
            until(lambda: log.arrived() > 10, "records")
            seen = {(tag, pid) for tag, _, pid, _ in log.take(flush=False)}
        finally:
            os._exit(seen != {(START, 0), (END, 0)})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for work in both:
        work.process.kill()
        work.process.communicate()
