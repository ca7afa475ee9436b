# SPDX-License-Identifier: MIT
"""``cgpu attach``: a process that is there already, and asks for it, becomes a tenant."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pycgpu.agent import attach as tenant
from pycgpu.agent import caller, launch
from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError, LaunchError
from pycgpu.request import group_rule, permit
from pycgpu.tree import group as groups

from . import _run

app = typer.Typer(add_completion=False)


@app.command("attach")
def attach(
    pid: Annotated[
        int, typer.Argument(help="The process, which waits for it.", min=1, max=tenant.PID_MAX)
    ],
    mem: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    quota: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    weight: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    policy: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    gpu: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
    idle_park: Annotated[str | None, typer.Option(metavar="TIME", help="As run takes it.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tenant; default: pid-PID.")] = None,
    group: Annotated[str | None, typer.Option(help="As run takes it.")] = None,
) -> None:
    """
    Give a process a part of a card while it runs: it puts itself under the filter that it is told.

    The process talks to this program on its stdin and stdout, as `pycgpu.agent.attach` says. Ray's
    workers do so when they learn what they were given. Under sudo the process must be the caller's,
    and so is the tenant: of a name that is there already it becomes none.
    """
    values = {
        cgpu.GPU: gpu,
        cgpu.MEM: mem,
        cgpu.QUOTA: quota,
        cgpu.WEIGHT: weight,
        cgpu.POLICY: policy,
        cgpu.IDLE_PARK: idle_park,
    }
    try:
        if os.geteuid() != 0:
            raise LaunchError("attach needs root: try sudo")
        who = caller.caller(os.environ)
        allowed = permit.load()
        wanted = _run.request(values, False, None if who is None else allowed)
        container_id = name or f"pid-{pid}"
        caller.check_name(container_id, who)
        joins = None if group is None else _group(group, pid, who, allowed, policy is not None)
        launch.ensure_agent()
    except CgpuError as error:
        print("error", *str(error).split(), flush=True)
        return
    tenant.serve(
        container_id,
        wanted,
        pid,
        None,
        sys.stdin,
        sys.stdout,
        allowed=allowed,
        uid=None if who is None else who.uid,
        joins=joins,
    )


def _group(
    name: str,
    pid: int,
    who: caller.Identity | None,
    allowed: permit.Permit,
    policy_asked: bool,
) -> groups.Group:
    caller.check_name(name, who, "--group")
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        raise LaunchError(f"process {pid} has ended") from None
    if who is not None:
        allowed.check_join(group_rule.Asker(name, uid))
    return groups.Group(name, uid, policy_asked)
