# SPDX-License-Identifier: MIT
"""
The seccomp filter of a tenant, as BPF instructions and as a rule set for OCI runtimes.

The filter notifies every ioctl whose number is one that the core interprets, or that a driver
serves and no list names. The number is ``_IOC_NR``, the low byte: the driver looks at nothing else.
It notifies UVM's commands, except those that act only on their own file, and shared file mappings.
Entries of another instruction set fail with ENOSYS.

Numbers: nv_escape.h, nv-ioctl-numbers.h, uvm_ioctl.h of NVIDIA's open kernel modules;
linux/seccomp.h, linux/filter.h, linux/audit.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: _IOC_NR of the RM escapes that are notified.
RM_NUMBERS = (
    39,  # RM_ALLOC_MEMORY
    40,  # RM_ALLOC_OBJECT
    41,  # RM_FREE
    42,  # RM_CONTROL
    43,  # RM_ALLOC
    52,  # RM_DUP_OBJECT
    53,  # RM_SHARE
    74,  # RM_VID_HEAP_CONTROL
    78,  # RM_MAP_MEMORY
    84,  # RM_ALLOC_CONTEXT_DMA2
    87,  # RM_MAP_MEMORY_DMA
    88,  # RM_UNMAP_MEMORY_DMA
    201,  # REGISTER_FD
    206,  # ALLOC_OS_EVENT
    207,  # FREE_OS_EVENT
    211,  # IOCTL_XFER_CMD
    217,  # EXPORT_TO_DMABUF_FD
    # Escapes below are on no list (kmod/core/rm/allowed.c), so they are refused: configuration,
    # I2C, idle channels, registry, events' data, vertical blanks, objects as descriptors, logs,
    # interrupts, NUMA.
    *(50, 51, 55, 56, 57, 65, 77, 82, 86, 92, 93, 95, 213, 216),
)
#: UVM commands that pass, because they act on the address space of their own file: what is in a
#: group, peers, policies, migration, queries, and UVM_DISCARD.
UVM_PASSED = (*(29, 30, 31), *range(39, 48), 51, 53, 70, 72, 75, 80)
#: Whole numbers below this are UVM's. No other ioctl has such a number, except FIBMAP (1) and
#: FIGETBSZ (2), which no driver serves.
UVM_END = 128
#: UVM commands that are notified: whole numbers. Those that no list names are refused: tests, MPS,
#: tools, zombies, pageable memory, counters, and commands of later drivers.
UVM_COMMANDS = (
    0x30000001,  # UVM_INITIALIZE
    0x30000002,  # UVM_DEINITIALIZE
    *(command for command in range(3, UVM_END) if command not in UVM_PASSED),
)
_MAP_SHARED = 1
_MAP_ANONYMOUS = 0x20
#: The i386 entry 90, also called mmap, has its arguments behind a pointer, where no filter looks.
#: For a 32-bit entry libseccomp compares no upper half, so a rule on one argument holds for every
#: such call. No call of the native entry has this number as its descriptor.
_FD_INDEX, _UPPER_HALF, _NO_FD = 4, 0xFFFFFFFF << 32, 0x5A5A5A5A << 32

# machine: (AUDIT_ARCH, ioctl, mmap, seccomp, bit of the x32 entries or 0)
_MACHINES = {
    "x86_64": (0xC000003E, 16, 9, 317, 0x40000000),
    "aarch64": (0xC00000B7, 29, 222, 277, 0),
}

_LD_W_ABS, _ALU_AND_K = 0x20, 0x54
_JEQ_K, _JSET_K, _JGE_K, _JA, _RET_K = 0x15, 0x45, 0x35, 0x05, 0x06
_RET_ALLOW, _RET_USER_NOTIF, _RET_ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
# struct seccomp_data {int nr; u32 arch; u64 instruction_pointer; u64 args[6]}, little-endian
_NR, _ARCH = 0, 4

_SET_MODE_FILTER = 1
_FLAG_TSYNC = 1 << 0
_FLAG_NEW_LISTENER = 1 << 3
_FLAG_TSYNC_ESRCH = 1 << 4
_FLAG_WAIT_KILLABLE_RECV = 1 << 5
_PR_SET_NO_NEW_PRIVS = 38


def _arg(index: int) -> int:
    """Offset of the low half of a system call's argument."""
    return 16 + 8 * index


