# SPDX-License-Identifier: MIT
"""``cgpu cards``: what /etc/cgpu/cards.toml says of the cards, and whether they have it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pycgpu.tree import cards, procfs

from ._root import Root

app = typer.Typer(add_completion=False)


@app.command("cards")
def show(
    apply: Annotated[bool, typer.Option("--apply", help="Apply the file to the cards.")] = False,
    file: Annotated[str, typer.Option(help="The settings.")] = cards.PATH,
    proc: Annotated[str, typer.Option(hidden=True)] = "/proc",
    root: Root = None,
) -> None:
    """Show where cards differ from their settings, or write the settings to them."""
    tables = cards.load(file)
    tree = root or procfs.find_root()
    found = (cards.apply if apply else cards.pending)(tables, tree, proc)
    same = True
    for card, key, now, value in found:
        same = False
        print(f"GPU {card}: {key} {now} {'→' if apply else 'and not'} {value}")
    if same and not os.path.exists(file):
        print(f"{file} is absent: cards keep their defaults")
    elif same:
        print(f"all cards have what {file} says")
