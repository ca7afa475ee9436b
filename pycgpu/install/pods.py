# SPDX-License-Identifier: MIT
"""
Containers of a Kubernetes node's engines, and of nerdctl's, that have our runtime.

containerd keeps the program of each container's runtime, which its `ctr` tells. CRI-O keeps the
runtime's name of each pod, which `crictl` tells. An engine that does not run is not asked, and one
without that program cannot be.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import InstallError
from . import engines, program
from .containerds import Containerd
from .crio import Crio
from .host import Host
from .launcher import is_ours

CRIO_SOCKET = "run/crio/crio.sock"
#: The kubelet never starts a container of this namespace again: it makes another one.
KUBELETS = "k8s.io"
#: Docker's own, which Docker is asked for.
_DOCKERS = "moby"
_POD = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name")


class Held(NamedTuple):
    """A container or a pod that would not go on without our runtime, by its name for people."""

    engine: str
    name: str
    running: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.engine}{', runs' if self.running else ''})"


def held(host: Host, name: str) -> list[Held]:
    """Return those that have a program of ours, of *name*, and would not go on without it."""
    found: dict[Held, None] = {}
    for engine in engines.find(host.prefix):
        try:
            if isinstance(engine, Containerd):
                found |= dict.fromkeys(_containerds(host, engine, name))
            elif isinstance(engine, Crio):
                found |= dict.fromkeys(_crios(host, engine))
        except InstallError:
            continue  # it does not run
    return list(found)


def _containerds(host: Host, engine: Containerd, name: str) -> Iterator[Held]:
    socket = engine.place.socket
    beside = os.path.join(os.path.dirname(engine.program), "ctr")
    ctr = beside if os.access(beside, os.X_OK) else program.find("ctr", host.prefix)
    if ctr is None or not (host.prefix / socket).exists():
        return
    ask = [ctr, "--address", str(host.prefix / socket)]
    for namespace in host.run([*ask, "namespaces", "ls", "--quiet"]).split():
        if namespace == _DOCKERS:
            continue
        inside = [*ask, "--namespace", namespace]
        tasks = host.run([*inside, "tasks", "ls"]).splitlines()[1:]
        running = {line.split()[0] for line in tasks if line.split()[2:] == ["RUNNING"]}
        for id in host.run([*inside, "containers", "ls", "--quiet"]).split():
            if namespace == KUBELETS and id not in running:
                continue
            told = json.loads(host.run([*inside, "containers", "info", id]))
            if _names(told.get("Runtime"), name):
                labels = told.get("Labels") or {}
                pod = "/".join(labels[key] for key in _POD if key in labels)
                yield Held(engine.name, pod or id, id in running)


def _names(runtime: Any, name: str) -> bool:
    """Tell whether containerd's record of a runtime, with its encoded options, names a program."""
    if isinstance(runtime, dict):
        return any(_names(value, name) for value in runtime.values())
    if not isinstance(runtime, str):
        return False
    try:
        decoded = base64.b64decode(runtime, validate=True)
    except ValueError:
        decoded = b""
    return name in runtime or name.encode() in decoded


def _crios(host: Host, engine: Crio) -> Iterator[Held]:
    crictl = program.find("crictl", host.prefix)
    if crictl is None or not (host.prefix / CRIO_SOCKET).exists():
        return
    ours = {name for name, path in engine.programs().items() if is_ours(path)}
    if engine.default() in ours:
        ours.add("")
    ask = [crictl, "--runtime-endpoint", f"unix://{host.prefix / CRIO_SOCKET}"]
    for pod in json.loads(host.run([*ask, "pods", "--state", "Ready", "-o", "json"]))["items"]:
        if pod.get("runtimeHandler", "") in ours:
            about = pod["metadata"]
            yield Held(engine.name, f"{about['namespace']}/{about['name']}", True)
