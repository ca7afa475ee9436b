# SPDX-License-Identifier: MIT
"""
The driver's device nodes: whether those of a container are there, and how they are made.

NVIDIA's devices are of no class in sysfs, so the kernel makes no nodes and udev no links in
``/dev/char``. X or nvidia-persistenced has nvidia-modprobe make the nodes. A server that booted
without both has no nodes, and does not load ``nvidia-uvm``, which CUDA needs. systemd knows a
device by its link. runc's systemd driver leaves a device without a link out of the unit's
DeviceAllow, and the next ``systemctl daemon-reload`` takes the device from the container.

The hook uses this at every start, so slow imports wait until something is missing.
"""

from __future__ import annotations

import posix

from ..errors import CgpuError
from . import procfs

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..request.model import Card

CONTROL, UVM = "nvidiactl", "nvidia-uvm"
#: Of cards and of nvidiactl. nvidia-uvm gets another one at each load, maybe.
MAJOR = 195
_CONTROL_MINOR, _UVM_MINOR = 255, 0
_CHARACTER, _KIND = 0o020000, 0o170000
_PROGRAMS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
_MODPROBE, _NVIDIA_MODPROBE = "modprobe", "nvidia-modprobe"
#: The driver's defaults, used where its parameters cannot be read.
_PARAMETERS = {
    "DeviceFileUID": 0,
    "DeviceFileGID": 0,
    "DeviceFileMode": 0o666,
    "ModifyDeviceFiles": 1,
}


def minors(proc: str = "/proc") -> list[int]:
    """Return the minors of the driver's cards; none where no driver is loaded."""
    top, found = f"{proc}/driver/nvidia/gpus", []
    try:
        names = posix.listdir(top)
    except OSError:
        return []
    for name in names:
        try:
            with open(f"{top}/{name}/information", encoding="utf-8", errors="replace") as file:
                minor = dict(line.split(":", 1) for line in file if ":" in line)["Device Minor"]
                found.append(int(minor))
        except (OSError, KeyError, ValueError):
            continue
    return sorted(found)


def ensure(
    cards: Iterable[int],
    *,
    dev: str = "/dev",
    proc: str = "/proc",
    load: Callable[[Sequence[str], str], str] | None = None,
) -> list[str]:
    """
    Ensure that a container with *cards* finds its nodes: load missing modules, and make the nodes.

    Args:
        load: loads the driver's modules for these nodes, unless *proc* lists them, and returns
            what went wrong. Default: with nvidia-modprobe if it is installed, then with modprobe.

    Returns:
        Which links could not be made, and why: a container may lose these devices.

    Raises:
        CgpuError: which node is missing, why, and what to do.
    """
    wanted = {CONTROL: _CONTROL_MINOR, UVM: _UVM_MINOR}
    wanted |= {f"nvidia{card}": card for card in cards}
    lacking = missing(wanted, dev, proc)
    why = ""
    if lacking:
        why = (load or _load)(lacking, proc)
        lacking = missing(wanted, dev, proc)
    if lacking:
        majors, parameters = _majors(proc), _parameters(proc)
        for name in lacking:
            _make(name, wanted[name], majors, parameters, dev, why)
    return _link_all(wanted, dev)


def find_cards(root: str, *, dev: str = "/dev", proc: str = "/proc") -> list[Card]:
    """
    Return the cards under control, as :func:`procfs.find_cards`, after a boot without nodes too.

    Raises:
        CgpuError: the module asks the driver for its cards by their nodes, and one is missing.
    """
    cards = procfs.find_cards(root)
    there = [] if cards else minors(proc)
    if there:
        ensure(there, dev=dev, proc=proc)
        cards = procfs.find_cards(root)
    return cards


def missing(names: Iterable[str], dev: str = "/dev", proc: str = "/proc") -> list[str]:
    """Return those of *names* that are no node of the driver that is loaded."""
    uvm = _majors(proc).get(UVM)
    found = []
    for name in names:
        number = _number(f"{dev}/{name}")
        # After a reload of nvidia-uvm, an old node's major may be another driver's, or unused.
        if number is None or (name == UVM and posix.major(number) != uvm):
            found.append(name)
    return found


def unlinked(names: Iterable[str], dev: str = "/dev") -> list[str]:
    """Return the links in ``/dev/char`` that nodes among *names* lack."""
    numbers = {name: _number(f"{dev}/{name}") for name in names}
    return [
        _link_of(number, dev)
        for number in numbers.values()
        if number is not None and _number(_link_of(number, dev)) != number
    ]


