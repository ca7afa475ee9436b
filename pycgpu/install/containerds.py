# SPDX-License-Identifier: MIT
"""
Every containerd of a host, its own or a Kubernetes distribution's, and our entry among its
runtimes. Where containerd merges files, the entry is in a file of ours. Otherwise it is in the
file that wins.
"""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from ..errors import InstallError
from . import containerd, daemon, program
from . import containerd_text as text
from .change import Change, changed, read
from .containerd import Manner, Said, Table, settings
from .daemon import Daemon
from .launcher import is_ours
from .wanted import Wanted

OWN = "99-zz-cgpu.toml"
#: The folder next to a main file that imports nothing yet.
FOLDER = "conf.d"
_BASE = '{{ template "base" . }}\n'


class Place(NamedTuple):
    """
    A containerd, as its vendor documents it.

    config: the file that it is started with.
    programs: paths of its program; a name without a slash is looked up in the program folders.
    units: its services, of which a host has one.
    templates: by version, the file from which each start writes *config*; *config* is not edited.
    folder: the folder of further files, which the distribution itself merges.
    socket: its socket while it runs.
    """

    name: str
    config: str
    programs: tuple[str, ...]
    units: tuple[str, ...]
    templates: tuple[tuple[int, str], ...] = ()
    folder: str = ""
    socket: str = "run/containerd/containerd.sock"

    def has(self, unit: str) -> bool:
        """Tell whether a service is one of its: k3s may be installed under a longer name."""
        return any(unit == one or unit.startswith(f"{one}-") for one in self.units)

    def moved(self, running: Daemon, prefix: Path) -> Place:
        """Return its place on a host whose daemon was started with another file."""
        named = running.option("-c", "--config")
        if not named or os.path.realpath(prefix / self.config) == os.path.realpath(
            prefix / named.lstrip("/")
        ):
            return self
        config = os.path.normpath(named).lstrip("/")
        beside = os.path.dirname(config)
        return self._replace(
            config=config,
            programs=(running.program,),
            units=(running.unit,),
            templates=tuple(
                (version, f"{beside}/{os.path.basename(path)}") for version, path in self.templates
            ),
            socket=(running.option("-a", "--address") or self.socket).lstrip("/"),
        )


def _rancher(name: str, programs: tuple[str, ...], units: tuple[str, ...]) -> Place:
    at = f"var/lib/rancher/{name}/agent/etc/containerd"
    templates = ((2, f"{at}/config.toml.tmpl"), (3, f"{at}/config-v3.toml.tmpl"))
    socket = "run/k3s/containerd/containerd.sock"
    return Place(name, f"{at}/config.toml", programs, units, templates, socket=socket)


PLACES = (
    Place("containerd", "etc/containerd/config.toml", ("containerd",), ("containerd",)),
    _rancher("k3s", ("/var/lib/rancher/k3s/data/current/bin/containerd",), ("k3s", "k3s-agent")),
    _rancher("rke2", ("/var/lib/rancher/rke2/bin/containerd",), ("rke2-server", "rke2-agent")),
    Place(
        "microk8s",
        "var/snap/microk8s/current/args/containerd.toml",
        ("/snap/microk8s/current/bin/containerd",),
        ("snap.microk8s.daemon-containerd",),
        ((2, "var/snap/microk8s/current/args/containerd-template.toml"),),
        socket="var/snap/microk8s/common/run/containerd.sock",
    ),
    Place(
        "k0s",
        "etc/k0s/containerd.toml",
        ("/var/lib/k0s/bin/containerd",),
        ("k0sworker", "k0scontroller"),
        folder="etc/k0s/containerd.d",
        socket="run/k0s/containerd.sock",
    ),
)


