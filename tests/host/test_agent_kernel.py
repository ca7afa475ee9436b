# SPDX-License-Identifier: MIT
"""On a kernel that lacks what its limits rest on the agent does not begin."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: asm/unistd_64.h, asm-generic/unistd.h
NUMBERS = {
    "x86_64": {"kcmp": 312, "process_vm_readv": 310, "pidfd_getfd": 438},
    "aarch64": {"kcmp": 272, "process_vm_readv": 270, "pidfd_getfd": 438},
}[platform.machine()]
#: to a process under this filter one system call is not there
PROGRAM = """
import ctypes, errno, struct, sys
code = b"".join(
    struct.pack("<HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, 0),  # the call's number
        (0x15, 0, 1, int(sys.argv[1])),
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),
        (0x06, 0, 0, 0x7FFF0000),
    )
)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
from pycgpu.agent import door
from pycgpu.errors import CgpuError
try:
    door.start(door.Keeping("/nowhere/watchdog.sock"))
except CgpuError as error:
    print(error)
"""


def _told(number: int) -> str:
    command = [sys.executable, "-c", PROGRAM, str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("call", NUMBERS)
def test_the_agent_does_not_begin_on_a_kernel_without(call: str) -> None:
    """Without kcmp it did, and managed memory was not charged."""
    told = _told(NUMBERS[call])
    assert told.startswith(f"{call} does not work here: Function not implemented: ")
    assert "the agent needs a kernel with " in told


def test_a_kernel_that_has_them_is_not_complained_of() -> None:
    assert "does not work here" not in _told(1023)
