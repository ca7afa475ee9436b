# SPDX-License-Identifier: MIT
"""``cgpu-smi``: what every card and container has, may have and does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from pycgpu.cli._table import Look

from pycgpu import names, procfs, snapshot
from pycgpu.errors import CgpuError
from pycgpu.snapshot import ContainerView, Snapshot

#: Seconds between two screens where --watch names none.
INTERVAL_S = 2.0
INTERVAL_MIN_S = 0.1


class _App(typer.Typer):
    """Also a program of its own: an error is one line, and ``--watch`` may stand without value."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("args", with_interval(sys.argv[1:]))
        kwargs.setdefault("prog_name", "cgpu-smi")
        try:
            return super().__call__(*args, **kwargs)
        except CgpuError as error:
            print(f"cgpu-smi: {error}", file=sys.stderr)
            sys.exit(1)


app = _App(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def with_interval(arguments: list[str]) -> list[str]:
    """Give ``-w`` and ``--watch`` their default where no number follows."""
    given = []
    for index, word in enumerate(arguments):
        given.append(word)
        if word in ("-w", "--watch"):
            following = arguments[index + 1 : index + 2]
            if not (following and following[0].replace(".", "", 1).isdigit()):
                given.append(str(INTERVAL_S))
    return given


@app.command()
def smi(
    watch: Annotated[
        float | None,
        typer.Option("--watch", "-w", metavar="[SECONDS]", help="Again and again; live on a TTY."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", "-1", help="Once, also with --watch.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="With --watch: so often, then end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, schema cgpu-smi/1.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    query: Annotated[
        str | None, typer.Option(help="With --csv: fields; 'help' lists them.", metavar="A,B,…")
    ] = None,
    noheader: Annotated[bool, typer.Option("--noheader", help="CSV without titles.")] = False,
    nounits: Annotated[bool, typer.Option("--nounits", help="CSV without units.")] = False,
    ids: Annotated[
        str | None, typer.Option("--id", "-i", metavar="N,…", help="Only these cards, by minor.")
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(help="Only this container: id, beginning of it, name, pod; repeat for more."),
    ] = None,
    color: Annotated[
        bool | None, typer.Option("--color/--no-color", help="Default: on a TTY, not if NO_COLOR.")
    ] = None,
    ascii: Annotated[bool, typer.Option("--ascii", help="No character beyond ASCII.")] = False,
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
) -> None:
    """Show the cards under control, their containers and processes."""
    if query == "help":
        _list_fields()
        return
    if as_json and (as_csv or query):
        raise typer.BadParameter("--json and --csv are two formats: give one")
    if watch is not None and watch < INTERVAL_MIN_S:
        raise typer.BadParameter(f"--watch: at least {INTERVAL_MIN_S} seconds")
    tree = root or procfs.find_root()
    choose = _chooser(ids, container)
    look = _look(color, ascii)
    if once:
        watch = None
    plain = not (as_json or as_csv or query)
    if watch is not None and plain and count is None and _interactive():
        from pycgpu.cli import _live

        _live.run(tree, watch, choose, look)
        return
    show = _printer(as_json, as_csv or query is not None, query, noheader, nounits, look)
    try:
        for moment in _moments(tree, watch, count):
            show(choose(moment))
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever reads has seen enough; the interpreter must not try to flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _moments(tree: str, watch: float | None, count: int | None) -> Iterator[Snapshot]:
    done = 0
    while True:
        began = time.monotonic()
        yield snapshot.sample(tree)
        done += 1
        if watch is None or done == count:
            return
        time.sleep(max(0.0, began + watch - time.monotonic()))


def _printer(
    as_json: bool, as_csv: bool, query: str | None, noheader: bool, nounits: bool, look: Look
) -> Callable[[Snapshot], None]:
    if as_json:
        from pycgpu.cli import _json

        return lambda moment: print(json.dumps(_json.document(moment), ensure_ascii=False))
    if as_csv:
        from pycgpu.cli import _csv

        fields = _csv.DEFAULT if query is None else _csv.parse_query(query)
        if not noheader:
            print(_csv.header(fields))
        return lambda moment: _print_lines(_csv.rows(moment, fields, units=not nounits))
    from pycgpu.cli import _render

    return lambda moment: _print_lines(_render.report(moment, look))


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line)


def _list_fields() -> None:
    from pycgpu.cli import _csv

    for name, field in _csv.FIELDS.items():
        print(f"{name} [{field.unit}]" if field.unit else name)


def _chooser(ids: str | None, wanted: list[str] | None) -> Callable[[Snapshot], Snapshot]:
    """Return the function that leaves of a snapshot what was asked for."""
    cards = None
    if ids is not None:
        words = [word.strip() for word in ids.split(",")]
        if not all(word.isascii() and word.isdecimal() for word in words):
            raise typer.BadParameter(f"--id: write minors such as 0,1, not {ids!r}")
        cards = frozenset(int(word) for word in words)

    def fits(text: str, one: ContainerView) -> bool:
        return names.matches(text, one.status.id, one.status.name, one.name)

    def choose(moment: Snapshot) -> Snapshot:
        if cards is not None:
            there = {card.status.card.index for card in moment.cards}
            for missing in sorted(cards - there):
                raise CgpuError(f"no GPU {missing} under control; there are: {_list(there)}")
        views = [one for card in moment.cards for one in card.containers]
        for text in wanted or ():
            if not any(fits(text, one) for one in views):
                known = {one.status.name for one in views}
                raise CgpuError(f"no container {text!r} on a GPU; there are: {_list(known)}")
        chosen = list(wanted or ())
        test = (lambda one: any(fits(text, one) for text in chosen)) if chosen else None
        return moment.select(cards, test)

    return choose


def _list(found: set[Any]) -> str:
    return ", ".join(str(one) for one in sorted(found)) or "none"


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _look(color: bool | None, ascii: bool) -> Look:
    tty = sys.stdout.isatty()
    if color is None:
        color = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width = os.get_terminal_size(sys.stdout.fileno()).columns if tty else None
    # A terminal that does not know its width says 0.
    return Look(color, ascii or encoding != "utf8", width or None)


if __name__ == "__main__":
    app()
