# SPDX-License-Identifier: MIT
"""
Register runtime and hook with the container engines of a host, and take both back.

:func:`plan` says which files would change and how. :func:`register` makes the changes and asks each
engine whether it has our runtime now. If one has not, all changes are undone. A record keeps the
former texts, which :func:`undo` restores, except for entries that others have changed since.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from ..dialects import ANNOTATION_PREFIXES, OPERATOR
from ..errors import InstallError
from ..oci import log, runtime
from . import containerds, docker, engines, program
from .change import Change, changed, read, write
from .engines import NAMES, Engine
from .launcher import HOOK, RUNTIME, hook_program, is_ours, runtime_of, runtime_program
from .wanted import Wanted

RECORD = "var/lib/cgpu/runtime_install.json"
DAEMON_JSON = docker.DAEMON_JSON
_PROGRAMS = (RUNTIME, HOOK, *map(runtime_of, NAMES))


class Options(NamedTuple):
    """
    engines: the engines to register with, of :data:`pycgpu.install.engines.NAMES`.
    name: the name that users write after ``--runtime=``; other names may mean the same.
    default: make it the default runtime of Docker, containerd and CRI-O.
    logs: files that the hook writes.
    runtimes: candidates for the runtime behind ours, of which the first that exists is executed;
        one that an engine names comes before runc and crun.
    hooks_d: also give Podman and CRI-O the hook for every container, whatever its runtime.
    """

    engines: tuple[str, ...]
    names: tuple[str, ...] = ("cgpu",)
    default: bool = False
    logs: tuple[str, ...] = (log.DEFAULT,)
    runtimes: tuple[str, ...] = runtime.RUNTIMES
    hooks_d: bool = True


class Entry(NamedTuple):
    """A file of the record: its text before the first registration, and after the last."""

    before: str | None
    after: str | None


def engines_here(prefix: Path = Path("/")) -> tuple[str, ...]:
    """Return the names of the engines whose programs are on the host below *prefix*."""
    return tuple(engine.name for engine in engines.find(prefix))


def need_engines(prefix: Path = Path("/")) -> tuple[str, ...]:
    """
    Return the names of the engines of the host.

    Raises:
        InstallError: none is there; the message says where it looked, and what cannot be used.
    """
    here = engines_here(prefix)
    if here:
        return here
    seen = "".join(f"; {one.name}: {one.why}" for one in engines.unusable(prefix))
    raise InstallError(f"no container engine is here (looked for {engines.places()}){seen}")


def left_out(names: tuple[str, ...], prefix: Path = Path("/")) -> list[str]:
    """Return a line for each engine that has nothing of ours, with the reason."""
    lines = [f"left out: {one.name}: {one.why}" for one in engines.unusable(prefix)]
    for engine in engines.find(prefix):
        if engine.name in names and (why := engine.left_out()):
            lines.append(f"left out: {engine.name}: {why}")
    return lines


def names_free(prefix: Path = Path("/")) -> tuple[str, ...]:
    """
    Return the free names for our runtime: ours, and ``nvidia`` on a host without the toolkit.

    Vendors' documents print ``--runtime=nvidia``. Where NVIDIA's container toolkit is installed, it
    keeps that name unless the operator decides otherwise.
    """
    found = engines.find(prefix)
    named = any("nvidia" in _former(engine, prefix) for engine in found)
    return ("cgpu",) if named or program.find(runtime.TOOLKIT, prefix) else ("cgpu", "nvidia")


def names_of(engine: Engine) -> tuple[str, ...]:
    """Return the names under which an engine has our runtime, as it says."""
    return tuple(name for name, path in engine.programs().items() if is_ours(path))


def has_files(engine: Engine, prefix: Path = Path("/")) -> bool:
    """Tell whether files were changed for an engine."""
    return any(map(engine.owns, _record(prefix)))


def plan(options: Options, prefix: Path = Path("/")) -> list[Change]:
    """
    Return the changes that an installation needs, without those that are made already.

    Raises:
        InstallError: an engine is not here or rejects its own files, a configuration cannot be
            read or has another's entry by our name, or our runtime has none to start.
    """
    return _plan(options, _chosen(options, prefix), prefix)


def _plan(options: Options, chosen: list[Engine], prefix: Path) -> list[Change]:
    wanted, behind = _wanted(options, chosen, prefix)
    common = (*_toolkits(options.names, chosen, prefix), *options.runtimes)
    changes = [
        changed(prefix, RUNTIME, launcher("runtime", options._replace(runtimes=common)), 0o755),
        changed(prefix, HOOK, launcher("hook", options), 0o755),
    ]
    for engine in chosen:
        runtimes = behind.get(engine.name, common)
        if engine.name in wanted.own:
            text = launcher("runtime", options._replace(runtimes=runtimes), engine.name)
            changes.append(changed(prefix, runtime_of(engine.name), text, 0o755))
        made = engine.plan(wanted)
        if made:
            _need_runtime(engine.name, runtimes, prefix)
        changes += made
    return list(dict.fromkeys(change for change in changes if change.before != change.after))


def _chosen(options: Options, prefix: Path) -> list[Engine]:
    for name in options.engines:
        if name not in NAMES:
            raise InstallError(f"{name!r} is no engine; write one of {', '.join(NAMES)}")
    for name in options.names:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise InstallError(f"runtime name {name!r}: write letters, digits, '-' and '_'")
    here = {engine.name: engine for engine in engines.find(prefix)}
    for name in options.engines:
        if name not in here:
            raise InstallError(f"{name} is not here (looked for {engines.places()})")
    return [here[name] for name in options.engines]


def _wanted(
    options: Options, chosen: list[Engine], prefix: Path
) -> tuple[Wanted, dict[str, tuple[str, ...]]]:
    """Return the entries for all engines, and the programs behind by engines that name them."""
    # containerd shows a runtime only the annotations that it is told of.
    annotations = tuple(f"{prefix}*" for prefix in (OPERATOR, *ANNOTATION_PREFIXES))
    wanted = Wanted(options.names, options.default, annotations, options.hooks_d)
    if options.runtimes != runtime.RUNTIMES:
        return wanted, {}
    toolkit, *others = runtime.RUNTIMES
    behind = {}
    for engine in chosen:
        named = () if engine.left_out() else engine.behind()
        own = [path for path in named if not _is_toolkit(path)]
        if own and own[0] not in _found(tuple(others), prefix)[:1]:
            toolkits = _toolkits(options.names, [engine], prefix)
            behind[engine.name] = (*toolkits, toolkit, *own, *others)
    return wanted._replace(own=frozenset(behind)), behind


def _found(names: tuple[str, ...], prefix: Path) -> list[str]:
    """Return those programs behind ours that are on the host, the first first."""
    return [path for path in runtime.candidates(names) if program.there(path, prefix)]


def _need_runtime(engine: str, names: tuple[str, ...], prefix: Path) -> None:
    """Without one no container would start, and nothing would say so before."""
    behind = tuple(name for name in names if not _is_toolkit(name))
    if not _found(behind, prefix):
        raise InstallError(
            f"{engine}: our runtime has none to start: none of {', '.join(behind)} is"
            " installed; install runc, or name one by --behind"
        )


def _is_toolkit(path: str) -> bool:
    return os.path.basename(path).startswith(runtime.TOOLKIT)


def _former(engine: Engine, prefix: Path) -> dict[str, str]:
    """Return the programs of others' runtimes, also of those whose names we took over."""
    there = {} if engine.left_out() else engine.programs()
    found = {name: path for name, path in there.items() if not is_ours(path)}
    for path, (original, _) in _record(prefix).items():
        if original is not None and engine.owns(path):
            found |= _named(path, original)
    return found


