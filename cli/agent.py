# SPDX-License-Identifier: MIT
"""``cgpu agent``: the daemon behind ``cgpu run`` and the OCI seccomp profile."""

from __future__ import annotations

import json
import logging
from typing import Annotated

import typer

from pycgpu.agent import client, server
from pycgpu.errors import CgpuError

from . import _number

app = typer.Typer(add_completion=False)


@app.command("agent")
def agent(
    idle: Annotated[
        float | None,
        typer.Option(
            help="End after so many seconds without a tenant.",
            metavar="SECONDS",
            parser=_number.seconds(0, 10**9),
        ),
    ] = None,
    force_branch: Annotated[
        bool, typer.Option(help="Go on with a driver branch that nobody has verified.")
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Print the counters of the one that runs.")
    ] = False,
) -> None:
    """Be the agent until a signal ends it."""
    if counters:
        try:
            print(json.dumps(client.ask({"op": "counters"})["counters"]))
        except (OSError, KeyError, ValueError):
            raise CgpuError(f"no agent answers at {client.SOCKET}") from None
        return
    logging.basicConfig(format="cgpud: %(message)s", level=logging.INFO)
    server.main(force_branch=force_branch, idle_s=idle)
