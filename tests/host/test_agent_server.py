# SPDX-License-Identifier: MIT
"""Messages to the agent arrive whole, with their descriptors, or not at all."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from pycgpu.agent import server
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


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(server, "DIRECTORY", str(tmp_path))
    tmp_path.chmod(mode)
    with pytest.raises(CgpuError, match="not root's alone"):
        server.own_directory()
