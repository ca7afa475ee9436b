# SPDX-License-Identifier: MIT
"""What a container is told: its own card, its own limit, and no to what reaches around them."""

from __future__ import annotations

import errno
import struct
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.core import (
    CAPACITY_MAX,
    Abi,
    Account,
    Call,
    Device,
    Request,
    Tenant,
    Topology,
    Verdict,
    ffi,
    lib,
    round_memory,
)
from tests.core import strategies as nv

ABI = Abi("580.142")
# since then UVM_FREE has no length
ABI_590 = Abi("590.48.01")
MIB = 1 << 20
CLIENT, DEVICE, SUBDEVICE = 0xC1D00000, 1, 2
FOREIGN = 0xC1D0FFFF
KIB = 1024
INVALID_CLASS, INVALID_STATE, NOT_SUPPORTED = 0x22, 0x40, 0x56
#: CUDA's own: NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CILP
CILP = 2


class Container:
    """Two cards on the host, the container has card 1 (device instance 0) with 8 MiB."""

    def __init__(
        self, limit: int | None = 8 * MIB, *, capacity_max: int = CAPACITY_MAX, **options: bool
    ) -> None:
        topology = Topology()
        topology.add(0, uuid=nv.card_uuid(0), device_instance=1)
        topology.add(1, uuid=nv.card_uuid(1), device_instance=0)
        self.tenant = Tenant(topology, capacity_max)
        self.tenant.give(1, limit, **options)
        self.ctl = self.tenant.open(Device.CTL, pid=70)
        self.uvm = self.tenant.open(Device.UVM, pid=70)
        self.alloc(0, 0, CLIENT, nv.ROOT_CLIENT)
        self.alloc(CLIENT, CLIENT, DEVICE, nv.DEVICE, nv.device_params(0))
        self.alloc(CLIENT, DEVICE, SUBDEVICE, nv.SUBDEVICE)

    @property
    def account(self) -> Account:
        return self.tenant.account(1)

    def ask(self, nr: int, args: bytes | bytearray, params: bytes | bytearray = b"", *,
            device: Device = Device.CTL, file: int = 0, fd_file: int = 0,
            abi: Abi = ABI) -> tuple[Verdict, Call]:  # fmt: skip
        request = Request(abi, device, nr, bytes(args), bytes(params))
        file = file or (self.uvm if device is Device.UVM else self.ctl)
        call = self.tenant.call(request, file, 70, fd_file=fd_file)
        return call.pre(), call

    def alloc(
        self, client: int, parent: int, new: int, cls: int, params: bytes | bytearray = b""
    ) -> Call:
        if cls == nv.MEMORY_SYSTEM and not params:
            params = nv.memory_params(4 * KIB)
        verdict, call = self.ask(nv.ALLOC, nv.rm_alloc(client, parent, new, cls, params), params)
        assert verdict is Verdict.FORWARD
        assert call.post() is Verdict.DONE
        return call

    def memory(self, handle: int, size: int) -> tuple[Verdict, Call]:
        params = nv.memory_params(size)
        args = nv.rm_alloc(CLIENT, DEVICE, handle, nv.MEMORY_USER, params)
        verdict, call = self.ask(nv.ALLOC, args, params)
        if verdict is Verdict.FORWARD:
            call.set_params(nv.memory_params(round_memory(size)))
            assert call.post() is Verdict.DONE
        return verdict, call

    def control(self, cmd: int, params: bytes | bytearray, handle: int = SUBDEVICE, **options: Any
                ) -> tuple[Verdict, Call]:  # fmt: skip
        args = nv.rm_control(CLIENT, handle, cmd, params)
        return self.ask(nv.CONTROL, args, params, **options)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("kill", [False, True])
def test_above_the_limit_the_answer_is_the_drivers_own_no_memory(kill: Any) -> None:
    container = Container(oom_kill=kill)
    assert container.memory(5, 7 * MIB)[0] is Verdict.FORWARD
    verdict, call = container.memory(6, MIB)
    assert container.account.current_bytes == 8 * MIB  # 7 MiB are 4 pages of 2 MiB
    assert (verdict, call.error, call.status) == (Verdict.ANSWER, 0, nv.NO_MEMORY)
    assert call.kill is kill
    assert container.tenant.shortage == (1, MIB)
    assert (container.account.oom, container.account.refused) == (1, 0)


@pytest.mark.parametrize("cls", [0xC2, 0x82, 0x83, 0x3F, 0x76])
def test_classes_that_reach_all_of_video_memory_are_refused(cls: Any) -> None:
    container = Container()
    for nr, args in (
        (nv.ALLOC, nv.rm_alloc(CLIENT, DEVICE, 9, cls)),
        (nv.ALLOC_OBJECT, nv.put(20, (0, "I", CLIENT), (4, "I", DEVICE), (12, "I", cls))),
        (nv.ALLOC_MEMORY, nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (12, "I", cls))),
    ):
        verdict, call = container.ask(nr, args)
        assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)
    assert container.account.refused == 3


FOREIGN_CALLS = {
    "alloc": (nv.ALLOC, nv.rm_alloc(FOREIGN, FOREIGN, 5, nv.DEVICE), Device.CTL),
    "free": (nv.FREE, nv.rm_free(FOREIGN, 5), Device.CTL),
    "heap free": (nv.VID_HEAP, nv.heap_free(FOREIGN, 5), Device.CTL),
    "heap alloc": (nv.VID_HEAP, nv.heap_alloc(FOREIGN, 1, 5, 4096), Device.CTL),
    "control": (nv.CONTROL, nv.rm_control(FOREIGN, FOREIGN, 0x102), Device.CTL),
    "dup into": (nv.DUP, nv.rm_dup(FOREIGN, 1, 5, CLIENT, DEVICE), Device.CTL),
    "dup from": (nv.DUP, nv.rm_dup(CLIENT, DEVICE, 5, FOREIGN, 7), Device.CTL),
    "share": (nv.SHARE, nv.put(24, (0, "I", FOREIGN)), Device.CTL),
    "map": (nv.MAP_MEMORY, nv.put(56, (0, "I", FOREIGN)), Device.CTL),
    "context dma": (nv.CONTEXT_DMA2, nv.put(56, (0, "I", FOREIGN), (12, "I", 2)), Device.CTL),
    "uvm map": (nv.UVM_MAP_EXTERNAL, nv.uvm_map(MIB, MIB, FOREIGN, 5, []), Device.UVM),
    "uvm va space": (nv.UVM_REGISTER_GPU_VASPACE, nv.put(32, (20, "I", FOREIGN)), Device.UVM),
    "uvm channel": (nv.UVM_REGISTER_CHANNEL, nv.put(56, (20, "I", FOREIGN)), Device.UVM),
    "uvm gpu": (nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1), FOREIGN), Device.UVM),
    "dma-buf": (nv.DMABUF, nv.put(2608, (4, "I", FOREIGN)), Device.GPU),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN_CALLS)
