# SPDX-License-Identifier: MIT
"""``cgpu top``: who uses the cards of several nodes, by their exporters."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pycgpu.errors import CgpuError

from . import _number
from ._table import clean, width_of

app = typer.Typer(add_completion=False)


@app.command()
def top(
    nodes: Annotated[
        list[str], typer.Argument(help="Nodes whose exporter answers: host, host:port or a URL.")
    ],
    sample: Annotated[
        float,
        typer.Option(
            help="Seconds over which use is measured.",
            metavar="SECONDS",
            parser=_number.seconds(0.1, 60),
        ),
    ] = 1.0,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="Show at most this many.")
    ] = 50,
) -> None:
    """
    List the containers of several nodes, the busiest first; status 1 if a node does not answer.

    Use is in percent of a card. A node is asked for what its exporter tells, so that must listen
    where this host reaches it.
    """
    try:
        from pycgpu.tree import scrape

        found, silent = scrape.top(nodes, sample)
    except ImportError as error:
        raise CgpuError(f"{error}: pip install 'pycgpu[exporter]'") from None
    table = [["NODE", "GPU", "CONTAINER", "GROUP", "MIB", "LIMIT", "USED%", "PARKED"]]
    for row in found[:lines]:
        limit = "max" if row.limit_bytes is None else str(row.limit_bytes >> 20)
        used = "-" if row.used is None else f"{100 * row.used:.1f}"
        name, group = clean(row.name), clean(row.group or "-")
        memory, parked = str(row.memory_bytes >> 20), str(row.parked_bytes >> 20)
        table.append([clean(row.node), str(row.gpu), name, group, memory, limit, used, parked])
    widths = [max(width_of(row[column]) for row in table) for column in range(len(table[0]))]
    for line in table:
        cells = [
            text + " " * (width - width_of(text)) for text, width in zip(line, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
    for reason in silent:
        print(f"cgpu: {clean(reason)}", file=sys.stderr)
    if silent:
        raise typer.Exit(1)
