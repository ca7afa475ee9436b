# SPDX-License-Identifier: MIT
"""
Containers that were created with our runtime, whose name engines keep.

Without the runtime no such container starts or takes an `exec`. A Docker whose default it was
starts no container at all until it has reloaded its file. So engines are asked before the runtime
is removed, and told afterwards.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ..errors import InstallError
from ..tree import process
from . import docker, pods, registration
from .host import Host
from .pods import Held

DOCKER_ROOT = "var/lib/docker"
#: The name of all our programs that engines start, in a directory of an engine's name or not.
PROGRAM = "cgpu-container-runtime"
_RELOAD_S = 10.0
_AT_ONCE = 100


def containers(host: Host) -> list[Held]:
    """Return the containers, stopped ones too, that lose their runtime with an uninstallation."""
    dockers, podmans = _going(host)
    return [
        *(_stranded(host, "docker", "{{.HostConfig.Runtime}}", dockers) if dockers else ()),
        *(_stranded(host, "podman", "{{.OCIRuntime}}", podmans) if podmans else ()),
        *pods.held(host, PROGRAM),
    ]


def refusal(found: list[Held]) -> str:
    """Return why nothing is uninstalled, and the remedy."""
    count = "1 container was" if len(found) == 1 else f"{len(found)} containers were"
    return (
        f"{count} created with cgpu's runtime and would not start without it:"
        f" {', '.join(map(str, found))}: remove them and create them again afterwards"
        " (--runtime=runc, a pod without its runtimeClassName), or give --force"
    )


def _going(host: Host) -> tuple[set[str], set[str]]:
    """Return the names of runtimes that Docker and Podman will have no more."""
    dockers: set[str] = set()
    podmans: set[str] = set()
    for change in registration.plan_undo(host.prefix):
        if docker.is_file(change.path):
            dockers |= _named(change.before) - _named(change.after)
        elif "containers.conf.d" in change.path:
            podmans |= _podmans(change.before) - _podmans(change.after)
    return dockers, podmans


def _named(text: str | None) -> set[str]:
    return set(json.loads(text or "{}").get("runtimes", {}))


def _podmans(text: str | None) -> set[str]:
    return set(tomllib.loads(text or "").get("engine", {}).get("runtimes", {}))


def _stranded(host: Host, engine: str, runtime: str, names: set[str]) -> Iterator[Held]:
    for name, told, running in _told(host, engine, runtime):
        if told in names or told.rpartition("/")[2].startswith(PROGRAM):
            yield Held(engine, name, running)


def _told(host: Host, engine: str, runtime: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (name, runtime, whether it runs) of each container, as the engine tells them."""
    try:
        ids = host.run([engine, "ps", "--all", "--quiet", "--no-trunc"]).split()
    except InstallError:
        # The engine does not run, or is not installed any more: its files tell.
        if engine == "docker":
            yield from _dockers_files(host)
        return
    form = f"{{{{.Name}}}}\t{runtime}\t{{{{.State.Running}}}}"
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        command = [engine, "inspect", "--type", "container", "--format", form, *some]
        for line in host.run(command).splitlines():
            name, told, running = line.split("\t")
            yield name.lstrip("/"), told, running == "true"


def _dockers_files(host: Host) -> Iterator[tuple[str, str, bool]]:
    for path in sorted((host.prefix / DOCKER_ROOT).glob("containers/*/hostconfig.json")):
        try:
            told = json.loads(path.read_text())
            about = json.loads(path.with_name("config.v2.json").read_text())
            yield str(about["Name"]).lstrip("/"), str(told["Runtime"]), False
        except (OSError, ValueError, KeyError, TypeError):
            continue


# ---- an engine that works afterwards


def settle(host: Host) -> str | None:
    """
    Have a running Docker forget our runtime, without a restart, which would stop containers.

    A reload leaves settings unchanged that the file does not name. So the file names all of them
    during the reload.

    Returns:
        What the operator has to do if Docker still has the runtime.
    """
    if not _docker_has_ours(host):
        return None
    path = (host.prefix / docker.Docker("dockerd", host.prefix).path).resolve()
    text = path.read_text() if path.exists() else None
    config = json.loads(text) if text and text.strip() else {}
    staged = {"runtimes": {}, "default-runtime": "runc", **config}
    try:
        path.write_text(json.dumps(staged, indent=4) + "\n")
        host.run(_reload(host))
        until_s = time.monotonic() + _RELOAD_S
        while _docker_has_ours(host) and time.monotonic() < until_s:
            time.sleep(0.1)
    except InstallError:
        pass
    finally:
        path.unlink() if text is None else path.write_text(text)
    if not _docker_has_ours(host):
        return None
    return (
        "Docker still starts containers with cgpu's runtime, which is gone: now run: systemctl"
        " restart docker"
    )


def _docker_has_ours(host: Host) -> bool:
    """Whether a Docker that runs has a runtime of ours; of its answer alone."""
    try:
        return PROGRAM in host.run(["docker", "info", "--format", "{{json .Runtimes}}"])
    except InstallError:
        return False


def _reload(host: Host) -> list[str]:
    if host.systemd:
        return ["systemctl", "reload", "docker"]
    found = process.directories(host.prefix / "proc")
    return ["kill", "-HUP", *(one.name for one in found if _comm(one / "comm") == "dockerd")]


def _comm(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
