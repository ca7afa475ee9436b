# SPDX-License-Identifier: MIT
"""
``cgpu-smi`` as a program of its own.

It is run often and by impatient people. typer alone takes longer to import and to set up than
everything else here together, so options that need no checking are read without it; all others,
``--help`` and every mistake are typer's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from pycgpu.errors import CgpuError

from . import _locale, _output, _smi

#: Seconds between two screens where --watch names none.
INTERVAL_S = 2.0

_FLAGS = {
    "--json": ("as_json", True),
    "--csv": ("as_csv", True),
    "--noheader": ("noheader", True),
    "--nounits": ("nounits", True),
    "--once": ("once", True),
    "-1": ("once", True),
    "--ascii": ("ascii", True),
    "--color": ("color", True),
    "--no-color": ("color", False),
    "--list-gpus": ("list_gpus", True),
    "-L": ("list_gpus", True),
    "--version": ("version", True),
    "-q": ("everything", True),
    "--compact": ("compact", True),
}
#: The last two as nvidia-smi has them.
_WATCH = ("-w", "--watch", "-l", "--loop")
_VALUES = {
    "--query": "query",
    "--query-gpu": "query_gpu",
    "--format": "form",
    "--id": "ids",
    "-i": "ids",
    "--root": "root",
    "--display": "display",
    "-d": "display",
}


def app() -> None:
    """Run ``cgpu-smi``; an error is one line."""
    _output.open_streams()
    _locale.obey()
    if "_CGPU_SMI_COMPLETE" in os.environ:
        complete()
    try:
        with _output.told("cgpu-smi"):
            _run(with_interval(sys.argv[1:]))
    except CgpuError as error:
        print(f"cgpu-smi: {error}", file=sys.stderr)
        sys.exit(1)


def _run(arguments: list[str]) -> None:
    options = parse(arguments)
    if options is not None:
        # A mistake is said by typer, as all are.
        with contextlib.suppress(_smi.UsageError):
            sys.exit(_smi.run(options))
    from .smi_command import app as command

    command(args=arguments, prog_name="cgpu-smi")


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


def parse(arguments: list[str]) -> _smi.Options | None:
    """Return the options, or None where typer must look at them."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            key, found_value = _FLAGS[word]
            found[key] = found_value
        elif name in _VALUES and (equals or rest) and not (equals and name in ("-i", "-d")):
            found[_VALUES[name]] = value if equals else rest.pop(0)
        elif name in _WATCH and not equals and rest:
            found["watch"] = float(rest.pop(0))
        else:
            return None
    return _smi.Options(**found)


if __name__ == "__main__":
    app()
