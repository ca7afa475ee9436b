# SPDX-License-Identifier: MIT
"""``cgpu run``: a program on a part of a card, without a kernel module."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pycgpu.agent import launch
from pycgpu.errors import CgpuError
from pycgpu.request import size
from pycgpu.request.model import POLICIES, WEIGHTED_CONSERVING, CardGrant, Grant

app = typer.Typer(add_completion=False)

# Weights count, idle time goes to whoever wants it, a quota caps.
DEFAULT_POLICY = WEIGHTED_CONSERVING


def _memory(text: str | None) -> int | None:
    if text is None or text == "max":
        return None
    try:
        return size.parse_bytes(text)
    except ValueError as error:
        raise CgpuError(f"--mem: {error}") from None


def _policy(text: str | None) -> int:
    if text is None:
        return DEFAULT_POLICY
    if text.isdecimal() and int(text) < len(POLICIES):
        return int(text)
    if text in POLICIES:
        return POLICIES.index(text)
    raise CgpuError(f"--policy {text!r}: write one of {', '.join(POLICIES)}, or its number")


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
)
def run(
    program: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.")],
    mem: Annotated[
        str | None, typer.Option(help="Memory of each card: 8G, 512MiB, bytes; default: no limit.")
    ] = None,
    quota: Annotated[int | None, typer.Option(help="At most so much of the card, percent.")] = None,
    weight: Annotated[int | None, typer.Option(help="Share among those who compute.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Name or number; for the card, unless somebody set it by hand."),
    ] = None,
    gpu: Annotated[list[int] | None, typer.Option(help="Card, N of /dev/nvidiaN; repeat.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the tenant; default: run-PID.")] = None,
    uvm_disable: Annotated[bool, typer.Option(help="Refuse managed memory.")] = False,
    force_branch: Annotated[
        bool, typer.Option(help="Go on with a driver branch that nobody has verified.")
    ] = False,
) -> None:
    """Run a program on a part of a card; it keeps its exit status and its signals."""
    number, memory_bytes = _policy(policy), _memory(mem)
    cards = tuple(
        CardGrant(
            index=card,
            memory_bytes=memory_bytes,
            weight=weight,
            quota=quota,
            policy=number,
            uvm_disable=uvm_disable,
        )
        for card in gpu or [0]
    )
    launch.run(name or f"run-{os.getpid()}", Grant(cards), program, force_branch=force_branch)