def _named(path: str, original: str) -> dict[str, str]:
    if path.endswith(".json"):
        return docker.programs(original, path)
    return containerds.programs(original, path)


def _toolkits(names: tuple[str, ...], chosen: list[Engine], prefix: Path) -> tuple[str, ...]:
    """Return where the toolkit's runtime was started from under *names*, if not from PATH."""
    found = []
    for engine in chosen:
        former = _former(engine, prefix)
        found += [former[name] for name in names if name in former]
    in_path = runtime.candidates((runtime.TOOLKIT,))
    wanted = (path for path in found if path.startswith("/") and _is_toolkit(path))
    return tuple(path for path in dict.fromkeys(wanted) if path not in in_path)


def launcher(module: str, options: Options, engine: str = "") -> str:
    """Return the program that starts *module*, ``runtime`` (that of one *engine*) or ``hook``."""
    # A shell shim of a version manager would cost a hundred times what Python itself does.
    interpreter = os.path.realpath(sys.executable)
    if module == "hook":
        logs = [word for path in options.logs for word in ("--log", path)]
        return hook_program(interpreter, _package(), logs)
    behind = os.path.join(runtime.BEHIND, engine) if engine else runtime.BEHIND
    return runtime_program(interpreter, _package(), (f"/{HOOK}",), options.runtimes, behind=behind)