class Containerd:
    """A containerd of the host below *prefix*."""

    def __init__(self, place: Place, path: str, prefix: Path) -> None:
        self.place = place
        self.name = place.name
        self.program = path
        self.prefix = prefix
        self._said: Said | None = None

    def look(self) -> Said:
        """Return its configuration as first asked. InstallError: it rejects its files."""
        if self._said is None:
            self._said = self._ask()
        return self._said

    def _ask(self) -> Said:
        return containerd.ask(self.program, self.prefix / self.place.config)

    def left_out(self) -> str:
        """Return why there is nothing to register with it, or nothing."""
        config = self.prefix / self.place.config
        if self.place.templates and not config.exists():
            return f"/{self.place.config} is written at its first start: start it once"
        if not self.look().cri:
            return (
                f"/{self.place.config} switches its Kubernetes plugin off (disabled_plugins), and"
                " with it all runtimes; Docker, ctr and nerdctl name theirs themselves"
            )
        return ""

    def programs(self) -> dict[str, str]:
        """Return the programs of the runtimes that it has."""
        return {name: text.binary(entry) for name, entry in self.look().runtimes.items()}

    def default(self) -> str:
        """Return the name of its default runtime."""
        return self.look().default

    def behind(self) -> tuple[str, ...]:
        """Return the programs of its default runtime and of runc, where it names them."""
        said = self.look()
        named = [text.binary(said.runtimes.get(name, {})) for name in (said.default, "runc")]
        return tuple(dict.fromkeys(path for path in named if path and not is_ours(path)))

    def plan(self, wanted: Wanted) -> list[Change]:
        """
        Return the changes that make ours its runtimes.

        Raises:
            InstallError: a file cannot be read, or a name is another's runtime that is no runc.
        """
        if self.left_out():
            return []
        said = self.look()
        entries = _entries(said, wanted, self.name)
        default = wanted.names[0] if wanted.default else None
        if self.place.folder:
            return [self._further(self.place.folder, said.version, entries, default)]
        manner = containerd.manner(self.program, said.version)
        has_main = (self.prefix / self.place.config).exists()
        folder = self._imported(said, manner) if manner.merges and has_main else None
        if folder is not None:
            return [self._further(folder, self._version(said), entries, default)]
        if self.place.templates:
            return [self._template(entries, default)]
        if manner.merges and has_main:
            main = self.place.config
            imported = text.with_import(read(self.prefix / main) or "", f"{FOLDER}/{OWN}", main)
            return [
                self._further(
                    f"{Path(main).parent}/{FOLDER}", self._version(said), entries, default
                ),
                changed(self.prefix, main, imported),
            ]
        return [self._edited(said, entries, default, keeps=manner.keeps)]

    def _further(
        self, folder: str, version: int, entries: dict[str, Table], default: str | None
    ) -> Change:
        made = text.of_runtimes(version, entries, default)
        return self._change(f"{folder}/{OWN}", made)

    def _change(self, path: str, made: str) -> Change:
        """Return the change to *made*, none where the file says the same in other words."""
        before = read(self.prefix / path)
        same = before is not None and text.parsed(before, path) == text.parsed(made, path)
        return Change(path, before, before if same else made)

    def _version(self, said: Said) -> int:
        """Return the main file's version, or containerd's: it does not merge different versions."""
        main = read(self.prefix / self.place.config)
        found = 1 if main is None else text.version(main, self.place.config)
        return found if found > 1 else said.version

    def _imported(self, said: Said, manner: Manner) -> str | None:
        """Return the folder, below the prefix, of further files of any name that it reads."""
        main = self.prefix / self.place.config
        here, named = main.parent, text.imports(read(main) or "", self.place.config)
        for pattern in reversed(said.imports):
            name = os.path.basename(pattern)
            if name != OWN and not fnmatch.fnmatch(OWN, name):
                continue
            if pattern in manner.unread and pattern not in named:
                continue
            folder = (here / pattern).parent
            if not any(character in str(folder) for character in "*?["):
                return self._below(folder)
        return None

    def _below(self, path: Path) -> str:
        inside = path.is_relative_to(self.prefix)
        return str(path.relative_to(self.prefix if inside else "/"))

    def _edited(
        self, said: Said, entries: dict[str, Table], default: str | None, *, keeps: bool
    ) -> Change:
        """Change the file that wins, for a containerd whose further files replace the section."""
        import tomlkit

        path, section = self._deciding(said)
        if (
            not keeps
            and "runc" not in entries
            and not containerd.table(section, "containerd", "runtimes")
        ):
            # A first runtime there would be the only one, and pods be without runc.
            entries = {"runc": settings(said.runtimes.get("runc", {})), **entries}
        before = read(self.prefix / path)
        if before is None:
            # A main file disables containerd's default imports, so it must name them.
            imports = {"imports": list(said.imports)} if said.imports else {}
            before = tomlkit.dumps({"version": said.version, **imports})
        return self._change(path, text.with_runtimes(before, entries, default, path))

    def _deciding(self, said: Said) -> tuple[str, Table]:
        found = text.loaded(sorted({*said.imports, str(self.prefix / self.place.config)}))
        if len(found) > 1:
            # Which of them was read last, each is asked alone.
            last = [one for one in found if _section(self._alone(one[0])) == _section(said)]
            found = last or found
        if not found:
            return self.place.config, {}
        name, section = found[-1]
        return self._below(Path(name)), section

    def _alone(self, name: str) -> Said:
        import tomlkit

        document = tomlkit.parse(Path(name).read_text(encoding="utf-8"))
        document.pop("imports", None)
        return self._supposed(document.as_string())

    def _supposed(self, config: str) -> Said:
        """Return its configuration if its only file had this text."""
        with NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
            file.write(config)
            file.flush()
            return containerd.ask(self.program, Path(file.name))

    def _template(self, entries: dict[str, Table], default: str | None) -> Change:
        number = text.version(read(self.prefix / self.place.config) or "", self.place.config)
        # In the order of the versions; versions later than the last use the last.
        fitting = [path for first, path in self.place.templates if first <= number]
        path = fitting[-1] if fitting else self.place.templates[0][1]
        before = read(self.prefix / path)
        if not path.endswith(".tmpl"):
            if before is None:
                raise InstallError(f"{self.name}: /{path} is missing, which its vendor ships")
            return self._change(path, text.with_runtimes(before, entries, default, path))
        if default:
            raise InstallError(
                f"{self.name}: its template sets the default runtime: leave out --default, and"
                f" start it with --default-runtime={default}"
            )
        block = text.of_runtimes(number, entries, None).partition("\n\n")[2]
        return changed(self.prefix, path, text.with_block(before or _BASE, block))

    def check(self, wanted: Wanted, before: Said | None = None) -> None:
        """
        Check that it has our runtimes, with runc's settings, and the others still as *before*.

        Raises:
            InstallError: something is missing; the message names it.
        """
        now = before is None or not (self.place.templates or self.place.folder)
        said = self._ask() if now else self._pending()
        runc = settings(containerd.table(_like(before or said), "options"))
        runc.pop("BinaryName", None)
        for name in wanted.names:
            entry = said.runtimes.get(name)
            found = settings(containerd.table(entry, "options"))
            if found.pop("BinaryName", None) != wanted.program(self.name):
                raise self._refused(f"its configuration has no runtime {name!r} of ours")
            if lacking := {key: value for key, value in runc.items() if found.get(key) != value}:
                shown = ", ".join(f"{key} = {value!r}" for key, value in lacking.items())
                raise self._refused(f"runtime {name!r} lacks what runc's has: {shown}")
        if wanted.default and said.default != wanted.names[0]:
            raise self._refused(f"its default runtime is {said.default!r}")
        for name, entry in (before.runtimes if before and now else {}).items():
            kept = name in wanted.names or settings(said.runtimes.get(name, {})) == settings(entry)
            if not kept:
                raise self._refused(f"runtime {name!r} would not be what it was")

    def _refused(self, what: str) -> InstallError:
        return InstallError(
            f"{self.name}: {what}: see `{self.program} -c /{self.place.config} config dump`"
        )

    def _pending(self) -> Said:
        """Return its configuration at its next start, as far as it can tell now."""
        if self.place.folder:
            return self._supposed(read(self.prefix / self.place.folder / OWN) or "")
        for _, path in self.place.templates:
            template = read(self.prefix / path) or ""
            generated = read(self.prefix / self.place.config) or ""
            if not path.endswith(".tmpl"):
                return self._supposed(template)
            if text.BEGIN in template:
                block = template.partition(text.BEGIN)[2].partition(text.END)[0]
                return self._supposed(text.with_block(generated, block))
        return self._ask()

    def restart(self) -> str:
        """Return the unit to restart, so that it reads the changes."""
        return service(self.place, self.prefix) or self.place.units[0]

    def owns(self, path: str) -> bool:
        """Tell whether a file of the record is one of its."""
        folders = {str(Path(self.place.config).parent), self.place.folder}
        return any(folder and path.startswith(f"{folder}/") for folder in folders)