def test_a_client_of_somebody_else_does_not_exist(name: Any) -> None:
    nr, args, device = FOREIGN_CALLS[name]
    container = Container()
    verdict, call = container.ask(nr, args, device=device)
    assert (verdict, call.error, call.status) == (Verdict.ANSWER, 0, nv.INVALID_CLIENT)
    assert container.account.refused == 1


@pytest.mark.parametrize("cls", [nv.ROOT, nv.ROOT_CLIENT])
def test_a_client_has_no_number_that_its_maker_chose(cls: int) -> None:
    """The driver would take it, though it is one that a neighbour may have or is to have."""
    container = Container()
    verdict, call = container.ask(nv.ALLOC, nv.rm_alloc(FOREIGN, 0, 0, cls))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INVALID_CLIENT)
    assert container.account.refused == 1


def test_a_card_that_the_container_was_not_given_is_refused() -> None:
    container = Container()
    for instance, status in ((1, nv.INSUFFICIENT_PERMISSIONS), (7, nv.INVALID_DEVICE)):
        params = nv.device_params(instance)
        args = nv.rm_alloc(CLIENT, CLIENT, 9, nv.DEVICE, params)
        verdict, call = container.ask(nv.ALLOC, args, params)
        assert (verdict, call.status) == (Verdict.ANSWER, status)
    verdict, call = container.ask(
        nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(0)), device=Device.UVM
    )
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


@pytest.mark.parametrize("function", [19, 20])
def test_hardware_allocation_by_hand_is_not_supported(function: Any) -> None:
    args = nv.put(184, (0, "I", CLIENT), (8, "I", function))
    verdict, call = Container().ask(nv.VID_HEAP, args)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@given(st.integers(0, 0xFFFF))
def test_a_context_dma_of_another_class_is_refused(cls: Any) -> None:
    args = nv.put(56, (0, "I", CLIENT), (8, "I", 9), (12, "I", cls))
    verdict, call = Container().ask(nv.CONTEXT_DMA2, args)
    expected = (Verdict.FORWARD, 0) if cls == 2 else (Verdict.ANSWER, INVALID_CLASS)
    assert (verdict, call.status) == expected


@pytest.mark.parametrize(("cmd", "size"), [(0x20801303, 1028), (0x20800102, 0)])
def test_a_serialised_control_is_refused(cmd: int, size: int) -> None:
    params = bytes(size)
    args = nv.rm_control(CLIENT, SUBDEVICE, cmd, params, flags=4)
    verdict, call = Container().ask(nv.CONTROL, args, params)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED)


@pytest.mark.parametrize("cmd", [0x00801711, 0x00801712, 0x20801117, 0x20801110, 0x2080012C])
def test_controls_that_act_on_every_tenant_are_refused(cmd: Any) -> None:
    verdict, call = Container().control(cmd, b"")
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


@pytest.mark.parametrize("cmd", [0x20801231, 0x20801238])
def test_when_the_neighbours_compute_is_not_told(cmd: Any) -> None:
    verdict, call = Container().control(cmd, bytes(24))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


def test_only_own_channels_may_be_disabled() -> None:
    container = Container()
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    container.alloc(CLIENT, 0x30, 0x31, nv.CHANNEL, bytes(368))

    def disable(*pairs: tuple[int, int], count: int | None = None) -> tuple[Verdict, int | None]:
        params = nv.put(536, (0, "B", 1), (4, "I", len(pairs) if count is None else count),
                        *((24 + 4 * i, "I", client) for i, (client, _) in enumerate(pairs)),
                        *((280 + 4 * i, "I", one) for i, (_, one) in enumerate(pairs)))  # fmt: skip
        verdict, call = container.control(0x2080110B, params)
        return verdict, call.status

    assert disable((CLIENT, 0x31)) == (Verdict.FORWARD, 0)
    assert disable((CLIENT, 0x31), (CLIENT, 0x77)) == (Verdict.ANSWER, nv.INVALID_CLIENT)
    assert disable((CLIENT, 0x31), (FOREIGN, 0x31)) == (Verdict.ANSWER, nv.INVALID_CLIENT)
    assert disable(count=65) == (Verdict.ANSWER, nv.INVALID_ARGUMENT)


@pytest.mark.parametrize("disable", [0, 1])
@pytest.mark.parametrize("handle", [SUBDEVICE, 0x40])
def test_on_a_scheduled_card_no_tenant_moves_a_gate(disable: int, handle: int) -> None:
    """Not even by the name of another card: what is let pass may arrive when the gate is shut."""
    container = Container(slices_owned=True)
    container.tenant.give(0, MIB)
    container.alloc(CLIENT, CLIENT, 0x20, nv.DEVICE, nv.device_params(1))
    container.alloc(CLIENT, 0x20, 0x40, nv.SUBDEVICE)
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    container.alloc(CLIENT, 0x30, 0x31, nv.CHANNEL, bytes(368))
    params = nv.put(536, (0, "B", disable), (4, "I", 1), (24, "I", CLIENT), (280, "I", 0x31))
    verdict, call = container.control(0x2080110B, params, handle)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_SUPPORTED if disable else nv.OK)


def test_a_descriptor_of_somebody_else_is_neither_registered_nor_exported_to() -> None:
    container = Container()
    container.memory(5, MIB)
    verdict, call = container.ask(nv.REGISTER_FD, nv.put(4, (0, "i", 3)))
    assert (verdict, call.error) == (Verdict.ANSWER, -errno.EPERM)
    for cmd, params in ((nv.EXPORT_OBJECT, nv.export_object(5, 3)),
                        (nv.IMPORT_OBJECT, nv.import_object(DEVICE, 6, 3)),
                        (nv.EXPORT_OBJECTS, nv.export_objects([5], 3)),
                        (nv.IMPORT_OBJECTS, nv.import_objects(DEVICE, 1, 3))):  # fmt: skip
        verdict, call = container.control(cmd, params, CLIENT)
        assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)


