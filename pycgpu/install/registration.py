# SPDX-License-Identifier: MIT
"""
Register runtime and hook with the container engines of a host, and take both back.

Nothing is done in place: :func:`plan` says which files would change and how, :func:`apply` makes
the changes, each by a rename. What stood there before is kept in a record, so that :func:`undo`
gives it back; whoever changed an entry in the meantime keeps the change.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..dialects import ANNOTATION_PREFIXES, OPERATOR
from ..errors import InstallError
from ..oci import log, runtime
from . import containerd
from .launcher import hook_program, runtime_program

ENGINES = ("docker", "containerd", "podman", "crio")
#: Where each engine's configuration is; an engine is 'there' when this directory is.
DIRECTORIES = {
    "docker": "etc/docker",
    "containerd": "etc/containerd",
    "podman": "etc/containers",
    "crio": "etc/crio",
}
LIBRARY = "usr/lib/cgpu"
RUNTIME = f"{LIBRARY}/cgpu-container-runtime"
HOOK = f"{LIBRARY}/cgpu-hook"
RECORD = "var/lib/cgpu/runtime_install.json"
DAEMON_JSON = "etc/docker/daemon.json"
PODMAN_CONF = "etc/containers/containers.conf.d/90-cgpu.conf"
HOOKS_D = "etc/containers/oci/hooks.d"
# After the toolkit's 99-nvidia.conf: of two that name a runtime the later one holds.
CRIO_CONF = "etc/crio/crio.conf.d/99-zz-cgpu.conf"


class Options(NamedTuple):
    """
    engines: which to register with, of :data:`ENGINES`.
    name: what users write after ``--runtime=``; further names may stand for the same.
    default: make it Docker's and containerd's default runtime.
    logs: files that the hook writes.
    runtimes: what is executed behind ours, the first that exists.
    hooks_d: also give Podman and CRI-O the hook for every container, whatever its runtime.
    """

    engines: tuple[str, ...]
    names: tuple[str, ...] = ("cgpu",)
    default: bool = False
    logs: tuple[str, ...] = (log.DEFAULT,)
    runtimes: tuple[str, ...] = runtime.RUNTIMES
    hooks_d: bool = True


class Change(NamedTuple):
    """A file and its whole text after the change; ``after`` None removes it."""

    path: str
    before: str | None
    after: str | None
    mode: int = 0o644


def engines_here(prefix: Path = Path("/")) -> tuple[str, ...]:
    """Return the engines whose configuration directory exists under *prefix*."""
    return tuple(name for name in ENGINES if (prefix / DIRECTORIES[name]).is_dir())


def names_free(prefix: Path = Path("/")) -> tuple[str, ...]:
    """
    Return the names that nobody's runtime has here: ours, and ``nvidia`` where no toolkit is.

    Vendors' documents print ``--runtime=nvidia``. Where NVIDIA's container toolkit is, the name is
    its own until somebody says otherwise.
    """
    named = any("nvidia" in there for there in _others(prefix).values())
    toolkit = any(
        (prefix / folder / runtime.TOOLKIT).exists() for folder in ("usr/bin", "usr/local/bin")
    )
    return ("cgpu",) if named or toolkit else ("cgpu", "nvidia")


def plan(options: Options, prefix: Path = Path("/")) -> list[Change]:
    """
    Return the changes that installing takes; none for what is there already.

    Raises:
        InstallError: a configuration cannot be read, or holds an entry of someone else's.
    """
    for name in options.engines:
        if name not in ENGINES:
            raise InstallError(f"{name!r} is no engine; write one of {', '.join(ENGINES)}")
    for name in options.names:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise InstallError(f"runtime name {name!r}: write letters, digits, '-' and '_'")
    options = options._replace(runtimes=(*_toolkits(options.names, prefix), *options.runtimes))
    changes = [
        _change(prefix, RUNTIME, launcher("runtime", options), 0o755),
        _change(prefix, HOOK, launcher("hook", options), 0o755),
    ]
    for engine in options.engines:
        changes += _PLANS[engine](options, prefix)
    return [change for change in changes if change.before != change.after]


def _others(prefix: Path) -> dict[str, dict[str, Any]]:
    """Return what Docker and containerd had for a runtime of each name before ours was there."""
    daemon = _json(_before(prefix, DAEMON_JSON), DAEMON_JSON).get("runtimes")
    path = containerd.deciding(prefix)
    text = _before(prefix, path)
    return {
        "docker": daemon if isinstance(daemon, dict) else {},
        "containerd": {} if text is None else containerd.runtimes(text, path),
    }


def _before(prefix: Path, path: str) -> str | None:
    record = _record(prefix)
    return record[path] if path in record else _read(prefix / path)


def _toolkits(names: tuple[str, ...], prefix: Path) -> tuple[str, ...]:
    """Return where the toolkit's runtime was started from under *names*, if not from PATH."""
    found = []
    for there in _others(prefix).values():
        for entry in (there[name] for name in names if isinstance(there.get(name), dict)):
            options = entry.get("options")
            program = options.get("BinaryName") if isinstance(options, dict) else None
            path = str(entry.get("path") or program or "")
            if path.startswith("/") and Path(path).name.startswith(runtime.TOOLKIT):
                found.append(path)
    in_path = runtime.candidates((runtime.TOOLKIT,))
    return tuple(path for path in dict.fromkeys(found) if path not in in_path)


