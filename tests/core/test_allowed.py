# SPDX-License-Identifier: MIT
"""What is listed, what is not, who else a call may name, and what a channel group is."""

from __future__ import annotations

import errno
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.core import NO_CARD, Abi, Call, Device, Verdict, ffi, lib
from tests.core import strategies as nv
from tests.core.test_answers import (
    ABI,
    CLIENT,
    DEVICE,
    FOREIGN,
    INVALID_CLASS,
    INVALID_STATE,
    SUBDEVICE,
    Container,
)

SOURCE = Path(__file__).resolve().parents[2] / "kmod/core/rm/allowed.c"
MIB, GIB = 1 << 20, 1 << 30
ABI_570, ABI_595 = Abi("570.211.01"), Abi("595.44.03")
GRAPHICS, COPY = 1, 9
SCHEDULE_GROUP, SCHEDULE_CHANNEL = 0xA06C0101, 0xA06F0103
REGISTER_FD, ALLOC_OS_EVENT, FREE_OS_EVENT, MAP_DMA, UNMAP_DMA = 201, 206, 207, 87, 88
# Waits under the driver's locks, for channels of clients that stand behind a pointer.
IDLE_CHANNELS = 65
# What an MPS server is to the driver: its clients' work could not be told apart.
MPS_COMPUTE = 0x900E
# Memory of the host beside a Grace processor, which neither a ledger nor a cgroup counts.
EGM = 0x42
EXPORT_DMABUF = 217
# NVOS32_ALLOC_FLAGS_*
LAZY, VIRTUAL, EXTERNALLY_MANAGED, SPARSE = 0x400, 0x80000, 0x400000, 0x4000000
EVENT, DEBUGGER, CONFIDENTIAL, DISABLE_HMM = 0x79, 0x83DE, 0xCB33, 1
REFUSED_CONTROLS = [
    0x20800122,  # GPU_EXEC_REG_OPS
    0x20801121,  # FIFO_OBJSCHED_SET_STATE
    0x20801123, 0x20801124,  # unique ids of groups and channels
    0x20801209, 0x20801211, 0x2080123A,  # binds of contexts of any client
    0x20801205,  # GR_CTXSW_ZCULL_MODE: shares another client's
    *range(0x83DE0321, 0x83DE0325),  # DEBUG_SET_SINGLE_SM_…: of an SM, whoever has it
    0x83DE032A,  # DEBUG_SET_MODE_MMU_GCC_DEBUG
    0x83DE0317, 0x83DE0318,  # DEBUG_SUSPEND_CONTEXT, RESUME: another hand on the gate
    0x906F0102,  # RESET_CHANNEL: of an engine that it names
]  # fmt: skip
# Nobody's, NVIDIA's next, legacy GSS (an administrator's too), binary API, a debugger's mode.
UNKNOWN_CONTROLS = [
    0x2080FFFF, 0xF0000000, 0x2080B0FF, 0x2080C001, 0x2081FFFF, 0xB0CC0107, 0x83DE0302,
]  # fmt: skip


def admit(container: Container, yes: bool = True) -> None:
    container.tenant.raw.ledger.account[1].admit_unknown = yes


def told(call: Call) -> tuple[str, int, bool]:
    """What the door tells of a call that no list names."""
    unlisted = call.raw.unlisted
    return ffi.string(unlisted.kind).decode(), unlisted.number, unlisted.first


def rows(table: str) -> dict[int, str]:
    """The rows of one of the tables, as they are written: the number, and how it is judged."""
    found = re.search(rf"cgpu_rule {table}\[\] = \{{(.*?)\n\}};", SOURCE.read_text(), re.DOTALL)
    assert found
    written = re.findall(r"^\t([A-Z]+)\((\w+)", found[1], re.MULTILINE)
    return {
        int(number, 16) if number.startswith("0x") else getattr(lib, number): how
        for how, number in written
    }


@pytest.mark.parametrize(("table", "find", "least"), [
    ("controls", lib.cgpu_control_rule, 300), ("classes", lib.cgpu_class_rule, 120),
])  # fmt: skip
def test_every_row_is_found(table: str, find: Any, least: int) -> None:
    """The search wants them in order."""
    numbers = rows(table)
    assert sorted(numbers) == list(numbers)
    assert len(numbers) > least
    for number, how in numbers.items():
        judge = {"PASS": lib.CGPU_JUDGE_DRIVER, "OWN": lib.CGPU_JUDGE_DRIVER,
                 "JUDGE": lib.CGPU_JUDGE_CORE, "DENY": lib.CGPU_JUDGE_NEVER,
                 "MEMBER": lib.CGPU_JUDGE_GROUP, "UNLISTED": lib.CGPU_JUDGE_NONE}[how]  # fmt: skip
        assert (find(number).number, find(number).judge) == (number, judge)
        assert how != "UNLISTED" or find(number).opaque or places(find(number))
        assert not (find(number).opaque and find(number).pointer[0].at)


def places(rule: Any) -> list[int]:
    """Where further clients, descriptors and pointers stand in the parameters."""
    pointers = [n for p in rule.pointer for n in (p.at, p.count)]
    return [n - 1 for n in (*rule.hClient, rule.fd, rule.capability, *pointers) if n]


@pytest.mark.parametrize("table", ["controls", "classes"])
def test_what_the_core_reads_of_parameters_has_all_places_in_it(table: str) -> None:
    find = lib.cgpu_control_rule if table == "controls" else lib.cgpu_class_rule
    for number, how in rows(table).items():
        rule = find(number)
        assert how != "JUDGE" or all(at + 4 <= rule.params_bytes for at in places(rule)), number


@pytest.mark.parametrize("find", [lib.cgpu_control_rule, lib.cgpu_class_rule])
def test_a_row_that_is_there_for_its_pointers_is_listed_no_more_than_others(find: Any) -> None:
    """Refused in both doors; where an administrator admits it, by the agent all the same."""
    container = Container()
    table, nr, status = (("controls", nv.CONTROL, nv.NOT_SUPPORTED)
                         if find == lib.cgpu_control_rule else
                         ("classes", nv.ALLOC, INVALID_CLASS))  # fmt: skip
    unlisted = [number for number, how in rows(table).items() if how == "UNLISTED"]
    assert len(unlisted) > 5
    for number in unlisted:
        args = (nv.rm_control(CLIENT, SUBDEVICE, number) if nr == nv.CONTROL else
                nv.rm_alloc(CLIENT, DEVICE, 9, number))  # fmt: skip
        verdict, call = container.ask(nr, args)
        assert (verdict, call.status) == (Verdict.ANSWER, status)
        assert told(call)[:2] == ("control" if nr == nv.CONTROL else "class", number)


@pytest.mark.parametrize("cmd", UNKNOWN_CONTROLS)
def test_a_control_that_is_not_listed_is_refused_and_counted_until_it_is_admitted(cmd: int) -> None:
    container = Container()
    args = nv.rm_control(CLIENT, SUBDEVICE, cmd)
    verdict, call = container.ask(nv.CONTROL, args)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)
    assert told(call) == ("control", cmd, True)
    assert container.account.refused == 1
    assert told(container.ask(nv.CONTROL, args)[1]) == ("control", cmd, False)
    admit(container)
    verdict, call = container.ask(nv.CONTROL, args)
    assert (verdict, told(call)) == (Verdict.FORWARD, ("control", cmd, True))
    assert container.account.refused == 2


@pytest.mark.parametrize("cmd", REFUSED_CONTROLS)
def test_what_acts_on_other_tenants_is_not_admitted_by_anyone(cmd: int) -> None:
    container = Container()
    admit(container)
    verdict, call = container.ask(nv.CONTROL, nv.rm_control(CLIENT, SUBDEVICE, cmd, bytes(64)))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


@pytest.mark.parametrize("cls", [EGM, 0xDA, 0xF8, 0xFFFF, 0xB2CC, 0x906F, MPS_COMPUTE])
def test_a_class_that_is_not_listed_is_refused(cls: int) -> None:
    verdict, call = Container().ask(nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, 9, cls))
    assert (verdict, call.status) == (Verdict.ANSWER, INVALID_CLASS)
    assert told(call) == ("class", cls, True)


def test_a_class_that_is_not_listed_is_refused_by_its_elder_name_too() -> None:
    """VID_HEAP_CONTROL makes EGM of what says so in attr2, wherever else it shall lie."""
    args = nv.heap_alloc(CLIENT, DEVICE, 9, MIB, attr=1 << 25)
    assert Container().ask(nv.VID_HEAP, args)[0] is Verdict.FORWARD
    nv.set32(args, 144, 1 << 24)
    verdict, call = Container().ask(nv.VID_HEAP, args)
    assert (verdict, call.status, told(call)) == (
        Verdict.ANSWER,
        INVALID_CLASS,
        ("class", EGM, True),
    )


@given(st.integers(0, 255))
def test_an_escape_that_is_interpreted_is_listed(nr: int) -> None:
    assert lib.cgpu_command_known(Device.CTL, nr) or not lib.cgpu_interprets(nr)


def test_what_the_core_interprets_it_judges_and_all_places_are_in_the_argument() -> None:
    fields = ("hClient", "hParent", "hObject", "hClass", "flags", "status", "fd", "hClientSrc",
              "hObjectSrc", "params", "rights", "gpu", "base", "length", "offset",
              "chosen")  # fmt: skip
    rules = [*lib.cgpu_escapes, *lib.cgpu_uvm_commands, lib.cgpu_uvm_initialize]
    interpreted = [rule for rule in rules if rule.op]
    assert len(interpreted) > 30
    for rule in interpreted:
        assert (rule.judge, rule.unlisted_size) == (lib.CGPU_JUDGE_CORE, 0)
        places = [getattr(rule, field) for field in fields if getattr(rule, field)]
        assert not rule.size or max((place + 3 for place in places), default=0) <= rule.size
        # of what is counted from the end, four bytes are before it
        assert all(place <= -4 for place in places if place < 0)
        assert rule.hObject or not rule.makes
    assert not [rule for rule in rules if rule.unlisted_size and rule.judge]