@pytest.mark.parametrize("way", ["one", "list"])
def test_an_export_that_nobody_could_remember_does_not_reach_the_driver(way: str) -> None:
    """What is exported cannot be taken back."""
    container = Container(capacity_max=16)
    container.memory(5, 65536)
    other = container.tenant.open(Device.CTL)

    def export() -> Verdict:
        if way == "one":
            return container.control(nv.EXPORT_OBJECT, nv.export_object(5, 3), CLIENT,
                                     fd_file=other)[0]  # fmt: skip
        return container.control(nv.EXPORT_OBJECTS, nv.export_objects([5], 3), CLIENT,
                                 fd_file=other)[0]  # fmt: skip

    def reserve(base: int) -> bool:
        args = nv.uvm_create_external(base, MIB)
        verdict, call = container.ask(nv.UVM_CREATE_EXTERNAL, args, device=Device.UVM, abi=ABI_590)
        return verdict is Verdict.FORWARD and call.post() is Verdict.DONE

    base = 16 * MIB
    while reserve(base):
        base += MIB
    assert export() is Verdict.ANSWER
    container.ask(nv.UVM_FREE, nv.uvm_free_by_base(16 * MIB), device=Device.UVM, abi=ABI_590)[
        1
    ].post()
    assert export() is Verdict.FORWARD


def carrier(container: Container, *handles: int) -> int:
    """A file for exports, and memory by these handles, 1 MiB each."""
    for handle in handles:
        assert container.memory(handle, MIB)[0] is Verdict.FORWARD
    return container.tenant.open(Device.CTL)


def export(container: Container, file: int, *handles: int, first: int = 0) -> tuple[Verdict, Call]:
    params = nv.export_objects(list(handles), 9, first)
    return container.control(nv.EXPORT_OBJECTS, params, CLIENT, fd_file=file)


def imported(container: Container, file: int, *wanted: int, first: int = 0) -> Call:
    """An import that is in the driver."""
    params = nv.import_objects(DEVICE, len(wanted), 9, first, wanted)
    verdict, call = container.control(nv.IMPORT_OBJECTS, params, CLIENT, fd_file=file)
    assert verdict is Verdict.FORWARD
    return call


def found(call: Call, *handles: int) -> Verdict:
    """The driver answers with these, 0: nothing was there."""
    params = bytearray(call.params)
    for i, handle in enumerate(handles):
        params[520 + i] = 1 if handle else 0
        if handle:
            nv.set32(params, 8 + 4 * i, handle)
    call.set_params(params)
    return call.post()


@pytest.mark.parametrize("second", ["one", "list"])
def test_two_do_not_change_a_place_in_a_file_at_once(second: str) -> None:
    """Of two the driver may keep either: what is imported would be charged as the other."""
    container = Container()
    file = carrier(container, 5, 6)
    verdict, first = export(container, file, 5)
    assert verdict is Verdict.FORWARD
    assert export(container, file, 0)[1].status == nv.STATE_IN_USE
    cmd, args = (0x3D05, nv.export_object(6, 9)) if second == "one" else (
        0x3D0B, nv.export_objects([6], 9)
    )  # fmt: skip
    verdict, call = container.control(cmd, args, CLIENT, fd_file=file)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    assert export(container, file, 6, first=1)[0] is Verdict.FORWARD
    assert first.post() is Verdict.DONE
    # the driver puts one alone into no file that has something
    status = container.control(0x3D05, nv.export_object(6, 9), CLIENT, fd_file=file)[1].status
    assert status == nv.STATE_IN_USE
    assert not container.account.refused


def test_a_pool_grows_and_shrinks_in_the_file_that_it_was_exported_to() -> None:
    """Of 512 places most are empty; what leaves one is charged no more, once it is freed."""
    container = Container()
    file = carrier(container, 5, 6)
    assert export(container, file, *[0] * 512)[1].post() is Verdict.DONE
    for handle, first in ((5, 0), (6, 3)):
        assert export(container, file, handle, 0, 0, first=first)[1].post() is Verdict.DONE
    for handle in (5, 6):
        assert container.ask(nv.FREE, nv.rm_free(CLIENT, handle))[1].post() is Verdict.DONE
    assert container.account.current_bytes == 2 * MIB
    call = imported(container, file, 0x70, 0x71, 0x72, 0x73)
    assert found(call, 0x70, 0, 0, 0x73) is Verdict.DONE
    assert container.account.current_bytes == 2 * MIB
    assert nv.get32(call.params, 12) == 0x71, "what is not there keeps the handle that was asked"
    assert export(container, file, 0)[1].post() is Verdict.DONE
    assert container.account.current_bytes == 2 * MIB
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 0x70))[1].post() is Verdict.DONE
    assert container.account.current_bytes == MIB
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 0x73))[1].post() is Verdict.DONE
    assert container.account.current_bytes == MIB
    container.tenant.close(file)
    assert container.account.current_bytes == 0
    assert not container.account.refused


@pytest.mark.parametrize("done", [False, True])
def test_what_takes_anothers_place_is_charged_with_it_until_the_driver_answers(done: bool) -> None:
    container = Container()
    file = carrier(container, 5, 6)
    assert export(container, file, 5)[1].post() is Verdict.DONE
    verdict, call = export(container, file, 6)
    assert verdict is Verdict.FORWARD
    for handle in (5, 6):
        container.ask(nv.FREE, nv.rm_free(CLIENT, handle))[1].post()
    # 6 is needed by the call
    assert container.account.current_bytes == 2 * MIB
    seen = bytearray(call.args)
    nv.set32(seen, call.raw.req.status_offset, nv.OK if done else nv.INVALID_ARGUMENT)
    call.set_args(seen)
    assert call.post() is Verdict.DONE
    assert container.account.current_bytes == 2 * MIB - (MIB if done else 0)
    container.ask(nv.FREE, nv.rm_free(CLIENT, 6))[1].post()
    assert container.account.current_bytes == MIB


def test_an_import_has_what_is_put_into_an_empty_place_meanwhile() -> None:
    container = Container()
    file = carrier(container, 5, 6)
    assert export(container, file, 5)[1].post() is Verdict.DONE
    call = imported(container, file, 0x70, 0x71)
    # what it may have found stays what it is
    assert export(container, file, 6)[1].status == nv.STATE_IN_USE
    assert export(container, file, 0)[1].status == nv.STATE_IN_USE
    verdict, filling = export(container, file, 6, first=1)
    assert verdict is Verdict.FORWARD
    assert found(call, 0x70, 0x81) is Verdict.DONE
    assert filling.post() is Verdict.DONE
    for handle in (5, 6):
        container.ask(nv.FREE, nv.rm_free(CLIENT, handle))[1].post()
    container.tenant.close(file)
    assert container.account.current_bytes == 2 * MIB
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 0x81))[1].post() is Verdict.DONE
    assert container.account.current_bytes == MIB
    container.ask(nv.FREE, nv.rm_free(CLIENT, 0x70))[1].post()
    assert container.account.current_bytes == 0


