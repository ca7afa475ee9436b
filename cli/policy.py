# SPDX-License-Identifier: MIT
"""``cgpu policy``: show a card's policy, or change it."""

from __future__ import annotations

from typing import Annotated

import typer

from pycgpu.request.model import POLICIES
from pycgpu.tree import change, procfs, target

from ._complete import policies
from ._root import Root

app = typer.Typer(add_completion=False)

#: What each policy promises, by number; docs/policies.md says it in full.
MEANINGS = (
    "each gets 1/max_inst, always",
    "all containers that hold the GPU open get equal parts",
    "each gets its weight's part of all weights; alone, the whole card",
    "each gets weight/max_inst, always",
    "equal parts; containers with work get the idle time",
    "no control of compute; memory is isolated",
    "containers with a quota get it; the others share the rest",
    "parts by weight; containers with work get the idle time",
    "quota_min is guaranteed, quota is the most; between them by weight",
    "the highest priority first, whenever it has work; quota_min is guaranteed to the others",
)


@app.command()
def policy(
    gpu: Annotated[int | None, typer.Argument(help="Minor N of /dev/nvidiaN.")] = None,
    wanted: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="Number or name.", autocompletion=policies),
    ] = None,
    root: Root = None,
) -> None:
    """Show the policies of all cards, of one, or set that of one."""
    if gpu is None:
        tree = root or procfs.find_root()
        for card in procfs.card_indexes(tree):
            _show(card, tree)
        print()
        for number, (name, meaning) in enumerate(zip(POLICIES, MEANINGS, strict=True)):
            print(f"{number}  {name:<20} {meaning}")
        return
    policy = None if wanted is None else change.parse_policy(wanted)
    tree = root or procfs.find_root()
    target.check_card(gpu, procfs.card_indexes(tree))
    if policy is None:
        _show(gpu, tree)
        return
    planned = change.plan("policy", gpu, "", str(policy), tree)
    planned.apply()
    print(f"GPU {gpu}: policy {planned.shown}")


def _show(card: int, tree: str) -> None:
    number = procfs.read_policy(card, tree)
    name = POLICIES[number] if number < len(POLICIES) else "?"
    print(f"GPU {card}: policy {number} {name}")
