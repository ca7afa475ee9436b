# SPDX-License-Identifier: MIT
"""``cgpu destroy``: remove a container's registration."""

from __future__ import annotations

import typer

from pycgpu.tree import procfs, target

from ._complete import Container
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command()
def destroy(
    container: Container,
    root: Root = None,
) -> None:
    """Take a container's part of its cards back; refused while a process of it holds a card."""
    tree = root or procfs.find_root()
    found = target.find(container, tree)
    procfs.destroy(found.id, tree)
    print(f"{found.id} has no part of a card any more")
