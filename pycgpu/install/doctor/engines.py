# SPDX-License-Identifier: MIT
"""The container engines: whether each has our runtime, as it says itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ...errors import InstallError
from .. import engines as found_engines
from .. import program, registration
from ..docker import Docker
from ..engines import Engine
from ..host import execute
from ..launcher import behind, runtime_of
from ..wanted import Wanted
from .finding import FAIL, NOTE, OK, WARN, Finding
from .host import Host


def engines(host: Host) -> Iterator[Finding]:
    """Container engines start containers through the runtime."""
    found = found_engines.find(host.prefix)
    for one in found_engines.unusable(host.prefix):
        yield Finding(WARN, "engines", f"{one.name}: left out: {one.why}")
    if not found:
        yield Finding(NOTE, "engines", f"none is here: looked for {found_engines.places()}")
    for engine in found:
        try:
            yield from _examined(engine, host)
        except InstallError as error:
            yield Finding(FAIL, "engines", str(error), _remedy(engine))


def _examined(engine: Engine, host: Host) -> Iterator[Finding]:
    if why := engine.left_out():
        yield Finding(NOTE, "engines", f"{engine.name}: left out: {why}")
        return
    names = registration.names_of(engine)
    if not names:
        said = "the runtime is not registered: its containers are not limited"
        if registration.has_files(engine, host.prefix):
            said = "it has no runtime of ours, though a file of its own names it"
        yield Finding(WARN, "engines", f"{engine.name}: {said}", _remedy(engine))
        return
    own = frozenset([engine.name] if (host.prefix / runtime_of(engine.name)).exists() else [])
    wanted = Wanted(names, own=own)
    engine.check(wanted)
    started = wanted.program(engine.name)
    candidates = behind(host.read(started.lstrip("/")))
    if not any(program.there(path, host.prefix) for path in candidates):
        yield Finding(
            FAIL,
            "engines",
            f"{engine.name}: {started} finds none of {', '.join(candidates)} to start:"
            " no container starts",
            f"install runc, or `cgpu install-runtime --engine {engine.name} --behind PATH`",
        )
        return
    shown = ", ".join(names)
    if isinstance(engine, Docker) and (lacking := _not_read(names, host.prefix)):
        yield Finding(
            WARN,
            "engines",
            f"docker: runs without runtime {', '.join(lacking)}, which its file names",
            "systemctl restart docker",
        )
        return
    yield Finding(OK, "engines", f"{engine.name}: has the runtime, as {shown}")


def _remedy(engine: Engine) -> str:
    return f"cgpu install-runtime --engine {engine.name}"


def _not_read(names: tuple[str, ...], prefix: Path) -> list[str]:
    """Return the names that Docker has not read yet, where it runs and lets us ask."""
    client = program.find("docker", prefix) if prefix == Path("/") else None
    if client is None:
        return []
    try:
        there = json.loads(execute([client, "info", "--format", "{{json .Runtimes}}"]) or "null")
    except (InstallError, ValueError):
        return []
    return [name for name in names if name not in there] if isinstance(there, dict) else []