def take_back(path: str, now: str, original: str | None, written: str | None) -> str | None:
    """Return the text of *path* without our entries, and with later changes of others."""
    if path.endswith(".tmpl"):
        left = text.without_block(now)
        return original if original is None and left == _BASE else left
    if path.endswith(f"/{OWN}"):
        return original
    return text.without(now, original, written, path)


def find(prefix: Path) -> list[Containerd]:
    """Return the containerds whose programs are on the host below *prefix*."""
    found = []
    running = {one.unit: one for one in daemon.running("containerd", prefix)}
    for usual in PLACES:
        mine = next((running[unit] for unit in running if usual.has(unit)), None)
        place = usual.moved(mine, prefix) if mine else usual
        for name in place.programs:
            path = program.there(name, prefix) if "/" in name else program.find(name, prefix)
            if path:
                found.append(Containerd(place, path, prefix))
                break
    return found


def service(place: Place, prefix: Path) -> str:
    """Return the service of a place that is installed, or nothing."""
    folders = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
    for unit in place.units:
        if any((prefix / folder / f"{unit}.service").exists() for folder in folders):
            return unit
    return ""


def _section(said: Said) -> Table:
    return containerd.table(said.plugins, containerd.PLUGINS[2])


def programs(original: str, path: str) -> dict[str, str]:
    """Return the programs of the runtimes that one file names."""
    config = text.parsed(original, path)
    found: dict[str, str] = {}
    for plugin in containerd.PLUGINS.values():
        entries = containerd.table(config, "plugins", plugin, "containerd", "runtimes")
        found |= {name: text.binary(entry) for name, entry in entries.items()}
    return found


