# SPDX-License-Identifier: MIT
"""``cgpu exporter``: metrics for Prometheus over HTTP, into a file, or once on stdout."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.install.service import EXPORTER_PORT as PORT

from . import _serving
from ._pod import follow_upgrades
from ._root import LaterRoot

app = typer.Typer(add_completion=False)


@app.command()
def exporter(
    listen: Annotated[
        str,
        typer.Option(
            metavar="[ADDRESS]:PORT",
            envvar="CGPU_EXPORTER_LISTEN",
            help="Where to serve /metrics, without authentication; without ADDRESS: everywhere.",
        ),
    ] = f"127.0.0.1:{PORT}",
    textfile: Annotated[
        Path | None,
        typer.Option(help="Write this file for node_exporter's textfile collector, and end."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and end.")] = False,
    names: Annotated[
        list[str] | None,
        typer.Option(
            metavar="dcgm|dcgm-pods|hami|otel",
            envvar="CGPU_EXPORTER_NAMES",
            help="Add metrics under the names of another exporter; may be repeated.",
        ),
    ] = None,
    root: LaterRoot = None,
) -> None:
    """Serve memory and compute of every card and container as Prometheus metrics."""
    try:
        import prometheus_client

        from pycgpu.tree.exporter import Exporter
        from pycgpu.tree.metrics_server import serving
    except ImportError:
        raise CgpuError(
            "prometheus_client is missing: pip install 'pycgpu[exporter]',"
            " or apt install python3-prometheus-client"
        ) from None
    registry = prometheus_client.CollectorRegistry()
    registry.register(Exporter(root, names=names or ()))
    if once:
        print(prometheus_client.generate_latest(registry).decode(), end="")
        return
    if textfile is not None:
        try:
            prometheus_client.write_to_textfile(str(textfile), registry)
        except OSError as error:
            raise CgpuError(f"{textfile}: {error.strerror}") from None
        return
    ended = _serving.begin(listen, PORT, functools.partial(serving, registry), "/metrics")
    follow_upgrades()
    try:
        ended.wait()
    except KeyboardInterrupt:
        return
