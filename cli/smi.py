# SPDX-License-Identifier: MIT
"""
``cgpu-smi`` as a program of its own.

It is run often and by impatient people, so plain options are read by :mod:`pycgpu.cli._plain`.
"""

from __future__ import annotations

import os
import sys

from pycgpu.errors import CgpuError

from . import _locale, _output, _plain
from ._smi_options import SAID, Options, of_type

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pycgpu.tree.nvml import Nvml

    from ._smi import Early

#: Seconds between two screens where --watch names none.
INTERVAL_S = 2.0

#: Of an option without a value, what it sets and to what: "--color/--no-color" are two.
_FLAGS = {
    word: (field, not position)
    for kind in ("bool", "bool | None")
    for words, field in of_type(kind).items()
    for position, word in enumerate(words.split("/"))
}
_VALUES = of_type("str | None")
_WATCH = SAID["watch"].words
#: Screens that show what NVML tells on every call; the others may ask it for more, or again.
_OWN_QUESTIONS = frozenset(("as_json", "as_csv", "query", "query_gpu", "everything", "watch"))


def app() -> None:
    """Run ``cgpu-smi``; an error is one line."""
    _output.open_streams()
    _locale.obey()
    if "_CGPU_SMI_COMPLETE" in os.environ:
        complete()
    try:
        with _output.Told("cgpu-smi"):
            _run(with_interval(sys.argv[1:]))
    except CgpuError as error:
        print(f"cgpu-smi: {error}", file=sys.stderr)
        sys.exit(1)


def _run(arguments: list[str]) -> None:
    found = parse(arguments)
    status = None if found is None else _shown(found)
    if status is not None:
        sys.exit(status)
    from .smi_command import app as command

    command(args=arguments, prog_name="cgpu-smi")


def _shown(found: dict[str, Any]) -> int | None:
    """Show what plain options ask for; return the exit status, None: typer says the mistake."""
    early = _begin(found)
    from . import _smi

    try:
        return _smi.run(Options(**found), early)
    except _smi.UsageError:
        return None


def _begin(found: dict[str, Any]) -> Early:
    """Begin what takes its time, which passes while the rest of the program is imported."""
    if "version" in found:
        return None, None
    boards = _asked() if _OWN_QUESTIONS.isdisjoint(found) else None
    from pycgpu.tree import counters, procfs

    try:
        return counters.read(found.get("root") or procfs.find_root()), boards
    except CgpuError:
        return None, boards  # said where all is read


def _asked() -> Callable[[], Nvml]:
    """Ask NVML in a thread, for it waits for the card; return what waits for the answer."""
    # What threading adds to it takes as long to import as all that is done here.
    import _thread

    from pycgpu.tree import nvml_library

    answers: list[Nvml] = []
    done = _thread.allocate_lock()
    done.acquire()

    def ask() -> None:
        try:
            nvml_library.begin()
            from pycgpu.tree import nvml

            answers.append(nvml.read())
        finally:
            done.release()

    # A mistake of the caller's is said without waiting for it.
    _thread.start_new_thread(ask, ())

    def answer() -> Nvml:
        done.acquire()
        return answers[0]

    return answer


def complete() -> None:
    """Answer a shell that completes a line, and end."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # it exports none

    from .smi_command import app as command

    completion_init()
    command(prog_name="cgpu-smi")


def with_interval(arguments: list[str]) -> list[str]:
    """Give ``-w`` and its like their default where no number follows."""
    given = []
    for index, word in enumerate(arguments):
        given.append(word)
        if word in _WATCH:
            following = arguments[index + 1 : index + 2]
            number = "".join(following).replace(".", "", 1)
            if not (number.isascii() and number.isdigit()):
                given.append(str(INTERVAL_S))
    return given


def parse(arguments: list[str]) -> dict[str, Any] | None:
    """Return the options by name, or None where typer must look at them."""
    plain = _plain.read(arguments, _FLAGS, _VALUES | dict.fromkeys(_WATCH, "watch"))
    if plain is None or plain[1]:
        return None
    found, _ = plain
    if "watch" in found:
        try:
            found["watch"] = float(found["watch"])
        except ValueError:
            return None
    return found


if __name__ == "__main__":
    app()
