# SPDX-License-Identifier: MIT
"""The check of a driver that is newer than all known, beside a model of such a driver."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

import pytest

from pycgpu.core import Abi, ffi, lib

MIB = 1 << 20
ADDRESS, CLASS, ILLEGAL, CLIENT = 0x1E, 0x22, 0x16, 0x23


def u32(at: Any, offset: int, value: int | None = None) -> int:
    if value is not None:
        lib.cgpu_put32(at, offset, value)
    return int(lib.cgpu_get32(at, offset))


@dataclass
class Driver:
    """Copies whole structures as NVIDIA's does, and counts memory; each field is a change."""

    abi: Any = field(default_factory=lambda: Abi("620.6.0").raw)
    escape_size: dict[int, int] = field(default_factory=dict)
    command_size: dict[int, int | None] = field(default_factory=dict)
    class_size: dict[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    size_at: int = 64
    status_moved: bool = False
    info_size: int = 0
    foreign: list[int] = field(default_factory=list)
    """What others allocate at each look at what is free."""
    free: int = 1000 * MIB
    wiping: int = 0
    """Looks until what was freed is free."""
    objects: dict[int, list[int]] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    calls: int = 0

    def ask(self, verify: Any) -> int:
        self.calls += 1
        if verify.device == lib.CGPU_DEVICE_UVM:
            return self.uvm(verify)
        sizes = {lib.NV_ESC_RM_ALLOC: 48, **self.escape_size}
        known = sizes.get(
            verify.nr, lib.cgpu_struct_bytes(self.abi, lib.CGPU_DEVICE_CTL, verify.nr)
        )
        if verify.args_bytes != known:
            return -errno.EINVAL
        place, status = self.rm(verify)
        u32(verify.args, place - 4 * self.status_moved, status)
        return 0

    def uvm(self, verify: Any) -> int:
        ours = lib.cgpu_struct_bytes(self.abi, lib.CGPU_DEVICE_UVM, verify.nr)
        size = self.command_size.get(verify.nr, ours)
        if size is None:
            return -errno.EINVAL
        if size > verify.args_bytes:
            return -errno.EFAULT
        request = ffi.new("struct cgpu_request *")
        lib.cgpu_decode(self.abi, verify.device, verify.nr, verify.args, ours, request)
        if request.status_offset != lib.CGPU_NO_OFFSET:
            u32(verify.args, request.status_offset - 4 * self.status_moved, ILLEGAL)
        return 0

    def rm(self, verify: Any) -> tuple[int, int]:
        """Where its status is, and the status."""
        if verify.nr == lib.NV_ESC_RM_ALLOC:
            return 40, self.alloc(verify, u32(verify.args, 12))
        request = ffi.new("struct cgpu_request *")
        lib.cgpu_decode(self.abi, verify.device, verify.nr, verify.args, verify.args_bytes, request)
        place = request.status_offset
        if not u32(verify.args, 0):
            return place, CLIENT
        if verify.nr == lib.NV_ESC_RM_CONTROL:
            return place, self.info(verify)
        if verify.nr == lib.NV_ESC_RM_DUP_OBJECT:
            self.objects[u32(verify.args, 8)] = self.objects[u32(verify.args, 16)]
        if verify.nr == lib.NV_ESC_RM_FREE:
            self.drop(u32(verify.args, 8))
        if verify.nr == lib.NV_ESC_RM_VID_HEAP_CONTROL:
            if u32(verify.args, 8) == lib.NVOS32_FUNCTION_ALLOC_SIZE:
                u32(verify.args, 44, 0xCAFE)
                self.take(0xCAFE, int(lib.cgpu_get64(verify.args, 88)))
            elif u32(verify.args, 48) == lib.NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED:
                self.drop(u32(verify.args, 44))
            else:
                return place, 0x1F
        return place, 0

    def take(self, handle: int, size: int) -> None:
        self.objects[handle] = [size]
        self.free -= size

    def drop(self, handle: int) -> None:
        gone = {handle: self.objects.pop(handle)} if handle in self.objects else {}
        if handle == 0xC0FFEE:
            gone, self.objects = {**gone, **self.objects}, {}
        for memory in {id(memory): memory for memory in gone.values()}.values():
            if not any(memory is other for other in self.objects.values()):
                self.freed += memory

    def alloc(self, verify: Any, number: int) -> int:
        rule = lib.cgpu_class_rule(number)
        if number in self.gone:
            return CLASS
        size = self.class_size.get(number, lib.cgpu_class_bytes(self.abi, rule))
        if number != lib.NV01_ROOT_CLIENT:
            if not verify.params_ptr_offset:
                return 0x1F
            if size > verify.params_bytes:
                return ADDRESS
        if number == lib.NV01_ROOT_CLIENT:
            u32(verify.args, 8, 0xC0FFEE)
        elif not u32(verify.args, 0):
            return CLIENT
        elif number == lib.NV01_MEMORY_LOCAL_USER:
            taken = int(lib.cgpu_get64(verify.params, self.size_at))
            if not taken:
                return 0x1F
            self.take(u32(verify.args, 8), taken)
        return 0

    def info(self, verify: Any) -> int:
        if verify.params_bytes != (self.info_size or self.abi.fb_get_info_v2_size):
            return 0x1F
        self.wiping = max(self.wiping - 1, 0)
        if not self.wiping:
            self.free += sum(self.freed)
            self.freed.clear()
        self.free -= self.foreign.pop(0) if self.foreign else 0
        for index, size in enumerate((2000 * MIB, 1900 * MIB, self.free)):
            u32(verify.params, 8 + 8 * index, size >> 10)
        return 0


def run(driver: Driver) -> Any:
    verify = ffi.new("struct cgpu_verify *")
    abi = Abi("700.10", newest=True).raw
    lib.cgpu_verify_begin(verify, abi, 0)
    while lib.cgpu_verify_next(verify):
        lib.cgpu_verify_answer(verify, driver.ask(verify))
        assert driver.calls < 5000
    return verify


def verdict(driver: Driver) -> tuple[str, int, str] | None:
    verify = run(driver)
    if verify.what == ffi.NULL:
        return None
    return ffi.string(verify.what).decode(), verify.number, ffi.string(verify.why).decode()


def test_a_driver_of_the_newest_layouts_passes_and_is_left_as_it_was() -> None:
    driver = Driver()
    verify = run(driver)
    assert verify.what == ffi.NULL
    assert verify.checks > 80
    assert (driver.objects, driver.free + sum(driver.freed)) == ({}, 1000 * MIB)


@pytest.mark.parametrize("more", [-8, -4, 4, 8])
@pytest.mark.parametrize("number", [0x3E, 0x40, 0x50A0, 0x90F1, 0xA06C, 0x9067, 0x80, 0xC46F])
def test_parameters_of_another_size_are_found_by_the_edge(number: int, more: int) -> None:
    ours = lib.cgpu_class_bytes(Driver().abi, lib.cgpu_class_rule(number))
    longer = "longer" if more > 0 else "shorter"
    assert verdict(Driver(class_size={number: ours + more})) == (
        "class", number, f"its parameters are {longer}",
    )  # fmt: skip


COMMANDS = [
    number for number in range(lib.CGPU_UVM_COMMANDS)
    if lib.cgpu_struct_bytes(Driver().abi, lib.CGPU_DEVICE_UVM, number)
]  # fmt: skip


@pytest.mark.parametrize("number", COMMANDS)
def test_a_command_of_uvm_of_another_size_is_found_and_one_that_is_gone_does_no_harm(
    number: int,
) -> None:
    ours = lib.cgpu_struct_bytes(Driver().abi, lib.CGPU_DEVICE_UVM, number)
    for size, why in ((ours + 8, "longer"), (ours - 8, "shorter")):
        found = verdict(Driver(command_size={number: size}))
        assert found == ("UVM command", number, f"its structure is {why}")
    assert verdict(Driver(command_size={number: None})) is None


def test_every_command_that_the_core_reads_is_checked_but_the_first_of_a_file() -> None:
    judged = {
        number for number in range(lib.CGPU_UVM_COMMANDS)
        if lib.cgpu_uvm_judge(number) == lib.CGPU_JUDGE_CORE
    }  # fmt: skip
    groups = {lib.UVM_CREATE_RANGE_GROUP, lib.UVM_DESTROY_RANGE_GROUP}
    assert judged - groups == set(COMMANDS)


def test_an_escape_of_another_size_is_found() -> None:
    assert verdict(Driver(escape_size={lib.NV_ESC_RM_DUP_OBJECT: 40})) == (
        "escape", lib.NV_ESC_RM_DUP_OBJECT, "its structure has another size",
    )  # fmt: skip


def test_a_status_in_another_place_is_found() -> None:
    assert verdict(Driver(status_moved=True)) == (
        "escape", lib.NV_ESC_RM_FREE, "its status is in another place",
    )  # fmt: skip


def test_a_size_that_moved_within_its_structure_is_found() -> None:
    assert verdict(Driver(size_at=72)) == (
        "class", 0x40, "the driver does not allocate by our layout",
    )  # fmt: skip


def test_the_control_that_tells_sizes_is_found_to_have_another_size() -> None:
    assert verdict(Driver(info_size=1036)) == (
        "control", 0x20801303, "its parameters have another size",
    )  # fmt: skip


def test_classes_may_be_gone_but_not_all_channels() -> None:
    channels = frozenset(
        rule.number for index in range(400)
        if (rule := lib.cgpu_class_at(index)) != ffi.NULL and lib.cgpu_is_channel_class(rule.number)
    )  # fmt: skip
    assert verdict(Driver(gone=channels - {0xC46F})) is None
    found = verdict(Driver(gone=channels))
    assert found is not None and found[0] == "class" and "no channel" in found[2]
    assert verdict(Driver(gone=frozenset({0x9067}))) is None


def test_memory_of_others_at_the_same_time_has_it_counted_again() -> None:
    assert verdict(Driver(foreign=[0, 100 * MIB])) is None
    never = Driver(foreign=[0, 100 * MIB] * 3, free=1900 * MIB)
    verify = run(never)
    assert ffi.string(verify.what) == b"memory" and verify.passing
    assert not never.objects


def test_memory_that_is_wiped_before_it_is_free_is_waited_for() -> None:
    assert verdict(Driver(wiping=40)) is None
    stuck = run(Driver(wiping=10**6))
    assert ffi.string(stuck.what) == b"memory" and stuck.passing


def test_a_check_that_fails_frees_its_client() -> None:
    driver = Driver(info_size=4)
    assert verdict(driver) is not None
    assert driver.objects == {}