def _link_all(names: Iterable[str], dev: str) -> list[str]:
    failed = []
    for name in names:
        number = _number(f"{dev}/{name}")
        if number is None or _number(_link_of(number, dev)) == number:
            continue
        link = _link_of(number, dev)
        draft = f"{link}.{posix.getpid()}"
        try:
            if not posix.access(f"{dev}/char", posix.F_OK):
                posix.mkdir(f"{dev}/char", 0o755)
            posix.symlink(f"../{name}", draft)
            posix.rename(draft, link)
        except OSError as error:
            failed.append(f"{link}: {error.strerror}")
    return failed


def _link_of(number: int, dev: str) -> str:
    return f"{dev}/char/{posix.major(number)}:{posix.minor(number)}"


def _number(path: str) -> int | None:
    """Return the number of the character device at *path*, None if there is none."""
    try:
        status = posix.stat(path)
    except OSError:
        return None
    return status.st_rdev if status.st_mode & _KIND == _CHARACTER else None


def _majors(proc: str) -> dict[str, int]:
    try:
        with open(f"{proc}/devices", encoding="ascii", errors="replace") as file:
            lines = file.read().partition("Block devices:")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()}


def _parameters(proc: str) -> Mapping[str, int]:
    found = dict(_PARAMETERS)
    try:
        with open(f"{proc}/driver/nvidia/params", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key in found and value.strip().isdecimal():
                    found[key] = int(value)
    except OSError:
        pass
    return found


def _make(
    name: str,
    minor: int,
    majors: Mapping[str, int],
    parameters: Mapping[str, int],
    dev: str,
    why: str,
) -> None:
    path, draft = f"{dev}/{name}", f"{dev}/.{name}.{posix.getpid()}"
    if name == UVM and UVM not in majors:
        said = f" ({why})" if why else ""
        raise CgpuError(
            f"{path} is missing, without which CUDA cannot start: nvidia-uvm is not loaded{said};"
            " run `modprobe nvidia-uvm`, or install NVIDIA's driver for this kernel"
        )
    if not any(key.startswith("nvidia") for key in majors):
        raise CgpuError(f"{path} is missing: NVIDIA's driver is not loaded; run `modprobe nvidia`")
    major = majors[UVM] if name == UVM else MAJOR
    by_hand = f"`mknod -m 666 {path} c {major} {minor}`"
    if not parameters["ModifyDeviceFiles"]:
        raise CgpuError(
            f"{path} is missing, and the driver's parameter NVreg_ModifyDeviceFiles=0 leaves its"
            f" files to you: {by_hand}"
        )
    try:
        posix.mknod(draft, _CHARACTER | 0o600, posix.makedev(major, minor))
        try:
            posix.chmod(draft, parameters["DeviceFileMode"])
            posix.chown(draft, parameters["DeviceFileUID"], parameters["DeviceFileGID"])
            # A process that opens the node meanwhile gets the old or the new one, complete.
            posix.rename(draft, path)
        except OSError:
            posix.unlink(draft)
            raise
    except OSError as error:
        raise CgpuError(
            f"{path} is missing and cannot be made: {error.strerror}; as root: {by_hand}"
        ) from None


def _load(lacking: Sequence[str], proc: str) -> str:
    helper = _program(_NVIDIA_MODPROBE)
    said = ""
    if helper is not None:
        for name in lacking:
            # With -u the number is of a node of nvidia-uvm.
            which = "0" if name == UVM else name.removeprefix("nvidia")
            number = str(_CONTROL_MINOR) if name == CONTROL else which
            said = _run([helper, *(["-u"] if name == UVM else []), "-c", number]) or said
    if UVM in lacking and UVM not in _majors(proc):
        said = _run([_program(_MODPROBE) or _MODPROBE, UVM])
    return said


def _program(name: str) -> str | None:
    for directory in _PROGRAMS:
        if posix.access(f"{directory}/{name}", posix.X_OK):
            return f"{directory}/{name}"
    return None


def _run(command: list[str]) -> str:
    """Run a command; return the last line of its output if it failed."""
    import subprocess

    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    lines = done.stdout.strip().splitlines()
    return "" if not done.returncode else lines[-1] if lines else f"status {done.returncode}"
