# SPDX-License-Identifier: MIT
"""``cgpu-smi`` and ``cgpu smi`` as typer's command, of :data:`pycgpu.cli._smi_options.SAID`."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, get_type_hints

import typer

from . import _complete, _smi
from ._smi_options import SAID, Options

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def _parameters() -> list[inspect.Parameter]:
    found = []
    types = get_type_hints(Options)
    for field, said in SAID.items():
        default = Options._field_defaults[field]
        # Several are a list to typer.
        several = types[field] == tuple[str, ...]
        option = typer.Option(
            *said.words,
            help=said.help,
            metavar=said.metavar,
            autocompletion=None if said.complete is None else getattr(_complete, said.complete),
            min=said.least,
        )
        found.append(
            inspect.Parameter(
                field,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if several else default,
                annotation=Annotated[list[str] | None if several else types[field], option],
            )
        )
    return found


def smi(**given: Any) -> None:
    """Show the cards under control, their containers and processes."""
    given["container"] = tuple(given["container"] or ())
    try:
        status = _smi.run(Options(**given))
    except _smi.UsageError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(status)


# typer asks for both.
smi.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
smi.__annotations__ = {one.name: one.annotation for one in _parameters()}
app.command()(smi)
