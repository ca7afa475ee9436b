# SPDX-License-Identifier: MIT
"""Programs that a test has started."""

from __future__ import annotations

import subprocess
from typing import IO, AnyStr


def output(process: subprocess.Popen[AnyStr]) -> IO[AnyStr]:
    """The pipe that it writes to."""
    assert process.stdout is not None, f"no pipe was asked for: {process.args!r}"
    return process.stdout