@pytest.mark.parametrize("cmd", [nv.EXPORT_OBJECTS, 0x3D0A])
def test_a_file_has_as_many_places_as_cuda_wants_of_the_largest_card(cmd: int) -> None:
    """One for each 16 MiB: 8948 on an H200."""
    container = Container()
    file = container.tenant.open(Device.CTL)
    for places, wanted in ((1, nv.OK), (8948, nv.OK), (32768, nv.OK), (32769, 0x1A)):
        params = (nv.export_objects([0], 9, 0, places) if cmd == nv.EXPORT_OBJECTS else
                  nv.create_export(9, places))  # fmt: skip
        verdict, call = container.control(cmd, params, CLIENT, fd_file=file)
        assert (verdict is Verdict.FORWARD, call.status) == (wanted == nv.OK, wanted)
        if verdict is Verdict.FORWARD:
            assert call.post() is Verdict.DONE
    assert container.account.refused == 1
    params = nv.create_export(9, 1)
    assert container.control(0x3D0A, params, CLIENT)[1].status == nv.INSUFFICIENT_PERMISSIONS


def test_an_import_from_nowhere_is_killed() -> None:
    container = Container()
    file = carrier(container)
    assert found(imported(container, file, 0x70), 0x70) is Verdict.KILL


def test_the_driver_is_shown_no_handle_for_an_empty_place() -> None:
    """Where it fails later it frees whatever has that handle (os.c, 535 to 595)."""
    container = Container()
    file = carrier(container, 5, 6)
    assert export(container, file, 6, first=1)[1].post() is Verdict.DONE
    call = imported(container, file, 5, DEVICE)
    assert [nv.get32(call.params, at) for at in (8, 12)] == [0, DEVICE]
    seen = bytearray(call.args)
    nv.set32(seen, call.raw.req.status_offset, 0x19)
    call.set_args(seen)
    assert call.post() is Verdict.DONE
    assert nv.get32(call.params, 8) == 5
    # and the place may be filled again
    assert export(container, file, 5)[1].post() is Verdict.DONE
    assert export(container, file, 0, 0)[1].post() is Verdict.DONE


def test_an_export_in_anothers_place_that_is_not_answered_is_nobodys_guess() -> None:
    container = Container()
    file = carrier(container, 5, 6)
    assert export(container, file, 5)[1].unanswered() is Verdict.DONE
    assert export(container, file, 6)[1].unanswered() is Verdict.KILL


def test_what_the_driver_itself_would_refuse_is_no_refusal() -> None:
    """Nothing wrong was done: no event, and nothing in `refused`."""
    container = Container()
    file = carrier(container, 5)
    verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x99))
    assert (verdict, call.status) == (Verdict.ANSWER, nv.OK)
    for verdict, call in (
        export(container, file, 0x99),
        container.control(0x20800110, bytes(132), 0x99),
    ):
        assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_FOUND)
        assert not call.raw.refused
    refused = container.account.refused
    assert refused == 0
    for call in (
        container.control(0x2080FFFF, b"", SUBDEVICE)[1],
        container.control(nv.EXPORT_OBJECT, nv.export_object(5, 3), CLIENT)[1],
        container.ask(nv.FREE, nv.rm_free(FOREIGN, 5))[1],
        export(container, file, *[5] * 33)[1],
    ):
        assert call.raw.refused
    assert container.account.refused - refused == 4


def test_an_export_that_the_driver_refuses_leaves_its_place() -> None:
    container = Container()
    file = container.tenant.open(Device.CTL)
    assert container.memory(5, MIB)[0] is Verdict.FORWARD
    for done in (False, True):
        verdict, call = container.control(0x3D0B, nv.export_objects([5], 9), CLIENT, fd_file=file)
        assert verdict is Verdict.FORWARD
        seen = bytearray(call.args)
        nv.set32(seen, call.raw.req.status_offset, nv.OK if done else nv.INVALID_ARGUMENT)
        call.set_args(seen)
        assert call.post() is Verdict.DONE
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, 5))[1].post() is Verdict.DONE
    assert container.account.current_bytes == MIB
    container.tenant.close(file)
    assert container.account.current_bytes == 0


def test_nothing_imports_what_was_not_exported() -> None:
    container = Container()
    other = container.tenant.open(Device.CTL)
    params = nv.import_object(DEVICE, 6, 9)
    verdict, call = container.control(nv.IMPORT_OBJECT, params, CLIENT, fd_file=other)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NOT_FOUND)


# -------------------------------------------------------------- its own card


@given(st.integers(1, 1 << 20), st.integers(0, 6), st.sampled_from([0x20801301, 0x20801303]))
def test_sizes_are_those_of_the_limit_and_free_is_what_is_left(
    card_kib: Any, used: Any, cmd: Any
) -> None:
    """The card itself may be smaller than the limit, and fuller."""
    container = Container()
    if used:
        container.memory(5, used * MIB)
    free_kib = card_kib // 2
    indexes = {0x07: card_kib, 0x08: card_kib, 0x09: card_kib, 0x0A: card_kib, 0x20: card_kib,
               0x12: free_kib, 0x16: free_kib, 0x0B: 384}  # fmt: skip
    entries = b"".join(nv.put(8, (0, "I", i), (4, "I", 0)) for i in indexes)
    answer = b"".join(nv.put(8, (0, "I", i), (4, "I", v)) for i, v in indexes.items())
    if cmd == 0x20801301:
        params = nv.put(16, (0, "I", len(indexes)), (8, "Q", 0x9000))
        verdict, call = container.control(cmd, params)
        call.set_list(answer)
    else:
        params = (nv.put(4, (0, "I", len(indexes))) + entries).ljust(1028, b"\0")
        verdict, call = container.control(cmd, params)
        call.set_params(bytes(params[:4]) + answer)
    assert verdict is Verdict.FORWARD
    assert call.post() is Verdict.DONE
    seen = call.list_bytes if cmd == 0x20801301 else call.params[4:]

    left = (8 * MIB - container.account.current_bytes) // KIB
    for at, index in enumerate(indexes):
        value = nv.get32(seen, 8 * at + 4)
        if index == 0x0B:
            assert value == 384
        elif index in (0x12, 0x16):
            assert value == min(free_kib, left)
        else:
            assert value == min(card_kib, 8 * KIB)


