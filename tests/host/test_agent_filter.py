# SPDX-License-Identifier: MIT
"""The filter of the user door lets through what is none of its business, and nothing else."""

from __future__ import annotations

import errno
import platform
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.agent import filter
from pycgpu.core import lib

from . import bpf
from .bpf import ALLOW, ERRNO, I386, NOTIFY

ENOSYS, EBUSY = ERRNO | errno.ENOSYS, ERRNO | errno.EBUSY
NEW_LISTENER = 8
ARCH, IOCTL, MMAP, SECCOMP, X32 = filter._MACHINES[platform.machine()]
MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE, MAP_FIXED, MAP_ANONYMOUS = 1, 2, 3, 0x10, 0x20
#: RM_SHARE, RM_UNMAP_MEMORY, RM_BIND_CONTEXT_DMA, RM_UPDATE_DEVICE_MAPPING_INFO: the driver takes
#: the caller's own clients alone (docs/agent.md), and its answer changes no account.
PASSED = (53, 79, 89, 94)
OTHERS = st.integers(0, 0x3FFF).filter(lambda nr: nr not in (IOCTL, MMAP, SECCOMP))


def run(nr: int, arguments: tuple[int, ...] = (), arch: int = ARCH) -> int:
    return bpf.run(filter.program(), nr, arguments, arch)


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


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_another_listener_is_refused_whatever_else_the_flags_say(operation: int, rest: int) -> None:
    assert run(SECCOMP, (operation, rest | NEW_LISTENER)) == EBUSY


@given(st.integers(0, (1 << 64) - 1))
def test_a_filter_without_a_listener_is_a_programs_own_affair(rest: int) -> None:
    assert run(SECCOMP, (1, rest & ~NEW_LISTENER)) == ALLOW


def test_who_is_under_the_filter_gets_no_listener_though_the_first_is_closed() -> None:
    """By the kernel; it refuses a second one only as long as the first is open."""
    program = """
import ctypes, os
from pycgpu.agent import filter
os.close(filter.install())
try:
    filter.install()
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{errno.EBUSY}\n"


def test_the_oci_rules_name_the_same_calls() -> None:
    fragment = filter.oci_fragment("/run/cgpu/seccomp.sock", "here")
    notified = [rule for rule in fragment["syscalls"] if rule["action"] == "SCMP_ACT_NOTIFY"]
    values = [rule["args"][0]["valueTwo"] for rule in notified]
    upper = [rule["names"] for rule in notified if rule["args"][0]["value"] > 0xFFFFFFFF]
    assert values[:-1] == [*filter.RM_NUMBERS, *filter.UVM_COMMANDS, MAP_SHARED]
    assert upper == [["mmap"]]
    assert [rule for rule in fragment["syscalls"] if rule not in notified] == [
        {
            "names": ["seccomp"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": errno.EBUSY,
            "args": [
                {
                    "index": 1,
                    "value": NEW_LISTENER,
                    "valueTwo": NEW_LISTENER,
                    "op": "SCMP_CMP_MASKED_EQ",
                }
            ],
        }
    ]
    assert fragment["listenerPath"] == "/run/cgpu/seccomp.sock"
