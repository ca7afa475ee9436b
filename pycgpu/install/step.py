# SPDX-License-Identifier: MIT
"""
The steps of an installation: what each does to a host, and how it is undone.

A step is plain data, so that a journal can hold it. Undoing a step that was never taken, or that is
undone already, is no error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CgpuError, InstallError, NodeError
from . import kernel_door, module_build, registration
from .change import Change
from .host import Host

UNITS = "etc/systemd/system"
DKMS = "var/lib/dkms/cgpu"
#: The copies of files that an upgrade overwrites, kept until it has proved itself.
KEPT = "var/lib/cgpu/kept"
_DRAFT = ".cgpu-new"
#: A process that reads a file of the tree keeps the modules loaded for that moment.
_READERS_S = 1.0
_PAUSE_S = 0.05

#: Values that JSON can hold, because a step is kept in the journal.
Data = dict[str, Any]


class Step(NamedTuple):
    """``kind`` names a pair of functions; ``data`` is all they need, and fits JSON."""

    kind: str
    shown: str
    data: Data


def write_file(path: str, text: str, prefix: Path) -> Step:
    """Return the step that writes a file, and whose undoing restores the present text."""
    target = prefix / path
    before = target.read_text() if target.exists() else None
    return Step("file", f"write /{path}", {"path": path, "text": text, "before": before})


def _do_file(host: Host, data: Data) -> None:
    target = host.prefix / data["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    _replace(target, data["text"].encode())


def _undo_file(host: Host, data: Data) -> None:
    target = host.prefix / data["path"]
    _draft(target.resolve()).unlink(missing_ok=True)
    if target.exists() and target.read_text() == data["text"]:
        if data["before"] is None:
            target.unlink()
        else:
            _replace(target, data["before"].encode())
    remove_directories(data.get("made", ()), host.prefix)


def _draft(target: Path) -> Path:
    """Return the path of the draft that replaces *target*; no program reads such a name."""
    return target.with_name(target.name + _DRAFT)


def _replace(target: Path, content: bytes) -> None:
    # A link stays; its target is replaced.
    target = target.resolve()
    draft = _draft(target)
    draft.write_bytes(content)
    draft.rename(target)


def _do_tree(host: Host, data: Data) -> None:
    target = host.prefix / data["path"]
    shutil.copytree(data["source"], target, ignore=module_build.products, dirs_exist_ok=True)


def _undo_tree(host: Host, data: Data) -> None:
    shutil.rmtree(host.prefix / data["path"], ignore_errors=True)
    remove_directories(data.get("made", ()), host.prefix)


def _do_dkms_build(host: Host, data: Data) -> None:
    version = ["-m", "cgpu", "-v", data["version"]]
    if not (host.prefix / DKMS / data["version"] / "source").exists():
        host.run(["dkms", "add", *version])
    host.run(["dkms", "build", *version, "-k", host.release])


def _do_dkms(host: Host, data: Data) -> None:
    _do_dkms_build(host, data)
    host.run(["dkms", "install", "-m", "cgpu", "-v", data["version"], "-k", host.release])


def _undo_dkms(host: Host, data: Data) -> None:
    top = host.prefix / DKMS
    if (top / data["version"]).exists():
        host.run(["dkms", "remove", "-m", "cgpu", "-v", data["version"], "--all"])
        shutil.rmtree(top / data["version"], ignore_errors=True)
    if top.is_dir() and not [one for one in top.iterdir() if (one / "source").exists()]:
        shutil.rmtree(top)
    _remove_core(host, data["version"])


def _remove_core(host: Host, version: str) -> None:
    # DKMS forgets the files of a version when another one takes its place.
    name = kernel_door.core_name(version)
    found = list((host.prefix / "lib/modules").glob(f"*/updates/dkms/{name}.ko*"))
    for path in found:
        path.unlink()
    for release in sorted({path.parts[-4] for path in found}):
        host.run(["depmod", "-a", release])


def dkms_modules(host: Host, version: str) -> Path:
    """Return the directory of DKMS's modules of *version* for the running kernel."""
    return host.prefix / DKMS / version / host.release / os.uname().machine / "module"


def _kernels(host: Host, version: str) -> list[str]:
    """Return the kernels for which DKMS has built *version*, the running one first."""
    others = {path.parts[-3] for path in (host.prefix / DKMS / version).glob("*/*/module")}
    return [host.release, *sorted(others - {host.release})]


