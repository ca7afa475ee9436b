# SPDX-License-Identifier: MIT
"""What ``cgpu-smi`` does with its options; knows no typer, see :mod:`pycgpu.cli.smi`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pycgpu import __version__
from pycgpu.errors import CgpuError
from pycgpu.tree import names, procfs, snapshot, target
from pycgpu.tree.snapshot import ContainerView, Snapshot

from ._table import Look

INTERVAL_MIN_S = 0.1


class UsageError(Exception):
    """Options that do not go together, or a value that is none; nothing has been printed."""


class Options(NamedTuple):
    """As the command line has them; :func:`pycgpu.cli.smi_command.smi` says what each means."""

    watch: float | None = None
    once: bool = False
    count: int | None = None  # type: ignore[assignment]  # hides tuple.count
    as_json: bool = False
    as_csv: bool = False
    query: str | None = None
    query_gpu: str | None = None
    form: str | None = None
    noheader: bool = False
    nounits: bool = False
    ids: str | None = None
    container: tuple[str, ...] = ()
    color: bool | None = None
    ascii: bool = False
    root: str | None = None
    list_gpus: bool = False
    version: bool = False


def run(options: Options) -> int:
    """Print or show what is asked for; return the exit status."""
    if options.version:
        print(f"cgpu-smi {__version__}")
        return 0
    if options.query == "help" or options.query_gpu == "help":
        _list_fields()
        return 0
    if options.form is not None:
        options = _with_format(options, options.form)
    if options.query and options.query_gpu:
        raise UsageError("--query and --query-gpu are two lists: give one")
    if options.as_json and (options.as_csv or options.query or options.query_gpu):
        raise UsageError("--json and --csv are two formats: give one")
    watch = options.watch
    if watch is not None and watch < INTERVAL_MIN_S:
        raise UsageError(f"--watch: at least {INTERVAL_MIN_S} seconds")
    choose = _chooser(options.ids, options.container)
    tree = options.root or procfs.find_root()
    look = _look(options.color, options.ascii)
    if options.once:
        watch = None
    csv = options.as_csv or options.query or options.query_gpu
    plain = not (options.as_json or csv or options.list_gpus)
    if watch is not None and plain and options.count is None and _interactive():
        from . import _live

        _live.run(tree, watch, choose, look)
        return 0
    show = _printer(options, look)
    try:
        for moment in _moments(tree, watch, options.count):
            show(choose(moment))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads has seen enough; the interpreter must not try to flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _moments(tree: str, watch: float | None, count: int | None) -> Iterator[Snapshot]:
    done = 0
    while True:
        began = time.monotonic()
        yield snapshot.sample(tree)
        done += 1
        if watch is None or done == count:
            return
        time.sleep(max(0.0, began + watch - time.monotonic()))


def _printer(options: Options, look: Look) -> Callable[[Snapshot], None]:
    if options.as_json:
        from . import _json

        return lambda moment: print(json.dumps(_json.document(moment), ensure_ascii=False))
    if options.list_gpus:
        from . import _render

        return lambda moment: _print_lines(_render.listing(moment))
    if options.as_csv or options.query is not None or options.query_gpu is not None:
        from . import _csv

        if options.query_gpu is not None:
            fields = _csv.parse_query_gpu(options.query_gpu)
        else:
            fields = _csv.DEFAULT if options.query is None else _csv.parse_query(options.query)
        if not options.noheader:
            print(_csv.header(fields))
        units = not options.nounits
        return lambda moment: _print_lines(_csv.rows(moment, fields, units=units))
    from . import _render

    return lambda moment: _print_lines(_render.report(moment, look))


def _with_format(options: Options, form: str) -> Options:
    """``--format=csv,noheader,nounits``, as nvidia-smi has it."""
    words = form.split(",")
    if words[0] != "csv" or not {"noheader", "nounits"}.issuperset(words[1:]):
        raise UsageError(f"--format: write csv[,noheader][,nounits], not {form!r}")
    return options._replace(
        as_csv=True,
        noheader=options.noheader or "noheader" in words,
        nounits=options.nounits or "nounits" in words,
    )


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line)


def _list_fields() -> None:
    from . import _csv

    for name, field in _csv.FIELDS.items():
        print(f"{name} [{field.unit}]" if field.unit else name)


def _chooser(ids: str | None, wanted: tuple[str, ...]) -> Callable[[Snapshot], Snapshot]:
    """Return the function that leaves of a snapshot what was asked for."""
    cards = None
    if ids is not None:
        words = [word.strip() for word in ids.split(",")]
        if not all(word.isascii() and word.isdecimal() for word in words):
            raise UsageError(f"--id: write minors such as 0,1, not {ids!r}")
        cards = frozenset(int(word) for word in words)

    def fits(text: str, one: ContainerView) -> bool:
        return names.matches(text, one.status.id, one.status.name, one.name)

    def choose(moment: Snapshot) -> Snapshot:
        if cards is not None:
            there = {card.status.card.index for card in moment.cards}
            for card in sorted(cards):
                target.check_card(card, there)
        views = [one for card in moment.cards for one in card.containers]
        for text in wanted:
            if not any(fits(text, one) for one in views):
                known = {one.status.name for one in views}
                raise CgpuError(f"no container {text!r} on a GPU; there are: {_list(known)}")
        test = (lambda one: any(fits(text, one) for text in wanted)) if wanted else None
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
