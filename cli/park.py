# SPDX-License-Identifier: MIT
"""``cgpu park``: move an idle container's memory to the host."""

from __future__ import annotations

from typing import Annotated

import typer

from pycgpu.agent import moves
from pycgpu.request.model import MIB
from pycgpu.tree import procfs, target

from ._complete import Container
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command()
def park(
    container: Container,
    hold: Annotated[
        bool,
        typer.Option("--hold", help="Keep it parked until `cgpu resume`, whatever it calls."),
    ] = False,
    root: Root = None,
    socket: Annotated[
        str | None,
        typer.Option(help="Where the agent or `cgpu parkd` answers; default: its own place."),
    ] = None,
) -> None:
    """
    Move a container's memory to the host; it comes back when its program calls CUDA.

    A container that cannot be parked goes on as before, and the command says why.
    """
    tree = root or procfs.find_root()
    found = target.find(container, tree)
    moved = moves.park(found.id, tree, hold=hold, socket=socket)
    print(f"{found.id} is parked: {moved // MIB} MiB went to the host")
