# SPDX-License-Identifier: MIT
"""``cgpu hook``: the OCI hook by hand; engines start the leaner ``/usr/lib/cgpu/cgpu-hook``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from pycgpu.oci.hook import STATE_MAX, run
from pycgpu.oci.log import DEFAULT, HookLog
from pycgpu.request import permit
from pycgpu.tree.lock import LOCK

from ._root import Root

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
    root: Root = None,
    lock: Annotated[str, typer.Option(help="Held while a container is admitted.")] = LOCK,
    log: Annotated[
        list[str] | None,
        typer.Option(help=f"Log file; repeat for more. Default: {DEFAULT}"),
    ] = None,
    proc: Annotated[str, typer.Option(help="Where processes are.", hidden=True)] = "/proc",
    dev: Annotated[str, typer.Option(help="Where device nodes are.", hidden=True)] = "/dev",
    policy: Annotated[
        str, typer.Option(help="The limits of what is asked for here.")
    ] = permit.PATH,
) -> None:
    """Register (or at poststop remove) the container whose OCI state is on stdin."""
    raise typer.Exit(
        run(
            None if stage is None else stage.value,
            sys.stdin.read(STATE_MAX),
            log=HookLog(tuple(log or [DEFAULT])),
            root=root,
            lock=lock,
            proc=proc,
            dev=dev,
            policy=policy,
        )
    )
