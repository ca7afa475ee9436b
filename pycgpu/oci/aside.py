# SPDX-License-Identifier: MIT
"""
Start a program of ours apart from the hook and its pipes.

This is a module of its own, so that the hook does not import what such a program needs: 7 ms.
"""

from __future__ import annotations

import os
import sys

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def start(module: str, args: Sequence[str], fds: Mapping[int, int] | None = None) -> None:
    """
    Start ``main(args)`` of *module* in the background.

    Args:
        fds: descriptors that the program gets, by their numbers there.

    Raises:
        OSError: the program cannot be started.
    """
    here = os.path.abspath(__file__).rsplit("/", 3)[0]
    code = (
        f"import sys; sys.path.append({here!r}); from {module} import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        given = {0: null, 1: null, 2: null, **(fds or {})}
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-IS", "-c", code, *args],
            {"PATH": os.defpath},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in given.items()],
            setsid=True,
        )
    finally:
        os.close(null)
