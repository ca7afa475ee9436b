# SPDX-License-Identifier: MIT
"""``cgpu uninstall``: leave the host as it was before ``cgpu install``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pycgpu.errors import InstallError
from pycgpu.install import installation
from pycgpu.install.host import this_host

app = typer.Typer(add_completion=False)


@app.command()
def uninstall(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be undone, and do nothing.")
    ] = False,
) -> None:
    """Remove everything that was installed; refused while a container uses a GPU."""
    host = this_host()
    if dry_run:
        for step in installation.plan_uninstall(host):
            print(f"would undo: {step.shown}")
        return
    if os.geteuid():
        raise InstallError("uninstalling takes root: run it with sudo")
    installation.uninstall(host, print)
    print("uninstalled")