@pytest.mark.parametrize(("device", "nr"), [
    (Device.CTL, 77), (Device.CTL, 255), (Device.CTL, IDLE_CHANNELS), (Device.GPU, 0x39),
    (Device.UVM, 9), (Device.UVM, 62),
])  # fmt: skip
def test_commands_that_are_not_listed_are_refused_and_counted(device: Device, nr: int) -> None:
    container = Container()
    assert not lib.cgpu_command_known(device, nr)
    unlisted = ffi.new("struct cgpu_unlisted *")
    kind = b"uvm" if device is Device.UVM else b"escape"

    def ask() -> tuple[bool, bool]:
        admitted = lib.cgpu_call_unknown(container.tenant.raw, device, nr, unlisted)
        assert (ffi.string(unlisted.kind), unlisted.number) == (kind, nr)
        return admitted, unlisted.first

    assert ask() == (False, True)
    assert ask() == (False, False)
    assert container.account.refused == 2
    admit(container)
    assert ask() == (True, True)
    assert ask() == (True, False)


def test_a_container_tells_of_so_many_numbers_and_no_more() -> None:
    container = Container()
    calls = [
        container.ask(nv.CONTROL, nv.rm_control(CLIENT, SUBDEVICE, 0x2080FF00 + i))[1]
        for i in range(lib.CGPU_TOLD_MAX + 1)
    ]
    assert [call.raw.unlisted.first for call in calls] == [True] * lib.CGPU_TOLD_MAX + [False]
    assert container.account.refused == len(calls)


def test_what_is_listed_and_refused_is_not_told_of_as_unlisted() -> None:
    _, call = Container().ask(nv.CONTROL, nv.rm_control(CLIENT, SUBDEVICE, 0x20801121))
    assert call.raw.unlisted.kind == ffi.NULL


def test_who_uses_the_card_is_not_told() -> None:
    """The driver names all processes of the host, and where they lie in its kernel."""
    verdict, call = Container().control(0x20802096, nv.put(55888, (0, "B", 2), (4, "I", 55872)))
    assert (verdict, call.error, call.status) == (Verdict.ANSWER, 0, nv.OK)
    assert call.request.raw.params_size == 0  # nothing is written to it


@pytest.mark.parametrize(("cmd", "handle", "size", "count"), [
    (0x0B04, CLIENT, 16012, None),  # GPUACCT_GET_ACCOUNTING_PIDS: the count stands behind
    (0x2080016E, SUBDEVICE, 16, 0),  # GPU_GET_NVENC_SW_SESSION_INFO
    (0x2080017C, SUBDEVICE, 13316, 0),  # GPU_GET_NVFBC_SW_SESSION_INFO
])  # fmt: skip
def test_nobody_is_listed_who_had_the_card_or_encodes_with_it(
    cmd: int, handle: int, size: int, count: int | None
) -> None:
    container = Container()
    verdict, call = container.control(cmd, nv.put(size, (0, "I", 7)), handle)
    assert (verdict, call.error, call.status) == (Verdict.ANSWER, 0, nv.OK)
    assert container.account.refused == 0
    if count is not None:
        assert nv.get32(call.params, 0) == count


@pytest.mark.parametrize(("limit", "shown"), [(GIB, GIB), (None, 4 * GIB)])
def test_confidential_memory_is_the_containers_share(limit: int | None, shown: int) -> None:
    container = Container()
    account = container.tenant.raw.ledger.account[1]
    account.max_bytes, account.unlimited = limit or 0, limit is None
    params = nv.put(24, (0, "I", SUBDEVICE))
    verdict, call = container.control(0xCB330106, params, CLIENT)
    assert verdict is Verdict.FORWARD
    call.set_params(nv.put(24, (0, "I", SUBDEVICE), (8, "Q", 4 * GIB >> 10), (16, "Q", 1)))
    assert call.post() is Verdict.DONE
    assert (nv.get64(call.params, 8) << 10, nv.get64(call.params, 16)) == (shown, 1)


def test_a_debugger_begins_though_the_cards_mode_of_mmu_stays() -> None:
    """compute-sanitizer and cuda-gdb ask for it first (580.159.04); it is one for the card."""
    container = Container()
    container.alloc(CLIENT, SUBDEVICE, 0x70, DEBUGGER, nv.put(12, (4, "I", CLIENT)))
    for cmd, wanted in (
        (0x83DE0309, Verdict.FORWARD),  # SET_EXCEPTION_MASK
        (0x83DE031F, Verdict.FORWARD),  # SET_MODE_ERRBAR_DEBUG, of its context
        (0x83DE0307, Verdict.ANSWER),  # SET_MODE_MMU_DEBUG
    ):
        verdict, call = container.control(cmd, nv.put(4, (0, "I", 1)), 0x70)
        assert (verdict, call.status) == (wanted, nv.OK)
    assert container.account.refused == 0


# ---------------------------------------------------------------- other clients


@pytest.mark.parametrize(("named", "verdict"), [
    (0, Verdict.FORWARD), (CLIENT, Verdict.FORWARD), (FOREIGN, Verdict.ANSWER),
])  # fmt: skip
@pytest.mark.parametrize(("cls", "size", "place"), [
    (EVENT, 24, 0), (DEBUGGER, 12, 4), (nv.DEVICE, 56, 4), (nv.DEVICE, 56, 8),
    (CONFIDENTIAL, 4, 0),
])  # fmt: skip
def test_a_client_in_the_parameters_is_the_container_s(
    cls: int, size: int, place: int, named: int, verdict: Verdict
) -> None:
    params = nv.put(size, (place, "I", named))
    above = CLIENT if cls == nv.DEVICE else DEVICE
    args = nv.rm_alloc(CLIENT, above, 9, cls, params)
    got, call = Container().ask(nv.ALLOC, args, params)
    assert got is verdict
    assert got is Verdict.FORWARD or call.status == nv.INVALID_CLIENT


@pytest.mark.parametrize(("cmd", "size", "place", "target"), [
    (0x20801208, 24, 0, SUBDEVICE),  # GR_CTXSW_ZCULL_BIND
    (0x00000D03, 12, 4, CLIENT),  # CLIENT_GET_ACCESS_RIGHTS: looks an object of it up, unlocked
])  # fmt: skip
def test_a_control_names_a_client_of_the_container_or_is_refused(
    cmd: int, size: int, place: int, target: int
) -> None:
    container = Container()
    for client, expected in ((CLIENT, Verdict.FORWARD), (FOREIGN, Verdict.ANSWER)):
        params = nv.put(size, (place, "I", client))
        args = nv.rm_control(CLIENT, target, cmd, params)
        assert container.ask(nv.CONTROL, args, params)[0] is expected
    # what is too short to be read is not for the driver either
    params = bytearray(2)
    args = nv.rm_control(CLIENT, target, cmd, params)
    assert container.ask(nv.CONTROL, args, params)[0] is Verdict.ANSWER


def os_event(client: int, fd: int = 5) -> bytearray:
    return nv.put(16, (0, "I", client), (8, "i", fd))


def registered(container: Container) -> int:
    """A file of the card's that is registered with the control file, as CUDA's for events is."""
    file = container.tenant.open(Device.GPU, 1, pid=70)
    verdict, call = container.ask(
        REGISTER_FD, nv.put(4, (0, "i", 3)), file=file, fd_file=container.ctl
    )
    assert (verdict, call.post()) == (Verdict.FORWARD, Verdict.DONE)
    return file


@pytest.mark.parametrize("nr", [ALLOC_OS_EVENT, FREE_OS_EVENT])
def test_an_os_event_of_a_foreign_client_is_out_of_reach(nr: int) -> None:
    container = Container()
    verdict, call = container.ask(nr, os_event(FOREIGN))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INVALID_CLIENT)
    assert container.ask(nr, os_event(CLIENT))[0] is Verdict.FORWARD


def test_an_os_event_does_not_outlive_its_client() -> None:
    """The driver leaves it where the client goes with its file, and the number comes round."""
    container = Container()
    file = container.tenant.open(Device.GPU, 1, pid=70)
    verdict, call = container.ask(ALLOC_OS_EVENT, os_event(CLIENT), file=file)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INVALID_CLIENT)
    for result in (-errno.EINVAL, 0):
        verdict, call = container.ask(
            REGISTER_FD, nv.put(4, (0, "i", 3)), file=file, fd_file=container.ctl
        )
        assert (verdict, call.post(result)) == (Verdict.FORWARD, Verdict.DONE)
        may = Verdict.ANSWER if result else Verdict.FORWARD
        assert driven(container, ALLOC_OS_EVENT, os_event(CLIENT), 12, file=file) is may
    other = container.tenant.open(Device.CTL, pid=70)
    assert driven(container, ALLOC_OS_EVENT, os_event(CLIENT, 6), 12, file=other) is Verdict.ANSWER


def test_a_client_is_freed_by_the_call_that_frees_its_os_events() -> None:
    """VID_HEAP_CONTROL frees whatever it is told to, and leaves the events to nobody."""
    container = Container()
    args = nv.heap_free(CLIENT, CLIENT)
    verdict, call = container.ask(nv.VID_HEAP, args)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, CLIENT))[0] is Verdict.FORWARD


def test_os_events_are_bounded_and_go_with_their_file() -> None:
    container = Container()
    file = registered(container)

    def ask(nr: int, status: int = nv.OK) -> Verdict:
        return driven(container, nr, os_event(CLIENT), 12, status, file=file)

    for _ in range(lib.CGPU_MAX_OS_EVENTS):
        assert ask(ALLOC_OS_EVENT) is Verdict.FORWARD
    assert ask(ALLOC_OS_EVENT) is Verdict.ANSWER
    assert ask(FREE_OS_EVENT, nv.INVALID_ARGUMENT) is Verdict.FORWARD
    assert ask(ALLOC_OS_EVENT) is Verdict.ANSWER
    assert ask(FREE_OS_EVENT) is Verdict.FORWARD
    assert ask(ALLOC_OS_EVENT, nv.INVALID_ARGUMENT) is Verdict.FORWARD
    assert ask(ALLOC_OS_EVENT) is Verdict.FORWARD
    container.tenant.close(file)
    assert container.tenant.raw.os_events == 0