def _package() -> str:
    """Return where the package is imported from, through the link that an upgrade leads anew."""
    here = Path(__file__).resolve().parents[2]
    home = Path(os.path.realpath(sys.prefix))
    link = home.with_name(re.sub(r"-\d.*$", "", home.name))
    if link.is_symlink() and here.is_relative_to(home):
        return str(link / here.relative_to(home))
    return str(here)


def register(options: Options, prefix: Path = Path("/")) -> list[Change]:
    """
    Make the changes of :func:`plan`, ask every engine whether it has ours, and return them.

    Raises:
        InstallError: a file cannot be written, or an engine does not have ours; all is put back.
    """
    chosen = _chosen(options, prefix)
    wanted, _ = _wanted(options, chosen, prefix)
    asked = [(engine, engine.look()) for engine in chosen if not engine.left_out()]
    changes = _plan(options, chosen, prefix)
    record = read(prefix / RECORD)
    apply(changes, prefix)
    try:
        for engine, before in asked:
            engine.check(wanted, before)
    except InstallError as error:
        _put_back([Change(RECORD, record, None), *changes], prefix)
        raise InstallError(f"{error}; nothing was changed") from None
    return changes


def apply(changes: list[Change], prefix: Path = Path("/")) -> None:
    """
    Make *changes*, and record the text of each file before its first change.

    Raises:
        InstallError: a file cannot be written; earlier files are restored.
    """
    record = _record(prefix)
    for change in changes:
        known = record.get(change.path)
        record[change.path] = Entry(known.before if known else change.before, change.after)
    # The record comes first, so that an interrupted registration can be undone.
    text = json.dumps({path: one._asdict() for path, one in record.items()}, indent=2) + "\n"
    done: list[Change] = []
    try:
        for change in [Change(RECORD, read(prefix / RECORD), text, 0o600), *changes]:
            apply_one(change, prefix)
            done.append(change)
    except OSError as error:
        _put_back(done, prefix)
        raise InstallError(f"{error.filename}: {error.strerror}; nothing was changed") from None


def _put_back(done: list[Change], prefix: Path) -> None:
    for change in reversed(done):
        write(prefix / change.path, change.before, change.mode)


def apply_one(change: Change, prefix: Path = Path("/")) -> None:
    """Make one change; the caller keeps the former text. OSError: it cannot be made."""
    write(prefix / change.path, change.after, change.mode)


def plan_undo(prefix: Path = Path("/")) -> list[Change]:
    """
    Return the changes that take the installation back.

    Raises:
        InstallError: a configuration cannot be read any more.
    """
    changes = []
    for path, (original, written) in _record(prefix).items():
        text = read(prefix / path)
        if docker.is_file(path) and text is not None:
            after = docker.take_back(path, text, original)
        elif path.endswith((".toml", ".tmpl")) and text is not None:
            after = containerds.take_back(path, text, original, written)
        else:
            after = original
        changes.append(Change(path, text, after, 0o755 if path in _PROGRAMS else 0o644))
    record = read(prefix / RECORD)
    if record is not None:
        changes.append(Change(RECORD, record, None))
    return [change for change in changes if change.before != change.after]


def undo(changes: list[Change], prefix: Path = Path("/")) -> None:
    """Make the changes of :func:`plan_undo`; raise InstallError where a file cannot be written."""
    try:
        for change in changes:
            write(prefix / change.path, change.after, change.mode)
    except OSError as error:
        raise InstallError(f"{error.filename}: {error.strerror}; run it again") from None


def renewed(options: Options, prefix: Path = Path("/")) -> list[Change]:
    """Return the changes of our programs alone; the engines' files stay."""
    changes = plan(options._replace(engines=()), prefix)
    there = [name for name in engines_here(prefix) if (prefix / runtime_of(name)).exists()]
    for name in there:
        made = plan(options._replace(engines=(name,)), prefix)
        changes += [change for change in made if change.path == runtime_of(name)]
    return changes


def restart_commands(changes: list[Change], prefix: Path = Path("/")) -> list[str]:
    """Return the shell commands that make the engines read the changes."""
    paths = [change.path for change in changes]
    units = [engine.restart() for engine in engines.find(prefix) if any(map(engine.owns, paths))]
    return [f"systemctl restart {shlex.quote(unit)}" for unit in units if unit]


def _record(prefix: Path) -> dict[str, Entry]:
    record = docker.parsed(read(prefix / RECORD), RECORD)
    # A record of 0.1.0 only has the text from before.
    return {
        path: Entry(one["before"], one["after"]) if isinstance(one, dict) else Entry(one, None)
        for path, one in record.items()
    }