def launcher(module: str, options: Options) -> str:
    """Return the program that starts *module*, ``runtime`` or ``hook``."""
    # A shell shim of a version manager would cost a hundred times what Python itself does.
    interpreter = os.path.realpath(sys.executable)
    if module == "hook":
        logs = [word for path in options.logs for word in ("--log", path)]
        return hook_program(interpreter, _package(), logs)
    return runtime_program(interpreter, _package(), (f"/{HOOK}",), options.runtimes)


def _package() -> str:
    """Return where the package is imported from, through the link that an upgrade leads anew."""
    here = Path(__file__).resolve().parents[2]
    home = Path(os.path.realpath(sys.prefix))
    link = home.with_name(re.sub(r"-\d.*$", "", home.name))
    if link.is_symlink() and here.is_relative_to(home):
        return str(link / here.relative_to(home))
    return str(here)


def apply(changes: list[Change], prefix: Path = Path("/")) -> None:
    """
    Make *changes*, and remember what stood there before the first of them.

    Raises:
        InstallError: a file cannot be written; those before it are put back.
    """
    record = _record(prefix)
    for change in changes:
        record.setdefault(change.path, change.before)
    # The record first: whoever is cut short can be undone.
    text = json.dumps(record, indent=2) + "\n"
    done: list[Change] = []
    try:
        for change in [Change(RECORD, _read(prefix / RECORD), text, 0o600), *changes]:
            apply_one(change, prefix)
            done.append(change)
    except OSError as error:
        for change in reversed(done):
            _write(prefix / change.path, change.before, change.mode)
        raise InstallError(f"{error.filename}: {error.strerror}; nothing was changed") from None


def apply_one(change: Change, prefix: Path = Path("/")) -> None:
    """Make one change, whose former text somebody else remembers; OSError if it cannot be."""
    _write(prefix / change.path, change.after, change.mode)


def plan_undo(prefix: Path = Path("/")) -> list[Change]:
    """
    Return the changes that take the installation back.

    Raises:
        InstallError: a configuration cannot be read any more.
    """
    changes = []
    for path, original in _record(prefix).items():
        text = _read(prefix / path)
        if path == DAEMON_JSON and text is not None:
            after = _docker_without(text, original)
        elif containerd.is_ours(path) and text is not None:
            after = containerd.take_back(text, original, f"/{RUNTIME}", path)
        else:
            after = original
        changes.append(Change(path, text, after, 0o755 if path in (RUNTIME, HOOK) else 0o644))
    record = _read(prefix / RECORD)
    if record is not None:
        changes.append(Change(RECORD, record, None))
    return [change for change in changes if change.before != change.after]


def undo(changes: list[Change], prefix: Path = Path("/")) -> None:
    """Make the changes of :func:`plan_undo`; raise InstallError where a file cannot be written."""
    try:
        for change in changes:
            _write(prefix / change.path, change.after, change.mode)
    except OSError as error:
        raise InstallError(f"{error.filename}: {error.strerror}; run it again") from None


def _docker(options: Options, prefix: Path) -> list[Change]:
    text = _read(prefix / DAEMON_JSON)
    config = _json(text, DAEMON_JSON)
    runtimes = config.setdefault("runtimes", {})
    if not isinstance(runtimes, dict):
        raise InstallError(f"/{DAEMON_JSON}: 'runtimes' is not an object")
    for name in options.names:
        runtimes[name] = {"path": f"/{RUNTIME}"}
    if options.default:
        config["default-runtime"] = options.names[0]
    if text is not None and config == _json(text, DAEMON_JSON):
        return []
    return [Change(DAEMON_JSON, text, json.dumps(config, indent=4) + "\n")]


