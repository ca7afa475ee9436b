# SPDX-License-Identifier: MIT
"""Changes of files: whole texts, each put in its place by a rename."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..errors import InstallError


class Change(NamedTuple):
    """A file and its whole text after the change; ``after`` None removes it."""

    path: str
    before: str | None
    after: str | None
    mode: int = 0o644


def read(path: Path) -> str | None:
    """Return a file's text, None if there is none; InstallError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"{path}: cannot be read: {error}") from None


def changed(prefix: Path, path: str, after: str | None, mode: int = 0o644) -> Change:
    """Return the change of what is at *path* below *prefix* to *after*."""
    return Change(path, read(prefix / path), after, mode)


def write(path: Path, text: str | None, mode: int) -> None:
    """Give a file this text, or remove it; OSError if that cannot be done."""
    if text is None:
        path.unlink(missing_ok=True)
        return
    # A link, into dotfiles or /srv/config for example, stays a link.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".cgpu")
    draft.write_text(text, encoding="utf-8")
    # An existing file keeps its mode: daemon.json may be closed to other users.
    draft.chmod(path.stat().st_mode & 0o7777 if path.exists() else mode)
    draft.rename(path)
