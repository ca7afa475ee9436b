# SPDX-License-Identifier: MIT
"""What ``cgpu-smi`` does with its options; knows no typer, see :mod:`pycgpu.cli.smi`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pycgpu import __version__
from pycgpu.errors import CgpuError
from pycgpu.request.size import is_number
from pycgpu.tree import authority, names, procfs, snapshot, target
from pycgpu.tree.counters import Counters
from pycgpu.tree.nvml import Nvml
from pycgpu.tree.snapshot import ContainerView, Snapshot

from . import _output
from ._smi_options import Options
from ._table import Look

#: What began when the program started: counters, and a question to NVML that is waited for.
Early: TypeAlias = tuple[Counters | None, Callable[[], Nvml] | None]

INTERVAL_MIN_S = 0.1
INTERVAL_MAX_S = 86400


class UsageError(Exception):
    """Options that do not go together, or a value that is none; nothing has been printed."""


def run(options: Options, early: Early = (None, None)) -> int:
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
    displays = _displays(options)
    watch = options.watch
    if watch is not None and not INTERVAL_MIN_S <= watch <= INTERVAL_MAX_S:
        raise UsageError(f"--watch: {INTERVAL_MIN_S} to {INTERVAL_MAX_S} seconds")
    choose = _chooser(options.ids, options.container)
    if options.root is None and (both := authority.complaint()) is not None:
        print(f"cgpu: {both}", file=sys.stderr)
    tree = options.root or procfs.find_root()
    look = _look(options.color, options.ascii)
    if options.once:
        watch = None
    csv = options.as_csv or options.query or options.query_gpu
    plain = not (options.as_json or csv or options.list_gpus or options.everything)
    if watch is not None and plain and options.count is None and _interactive():
        from . import _live

        _live.run(tree, watch, choose, look, options.compact)
        return 0
    show, detailed = _printer(options, look, displays)
    try:
        for moment in _moments(tree, watch, options.count, detailed, early):
            if options.list_gpus and not moment.cards:
                raise CgpuError(
                    "no card is under control: `sudo cgpu doctor` says why and looks again"
                )
            show(choose(moment))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads has seen enough; the interpreter must not try to flush once more.
        _output.drop()
    return 0


def _moments(
    tree: str, watch: float | None, count: int | None, detailed: bool, early: Early
) -> Iterator[Snapshot]:
    done = 0
    before, boards = early
    while True:
        began = time.monotonic()
        yield snapshot.sample(tree, before=before, boards=boards, detailed=detailed)
        before = boards = None
        done += 1
        if watch is None or done == count:
            return
        time.sleep(max(0.0, began + watch - time.monotonic()))


def _printer(
    options: Options, look: Look, displays: tuple[str, ...]
) -> tuple[Callable[[Snapshot], None], bool]:
    """Return what prints a snapshot, and whether it takes what NVML tells only when asked."""
    if options.as_json:
        from . import _json

        # Where the locale has no more than ASCII, JSON has escapes for the rest.
        plain = look.ascii
        return lambda moment: print(_json.text(_json.document(moment), plain=plain)), True
    if options.list_gpus:
        from . import _render

        return lambda moment: _print_lines(_render.listing(moment)), False
    if options.everything:
        from . import _query

        return lambda moment: _print_lines(_query.report(moment, displays)), True
    if options.as_csv or options.query is not None or options.query_gpu is not None:
        from . import _csv

        if options.query_gpu is not None:
            query = _csv.parse_query_gpu(options.query_gpu)
        else:
            query = _csv.DEFAULT if options.query is None else _csv.parse_query(options.query)
        if not options.noheader:
            print(_csv.header(query))
        units = not options.nounits
        detailed = any(field.detailed for _, field in query)
        return lambda moment: _print_lines(_csv.rows(moment, query, units=units)), detailed
    from . import _render

    if options.compact:
        return lambda moment: _print_lines(_render.compact(moment, look)), False
    return lambda moment: _print_lines(_render.report(moment, look)), False


def _displays(options: Options) -> tuple[str, ...]:
    """``-d MEMORY,CLOCK``: the sections of ``-q`` to print; none for all."""
    if options.display is None:
        return ()
    if not options.everything:
        raise UsageError("--display: chooses sections of -q: give -q, too")
    from ._query import DISPLAYS

    words = [word.strip().upper() for word in options.display.split(",")]
    for word in words:
        if word not in DISPLAYS:
            raise UsageError(f"--display: no section {word!r}; there are: {', '.join(DISPLAYS)}")
    return tuple(name for name in DISPLAYS if name in words)


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
    words = [] if ids is None else [word.strip() for word in ids.split(",")]
    for word in words:
        if not (is_number(word) or (word.isascii() and word.upper().startswith("GPU-"))):
            raise UsageError(f"--id: write minors such as 0,1, or UUIDs, not {word!r}")

    def fits(text: str, one: ContainerView) -> bool:
        return names.matches(text, one.status.id, one.status.name, one.name)

    def choose(moment: Snapshot) -> Snapshot:
        cards = None if ids is None else frozenset(_minor(word, moment) for word in words)
        views = [one for card in moment.cards for one in card.containers]
        for text in wanted:
            if not any(fits(text, one) for one in views):
                known = {one.status.name for one in views}
                raise CgpuError(f"no container {text!r} on a GPU; there are: {_list(known)}")
        test = (lambda one: any(fits(text, one) for text in wanted)) if wanted else None
        return moment.select(cards, test)

    return choose


def _minor(word: str, moment: Snapshot) -> int:
    """Return the minor of a card given by it or by UUID. CgpuError: there is no such card."""
    by_uuid = {card.status.card.uuid.lower(): card.status.card.index for card in moment.cards}
    if not is_number(word):
        if word.lower() not in by_uuid:
            raise CgpuError(f"no GPU {word} under control; `cgpu-smi -L` lists them")
        return by_uuid[word.lower()]
    target.check_card(int(word), by_uuid.values())
    return int(word)


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
