# SPDX-License-Identifier: MIT
"""
The options of ``cgpu-smi``: what each sets, its words, and what is said of it.

They stand here alone: :mod:`pycgpu.cli.smi` reads plain ones by it, before typer is imported, and
:mod:`pycgpu.cli.smi_command` makes typer's command of it.
"""

from __future__ import annotations

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from pycgpu.request.record import Record as NamedTuple


class Options(NamedTuple):
    """What the options of a command line set; :data:`SAID` has the words of each."""

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
    everything: bool = False
    display: str | None = None
    compact: bool = False


class Said(NamedTuple):
    """
    How an option is written.

    metavar: what its value is called, where that is not its type.
    complete: the function of :mod:`pycgpu.cli._complete` for its values.
    least: the smallest number that it takes.
    """

    words: tuple[str, ...]
    help: str
    metavar: str | None = None
    complete: str | None = None
    least: int | None = None


#: By the field, in the order of the help. --loop, -l and -q are nvidia-smi's.
SAID = {
    "watch": Said(
        ("--watch", "-w", "--loop", "-l"), "Repeat; a live view on a TTY.", metavar="[SECONDS]"
    ),
    "once": Said(("--once", "-1"), "Once, also with --watch."),
    "count": Said(("--count", "-c"), "With --watch: end after this many readings.", least=1),
    "as_json": Said(("--json",), "JSON, schema cgpu-smi/1."),
    "as_csv": Said(("--csv",), "Comma-separated values."),
    "query": Said(
        ("--query",), "With --csv: fields; 'help' lists them.", metavar="A,B,…", complete="fields"
    ),
    "query_gpu": Said(
        ("--query-gpu",),
        "Fields of cards by nvidia-smi's names.",
        metavar="A,B,…",
        complete="fields_of_nvidia_smi",
    ),
    "form": Said(("--format",), "csv[,noheader][,nounits], as nvidia-smi.", complete="formats"),
    "noheader": Said(("--noheader",), "CSV without titles."),
    "nounits": Said(("--nounits",), "CSV without units."),
    "ids": Said(
        ("--id", "-i"), "Only these cards, by minor or UUID.", metavar="N,…", complete="cards"
    ),
    "container": Said(
        ("--container",),
        "Only this container: id, beginning of it, name, pod; repeat for more.",
        complete="containers",
    ),
    "color": Said(("--color/--no-color",), "Default: on a TTY, not if NO_COLOR."),
    "ascii": Said(("--ascii",), "No character beyond ASCII."),
    "root": Said(("--root",), "The tree; default: that of the module or the agent."),
    "list_gpus": Said(("--list-gpus", "-L"), "A line a card and container, with its id."),
    "version": Said(("--version",), "Print the version and exit."),
    "everything": Said(("-q",), "All that is known, a value a line, as nvidia-smi -q."),
    "display": Said(
        ("--display", "-d"),
        "With -q: only these sections, e.g. CLOCK,ECC.",
        metavar="A,B,…",
        complete="displays",
    ),
    "compact": Said(("--compact",), "A line a card."),
}


def of_type(annotation: str) -> dict[str, str]:
    """Return the words of all options of a type, with the field that each sets."""
    types = Options.__annotations__
    return {
        word: field
        for field, said in SAID.items()
        if types[field] == annotation
        for word in said.words
    }
