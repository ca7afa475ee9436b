# SPDX-License-Identifier: MIT
"""Engines' programs: their paths on a host, and their output."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..errors import InstallError

#: Where distributions and administrators put programs of root's.
FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")


def find(name: str, prefix: Path) -> str | None:
    """Return where a program is on the host below *prefix*: a path of this process's."""
    folders = [str(prefix / folder) for folder in FOLDERS]
    if prefix == Path("/"):
        # The user may have engines elsewhere, and may lack root's folders in PATH.
        folders = [os.environ.get("PATH", ""), *folders]
    return shutil.which(name, path=":".join(folders))


def there(path: str, prefix: Path) -> str | None:
    """Return the program at *path* of the host below *prefix*, None if it cannot be executed."""
    found = prefix / path.lstrip("/")
    return str(found) if found.is_file() and os.access(found, os.X_OK) else None


def refused(engine: str, said: str, remedy: str) -> InstallError:
    """Return the error of an engine that rejects the file written for it."""
    return InstallError(f"{engine}: {said}; {remedy}")
