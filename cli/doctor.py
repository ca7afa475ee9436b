# SPDX-License-Identifier: MIT
"""``cgpu doctor``: a line a finding, and what to do about it."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from pycgpu.install import doctor as findings

from ._root import Root
from ._table import Look, styled

app = typer.Typer(add_completion=False)

_STYLES = {"ok": "good", "note": "dim", "warn": "warn", "fail": "bad"}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    root: Root = None,
    prefix: Annotated[str, typer.Option(help="Root of the host's files.", hidden=True)] = "/",
) -> None:
    """Look for what is wrong, and say what to do; exit status 1 if something must be done."""
    found = findings.examine(prefix, root)
    if as_json:
        print(json.dumps([finding._asdict() for finding in found]))
    else:
        look = Look(color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
        for finding in found:
            level = styled(f"{finding.level:<4}", _STYLES[finding.level], look)
            print(f"{level}  {finding.subject:<9}  {finding.text}")
            if finding.remedy:
                print(f"{'':17}do: {finding.remedy}")
    if any(finding.level == findings.FAIL for finding in found):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
