# SPDX-License-Identifier: MIT
"""``cgpu completion``: the shell's part of completing ``cgpu`` and ``cgpu-smi``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


class Shell(StrEnum):
    """Shells that can complete."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(help='For bash: eval "$(cgpu completion bash)".')],
) -> None:
    """Print the script by which a shell completes both programs' words."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it exports none

    if shell is Shell.zsh:
        # A start file of the user's own need not have done this.
        print("(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }")
    for program in ("cgpu", "cgpu-smi"):
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        print(get_completion_script(prog_name=program, complete_var=variable, shell=shell.value))
