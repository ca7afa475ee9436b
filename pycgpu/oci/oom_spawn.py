# SPDX-License-Identifier: MIT
"""
Starting :mod:`pycgpu.oci.oom_watch`: apart from it, because the hook imports this and not what the
watcher needs, which takes 7 ms.
"""

from __future__ import annotations

import os
import sys

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..request.model import Grant


def spawn(container_id: str, grant: Grant, root: str, init_pid: int, logs: tuple[str, ...]) -> None:
    """
    Start the watcher of a container with an OOM script, apart from the hook and its pipes.

    Raises:
        OSError: it cannot be started.
    """
    kill = any(card.oom_action == "kill" for card in grant.cards)
    here = os.path.abspath(__file__).rsplit("/", 3)[0]
    code = (
        f"import sys; sys.path.append({here!r}); from pycgpu.oci.oom_watch import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    args = [container_id, root, str(init_pid), "kill" if kill else "keep", grant.oom_script or ""]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-IS", "-c", code, *args, *logs],
            {"PATH": os.defpath},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)],
            setsid=True,
        )
    finally:
        os.close(null)
