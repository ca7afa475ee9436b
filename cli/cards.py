# SPDX-License-Identifier: MIT
"""``cgpu cards``: what /etc/cgpu/cards.toml says of the cards, and whether they have it."""

from __future__ import annotations

from typing import Annotated

import typer

from pycgpu.tree import cards, procfs

app = typer.Typer(add_completion=False)


@app.command("cards")
def show(
    apply: Annotated[bool, typer.Option("--apply", help="Give the cards what they lack.")] = False,
    file: Annotated[str, typer.Option(help="The settings.")] = cards.PATH,
    proc: Annotated[str, typer.Option(hidden=True)] = "/proc",
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
) -> None:
    """Show where cards differ from their settings, or write the settings to them."""
    tables = cards.load(file)
    tree = root or procfs.find_root()
    found = (cards.apply if apply else cards.pending)(tables, tree, proc)
    for card, key, now, value in found:
        print(f"GPU {card}: {key} {now} {'→' if apply else 'and not'} {value}")
