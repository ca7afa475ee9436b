# SPDX-License-Identifier: MIT
"""``cgpu hook``: the OCI hook by hand; engines start the leaner ``/usr/lib/cgpu/cgpu-hook``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from pycgpu import hook_log, oci_hook

app = typer.Typer(add_completion=False)


class Stage(StrEnum):
    """OCI's names of the moments at which a hook runs."""

    create_runtime = "createRuntime"
    prestart = "prestart"
    poststop = "poststop"


@app.command()
def hook(
    stage: Annotated[
        Stage | None, typer.Argument(help="Default: what the state on stdin says.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
    lock: Annotated[str, typer.Option(help="Held while a container is admitted.")] = oci_hook.LOCK,
    log: Annotated[
        list[str] | None,
        typer.Option(help=f"Log file; repeat for more. Default: {hook_log.DEFAULT}"),
    ] = None,
    proc: Annotated[str, typer.Option(help="Where processes are.", hidden=True)] = "/proc",
) -> None:
    """Register (or at poststop remove) the container whose OCI state is on stdin."""
    raise typer.Exit(
        oci_hook.run(
            None if stage is None else stage.value,
            sys.stdin.read(oci_hook.STATE_MAX),
            log=hook_log.HookLog(tuple(log or [hook_log.DEFAULT])),
            root=root,
            lock=lock,
            proc=proc,
        )
    )
