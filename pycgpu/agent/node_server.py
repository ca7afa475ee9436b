# SPDX-License-Identifier: MIT
"""
The nodes over a socket, ``/run/cgpu/tree.sock``, which :mod:`pycgpu.tree.remote` speaks.

Every user may connect. A client that is not root may do what the files' modes allow others, as in
the tree that FUSE mounts. Here only this program checks the modes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import select
import socket
import stat
import struct
import threading
import time
from typing import Any

from pycgpu.agent import door
from pycgpu.agent.nodes import Nodes

log = logging.getLogger("cgpud")

#: Longest request: the longest command of inst_ctl, as JSON.
_REQUEST_MAX = 1 << 15
_TIMEOUT_S = 10
#: How long an answered client may wait to ask again: a snapshot is some thirty questions.
_IDLE_S = 1.0
#: The most clients of a user at a time; a client that follows ``events`` stays. The second bound is
#: for all users but root together, so that they never keep root waiting.
USER_MAX = 32
CLIENTS_MAX = 128
ROOT_MAX = 1024
#: Subordinate ids of each user besides its own, ``name:first:count``, and the names' numbers.
SUBUID = "/etc/subuid"
PASSWD = "/etc/passwd"
_PIECE_BYTES = 1 << 16
_EVENT_WAIT_MS = 1000


def owner_of(uid: int) -> str:
    """Return the user whose id *uid* is, its own or a subordinate one."""
    for name, first, count in _lines(SUBUID, 3):
        if first.isdecimal() and count.isdecimal() and 0 <= uid - int(first) < int(count):
            if name.isdecimal():
                return name
            # Only the file: a directory service could make each client that connects wait.
            return next((line[2] for line in _lines(PASSWD, 7) if line[0] == name), name)
    return str(uid)


def _lines(path: str, fields: int) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []
    return [line for line in found if len(line) == fields]


class _Guests:
    """The clients that are being answered, by user, each user's in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, list[socket.socket]] = {}

    def enter(self, uid: int, connection: socket.socket) -> bool:
        """
        Take one more client of a user's; False: there are too many.

        If all places are taken, the user with most clients loses its newest to a user who has
        fewer, even counting the new one.
        """
        user = "0" if uid == 0 else owner_of(uid)
        with self._lock:
            own = len(self._places.get(user, ()))
            if own >= (ROOT_MAX if uid == 0 else USER_MAX):
                return False
            others = {one: places for one, places in self._places.items() if one != "0"}
            if uid != 0 and sum(map(len, others.values())) >= CLIENTS_MAX:
                most = max(others, key=lambda one: len(others[one]))
                if len(others[most]) <= own + 1:
                    return False
                newest = others[most][-1]
                self._leave(most, newest)
                with contextlib.suppress(OSError):
                    newest.shutdown(socket.SHUT_RDWR)
            self._places.setdefault(user, []).append(connection)
            return True

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            for user, places in self._places.items():
                if connection in places:
                    self._leave(user, connection)
                    return

    def _leave(self, user: str, connection: socket.socket) -> None:
        self._places[user].remove(connection)
        if not self._places[user]:
            del self._places[user]


class NodeServer:
    """Answers one client a thread, up to :data:`CLIENTS_MAX` besides root's."""

    def __init__(self) -> None:
        self._nodes = Nodes()
        self._guests = _Guests()

    def serve(self, connection: socket.socket) -> None:
        """Answer a client's requests, one after another, and close the connection."""
        with connection:
            uid = _user(connection)
            connection.settimeout(_TIMEOUT_S)
            if not self._guests.enter(uid, connection):
                with contextlib.suppress(OSError):
                    _send(connection, {"errno": errno.EAGAIN})
                return
            try:
                self._serve(connection)
            except (OSError, ValueError, RecursionError) as error:
                log.debug("a reader of nodes: %s", error)
            finally:
                self._guests.leave(connection)

    def _serve(self, connection: socket.socket) -> None:
        request = _receive(connection)
        while True:
            try:
                answer = self._answer(connection, request)
            except OSError as error:
                answer = {"errno": error.errno or errno.EIO}
            if answer is None:
                return _follow(connection)
            _send(connection, answer)
            if not _asks_again(connection):
                return None
            request = _receive(connection)

    def _answer(self, connection: socket.socket, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return what to send; None: the ring's lines. OSError: the client may not, or cannot."""
        op, path = request.get("op"), str(request.get("path", ""))
        if op == "list":
            return self._list(path)
        if op == "events":
            _allow(connection, self._mode("events"), stat.S_IROTH)
            return None
        if op == "read":
            _allow(connection, self._mode(path), stat.S_IROTH)
            return {"text": self._read(path)}
        if op == "write":
            _allow(connection, self._mode(path), stat.S_IWOTH)
            self._nodes.write(path, str(request.get("text", "")).encode() + b"\n")
            return {}
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def _mode(self, path: str) -> int:
        mode = self._nodes.attributes(path)["st_mode"]
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return mode

    def _list(self, path: str) -> dict[str, Any]:
        found: dict[str, list[str]] = {"directories": [], "files": []}
        for name in self._nodes.names(path):
            # The container may have gone since.
            with contextlib.suppress(OSError):
                is_directory = stat.S_ISDIR(self._nodes.attributes(f"{path}/{name}")["st_mode"])
                found["directories" if is_directory else "files"].append(name)
        return found

    def _read(self, path: str) -> str:
        if path.strip("/") == "events":
            return door.events(0, _PIECE_BYTES, 0)[1].decode(errors="replace")
        handle = self._nodes.open(path)
        try:
            text = b""
            while piece := self._nodes.read(path, _PIECE_BYTES, len(text), handle):
                text += piece
            return text.decode(errors="replace")
        finally:
            self._nodes.release(handle)


def _receive(connection: socket.socket) -> dict[str, Any]:
    line = b""
    deadline = time.monotonic() + _TIMEOUT_S
    while not line.endswith(b"\n"):
        # The limit is for the whole request: otherwise a byte now and then would keep the place.
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(_REQUEST_MAX)
        line += part
        if not part or len(line) > _REQUEST_MAX:
            raise ValueError("not one line")
        if time.monotonic() > deadline:
            raise TimeoutError
    connection.settimeout(_TIMEOUT_S)
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _asks_again(connection: socket.socket) -> bool:
    connection.settimeout(_IDLE_S)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False


def _send(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _user(connection: socket.socket) -> int:
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", peer)[1]
    return uid


def _allow(connection: socket.socket, mode: int, bit: int) -> None:
    """OSError EACCES: the client is not root, and others may not."""
    if _user(connection) != 0 and not mode & bit:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def _follow(connection: socket.socket) -> None:
    """Send the ring's lines, and those to come until the client goes."""
    position, waiting = 0, b""
    while True:
        position, lines = door.events(position, _PIECE_BYTES, 0)
        if not lines:
            break
        waiting += lines
    # The client reads nothing before all lines are there.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * max(len(waiting), 1))
    _send(connection, {"bytes": len(waiting)})
    while True:
        if waiting:
            connection.sendall(waiting)
        # Otherwise a client that left would be kept until the next event.
        elif _is_gone(connection):
            return
        position, waiting = door.events(position, _PIECE_BYTES, _EVENT_WAIT_MS)


def _is_gone(connection: socket.socket) -> bool:
    # A socket with a time limit waits for something to read, even with MSG_DONTWAIT.
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and not connection.recv(1)
