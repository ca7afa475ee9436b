# SPDX-License-Identifier: MIT
"""
The agent's nodes over its socket, for hosts without FUSE.

One request a connection, one JSON object a line: ``{"op": "read", "path": "0/policy"}``, ``write``
with ``text``, ``list``, ``events``. The answer is ``{"text": …}``, ``{"directories": […], "files":
[…]}`` or ``{"errno": n}``. After the answer to ``events``, ``{"bytes": n}``, come the ring's lines:
n bytes that are there already, then what happens.
"""

from __future__ import annotations

# What socket wraps in enumerations, which take longer to import than all that is done here.
import _socket
import errno
import os
import time

from .. import json_text

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TIMEOUT_S = 10
_ANSWER_MAX = 1 << 20


def answers(root: str) -> bool:
    """Whether somebody listens."""
    try:
        _connect(root).close()
    except OSError as error:
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def read(path: str, root: str) -> bytes:
    """Return the node's text. OSError, with the node's errno."""
    return str(_ask(root, {"op": "read", "path": path})["text"]).encode()


def write(path: str, text: str, root: str) -> None:
    """Write the node. OSError, with the errno of the contract."""
    _ask(root, {"op": "write", "path": path, "text": text})


def names(path: str, root: str) -> tuple[list[str], list[str]]:
    """Return the names of directories and of files in a directory."""
    answer = _ask(root, {"op": "list", "path": path})
    return list(answer["directories"]), list(answer["files"])


def events(root: str) -> int:
    """Return a descriptor, the caller's to close, with the ring's lines, old ones first."""
    connection = _connect(root)
    try:
        waiting = int(_exchange(connection, {"op": "events"})["bytes"])
        # Readers take what is there for the past: let all of it have arrived.
        # (Linux lets nobody wait for so much of a Unix socket without taking it.)
        until = time.monotonic() + _TIMEOUT_S
        while waiting and len(connection.recv(waiting, _socket.MSG_PEEK)) < waiting:
            if time.monotonic() > until:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            time.sleep(0.001)
        connection.setblocking(False)
        return connection.detach()
    finally:
        connection.close()


def _connect(root: str) -> _socket.socket:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(root)
    except OSError:
        connection.close()
        raise
    return connection


def _ask(root: str, message: dict[str, str]) -> dict[str, Any]:
    connection = _connect(root)
    try:
        return _exchange(connection, message)
    finally:
        connection.close()


def _exchange(connection: _socket.socket, message: dict[str, str]) -> dict[str, Any]:
    connection.sendall(json_text.dumps(message).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        # By byte at the end of an answer only: what follows it is not JSON.
        part = connection.recv(_ANSWER_MAX, _socket.MSG_PEEK)
        taken = part.partition(b"\n")
        line += connection.recv(len(taken[0]) + len(taken[1]))
        if not part or len(line) > _ANSWER_MAX:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    answer = json_text.loads(line.decode())
    if not isinstance(answer, dict):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    return answer
