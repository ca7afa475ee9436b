# SPDX-License-Identifier: MIT
"""
The journal: which steps of an installation are done on a host, and which are under way.

The journal is written before a step is taken and again when it is done, each time by a rename. So
after a crash it tells what to undo. An upgrade is a :class:`Layer` on top of the installation
until it has proved itself; then both become one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import InstallError
from ..tree import lock
from .host import Host
from .step import Step, make_directories, remove_directories

PATH = "var/lib/cgpu/installation.json"
#: Locked while an installation changes. Every host has this directory, so no lock file stays.
LOCKED = "run"
#: How long to wait for another installation.
PATIENCE_S = 10.0

#: Stages of a layer: files may be half written; all are, and the modules may be taken.
PLACING, PLACED = "placing", "placed"


class Layer(NamedTuple):
    """
    An upgrade that is under way.

    version: the new version.
    way: ``hot``, ``cold`` or ``files``.
    stage: PLACING or PLACED.
    steps: its own steps; undoing one restores what the installation below it had.
    """

    version: str
    way: str
    stage: str
    steps: list[Step]


class Journal(NamedTuple):
    """
    version: the installed version.
    made: directories that were made for the journal itself.
    steps: the steps of the installation; undoing all from the end removes it.
    layer: the upgrade that is under way.
    retired: steps of an earlier version which are still to be undone.
    """

    version: str
    made: tuple[str, ...]
    steps: list[Step]
    layer: Layer | None = None
    retired: tuple[Step, ...] = ()


def read(host: Host) -> Journal:
    """
    Return the journal.

    Raises:
        InstallError: nothing is installed, or the journal cannot be read.
    """
    try:
        held = json.loads((host.prefix / PATH).read_text())
        layer = held.get("layer")
        return Journal(
            str(held["version"]),
            tuple(held.get("made", ())),
            [Step(*step) for step in held["steps"]],
            None
            if layer is None
            else Layer(
                layer["version"],
                layer["way"],
                layer["stage"],
                [Step(*step) for step in layer["steps"]],
            ),
            tuple(Step(*step) for step in held.get("retired", ())),
        )
    except FileNotFoundError:
        raise InstallError(f"cgpu is not installed here (no /{PATH})") from None
    except PermissionError:
        raise InstallError(f"/{PATH}: permission denied: run this as root") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InstallError(f"/{PATH}: cannot be read: {error}") from None


def exists(host: Host) -> bool:
    """Whether something is installed, or was begun."""
    return (host.prefix / PATH).exists()


def begin(host: Host, version: str) -> Journal:
    """Return the journal of an installation that begins, with the directories that it needs."""
    return Journal(version, tuple(make_directories((host.prefix / PATH).parent, host.prefix)), [])


def write(host: Host, journal: Journal) -> None:
    """Replace the journal."""
    held = journal._asdict()
    held["layer"] = None if journal.layer is None else journal.layer._asdict()
    path = host.prefix / PATH
    draft = path.with_name(path.name + ".cgpu")
    draft.write_text(json.dumps(held, indent=1) + "\n")
    draft.rename(path)


def forget(host: Host, journal: Journal) -> None:
    """Remove the journal, and the directories that were made for it if they are empty."""
    path = host.prefix / PATH
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".cgpu").unlink(missing_ok=True)
    remove_directories(journal.made, host.prefix)


@contextmanager
def alone(host: Host) -> Iterator[None]:
    """
    Exclude other installations, upgrades and uninstallations.

    Commands that are run inherit the lock. If one outlives a killed installation, the next
    installation waits until it has ended.

    Raises:
        InstallError: another process holds the lock.
    """
    directory = os.open(host.prefix / LOCKED, os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(directory, True)
    try:
        if not lock.acquire(directory, PATIENCE_S, pause_s=0.05):
            raise InstallError(
                "cgpu is being installed, upgraded or removed by somebody else:"
                " try again when that has ended"
            )
        yield
    finally:
        os.close(directory)
