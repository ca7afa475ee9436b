# SPDX-License-Identifier: MIT
"""``cgpu set``: change what a running container may have."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import pycgpu
from pycgpu.tree import change, procfs

from ._complete import Container
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command("set")
def set_values(
    container: Container,
    weight: Annotated[str | None, typer.Option(help="Weight, 0 to the card's max_inst.")] = None,
    quota: Annotated[str | None, typer.Option(help="Percent of the card; 0 for none.")] = None,
    quota_min: Annotated[
        str | None, typer.Option("--quota-min", help="Guaranteed percent; 0 for none.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="0 to 15, the higher goes first.")] = None,
    mem: Annotated[
        str | None, typer.Option("--mem", "--memory", help="Limit, such as 8GiB or 8589934592.")
    ] = None,
    idle_park: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Idle time after which it may be parked: 90s, 5m, 1h; off."
        ),
    ] = None,
    gpu: Annotated[
        int | None, typer.Option(help="On this card only; default: on all it has.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes and make none.")
    ] = False,
    root: Root = None,
) -> None:
    """Change what a running container may have; what is refused leaves everything as it was."""
    if (weight, quota, quota_min, priority, mem, idle_park) == (None,) * 6:
        raise typer.BadParameter("nothing to set: give --weight, --quota, --mem or another")
    changed = pycgpu.set(
        container,
        card=gpu,
        memory=mem,
        weight=weight,
        quota=quota,
        quota_min=quota_min,
        priority=priority,
        idle_park=idle_park,
        dry_run=dry_run,
        root=root,
    )
    for one in changed:
        print(f"GPU {one.card}, {one.directory}: {one.what} {one.shown}")
    if not dry_run:
        for one in changed:
            if not one.what.startswith("quota"):
                continue
            tree = root or procfs.find_root()
            if (percent := change.overcommitted(one.what, one.card, tree)) is not None:
                print(
                    f"cgpu: {one.what} of all on card {one.card} is {percent} % now:"
                    " no container can have all of it",
                    file=sys.stderr,
                )
    compute = (("weight", weight), ("quota", quota), ("quota_min", quota_min))
    asked = [what for what, text in compute if text is not None]
    if asked and not procfs.governs(root or procfs.find_root()):
        told = " and ".join(asked)
        print(f"cgpu: nothing here enforces {told}: modprobe cgpu_rm", file=sys.stderr)
