# SPDX-License-Identifier: MIT
"""
Starting a program of ours beside the hook, apart from it and its pipes.

A module of its own, because the hook imports this and not what such a program needs, which takes
7 ms.
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
    Start ``main(args)`` of *module*; nobody waits for it.

    Args:
        fds: descriptors that it finds under these numbers.

    Raises:
        OSError: it cannot be started.
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
