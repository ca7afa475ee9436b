# SPDX-License-Identifier: MIT
"""
Calls NVIDIA's checkpoint in a process with the host's libcuda and only the rights it needs.

``python -m pycgpu.parking.checkpoint_helper`` answers each line with a line: ``OPERATION PID`` with
CUDA's status, and ``state PID`` with the status and the state. It ends when its input ends.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

#: CUDA's statuses.
NOT_INITIALIZED, NOT_READY = 3, 600
#: The capabilities that libcuda needs to reach another user's process. With CAP_SYS_PTRACE alone,
#: every call fails with status 304 (H200, 580.159.04). They are CAP_DAC_OVERRIDE,
#: CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE.
CAPABILITIES = (1, 2, 19)
NOBODY = 65534
#: How long a lock waits for the process's work on the card.
LOCK_TIMEOUT_MS = 10_000
#: The 64-bit words of each call's arguments; some driver looks at that many.
_ARGUMENT_WORDS = 16
_CALLS = {
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 8, 38
_SYS_CAPSET, _CAPABILITY_VERSION_3 = 126, 0x20080522


def drop(libc: ctypes.CDLL) -> None:
    """Keep no right of root but CAPABILITIES. OSError: the kernel refuses."""

    def check(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    bits = sum(1 << one for one in CAPABILITIES)
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("<6I", bits, bits, 0, 0, 0, 0)
    check(libc.syscall(_SYS_CAPSET, header, sets))
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def call(library: ctypes.CDLL, operation: str, pid: int) -> str:
    """Return the answer to one line."""
    if operation == "state":
        state = ctypes.c_int(-1)
        status = library.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(state))
        return f"{status} {state.value}"
    arguments = (ctypes.c_uint32 * (2 * _ARGUMENT_WORDS))()
    if operation == "lock":
        arguments[0] = LOCK_TIMEOUT_MS
    function = getattr(library, _CALLS[operation])
    return str(function(ctypes.c_int(pid), ctypes.byref(arguments)))


def main() -> None:
    """Answer until the other side closes."""
    try:
        drop(ctypes.CDLL(None, use_errno=True))
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"error {error}", flush=True)
        return
    missing = [name for name in _CALLS.values() if not hasattr(library, name)]
    if missing:
        print(f"error libcuda has no {missing[0]}, which drivers have from 570 on", flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        operation, pid = line.split()
        print(call(library, operation, int(pid)), flush=True)


if __name__ == "__main__":
    main()
