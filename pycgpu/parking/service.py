# SPDX-License-Identifier: MIT
"""
``cgpu parkd``: moves containers of the module, and brings them back. The agent has its own mover.

It answers at SOCKET as the agent does at its own: ``{"op": "park", "id": "…", "hold": false}``,
``resume`` and ``ping``. It keeps no file of the module open, so that the module can be unloaded.
The module's books have what is parked, and the next service resumes with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from pycgpu.errors import CgpuError
from pycgpu.parking import SOCKET, asked
from pycgpu.parking.books import Books, Files
from pycgpu.parking.moves import Parking
from pycgpu.tree import lock, procfs
from pycgpu.tree.socket_server import accept, listen, own_directory, receive

log = logging.getLogger("cgpu-parkd")

_ANSWER_TIMEOUT_S = 10
_LOCK_PATIENCE_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def only_one(path: str) -> Iterator[None]:
    """Be the only service: two would undo each other's moves. CgpuError: one runs already."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not lock.acquire(held, _LOCK_PATIENCE_S, pause_s=lock.PAUSE_MAX_S):
            raise CgpuError(f"a cgpu parkd runs already, and holds {path}: end it first")
        yield
    finally:
        os.close(held)


def _handle(message: dict[str, Any], parking: Parking) -> dict[str, Any]:
    op = message.get("op")
    if op in ("park", "resume"):
        return asked.answer(message, parking)
    if op == "ping":
        return {"ok": True, "pid": os.getpid()}
    return {"ok": False, "errno": errno.EINVAL, "message": f"no such operation: {op!r}"}


def serve(connection: socket.socket, parking: Parking) -> None:
    """Answer one client."""
    fds: list[int] = []
    with connection:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        try:
            answer = _handle(receive(connection, fds), parking)
        except (ValueError, OSError) as error:
            log.warning("a client's message: %s", error)
            return
        finally:
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode())


def main(root: str = procfs.KERNEL_DOOR, path: str = SOCKET) -> None:
    """
    Move containers until SIGTERM, SIGINT or SIGHUP, even if the module is loaded only later.

    CgpuError: the caller is not root, or another service runs.
    """
    if os.geteuid() != 0:
        raise CgpuError("cgpu parkd needs root: run it by sudo")
    own_directory(os.path.dirname(path))
    with only_one(f"{os.path.dirname(path)}/parkd.lock"):
        # Each thread started from here on leaves the signals to the wait below, so none is lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        parking = Parking(Books(Files(root)))
        listening = listen(path)
        try:
            threading.Thread(
                target=accept, args=(listening, lambda one: serve(one, parking)), daemon=True
            ).start()
            threading.Thread(target=parking.watch, daemon=True).start()
            log.info("ended by %s", signal.Signals(signal.sigwait(_SIGNALS)).name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
