# SPDX-License-Identifier: MIT
"""Messages to the agent arrive whole, with their descriptors, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pycgpu.agent import door, server
from pycgpu.agent.nodes import Nodes
from pycgpu.errors import CgpuError
from pycgpu.parking.books import Books
from pycgpu.parking.moves import Parking
from pycgpu.tree.socket_server import accept, listen, own_directory, receive
from tests.vm.loaded import until

from .filtered import STATE_FD_FIRST, Filtered, filtered


def test_a_message_in_pieces_arrives_with_its_descriptor() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    text = json.dumps({"op": "run", "create": "create one pid=1 gpu=0,mem=max"}).encode()
    fds: list[int] = []
    with ours, theirs:
        socket.send_fds(ours, [text[:9]], [write])
        ours.sendall(text[9:])
        message = receive(theirs, fds)
    os.close(write)
    assert message["op"] == "run"
    os.write(fds[0], b"x")
    assert os.read(read, 1) == b"x"
    os.close(fds[0])
    os.close(read)


@pytest.mark.parametrize("text", [b"", b"[1]", b'"run"', b"{", b"\xff"])
def test_what_is_no_object_is_refused_and_its_descriptors_are_the_callers(text: bytes) -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    fds: list[int] = []
    with theirs:
        socket.send_fds(ours, [text or b" "], [write])
        os.close(write)
        ours.close()
        with pytest.raises(ValueError):
            receive(theirs, fds)
    os.write(fds[0], b"x")
    assert os.read(read, 1) == b"x"
    os.close(fds[0])
    os.close(read)


def test_descriptors_of_a_message_that_stays_away_are_the_callers() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    fds: list[int] = []
    with ours, theirs:
        theirs.settimeout(0.01)
        socket.send_fds(ours, [b"{"], [write])
        os.close(write)
        with pytest.raises(TimeoutError):
            receive(theirs, fds)
    os.close(fds[0])
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

    accept(Listening(), serve)  # type: ignore[arg-type]
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
    with filtered() as process:
        answer = _ask({"op": "run", "create": "create one pid=1 gpu=0,mem=1048576"}, process)
        assert answer["errno"] == errno.ENOSPC
        assert "nobody holds any" in answer["message"]
        assert process.call() == errno.EPERM


def _ask(request: dict[str, object], process: Filtered) -> dict[str, Any]:
    """Send the agent a request with a process's listener, which is its own from there on."""
    ours, its = socket.socketpair()
    with ours:
        socket.send_fds(ours, [json.dumps(request).encode()], [process.listener])
        os.close(process.listener)
        server._serve_client(its, server.Attendance(), Parking(Books(Nodes())))
        return receive(ours, [])


def _tell(text: bytes, process: Filtered) -> None:
    """The same as an OCI runtime does it."""
    ours, its = socket.socketpair()

    def send() -> None:
        with ours:
            socket.send_fds(ours, [text[:1000]], [process.listener])
            os.close(process.listener)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(text[1000:])

    sender = threading.Thread(target=send)
    sender.start()
    server._serve_runtime(its)
    sender.join()


def _state(annotation: str = "", **other: object) -> bytes:
    state = {"id": "one", "annotations": {"image": annotation}}
    return json.dumps({"fds": ["seccompFd"], "state": state} | other).encode()


def _refusing(number: int) -> Callable[[str, int], None]:
    def attach(container_id: str, listener: int) -> None:
        raise OSError(number, os.strerror(number))

    return attach