def test_an_os_event_goes_with_the_file_that_asked_for_it() -> None:
    """Its number stands for no file: none of that number takes it along."""
    container = Container()
    named = container.tenant.open(Device.GPU, 1, pid=70)
    verdict, call = container.ask(ALLOC_OS_EVENT, os_event(CLIENT), fd_file=named)
    assert (verdict, call.post()) == (Verdict.FORWARD, Verdict.DONE)
    container.tenant.close(named)
    assert container.tenant.raw.os_events == 1
    container.tenant.close(container.ctl)
    assert container.tenant.raw.os_events == 0


def test_an_os_event_that_is_freed_through_another_file_was_its_own_files() -> None:
    container = Container()
    first, second = registered(container), registered(container)

    def ask(nr: int, fd: int, file: int) -> Verdict:
        return driven(container, nr, os_event(CLIENT, fd), 12, nv.OK, file=file)

    ask(ALLOC_OS_EVENT, 5, first)
    ask(ALLOC_OS_EVENT, 6, second)
    ask(FREE_OS_EVENT, 5, second)
    container.tenant.close(first)
    assert container.tenant.raw.os_events == 1
    ask(FREE_OS_EVENT, 6, container.ctl)
    assert container.tenant.raw.os_events == 0


def test_an_os_event_that_begins_while_its_predecessor_is_freed_still_counts() -> None:
    container = Container()
    first, second = registered(container), registered(container)
    driven(container, ALLOC_OS_EVENT, os_event(CLIENT), 12, nv.OK, file=first)
    _, earlier = container.ask(FREE_OS_EVENT, os_event(CLIENT), file=first)
    driven(container, ALLOC_OS_EVENT, os_event(CLIENT), 12, nv.OK, file=second)
    earlier.post(0)
    container.tenant.close(first)
    assert container.tenant.raw.os_events == 1


def test_freeing_an_os_event_takes_no_look_at_all_files() -> None:
    """Any file's may be meant: all that ever were open were looked at, with the lock held."""
    least = []
    for count in (20, 4000):
        container = Container()
        for i in range(count):
            driven(container, ALLOC_OS_EVENT, os_event(CLIENT, i), 12, file=registered(container))
        took = []
        for i in range(count - 1, max(count - 200, -1), -1):
            _, call = container.ask(FREE_OS_EVENT, os_event(CLIENT, i))
            began = time.thread_time()
            call.post()
            took.append(time.thread_time() - began)
        least.append(sorted(took)[len(took) // 2])
        assert container.tenant.raw.os_events == count - len(took)
    assert least[1] < 10 * least[0]


def test_os_events_that_many_threads_make_at_once_are_bounded_together() -> None:
    container = Container()
    calls = []
    for _ in range(lib.CGPU_MAX_OS_EVENTS):
        verdict, call = container.ask(ALLOC_OS_EVENT, os_event(CLIENT))
        assert verdict is Verdict.FORWARD
        calls.append(call)
    assert container.ask(ALLOC_OS_EVENT, os_event(CLIENT))[0] is Verdict.ANSWER
    for call in calls:
        call.post(-errno.ENOMEM)
    assert container.tenant.raw.os_events == 0


# ---------------------------------------------------------------- mappings


def driven(
    container: Container, nr: int, args: bytearray, status_at: int, status: int = nv.OK,
    file: int = 0, fd_file: int = 0,
) -> Verdict:  # fmt: skip
    """A call, to which the driver answers ``status``."""
    verdict, call = container.ask(nr, args, file=file, fd_file=fd_file)
    if verdict is Verdict.FORWARD:
        seen = bytearray(call.args)
        nv.set32(seen, status_at, status)
        call.set_args(bytes(seen))
        assert call.post() is Verdict.DONE
    return verdict


class Maps(Container):
    """A container with an address space (9), memory of the card (10) and of the host (11)."""

    def __init__(self) -> None:
        super().__init__()
        self.alloc(CLIENT, DEVICE, 9, nv.VASPACE)
        self.memory(10, 65536)
        self.alloc(CLIENT, DEVICE, 11, 0x3E)

    def map(self, handle: int, status: int = nv.OK) -> Verdict:
        if handle == 9:
            args = nv.put(64, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle))
            return driven(self, MAP_DMA, args, 56, status)
        args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle))
        return driven(self, nv.MAP_MEMORY, args, 40, status, fd_file=self.ctl)

    def unmap(self, handle: int, status: int = nv.OK, size: int = 0) -> Verdict:
        if handle == 9:
            args = nv.put(48, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle), (32, "Q", size))
            return driven(self, UNMAP_DMA, args, 40, status)
        args = nv.put(32, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle))
        return driven(self, nv.UNMAP_MEMORY, args, 24, status)

    def free(self, handle: int) -> None:
        verdict, call = self.ask(nv.FREE, nv.rm_free(CLIENT, handle))
        assert verdict is Verdict.FORWARD
        call.post()

    def dup(self, new: int, old: int) -> None:
        verdict, call = self.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, new, CLIENT, old))
        assert verdict is Verdict.FORWARD
        assert call.post() is Verdict.DONE

    def mappings(self) -> int:
        return int(self.tenant.raw.objects.mappings)


@pytest.mark.parametrize("handle", [9, 10])
def test_mappings_are_bounded_and_go_with_what_they_map(handle: int) -> None:
    container = Maps()
    for _ in range(lib.CGPU_MAX_MAPPINGS):
        assert container.map(handle) is Verdict.FORWARD
    assert container.map(handle) is Verdict.ANSWER
    assert container.unmap(handle, nv.INVALID_ARGUMENT) is Verdict.FORWARD
    assert container.map(handle) is Verdict.ANSWER
    assert container.unmap(handle) is Verdict.FORWARD
    assert container.map(handle, nv.INVALID_ARGUMENT) is Verdict.FORWARD
    assert container.map(handle) is Verdict.FORWARD
    assert container.map(handle) is Verdict.ANSWER
    container.free(handle)
    assert container.mappings() == 0


@pytest.mark.parametrize(
    ("flags", "charged"),
    [(0, True), (LAZY, False), (EXTERNALLY_MANAGED, False), (LAZY | SPARSE, True)],
)
@pytest.mark.parametrize("way", ["alloc", "heap", "tiled"])
def test_page_tables_that_come_with_virtual_addresses_are_charged(
    flags: int, charged: bool, way: str
) -> None:
    container = Container(GIB)

    def reserve(handle: int, size: int) -> Verdict:
        if way == "heap":
            args = nv.heap_alloc(CLIENT, DEVICE, handle, size, flags=VIRTUAL | flags)
            verdict, call = container.ask(nv.VID_HEAP, args)
        elif way == "tiled":
            # what it says of its size is overwritten
            args = nv.heap_alloc_tiled(
                CLIENT, DEVICE, handle, size >> 20, 1 << 20, 4096, VIRTUAL | flags
            )
            verdict, call = container.ask(nv.VID_HEAP, args)
        else:
            params = nv.memory_params(size, flags=VIRTUAL | flags)
            args = nv.rm_alloc(CLIENT, DEVICE, handle, 0x50A0, params)
            verdict, call = container.ask(nv.ALLOC, args, params)
        if verdict is Verdict.FORWARD:
            assert call.post() is Verdict.DONE
        return verdict

    assert reserve(5, 64 * GIB) is Verdict.FORWARD
    # 8 bytes for each page of 4 KiB, at least
    assert (container.account.current_bytes >= 128 << 20) is charged
    assert reserve(6, 1024 * GIB) is (Verdict.ANSWER if charged else Verdict.FORWARD)
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 5))[1].post() is Verdict.DONE
    assert container.account.current_bytes == 0


@pytest.mark.parametrize(("height", "pitch"), [(65536, 1 << 20), (1, -4096), (1 << 31, -(1 << 31))])
def test_a_surface_is_charged_by_its_height_and_pitch(height: int, pitch: int) -> None:
    """The driver's own product of them, in 64 bits, whatever the call says of its size."""
    container = Container(GIB)
    args = nv.heap_alloc_tiled(CLIENT, DEVICE, 5, height, pitch, 65536)
    assert container.ask(nv.VID_HEAP, args)[0] is Verdict.ANSWER
    args = nv.heap_alloc_tiled(CLIENT, DEVICE, 5, 256, 1 << 20, 4096)
    assert container.ask(nv.VID_HEAP, args)[0] is Verdict.FORWARD
    assert container.account.current_bytes >= 256 << 20


def test_mappings_for_the_card_and_for_the_processor_and_through_duplicates_are_one_sum() -> None:
    container = Maps()
    container.dup(20, 10)
    for i in range(lib.CGPU_MAX_MAPPINGS):
        assert container.map((9, 10, 20)[i % 3]) is Verdict.FORWARD
    assert {container.map(handle) for handle in (9, 10, 20)} == {Verdict.ANSWER}
    container.dup(21, 10)
    assert container.map(21) is Verdict.ANSWER
    # memory of the host takes nothing of the card's
    assert container.map(11) is Verdict.FORWARD
    for handle in (20, 9, 10):
        container.free(handle)
    assert container.mappings() == 0


def test_a_mapping_that_loses_a_part_still_counts() -> None:
    container = Maps()
    container.map(9)
    assert container.unmap(9, size=4096) is Verdict.FORWARD
    assert container.mappings() == 1
    # its pieces, each at its own address, or at that of the whole
    for _ in range(2):
        assert container.unmap(9) is Verdict.FORWARD
        assert container.mappings() == 1
    container.free(9)
    assert container.mappings() == 0


def test_mappings_that_many_threads_make_at_once_are_bounded_together() -> None:
    container = Maps()
    args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 10))
    calls = [container.ask(nv.MAP_MEMORY, args) for _ in range(lib.CGPU_MAX_MAPPINGS)]
    assert {verdict for verdict, _ in calls} == {Verdict.FORWARD}
    assert container.ask(nv.MAP_MEMORY, args)[0] is Verdict.ANSWER
    for _, call in calls:
        call.post(-errno.ENOMEM)
    assert container.mappings() == 0


