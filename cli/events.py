# SPDX-License-Identifier: MIT
"""``cgpu events``: what happened, from the tree's ring of events, and what happens."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from pycgpu.tree import procfs, target
from pycgpu.tree.events import Event, parse

from ._complete import containers
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
        list[str] | None, typer.Option(help="Events of this kind alone (oom, refused, …); repeat.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
) -> None:
    """Show the last events: containers that come and go, refusals, changes."""
    tree = root or procfs.find_root()
    chosen = None if container is None else target.find(container, tree).id
    descriptor = procfs.open_events(tree)
    try:
        for line in _lines(descriptor, follow):
            event = parse(line)
            if chosen is not None and event.id != chosen:
                continue
            if kind and event.kind not in kind:
                continue
            print(_json(event) if as_json else _text(event), flush=follow)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        os.close(descriptor)


def _lines(descriptor: int, follow: bool) -> Iterator[str]:
    rest = b""
    while True:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            if not follow:
                return
            select.select([descriptor], [], [])
            continue
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _text(event: Event) -> str:
    stamp = "-"
    if event.time_ns is not None:
        seconds = event.time_ns / 1e9
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        stamp += f".{event.time_ns // 1_000_000 % 1000:03d}"
    return f"{stamp}  {clean(event.kind):<8} {clean(event.text)}".rstrip()


def _json(event: Event) -> str:
    return json.dumps(
        {"time_ns": event.time_ns, "event": event.kind, "text": event.text, **event.values}
    )
