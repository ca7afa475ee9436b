# SPDX-License-Identifier: MIT
"""What a shell may complete an argument to; silent where the tree cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.request.model import POLICIES
from pycgpu.tree import procfs, target
from pycgpu.tree.events import KINDS


def _root(ctx: typer.Context) -> str:
    """Return the tree that the line so far names, else the open door's."""
    return ctx.params.get("root") or procfs.find_root()


def containers(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return short ids and names of containers, each with its full id as help."""
    try:
        every = target.listing(_root(ctx))
    except CgpuError:
        return []
    words = []
    for one in every:
        words += [(short, one.id) for short in sorted(set(one.directories.values()))]
        if one.name is not None:
            words.append((str(one.name), one.id))
    return [(word, text) for word, text in words if word.startswith(incomplete)]


#: The container that a command is about.
Container = Annotated[
    str, typer.Argument(help="Id, beginning of it, name or pod.", autocompletion=containers)
]


def cards(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the cards' numbers and UUIDs, also behind a comma."""
    try:
        root = _root(ctx)
        there = procfs.card_indexes(root)
        uuids = [procfs.read_uuid(card, root) for card in there]
    except CgpuError:
        return []
    return _listed(incomplete, [*map(str, there), *filter(None, uuids)])


def policies(incomplete: str) -> list[str]:
    """Return the policies' names."""
    return [name for name in POLICIES if name.startswith(incomplete)]


def kinds(incomplete: str) -> list[str]:
    """Return the kinds of events."""
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def fields(incomplete: str) -> list[str]:
    """Return what ``--query`` takes, also behind a comma."""
    from ._csv import FIELDS

    return _listed(incomplete, FIELDS)


def fields_of_nvidia_smi(incomplete: str) -> list[str]:
    """Return what ``--query-gpu`` takes, also behind a comma."""
    from ._csv import OF_NVIDIA_SMI

    return _listed(incomplete, OF_NVIDIA_SMI)


def displays(incomplete: str) -> list[str]:
    """Return what ``--display`` takes, also behind a comma."""
    from ._query import DISPLAYS

    return _listed(incomplete, DISPLAYS)


def formats(incomplete: str) -> list[str]:
    """Return what ``--format`` takes."""
    if not incomplete.startswith("csv,"):
        return ["csv"] if "csv".startswith(incomplete) else []
    return _listed(incomplete, ("noheader", "nounits"))


def _listed(incomplete: str, words: Iterable[str]) -> list[str]:
    """Complete the last word of a list; the shell replaces all of it."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [before + comma + word for word in words if word.startswith(last) and word not in given]
