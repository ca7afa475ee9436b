# SPDX-License-Identifier: MIT
"""The agent's nodes over its socket: what the tools use where there is no FUSE."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pycgpu
from pycgpu.agent import door, node_server, nodes
from pycgpu.cli import main
from pycgpu.errors import ModuleNotLoaded, NodeError, PermissionDenied
from pycgpu.tree import procfs, remote
from tests.host import program
from tests.vm.loaded import until

NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """A socket behind which the nodes of an agent are that has found no driver."""
    path = f"{tmp_path}/tree.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    os.chmod(path, 0o666)
    serving = node_server.NodeServer()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serving.serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield path
    # Who waits in accept() is not woken by close().
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_node_reads_as_its_text(root: str) -> None:
    assert procfs.read_api_version(root) == procfs.API_VERSION
    assert procfs.read_version(root) == pycgpu.__version__
    assert procfs.read_features(root)


def test_questions_follow_each_other_on_one_connection(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the agent's for each took more than half of the time."""
    served: list[socket.socket] = []
    enter = node_server._Guests.enter

    def counted(self: node_server._Guests, uid: int, connection: socket.socket) -> bool:
        served.append(connection)
        return enter(self, uid, connection)

    monkeypatch.setattr(node_server._Guests, "enter", counted)
    for _ in range(3):
        procfs.read_features(root)
        procfs.card_indexes(root)
    # A refusal is an answer, too; and what is written is said once, by a connection of its own.
    with pytest.raises(NodeError):
        procfs.read("7/policy", root)
    procfs.read_features(root)
    assert len(served) == 1
    with pytest.raises(NodeError):
        procfs.write("inst_ctl", "destroy", root)
    assert len(served) == 2
    # Nor does a thread wait for ever.
    until(lambda: served[0].fileno() < 0, "the end of a connection that nobody uses")
    assert procfs.read_features(root)
    assert len(served) == 3


def test_what_an_agent_has_answered_its_successor_answers_again(tmp_path: Path) -> None:
    path = f"{tmp_path}/tree.sock"

    def serve(text: str) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{path}.new")
            listening.listen()
            os.rename(f"{path}.new", path)
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b'{"text": "%s"}\n' % text.encode())
        os.unlink(path)

    for text in ("the first", "the second"):
        thread = threading.Thread(target=serve, args=(text,))
        thread.start()
        until(lambda: os.path.exists(path), "the socket")
        assert remote.read("features", path) == text.encode()
        thread.join()


def test_directories_are_told_from_files(root: str) -> None:
    assert procfs.card_indexes(root) == []
    assert procfs.container_ids(root) == []
    names = [node.name for node in door.nodes() if node.place == 0]
    assert set(procfs._listing("", root)) == {*names, "container"}


def test_what_is_not_there_is_an_error_with_its_errno(root: str) -> None:
    for path in ("nothing", "7/policy", "../etc/passwd"):
        with pytest.raises(NodeError) as caught:
            procfs.read(path, root)
        assert caught.value.errno == errno.ENOENT
    with pytest.raises(NodeError) as caught:
        procfs.read("container", root)
    assert caught.value.errno == errno.EISDIR


def test_a_command_is_refused_as_the_file_refuses_it(root: str) -> None:
    with pytest.raises(NodeError) as caught:
        procfs.write("inst_ctl", "create", root)
    assert caught.value.errno == errno.EINVAL
    assert procfs.destroy("nobody", root) is False


def test_the_tools_take_the_socket_for_the_tree(root: str) -> None:
    assert program.run(main.app, "ps", "--root", root).stdout.split()[:2] == ["GPU", "CONTAINER"]
    assert pycgpu.cards(root) == ()
    assert list(pycgpu.events(root=root)) == []