class Tables(Container):
    """A container of 1 GiB with an address space (9) and memory (10), mapped at addresses."""

    def __init__(self, branch: int = 580) -> None:
        super().__init__(GIB)
        # NVOS46_PARAMETERS, which ends with the address and the status
        self.abi, self.bytes = (ABI, 64) if branch == 580 else (ABI_570, 56)
        self.alloc(CLIENT, DEVICE, 9, nv.VASPACE)
        self.memory(10, 512 << 20)
        self.before = self.account.current_bytes

    @property
    def charged(self) -> int:
        return self.account.current_bytes - self.before

    def map(self, at: int, size: int, status: int = nv.OK) -> Verdict:
        args = nv.put(self.bytes, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 9),
                      (12, "I", 10), (24, "Q", size))  # fmt: skip
        verdict, call = self.ask(MAP_DMA, args, abi=self.abi)
        if verdict is Verdict.FORWARD:
            seen = bytearray(call.args)
            seen[-16:-8] = at.to_bytes(8, "little")
            nv.set32(seen, self.bytes - 8, status)
            call.set_args(bytes(seen))
            assert call.post() is Verdict.DONE
        else:
            assert call.status == nv.NO_MEMORY
        return verdict

    def unmap(self, at: int, status: int = nv.OK, size: int = 0, handle: int = 9) -> None:
        args = nv.put(48, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", handle), (24, "Q", at),
                      (32, "Q", size))  # fmt: skip
        assert driven(self, UNMAP_DMA, args, 40, status) is Verdict.FORWARD


@pytest.mark.parametrize("branch", [570, 580])
def test_page_tables_of_mappings_are_charged_by_their_length(branch: int) -> None:
    container = Tables(branch)
    table = (512 << 20) // 512
    limit = (GIB - container.before) // table
    for i in range(limit):
        assert container.map(i << 32, 512 << 20) is Verdict.FORWARD
    assert container.charged == limit * table
    # with what was mapped before it is more than the container may have
    assert container.map(limit << 32, 512 << 20) is Verdict.ANSWER
    container.unmap(3 << 32)
    assert container.charged == (limit - 1) * table
    assert container.map(3 << 32, 512 << 20) is Verdict.FORWARD
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 9))[1].post() is Verdict.DONE
    assert container.charged == 0


@pytest.mark.parametrize("size", [0, 4096, (2 << 20) - 1])
def test_a_mapping_shorter_than_a_page_table_covers_is_not_charged(size: int) -> None:
    container = Tables()
    assert container.map(MIB, size) is Verdict.FORWARD
    assert container.charged == 0


def test_a_mapping_that_the_driver_refuses_or_keeps_is_charged_as_it_is() -> None:
    container = Tables()
    container.map(MIB, 64 << 20, nv.INVALID_ARGUMENT)
    assert container.charged == 0
    container.map(MIB, 64 << 20)
    container.unmap(MIB, nv.INVALID_ARGUMENT)
    container.unmap(MIB, size=4096)
    container.unmap(2 * MIB)
    assert container.charged == (64 << 20) // 512


def test_the_page_tables_of_a_mapping_that_lost_a_part_stay_charged() -> None:
    """Its first page is a mapping at the same address then, and the rest another one."""
    container = Tables()
    table = (512 << 20) // 512
    assert container.map(1 << 32, 512 << 20) is Verdict.FORWARD
    container.unmap((1 << 32) + 4096, size=4096)
    container.unmap(1 << 32)
    assert container.charged == table
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 9))[1].post() is Verdict.DONE
    assert container.charged == 0


def test_of_two_mappings_at_an_address_the_longer_stays_charged() -> None:
    for sizes in ((64 << 20, 4 << 20), (4 << 20, 64 << 20)):
        container = Tables()
        for size in sizes:
            container.map(MIB, size)
        container.unmap(MIB)
        assert container.charged == (64 << 20) // 512
        container.unmap(MIB)
        assert container.charged == 0


def test_a_mapping_of_any_length_wraps_nothing() -> None:
    assert Tables().map(0, (1 << 64) - 1) is Verdict.ANSWER


@pytest.mark.parametrize("flags", [0, 2, 1])
def test_malloc_d_memory_never_moves_to_a_card(flags: int) -> None:
    args = nv.put(16, (0, "Q", flags))
    verdict, call = Container().ask(nv.UVM_INITIALIZE, args, device=Device.UVM)
    assert verdict is Verdict.FORWARD
    assert nv.get64(call.args, 0) == flags | DISABLE_HMM
    call.post()
    assert nv.get64(call.args, 0) == flags


# ---------------------------------------------------------------- one identity


def channel_params(engine: int, userd: int = 0) -> bytearray:
    return nv.put(368, (32, "I", userd), (128, "I", engine))


class Runs(Container):
    """A container with a group (0x10) and two channels in it (0x11, 0x12)."""

    def __init__(self, engine: int = GRAPHICS) -> None:
        super().__init__(GIB)
        self.alloc(CLIENT, DEVICE, 0x10, nv.GROUP, nv.group_params(0, engine))
        for channel in (0x11, 0x12):
            self.alloc(CLIENT, 0x10, channel, nv.CHANNEL, channel_params(engine))

    def dup(self, new: int, old: int) -> None:
        verdict, call = self.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, new, CLIENT, old))
        assert verdict is Verdict.FORWARD
        assert call.post() is Verdict.DONE

    def free(self, handle: int) -> None:
        verdict, call = self.ask(nv.FREE, nv.rm_free(CLIENT, handle))
        assert verdict is Verdict.FORWARD
        assert call.post() is Verdict.DONE

    def schedule(self, handle: int, cmd: int = SCHEDULE_GROUP, params: bytes = b"\1\0\0") -> None:
        verdict, call = self.control(cmd, params, handle)
        assert verdict is Verdict.FORWARD and call.raw.schedules
        assert call.post() is Verdict.DONE

    def shut(self) -> set[int]:
        return {handle for _, handle in self.tenant.gate(1, True)}

    def unseen(self, kind: int, card: int = 1) -> int:
        return int(self.tenant.raw.ledger.unseen[kind][card])


def test_a_group_that_was_scheduled_through_one_channel_is_gated_as_a_whole() -> None:
    container = Runs()
    container.schedule(0x11, SCHEDULE_CHANNEL)
    assert container.shut() == {0x11, 0x12}


def test_a_group_that_was_scheduled_through_a_duplicate_is_gated() -> None:
    container = Runs()
    container.dup(0x20, 0x10)
    container.schedule(0x20)
    assert container.shut() == {0x11, 0x12}


def test_a_channel_that_is_made_through_a_duplicate_is_gated_with_its_group() -> None:
    container = Runs()
    container.schedule(0x10)
    container.dup(0x20, 0x10)
    container.alloc(CLIENT, 0x20, 0x21, nv.CHANNEL, channel_params(GRAPHICS))
    assert container.shut() == {0x11, 0x12, 0x21}


def test_a_group_counts_once_until_its_last_handle_is_gone() -> None:
    container = Runs()
    container.dup(0x20, 0x10)
    container.dup(0x21, 0x10)
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 1
    container.free(0x10)
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 1
    container.free(0x20)
    container.free(0x21)
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 0
    assert container.unseen(lib.CGPU_UNSEEN_CHANNEL) == 0


def test_the_cards_memory_is_freed_with_the_last_channel_that_it_drives() -> None:
    """
    Whoever has it, the card writes to it as long as the channel lives. To the program it is freed
    at once: a checkpoint frees it first, and its client last (cuCheckpointProcessCheckpoint, 580).
    """
    container = Runs()
    container.memory(0x40, 65536)
    for channel in (0x13, 0x14):
        container.alloc(CLIENT, 0x10, channel, nv.CHANNEL, channel_params(GRAPHICS, 0x40))
    for _ in range(2):
        verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x40))
        assert (verdict, call.status) == (Verdict.ANSWER, nv.OK)
    # nothing is done with it any more
    verdict, call = container.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, 0x41, CLIENT, 0x40))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_FOUND)
    assert container.account.refused == 0
    container.free(0x13)
    assert container.account.current_bytes == 65536
    verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x14))
    assert (verdict, call.post(), call.status) == (Verdict.FORWARD, Verdict.UNDO, nv.OK)
    assert call.undo_args() == bytes(nv.rm_free(CLIENT, 0x40))
    assert container.account.current_bytes == 65536
    assert not call.undone()
    assert container.account.current_bytes == 0


def test_memory_that_drives_channels_goes_with_what_is_above_them() -> None:
    container = Runs()
    for memory, channel in ((0x40, 0x13), (0x41, 0x14)):
        container.memory(memory, 65536)
        container.alloc(CLIENT, 0x10, channel, nv.CHANNEL, channel_params(GRAPHICS, memory))
    for memory in (0x40, 0x41):
        assert container.ask(nv.FREE, nv.rm_free(CLIENT, memory))[1].status == nv.OK
    # a group takes its channels along, and each of them what it was driven by
    verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x10))
    assert (verdict, call.post()) == (Verdict.FORWARD, Verdict.UNDO)
    freed = [call.undo_args()]
    assert call.undone()
    freed.append(call.undo_args())
    assert not call.undone()
    assert {nv.get32(args, 8) for args in freed} == {0x40, 0x41}
    assert container.account.current_bytes == 0
    # with the client all goes, whatever was left
    container = Runs()
    container.memory(0x40, 65536)
    container.alloc(CLIENT, 0x10, 0x13, nv.CHANNEL, channel_params(GRAPHICS, 0x40))
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 0x40))[1].status == nv.OK
    container.free(CLIENT)
    assert container.account.current_bytes == 0
    assert container.tenant.raw.objects.runnables == 0
    assert container.tenant.raw.objects.first_orphan == 0


def test_the_cards_memory_that_drives_a_channel_goes_with_its_device_alone() -> None:
    container = Runs()
    container.alloc(CLIENT, CLIENT, 0x50, nv.DEVICE, nv.device_params(0))
    params = nv.memory_params(65536)
    container.alloc(CLIENT, 0x50, 0x40, nv.MEMORY_USER, params)
    params = channel_params(GRAPHICS, 0x40)
    verdict, call = container.ask(
        nv.ALLOC, nv.rm_alloc(CLIENT, 0x10, 0x13, nv.CHANNEL, params), params
    )
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@pytest.mark.parametrize(("cls", "status"), [(0x71, nv.NOT_SUPPORTED), (0, nv.NOT_FOUND)])
def test_no_userd_but_in_memory_of_the_drivers_making(cls: int, status: int) -> None:
    """With the process's own memory a channel goes, unheard, or does not, by the branch."""
    container = Runs()
    if cls:
        own = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 0x40), (12, "I", cls))
        call = container.ask(nv.ALLOC_MEMORY, own)[1]
        call.set_args(own)
        call.post()
    params = channel_params(GRAPHICS, 0x40)
    verdict, call = container.ask(
        nv.ALLOC, nv.rm_alloc(CLIENT, 0x10, 0x13, nv.CHANNEL, params), params
    )
    assert (verdict, call.status) == (Verdict.ANSWER, status)


