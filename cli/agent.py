# SPDX-License-Identifier: MIT
"""``cgpu agent``: the daemon behind ``cgpu run`` and the OCI seccomp profile."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Annotated

import typer

from pycgpu.agent import client, door, server
from pycgpu.errors import CgpuError

from . import _number
from ._unknown_driver import Choice, UnknownDriver

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
    unknown_driver: UnknownDriver = Choice.REFUSED,
    hold_gates: Annotated[
        float,
        typer.Option(
            help="When the agent has ended, keep gates as they are for this time, for the next one;"
            " then they open.",
            metavar="SECONDS",
            parser=_number.seconds(0, 60),
        ),
    ] = 0,
    wait: Annotated[
        float,
        typer.Option(
            help="When the agent has ended, let tenants' calls wait so long for the next one; then"
            " they fail with EPERM.",
            metavar="SECONDS",
            parser=_number.seconds(0, 10**6),
        ),
    ] = 60,
    end_watchdog: Annotated[
        bool,
        typer.Option(
            "--end-watchdog",
            help="Give up the tenants of an agent that has ended: their calls fail from then on.",
        ),
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Print the counters of the agent that runs.")
    ] = False,
) -> None:
    """Be the agent until a signal ends it."""
    if counters:
        try:
            print(json.dumps(client.ask({"op": "counters"})["counters"]))
        except (OSError, KeyError, ValueError):
            raise CgpuError(f"no agent answers at {client.SOCKET}") from None
        return
    if end_watchdog:
        if not door.end_watchdog(server.WATCHDOG_SOCKET):
            raise CgpuError("no watchdog runs, so no tenants wait for an agent")
        return
    logging.basicConfig(format="cgpud: %(message)s", level=logging.INFO)
    keeping = dataclasses.replace(server.KEEPING, hold_s=hold_gates, wait_s=wait)
    server.main(unknown_driver=unknown_driver, idle_s=idle, keeping=keeping)
