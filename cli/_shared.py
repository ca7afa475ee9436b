# SPDX-License-Identifier: MIT
"""What is written for all users of a host."""

from __future__ import annotations

import os


def for_all() -> None:
    """
    From here on, files and directories are made for everybody to read.

    root's own umask is often 077, and what engines and users cannot read is not there for them.
    What is nobody else's says so itself.
    """
    os.umask(0o022)
