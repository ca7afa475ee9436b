# SPDX-License-Identifier: MIT
"""The filter of the user door lets through what is none of its business, and nothing else."""

from __future__ import annotations

import errno
import platform
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.agent import filter
from pycgpu.core import lib

ALLOW, NOTIFY, ENOSYS = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.ENOSYS
ARCH, IOCTL, MMAP, _, X32 = filter._MACHINES[platform.machine()]
I386 = 0x40000003
MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE, MAP_FIXED, MAP_ANONYMOUS = 1, 2, 3, 0x10, 0x20
#: RM_SHARE, RM_UNMAP_MEMORY, RM_BIND_CONTEXT_DMA, RM_UPDATE_DEVICE_MAPPING_INFO: the driver takes
#: the caller's own clients alone (docs/agent.md), and its answer changes no account.
PASSED = (53, 79, 89, 94)
OTHERS = st.integers(0, 0x3FFF).filter(lambda nr: nr not in (IOCTL, MMAP))


def run(nr: int, arguments: tuple[int, ...] = (), arch: int = ARCH) -> int:
    """What the kernel would answer: the classic BPF machine of linux/filter.h, as far as used."""
    args = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<iIQ6Q", struct.unpack("<i", struct.pack("<I", nr))[0], arch, 0, *args)
    code = list(struct.iter_unpack("<HBBI", filter.program()))
    at = value = 0
    while True:
        op, yes, no, k = code[at]
        at += 1
        if op == 0x20:
            value = struct.unpack_from("<I", data, k)[0]
        elif op == 0x54:
            value &= k
        elif op == 0x15:
            at += yes if value == k else no
        elif op == 0x35:
            at += yes if value >= k else no
        elif op == 0x45:
            at += yes if value & k else no
        elif op == 0x06:
            return int(k)
        else:
            raise AssertionError(f"instruction {op:#x} is not of the filter")


@given(st.sampled_from(filter.RM_NUMBERS), st.integers(0, (1 << 64) - 1))
def test_an_escape_is_notified_whatever_else_its_command_says(number: int, rest: int) -> None:
    assert run(IOCTL, (3, (rest & ~0xFF) | number)) == NOTIFY


@given(st.sampled_from(filter.UVM_COMMANDS), st.integers(0, (1 << 32) - 1))
def test_a_uvm_command_is_notified_whatever_its_upper_half_says(command: int, upper: int) -> None:
    assert run(IOCTL, (3, upper << 32 | command)) == NOTIFY


@given(st.integers(0, (1 << 32) - 1))
def test_any_other_ioctl_passes(command: int) -> None:
    watched = command & 0xFF in filter.RM_NUMBERS or command in filter.UVM_COMMANDS
    assert run(IOCTL, (3, command)) == (NOTIFY if watched else ALLOW)


@pytest.mark.parametrize("command", range(256))
def test_no_escape_that_a_driver_serves_and_no_list_names_passes(command: int) -> None:
    """Nor one that the core reads, but for those by which nothing is taken or shared unseen."""
    judged = lib.cgpu_escape_judge(command)
    served = lib.cgpu_escape_unlisted_size(command)
    if (judged == lib.CGPU_JUDGE_CORE and command not in PASSED) or served:
        assert run(IOCTL, (3, command)) == NOTIFY
    assert not (judged != lib.CGPU_JUDGE_NONE and served)


@pytest.mark.parametrize("command", range(3, filter.UVM_END))
def test_of_uvm_only_what_acts_on_its_own_file_passes(command: int) -> None:
    """Unless its number has the low byte of an escape."""
    own = lib.cgpu_uvm_judge(command) == lib.CGPU_JUDGE_DRIVER
    passes = own and command not in filter.RM_NUMBERS
    assert run(IOCTL, (3, command)) == (ALLOW if passes else NOTIFY)


@pytest.mark.parametrize("flags", [MAP_SHARED, MAP_SHARED_VALIDATE, MAP_SHARED | MAP_FIXED])
def test_a_shared_file_mapping_is_notified(flags: int) -> None:
    assert run(MMAP, (0, 4096, 3, flags, 5, 0)) == NOTIFY


@pytest.mark.parametrize(
    "flags", [MAP_PRIVATE, MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS]
)
def test_private_and_anonymous_mappings_pass(flags: int) -> None:
    assert run(MMAP, (0, 4096, 3, flags, 5, 0)) == ALLOW


@given(OTHERS)
def test_every_other_call_passes(nr: int) -> None:
    assert run(nr, (3, filter.RM_NUMBERS[0], 1, 1)) == ALLOW


@given(st.integers(0, 0x3FFF))
def test_entries_of_another_instruction_set_are_closed(nr: int) -> None:
    assert run(nr, arch=I386) == ENOSYS


@pytest.mark.skipif(not X32, reason="no x32 entries on this machine")
@given(st.integers(0, 0x3FFF))
def test_x32_entries_are_closed(nr: int) -> None:
    assert run(X32 | nr) == ENOSYS


def test_the_oci_rules_name_the_same_calls() -> None:
    fragment = filter.oci_fragment("/run/cgpu/seccomp.sock", "here")
    values = [rule["args"][0]["valueTwo"] for rule in fragment["syscalls"]]
    assert values == [*filter.RM_NUMBERS, *filter.UVM_COMMANDS, MAP_SHARED]
    assert {rule["action"] for rule in fragment["syscalls"]} == {"SCMP_ACT_NOTIFY"}
    assert fragment["listenerPath"] == "/run/cgpu/seccomp.sock"


def test_the_entry_of_another_instruction_set_is_notified_too() -> None:
    """An OCI profile lets the i386 calls in, of which mmap2 maps the same files."""
    mapped = [
        rule["names"]
        for rule in filter.oci_fragment("/run/x")["syscalls"]
        if rule["args"][0]["index"] == 3
    ]
    assert mapped == [["mmap", "mmap2"]]
