# SPDX-License-Identifier: MIT
"""
The part of the kernel door that stays while the code behind it is replaced.

``cgpu_km`` holds the hooked files and the tree. ``cgpu_core_<version>`` decides, and another
version can replace it. ``/proc/cgpu_km/upgrade`` shows the running one, and takes ``switch
<module> <milliseconds>``, ``accept`` and ``revert``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import InstallError, ProtocolError
from ..tree import procfs

NODE = "upgrade"
#: Every replaceable module's name begins so.
CORE = "cgpu_core_"
_NONE = "-"

#: Commands to the door. ACCEPT ends a trial, REVERT goes back at once.
ACCEPT, REVERT = "accept", "revert"

_REASONS = {
    errno.EINVAL: "the door does not know this command: it is of another version",
    errno.ENOENT: "no such module stands by, or no trial runs",
    errno.EALREADY: "that module runs already, or a trial does",
    errno.EOPNOTSUPP: "the new module does not know the driver's branch",
    errno.EBUSY: "calls did not come to an end in time",
    errno.EPROTO: "the new module refused the state of the old one",
}


def core_name(version: str) -> str:
    """Return the name of the module that decides, of one version of cgpu."""
    return CORE + re.sub(r"[^A-Za-z0-9]", "_", version)


def cores(modules: set[str]) -> list[str]:
    """Return those of *modules* that decide, in order."""
    return sorted(name for name in modules if name.startswith(CORE))


class Door(NamedTuple):
    """
    What the door says.

    door_api: between door and core; both must have the same.
    state: the form in which the state is handed over; both cores must have the same.
    running: the module that decides, None if there is none.
    standby: the module that is loaded and waits, None if there is none.
    trial_ms: until the door goes back to the former module; 0: no trial.
    switches, reverts: so far.
    pause_ns: the longest that a call had to wait at the last switch; pause_ns_max: at any.
    """

    door_api: str
    state: str
    running: str | None
    standby: str | None
    trial_ms: int
    switches: int
    reverts: int
    pause_ns: int
    pause_ns_max: int


def read(root: str = procfs.KERNEL_DOOR) -> Door | None:
    """Return the door's state; None: no door is there that can change its core."""
    path = f"{root}/{NODE}"
    if not Path(path).exists():
        return None
    table = {}
    for line, text in enumerate(procfs.read_lines(NODE, root), 1):
        key, _, value = text.partition(" ")
        if not value:
            raise ProtocolError(path, line, text)
        table[key] = value

    def name(key: str) -> str | None:
        return None if table[key] == _NONE else table[key]

    try:
        return Door(
            table["door_api"],
            table["state"],
            name("running"),
            name("standby"),
            int(table["trial_ms"]),
            int(table["switches"]),
            int(table["reverts"]),
            int(table["pause_ns"]),
            int(table["pause_ns_max"]),
        )
    except (KeyError, ValueError) as error:
        raise ProtocolError(path, 0, str(error)) from None


def switch(core: str, trial_ms: int) -> str:
    """
    Return the command by which the door hands its state to the loaded *core*.

    Args:
        trial_ms: the time after which the door goes back by itself without ACCEPT.
    """
    return f"switch {core} {trial_ms}"


def tell(command: str, root: str = procfs.KERNEL_DOOR) -> None:
    """Give the door a command; NodeError (EBUSY: try again) changes nothing."""
    procfs.write(NODE, command, root, _REASONS)


class Built(NamedTuple):
    """
    The modules of one version, as files.

    core: name of the module that decides.
    files: name to path, of all modules that were built.
    door_api, state: as in :class:`Door`.
    release: of the kernel for which they were built.
    signed: whether the module that decides bears a signature.
    parameters: those that the module that decides takes.
    """

    core: str
    files: dict[str, str]
    door_api: str
    state: str
    release: str
    signed: bool
    parameters: frozenset[str]


def find(directory: Path) -> dict[str, str]:
    """
    Return the modules in *directory*, by name.

    Raises:
        InstallError: not one each of those that it takes.
    """
    files = {}
    for pattern in ("cgpu_km.ko*", f"{CORE}*.ko*", "cgpu_rm.ko*"):
        found = sorted(directory.glob(pattern))
        if len(found) > 1:
            named = " and ".join(path.name for path in found)
            raise InstallError(f"{directory}: {named}: leave one of them there")
        files.update({path.name.partition(".")[0]: str(path) for path in found})
    if "cgpu_km" not in files:
        raise InstallError(f"{directory}: no cgpu_km.ko in it")
    if not cores(set(files)):
        raise InstallError(f"{directory}: no {CORE}*.ko in it")
    return files


def inspect(files: dict[str, str], run: Callable[[list[str]], str]) -> Built:
    """Return the modules' own metadata; *run* executes a command."""
    (core,) = cores(set(files))

    def field(name: str) -> str:
        return run(["modinfo", "-F", name, files[core]]).strip()

    parameters = (line.partition(":")[0] for line in field("parm").splitlines())
    return Built(
        core,
        files,
        field("cgpu_door_api"),
        field("cgpu_state"),
        field("vermagic").partition(" ")[0],
        bool(field("signer")),
        frozenset(parameters),
    )


def obstacles(door: Door | None, built: Built, release: str, secure_boot: bool) -> list[str]:
    """
    Return why *built* cannot replace the running core under running containers.

    Args:
        release: the running kernel's.
        secure_boot: only signed modules load.
    """
    if built.release != release:
        return [f"{built.core} is built for kernel {built.release or '?'}, and {release} runs"]
    if secure_boot and not built.signed:
        return [f"Secure Boot is on, and {built.core} is not signed"]
    if door is None:
        return ["the module that runs cannot change its code"]
    found = []
    if door.running is None:
        found.append("no module runs whose state could be handed over")
    if door.door_api != built.door_api:
        found.append(
            f"the door that is loaded speaks version {door.door_api} with its modules, and"
            f" {built.core} version {built.door_api or '?'}"
        )
    if door.state != built.state:
        found.append(
            f"the state that runs is of version {door.state}, and {built.core} takes"
            f" {built.state or '?'}"
        )
    return found
