# SPDX-License-Identifier: MIT
"""The container engines of a host: those that can be registered with, and those that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from . import containerds, crio, docker, podman, program
from .change import Change
from .wanted import Wanted

NAMES = ("docker", *(place.name for place in containerds.PLACES), "podman", "crio")


class Engine(Protocol):
    """One engine of the host; whatever asks it raises InstallError where it does not answer."""

    name: str

    def left_out(self) -> str:
        """Return why there is nothing to register with it, or nothing."""

    def look(self) -> Any:
        """Return its present configuration, for :meth:`check`."""

    def programs(self) -> dict[str, str]:
        """Return the programs of the runtimes that it tells of, ours too, by name."""

    def default(self) -> str:
        """Return the name of its default runtime, where it tells that."""

    def behind(self) -> tuple[str, ...]:
        """Return the programs with which it starts containers, where it names them."""

    def plan(self, wanted: Wanted) -> list[Change]:
        """Return the changes that make ours its runtimes."""

    def check(self, wanted: Wanted, before: Any = None) -> None:
        """Check that it has our runtimes. InstallError: the message names what is missing."""

    def restart(self) -> str:
        """Return the unit to restart, so that it reads the changes; "" if none."""

    def owns(self, path: str) -> bool:
        """Tell whether a file of the record is one of its."""


class Unusable(NamedTuple):
    """An engine that was seen, and why it cannot have our runtime."""

    name: str
    why: str


def find(prefix: Path) -> list[Engine]:
    """Return the engines whose programs are on the host below *prefix*."""
    found: list[Engine] = [*docker.find(prefix), *containerds.find(prefix)]
    return [*found, *podman.find(prefix), *crio.find(prefix)]


def unusable(prefix: Path) -> list[Unusable]:
    """Return those that are there, and that nothing can be registered with."""
    found = []
    if (prefix / "snap/docker/current").exists():
        why = (
            "it is confined and sees no program of the host: install Docker's or the"
            " distribution's own package in its place"
        )
        found.append(Unusable("docker of a snap", why))
    here = {one.name for one in containerds.find(prefix)}
    for place in containerds.PLACES:
        if place.name not in here and (unit := containerds.service(place, prefix)):
            why = (
                f"{unit}.service is installed, and no containerd is where {place.name} has it:"
                f" `systemctl start {unit}`, for a containerd that runs tells its place"
            )
            found.append(Unusable(place.name, why))
    return found


def places() -> str:
    """Return where engines are looked for, to be read."""
    folders = ", ".join(f"/{folder}" for folder in program.FOLDERS)
    others = [
        name for place in containerds.PLACES for name in place.programs if name.startswith("/")
    ]
    return f"dockerd, containerd, podman and crio in {folders}; {', '.join(others)}"