def _like(said: Said) -> Table:
    """Return the runtime whose settings ours copies: runc, or the one that is started instead."""
    entries = [said.runtimes.get(name, {}) for name in ("runc", said.default, *said.runtimes)]
    kinds = (one for one in entries if one.get("runtime_type") == containerd.RUNC)
    return next((one for one in kinds if not is_ours(text.binary(one))), {})


def _entries(said: Said, wanted: Wanted, engine: str) -> dict[str, Table]:
    made = {}
    runc = settings(containerd.table(_like(said), "options"))
    for name in wanted.names:
        there = settings(said.runtimes.get(name, {}))
        kind = there.get("runtime_type", containerd.RUNC)
        if kind != containerd.RUNC:
            raise InstallError(
                f"{engine}: runtime {name!r} is there already, and is a {kind!r};"
                " choose another --name"
            )
        like = there or settings(_like(said))
        options = {
            **containerd.table(like, "options"),
            **runc,
            "BinaryName": wanted.program(engine),
        }
        shown = {
            key: _listed(like.get(key), wanted.annotations)
            for key in ("pod_annotations", "container_annotations")
        }
        entry = {**like, **shown, "runtime_type": containerd.RUNC}
        # A fixed order, so that a second registration finds nothing to change.
        made[name] = {**dict(sorted(entry.items())), "options": dict(sorted(options.items()))}
    return made


def _listed(present: object, wanted: tuple[str, ...]) -> list[str]:
    kept = [str(one) for one in present] if isinstance(present, list) else []
    return [*kept, *(one for one in wanted if one not in kept)]
