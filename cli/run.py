# SPDX-License-Identifier: MIT
"""``cgpu run``: a program on a part of a card, without a kernel module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pycgpu.request.model import POLICIES

from . import _run
from ._unknown_driver import Choice, UnknownDriver

app = typer.Typer(add_completion=False)
_POLICY = POLICIES[_run.DEFAULT_POLICY]


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
)
def run(
    program: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.")],
    mem: Annotated[
        str | None,
        typer.Option(help="Memory: 8G, 512MiB, bytes, 25%, max; one for each card: 8G,4G."),
    ] = None,
    quota: Annotated[
        str | None,
        typer.Option(
            help="At most so much of the card, 1 to 100 percent; or a list. In a group: of its"
            " threads."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="Weight among the containers that compute; or a list."
            " A group has its members' sum."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"For the card, unless somebody set it by hand; default {_POLICY}"),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(help="Card: N of /dev/nvidiaN or UUID; repeat, or a list; default 0."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tenant; default: run-PID.")] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            help="Run the program as this user, `root` too; default: the user that called sudo.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Use the card at the same time as this user's other programs of that group."
        ),
    ] = None,
    uvm_disable: Annotated[bool, typer.Option(help="Refuse managed memory.")] = False,
    idle_park: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Idle time after which it may be parked: 90s, 5m, 1h; off."
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="File with a job's settings in Volcengine's words, instead of the rest."),
    ] = None,
    unknown_driver: UnknownDriver = Choice.REFUSED,
) -> None:
    """
    Run a program on a part of a card; it keeps its exit status and its signals.

    Under sudo the program runs as the user who called it, in that user's environment. Status 125:
    cgpu itself failed; 126: the program cannot be executed; 127: it is not there.
    """
    _run.run(
        _run.Options(
            *(mem, quota, weight, policy, tuple(gpu or ()), name, user, uvm_disable),
            *(None if settings is None else str(settings), unknown_driver, group, idle_park),
        ),
        program,
    )
