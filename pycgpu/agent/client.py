# SPDX-License-Identifier: MIT
"""Asks the agent, without the agent's own modules, which take long to import."""

from __future__ import annotations

# socket wraps this in enumerations, whose import takes longer than all the work here.
import _socket
import sys

from pycgpu import json_text

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY = "/run/cgpu"
SOCKET = f"{DIRECTORY}/agent.sock"
MESSAGE_MAX = 1 << 16
_ANSWER_TIMEOUT_S = 10


def ask(
    message: dict[str, Any],
    fds: tuple[int, ...] = (),
    path: str = SOCKET,
    timeout_s: float = _ANSWER_TIMEOUT_S,
) -> dict[str, Any]:
    """
    Send *message* to the agent and return its answer.

    Raises:
        OSError: no agent answers.
        ValueError: the answer is not a JSON object.
    """
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendmsg(
            [json_text.dumps(message).encode()],
            [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if fds else (),
        )
        data = b""
        while len(data) <= MESSAGE_MAX and (part := connection.recv(MESSAGE_MAX)):
            data += part
    finally:
        connection.close()
    answer = json_text.loads(data.decode())
    if not isinstance(answer, dict):
        raise ValueError("not a JSON object")
    return answer
