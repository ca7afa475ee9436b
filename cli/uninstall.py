# SPDX-License-Identifier: MIT
"""``cgpu uninstall``: leave the host as it was before ``cgpu install``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pycgpu.errors import InstallError
from pycgpu.install import installation, stranded
from pycgpu.install.host import this_host

app = typer.Typer(add_completion=False)


@app.command()
def uninstall(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be undone, and do nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Uninstall although containers were created with the runtime, and name them.",
        ),
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the record of usage, too.")
    ] = False,
) -> None:
    """
    Remove everything that was installed, except for the record of usage.

    Refused while a container uses a GPU, or was created with the runtime and would not start.
    """
    host = this_host()
    if dry_run:
        for step in installation.plan_uninstall(host, force):
            print(f"would undo: {step.shown}")
        gone, kept = installation.left_by_use(host, purge)
        for path in gone:
            print(f"would remove: {path}")
        for path in kept:
            print(f"would keep: {path}")
        for one in stranded.containers(host):
            print(f"would not start any more: {one}")
        return
    if os.geteuid():
        raise InstallError("uninstalling takes root: run it with sudo")
    installation.uninstall(host, print, force, purge)
    print("uninstalled")
