# SPDX-License-Identifier: MIT
"""How a demo tells its story: commands, what they printed, and claims that must hold."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

#: Where nobody reads at a terminal.
WIDTH = 100
console = Console(highlight=False)
if not console.is_terminal:
    console.width = WIDTH


class NotAsSaid(Exception):
    """A step's outcome is not what the demo promises."""


def check(true: object, claim: str) -> None:
    """Print a claim that holds, or end the demo."""
    if not true:
        raise NotAsSaid(claim)
    console.print(f"  [green]✔[/] {claim}")


def title(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left")


def shell(command: str, output: str = "") -> None:
    """Show a command as one types it, and what it printed."""
    # What is to be pasted is not broken by a narrow terminal.
    console.print("  [bold cyan]#[/] ", end="")
    console.print(command, markup=False, soft_wrap=True)
    printed(output)


def printed(output: str) -> None:
    """Show what a command printed; a line that is too long ends with an ellipsis."""
    for line in output.rstrip("\n").splitlines():
        console.print(f"    {line}", markup=False, overflow="ellipsis", no_wrap=True)


def waits(what: str) -> None:
    """Say what takes a while now, so that nobody takes it for an end."""
    console.print(f"    {what} …", style="dim", markup=False)


def no_room(path: object, value: int, write: Callable[[], object]) -> None:
    """Show that *write*, of *value* to the node at *path*, is more than the card has left."""
    refused = ""
    try:
        write()
    except OSError as error:
        refused = str(error.strerror)
    shell(f"echo {value} > {path}", f"write error: {refused}")
    check(refused == "No space left on device", "what the card does not have is refused")


def bars(first: float, second: float) -> str:
    """Two tenants' percent of the card, a block for four."""
    return "█" * round(first / 4) + "░" * round(second / 4)


def tell(story: Callable[[], None], *failures: type[Exception]) -> int:
    """
    Run *story*, say how it ended, and return the status to exit with.

    Args:
        failures: what may go wrong beside a claim and is told in one line.
    """
    started_s = time.monotonic()
    try:
        story()
    except NotAsSaid as claim:
        console.print(f"\n  [bold red]✘ not as said:[/] {claim}")
        return 1
    except failures as error:
        console.print(f"\n  [bold red]✘[/] {error}")
        return 1
    console.print(f"\n[bold green]Everything as said[/], in {time.monotonic() - started_s:.0f} s.")
    return 0