def _docker_without(text: str, original: str | None) -> str | None:
    config, old = _json(text, DAEMON_JSON), _json(original, DAEMON_JSON)
    runtimes, old_runtimes = config.get("runtimes", {}), old.get("runtimes", {})
    ours = [name for name, entry in runtimes.items() if entry == {"path": f"/{RUNTIME}"}]
    for name in ours:
        if name in old_runtimes:
            runtimes[name] = old_runtimes[name]
        else:
            del runtimes[name]
    if not runtimes and "runtimes" not in old:
        config.pop("runtimes", None)
    if config.get("default-runtime") in ours:
        config.pop("default-runtime")
        if "default-runtime" in old:
            config["default-runtime"] = old["default-runtime"]
    if config == old:
        return original
    return json.dumps(config, indent=4) + "\n"


def _containerd(options: Options, prefix: Path) -> list[Change]:
    # containerd shows a runtime only the annotations that it is told of.
    annotations = tuple(f"{prefix}*" for prefix in (OPERATOR, *ANNOTATION_PREFIXES))
    wanted = containerd.Wanted(options.names, f"/{RUNTIME}", options.default, annotations)
    path = containerd.deciding(prefix)
    text = _read(prefix / path)
    return [Change(path, text, containerd.extend(text, wanted, path))]


def _podman(options: Options, prefix: Path) -> list[Change]:
    entries = "".join(f'{name} = ["/{RUNTIME}"]\n' for name in options.names)
    changes = [_change(prefix, PODMAN_CONF, f"[engine.runtimes]\n{entries}")]
    return changes + _hooks_d(options, prefix)


def _crio(options: Options, prefix: Path) -> list[Change]:
    tables = "".join(
        f'[crio.runtime.runtimes.{name}]\nruntime_path = "/{RUNTIME}"\nruntime_type = "oci"\n'
        for name in options.names
    )
    return [_change(prefix, CRIO_CONF, tables), *_hooks_d(options, prefix)]


def _hooks_d(options: Options, prefix: Path) -> list[Change]:
    if not options.hooks_d:
        return []
    return [
        _change(prefix, f"{HOOKS_D}/90-cgpu-{stage.lower()}.json", hook_definition(stage))
        for stage in ("createRuntime", "poststop")
    ]


def hook_definition(stage: str) -> str:
    """Return the file that gives every container of Podman and CRI-O the hook in one *stage*."""
    definition = {
        "version": "1.0.0",
        "hook": {"path": f"/{HOOK}", "args": ["cgpu-hook", stage]},
        "when": {"always": True},
        "stages": [stage],
    }
    return json.dumps(definition, indent=2) + "\n"


_PLANS = {"docker": _docker, "containerd": _containerd, "podman": _podman, "crio": _crio}


def restart_commands(changes: list[Change]) -> list[str]:
    """Return the shell commands that make the engines read what changed."""
    paths = {change.path for change in changes}
    services = [
        service
        for service, path in (
            ("docker", DAEMON_JSON),
            ("containerd", next(filter(containerd.is_ours, paths), None)),
            ("crio", CRIO_CONF),
        )
        if path in paths
    ]
    return [f"systemctl restart {shlex.quote(service)}" for service in services]


def _change(prefix: Path, path: str, after: str, mode: int = 0o644) -> Change:
    return Change(path, _read(prefix / path), after, mode)


def _record(prefix: Path) -> dict[str, str | None]:
    text = _read(prefix / RECORD)
    record = _json(text, RECORD)
    return {str(path): None if old is None else str(old) for path, old in record.items()}


def _json(text: str | None, path: str) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InstallError(f"/{path}: not JSON ({error}); correct it first") from None
    if not isinstance(config, dict):
        raise InstallError(f"/{path}: not a JSON object; correct it first")
    return config


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"{path}: cannot be read: {error}") from None


def _write(path: Path, text: str | None, mode: int) -> None:
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".cgpu")
    draft.write_text(text, encoding="utf-8")
    # Another's mode stays: daemon.json may be kept from other users.
    draft.chmod(path.stat().st_mode & 0o7777 if path.exists() else mode)
    draft.rename(path)