def test_userd_stays_what_it_is_until_the_channel_is_made() -> None:
    container = Runs()
    container.memory(0x40, 65536)
    params = channel_params(GRAPHICS, 0x40)
    verdict, made = container.ask(
        nv.ALLOC, nv.rm_alloc(CLIENT, 0x10, 0x13, nv.CHANNEL, params), params
    )
    assert verdict is Verdict.FORWARD
    verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x40))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    assert made.post() is Verdict.DONE
    container.free(0x13)
    container.free(0x40)


def test_no_computing_channel_outside_a_group() -> None:
    container = Runs()
    params = channel_params(GRAPHICS)
    verdict, call = container.ask(
        nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, 0x30, nv.CHANNEL, params), params
    )
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@pytest.mark.parametrize("cls", [0xC5C0, 0xC597, 0x902D, 0xA140, 0xCD40])
def test_nothing_computes_in_a_channel_that_was_made_for_copies(cls: int) -> None:
    """Nobody would gate it. Before Ampere the driver looks at the runlist alone."""
    for engine, status in ((COPY, INVALID_CLASS), (GRAPHICS, None)):
        container = Runs(engine)
        container.alloc(CLIENT, 0x11, 0x21, 0xC5B5)
        container.dup(0x13, 0x11)
        for channel in (0x11, 0x13):
            verdict, call = container.ask(nv.ALLOC, nv.rm_alloc(CLIENT, channel, 0x22, cls))
            assert verdict is (Verdict.ANSWER if status else Verdict.FORWARD)
            assert not status or call.status == status


def test_a_channel_outside_groups_is_counted_and_charged_as_a_group() -> None:
    container = Runs()
    free = lib.CGPU_FREE_GROUPS - 1
    for i in range(free):
        container.alloc(CLIENT, DEVICE, 0x100 + i, nv.CHANNEL, channel_params(COPY))
    assert container.account.current_bytes == 0
    container.alloc(CLIENT, DEVICE, 0x30, nv.CHANNEL, channel_params(COPY))
    assert container.account.current_bytes == lib.CGPU_GROUP_BYTES
    container.free(0x30)
    assert container.account.current_bytes == 0


def test_channels_and_address_spaces_beyond_the_free_ones_are_charged() -> None:
    container = Runs()
    for i in range(lib.CGPU_FREE_CHANNELS - 2):
        container.alloc(CLIENT, 0x10, 0x1000 + i, nv.CHANNEL, channel_params(GRAPHICS))
    for i in range(lib.CGPU_FREE_VASPACES):
        container.alloc(CLIENT, DEVICE, 0x4000 + i, nv.VASPACE)
    assert container.account.current_bytes == 0
    container.alloc(CLIENT, 0x10, 0x30, nv.CHANNEL, channel_params(GRAPHICS))
    container.alloc(CLIENT, DEVICE, 0x31, nv.VASPACE)
    assert container.account.current_bytes == lib.CGPU_CHANNEL_BYTES + lib.CGPU_VASPACE_BYTES


@pytest.mark.parametrize(("share", "mode", "counts"), [
    (CLIENT, 0, True), (CLIENT, 1, True), (CLIENT, 2, False), (0, 0, True), (0, 2, False),
])  # fmt: skip
def test_an_address_space_that_comes_with_a_device_is_one_of_them(
    share: int, mode: int, counts: bool
) -> None:
    """CUDA's devices have none (mode 2); NVML's, which ask for the card's own, have one."""
    container = Runs()
    for i in range(lib.CGPU_FREE_VASPACES + 3):
        params = nv.device_params(0)
        nv.set32(params, 4, share)
        nv.set32(params, 48, mode)
        container.alloc(CLIENT, CLIENT, 0x5000 + i, nv.DEVICE, params)
    assert container.account.current_bytes == (3 * lib.CGPU_VASPACE_BYTES if counts else 0)
    for i in range(3):
        container.free(0x5000 + lib.CGPU_FREE_VASPACES + i)
    assert container.account.current_bytes == 0


@pytest.mark.parametrize("index", range(1, 5))
def test_no_address_space_of_the_cards_own(index: int) -> None:
    """NV_VASPACE_ALLOCATION_PARAMETERS.index: the host's, the global one, the device's, FLA's."""
    params = nv.put(56, (0, "I", index))
    args = nv.rm_alloc(CLIENT, DEVICE, 0x30, nv.VASPACE, params)
    verdict, call = Runs().ask(nv.ALLOC, args, params)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@pytest.mark.parametrize("cls", [nv.DEVICE, nv.MEMORY_USER, nv.VASPACE, nv.SUBDEVICE])
def test_serialised_parameters_of_a_class_are_refused(cls: int) -> None:
    """NVOS64_FLAGS_FINN_SERIALIZED: the driver would read another structure than the core."""
    params = bytes(128)
    args = nv.rm_alloc(CLIENT, DEVICE, 0x30, cls, params)
    nv.set32(args, 36, 1)
    verdict, call = Container(GIB).ask(nv.ALLOC, args, params)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@pytest.mark.parametrize(("limit", "total", "most", "promisable"), [
    (GIB, 80 * GIB, "CGPU_OWN_CHANNELS", 0), (40 * GIB, 80 * GIB, 1024, 80 * GIB),
    (80 * GIB, 80 * GIB, "CGPU_RUNLIST_CHANNELS", 0),
    (100 * GIB, 80 * GIB, "CGPU_RUNLIST_CHANNELS", 0),
    (80 * GIB, 80 * GIB, 1024, 160 * GIB),  # overcommitted
])  # fmt: skip
def test_a_container_has_its_part_of_the_channels_that_a_card_can_have(
    limit: int, total: int, most: int | str, promisable: int
) -> None:
    """Who has all numbers of the runlist lets no neighbour begin."""
    most = getattr(lib, most) if isinstance(most, str) else most
    container = Runs()
    container.tenant.raw.ledger.account[1].max_bytes = limit
    container.tenant.topology.raw.gpu[1].total_bytes = total
    container.tenant.topology.raw.gpu[1].promisable_bytes = promisable
    params = channel_params(GRAPHICS)
    # two are there; those that are in the driver count
    for i in range(most - 2):
        args = nv.rm_alloc(CLIENT, 0x10, 0x1000 + i, nv.CHANNEL, params)
        assert container.ask(nv.ALLOC, args, params)[0] is Verdict.FORWARD
    args = nv.rm_alloc(CLIENT, 0x10, 0x30, nv.CHANNEL, params)
    verdict, call = container.ask(nv.ALLOC, args, params)
    assert (verdict, call.status) == (Verdict.ANSWER, lib.NV_ERR_INSUFFICIENT_RESOURCES)
    container.tenant.raw.ledger.account[1].unlimited = True
    assert container.ask(nv.ALLOC, args, params)[0] is Verdict.FORWARD


def test_groups_that_many_threads_make_at_once_are_charged_beyond_the_free_ones() -> None:
    container = Runs()
    params = nv.group_params(0, GRAPHICS)
    for i in range(lib.CGPU_FREE_GROUPS + 1):
        args = nv.rm_alloc(CLIENT, DEVICE, 0x100 + i, nv.GROUP, params)
        assert container.ask(nv.ALLOC, args, params)[0] is Verdict.FORWARD
    # one is there, the others are all still in the driver
    assert container.account.current_bytes == 2 * lib.CGPU_GROUP_BYTES


def retain(container: Runs, nr: int, args: bytearray, status: int = nv.OK, **more: Any) -> None:
    """A call to UVM, to which it answers ``status``."""
    verdict, call = container.ask(nr, args, device=Device.UVM, **more)
    assert verdict is Verdict.FORWARD
    seen = bytearray(call.args)
    nv.set32(seen, len(seen) - (8 if nr == nv.UVM_REGISTER_CHANNEL else 4), status)
    call.set_args(bytes(seen))
    assert call.post() is Verdict.DONE


CARD = nv.card_uuid(1)
FORGETS = {
    "channel": [(nv.UVM_UNREGISTER_CHANNEL, nv.uvm_unregister_channel(570, CARD, CLIENT, 0x11))],
    "address space": [(nv.UVM_UNREGISTER_GPU_VASPACE, nv.uvm_unregister_vaspace(CARD))],
    "card": [(nv.UVM_UNREGISTER_GPU, nv.uvm_unregister_gpu(CARD))],
    "file": [],
}


@pytest.mark.parametrize("forgotten", FORGETS)
def test_a_group_counts_as_long_as_uvm_keeps_a_channel_of_it(forgotten: str) -> None:
    """UVM has a duplicate of the group, and the channel's memory: RM_FREE returns neither."""
    container = Runs()
    args = nv.uvm_register_channel(CARD, CLIENT, 0x11)
    retain(container, nv.UVM_REGISTER_CHANNEL, args, nv.NO_MEMORY)
    retain(container, nv.UVM_REGISTER_CHANNEL, args)
    assert not container.tenant.raw.ledger.account[1].current_bytes
    container.free(0x10)
    kinds = (lib.CGPU_UNSEEN_GROUP, lib.CGPU_UNSEEN_CHANNEL)
    assert [container.unseen(kind) for kind in kinds] == [1, 1]
    for nr, args in FORGETS[forgotten]:
        retain(container, nr, args, nv.INVALID_DEVICE)
        assert [container.unseen(kind) for kind in kinds] == [1, 1]
        retain(container, nr, args)
    if forgotten == "file":
        container.tenant.close(container.uvm)
    assert [container.unseen(kind) for kind in kinds] == [0, 0]


