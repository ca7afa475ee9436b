# SPDX-License-Identifier: MIT
"""The option by which the operator chooses what becomes of a driver newer than all known."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Choice(StrEnum):
    """As the module's parameter ``unknown_driver``."""

    REFUSED = "refused"
    NEWEST = "newest"


UnknownDriver = Annotated[
    Choice,
    typer.Option(
        help="For a driver branch newer than all known. newest: check it against the newest"
        " layouts, and use it if it has them.",
        metavar="refused|newest",
    ),
]
