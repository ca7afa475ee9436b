# SPDX-License-Identifier: MIT
"""The options of ``cgpu-smi`` and ``cgpu smi``, with their help and their checks."""

from __future__ import annotations

from typing import Annotated

import typer

from . import _complete, _smi

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def smi(
    watch: Annotated[
        float | None,
        typer.Option(
            *("--watch", "-w", "--loop", "-l"),
            metavar="[SECONDS]",
            help="Again and again; live on a TTY.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", "-1", help="Once, also with --watch.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="With --watch: so often, then end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, schema cgpu-smi/1.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    query: Annotated[
        str | None,
        typer.Option(
            help="With --csv: fields; 'help' lists them.",
            metavar="A,B,…",
            autocompletion=_complete.fields,
        ),
    ] = None,
    query_gpu: Annotated[
        str | None,
        typer.Option(
            "--query-gpu",
            help="Fields of cards by nvidia-smi's names.",
            metavar="A,B,…",
            autocompletion=_complete.fields_of_nvidia_smi,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv[,noheader][,nounits], as nvidia-smi.",
            autocompletion=_complete.formats,
        ),
    ] = None,
    noheader: Annotated[bool, typer.Option("--noheader", help="CSV without titles.")] = False,
    nounits: Annotated[bool, typer.Option("--nounits", help="CSV without units.")] = False,
    ids: Annotated[
        str | None,
        typer.Option(
            *("--id", "-i"),
            metavar="N,…",
            help="Only these cards, by minor or UUID.",
            autocompletion=_complete.cards,
        ),
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this container: id, beginning of it, name, pod; repeat for more.",
            autocompletion=_complete.containers,
        ),
    ] = None,
    color: Annotated[
        bool | None, typer.Option("--color/--no-color", help="Default: on a TTY, not if NO_COLOR.")
    ] = None,
    ascii: Annotated[bool, typer.Option("--ascii", help="No character beyond ASCII.")] = False,
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
    list_gpus: Annotated[
        bool, typer.Option("--list-gpus", "-L", help="A line a card and container, with its id.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    everything: Annotated[
        bool, typer.Option("-q", help="All that is known, a value a line, as nvidia-smi -q.")
    ] = False,
    display: Annotated[
        str | None,
        typer.Option(
            *("--display", "-d"),
            metavar="A,B,…",
            help="With -q: only these sections, e.g. CLOCK,ECC.",
            autocompletion=_complete.displays,
        ),
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="A line a card.")] = False,
) -> None:
    """Show the cards under control, their containers and processes."""
    options = _smi.Options(
        *(watch, once, count, as_json, as_csv, query, query_gpu, form, noheader, nounits, ids),
        *(tuple(container or ()), color, ascii, root, list_gpus, version),
        *(everything, display, compact),
    )
    try:
        status = _smi.run(options)
    except _smi.UsageError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(status)
