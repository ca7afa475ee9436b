# SPDX-License-Identifier: MIT
"""Sockets of our daemons: a client sends one JSON object, perhaps with descriptors."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import logging
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

from pycgpu.errors import CgpuError

log = logging.getLogger("cgpud")

MESSAGE_MAX_BYTES = 1 << 16
_PAUSE_S = 0.1


def own_directory(path: str) -> None:
    """Make a directory. CgpuError: others may write there, and their files would be trusted."""
    os.makedirs(path, mode=0o755, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise CgpuError(f"{path} is not root's alone: remove it, then start again")


def receive(
    connection: socket.socket, fds: list[int], bytes_max: int = MESSAGE_MAX_BYTES
) -> dict[str, Any]:
    """
    Return the received JSON object. *fds* gets the descriptors that came with it, which the caller
    closes even if this raises. ValueError: the message is no JSON object.
    """
    data = bytearray()
    space = socket.CMSG_SPACE(8 * array.array("i").itemsize)
    more, tried_bytes = select.poll(), 0
    more.register(connection, select.POLLIN)
    while True:
        part, ancillary, _flags, _address = connection.recvmsg(
            MESSAGE_MAX_BYTES, space, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                passed = array.array("i")
                passed.frombytes(payload[: len(payload) - len(payload) % passed.itemsize])
                fds += passed
        data += part
        # A long message is not read anew with each part that comes.
        grown = len(data) >= 2 * tried_bytes or not part
        if grown or not more.poll(_PAUSE_S * 1000):
            tried_bytes = len(data)
            with contextlib.suppress(ValueError):
                message = json.loads(data)
                if isinstance(message, dict):
                    return message
        if not part or len(data) > bytes_max:
            raise ValueError("not a JSON object")


def listen(path: str, mode: int = 0o600) -> socket.socket:
    """Return a socket that listens at *path*, instead of whatever was there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~mode)
    try:
        listening.bind(path)
    finally:
        os.umask(mask)
    listening.listen(64)
    return listening


def accept(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Serve each client by a thread of its own, until the socket is closed."""
    while listening.fileno() >= 0:
        try:
            connection, _ = listening.accept()
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL):
                return
            # No descriptor is free at the moment: waiting clients stay in the queue.
            time.sleep(_PAUSE_S)
            continue
        while not _begin(serve, connection):
            time.sleep(_PAUSE_S)


def _begin(serve: Callable[[socket.socket], None], connection: socket.socket) -> bool:
    """Serve a client by a thread; False: there is none for now. Unheard it may have a listener."""
    try:
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
    except RuntimeError as error:
        log.warning("no thread for a client: %s", error)
        return False
    return True
