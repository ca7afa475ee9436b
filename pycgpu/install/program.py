# SPDX-License-Identifier: MIT
"""Engines' programs: where they are on a host, and what they say when they are asked."""

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
        # Whoever installs may have engines elsewhere, and may lack root's folders.
        folders = [os.environ.get("PATH", ""), *folders]
    return shutil.which(name, path=":".join(folders))


def there(path: str, prefix: Path) -> str | None:
    """Return the program at *path* of the host below *prefix*, None if it cannot be executed."""
    found = prefix / path.lstrip("/")
    return str(found) if found.is_file() and os.access(found, os.X_OK) else None


def arguments(name: str, prefix: Path) -> list[str]:
    """
    Return the command line of the host's daemon *name*, none where none runs.

    One in a container (Docker in Docker) has other files before it, and is none of the host's.
    """
    proc = prefix / "proc"
    try:
        host = os.readlink(proc / "1/ns/mnt")
    except OSError:
        return []
    for comm in sorted(proc.glob("[0-9]*/comm")):
        try:
            if comm.read_text().strip() != name or os.readlink(comm.parent / "ns/mnt") != host:
                continue
            words = (comm.parent / "cmdline").read_text().split("\0")[:-1]
        except (OSError, UnicodeDecodeError):
            continue
        if words:
            return words
    return []


def option(words: list[str], *names: str) -> str | None:
    """Return what a command line gives for the option of *names*."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(words[number + 1 :]), None)
    return None


def refused(engine: str, said: str, remedy: str) -> InstallError:
    """Return the error of an engine that has not taken what was written for it."""
    return InstallError(f"{engine}: {said}; {remedy}")
