# SPDX-License-Identifier: MIT
"""
The check of a driver's layouts (``kmod/core/rm/verify.c``), carried out beside any driver.

``python3 -m tests.vm.layouts`` as root, on a host without our module and without an agent, prints
what the driver that is loaded answers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from pycgpu.core import Abi, ffi, lib

PAGE = 4096
PROT_NONE, PROT_READ_WRITE, PRIVATE_ANONYMOUS = 0, 3, 0x22
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
_libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _end_of_memory(size: int) -> int:
    """Return an address before which *size* bytes may be used, and behind which none."""
    at = _libc.mmap(None, size + PAGE, PROT_READ_WRITE, PRIVATE_ANONYMOUS, -1, 0)
    assert not _libc.mprotect(at + size, PAGE, PROT_NONE)
    return int(at) + size


def verify(abi: Abi) -> Any:
    """Return the check's ``struct cgpu_verify``, at its end."""
    args_end = _end_of_memory(lib.CGPU_VERIFY_ARGS_MAX)
    params_end = _end_of_memory(lib.CGPU_PARAMS_MAX)
    control = os.open("/dev/nvidiactl", os.O_RDWR)
    uvm = os.open("/dev/nvidia-uvm", os.O_RDWR)
    found = ffi.new("struct cgpu_verify *")
    lib.cgpu_verify_begin(found, abi.raw, 0)
    blocks = [int(ffi.cast("uintptr_t", block)) for block in (found.args, found.params)]
    while lib.cgpu_verify_next(found):
        time.sleep(found.wait_ms / 1000)
        sizes = (found.args_bytes, found.params_bytes)
        places = (args_end - sizes[0], params_end - sizes[1])
        if found.params_ptr_offset:
            lib.cgpu_put64(found.args, found.params_ptr_offset, places[1])
        for place, block, size in zip(places, blocks, sizes, strict=True):
            _libc.memmove(place, block, size)
        of_uvm = found.device == lib.CGPU_DEVICE_UVM
        command = found.nr if of_uvm else 3 << 30 | sizes[0] << 16 | ord("F") << 8 | found.nr
        failed = _libc.ioctl(uvm if of_uvm else control, command, places[0])
        error = ctypes.get_errno() if failed else 0
        for place, block, size in zip(places, blocks, sizes, strict=True):
            _libc.memmove(block, place, size)
        lib.cgpu_verify_answer(found, -error)
    os.close(control)
    os.close(uvm)
    return found


def told(found: Any) -> str:
    if found.what == ffi.NULL:
        return f"passed {found.checks}"
    what, why = (ffi.string(text).decode() for text in (found.what, found.why))
    return f"failed {what} {found.number:#x}: {why} (after {found.checks})"


def main() -> int:
    line = Path("/proc/driver/nvidia/version").read_text()
    version = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", line)
    assert version, line
    try:
        card = os.open("/dev/nvidia0", os.O_RDWR)
    except OSError as error:
        print(f"/dev/nvidia0: {errno.errorcode[error.errno or 0]}")
        return 1
    found = verify(Abi(version[0], newest=True))
    os.close(card)
    print(f"driver {version[0]}: {told(found)}")
    return int(found.what != ffi.NULL)


if __name__ == "__main__":
    sys.exit(main())
