# SPDX-License-Identifier: MIT
"""CRI-O: runtimes in a file of ours, and the configuration that it reads (``crio config``)."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ..errors import InstallError
from . import daemon, hook_files, program
from .change import Change, changed
from .containerd import Table, settings, table
from .host import execute
from .launcher import is_ours
from .wanted import Wanted

CONF = "etc/crio/crio.conf"
FOLDER = "etc/crio/crio.conf.d"
# After the toolkit's 99-nvidia.conf: of two that name a runtime the later one holds.
OWN = "99-zz-cgpu.conf"


class Crio:
    """CRI-O on the host below *prefix*."""

    name = "crio"

    def __init__(self, path: str, prefix: Path) -> None:
        self.program = path
        self.prefix = prefix
        running = next(daemon.running("crio", prefix), None)
        config = running and running.option("--config", "-c")
        folder = running and running.option("--config-dir", "-d")
        self.config = (config or CONF).lstrip("/")
        self.folder = (folder or FOLDER).lstrip("/")
        self.own = f"{self.folder}/{OWN}"

    def left_out(self) -> str:
        """Return nothing: it is there for Kubernetes alone."""
        return ""

    def look(self) -> Table:
        """Return its settings of runtimes, as it says them itself."""
        config, folder = self.prefix / self.config, self.prefix / self.folder
        files = ["--config", str(config), "--config-dir", str(folder)]
        # Without the file an option that names it is an error; its own default is none.
        usual = self.prefix == Path("/") and (self.config, self.folder) == (CONF, FOLDER)
        said = execute([self.program, *(() if usual else files), "config"])
        try:
            return table(tomllib.loads(said), "crio", "runtime")
        except tomllib.TOMLDecodeError as error:
            raise InstallError(f"crio: `crio config` is no TOML: {error}") from None

    def programs(self) -> dict[str, str]:
        """Return the programs of the runtimes that it has."""
        entries = table(self.look(), "runtimes")
        return {name: str(entry.get("runtime_path") or "") for name, entry in entries.items()}

    def default(self) -> str:
        """Return the name of its default runtime."""
        return str(self.look().get("default_runtime") or "")

    def behind(self) -> tuple[str, ...]:
        """Return the program that its containers have been started with."""
        path = str(_like(self.look()).get("runtime_path") or "")
        return (path,) if path else ()

    def plan(self, wanted: Wanted) -> list[Change]:
        """Return the changes that add our runtimes, with the settings of its default runtime."""
        import tomlkit

        like = settings(_like(self.look()))
        entry = {"runtime_type": "oci", **like, "runtime_path": wanted.program(self.name)}
        section: Table = {"runtimes": {name: dict(entry) for name in wanted.names}}
        if wanted.default:
            section = {"default_runtime": wanted.names[0], **section}
        made = tomlkit.dumps({"crio": {"runtime": section}})
        return [changed(self.prefix, self.own, made), *hook_files.plan(wanted, self.prefix)]

    def check(self, wanted: Wanted, before: object = None) -> None:
        """Check which program it starts by each name. InstallError: one is not ours."""
        said = self.look()
        for name in wanted.names:
            path = table(said, "runtimes", name).get("runtime_path")
            if path != wanted.program(self.name):
                raise InstallError(
                    f"crio: by runtime {name!r} it starts {path or 'nothing'}, and not ours:"
                    " see `crio config`"
                )
        if wanted.default and said.get("default_runtime") != wanted.names[0]:
            raise InstallError(f"crio: its default runtime is {said.get('default_runtime')!r}")

    def restart(self) -> str:
        """Return the unit to restart, so that it reads the changes."""
        return "crio"

    def owns(self, path: str) -> bool:
        """Tell whether a file of the record is one of its."""
        return path == self.own


def find(prefix: Path) -> list[Crio]:
    """Return the CRI-O whose program is on the host below *prefix*, if any."""
    path = program.find("crio", prefix)
    return [Crio(path, prefix)] if path else []


def _like(said: Table) -> Table:
    """Return the runtime of containers so far: the default, or otherwise any that is not ours."""
    there = table(said, "runtimes")
    names = [str(said.get("default_runtime") or ""), "runc", "crun", *there]
    entries = (table(there, name) for name in names)
    mine = (one for one in entries if one and not is_ours(str(one.get("runtime_path") or "")))
    return next(mine, {})
