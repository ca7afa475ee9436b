# SPDX-License-Identifier: MIT
"""Asking the agent: without what the agent itself is made of, which takes long to import."""

from __future__ import annotations

import json
import socket

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY = "/run/cgpu"
SOCKET = f"{DIRECTORY}/agent.sock"
MESSAGE_MAX = 1 << 16
_ANSWER_TIMEOUT_S = 10


def ask(message: dict[str, Any], fds: tuple[int, ...] = (), path: str = SOCKET) -> dict[str, Any]:
    """
    Send *message* to the agent and return its answer.

    Raises:
        OSError: no agent answers.
        ValueError: what it says is not a JSON object.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(message).encode()], list(fds))
        data = b""
        while len(data) <= MESSAGE_MAX and (part := connection.recv(MESSAGE_MAX)):
            data += part
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise ValueError("not a JSON object")
    return answer
