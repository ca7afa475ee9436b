# SPDX-License-Identifier: MIT
"""The agent's nodes at ``/run/cgpu_km``, by FUSE."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import subprocess
import threading
from typing import Any

from pycgpu.agent.nodes import Nodes

log = logging.getLogger("cgpud")

ROOT = "/run/cgpu_km"
_MNT_DETACH = 2
_MOUNT_S = 10
_END_S = 5


def unmount(root: str = ROOT) -> None:
    """Take away a mount that a dead agent left; nothing happens where there is none."""
    ctypes.CDLL(None).umount2(root.encode(), _MNT_DETACH)


def _module() -> Any | None:
    """The FUSE library; None: the host has no FUSE, and the reason is logged."""
    try:
        import mfusepy
    except (ImportError, OSError) as error:
        log.warning("no tree: %s; install pycgpu[agent] and libfuse3", error)
        return None
    if not os.path.exists("/dev/fuse"):
        with contextlib.suppress(OSError):
            subprocess.run(["modprobe", "fuse"], capture_output=True, check=False)
    if not os.path.exists("/dev/fuse"):
        log.warning("no tree: the kernel has no /dev/fuse")
        return None
    return mfusepy


class Mount:
    """
    The tree, mounted and served by threads of its own.

    libfuse's loop ends when the mount goes, not by a signal. Its own handlers lose a signal that
    comes before the loop waits, and report an end by SIGTERM as a failure.
    """

    def __init__(self, root: str = ROOT) -> None:
        self._root = root
        self._came = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Mount. False: the host has no FUSE, or it refuses; the reason is logged."""
        fuse = _module()
        if fuse is None:
            return False
        unmount(self._root)
        os.makedirs(self._root, exist_ok=True)
        self._thread = threading.Thread(target=self._serve, args=(fuse,), daemon=True)
        self._thread.start()
        return self._came.wait(_MOUNT_S) and self._thread.is_alive()

    def stop(self) -> None:
        """Unmount, and wait a while for readers."""
        if self._thread is not None:
            unmount(self._root)
            # A process that holds a file open keeps the loop; the end of this process ends it then.
            self._thread.join(_END_S)

    def _serve(self, fuse: Any) -> None:
        try:
            fuse.FUSE(
                _operations(fuse, self._came),
                self._root,
                foreground=True,
                direct_io=True,
                allow_other=True,
                default_permissions=True,
                # otherwise a name stays for a second after its container has gone
                entry_timeout=0,
                fsname="cgpu",
            )
        except RuntimeError as error:
            log.warning("no tree at %s: mounting failed (%s)", self._root, error)
        finally:
            self._came.set()


def _operations(fuse: Any, came: threading.Event) -> Any:
    """The operations that libfuse calls; *came* is set once the kernel has greeted."""
    tree = Nodes()

    def call(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OSError as error:
            raise fuse.FuseOSError(error.errno) from None

    class Operations(fuse.Operations):  # type: ignore[misc]  # the library has no types
        def init(self, path: str) -> None:
            came.set()

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            attributes: dict[str, int] = call(tree.attributes, path)
            return attributes

        def readdir(self, path: str, fh: int) -> Any:
            return [".", "..", *call(tree.names, path)]

        def open(self, path: str, flags: int) -> int:
            return int(call(tree.open, path))

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            # as in /proc: a shell's `echo >` creates what is not there
            raise fuse.FuseOSError(errno.ENOENT)

        def release(self, path: str, fh: int) -> int:
            tree.release(fh)
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return bytes(call(tree.read, path, size, offset, fh))

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return int(call(tree.write, path, data))

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            return 0

    return Operations()