def test_old_calls_show_the_limit_too() -> None:
    container = Container()
    container.memory(5, 2 * MIB)
    verdict, call = container.ask(
        nv.VID_HEAP, nv.put(184, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 5))
    )
    assert verdict is Verdict.FORWARD
    call.set_args(nv.put(184, (0, "I", CLIENT), (24, "Q", 80 << 30), (32, "Q", 79 << 30)))
    assert call.post() is Verdict.DONE
    assert (nv.get64(call.args, 24), nv.get64(call.args, 32)) == (8 * MIB, 6 * MIB)


def test_local_memory_by_the_old_escape_which_maps_the_card_for_root_is_refused() -> None:
    container = Container()
    args = nv.put(56, (0, "I", CLIENT), (4, "I", DEVICE), (8, "I", 0x44), (12, "I", 0x40))
    verdict, call = container.ask(nv.ALLOC_MEMORY, args)
    assert (verdict, call.status) == (Verdict.ANSWER, nv.INSUFFICIENT_PERMISSIONS)
    assert container.account.refused == 1


def test_without_a_limit_the_card_is_shown_as_it_is() -> None:
    container = Container(None)
    params = (nv.put(12, (0, "I", 1), (4, "I", 0x08), (8, "I", 999))).ljust(1028, b"\0")
    _, call = container.control(0x20801303, params)
    assert call.post() is Verdict.DONE
    assert nv.get32(call.params, 8) == 999


# ------------------------------------------------------------------ compute


def test_a_timeslice_is_remembered_and_not_applied_while_the_engine_owns_it() -> None:
    for owned in (False, True):
        container = Container(slices_owned=owned)
        container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
        ask = nv.put(8, (0, "Q", 2048))
        verdict, call = container.control(0xA06C0103, ask, 0x30)
        assert verdict is (Verdict.ANSWER if owned else Verdict.FORWARD)
        if owned:
            assert call.status == nv.OK
            verdict, call = container.control(0xA06C0104, bytes(8), 0x30)
            assert (verdict, nv.get64(call.params, 0)) == (Verdict.ANSWER, 2048)


@pytest.mark.parametrize(("flags", "mode"), [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (3, 1)])
def test_a_long_kernel_can_be_interrupted_whoever_owns_the_card_by_then(
    flags: int, mode: int
) -> None:
    """GR_SET_CTXSW_PREEMPTION_MODE: to wait for idle, or for a block's end, is to be immune."""
    params = nv.put(16, (0, "I", flags), (12, "I", mode))
    for owned in (False, True):
        verdict, call = Container(slices_owned=owned).control(0x20801210, params)
        swallowed = flags & 1 and mode != CILP
        assert (verdict, call.status) == (Verdict.ANSWER if swallowed else Verdict.FORWARD, nv.OK)


@pytest.mark.parametrize(
    ("said", "verdict"),
    [(nv.OK, Verdict.DONE), (NOT_SUPPORTED, Verdict.DONE), (nv.NO_MEMORY, Verdict.UNDO)],
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_channel_that_computes_is_made_interruptible_or_not_at_all(
    said: int, verdict: Verdict, lost: bool
) -> None:
    """A context that its program asks nothing for is interrupted between blocks only."""
    container = Container()
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    _, call = container.ask(nv.ALLOC, nv.rm_alloc(CLIENT, 0x30, 0x31, nv.CHANNEL))
    assert call.raw.hSubdevice == SUBDEVICE
    params = ffi.new("struct nv_gr_preemption_mode *")
    lib.cgpu_call_preemption(call.raw, params)
    assert (params.flags, params.hChannel, params.cilpPreemptMode) == (1, 0x31, CILP)
    freed = container.ask(nv.FREE, nv.rm_free(CLIENT, SUBDEVICE))[1]
    assert freed.status == nv.STATE_IN_USE
    call.raw.preemption = said
    assert (call.unanswered() if lost else call.post()) is verdict
    assert call.status == (nv.OK if verdict is Verdict.DONE else said)


def test_a_channel_that_nothing_makes_interruptible_is_refused_if_it_computes() -> None:
    container = Container()
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    container.alloc(CLIENT, DEVICE, 0x50, nv.GROUP, nv.group_params(0, 9))  # copies
    container.ask(nv.FREE, nv.rm_free(CLIENT, SUBDEVICE))[1].post()
    verdict, call = container.ask(nv.ALLOC, nv.rm_alloc(CLIENT, 0x30, 0x31, nv.CHANNEL))
    assert (verdict, call.status) == (Verdict.ANSWER, INVALID_STATE)
    container.alloc(CLIENT, 0x50, 0x51, nv.CHANNEL)
    container.alloc(CLIENT, DEVICE, 0x60, nv.SUBDEVICE)
    container.alloc(CLIENT, 0x30, 0x31, nv.CHANNEL)


def test_a_channel_is_shut_once_and_opened_once() -> None:
    container = Container()
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    container.alloc(CLIENT, DEVICE, 0x50, nv.GROUP, nv.group_params(0, 9))  # copies
    for group, channel in ((0x30, 0x31), (0x30, 0x32), (0x50, 0x51)):
        container.alloc(CLIENT, group, channel, nv.CHANNEL)
    assert container.tenant.gate(1, True) == []  # never scheduled
    for group in (0x30, 0x50):
        _, call = container.control(0xA06C0101, b"\1\0\0", group)
        assert call.post() is Verdict.DONE
    assert container.tenant.gate(0, True) == []
    assert sorted(container.tenant.gate(1, True)) == [(CLIENT, 0x31), (CLIENT, 0x32)]
    assert container.tenant.gate(1, True) == []
    container.alloc(CLIENT, 0x30, 0x33, nv.CHANNEL)
    assert container.tenant.gate(1, True, most=1) == [(CLIENT, 0x33)]
    _, call = container.ask(nv.FREE, nv.rm_free(CLIENT, 0x32))
    assert call.post() is Verdict.DONE
    assert sorted(container.tenant.gate(1, False)) == [(CLIENT, 0x31), (CLIENT, 0x33)]
    assert container.tenant.gate(1, False) == []


def test_a_channel_that_the_driver_would_not_shut_comes_up_in_the_next_pass() -> None:
    """In the same one those that are refused would hide the others, and never end it."""
    container = Container()
    container.alloc(CLIENT, DEVICE, 0x30, nv.GROUP, nv.group_params(0, 1))
    for channel in (0x31, 0x32):
        container.alloc(CLIENT, 0x30, channel, nv.CHANNEL)
    _, call = container.control(0xA06C0101, b"\1\0\0", 0x30)
    assert call.post() is Verdict.DONE
    assert len(container.tenant.gate(1, True)) == 2
    refused = ffi.new("struct cgpu_handle *", {"hClient": CLIENT, "hObject": 0x31})
    lib.cgpu_tenant_not_shut(container.tenant.raw, refused)
    assert container.tenant.gate(1, True) == []
    lib.cgpu_tenant_gate_anew(container.tenant.raw, 0)
    assert container.tenant.gate(1, True) == []
    lib.cgpu_tenant_gate_anew(container.tenant.raw, 1)
    assert container.tenant.gate(1, True) == [(CLIENT, 0x31)]
    assert len(container.tenant.gate(1, False)) == 2
    lib.cgpu_tenant_gate_anew(container.tenant.raw, 1)
    assert container.tenant.gate(1, False) == []


def test_more_channel_groups_than_are_free_are_charged() -> None:
    container = Container(64 * MIB)
    free = lib.CGPU_FREE_GROUPS
    for number in range(free + 3):
        container.alloc(CLIENT, DEVICE, 0x1000 + number, nv.GROUP, nv.group_params(0, 1))
    assert container.account.current_bytes == 3 * lib.CGPU_GROUP_BYTES
    container.tenant.close(container.ctl)
    assert container.account.current_bytes == 0


def test_what_no_card_has_is_no_peak_of_a_container_without_a_limit() -> None:
    container = Container(limit=None)
    container.tenant.topology.raw.gpu[1].total_bytes = 64 * MIB
    for size in (1 << 63, 1 << 30):
        verdict, call = container.memory(5, size)
        assert (verdict, call.status) == (Verdict.ANSWER, nv.NO_MEMORY)
    assert container.account.peak_bytes < MIB
    container.memory(5, MIB)
    assert container.account.current_bytes >= MIB


# ------------------------------------------------------------------ managed


def test_managed_memory_counts_on_every_card_that_it_may_move_to() -> None:
    container = Container()
    assert container.tenant.mmap(container.uvm, 16 * MIB, 4 * MIB)
    assert container.account.current_bytes == 0
    _, call = container.ask(
        nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1)), device=Device.UVM
    )
    assert call.post() is Verdict.DONE
    assert container.account.current_bytes == 4 * MIB
    assert not container.tenant.mmap(container.uvm, 32 * MIB, 5 * MIB)
    assert container.tenant.shortage == (1, 6 * MIB), "by blocks"
    assert container.tenant.processes(1) == {70: 4 * MIB}
    container.tenant.munmap(container.uvm, 18 * MIB, 2 * MIB)
    assert container.account.current_bytes == 2 * MIB