def test_the_past_of_events_is_there_when_it_is_opened(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"%d set 0/policy %s\n" % (n, b"7" * 200) for n in range(400)]
    came = threading.Event()

    def ring(position: int, size: int, timeout_ms: int) -> tuple[int, bytes]:
        if position == len(lines) and timeout_ms and came.wait(timeout_ms / 1000):
            came.clear()
            lines.append(b"400 oom id=a gpu=0\n")
        taken = b""
        while position < len(lines) and len(taken) + len(lines[position]) <= size:
            taken += lines[position]
            position += 1
        return position, taken

    # The ring of a whole agent, which takes a driver to fill.
    monkeypatch.setattr(door, "events", ring)
    descriptor = procfs.open_events(root)
    try:
        assert len(procfs.new_events(descriptor)) == 400
        assert procfs.new_events(descriptor) == []
        came.set()
        assert select.select([descriptor], [], [], 20)[0]
        assert procfs.new_events(descriptor) == ["400 oom id=a gpu=0"]
    finally:
        os.close(descriptor)


def test_who_follows_events_is_kept_while_nothing_happens(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = threading.Event()
    waits = 0

    def ring(position: int, size: int, timeout_ms: int) -> tuple[int, bytes]:
        nonlocal waits
        if timeout_ms and waits < 40:
            waits += 1
            idle.wait(0.01)
            return position, b""
        return (1, b"7 oom id=a gpu=0\n") if timeout_ms and not position else (position, b"")

    monkeypatch.setattr(door, "events", ring)
    # Much less than what nothing happens for here.
    monkeypatch.setattr(node_server, "_TIMEOUT_S", 0.05)
    descriptor = procfs.open_events(root)
    try:
        assert select.select([descriptor], [], [], 20)[0]
        assert procfs.new_events(descriptor) == ["7 oom id=a gpu=0"]
        assert waits == 40
    finally:
        os.close(descriptor)


def test_others_than_root_may_do_what_the_files_modes_allow(root: str, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o011)
    modes = {node.name: node.mode for node in door.nodes() if node.place == 0}
    assert modes["features"] & 0o004 and not modes["inst_ctl"] & 0o002
    # The interpreter's files may be root's alone: a child goes on with what is loaded.
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            remote.read("features", root)
            status = 2
            remote.write("inst_ctl", "destroy a", root)
        except OSError as error:
            status = 10 * status + (error.errno or 0)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 20 + errno.EACCES


def _silent(position: int, size: int, timeout_ms: int) -> tuple[int, bytes]:
    time.sleep(0.01 if timeout_ms else 0)
    return position, b""


def _follower(root: str) -> socket.socket:
    following = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    following.settimeout(20)
    following.connect(root)
    with contextlib.suppress(BrokenPipeError):
        following.sendall(b'{"op": "events"}\n')
    return following


def _followed(following: socket.socket) -> bool:
    """True if the ring is sent, false if there are too many who follow it."""
    try:
        answer = following.makefile("rb").readline()
    except ConnectionResetError:
        return False
    return b"bytes" in answer


@pytest.fixture
def places(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Five places at the socket, three for a user, and who takes them."""
    if os.geteuid():
        pytest.skip("needs root")
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o011)
    monkeypatch.setattr(node_server, "USER_MAX", 3)
    monkeypatch.setattr(node_server, "CLIENTS_MAX", 5)
    monkeypatch.setattr(node_server, "SUBUID", f"{tmp_path}/subuid")
    monkeypatch.setattr(node_server, "PASSWD", f"{tmp_path}/passwd")
    monkeypatch.setattr(door, "events", _silent)
    with contextlib.ExitStack() as stack:
        yield Places(root, stack)


class Places:
    """Who follows the ring."""

    def __init__(self, root: str, stack: contextlib.ExitStack) -> None:
        self.root = root
        self.stack = stack
        self.kept: list[socket.socket] = []

    def take(self, uid: int) -> bool:
        """Try to take one more."""
        os.seteuid(uid)
        try:
            one = self.stack.enter_context(_follower(self.root))
        finally:
            os.seteuid(0)
        taken = _followed(one)
        if taken:
            self.kept.append(one)
        return taken

    def ended(self) -> list[int]:
        """Which of them were ended, by the order in which they came."""
        return [
            number for number, one in enumerate(self.kept) if select.select([one], [], [], 0)[0]
        ]


def test_no_user_keeps_others_from_the_socket_and_none_keeps_root(
    places: Places, root: str
) -> None:
    counts = [sum(places.take(user) for _ in range(4)) for user in (NOBODY, NOBODY - 1)]
    assert counts == [3, 2]
    # A third one takes the newest of who has most, and no more than that one keeps.
    assert places.take(NOBODY - 2)
    assert places.ended() == [2]
    assert not places.take(NOBODY - 2)
    assert places.ended() == [2]
    assert procfs.read_features(root)


def test_a_users_subordinate_ids_have_no_places_of_their_own(
    places: Places, tmp_path: Path
) -> None:
    (tmp_path / "subuid").write_text(
        f"# rootless\nalice:100000:65536\n{NOBODY}:300000:9\nx:y\nbob:1:-\n"
    )
    (tmp_path / "passwd").write_text("alice:x:1001:1001::/home/alice:/bin/sh\n")
    assert [places.take(uid) for uid in (100000, 100001, 165535, 100002, 1001)] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert places.take(165536) and places.take(NOBODY)
    assert places.ended() == []
    # All five are taken, three of them by one user. Another's third would have as many as he.
    assert places.take(300008) and places.ended() == [2]
    assert not places.take(300007)
    assert places.ended() == [2]


def test_a_request_that_comes_by_the_byte_is_not_waited_for(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, and all of them do not."""
    monkeypatch.setattr(node_server, "_TIMEOUT_S", 0.5)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(root)
        began = time.monotonic()
        while not select.select([client], [], [], 0.05)[0]:
            assert time.monotonic() - began < 20
            with contextlib.suppress(BrokenPipeError):
                client.sendall(b" ")
        assert client.recv(1) == b""


@pytest.mark.parametrize("text", [b"\n", b"[]\n", b"{\n", b'{"op": "erase"}\n', b"x" * (1 << 16)])
def test_what_is_no_request_ends_that_connection_alone(root: str, text: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(root)
        try:
            client.sendall(text)
            answer = client.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert answer in (b"", b'{"errno": %d}\n' % errno.EINVAL)
    assert procfs.read_api_version(root) == procfs.API_VERSION


def test_an_agent_that_went_away_leaves_no_open_door(tmp_path: Path) -> None:
    path = f"{tmp_path}/tree.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        assert procfs.is_open(path)
    assert not procfs.is_open(path)
    with pytest.raises(ModuleNotLoaded):
        procfs.read_api_version(path)


def test_the_socket_is_the_last_door_that_is_tried(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KERNEL_DOOR", "USER_DOOR"):
        monkeypatch.setattr(procfs, name, str(tmp_path / name))
    monkeypatch.setattr(procfs, "USER_DOOR_SOCKET", root)
    assert procfs.find_root() == root
    (tmp_path / "USER_DOOR").mkdir()
    (tmp_path / "USER_DOOR/api_version").write_text("1\n")
    assert procfs.find_root() == str(tmp_path / "USER_DOOR")


def test_permission_is_told_from_absence(root: str) -> None:
    error = procfs._node_error(root, PermissionError(errno.EACCES, "no"), root)
    assert isinstance(error, PermissionDenied)


def test_who_waits_for_events_takes_no_more_than_a_part_of_the_trees_threads() -> None:
    """Fourteen readers: libfuse has ten threads, and each that waits takes one for a second."""
    tree = nodes.Nodes()
    handles = [tree.open("/events") for _ in range(nodes.WAITERS_MAX + 10)]
    for handle in handles:  # all that there is so far
        while tree.read("/events", 1 << 16, 0, handle):
            pass
    waits_s: list[float] = []

    def read(handle: int) -> None:
        began_s = time.monotonic()
        tree.read("/events", 1 << 16, 0, handle)
        waits_s.append(time.monotonic() - began_s)

    threads = [threading.Thread(target=read, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(waited_s > 0.5 for waited_s in waits_s) == nodes.WAITERS_MAX


def test_open_files_without_end_take_a_bounded_part_of_memory() -> None:
    tree = nodes.Nodes()
    handles = [tree.open("/version") for _ in range(2 * nodes.TEXTS_MAX)]
    texts = {tree.read("/version", 1 << 16, 0, handle) for handle in handles}
    assert len(texts) == 1
    assert len(tree._texts) == nodes.TEXTS_MAX
    # one whose text was let go of is read anew
    assert tree.read("/version", 1 << 16, 1, handles[0]) == texts.pop()[1:]
