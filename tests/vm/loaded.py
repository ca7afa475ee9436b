# SPDX-License-Identifier: MIT
"""Kernel modules that a test has loaded, and the device nodes of NVIDIA's drivers."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pycgpu.tree.process import directories

T = TypeVar("T")

# Under emulation everything takes its time; a condition that has not come by then does not come.
DEADLINE_S = 30.0
# A kernel that looks for faults takes its time besides.
SLOWNESS = int(os.environ.get("CGPU_SLOWNESS", "1"))
# Looking takes milliseconds of the one processor on which what is waited for has to run: 4 to ask
# the agent, 50 to try rmmod. So looks become rarer, by what has been waited so far, up to this.
RARER = 0.1
PAUSE_S = 0.1

# Source: kernel-open/common/inc/nv-chardev-numbers.h
NV_MAJOR = 195
NV_CONTROL_MINOR = 255


def until(
    condition: Callable[[], T | None],
    what: str,
    deadline_s: float = DEADLINE_S,
    pause_s: float = 0.01,
) -> T:
    """
    Return *condition*'s first true value; fail when the deadline passes without one.

    The first looks are *pause_s* apart, all of them if it is 0.
    """
    deadline_s *= SLOWNESS
    begun_s = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited_s = time.monotonic() - begun_s
        if waited_s > deadline_s:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(max(pause_s, min(waited_s * RARER, PAUSE_S)) if pause_s else 0)


def loaded_modules() -> set[str]:
    """Return the names in ``/proc/modules``."""
    return {line.split()[0] for line in Path("/proc/modules").read_text().splitlines()}


class Modules:
    """Modules in the order in which they were loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []
        # Which driver the test has loaded: "sim", or the branch of NVIDIA's own.
        self.driver = ""

    def load(self, path: Path, **parameters: object) -> str:
        """
        Load a module file; return its name.

        Raises:
            OSError: with insmod's message, when the kernel refuses.
        """
        name = path.stem.replace("-", "_")
        words = [f"{key}={value}" for key, value in parameters.items()]
        run = subprocess.run(
            ["insmod", str(path), *words], capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise OSError(errno.EINVAL, f"insmod {path.name}: {run.stderr.strip()}")
        self.names.append(name)
        return name

    def unload(self, name: str) -> None:
        """
        Unload a module.

        Raises:
            OSError: the kernel refuses, because it is in use.
        """
        run = subprocess.run(["rmmod", name], capture_output=True, text=True, check=False)
        if run.returncode:
            raise OSError(errno.EBUSY, f"rmmod {name}: {run.stderr.strip()}")
        self.names.remove(name)

    def unload_all(self) -> None:
        """Unload everything, last loaded first; a module still in use at the deadline fails."""
        for name in reversed(self.names.copy()):
            last = ""

            def gone(name: str = name) -> bool:
                nonlocal last
                if name not in loaded_modules():
                    return True
                try:
                    self.unload(name)
                except OSError as error:
                    last = str(error)
                    return False
                return True

            try:
                until(gone, f"unloading {name}")
            except AssertionError as error:
                raise AssertionError(f"{error}: {last}; {_holders()}") from None
        self.names.clear()


def _holders() -> str:
    """Return the processes that have the driver's nodes open or mapped, and which of them."""
    told = []
    for process in directories(Path("/proc")):
        nodes: set[str] = set()
        # One that is gone by now holds nothing.
        with contextlib.suppress(OSError):
            for link in (*process.glob("fd/*"), *process.glob("map_files/*")):
                with contextlib.suppress(OSError):
                    nodes.add(str(link.readlink()))
            nodes = {node for node in nodes if "nvidia" in node}
            if nodes:
                name = process.joinpath("comm").read_text().strip()
                told.append(f"{process.name} ({name}): {', '.join(sorted(nodes))}")
    return "held by " + ("; ".join(told) or "no process")


def _majors() -> dict[str, int]:
    listed = Path("/proc/devices").read_text().partition("Block devices")[0]
    return {name: int(major) for major, name in re.findall(r"^\s*(\d+) (\S+)$", listed, re.M)}


def make_nodes() -> list[Path]:
    """Make the ``/dev/nvidia*`` nodes that the loaded driver serves, as nvidia-modprobe would."""
    wanted = {Path("/dev/nvidiactl"): (NV_MAJOR, NV_CONTROL_MINOR)}
    for card in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        minor = re.search(r"Device Minor:\s*(\d+)", card.read_text())
        if minor:
            wanted[Path(f"/dev/nvidia{minor.group(1)}")] = (NV_MAJOR, int(minor.group(1)))
    uvm = _majors().get("nvidia-uvm")
    if uvm is not None:
        wanted[Path("/dev/nvidia-uvm")] = (uvm, 0)
        wanted[Path("/dev/nvidia-uvm-tools")] = (uvm, 1)
    for path, (major, minor_number) in wanted.items():
        device = os.makedev(major, minor_number)
        if path.exists():
            if path.stat().st_rdev == device:
                continue
            path.unlink()
        os.mknod(path, 0o666 | stat.S_IFCHR, device)
        path.chmod(0o666)
    return list(wanted)


def remove_nodes() -> None:
    """Remove the nodes, so that a test cannot open what the last one left."""
    for path in Path("/dev").glob("nvidia*"):
        if path.is_char_device():
            path.unlink()