def test_groups_that_only_uvm_keeps_are_charged_beyond_the_free_ones() -> None:
    container = Runs()
    for i in range(lib.CGPU_FREE_GROUPS + 8):
        group, channel = 0x1000 + 2 * i, 0x1001 + 2 * i
        container.alloc(CLIENT, DEVICE, group, nv.GROUP, nv.group_params(0, GRAPHICS))
        container.alloc(CLIENT, group, channel, nv.CHANNEL, channel_params(GRAPHICS))
        args = nv.uvm_register_channel(CARD, CLIENT, channel)
        retain(container, nv.UVM_REGISTER_CHANNEL, args)
        container.free(group)
    # one more than the free ones is there at any time, and they stay
    assert container.account.current_bytes == 9 * lib.CGPU_GROUP_BYTES
    container.tenant.close(container.uvm)
    assert container.account.current_bytes == 0


@pytest.mark.parametrize("forgotten", ["address space", "card", "file"])
def test_an_address_space_counts_as_long_as_uvm_keeps_it(forgotten: str) -> None:
    container = Runs()
    container.alloc(CLIENT, DEVICE, 9, nv.VASPACE)
    retain(container, nv.UVM_REGISTER_GPU_VASPACE, nv.uvm_register_vaspace(CARD, CLIENT, 9))
    container.free(9)
    assert container.unseen(lib.CGPU_UNSEEN_VASPACE) == 1
    for nr, args in FORGETS[forgotten]:
        retain(container, nr, args)
    if forgotten == "file":
        container.tenant.close(container.uvm)
    assert container.unseen(lib.CGPU_UNSEEN_VASPACE) == 0


def test_what_uvm_is_told_to_forget_is_read_as_the_branch_has_it() -> None:
    container = Runs()
    for channel in (0x11, 0x12):
        args = nv.uvm_register_channel(CARD, CLIENT, channel)
        retain(container, nv.UVM_REGISTER_CHANNEL, args, abi=ABI_595)
    container.free(0x10)
    args = nv.uvm_unregister_channel(595, CARD, CLIENT, 0x12)
    retain(container, nv.UVM_UNREGISTER_CHANNEL, args, abi=ABI_595)
    # the group stays with the other channel
    assert container.unseen(lib.CGPU_UNSEEN_CHANNEL) == 1
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 1


def test_what_is_registered_while_uvm_forgets_is_still_counted() -> None:
    container = Runs()
    args = nv.uvm_unregister_vaspace(CARD)
    verdict, forgets = container.ask(nv.UVM_UNREGISTER_GPU_VASPACE, args, device=Device.UVM)
    assert verdict is Verdict.FORWARD
    args = nv.uvm_register_channel(CARD, CLIENT, 0x11)
    retain(container, nv.UVM_REGISTER_CHANNEL, args)
    assert forgets.post() is Verdict.DONE
    container.free(0x10)
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 1


def test_a_channel_whose_registration_is_not_answered_counts() -> None:
    container = Runs()
    args = nv.uvm_register_channel(CARD, CLIENT, 0x11)
    _, call = container.ask(nv.UVM_REGISTER_CHANNEL, args, device=Device.UVM)
    assert call.unanswered() is Verdict.DONE
    args = nv.uvm_unregister_channel(570, CARD, CLIENT, 0x11)
    _, call = container.ask(nv.UVM_UNREGISTER_CHANNEL, args, device=Device.UVM)
    assert call.unanswered() is Verdict.DONE
    container.free(0x10)
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 1


def test_handles_of_what_runs_are_bounded() -> None:
    """Whoever moves a gate walks all of them, and neighbours wait for it."""
    container = Runs()
    for i in range(lib.CGPU_MAX_RUNNABLES - 3):
        container.dup(0x1000 + i, 0x10)
    params = nv.group_params(0, GRAPHICS)
    for nr, args in (
        (nv.DUP, nv.rm_dup(CLIENT, DEVICE, 0x30, CLIENT, 0x10)),
        (nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, 0x30, nv.GROUP, params)),
        (nv.ALLOC, nv.rm_alloc(CLIENT, 0x10, 0x30, nv.CHANNEL, params)),
        (nv.ALLOC, nv.rm_alloc(CLIENT, 0x10, 0x30, nv.CONTEXT_SHARE, params)),
    ):
        verdict, call = container.ask(nr, args, params if nr == nv.ALLOC else b"")
        assert (verdict, call.status) == (Verdict.ANSWER, lib.NV_ERR_INSUFFICIENT_RESOURCES)
    assert container.account.refused == 4
    container.free(0x1000)
    container.dup(0x30, 0x10)


def test_freeing_what_many_hang_on_takes_no_time_that_neighbours_notice() -> None:
    """Each of them for itself took 1.2 s of 12,500 context shares, with the locks held."""
    container = Runs()
    container.alloc(CLIENT, DEVICE, 9, nv.VASPACE)
    for i in range(12500):
        container.alloc(CLIENT, 0x10, 0x1000 + i, nv.CONTEXT_SHARE, nv.put(12, (0, "I", 9)))
    verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 9))
    assert verdict is Verdict.FORWARD
    began = time.thread_time()
    assert call.post() is Verdict.DONE
    assert time.thread_time() - began < 0.2
    assert container.tenant.raw.objects.runnables == 3


class Spaces(Runs):
    """A group (0x50) with a channel (0x51) in an address space (0x60), and two more clients."""

    OTHER, THIRD = 0xC1D00009, 0xC1D0000A

    def __init__(self) -> None:
        super().__init__()
        self.alloc(CLIENT, DEVICE, 0x60, nv.VASPACE)
        self.alloc(CLIENT, DEVICE, 0x50, nv.GROUP, nv.group_params(0x60, GRAPHICS))
        self.alloc(CLIENT, 0x50, 0x51, nv.CHANNEL, channel_params(GRAPHICS))
        self.schedule(0x50)
        for client in (self.OTHER, self.THIRD):
            self.alloc(0, 0, client, nv.ROOT_CLIENT)
            self.alloc(client, client, 0x5, nv.DEVICE, nv.device_params(0))
            self.alloc(client, 0x5, 0x6, nv.SUBDEVICE)

    def copied(
        self, client: int, new: int, old: int, parent: int = 0x5, source: int = CLIENT
    ) -> int:
        """The status that a duplicate of the first client's gets, of the core or of the driver."""
        verdict, call = self.ask(nv.DUP, nv.rm_dup(client, parent, new, source, old))
        if verdict is Verdict.FORWARD:
            assert call.post() is Verdict.DONE
        return nv.OK if call.status is None else call.status

    def freed(self, client: int, handle: int) -> int:
        verdict, call = self.ask(nv.FREE, nv.rm_free(client, handle))
        if verdict is Verdict.FORWARD:
            assert call.post() is Verdict.DONE
        return nv.OK if call.status is None else call.status


def test_an_address_space_that_lives_by_a_duplicate_alone_counts() -> None:
    container = Spaces()
    spaces = container.unseen(lib.CGPU_UNSEEN_VASPACE)
    assert container.copied(container.OTHER, 0x61, 0x60) == nv.OK
    assert container.unseen(lib.CGPU_UNSEEN_VASPACE) == spaces
    assert container.freed(CLIENT, 0x60) == nv.OK
    assert container.unseen(lib.CGPU_UNSEEN_VASPACE) == spaces
    assert container.freed(container.OTHER, 0x61) == nv.OK
    assert container.unseen(lib.CGPU_UNSEEN_VASPACE) == spaces - 1


def test_a_client_has_one_object_for_an_address_space() -> None:
    """Of several nobody knows by which of them a duplicate of a group goes."""
    container = Spaces()
    assert container.copied(CLIENT, 0x61, 0x60, DEVICE) == nv.NOT_SUPPORTED
    assert container.copied(container.OTHER, 0x61, 0x60) == nv.OK
    assert container.copied(container.OTHER, 0x62, 0x60) == nv.NOT_SUPPORTED
    assert container.copied(container.THIRD, 0x61, 0x61, source=container.OTHER) == nv.OK
    assert container.copied(CLIENT, 0x61, 0x61, DEVICE, container.THIRD) == nv.NOT_SUPPORTED
    # nor one that two threads ask for at once
    assert container.freed(container.OTHER, 0x61) == nv.OK
    calls = [
        container.ask(nv.DUP, nv.rm_dup(container.OTHER, 0x5, new, CLIENT, 0x60))[1]
        for new in (0x61, 0x62)
    ]
    assert [call.post() for call in calls] == [Verdict.DONE, Verdict.UNDO]


def test_objects_for_an_address_space_are_bounded() -> None:
    """Each duplicate of what runs in it looks through them."""
    container = Spaces()
    clients = range(0xC1D00100, 0xC1D00100 + lib.CGPU_SPACE_HANDLES)
    for client in clients:
        container.alloc(0, 0, client, nv.ROOT_CLIENT)
        container.alloc(client, client, 0x5, nv.DEVICE, nv.device_params(0))
    assert [container.copied(client, 0x61, 0x60) for client in clients] == [
        *[nv.OK] * (lib.CGPU_SPACE_HANDLES - 1),
        lib.NV_ERR_INSUFFICIENT_RESOURCES,
    ]


def test_a_duplicate_of_a_group_goes_with_its_clients_address_space() -> None:
    """The driver frees it then, whoever made it and whatever it is called."""
    container = Spaces()
    assert container.copied(container.OTHER, 0x61, 0x60) == nv.OK
    assert container.copied(container.OTHER, 0x52, 0x50) == nv.OK
    container.alloc(container.OTHER, 0x52, 0x53, nv.CHANNEL, channel_params(GRAPHICS))
    assert container.shut() == {0x51, 0x53}
    assert container.freed(container.OTHER, 0x61) == nv.OK
    assert container.unseen(lib.CGPU_UNSEEN_CHANNEL) == 3
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 2
    # and stays with the other's
    assert container.copied(container.OTHER, 0x61, 0x60) == nv.OK
    assert container.copied(container.OTHER, 0x52, 0x50) == nv.OK
    container.alloc(container.OTHER, 0x52, 0x53, nv.CHANNEL, channel_params(GRAPHICS))
    assert container.freed(CLIENT, 0x60) == nv.OK
    assert container.unseen(lib.CGPU_UNSEEN_GROUP) == 2
    assert container.shut() == {0x53}


