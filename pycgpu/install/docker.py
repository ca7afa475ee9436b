# SPDX-License-Identifier: MIT
"""Docker: runtimes in its daemon.json, which it checks itself by ``dockerd --validate`` (23.0)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import InstallError
from . import daemon, hook_files, program
from .change import Change, read
from .host import execute
from .launcher import is_ours
from .wanted import Wanted

DAEMON_JSON = "etc/docker/daemon.json"
#: An option that daemons of before 23.0 do not have.
_QUESTION = "--validate"


class Docker:
    """The Docker daemon of the host below *prefix*."""

    name = "docker"

    def __init__(self, path: str, prefix: Path) -> None:
        self.program = path
        self.prefix = prefix
        self.daemon = next(daemon.running("dockerd", prefix), None)
        self.named = self.daemon.option("--config-file") if self.daemon else None
        self.path = (self.named or DAEMON_JSON).lstrip("/")

    def left_out(self) -> str:
        """Return "": its runtimes are there for every container."""
        return ""

    def look(self) -> None:
        """Return None: Docker only tells, while it runs, the runtimes that it had at its start."""

    def programs(self) -> dict[str, str]:
        """Return the programs of the runtimes that its file names."""
        return programs(read(self.prefix / self.path), self.path)

    def default(self) -> str:
        """Return the name of its default runtime."""
        return str(parsed(read(self.prefix / self.path), self.path).get("default-runtime") or "")

    def behind(self) -> tuple[str, ...]:
        """Return nothing: it starts the runc of its PATH."""
        return ()

    def plan(self, wanted: Wanted) -> list[Change]:
        """Return the change of its file; InstallError if that cannot be read, or may not be."""
        named = self.daemon.option("--default-runtime") if self.daemon else None
        if wanted.default and named:
            raise InstallError(
                f"docker: it is started with --default-runtime={named}, and a file that says"
                " another keeps it from starting: change its unit, or leave out --default"
            )
        before = read(self.prefix / self.path)
        config = parsed(before, self.path)
        runtimes = _runtimes(config, self.path)
        for name in wanted.names:
            runtimes[name] = {"path": wanted.program(self.name)}
        config["runtimes"] = runtimes
        if wanted.default:
            config["default-runtime"] = wanted.names[0]
        if before is not None and config == parsed(before, self.path):
            return []
        return [Change(self.path, before, json.dumps(config, indent=4) + "\n")]

    def check(self, wanted: Wanted, before: object = None) -> None:
        """Ask whether it would start with its file and its options; InstallError if not."""
        command = [*(self.daemon.words if self.daemon else [self.program]), _QUESTION]
        if not self.named:
            command += ["--config-file", str(self.prefix / self.path)]
        try:
            if _QUESTION in execute([self.program, "--help"]):
                execute(command)
        except InstallError as error:
            raise InstallError(f"docker: {error}") from None

    def restart(self) -> str:
        """Return the unit to restart, so that it reads the changes."""
        return "docker"

    def owns(self, path: str) -> bool:
        """Tell whether a file of the record is one of its."""
        return path == self.path


def find(prefix: Path) -> list[Docker]:
    """Return the daemon whose program is on the host below *prefix*, if there is one."""
    path = program.find("dockerd", prefix)
    return [Docker(path, prefix)] if path else []


def is_file(path: str) -> bool:
    """Tell whether a changed file is a daemon's, of any name: only hooks are JSON, too."""
    return path.endswith(".json") and not path.startswith(hook_files.HOOKS_D)


def programs(text: str | None, path: str) -> dict[str, str]:
    """Return the programs of the runtimes that a file names."""
    return {
        name: str(entry.get("path") or "")
        for name, entry in _runtimes(parsed(text, path), path).items()
        if isinstance(entry, dict)
    }


def take_back(path: str, now: str, original: str | None) -> str | None:
    """Return the text of *path* without our entries, and with later changes of others."""
    config, old = parsed(now, path), parsed(original, path)
    runtimes, old_runtimes = _runtimes(config, path), _runtimes(old, path)
    ours = [name for name, program in programs(now, path).items() if is_ours(program)]
    for name in ours:
        del runtimes[name]
        if name in old_runtimes:
            runtimes[name] = old_runtimes[name]
    if not runtimes and "runtimes" not in old:
        config.pop("runtimes", None)
    if config.get("default-runtime") in ours:
        config.pop("default-runtime")
        if "default-runtime" in old:
            config["default-runtime"] = old["default-runtime"]
    return original if config == old else json.dumps(config, indent=4) + "\n"


def parsed(text: str | None, path: str) -> dict[str, Any]:
    """Return a JSON object, empty where there is no text."""
    if text is None or not text.strip():
        return {}
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InstallError(f"/{path}: not JSON ({error}); correct it first") from None
    if not isinstance(config, dict):
        raise InstallError(f"/{path}: not a JSON object; correct it first")
    return config


def _runtimes(config: dict[str, Any], path: str) -> dict[str, Any]:
    runtimes = config.get("runtimes", {})
    if not isinstance(runtimes, dict):
        raise InstallError(f"/{path}: 'runtimes' is not an object")
    return runtimes
