# SPDX-License-Identifier: MIT
"""``cgpu run``: a program on a part of a card, without a kernel module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.agent import caller, launch
from pycgpu.batch import settings as job_settings
from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError, LaunchError, RequestError
from pycgpu.request import permit
from pycgpu.request.model import POLICIES, WEIGHTED_CONSERVING, Request

from . import _asked

app = typer.Typer(add_completion=False)

# Weights count, idle time goes to whoever wants it, a quota caps.
DEFAULT_POLICY = WEIGHTED_CONSERVING


def request(
    values: dict[str, str | None], uvm_disable: bool, allowed: permit.Permit | None = None
) -> Request:
    """
    Return what the options ask for.

    Args:
        allowed: what who asks may ask for; None: root, everything.

    Raises:
        LaunchError: which of them cannot be, and its bounds.
    """
    asked = {key: text for key, text in values.items() if text is not None}
    if uvm_disable:
        asked[cgpu.UVM_DISABLE] = "1"
    try:
        if allowed is not None:
            allowed.check(asked)
        return _asked.parse({cgpu.POLICY: str(DEFAULT_POLICY)} | asked)
    except RequestError as error:
        raise LaunchError(_asked.in_options(str(error))) from None


def _of_job(path: Path, identity: caller.Identity | None, allowed: permit.Permit | None) -> Request:
    text = caller.read(str(path), identity)
    try:
        found = job_settings.parse(text)
        if allowed is not None:
            allowed.check(found)
        return job_settings.request(found)
    except RequestError as error:
        raise LaunchError(f"{path}: {error}") from None


def permitted(identity: caller.Identity | None) -> permit.Permit | None:
    """Return what holds for who called sudo; None: it is root, the operator."""
    if identity is None:
        return None
    try:
        return permit.load()
    except CgpuError as error:
        raise LaunchError(str(error)) from None


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
)
def run(
    program: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.")],
    mem: Annotated[
        str | None,
        typer.Option(help="Memory: 8G, 512MiB, bytes, 25%, max; one for each card: 8G,4G."),
    ] = None,
    quota: Annotated[
        str | None, typer.Option(help="At most so much of the card, 1 to 100 percent; or a list.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Share among those who compute; or a list.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"For the card, unless somebody set it by hand; default {POLICIES[DEFAULT_POLICY]}"
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(help="Card: N of /dev/nvidiaN or UUID; repeat, or a list; default 0."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tenant; default: run-PID.")] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            help="Run the program as this user, `root` too; default: who called sudo.",
        ),
    ] = None,
    uvm_disable: Annotated[bool, typer.Option(help="Refuse managed memory.")] = False,
    settings: Annotated[
        Path | None,
        typer.Option(help="File with a job's settings in Volcengine's words, instead of the rest."),
    ] = None,
    force_branch: Annotated[
        bool, typer.Option(help="Go on with a driver branch that nobody has verified.")
    ] = False,
) -> None:
    """
    Run a program on a part of a card; it keeps its exit status and its signals.

    Under sudo the program runs as the user who called it, in that user's environment. Status 125:
    cgpu itself failed; 126: the program cannot be executed; 127: it is not there.
    """
    values = {
        cgpu.GPU: ",".join(gpu) if gpu else None,
        cgpu.MEM: mem,
        cgpu.QUOTA: quota,
        cgpu.WEIGHT: weight,
        cgpu.POLICY: policy,
    }
    who = caller.caller(os.environ)
    allowed = permitted(who)
    if settings is None:
        wanted = request(values, uvm_disable, allowed)
    elif uvm_disable or any(text is not None for text in values.values()):
        raise LaunchError("--settings says what is asked for: give no other limit beside it")
    else:
        wanted = _of_job(settings, who, allowed)
    tenant = name or f"run-{os.getpid()}"
    caller.check_name(tenant, who)
    launch.run(
        tenant,
        wanted,
        program,
        identity=who if user is None else caller.user(user, os.environ),
        allowed=allowed or permit.DEFAULT,
        force_branch=force_branch,
    )
