# SPDX-License-Identifier: MIT
"""``cgpu ps``: containers on the cards, or their processes; columns for people and for awk."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.tree import authority, names, nvml, procfs, snapshot
from pycgpu.tree.snapshot import ContainerView

from ._complete import containers
from ._root import Root
from ._table import clean, width_of

app = typer.Typer(add_completion=False)


@app.command()
def ps(
    container: Annotated[
        str | None,
        typer.Argument(help="Processes of this container.", autocompletion=containers),
    ] = None,
    processes: Annotated[
        bool, typer.Option("--processes", "-p", help="Processes, not containers.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Full ids alone, or PIDs.")] = False,
    no_trunc: Annotated[bool, typer.Option("--no-trunc", help="Full ids.")] = False,
    root: Root = None,
) -> None:
    """List containers that have a part of a GPU, or their processes."""
    both = authority.complaint() if root is None else None
    if both is not None:
        print(f"cgpu: {both}", file=sys.stderr)
    moment = snapshot.take(root or procfs.find_root(), boards=nvml.Nvml())
    views = [one for card in moment.cards for one in card.containers]
    if container is not None:
        views = [
            one
            for one in views
            if names.matches(container, one.status.id, one.status.name, one.name)
        ]
        if not views:
            raise CgpuError(f"no container {container!r} on a GPU; `cgpu ps` lists those there are")
    if processes or container is not None:
        rows = [row for one in views for row in _processes(one, no_trunc)]
        titles = ["GPU", "CONTAINER", "PID", "INSIDE", "MIB", "COMMAND"]
        column = 2
    else:
        rows = [_container(one, no_trunc or quiet) for one in views]
        titles = ["GPU", "CONTAINER", "NAME", "MIB", "LIMIT", "WEIGHT", "QUOTA", "PROCESSES"]
        titles += ["GROUP", "STATE", "PARKED"]
        column = 1
    if quiet:
        for word in dict.fromkeys(row[column] for row in rows):
            print(word)
        return
    _print([titles, *rows])


def _container(one: ContainerView, full: bool) -> list[str]:
    limit = one.status.memory_bytes
    return [
        str(one.status.card),
        one.status.id if full else one.status.name,
        "-" if one.name is None else clean(str(one.name)),
        str(one.used_bytes >> 20),
        "max" if limit is None else str(limit >> 20),
        str(one.status.weight),
        "-" if one.status.quota is None else str(one.status.quota),
        str(len(one.status.processes)),
        one.status.group or "-",
        one.state_word,
        str(one.status.parked_bytes >> 20),
    ]


def _processes(one: ContainerView, full: bool) -> list[list[str]]:
    return [
        [
            str(one.status.card),
            one.status.id if full else one.status.name,
            str(process.pid),
            str(process.container_pid or "-"),
            str(process.memory_bytes >> 20),
            clean(process.comm),
        ]
        for process in sorted(one.status.processes)
    ]


def _print(rows: list[list[str]]) -> None:
    widths = [max(width_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            word + " " * (width - width_of(word)) for word, width in zip(row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())