def test_managed_memory_of_which_pieces_are_unmapped_keeps_its_blocks() -> None:
    """As the card does: what is left of one has all of it (H100, 580.159.04)."""
    container = Container()
    args = nv.uvm_register_gpu(nv.card_uuid(1))
    assert container.ask(nv.UVM_REGISTER_GPU, args, device=Device.UVM)[1].post() is Verdict.DONE
    for base in range(16 * MIB, 24 * MIB, 2 * MIB):
        assert container.tenant.mmap(container.uvm, base, 2 * MIB)
        container.tenant.munmap(container.uvm, base + 4096, 2 * MIB - 4096)
        assert container.tenant.mmap(container.uvm, base + MIB, 4096), "in the same block"
    assert container.account.current_bytes == 8 * MIB
    assert not container.tenant.mmap(container.uvm, 24 * MIB, 4096)
    container.tenant.munmap(container.uvm, 16 * MIB, 4096)
    assert container.account.current_bytes == 8 * MIB
    container.tenant.munmap(container.uvm, 17 * MIB, 4096)
    assert container.account.current_bytes == 6 * MIB


def test_a_card_cannot_be_registered_when_managed_memory_exceeds_its_limit() -> None:
    container = Container()
    assert container.tenant.mmap(container.uvm, 16 * MIB, 9 * MIB)
    verdict, call = container.ask(
        nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1)), device=Device.UVM
    )
    assert (verdict, call.status) == (Verdict.ANSWER, nv.NO_MEMORY)
    assert container.tenant.shortage == (1, 10 * MIB)


def test_managed_memory_can_be_denied() -> None:
    container = Container(uvm_disable=True)
    assert not container.tenant.mmap(container.uvm, 16 * MIB, 4096)
    assert container.account.refused == 1
    assert container.tenant.shortage is None


def test_a_pool_of_which_no_answer_arrived_is_mapped_where_managed_memory_is_denied() -> None:
    """Under the agent that is every pool, and every program that computes has one."""
    container = Container(uvm_disable=True)
    args = nv.uvm_register_gpu(nv.card_uuid(1))
    assert container.ask(nv.UVM_REGISTER_GPU, args, device=Device.UVM)[1].post() is Verdict.DONE
    pool = nv.uvm_semaphore_pool(16 * MIB, 2 * MIB)
    assert container.ask(nv.UVM_SEMAPHORE_POOL, pool, device=Device.UVM)[1].unanswered()
    assert container.tenant.mmap(container.uvm, 16 * MIB, 2 * MIB)
    assert container.account.current_bytes == 2 * MIB, "it may be managed memory"
    assert not container.tenant.mmap(container.uvm, 18 * MIB, 4096)


def test_from_590_on_a_free_by_base_of_a_pool_of_which_no_answer_arrived_takes_all_of_it() -> None:
    """It stayed, but for its first byte, and what was mapped there next was allowed."""
    container = Container(uvm_disable=True)
    ask = partial(container.ask, device=Device.UVM, abi=ABI_590)
    pool = nv.uvm_semaphore_pool(16 * MIB, 2 * MIB)
    assert ask(nv.UVM_SEMAPHORE_POOL, pool)[1].unanswered() is Verdict.DONE
    assert ask(nv.UVM_FREE, nv.uvm_free_by_base(16 * MIB))[1].post() is Verdict.DONE
    assert not container.tenant.mmap(container.uvm, 17 * MIB, MIB)


def test_a_semaphore_pool_is_not_managed_memory_until_it_is_freed() -> None:
    container = Container(uvm_disable=True)
    _, call = container.ask(
        nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, MIB), device=Device.UVM
    )
    assert not container.tenant.mmap(container.uvm, 16 * MIB, MIB), "not made yet"
    assert call.post() is Verdict.DONE
    assert container.tenant.mmap(container.uvm, 16 * MIB, MIB)
    _, call = container.ask(nv.UVM_FREE, nv.uvm_free(16 * MIB, MIB), device=Device.UVM)
    assert not container.tenant.mmap(container.uvm, 16 * MIB, MIB), "on its way out"
    assert call.post() is Verdict.DONE