def _do_dkms_install(host: Host, data: Data) -> None:
    for release in _kernels(host, data["former"]):
        # Forced, for DKMS itself would never go back to an older version.
        command = ["dkms", "install", "--force", "-m", "cgpu", "-v", data["version"]]
        try:
            host.run([*command, "-k", release])
        except InstallError as error:
            if release == host.release:
                raise
            data["note"] = f"kernel {release} has no module now: {error}"
    # Two of them would both be loaded at boot.
    _remove_core(host, data["former"])


def _undo_dkms_install(host: Host, data: Data) -> None:
    for release in _kernels(host, data["former"]):
        command = ["dkms", "install", "--force", "-m", "cgpu", "-v", data["former"]]
        host.run([*command, "-k", release])
    _remove_core(host, data["version"])


def _do_stage(host: Host, data: Data) -> None:
    directory = host.prefix / data["path"]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    module_build.build(Path(data["source"]), directory, host.prefix, host.release, host.run)


def place(directory: Path, path: str, host: Host) -> Step:
    """Return the step that copies the modules in *directory* to *path*; raise InstallError."""
    files = kernel_door.find(directory)
    names = [Path(file).name for file in files.values()]
    there = {file.name for file in (host.prefix / path).glob("cgpu_*.ko*")}
    others = {name for name in there if name.startswith(kernel_door.CORE)} - set(names)
    data = {
        "path": path,
        "from": str(directory),
        "release": host.release,
        "names": names,
        "had": sorted(there.intersection(names)),
        # Two of them would both be loaded at boot.
        "gone": sorted(others),
    }
    return Step("place", f"copy {', '.join(names)} to /{path}, depmod", data)


def _do_place(host: Host, data: Data) -> None:
    directory, kept = host.prefix / data["path"], host.prefix / KEPT
    directory.mkdir(parents=True, exist_ok=True)
    before = [*data["had"], *data["gone"]]
    if before:
        kept.mkdir(exist_ok=True)
    for name in before:
        _replace(kept / name, (directory / name).read_bytes())
    for name in data["names"]:
        _replace(directory / name, (Path(data["from"]) / name).read_bytes())
    for name in data["gone"]:
        (directory / name).unlink()
    host.run(["depmod", "-a", data["release"]])


def _undo_place(host: Host, data: Data) -> None:
    directory, kept = host.prefix / data["path"], host.prefix / KEPT
    before = {*data["had"], *data["gone"]}
    for name in {*data["names"], *data["gone"]}:
        _draft(directory / name).unlink(missing_ok=True)
        if name not in before:
            (directory / name).unlink(missing_ok=True)
        elif (kept / name).exists():
            _replace(directory / name, (kept / name).read_bytes())
    remove_directories(data.get("made", ()), host.prefix)
    host.run(["depmod", "-a", data["release"]])
    shutil.rmtree(kept, ignore_errors=True)


def _undo_leftover(host: Host, data: Data) -> None:
    for path in data["paths"]:
        target = host.prefix / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


def _do_relaunch(host: Host, data: Data) -> None:
    for change in map(Change._make, data["changes"]):
        registration.apply_one(change, host.prefix)


def _undo_relaunch(host: Host, data: Data) -> None:
    for path, before, after, mode in data["changes"]:
        target = host.prefix / path
        if target.exists() and target.read_text() == after:
            registration.apply_one(Change(path, after, before, mode), host.prefix)


def _do_tools(host: Host, data: Data) -> None:
    _lead(Path(data["link"]), data["to"])


def _undo_tools(host: Host, data: Data) -> None:
    link = Path(data["link"])
    if link.is_symlink() and os.readlink(link) == data["to"]:
        _lead(link, data["before"])


def _lead(link: Path, to: str) -> None:
    draft = _draft(link)
    draft.unlink(missing_ok=True)
    draft.symlink_to(to)
    # A user who starts a tool meanwhile gets the old or the new one, complete.
    draft.rename(link)


def _registration(data: Data) -> registration.Options:
    engines, names = tuple(data["engines"]), tuple(data["names"])
    return registration.Options(engines, names, data["default"])


def _do_runtime(host: Host, data: Data) -> None:
    registration.register(_registration(data), host.prefix)


def _undo_runtime(host: Host, data: Data) -> None:
    registration.undo(registration.plan_undo(host.prefix), host.prefix)
    for path in data.get("made", ()):
        remove_directories([path], host.prefix)


def _do_service(host: Host, data: Data) -> None:
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "enable", *(["--now"] if data["now"] else []), data["unit"]])


def _undo_service(host: Host, data: Data) -> None:
    if (host.prefix / UNITS / data["unit"]).exists():
        host.run(["systemctl", "disable", "--now", data["unit"]])