def test_a_duplicate_of_a_context_share_goes_with_its_clients_address_space() -> None:
    container = Spaces()
    container.alloc(CLIENT, 0x50, 0x70, nv.CONTEXT_SHARE, nv.put(12, (0, "I", 0x60)))
    assert container.copied(CLIENT, 0x71, 0x70, 0x50) == nv.OK
    params = channel_params(GRAPHICS)
    nv.set32(params, 24, 0x71)
    container.alloc(CLIENT, 0x10, 0x72, nv.CHANNEL, params)
    assert container.freed(CLIENT, 0x60) == nv.OK
    assert container.tenant.raw.objects.runnables == 3


def test_no_duplicate_runs_in_an_address_space_that_may_go_before_it() -> None:
    container = Spaces()
    assert container.copied(container.OTHER, 0x52, 0x50) == nv.NOT_SUPPORTED
    # nor below another device than that space's object
    assert container.copied(container.OTHER, 0x61, 0x60) == nv.OK
    container.alloc(container.OTHER, container.OTHER, 0x7, nv.DEVICE, nv.device_params(0))
    assert container.copied(container.OTHER, 0x52, 0x50, 0x7) == nv.NOT_SUPPORTED
    # nor while that is being freed, or the other way round
    freeing = container.ask(nv.FREE, nv.rm_free(container.OTHER, 0x61))[1]
    assert container.copied(container.OTHER, 0x52, 0x50) == nv.NOT_SUPPORTED
    assert freeing.post(-errno.EIO) is Verdict.DONE
    dup = container.ask(nv.DUP, nv.rm_dup(container.OTHER, 0x5, 0x52, CLIENT, 0x50))[1]
    assert container.freed(container.OTHER, 0x61) == nv.STATE_IN_USE
    assert dup.post() is Verdict.DONE
    assert container.freed(container.OTHER, 0x61) == nv.OK


@pytest.mark.parametrize("above", [0x7, 0x8], ids=["device", "subdevice"])
def test_a_group_goes_with_what_its_address_space_is_below(above: int) -> None:
    """What the driver freed stayed: each of its channels had the gate's call for all refused."""
    container = Runs()
    container.alloc(CLIENT, CLIENT, 0x7, nv.DEVICE, nv.device_params(0))
    container.alloc(CLIENT, 0x7, 0x8, nv.SUBDEVICE)
    container.alloc(CLIENT, 0x8, 0x60, nv.VASPACE)
    container.alloc(CLIENT, DEVICE, 0x50, nv.GROUP, nv.group_params(0x60, GRAPHICS))
    container.alloc(CLIENT, 0x50, 0x51, nv.CHANNEL, channel_params(GRAPHICS))
    container.schedule(0x50)
    container.schedule(0x10)
    # a call that needs the group keeps all of it
    call = container.ask(nv.CONTROL, nv.rm_control(CLIENT, 0x50, SCHEDULE_GROUP))[1]
    verdict, free = container.ask(nv.FREE, nv.rm_free(CLIENT, above))
    assert (verdict, free.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    assert call.post() is Verdict.DONE
    container.free(above)
    assert container.tenant.raw.objects.runnables == 3
    assert container.shut() == {0x11, 0x12}


def test_whether_a_card_has_a_device_is_known_without_a_look_at_all_objects() -> None:
    """The agent asks at each RM_FREE, under the lock that gates wait for: 3 ms of 262,144."""
    container = Container()
    devices = container.tenant.raw.objects.devices
    container.alloc(CLIENT, CLIENT, 0x20, nv.DEVICE, nv.device_params(0))
    dup = container.ask(nv.DUP, nv.rm_dup(CLIENT, CLIENT, 0x21, CLIENT, DEVICE))[1]
    assert dup.post() is Verdict.DONE
    assert list(devices)[:3] == [0, 3, 0]
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 0x20))[1].post() is Verdict.DONE
    assert list(devices)[:3] == [0, 2, 0]
    container.tenant.close(container.ctl)
    assert not any(devices)


def test_closing_a_file_with_many_ranges_takes_no_time_that_neighbours_notice() -> None:
    """Each of them for itself took 0.5 s of 100,000, and a hundred times that of a million."""
    container = Container()
    for i in range(60_000):
        args = nv.uvm_create_external((i + 1) << 21, 1 << 21)
        _, call = container.ask(nv.UVM_CREATE_EXTERNAL, args, device=Device.UVM, abi=ABI_595)
        assert call.post() is Verdict.DONE
    assert container.tenant.raw.ranges.count == 60_000
    began = time.thread_time()
    container.tenant.close(container.uvm)
    assert time.thread_time() - began < 0.1
    assert container.tenant.raw.ranges.count == 0


def test_ranges_for_external_memory_are_bounded_and_go_as_they_are_freed() -> None:
    """They cost no video memory; whoever looks at what is mapped walks them."""
    container = Container()
    ranges = ffi.addressof(container.tenant.raw.ranges)

    def ask(nr: int, args: bytearray) -> tuple[Verdict, Call]:
        return container.ask(nr, args, device=Device.UVM, abi=ABI_595)

    def create(i: int) -> tuple[Verdict, Call]:
        return ask(nv.UVM_CREATE_EXTERNAL, nv.uvm_create_external(i << 21, 1 << 21))

    assert create(1)[1].post() is Verdict.DONE
    for i in range(2, lib.CGPU_MAX_EXTERNALS):
        container.tenant.grow()
        kind, file = lib.CGPU_RANGE_CREATED, container.uvm
        assert lib.cgpu_range_add(ranges, kind, file, i << 21, 1 << 21, 0, NO_CARD) == 0
    verdict, last = create(lib.CGPU_MAX_EXTERNALS)
    assert verdict is Verdict.FORWARD
    # also while one is being made
    verdict, call = create(lib.CGPU_MAX_EXTERNALS + 1)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NO_MEMORY)
    assert last.post() is Verdict.DONE
    assert create(lib.CGPU_MAX_EXTERNALS + 1)[0] is Verdict.ANSWER
    assert ask(nv.UVM_FREE, nv.uvm_free_by_base(1 << 21))[1].post() is Verdict.DONE
    assert create(1)[1].post() is Verdict.DONE
    container.tenant.close(container.uvm)
    assert container.tenant.raw.ranges.externals == 0


# ---------------------------------------------------------------- another object by its handle

INTERLEAVE = (0xA06C0107, 0xA06F0109)
PREEMPTION_MODE, FB_INFO, FB_INFO_V2 = 0x20801210, 0x20801301, 0x20801303
STEERS = {
    SCHEDULE_GROUP: 0, SCHEDULE_CHANNEL: 0, INTERLEAVE[0]: 0, INTERLEAVE[1]: 0, 0xA06C0105: 0,
    0xA06F0111: 0, 0xA06C0103: 8, 0xA06C0104: 8, PREEMPTION_MODE: 24, FB_INFO: 16, FB_INFO_V2: 456,
}  # fmt: skip


@pytest.mark.parametrize("cmd", STEERS)
def test_no_control_of_an_object_whose_allocation_has_not_returned(cmd: int) -> None:
    """Its thread is still in the driver: what is decided here knows nothing of it."""
    container = Runs()
    params = nv.group_params(0, GRAPHICS)
    args = nv.rm_alloc(CLIENT, DEVICE, 0x30, nv.GROUP, params)
    assert container.ask(nv.ALLOC, args, params)[0] is Verdict.FORWARD
    verdict, call = container.control(cmd, bytes(STEERS[cmd]), 0x30)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_FOUND)


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("cmd", INTERLEAVE)
def test_no_tenant_sets_an_interleave_level_whoever_owns_the_card_by_then(
    cmd: int, scheduled: bool
) -> None:
    container = Runs()
    container.tenant.raw.ledger.account[1].slices_owned = scheduled
    for level in range(3):
        verdict, call = container.control(cmd, nv.put(4, (0, "I", level)), 0x10)
        assert (verdict, call.status) == (Verdict.ANSWER, nv.OK)


@pytest.mark.parametrize("cmd", sorted(set(STEERS) - set(INTERLEAVE)))
def test_what_a_control_is_about_stays_until_the_driver_has_done_it(cmd: int) -> None:
    """Or another thread gives the handle to a group that would run and not be gated."""
    container = Runs()
    verdict, call = container.control(cmd, bytes(STEERS[cmd]), 0x10)
    assert verdict is Verdict.FORWARD
    free, freed = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x10))
    assert (free, freed.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    assert lib.cgpu_call_wants_post(call.raw)
    assert call.post() is Verdict.DONE
    # and the other way round
    free, freed = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x10))
    assert free is Verdict.FORWARD
    verdict, call = container.control(cmd, bytes(STEERS[cmd]), 0x10)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_FOUND)


@pytest.mark.parametrize("cmd", [SCHEDULE_GROUP, SCHEDULE_CHANNEL])
@pytest.mark.parametrize("size", [2, 3])
def test_scheduling_ends_in_no_memory_of_the_caller(cmd: int, size: int) -> None:
    """Where the driver might wait when it has done it, and nobody be told."""
    _, call = Runs().control(cmd, bytes(size), 0x10)
    assert call.request.raw.params_size == size


def test_the_heap_that_is_told_of_stays_until_the_driver_has_told() -> None:
    container = Runs()
    info = nv.put(184, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 5))
    verdict, call = container.ask(nv.VID_HEAP, info)
    assert verdict is Verdict.FORWARD
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, DEVICE))[1].status == nv.STATE_IN_USE
    assert call.post() is Verdict.DONE
    nv.set32(info, 4, 0x99)
    assert container.ask(nv.VID_HEAP, info)[1].status == nv.INVALID_PARENT


def test_no_tenant_opens_a_gate_by_a_list_that_was_of_another_card() -> None:
    """One of whose handles becomes a channel of the scheduled card while the driver looks."""
    container = Runs()
    container.tenant.raw.ledger.account[1].slices_owned = True
    container.tenant.give(0, GIB)
    container.alloc(CLIENT, CLIENT, 0x20, nv.DEVICE, nv.device_params(1))
    container.alloc(CLIENT, 0x20, 0x40, nv.SUBDEVICE)
    container.alloc(CLIENT, 0x20, 0x50, nv.GROUP, nv.group_params(0, GRAPHICS))
    container.alloc(CLIENT, 0x50, 0x51, nv.CHANNEL, channel_params(GRAPHICS))
    params = nv.put(536, (4, "I", 1), (24, "I", CLIENT), (280, "I", 0x51))
    assert container.control(0x2080110B, params, 0x40)[0] is Verdict.ANSWER