@pytest.mark.parametrize("abi", [ABI, ABI_590])
def test_a_pool_is_not_freed_under_an_mmap_that_relies_on_it(abi: Abi) -> None:
    """What the driver then maps there would be managed memory, charged to nobody."""
    container = Container(uvm_disable=True)
    raw, uvm = container.tenant.raw, container.uvm
    by_base = abi is ABI_590

    def ask(nr: int, args: bytearray) -> tuple[Verdict, Call]:
        return container.ask(nr, args, device=Device.UVM, abi=abi)

    def free(base: int, length: int) -> tuple[Verdict, Call]:
        return ask(nv.UVM_FREE, nv.uvm_free_by_base(base) if by_base else nv.uvm_free(base, length))

    assert ask(nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, MIB))[1].post()
    assert lib.cgpu_tenant_map_reserved(raw, uvm, 16 * MIB, MIB)
    for base, length in ((16 * MIB, MIB),) + (() if by_base else ((15 * MIB, 2 * MIB),)):
        verdict, call = free(base, length)
        assert (verdict, call.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    assert free(24 * MIB, MIB)[1].post() is Verdict.DONE
    lib.cgpu_tenant_mapped(raw, uvm, 16 * MIB, MIB, True)
    assert free(16 * MIB, MIB)[1].post() is Verdict.DONE
    assert not lib.cgpu_tenant_map_reserved(raw, uvm, 16 * MIB, MIB)


def test_what_is_mapped_in_a_parallelism_region_is_managed_memory() -> None:
    """The driver maps none there; where it is freed in between it makes a managed range."""
    container = Container()
    args = nv.uvm_map_sparse(16 * MIB, MIB, nv.card_uuid(1))
    assert container.ask(nv.UVM_PARALLELISM, args, device=Device.UVM)[1].post() is Verdict.DONE
    assert not lib.cgpu_tenant_map_reserved(container.tenant.raw, container.uvm, 16 * MIB, MIB)


def test_an_mmap_that_the_driver_refuses_is_not_charged() -> None:
    container = Container()
    args = nv.uvm_register_gpu(nv.card_uuid(1))
    assert container.ask(nv.UVM_REGISTER_GPU, args, device=Device.UVM)[1].post() is Verdict.DONE
    for done in (False, True):
        assert container.tenant.mmap(container.uvm, 16 * MIB, 2 * MIB)
        lib.cgpu_tenant_mapped(container.tenant.raw, container.uvm, 16 * MIB, 2 * MIB, done)
        assert container.account.current_bytes == (2 * MIB if done else 0)


@pytest.mark.parametrize("base", [16 * MIB, 15 * MIB])
def test_a_pool_that_was_freed_while_it_was_made_covers_nothing(base: int) -> None:
    """Whatever the driver says of both: it may have made the pool first, then freed it."""
    container = Container(uvm_disable=True)
    _, pool = container.ask(
        nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, MIB), device=Device.UVM
    )
    _, free = container.ask(nv.UVM_FREE, nv.uvm_free(base, 2 * MIB), device=Device.UVM)
    assert (free.post(), pool.post()) == (Verdict.DONE, Verdict.DONE)
    assert not container.tenant.mmap(container.uvm, 16 * MIB, MIB)


def test_from_590_on_a_free_inside_a_pool_leaves_it_whole() -> None:
    container = Container(uvm_disable=True)
    for nr, args in (
        (nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, MIB)),
        (nv.UVM_FREE, nv.uvm_free_by_base(16 * MIB + 65536)),
    ):
        container.ask(nr, args, device=Device.UVM, abi=ABI_590)[1].post()
    assert container.tenant.mmap(container.uvm, 16 * MIB, MIB)


def test_from_590_on_a_free_by_base_takes_all_that_was_mapped_in_the_range() -> None:
    container = Container()

    def uvm(nr: int, args: bytearray) -> Call:
        verdict, call = container.ask(nr, args, device=Device.UVM, abi=ABI_590)
        assert verdict is Verdict.FORWARD
        if nr == nv.UVM_FREE:
            nv.set32(args, 8, nv.OK)
            call.set_args(bytes(args))
        assert call.post() is Verdict.DONE
        return call

    for handle in (5, 6):
        container.memory(handle, 2 * MIB)
    uvm(nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1)))
    # 8 MiB of addresses, of which the second and the fourth 2 MiB are mapped
    uvm(nv.UVM_CREATE_EXTERNAL, nv.uvm_create_external(16 * MIB, 8 * MIB))
    for handle, base in ((5, 18 * MIB), (6, 22 * MIB)):
        uvm(nv.UVM_MAP_EXTERNAL,
            nv.uvm_map(base, 2 * MIB, CLIENT, handle, [nv.card_uuid(1)]))  # fmt: skip
        verdict, call = container.ask(nv.FREE, nv.rm_free(CLIENT, handle))
        assert (verdict, call.post()) == (Verdict.FORWARD, Verdict.DONE)
    assert container.account.current_bytes == 4 * MIB, "the mappings keep it"
    call = uvm(nv.UVM_FREE, nv.uvm_free_by_base(16 * MIB))
    assert container.account.current_bytes == 0
    assert len(call.args) == 16, "nothing behind the caller's struct"


def test_from_590_on_a_free_by_base_that_the_driver_refuses_takes_nothing() -> None:
    container = Container()
    container.memory(5, 2 * MIB)
    for nr, args in (
        (nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1))),
        (nv.UVM_CREATE_EXTERNAL, nv.uvm_create_external(16 * MIB, 4 * MIB)),
        (nv.UVM_MAP_EXTERNAL,
         nv.uvm_map(16 * MIB, 2 * MIB, CLIENT, 5, [nv.card_uuid(1)])),
    ):  # fmt: skip
        container.ask(nr, args, device=Device.UVM, abi=ABI_590)[1].post()
    container.ask(nv.FREE, nv.rm_free(CLIENT, 5))[1].post()
    args = nv.uvm_free_by_base(16 * MIB)
    _, call = container.ask(nv.UVM_FREE, args, device=Device.UVM, abi=ABI_590)
    nv.set32(args, 8, nv.INVALID_ADDRESS)
    call.set_args(bytes(args))
    assert call.post() is Verdict.DONE
    assert container.account.current_bytes == 2 * MIB


# ----------------------------------------------------------------- undoing


