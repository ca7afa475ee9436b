# SPDX-License-Identifier: MIT
"""
The process that calls NVIDIA's checkpoint: with the host's libcuda, and no more rights than that.

``python -m pycgpu.parking.checkpoint_helper`` answers a line by a line: ``OPERATION PID`` by CUDA's
status, and ``state PID`` by that and the state. It ends when nobody is left to ask.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

#: CUDA's statuses.
NOT_INITIALIZED, NOT_READY = 3, 600
#: What libcuda needs to reach another user's process: with CAP_SYS_PTRACE alone, every call fails
#: by status 304 (H200, 580.159.04). CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE.
CAPABILITIES = (1, 2, 19)
NOBODY = 65534
#: A lock waits so long for the work that the card has of the process.
LOCK_TIMEOUT_MS = 10_000
#: Bytes of each call's arguments that are looked at by some driver.
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
    """Keep nothing of root but CAPABILITIES. OSError: the kernel refuses."""

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
