# SPDX-License-Identifier: MIT
"""Messages to the agent arrive whole, with their descriptors, or not at all."""

from __future__ import annotations

import json
import os
import socket

import pytest

from pycgpu.agent import server


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