@pytest.mark.parametrize("op", ["run", "join"])
def test_who_is_refused_lives_on_without_a_card(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Were its listener closed, it could have another and answer its own calls."""
    monkeypatch.setattr(door, "command", lambda text: None)
    monkeypatch.setattr(door, "attach", _refusing(errno.ENOSPC))
    with filtered() as process:
        answer = _ask({"op": op, "id": "one", "create": "create one pid=1"}, process)
        assert answer["errno"] == errno.ENOSPC
        assert process.call() == errno.EPERM


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"{}", 0),
        (b"nothing", 0),
        (_state(fds=["pidFd"]), 0),
        (_state(state=[]), 0),
        (_state("x" * server.STATE_MAX_BYTES), 0),
        (_state(), errno.ENOENT),
        (_state(), errno.ENOSPC),
        (_state(), errno.EAGAIN),
    ],
    ids=["empty", "none", "unnamed", "no state", "too long", "unknown", "full", "no thread"],
)
def test_whom_a_runtime_brings_in_vain_lives_on_without_a_card(
    monkeypatch: pytest.MonkeyPatch, text: bytes, number: int
) -> None:
    monkeypatch.setattr(door, "attach", _refusing(number))
    monkeypatch.setattr(server, "_CONTAINER_WAIT_S", 0)
    with filtered() as process:
        _tell(text, process)
        assert [process.call() for _ in range(3)] == [errno.EPERM] * 3


@pytest.mark.parametrize("size", [100_000, 4 << 20])
@pytest.mark.parametrize("filling", ["x", "}"])
def test_a_state_with_annotations_of_any_size_brings_its_listener(
    monkeypatch: pytest.MonkeyPatch, size: int, filling: str
) -> None:
    """Podman has them from the manifest of the image."""
    attached: list[tuple[str, int]] = []
    monkeypatch.setattr(door, "attach", lambda *given: attached.append(given))
    with filtered() as process:
        _tell(_state(filling * size), process)
        ((container_id, listener),) = attached
        assert container_id == "one"
        assert os.readlink(f"/proc/self/fd/{listener}") == "anon_inode:seccomp notify"
        os.close(listener)


def test_a_listener_that_is_refused_goes_with_its_last_process() -> None:
    with filtered() as process:
        door.refuse("one", process.listener)
        assert process.call() == errno.EPERM
        process.end()
        until(lambda: not os.path.exists(f"/proc/self/fd/{process.listener}"), "its end")


def test_a_tenant_with_many_listeners_takes_no_place_of_anothers() -> None:
    with filtered() as one, filtered() as other:
        # However many descriptors it has, it is one file.
        many = [fcntl.fcntl(one.listener, fcntl.F_DUPFD, STATE_FD_FIRST) for _ in range(300)]
        for listener in many:
            door.refuse("one", listener)
        os.close(one.listener)
        door.refuse("other", other.listener)
        assert other.call() == errno.EPERM
        open_now = [fd for fd in many if os.path.exists(f"/proc/self/fd/{fd}")]
        assert len(open_now) == 256
        one.end()
        until(lambda: not os.path.exists(f"/proc/self/fd/{open_now[-1]}"), "its end")


def test_a_call_that_waits_when_its_listener_is_refused_is_answered() -> None:
    with filtered() as process:
        process.ask()
        assert select.select([process.listener], [], [], 20)[0]
        door.refuse("one", process.listener)
        assert process.answer() == errno.EPERM


def test_a_moment_without_threads_closes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread, it may have a listener."""
    started = threading.Thread.start
    failures = iter([RuntimeError("can't start new thread")] * 2)

    def start(thread: threading.Thread) -> None:
        for failure in failures:
            raise failure
        started(thread)

    served = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        listening = listen(f"{name}/socket")
        accepting = threading.Thread(
            target=accept, args=(listening, lambda connection: served.set()), daemon=True
        )
        accepting.start()
        monkeypatch.setattr(threading.Thread, "start", start)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{name}/socket")
            assert served.wait(20)
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listening.close()


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(CgpuError, match="not root's alone"):
        own_directory(str(tmp_path))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of agents of this test's own."""
    monkeypatch.setattr(server, "SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.setattr(server, "LOCK", str(tmp_path / "agent.lock"))
    return tmp_path


def _answer(listening: socket.socket) -> None:
    with listening.accept()[0] as connection:
        receive(connection, [])
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
        server._serve_client(its, attendance, Parking(Books(Nodes())))
        with pytest.raises((ValueError, ConnectionError)):
            receive(ours, [])


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
