# SPDX-License-Identifier: MIT
"""
Names of containers, from what Docker, Podman, containerd, CRI-O and the kubelet leave on disk.

Files first: they answer in microseconds, and while a daemon hangs. Only Docker's socket is asked,
and only for ids that no file named (its data may lie anywhere), with a short time-out. A file that
cannot be read leaves a container without a name, which is no error.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

SOCKET = "run/docker.sock"
SOCKET_TIMEOUT_S = 0.25
#: Links ``<pod>_<namespace>_<container>-<id>.log`` that every kubelet keeps.
KUBELET_LOGS = "var/log/containers"
DOCKER_CONFIGS = "var/lib/docker/containers"
#: Podman's data directory unless storage.conf names another, and the one that a boot empties.
PODMAN_STORAGE = ("var/lib/containers/storage", "run/containers/storage")
PODMAN_CONFIGS = ("etc/containers/storage.conf", "usr/share/containers/storage.conf")
#: Of any storage driver: overlay-containers, vfs-containers, ...
PODMAN_INDEXES = ("*-containers/containers.json", "*-containers/volatile-containers.json")
CONTAINERD_TASKS = "run/containerd/io.containerd.runtime.v2.task"


class ContainerName(NamedTuple):
    """
    ``name`` as its user knows it. A pod's container has ``pod`` and ``namespace`` too, and the
    pod's ``uid`` where that is known, because pods' names are reused.
    """

    engine: str
    name: str
    pod: str | None = None
    namespace: str | None = None
    uid: str | None = None

    def __str__(self) -> str:
        if self.pod is None:
            return self.name
        return f"{self.namespace}/{self.pod}/{self.name}"


def find(ids: Iterable[str], prefix: str = "/") -> dict[str, ContainerName]:
    """
    Return the names of those of *ids* that somebody here named.

    Args:
        ids: full ids, as ``container/`` lists them.
        prefix: root of the host's files.
    """
    wanted = set(ids)
    found: dict[str, ContainerName] = {}
    root = Path(prefix)
    for source in (_kubelet, _docker_files, _podman, _containerd, _docker_socket):
        missing = wanted - found.keys()
        if not missing:
            break
        for container_id, name in source(missing, root).items():
            found.setdefault(container_id, name)
    return found


def matches(text: str, container_id: str, short: str, name: ContainerName | None) -> bool:
    """
    Whether a user who writes *text* means this container.

    An id or the beginning of one (at least 4 characters), the name of its directory, its name,
    its pod, or ``namespace/pod[/container]``.
    """
    if text in (container_id, short) or (len(text) >= 4 and container_id.startswith(text)):
        return True
    if name is None:
        return False
    if name.pod is None:
        return text == name.name
    whole = str(name)
    return text in (name.name, name.pod, whole, whole.rpartition("/")[0])


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _matching(directory: Path, pattern: str) -> list[Path]:
    # Path.glob raises where the directory's own parent may not be searched.
    return sorted(Path(path) for path in glob.glob(f"{glob.escape(str(directory))}/{pattern}"))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _kubelet(ids: set[str], root: Path) -> dict[str, ContainerName]:
    found = {}
    for file in _names(root / KUBELET_LOGS):
        head, dash, container_id = file.removesuffix(".log").rpartition("-")
        words = head.split("_")
        if dash and len(words) == 3 and container_id in ids:
            pod, namespace, name = words
            uid = _linked_uid(root / KUBELET_LOGS / file)
            found[container_id] = ContainerName("kubernetes", name, pod, namespace, uid)
    return found


def _linked_uid(link: Path) -> str | None:
    """Return the uid in the link's target, ``/var/log/pods/<namespace>_<pod>_<uid>/…/<n>.log``."""
    try:
        words = os.readlink(link).split("/")[-3].split("_")
    except (OSError, IndexError):
        return None
    return words[2] if len(words) == 3 else None


def _docker_files(ids: set[str], root: Path) -> dict[str, ContainerName]:
    found = {}
    for container_id in ids & set(_names(root / DOCKER_CONFIGS)):
        config = _json(root / DOCKER_CONFIGS / container_id / "config.v2.json")
        if isinstance(config, dict) and config.get("Name"):
            found[container_id] = ContainerName("docker", str(config["Name"]).lstrip("/"))
    return found


def _podman(ids: set[str], root: Path) -> dict[str, ContainerName]:
    found = {}
    for storage in _podman_storage(root):
        for index in (path for name in PODMAN_INDEXES for path in _matching(storage, name)):
            listed = _json(index)
            for entry in listed if isinstance(listed, list) else []:
                if isinstance(entry, dict) and entry.get("id") in ids and entry.get("names"):
                    found[entry["id"]] = ContainerName("podman", str(entry["names"][0]))
    return found


def _podman_storage(root: Path) -> list[Path]:
    """Return the directories of root's containers: those of storage.conf, and the usual ones."""
    named: list[str] = []
    for config in PODMAN_CONFIGS:
        try:
            text = (root / config).read_text(errors="replace")
        except OSError:
            continue
        # Importing tomllib takes longer than everything else here.
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() in ("graphroot", "runroot"):
                named.append(value.partition("#")[0].strip().strip("\"'").lstrip("/"))
        break
    return [root / name for name in dict.fromkeys((*named, *PODMAN_STORAGE))]


def _containerd(ids: set[str], root: Path) -> dict[str, ContainerName]:
    found = {}
    for namespace in _names(root / CONTAINERD_TASKS):
        for container_id in ids & set(_names(root / CONTAINERD_TASKS / namespace)):
            config = _json(root / CONTAINERD_TASKS / namespace / container_id / "config.json")
            if isinstance(config, dict):
                name = _annotated(config.get("annotations") or {})
                if name is not None:
                    found[container_id] = name
    return found


def _annotated(annotations: dict[str, str]) -> ContainerName | None:
    cri = "io.kubernetes.cri."
    if name := annotations.get(f"{cri}container-name"):
        return ContainerName(
            "kubernetes",
            name,
            annotations.get(f"{cri}sandbox-name", "?"),
            annotations.get(f"{cri}sandbox-namespace", "?"),
            annotations.get(f"{cri}sandbox-uid"),
        )
    if name := annotations.get("nerdctl/name"):
        return ContainerName("nerdctl", name)
    return None


def _docker_socket(ids: set[str], root: Path) -> dict[str, ContainerName]:
    # Docker's ids have 64 hex digits. Docker is not asked about other ids, which were made by hand.
    if not any(len(one) == 64 for one in ids):
        return {}
    # Imported late: where files name all containers, it is not needed.
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SOCKET_TIMEOUT_S)
            connection.connect(str(root / SOCKET))
            connection.sendall(b"GET /containers/json HTTP/1.0\r\nHost: docker\r\n\r\n")
            chunks = []
            while chunk := connection.recv(65536):
                chunks.append(chunk)
        head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
        listed = json.loads(body) if b" 200 " in head.split(b"\r\n")[0] else []
    except (OSError, ValueError):
        return {}
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get("Id") in ids and entry.get("Names"):
            found[entry["Id"]] = ContainerName("docker", str(entry["Names"][0]).lstrip("/"))
    return found