def test_memory_that_came_out_larger_than_the_limit_is_undone_and_charged_until_then() -> None:
    container = Container()
    params = nv.memory_params(MIB)
    args = nv.rm_alloc(CLIENT, DEVICE, 5, nv.MEMORY_USER, params)
    _, call = container.ask(nv.ALLOC, args, params)
    call.set_params(nv.memory_params(9 * MIB))
    assert call.post() is Verdict.UNDO
    assert call.status == nv.NO_MEMORY
    assert call.undo_args() == bytes(nv.rm_free(CLIENT, 5))
    assert container.account.current_bytes == MIB
    verdict, freeing = container.ask(nv.FREE, nv.rm_free(CLIENT, DEVICE))
    assert (verdict, freeing.status) == (Verdict.ANSWER, nv.STATE_IN_USE)
    call.undone()
    assert container.account.current_bytes == 0
    assert container.ask(nv.FREE, nv.rm_free(CLIENT, DEVICE))[0] is Verdict.FORWARD


def test_memory_that_may_have_been_mapped_for_peers_stays_charged_until_it_is_freed() -> None:
    """UVM_ALLOC_DEVICE_P2P, whose answer did not arrive: nobody is killed for it."""
    container = Container(uvm_disable=True)
    container.memory(5, 2 * MIB)
    place = struct.pack("<QQQ", 16 * MIB, 2 * MIB, 0)
    args = bytearray(place + nv.card_uuid(1) + struct.pack("<iIII", -1, CLIENT, 5, 0))
    verdict, call = container.ask(nv.UVM_DEVICE_P2P, args, device=Device.UVM, abi=ABI_590)
    assert (verdict, call.unanswered()) == (Verdict.FORWARD, Verdict.DONE)
    container.ask(nv.FREE, nv.rm_free(CLIENT, 5))[1].post()
    assert container.account.current_bytes == 2 * MIB
    # it may be no reservation: what lies there by mmap is charged, too, but not refused
    container.ask(nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1)),
                  device=Device.UVM, abi=ABI_590)[1].post()  # fmt: skip
    assert container.tenant.mmap(container.uvm, 16 * MIB, 2 * MIB)
    assert container.account.current_bytes == 4 * MIB
    container.tenant.close(container.uvm)
    assert container.account.current_bytes == 0


def test_a_file_that_closes_under_a_mapping_on_its_way_keeps_its_charge_until_it_landed() -> None:
    container = Container()
    container.memory(5, MIB)
    uuid = [nv.card_uuid(1)]
    _, call = container.ask(
        nv.UVM_MAP_EXTERNAL, nv.uvm_map(16 * MIB, MIB, CLIENT, 5, uuid), device=Device.UVM
    )
    container.tenant.close(container.ctl)
    assert container.account.current_bytes == MIB
    assert call.post() is Verdict.DONE
    assert container.account.current_bytes == MIB, "UVM holds it"
    container.tenant.close(container.uvm)
    assert container.account.current_bytes == 0
    assert container.tenant.idle()


# -------------------------------------------- what a door does not hear the answer of


def _device(container: Container, handle: int) -> Call:
    params = nv.device_params(0)
    args = nv.rm_alloc(CLIENT, CLIENT, handle, nv.DEVICE, params)
    return container.tenant.call(
        Request(ABI, Device.CTL, nv.ALLOC, bytes(args), bytes(params)), container.ctl, 70
    )


def test_a_handle_in_use_is_told_before_a_call_that_nobody_hears_the_answer_of() -> None:
    container = Container()
    assert _device(container, 5).occupied() == 0
    container.memory(5, MIB)
    call = _device(container, 5)
    serial = call.occupied()
    assert serial
    # the driver does not know it: what it kept is returned, and the handle is free
    assert call.vacate(serial)
    assert (call.occupied(), container.account.current_bytes) == (0, 0)
    assert (call.pre(), call.unanswered()) == (Verdict.FORWARD, Verdict.DONE)
    assert _device(container, CLIENT).occupied()
    assert _device(container, DEVICE).occupied()


def test_what_was_made_since_the_driver_was_asked_stays() -> None:
    container = Container()
    container.memory(5, MIB)
    call = _device(container, 5)
    serial = call.occupied()
    container.ask(nv.FREE, nv.rm_free(CLIENT, 5))[1].post()
    container.memory(5, 2 * MIB)
    assert not call.vacate(serial)
    assert container.account.current_bytes == 2 * MIB


def test_what_a_call_in_the_driver_needs_stays() -> None:
    container = Container()
    container.memory(5, MIB)
    call = _device(container, 5)
    _, dup = container.ask(nv.DUP, nv.rm_dup(CLIENT, DEVICE, 6, CLIENT, 5))
    assert not call.vacate(call.occupied())
    assert dup.post() is Verdict.DONE
    assert container.account.current_bytes == MIB


def test_a_call_that_makes_no_object_names_no_new_handle() -> None:
    container = Container()
    container.memory(5, MIB)
    request = Request(ABI, Device.CTL, nv.FREE, bytes(nv.rm_free(CLIENT, 5)), b"")
    call = container.tenant.call(request, container.ctl, 70)
    assert call.occupied() == 0


def test_a_pool_that_nobody_heard_of_makes_no_managed_memory_free() -> None:
    container = Container()

    def uvm(nr: int, args: bytes | bytearray) -> Call:
        verdict, call = container.ask(nr, args, device=Device.UVM)
        assert verdict is Verdict.FORWARD
        return call

    uvm(nv.UVM_REGISTER_GPU, nv.uvm_register_gpu(nv.card_uuid(1))).post()
    for length in (2 * MIB, 64 * MIB):
        pool = uvm(nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, length))
        assert pool.unanswered() is Verdict.DONE
    uvm(nv.UVM_FREE, nv.uvm_free(16 * MIB, 2 * MIB)).post()
    assert not container.tenant.mmap(container.uvm, 18 * MIB, 32 * MIB)


def test_a_free_by_base_of_a_pool_that_nobody_heard_of_returns_its_page_tables() -> None:
    container = Container()
    bound = 2 * lib.CGPU_FREE_TABLES_BYTES * 512

    def uvm(nr: int, args: bytes | bytearray) -> Call:
        verdict, call = container.ask(nr, args, device=Device.UVM, abi=ABI_590)
        assert verdict is Verdict.FORWARD
        return call

    for _ in range(8):
        pool = uvm(nv.UVM_SEMAPHORE_POOL, nv.uvm_semaphore_pool(16 * MIB, bound // 4))
        assert pool.unanswered() is Verdict.DONE
        free = uvm(nv.UVM_FREE, nv.uvm_free_by_base(16 * MIB))
        later = uvm(nv.UVM_MAP_SPARSE, nv.uvm_map_sparse(16 * MIB, 4096, nv.card_uuid(1)))
        assert later.post() is Verdict.DONE
        nv.set32(args := bytearray(free.args), 8, nv.OK)
        free.set_args(bytes(args))
        assert free.post() is Verdict.DONE
        assert container.account.current_bytes == 0
