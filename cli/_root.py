# SPDX-License-Identifier: MIT
"""The option that says which tree a command reads and writes."""

from __future__ import annotations

from typing import Annotated

import typer

#: None: that of the door that is open.
Root = Annotated[
    str | None, typer.Option(help="The tree; default: that of the module or the agent.")
]
#: Of a service, which may start before a door opens.
LaterRoot = Annotated[
    str | None,
    typer.Option(
        help="The tree; default: that of the module or the agent, even if it starts later."
    ),
]
