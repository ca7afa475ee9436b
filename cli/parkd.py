# SPDX-License-Identifier: MIT
"""``cgpu parkd``: the daemon behind ``cgpu park`` where the module shares the cards."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from pycgpu import parking
from pycgpu.parking import service
from pycgpu.tree import procfs

app = typer.Typer(add_completion=False)


@app.command()
def parkd(
    root: Annotated[str, typer.Option(help="The module's tree.")] = procfs.KERNEL_DOOR,
    socket: Annotated[
        str, typer.Option(help="Where to answer `cgpu park` and `cgpu resume`.")
    ] = parking.SOCKET,
) -> None:
    """
    Move the module's containers to the host and back, until a signal ends it.

    The agent does this by itself, without a daemon of its own.
    """
    logging.basicConfig(format="cgpu-parkd: %(message)s", level=logging.INFO)
    service.main(root, socket)
