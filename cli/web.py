# SPDX-License-Identifier: MIT
"""``cgpu web``: a page of this host's cards and containers, or of several hosts'."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.web import PORT

from . import _number, _serving
from ._root import LaterRoot

app = typer.Typer(add_completion=False)


@app.command()
def web(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Nodes whose exporter answers: host, host:port or a URL. Default: this host."
        ),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            metavar="[ADDRESS]:PORT",
            help="Where to serve, without authentication; without ADDRESS: everywhere.",
        ),
    ] = f"127.0.0.1:{PORT}",
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which browsers reach the page, besides this host's; may be repeated."
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            help="Seconds from one reading to the next.",
            metavar="SECONDS",
            parser=_number.seconds(1, 600),
        ),
    ] = 5.0,
    root: LaterRoot = None,
) -> None:
    """
    Serve a page of cards and containers: shares over the last hour, memory, energy, events.

    The page changes nothing. Of nodes it shows what `cgpu top` asks them for.
    """
    if nodes and root is not None:
        raise CgpuError("--root is this host's tree: name no nodes with it")
    try:
        from pycgpu.web.page import serving
        from pycgpu.web.watch import Watch
    except ImportError as error:
        raise CgpuError(f"{error}: pip install 'pycgpu[exporter]'") from None
    watch = Watch(nodes or (), every, root)
    ended = _serving.begin(listen, PORT, functools.partial(serving, watch, names=name or ()), "/")
    try:
        watch.follow(ended)
    except KeyboardInterrupt:
        return
