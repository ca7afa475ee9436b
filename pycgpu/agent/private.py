# SPDX-License-Identifier: MIT
"""Hides those of the host's files that a process does not need."""

from __future__ import annotations

import ctypes
import os

from pycgpu.errors import LaunchError

#: Directories of users and of services. Programs and libraries lie elsewhere.
HIDDEN = ("/home", "/root", "/srv", "/mnt", "/media", "/tmp", "/var", "/run")
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. OSError: the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def hide(keep: str, used: str) -> None:
    """
    Give this process empty directories in place of HIDDEN, for itself and its children.

    Args:
        keep: a directory that stays where it is, with its content.
        used: a path whose directory is not hidden.

    Raises:
        LaunchError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result:
            raise LaunchError(f"{what}: {os.strerror(ctypes.get_errno())}")

    check(libc.unshare(_CLONE_NEWNS), "a mount namespace")
    check(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "/")
    # The descriptor must be of this namespace: the kernel binds nothing from another.
    kept = os.open(keep, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in HIDDEN:
        if not os.path.isdir(path) or os.path.islink(path) or used.startswith(f"{path}/"):
            continue
        flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        check(libc.mount(b"none", path.encode(), b"tmpfs", flags, b"mode=755,size=1m"), path)
    os.makedirs(keep, exist_ok=True)
    source = f"/proc/self/fd/{kept}".encode()
    check(libc.mount(source, keep.encode(), None, _MS_BIND, None), keep)
    os.close(kept)


def bind(source: str, target: str) -> None:
    """
    Show *source* at *target*, in the namespace that :func:`hide` made.

    Raises:
        LaunchError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), None, _MS_BIND, None):
        raise LaunchError(f"{target}: {os.strerror(ctypes.get_errno())}")
