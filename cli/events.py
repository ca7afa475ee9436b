# SPDX-License-Identifier: MIT
"""``cgpu events``: what happened, from the tree's ring of events, and what happens."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

import pycgpu
from pycgpu.tree.events import KINDS, Event

from . import _output
from ._complete import containers, kinds
from ._root import Root
from ._table import clean

app = typer.Typer(add_completion=False)


@app.command()
def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")
    ] = False,
    container: Annotated[
        str | None,
        typer.Option(help="Events of this container alone.", autocompletion=containers),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Events of this kind alone (oom, refused, …); repeat.", autocompletion=kinds
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    root: Root = None,
) -> None:
    """Show the last events: containers that come and go, refusals, changes."""
    for word in kind or ():
        if word not in KINDS:
            raise typer.BadParameter(f"no kind {word!r}; there are: {', '.join(KINDS)}")
    try:
        for event in pycgpu.events(follow=follow, container=container, root=root):
            if kind and event.kind not in kind:
                continue
            print(_json(event) if as_json else _text(event), flush=follow)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        _output.drop()


def _text(event: Event) -> str:
    stamp = "-"
    if event.time_ns is not None:
        seconds = event.time_ns / 1e9
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        stamp += f".{event.time_ns // 1_000_000 % 1000:03d}"
    return f"{stamp}  {clean(event.kind):<8} {clean(event.text)}".rstrip()


#: What is always a number; an id may look like one.
_NUMBERS = {"gpu", "pid", "bytes", "minor", "nr", "lines"}


def _json(event: Event) -> str:
    values = {
        key: int(value) if key in _NUMBERS and value.isdecimal() else value
        for key, value in event.values.items()
    }
    return json.dumps({**values, "time_ns": event.time_ns, "event": event.kind, "text": event.text})
