# SPDX-License-Identifier: MIT
"""``cgpu slurm-task``: what the SPANK plugin asks for each task of a Slurm job."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.agent import attach, caller
from pycgpu.batch import slurm
from pycgpu.errors import CgpuError, RequestError
from pycgpu.request import group_rule, permit
from pycgpu.request.model import Request
from pycgpu.tree import group as groups

app = typer.Typer(add_completion=False)
_JOB_CGROUP = re.compile(r"^0::(/.*/job_\d+)(?:/|$)", re.MULTILINE)


def _print_source(value: bool) -> None:
    if value:
        print(slurm.PLUGIN)
        raise typer.Exit()


@app.command("slurm-task")
def slurm_task(
    job: Annotated[int, typer.Argument(help="The job's number.")],
    pid: Annotated[int, typer.Argument(help="The task's process, which waits.")],
    compute: Annotated[
        str, typer.Option(help="How shards count for the compute: quota or weight.")
    ] = "quota",
    group: Annotated[
        str | None, typer.Option(help="Serve the job's programs at the same time: CGPU_GROUP.")
    ] = None,
    uid: Annotated[int, typer.Option(help="With --group: the job's user.", min=0)] = 0,
    source: Annotated[
        bool,
        typer.Option(
            "--source",
            callback=_print_source,
            is_eager=True,
            help="Print where the plugin's C source is, and exit.",
        ),
    ] = False,
) -> None:
    """Give a task of a Slurm job the limits of its shards; its plugin talks on stdin and stdout."""
    try:
        found = slurm.of_job(job)
        request = slurm.request(found, compute) if found else None
        allowed = permit.load()
        joins = None if group is None else _group(job, group, uid, request, allowed)
    except CgpuError as error:
        print("error", *str(error).split(), flush=True)
        return
    if request is None:
        print("ok", flush=True)
        return
    name = f"{caller.SLURM}{job}"
    attach.serve(
        name,
        request,
        pid,
        _cgroup(pid),
        sys.stdin,
        sys.stdout,
        allowed=allowed,
        joins=joins,
        tells_group=joins is not None,
    )


def _group(
    job: int, name: str, uid: int, request: Request | None, allowed: permit.Permit
) -> groups.Group:
    found = slurm.group(f"{caller.SLURM}{job}", name, uid)
    if request is None:
        raise RequestError(
            f"{slurm.GROUP}={name}: job {job} has no shards of a card here, and a group is of"
            " shards: ask for --gres=shard:N, or unset the variable"
        )
    allowed.check_join(group_rule.Asker(name, uid))
    return found


def _cgroup(pid: int) -> str | None:
    """The cgroup that slurmd gave the whole job; None: it keeps none (proctrack/cgroup does)."""
    match = _JOB_CGROUP.search(Path(f"/proc/{pid}/cgroup").read_text())
    return f"/sys/fs/cgroup{match[1]}" if match else None
