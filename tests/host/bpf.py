# SPDX-License-Identifier: MIT
"""What the kernel answers a system call under a seccomp filter, and an OCI profile as a filter."""

from __future__ import annotations

import ctypes
import operator
import struct
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

ALLOW, NOTIFY, ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
#: AUDIT_ARCH of a call's entry
X86_64, I386, AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7

_ARCHITECTURES = {
    "SCMP_ARCH_X86_64": X86_64,
    "SCMP_ARCH_X86": I386,
    "SCMP_ARCH_X32": 0x4000003E,
    "SCMP_ARCH_AARCH64": AARCH64,
}
_SCMP_CMP_MASKED_EQ = 7
_EEXIST = -17

_JUMPS: dict[int, Callable[[int, int], object]] = {
    0x15: operator.eq,
    0x25: operator.gt,
    0x35: operator.ge,
    0x45: operator.and_,
}


def run(program: bytes, nr: int, arguments: tuple[int, ...] = (), arch: int = X86_64) -> int:
    """By the classic BPF machine of linux/filter.h, as far as used."""
    args = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", nr, arch, 0, *args)
    code = list(struct.iter_unpack("<HBBI", program))
    at = value = 0
    while True:
        op, yes, no, k = code[at]
        at += 1
        if op == 0x20:
            value = struct.unpack_from("<I", data, k)[0]
        elif op == 0x54:
            value &= k
        elif op == 0x05:
            at += k
        elif op in _JUMPS:
            at += yes if _JUMPS[op](value, k) else no
        elif op == 0x06:
            return int(k)
        else:
            raise AssertionError(f"instruction {op:#x} is not of a filter")


class _Test(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def _action(entry: dict[str, Any], name: str = "action", number: str = "errnoRet") -> int:
    kinds = {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_NOTIFY": NOTIFY}
    return kinds[entry[name]] if entry[name] in kinds else ERRNO | int(entry.get(number, 1))


def of_profile(profile: dict[str, Any]) -> bytes:
    """Return the filter that runc and crun make of ``linux.seccomp``, by libseccomp as they do."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("no package: libseccomp2")
    library.seccomp_init.restype = ctypes.c_void_p
    default = _action(profile, "defaultAction", "defaultErrnoRet")
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(default)))
    for name in profile.get("architectures", []):
        added = library.seccomp_arch_add(context, ctypes.c_uint32(_ARCHITECTURES[name]))
        assert added in (0, _EEXIST), name
    for entry in profile["syscalls"]:
        action = _action(entry)
        if action == default:
            continue
        tests = entry.get("args", [])
        assert {test["op"] for test in tests} <= {"SCMP_CMP_MASKED_EQ"}
        list_of = (_Test * max(1, len(tests)))(
            *(_Test(t["index"], _SCMP_CMP_MASKED_EQ, t["value"], t["valueTwo"]) for t in tests)
        )
        for name in entry["names"]:
            nr = library.seccomp_syscall_resolve_name(name.encode())
            added = library.seccomp_rule_add_array(
                context, ctypes.c_uint32(action), nr, len(tests), list_of
            )
            assert not added, (name, entry, added)
    with tempfile.TemporaryFile() as file:
        assert not library.seccomp_export_bpf(context, file.fileno())
        library.seccomp_release(context)
        file.seek(0)
        return file.read()