def _do_load(host: Host, data: Data) -> None:
    host.run(["modprobe", "cgpu_km"])
    if not kernel_door.cores(host.loaded):
        # modprobe does not report a further module that it fails to load.
        host.run(["modprobe", "cgpu-core"])
    # The bridge wants a driver that is loaded; without it memory is limited all the same.
    if "nvidia" in host.loaded:
        try:
            host.run(["modprobe", "cgpu_rm"])
        except InstallError as error:
            data["note"] = str(error)


def _unload(host: Host, name: str) -> None:
    """Unload a module; InstallError: it is still in use after a while."""
    deadline_s = time.monotonic() + _READERS_S
    while True:
        try:
            host.run(["rmmod", name])
            return
        except InstallError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_PAUSE_S)


def _undo_load(host: Host, data: Data) -> None:
    loaded = host.loaded
    door = kernel_door.read(str(host.tree))
    running = door.running if door else None
    if door is not None and door.trial_ms:
        # Refused where the trial ends by itself at this moment.
        with contextlib.suppress(NodeError):
            host.tell(kernel_door.REVERT, str(host.tree))
        door = kernel_door.read(str(host.tree))
        running = door.running if door else None
    # Cores first: if containers hold the running one, its refusal leaves the doors loaded.
    cores = sorted(kernel_door.cores(loaded), key=lambda name: name == running)
    gone: list[str] = []
    try:
        for name in (*cores, "cgpu_rm", "cgpu_km"):
            if name in loaded:
                _unload(host, name)
                gone.append(name)
    except InstallError:
        if running in gone:
            host.run(["modprobe", "cgpu-core"])
        if "cgpu_rm" in gone:
            host.run(["modprobe", "cgpu_rm"])
        raise


def _undo_reload(host: Host, data: Data) -> None:
    host.run(["systemctl", "daemon-reload"])


_DO = {
    "file": _do_file,
    "tree": _do_tree,
    "dkms": _do_dkms,
    "dkms_build": _do_dkms_build,
    "dkms_install": _do_dkms_install,
    "stage": _do_stage,
    "place": _do_place,
    "runtime": _do_runtime,
    "relaunch": _do_relaunch,
    "tools": _do_tools,
    "service": _do_service,
    "load": _do_load,
}
_UNDO = {
    "file": _undo_file,
    "tree": _undo_tree,
    "dkms": _undo_dkms,
    "dkms_build": _undo_dkms,
    "dkms_install": _undo_dkms_install,
    "stage": _undo_tree,
    "place": _undo_place,
    "leftover": _undo_leftover,
    "runtime": _undo_runtime,
    "relaunch": _undo_relaunch,
    "tools": _undo_tools,
    "service": _undo_service,
    "load": _undo_load,
    "reload": _undo_reload,
}


def _missing(directory: Path, prefix: Path) -> list[str]:
    """Return the directories that must be made for *directory*, the deepest first."""
    missing = []
    while not directory.exists():
        missing.append(str(directory.relative_to(prefix)))
        directory = directory.parent
    return missing


def make_directories(directory: Path, prefix: Path) -> list[str]:
    """Make a directory; return those that were not there, the deepest first."""
    made = _missing(directory, prefix)
    directory.mkdir(parents=True, exist_ok=True)
    return made


def foresee(host: Host, step: Step) -> None:
    """Note in the step which directories it will make, before the journal is written."""
    data = step.data
    if step.kind in ("file", "tree"):
        data["made"] = _missing((host.prefix / data["path"]).parent, host.prefix)
    elif step.kind in ("place", "stage"):
        data["made"] = _missing(host.prefix / data["path"], host.prefix)
    elif step.kind == "runtime":
        changes = registration.plan(_registration(data), host.prefix)
        missing = {
            path
            for change in changes
            for path in _missing((host.prefix / change.path).parent, host.prefix)
        }
        data["made"] = sorted(missing, key=len, reverse=True)
        data["restart"] = registration.restart_commands(changes, host.prefix)


def remove_directories(made: Iterable[str], prefix: Path) -> None:
    """Remove the directories that :func:`make_directories` made, as far as they are empty."""
    for path in made:
        try:
            (prefix / path).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            # Others have put files there since.
            return


def do(host: Host, step: Step) -> None:
    """Take a step; OSError or CgpuError where it fails, and it may be half done then."""
    _DO[step.kind](host, step.data)


def undo(host: Host, step: Step) -> None:
    """Undo a step, also one that was interrupted or is undone already."""
    _UNDO[step.kind](host, step.data)


def take_back(host: Host, done: list[Step]) -> list[str]:
    """Undo the steps, the last first; return the errors of those that could not be undone."""
    left = []
    for step in reversed(done):
        try:
            undo(host, step)
        except (OSError, CgpuError) as error:
            left.append(f"{step.shown}: {error}")
    return left
