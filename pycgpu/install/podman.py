# SPDX-License-Identifier: MIT
"""Podman: runtimes in a file of ours, and the configuration that it reads (``podman info``)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import InstallError
from . import hook_files, program
from .change import Change, changed, read
from .containerd import table
from .host import execute
from .launcher import is_ours
from .wanted import Wanted

CONF = "etc/containers/containers.conf.d/90-cgpu.conf"


class Podman:
    """Podman on the host below *prefix*; only this machine's own can be asked."""

    name = "podman"

    def __init__(self, path: str, prefix: Path) -> None:
        self.program = path
        self.prefix = prefix

    def left_out(self) -> str:
        """Return "": its runtimes are there for every container."""
        return ""

    def look(self) -> None:
        """What it has is compared with nothing: our file adds to the others."""

    def programs(self) -> dict[str, str]:
        """Return those of our own file: it does not tell which others it knows."""
        entries = table(tomllib.loads(read(self.prefix / CONF) or ""), "engine", "runtimes")
        return {name: str(paths[0]) for name, paths in entries.items() if paths}

    def default(self) -> str:
        """Return nothing: none of its runtimes is the toolkit's unless somebody names it."""
        return ""

    def behind(self) -> tuple[str, ...]:
        """Return the program that its containers have been started with."""
        path = self._runtime()
        return (path,) if path and not is_ours(path) else ()

    def _runtime(self, *options: str) -> str:
        if self.prefix != Path("/"):
            return ""
        with TemporaryDirectory() as folder:
            # Its own storage is not touched, nor asked whether it can be used.
            storage = ["--root", f"{folder}/root", "--runroot", f"{folder}/run"]
            command = [self.program, *storage, "--storage-driver", "vfs", *options, "info"]
            said = json.loads(execute([*command, "--format", "json"]))
        return str(said["host"]["ociRuntime"]["path"])

    def plan(self, wanted: Wanted) -> list[Change]:
        """Return the changes that make ours its runtimes."""
        path = wanted.program(self.name)
        entries = "".join(f'{name} = ["{path}"]\n' for name in wanted.names)
        changes = [changed(self.prefix, CONF, f"[engine.runtimes]\n{entries}")]
        return changes + hook_files.plan(wanted, self.prefix)

    def check(self, wanted: Wanted, before: object = None) -> None:
        """Check which program it starts by each name. InstallError: one is not ours."""
        for name in wanted.names if self.prefix == Path("/") else ():
            path = self._runtime("--runtime", name)
            if path != wanted.program(self.name):
                raise InstallError(
                    f"podman: by runtime {name!r} it starts {path}, and not ours:"
                    f" see `podman --runtime {name} info`"
                )

    def restart(self) -> str:
        """Return nothing: it reads its files at each start of a container."""
        return ""

    def owns(self, path: str) -> bool:
        """Tell whether a file of the record is one of its."""
        return path == CONF


def find(prefix: Path) -> list[Podman]:
    """Return the Podman whose program is on the host below *prefix*, if any."""
    path = program.find("podman", prefix)
    return [Podman(path, prefix)] if path else []
