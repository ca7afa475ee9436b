# SPDX-License-Identifier: MIT
"""The host that is examined."""

from __future__ import annotations

from pathlib import Path

from ...tree import procfs


class Host:
    """The host that is examined; ``root`` is the tree, None if no door is open."""

    def __init__(self, prefix: Path, root: str | None, release: str) -> None:
        self.prefix = prefix
        self.release = release
        self.modules = {line.split(" ")[0] for line in self.read("proc/modules").splitlines()}
        found = (root,) if root else procfs.doors(str(prefix))
        self.root = next((door for door in found if procfs.is_open(door)), None)

    def read(self, path: str) -> str:
        """Return a file's text, empty if it cannot be read."""
        try:
            return (self.prefix / path).read_text(errors="replace")
        except OSError:
            return ""

    def cards(self) -> list[int]:
        """Return the minors of the driver's device nodes."""
        names = (path.name for path in (self.prefix / "dev").glob("nvidia[0-9]*"))
        return sorted(int(name[6:]) for name in names if name[6:].isdecimal())
