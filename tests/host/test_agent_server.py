# SPDX-License-Identifier: MIT
"""Messages to the agent arrive whole, with their descriptors, or not at all."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from pycgpu.agent import door, server
from pycgpu.errors import CgpuError


def test_a_message_in_pieces_arrives_with_its_descriptor() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    text = json.dumps({"op": "run", "create": "create one pid=1 gpu=0,mem=max"}).encode()
    with ours, theirs:
        socket.send_fds(ours, [text[:9]], [write])
        ours.sendall(text[9:])
        message, fds = server.receive(theirs)
    os.close(write)
    assert message["op"] == "run"
    os.write(fds[0], b"x")
    assert os.read(read, 1) == b"x"
    os.close(fds[0])
    os.close(read)


@pytest.mark.parametrize("text", [b"", b"[1]", b'"run"', b"{", b"\xff"])
def test_what_is_no_object_is_refused_and_its_descriptors_closed(text: bytes) -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with theirs:
        socket.send_fds(ours, [text or b" "], [write])
        os.close(write)
        ours.close()
        with pytest.raises(ValueError):
            server.receive(theirs)
    assert os.read(read, 1) == b""
    os.close(read)


def test_descriptors_of_a_message_that_stays_away_are_closed() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        theirs.settimeout(0.01)
        socket.send_fds(ours, [b"{"], [write])
        os.close(write)
        with pytest.raises(TimeoutError):
            server.receive(theirs)
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_moment_without_descriptors_ends_no_socket() -> None:
    ours, theirs = socket.socketpair()
    said = iter([OSError(errno.EMFILE, "none left"), OSError(errno.ECONNABORTED, "gone")])
    served = threading.Event()
    answered: list[socket.socket] = []

    class Listening:
        def fileno(self) -> int:
            return 0

        def accept(self) -> tuple[socket.socket, str]:
            error = next(said, None)
            if error is not None:
                raise error
            if answered:
                raise OSError(errno.EBADF, "closed")
            return ours, ""

    def serve(connection: socket.socket) -> None:
        answered.append(connection)
        served.set()

    server._accept(Listening(), serve)  # type: ignore[arg-type]
    assert served.wait(20)
    assert answered[0] is ours
    theirs.close()


def test_descriptors_of_a_runtime_that_names_no_listener_are_closed() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    state = {"fds": ["pidFd"], "state": {"id": "one"}}
    with ours:
        socket.send_fds(ours, [json.dumps(state).encode()], [write])
        os.close(write)
        server._serve_runtime(theirs)
    assert os.read(read, 1) == b""
    os.close(read)


def test_who_finds_no_room_is_told_though_a_holder_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its listener is closed: whoever is under it would wait for good."""

    def full(text: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def show(node: int, minor: int = -1, container_id: str = "") -> bytes:
        if container_id:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return b"total 1048576\nallocated 0\nfree 0\n"

    monkeypatch.setattr(door, "command", full)
    monkeypatch.setattr(door, "show", show)
    ended = door.Container("ended", "ended", (0,))
    monkeypatch.setattr(door, "containers", lambda: [ended])
    ours, its = socket.socketpair()
    read, write = os.pipe()
    with ours:
        request = {"op": "run", "create": "create one pid=1 gpu=0,mem=1048576"}
        socket.send_fds(ours, [json.dumps(request).encode()], [write])
        os.close(write)
        server._serve_client(its, server.Attendance())
        answer, _ = server.receive(ours)
    assert answer["errno"] == errno.ENOSPC
    assert "nobody holds any" in answer["message"]
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize("op", ["run", "join"])
def test_a_listener_that_is_refused_is_closed(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Whoever is under its filter would wait for good."""

    def refuse(container_id: str, listener: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(door, "command", lambda text: None)
    monkeypatch.setattr(door, "attach", refuse)
    ours, its = socket.socketpair()
    read, write = os.pipe()
    with ours:
        request = {"op": op, "id": "one", "create": "create one pid=1"}
        socket.send_fds(ours, [json.dumps(request).encode()], [write])
        os.close(write)
        server._serve_client(its, server.Attendance())
        answer, _ = server.receive(ours)
    assert answer["errno"] == errno.ENOSPC
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(server, "DIRECTORY", str(tmp_path))
    tmp_path.chmod(mode)
    with pytest.raises(CgpuError, match="not root's alone"):
        server.own_directory()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of agents of this test's own."""
    monkeypatch.setattr(server, "SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.setattr(server, "LOCK", str(tmp_path / "agent.lock"))
    return tmp_path


def _answer(listening: socket.socket) -> None:
    with listening.accept()[0] as connection:
        server.receive(connection)
        connection.sendall(b'{"ok": true, "pid": 7}')


def test_of_agents_that_start_at_once_the_second_waits_for_the_firsts_answer(own: Path) -> None:
    said = []

    def second() -> None:
        try:
            with server.only_one():
                said.append("two agents")
        except CgpuError as error:
            said.append(str(error))

    with server.only_one(), socket.socket(socket.AF_UNIX) as listening:
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        assert other.is_alive(), said
        listening.bind(server.SOCKET)
        listening.listen()
        _answer(listening)
        other.join()
    assert said == ["an agent runs already, process 7"]


def test_an_agent_follows_one_that_ended_without_an_answer(own: Path) -> None:
    turns = []

    def second() -> None:
        with server.only_one():
            turns.append("second")

    with server.only_one():
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        turns.append("first")
    other.join()
    assert turns == ["first", "second"]


def test_whoever_has_asked_the_agent_finds_it_when_its_container_comes() -> None:
    """The last container had ended long ago, and the agent was just about to go."""
    attendance, unasked = server.Attendance(), server.Attendance()
    for one in (attendance, unasked):
        one._asked_s -= 3600
    assert attendance.begin()
    assert unasked.end(60, lambda: (0, 1))
    assert not attendance.end(60, lambda: (0, 1))
    assert not attendance.end(0, lambda: (1, 0))
    assert attendance.begin()


def test_an_agent_that_has_decided_to_go_answers_nobody() -> None:
    attendance = server.Attendance()
    assert attendance.end(0, lambda: (0, 0))
    ours, its = socket.socketpair()
    with ours:
        ours.sendall(b'{"op": "ping"}')
        server._serve_client(its, attendance)
        with pytest.raises((ValueError, ConnectionError)):
            server.receive(ours)


def test_an_agent_that_does_not_answer_is_named_before_the_driver_is_touched(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DIRECTORY", str(own))
    monkeypatch.setattr(server, "_TURN_TIMEOUT_S", 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        server.only_one(),
        # run by another than root, whose directory this is not
        pytest.raises(CgpuError, match=r"another agent holds \S+agent.lock|not root's alone"),
    ):
        server.main()
