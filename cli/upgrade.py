# SPDX-License-Identifier: MIT
"""``cgpu upgrade``: take what is installed to this version, without stopping a container."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from pycgpu import __version__
from pycgpu.errors import InstallError
from pycgpu.install import installation, journal, upgrade_plan
from pycgpu.install import upgrade as upgrading
from pycgpu.install.host import Host, this_host

from . import _number
from ._shared import for_all

app = typer.Typer(add_completion=False)


@app.command()
def upgrade(
    check: Annotated[
        bool,
        typer.Option("--check", help="Say whether it is possible under running containers."),
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Unload the old modules; no container may run.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    modules: Annotated[
        Path | None,
        typer.Option(help="Directory with the new modules, built already."),
    ] = None,
    trial: Annotated[
        float,
        typer.Option(
            help="Seconds after which the old code is back unless all went well.",
            metavar="SECONDS",
            parser=_number.seconds(1, 600),
        ),
    ] = 120,
    prove: Annotated[
        float,
        typer.Option(
            help="Seconds for which the new code is watched; less than --trial.",
            metavar="SECONDS",
            parser=_number.seconds(0, 600),
        ),
    ] = 1,
    tools: Annotated[
        str | None, typer.Option(help="The link that leads to the tools.", hidden=True)
    ] = None,
) -> None:
    """Replace module, tools and services by this version; undone if any of it fails."""
    if prove >= trial:
        raise typer.BadParameter(
            f"--prove {prove:g}: the trial ends after {trial:g} seconds: give less, or --trial more"
        )
    for_all()
    host = this_host()
    given = None if modules is None else str(modules.resolve())
    request = upgrade_plan.Request(__version__, cold, given, tools, trial, prove)
    if check:
        found = upgrading.check(request, host, print)
        for reason in found:
            print(f"no hot upgrade to {__version__}: {reason}")
        if found:
            raise typer.Exit(1)
        print(f"a hot upgrade to {__version__} is possible")
        return
    if dry_run:
        _show(request, host)
        return
    if os.geteuid():
        raise InstallError("upgrading takes root: run it with sudo")
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: what was begun is taken back.
        signal.signal(number, signal.default_int_handler)
    for line in upgrading.upgrade(request, host, print):
        print(line)


def _show(request: upgrade_plan.Request, host: Host) -> None:
    held = journal.read(host)
    if held.version == __version__:
        print(f"cgpu {__version__} is installed: nothing to do")
        return
    if held.layer is not None:
        print(f"would: go on with, or take back, the upgrade to {held.layer.version}")
    options = upgrade_plan.options_of(held, request.modules)
    for line in upgrading.outline(request, options, held, host):
        print(f"would: {line}")
    try:
        if not options.agent:
            installation.check_modules(options, host)
        if request.cold:
            installation.refuse_while_used(host)
    except InstallError as error:
        raise InstallError(f"would be refused: {error}") from None
