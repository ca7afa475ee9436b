# SPDX-License-Identifier: MIT
"""
The steps of an installation: what each does to a host, and how it is undone.

A step is plain data, so that a journal can hold it. Undoing what was never done, or is undone
already, is no error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from . import runtime_install
from .errors import CgpuError, InstallError

UNITS = "etc/systemd/system"
#: The module and its bridge to the driver, in the order in which they are loaded.
MODULES = ("cgpu_km", "cgpu_rm")


class Host(NamedTuple):
    """
    Where to install: ``prefix`` is the root of its files, ``release`` the kernel's.

    run: executes a command and returns its output; raises InstallError when it fails.
    """

    prefix: Path
    release: str
    run: Callable[[list[str]], str]

    @property
    def systemd(self) -> bool:
        return (self.prefix / "run/systemd/system").is_dir()

    @property
    def loaded(self) -> set[str]:
        try:
            lines = (self.prefix / "proc/modules").read_text().splitlines()
        except OSError:
            return set()
        return {line.split(" ")[0] for line in lines}


def this_host() -> Host:
    """Return the machine that this runs on."""
    return Host(Path("/"), os.uname().release, execute)


def execute(command: list[str]) -> str:
    """Run *command*; InstallError with the last line of what it said when it fails."""
    environment = {**os.environ, "LC_ALL": "C"}
    environment["PATH"] = f"{environment.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        raise InstallError(f"{command[0]} is missing: install it") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise InstallError(f"`{' '.join(command)}`: {said[-1] if said else done.returncode}")
    return done.stdout


class Step(NamedTuple):
    """``kind`` names a pair of functions; ``data`` is all they need, and fits JSON."""

    kind: str
    shown: str
    data: dict


def write_file(path: str, text: str, prefix: Path) -> Step:
    """Return the step that writes a file, and that puts back what stands there now."""
    target = prefix / path
    before = target.read_text() if target.exists() else None
    return Step("file", f"write /{path}", {"path": path, "text": text, "before": before})


def _do_file(host: Host, data: dict) -> None:
    target = host.prefix / data["path"]
    data["made"] = make_directories(target.parent, host.prefix)
    target.write_text(data["text"])


def _undo_file(host: Host, data: dict) -> None:
    target = host.prefix / data["path"]
    if target.exists() and target.read_text() == data["text"]:
        if data["before"] is None:
            target.unlink()
        else:
            target.write_text(data["before"])
    remove_directories(data.get("made", ()), host.prefix)


def _do_tree(host: Host, data: dict) -> None:
    target = host.prefix / data["path"]
    data["made"] = make_directories(target.parent, host.prefix)
    shutil.copytree(data["source"], target, ignore=products, dirs_exist_ok=True)


def _undo_tree(host: Host, data: dict) -> None:
    shutil.rmtree(host.prefix / data["path"], ignore_errors=True)
    remove_directories(data.get("made", ()), host.prefix)


def products(directory: str, names: list[str]) -> set[str]:
    """Say to :func:`shutil.copytree` what is not a source of the module."""
    ignored = shutil.ignore_patterns(
        *("*.o", "*.ko", "*.mod", "*.mod.c", ".*", "Module.symvers", "modules.order"),
        *("__pycache__", "__init__.py", "sim"),
    )
    return ignored(directory, names)


def _do_dkms(host: Host, data: dict) -> None:
    version = ["-m", "cgpu", "-v", data["version"]]
    host.run(["dkms", "add", *version])
    host.run(["dkms", "build", *version, "-k", host.release])
    host.run(["dkms", "install", *version, "-k", host.release])


def _undo_dkms(host: Host, data: dict) -> None:
    if (host.prefix / "var/lib/dkms/cgpu" / data["version"]).exists():
        host.run(["dkms", "remove", "-m", "cgpu", "-v", data["version"], "--all"])
    shutil.rmtree(host.prefix / "var/lib/dkms/cgpu", ignore_errors=True)


def _do_place(host: Host, data: dict) -> None:
    directory = host.prefix / data["path"]
    data["made"] = make_directories(directory, host.prefix)
    for source in data["files"]:
        shutil.copy(source, directory)
    host.run(["depmod", "-a", data["release"]])


def _undo_place(host: Host, data: dict) -> None:
    for source in data["files"]:
        (host.prefix / data["path"] / Path(source).name).unlink(missing_ok=True)
    remove_directories(data.get("made", ()), host.prefix)
    host.run(["depmod", "-a", data["release"]])


def _do_runtime(host: Host, data: dict) -> None:
    options = runtime_install.Options(
        runtime_install.engines_here(host.prefix), tuple(data["names"]), data["default"]
    )
    changes = runtime_install.plan(options, host.prefix)
    missing = {
        str(parent)
        for change in changes
        for parent in Path(change.path).parents
        if not (host.prefix / parent).exists()
    }
    data["made"] = sorted(missing, key=len, reverse=True)
    data["restart"] = runtime_install.restart_commands(changes)
    runtime_install.apply(changes, host.prefix)


def _undo_runtime(host: Host, data: dict) -> None:
    runtime_install.undo(runtime_install.plan_undo(host.prefix), host.prefix)
    for path in data.get("made", ()):
        remove_directories([path], host.prefix)


def _do_service(host: Host, data: dict) -> None:
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "enable", *(["--now"] if data["now"] else []), data["unit"]])


def _undo_service(host: Host, data: dict) -> None:
    if (host.prefix / UNITS / data["unit"]).exists():
        host.run(["systemctl", "disable", "--now", data["unit"]])


def _do_load(host: Host, data: dict) -> None:
    host.run(["modprobe", "cgpu_km"])
    # The bridge wants a driver that is loaded; without it memory is limited all the same.
    if "cgpu_rm" in data["modules"] and "nvidia" in host.loaded:
        try:
            host.run(["modprobe", "cgpu_rm"])
        except InstallError as error:
            data["note"] = str(error)


def _undo_load(host: Host, data: dict) -> None:
    for name in reversed(MODULES):
        if name in host.loaded:
            host.run(["rmmod", name])


def _undo_reload(host: Host, data: dict) -> None:
    host.run(["systemctl", "daemon-reload"])


_DO = {
    "file": _do_file,
    "tree": _do_tree,
    "dkms": _do_dkms,
    "place": _do_place,
    "runtime": _do_runtime,
    "service": _do_service,
    "load": _do_load,
}
_UNDO = {
    "file": _undo_file,
    "tree": _undo_tree,
    "dkms": _undo_dkms,
    "place": _undo_place,
    "runtime": _undo_runtime,
    "service": _undo_service,
    "load": _undo_load,
    "reload": _undo_reload,
}


def make_directories(directory: Path, prefix: Path) -> list[str]:
    """Make a directory; return those that were not there, the deepest first."""
    made = []
    while not directory.exists():
        made.append(str(directory.relative_to(prefix)))
        directory = directory.parent
    for path in reversed(made):
        (prefix / path).mkdir()
    return made


def remove_directories(made: Iterable[str], prefix: Path) -> None:
    """Remove the directories that :func:`make_directories` made, as far as they are empty."""
    for path in made:
        try:
            (prefix / path).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            # Somebody else has put something there since.
            return


def do(host: Host, step: Step) -> None:
    """Take a step; OSError or CgpuError where it fails, and it may be half done then."""
    _DO[step.kind](host, step.data)


def undo(host: Host, step: Step) -> None:
    """Undo a step, also one that was cut short or is undone already."""
    _UNDO[step.kind](host, step.data)


def take_back(host: Host, done: list[Step]) -> list[str]:
    """Undo the steps, the last first; return what could not be undone."""
    left = []
    for step in reversed(done):
        try:
            undo(host, step)
        except (OSError, CgpuError) as error:
            left.append(f"{step.shown}: {error}")
    return left
