# SPDX-License-Identifier: MIT
"""``cgpu attach``: a process that is there already, and asks for it, becomes a tenant."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pycgpu.agent import attach as tenant
from pycgpu.agent import launch
from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError, LaunchError

from . import run

app = typer.Typer(add_completion=False)


@app.command("attach")
def attach(
    pid: Annotated[int, typer.Argument(help="The process, which waits for it.")],
    mem: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    quota: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    weight: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    policy: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    gpu: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tenant; default: pid-PID.")] = None,
) -> None:
    """
    Give a process a part of a card while it runs: it puts itself under the filter that it is told.

    The process talks to this program on its stdin and stdout, as `pycgpu.agent.attach` says. Ray's
    workers do so when they learn what they were given.
    """
    values = {
        cgpu.GPU: gpu,
        cgpu.MEM: mem,
        cgpu.QUOTA: quota,
        cgpu.WEIGHT: weight,
        cgpu.POLICY: policy,
    }
    try:
        if os.geteuid() != 0:
            raise LaunchError("attach needs root: try sudo")
        wanted = run.request(values, uvm_disable=False)
        launch.ensure_agent()
    except CgpuError as error:
        print("error", *str(error).split(), flush=True)
        return
    tenant.serve(name or f"pid-{pid}", wanted, pid, None, sys.stdin, sys.stdout)
