# SPDX-License-Identifier: MIT
"""``cgpu install-runtime``: say what would change, change it, or take it back."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.install import registration
from pycgpu.install.change import Change
from pycgpu.install.engines import NAMES
from pycgpu.oci import runtime
from pycgpu.oci.log import CTYUN, DEFAULT

from ._shared import for_all

app = typer.Typer(add_completion=False)


@app.command()
def install_runtime(
    engine: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(NAMES)}; repeat. Default: those here."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="The name after --runtime=; repeat, e.g. --name nvidia. Default: cgpu"),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Make it the default runtime.")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(help=f"The hook's log; repeat for more. Default: {DEFAULT}; CTyun's: {CTYUN}"),
    ] = None,
    behind: Annotated[
        list[str] | None,
        typer.Option(
            help="Runtime behind ours, the first that exists; repeat."
            f" Default: {', '.join(runtime.RUNTIMES)}"
        ),
    ] = None,
    hooks_d: Annotated[
        bool, typer.Option(help="Give Podman and CRI-O the hook for all containers.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes and make none.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what was installed.")] = False,
    prefix: Annotated[Path, typer.Option(help="Root of the host's files.", hidden=True)] = Path(
        "/"
    ),
) -> None:
    """Register cgpu-container-runtime and its hook with the container engines of this host."""
    for_all()
    if undo:
        changes = registration.plan_undo(prefix)
    else:
        engines = tuple(engine or ()) or registration.need_engines(prefix)
        options = registration.Options(
            engines,
            tuple(name or ["cgpu"]),
            default,
            tuple(log or [DEFAULT]),
            tuple(behind or runtime.RUNTIMES),
            hooks_d,
        )
        # What engines do not take is put back again.
        changes = (registration.plan if dry_run else registration.register)(options, prefix)
    for change in changes:
        _show(change, dry_run)
    if not changes:
        print("nothing to change")
    elif undo and not dry_run:
        registration.undo(changes, prefix)
    for line in registration.left_out(() if undo else engines, prefix):
        print(line)
    for command in registration.restart_commands(changes, prefix):
        print(f"now run: {command}")


def _show(change: Change, whole: bool) -> None:
    verb = "remove" if change.after is None else "write" if change.before is None else "change"
    print(f"{verb} /{change.path}")
    if whole:
        for line in difflib.unified_diff(
            (change.before or "").splitlines(), (change.after or "").splitlines(), lineterm="", n=2
        ):
            if not line.startswith(("---", "+++")):
                print(f"    {line}")