class _Program:
    """Instructions with labels; a jump goes forward only, as BPF demands."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, str | None, str | None]] = []
        self.labels: dict[str, int] = {}

    def add(self, op: int, k: int, yes: str | None = None, no: str | None = None) -> None:
        self.code.append((op, k, yes, no))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.code)

    def assemble(self) -> bytes:
        out = b""
        for at, (op, k, yes, no) in enumerate(self.code):
            jumps = [self.labels[name] - at - 1 if name else 0 for name in (yes, no)]
            if op == _JA:
                out += struct.pack("<HBBI", op, 0, 0, jumps[0])
                continue
            if any(not 0 <= jump < 256 for jump in jumps):
                raise ValueError(f"instruction {at}: a jump of {jumps} is out of reach")
            out += struct.pack("<HBBI", op, *jumps, k)
        return out


def _machine() -> tuple[int, int, int, int, int]:
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system call numbers for {machine}")
    return _MACHINES[machine]


def program() -> bytes:
    """Return the filter: 8 bytes an instruction (``struct sock_filter``)."""
    arch, ioctl, mmap, seccomp, x32 = _machine()
    p = _Program()
    p.add(_LD_W_ABS, _ARCH)
    p.add(_JEQ_K, arch, None, "closed")
    p.add(_LD_W_ABS, _NR)
    if x32:
        p.add(_JGE_K, x32, "closed")
    p.add(_JEQ_K, seccomp, "seccomp")
    p.add(_JEQ_K, ioctl, "ioctl")
    p.add(_JEQ_K, mmap, "mmap", "allow")

    # The kernel looks only at the low half of the flags, and prctl() has none.
    p.label("seccomp")
    p.add(_LD_W_ABS, _arg(1))
    p.add(_JSET_K, _FLAG_NEW_LISTENER, "second", "allow")

    p.label("mmap")
    p.add(_LD_W_ABS, _arg(3))
    p.add(_JSET_K, _MAP_ANONYMOUS, "allow")
    p.add(_JSET_K, _MAP_SHARED, "notify", "allow")

    p.label("ioctl")
    p.add(_LD_W_ABS, _arg(1))
    for command in UVM_COMMANDS:
        p.add(_JEQ_K, command, "notify")
    p.add(_ALU_AND_K, 0xFF)
    for number in RM_NUMBERS:
        p.add(_JEQ_K, number, "notify")
    p.label("allow")
    p.add(_RET_K, _RET_ALLOW)
    p.label("notify")
    p.add(_RET_K, _RET_USER_NOTIF)
    p.label("second")
    p.add(_RET_K, _RET_ERRNO | errno.EBUSY)
    p.label("closed")
    p.add(_RET_K, _RET_ERRNO | errno.ENOSYS)
    return p.assemble()


class _Prog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(all_threads: bool = False) -> int:
    """
    Put this thread and all its children under the filter; return the listener's descriptor.

    With *all_threads* it covers every thread of the process (Linux 5.7).

    OSError: the kernel has no seccomp user notification, or the caller may not install a filter.
    """
    code = program()
    held = ctypes.create_string_buffer(code, len(code))
    prog = _Prog(len(code) // 8, ctypes.cast(held, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp = _machine()[3]
    # A privileged caller needs no no_new_privs, and its programs keep their set-uid bits.
    for privileged in (True, False):
        if not privileged and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        # Without WAIT_KILLABLE_RECV (before Linux 5.19) a signal can interrupt a call that the
        # agent has already performed.
        wanted = _FLAG_NEW_LISTENER | (_FLAG_TSYNC | _FLAG_TSYNC_ESRCH if all_threads else 0)
        for flags in (wanted | _FLAG_WAIT_KILLABLE_RECV, wanted):
            fd: int = libc.syscall(seccomp, _SET_MODE_FILTER, flags, ctypes.byref(prog))
            if fd >= 0:
                os.set_inheritable(fd, False)
                return fd
            error = ctypes.get_errno()
            if error != errno.EINVAL:
                break
        if error != errno.EACCES:
            break
    raise OSError(error, os.strerror(error))


def _rule(names: list[str], index: int, mask: int, value: int) -> dict[str, Any]:
    test = {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"names": names, "action": "SCMP_ACT_NOTIFY", "args": [test]}


def oci_fragment(listener_path: str, metadata: str = "") -> dict[str, Any]:
    """
    Return ``linux.seccomp`` keys that give an OCI container the user door.

    The runtime (runc 1.1, crun 1.0 and newer) connects to *listener_path* and passes the listener.
    """
    rules = [_rule(["ioctl"], 1, 0xFF, number) for number in RM_NUMBERS]
    rules += [_rule(["ioctl"], 1, 0xFFFFFFFF, command) for command in UVM_COMMANDS]
    # mmap2 is the i386 entry's; the agent refuses calls by any entry but the native one.
    rules.append(_rule(["mmap", "mmap2"], 3, _MAP_SHARED | _MAP_ANONYMOUS, _MAP_SHARED))
    rules.append(_rule(["mmap"], _FD_INDEX, _UPPER_HALF, _NO_FD))
    another = _rule(["seccomp"], 1, _FLAG_NEW_LISTENER, _FLAG_NEW_LISTENER)
    rules.append({**another, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EBUSY})
    native = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[os.uname().machine]
    return {
        "listenerPath": listener_path,
        "listenerMetadata": metadata,
        "architectures": [native],
        "syscalls": rules,
    }
