# SPDX-License-Identifier: MIT
"""The option that says which tree a command reads and writes."""

from __future__ import annotations

from typing import Annotated

import typer

#: None: that of the door that is open.
Root = Annotated[str | None, typer.Option(help="The tree; default: the door that is open.")]
#: Of a service, which may start before a door opens.
LaterRoot = Annotated[
    str | None, typer.Option(help="The tree; default: the door that is open, even later.")
]
