# SPDX-License-Identifier: MIT
"""
The runtimes of a containerd, by its own ``containerd config dump``.

containerd's version decides which of several imported files wins, which defaults a runtime gets,
and which older forms count. So containerd is asked.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..errors import InstallError
from .host import execute

RUNC = "io.containerd.runc.v2"
#: The plugin whose runtimes pods get, by the version of a configuration; later ones keep the last.
PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}

Table = dict[str, Any]


class Said(NamedTuple):
    """
    A containerd's configuration, as it reads its files.

    version: the version of the configuration that it writes.
    cri: whether it serves Kubernetes at all; Docker's own file switches that off.
    runtimes: by name, each with its defaults.
    default: the default runtime's name.
    imports: patterns of further files, or, before 2.0, all files that were read.
    plugins: all sections.
    """

    version: int
    cri: bool
    runtimes: dict[str, Table]
    default: str
    imports: tuple[str, ...]
    plugins: Table


class Manner(NamedTuple):
    """
    How a containerd treats files, tried with two of our own.

    merges: a further file adds to a plugin's section (2.1); otherwise it replaces the section.
    keeps: containerd keeps its built-in runtime when a file names another one.
    unread: patterns that it shows as imports of a file that names none (2.2). It reads them only
        where there is no file.
    """

    version: int
    merges: bool
    keeps: bool
    unread: tuple[str, ...] = ()


def ask(program: str, config: Path) -> Said:
    """
    Return the configuration that *program* reads from *config*, or its defaults without a file.

    Raises:
        InstallError: it rejects the file.
    """
    words = ["-c", str(config), "config", "dump"] if config.exists() else ["config", "default"]
    text = execute([program, *words])
    try:
        dump = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InstallError(f"{program} {' '.join(words)}: not TOML: {error}") from None
    plugins = table(dump, "plugins")
    disabled = {str(one) for one in dump.get("disabled_plugins") or ()}
    # The newest plugin first: containerd 2 also lists the older one, with its remains.
    sections = (table(plugins, name, "containerd") for name in reversed(PLUGINS.values()))
    section: Table = next(filter(None, sections), {})
    runtimes = {name: dict(entry) for name, entry in table(section, "runtimes").items()}
    return Said(
        int(dump.get("version", max(PLUGINS))),
        not disabled.intersection(PLUGINS.values()),
        runtimes,
        str(section.get("default_runtime_name") or ""),
        tuple(map(str, dump.get("imports") or ())),
        plugins,
    )


def manner(program: str, version: int) -> Manner:
    """Return how *program* treats files of *version*."""
    plugin = PLUGINS[min(version, max(PLUGINS))]

    def runtime(name: str) -> str:
        return f'[plugins."{plugin}".containerd.runtimes.{name}]\nruntime_type = "{RUNC}"\n'

    with TemporaryDirectory() as folder:
        main, further = Path(folder, "main.toml"), Path(folder, "further.toml")
        main.write_text(f'version = {version}\nimports = ["{further}"]\n{runtime("one")}')
        further.write_text(f"version = {version}\n{runtime('two')}")
        found = ask(program, main).runtimes
        further.write_text(f"version = {version}\n")
        unread = ask(program, further).imports if {"one", "two"} <= found.keys() else ()
    return Manner(version, {"one", "two"} <= found.keys(), "runc" in found, unread)


def settings(entry: Table) -> Table:
    """Return the settings in a runtime's table without the empty ones, which containerd adds."""
    found = {
        key: settings(value) if isinstance(value, dict) else value for key, value in entry.items()
    }
    return {key: value for key, value in found.items() if value not in ("", 0, [], {}, None)}


def table(config: object, *keys: str) -> Table:
    """Return a table of tables, empty where there is none."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}