@pytest.mark.parametrize("handle", [0x10, 0x11, 0x40, 0x41])
@pytest.mark.parametrize("lists", [False, True])
def test_no_group_leaves_for_a_descriptor(handle: int, lists: bool) -> None:
    """It would come back by a name under which it runs and is not gated."""
    container = Runs()
    container.alloc(CLIENT, DEVICE, 0x40, nv.VASPACE)
    container.alloc(CLIENT, 0x10, 0x41, nv.CONTEXT_SHARE, bytes(12))
    container.memory(0x50, 65536)
    file = container.tenant.open(Device.CTL, pid=70)

    def export(one: int) -> tuple[Verdict, Call]:
        cmd = nv.EXPORT_OBJECTS if lists else nv.EXPORT_OBJECT
        params = nv.export_objects([0x50, one], 3) if lists else nv.export_object(one, 3)
        return container.control(cmd, params, CLIENT, fd_file=file)

    verdict, call = export(handle)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)
    assert container.account.refused == 1
    assert export(0x50)[0] is Verdict.FORWARD


def test_a_group_is_gated_on_its_own_card_wherever_its_duplicate_was_put() -> None:
    container = Runs()
    container.tenant.give(0, GIB)
    container.alloc(CLIENT, CLIENT, 0x20, nv.DEVICE, nv.device_params(1))
    verdict, call = container.ask(nv.DUP, nv.rm_dup(CLIENT, 0x20, 0x30, CLIENT, 0x10))
    assert verdict is Verdict.FORWARD
    assert call.post() is Verdict.DONE
    # there is no subdevice there by which it could be made interruptible
    made = nv.rm_alloc(CLIENT, 0x30, 0x31, nv.CHANNEL, channel_params(GRAPHICS))
    verdict, call = container.ask(nv.ALLOC, made, channel_params(GRAPHICS))
    assert (verdict, call.status) == (Verdict.ANSWER, INVALID_STATE)
    container.alloc(CLIENT, 0x10, 0x31, nv.CHANNEL, channel_params(GRAPHICS))
    container.schedule(0x30)
    assert container.shut() == {0x11, 0x12, 0x31}
    container.free(0x10)
    assert [container.unseen(lib.CGPU_UNSEEN_GROUP, card) for card in (0, 1)] == [0, 1]


def test_page_tables_are_on_the_card_that_the_addresses_are_charged_to() -> None:
    """Of addresses in no space of their own the driver takes that of the device that is named."""
    container = Maps()
    container.tenant.give(0, 8 * MIB)
    container.alloc(CLIENT, CLIENT, 0x50, nv.DEVICE, nv.device_params(1))
    for device, verdict in ((DEVICE, Verdict.FORWARD), (0x50, Verdict.ANSWER)):
        args = nv.put(64, (0, "I", CLIENT), (4, "I", device), (8, "I", 9))
        assert driven(container, MAP_DMA, args, 56) is verdict


def test_nothing_is_put_into_a_dma_buf_of_somebody_elses() -> None:
    container = Maps()
    args = nv.put(ABI.raw.dmabuf_size, (0, "i", 7), (4, "I", CLIENT), (8, "I", 1), (12, "I", 1),
                  (ABI.raw.dmabuf_handles, "I", 10))  # fmt: skip
    verdict, call = container.ask(EXPORT_DMABUF, args)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


def test_only_drivers_that_know_of_it_have_memory_beside_a_grace_processor() -> None:
    """To others the bit says nothing, and what is asked for is the card's."""
    args = nv.heap_alloc(CLIENT, DEVICE, 5, 65536)
    nv.set32(args, 144, 1 << 24)
    for abi, cls in ((Abi("535.288.01"), 0x40), (ABI, EGM), (ABI_595, 0x40)):
        call = Container().ask(nv.VID_HEAP, args, abi=abi)[1]
        assert call.request.raw.hClass == cls


@pytest.mark.parametrize(("handle", "cmd"), [(0x10, SCHEDULE_GROUP), (0x12, SCHEDULE_CHANNEL)])
def test_a_gate_finds_what_the_driver_is_about_to_schedule(handle: int, cmd: int) -> None:
    container = Runs()
    assert container.shut() == set()
    verdict, call = container.control(cmd, b"\1\0\0", handle)
    assert verdict is Verdict.FORWARD and call.raw.schedules and call.raw.card == 1
    assert container.shut() == {0x11, 0x12}
    assert not container.control(0x20800102, b"")[1].raw.schedules


def test_what_the_driver_schedules_first_is_open_whatever_was_shut_before() -> None:
    """And once alone: shut twice, it would stand still (H200, 580.159.04)."""
    container = Runs()
    container.schedule(0x11, SCHEDULE_CHANNEL)
    assert container.shut() == {0x11, 0x12}
    container.schedule(0x12, SCHEDULE_CHANNEL)
    assert container.shut() == {0x12}
    container.alloc(CLIENT, 0x10, 0x13, nv.CHANNEL, channel_params(GRAPHICS))
    assert container.shut() == {0x13}
    # the first time that its group is scheduled as one opens all of it
    container.schedule(0x10)
    assert container.shut() == {0x11, 0x12, 0x13}
    container.alloc(CLIENT, 0x10, 0x14, nv.CHANNEL, channel_params(GRAPHICS))
    assert container.shut() == {0x14}
    container.schedule(0x10)
    assert container.shut() == {0x14}


def test_the_driver_is_asked_to_schedule_what_was_not_alone() -> None:
    container = Runs()
    container.dup(0x20, 0x10)
    container.dup(0x21, 0x11)
    for handle, cmd in ((0x21, SCHEDULE_CHANNEL), (0x10, SCHEDULE_GROUP)):
        container.schedule(handle, cmd)
        container.dup(handle + 0x20, handle)
    container.shut()
    for handle, cmd in (
        *((handle, SCHEDULE_GROUP) for handle in (0x10, 0x20, 0x30)),
        *((handle, SCHEDULE_CHANNEL) for handle in (0x11, 0x12, 0x21, 0x41)),
    ):
        for params in (b"\1\0\0", b"\1\0", b"\1\0\1"):
            verdict, call = container.control(cmd, params, handle)
            assert (verdict, call.status) == (Verdict.ANSWER, nv.OK), (handle, params)
    assert container.shut() == set()
    # whoever is its first handle from now on is shut as that was, and opened
    container.free(0x11)
    assert container.shut() == set()
    assert len(container.tenant.gate(1, False)) == 2


@pytest.mark.parametrize(("handle", "cmd"), [(0x10, SCHEDULE_GROUP), (0x12, SCHEDULE_CHANNEL)])
def test_nobody_is_unscheduled_or_scheduled_by_halves(handle: int, cmd: int) -> None:
    container = Runs()
    for params, status in (
        *((params, nv.OK) for params in (b"\0\0", b"\0\0\0", b"\0\1\1")),
        *((params, nv.NOT_SUPPORTED) for params in (b"\1\1", b"\1\1\0", b"\1\0\1")),
    ):
        verdict, call = container.control(cmd, params, handle)
        assert (verdict, call.status) == (Verdict.ANSWER, status), params
    assert container.shut() == set()
    # which the driver refuses
    verdict, call = container.control(cmd, b"\1", handle)
    assert verdict is Verdict.FORWARD and call.raw.schedules


def test_of_a_schedule_that_fails_or_is_lost_all_may_be_open() -> None:
    container = Runs()
    for lost in (False, True, False):
        _, call = container.control(SCHEDULE_GROUP, b"\1\0\0", 0x10)
        container.shut()
        if lost:
            assert call.unanswered() is Verdict.DONE
        else:
            call.post(-errno.EFAULT)
        assert container.shut() == {0x11, 0x12}
    container.schedule(0x10)
    assert container.shut() == {0x11, 0x12}


FB_GET_INFO_V2, NVFBC_SESSIONS = 0x20801303, 0x2080017C
ON_TRIAL = Abi("700.10", newest=True)


@pytest.mark.parametrize("more", [-8, 8])
def test_under_layouts_on_trial_a_control_of_another_size_is_refused_and_told_of(
    more: int,
) -> None:
    """The driver would take its own size, and the answer would be read by ours."""
    container = Container()
    admit(container)
    args = nv.rm_control(CLIENT, SUBDEVICE, FB_GET_INFO_V2, bytes(1028 + more))
    verdict, call = container.ask(nv.CONTROL, args, bytes(1028), abi=ON_TRIAL)
    assert verdict is Verdict.ANSWER
    assert told(call) == ("control", FB_GET_INFO_V2, True)
    assert container.account.refused == 1
    fits = nv.rm_control(CLIENT, SUBDEVICE, FB_GET_INFO_V2, bytes(1028))
    assert container.ask(nv.CONTROL, fits, bytes(1028), abi=ON_TRIAL)[0] is Verdict.FORWARD


def test_under_layouts_on_trial_what_is_read_by_its_beginning_may_be_longer() -> None:
    container = Container()
    args = nv.rm_control(CLIENT, SUBDEVICE, NVFBC_SESSIONS, bytes(13316))
    verdict, call = container.ask(nv.CONTROL, args, bytes(4), abi=ON_TRIAL)
    assert (verdict, call.status, container.account.refused) == (Verdict.ANSWER, nv.OK, 0)


@pytest.mark.parametrize(
    ("said", "verdict"),
    [(136, Verdict.ANSWER), (128, Verdict.FORWARD), (0, Verdict.FORWARD)],
)
def test_under_layouts_on_trial_memory_whose_caller_says_another_size_is_refused(
    said: int, verdict: Verdict
) -> None:
    container = Container()
    params = nv.memory_params(MIB)
    args = nv.rm_alloc(CLIENT, DEVICE, 0x77, nv.MEMORY_USER, params)
    args[32:36] = said.to_bytes(4, "little")
    found, call = container.ask(nv.ALLOC, args, params, abi=ON_TRIAL)
    assert found is verdict
    if verdict is Verdict.ANSWER:
        assert told(call) == ("class", nv.MEMORY_USER, True)
