# SPDX-License-Identifier: MIT
"""Starting :mod:`pycgpu.oci.oom_watch`."""

from __future__ import annotations

from . import aside

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
    args = [container_id, root, str(init_pid), "kill" if kill else "keep", grant.oom_script or ""]
    aside.start(f"{__package__}.oom_watch", [*args, *logs])
