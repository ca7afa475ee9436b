# SPDX-License-Identifier: MIT
"""
The agent's nodes over its socket, for hosts without FUSE.

One JSON object a line, one after another: ``{"op": "read", "path": "0/policy"}``, ``write`` with
``text``, ``list``, ``events``. The answer is ``{"text": …}``, ``{"directories": […], "files":
[…]}`` or ``{"errno": n}``. After the answer to ``events``, ``{"bytes": n}``, come the ring's lines:
n bytes that are there already, then what happens.
"""

from __future__ import annotations

# socket wraps this module in enumerations, whose import takes longer than everything done here.
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

#: Idle connections by root and process, kept because each new one costs the agent a thread. A
#: thread that uses a connection takes it out, so that no two threads share one.
_answered: dict[tuple[str, int], _socket.socket] = {}


def answers(root: str) -> bool:
    """Whether a process listens."""
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
    connection = _connect(root)
    try:
        _checked(_exchange(connection, {"op": "write", "path": path, "text": text}))
    finally:
        connection.close()


def names(path: str, root: str) -> tuple[list[str], list[str]]:
    """Return the names of directories and of files in a directory."""
    answer = _ask(root, {"op": "list", "path": path})
    return list(answer["directories"]), list(answer["files"])


def events(root: str) -> int:
    """Return a descriptor, the caller's to close, with the ring's lines, old ones first."""
    connection = _connect(root)
    try:
        waiting = int(_checked(_exchange(connection, {"op": "events"}))["bytes"])
        # Readers take the lines that are there for the past, so wait until all have arrived.
        # Linux has no way to wait for that many bytes of a Unix socket without taking them.
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
    """Send a request that changes nothing, so that it may be repeated."""
    place = root, os.getpid()
    connection = _answered.pop(place, None)
    answer = None
    if connection is not None:
        try:
            answer = _exchange(connection, message)
        except TimeoutError:
            raise
        except OSError:
            # The agent may have closed the idle connection, or may have been replaced.
            connection.close()
    if connection is None or answer is None:
        connection = _connect(root)
        answer = _exchange(connection, message)
    if _answered.setdefault(place, connection) is not connection:
        connection.close()
    return _checked(answer)


def _exchange(connection: _socket.socket, message: dict[str, str]) -> object:
    connection.sendall(json_text.dumps(message).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        # By byte at the end of an answer only: what follows it is not JSON.
        part = connection.recv(_ANSWER_MAX, _socket.MSG_PEEK)
        taken = part.partition(b"\n")
        line += connection.recv(len(taken[0]) + len(taken[1]))
        if not part or len(line) > _ANSWER_MAX:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    return json_text.loads(line.decode())


def _checked(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    return answer
