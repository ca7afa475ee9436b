# SPDX-License-Identifier: MIT
"""``cgpu resume``: bring a parked container back to its cards."""

from __future__ import annotations

from typing import Annotated

import typer

from pycgpu.agent import moves
from pycgpu.tree import procfs, target

from ._complete import Container
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command()
def resume(
    container: Container,
    root: Root = None,
    socket: Annotated[
        str | None,
        typer.Option(help="Where the agent or `cgpu parkd` answers; default: its own place."),
    ] = None,
) -> None:
    """Bring a parked container back. Without room it waits, and comes back by itself."""
    tree = root or procfs.find_root()
    found = target.find(container, tree)
    waits = moves.resume(found.id, tree, socket=socket)
    print(waits or f"{found.id} is back")
