# SPDX-License-Identifier: MIT
"""What a test installs in the guest: modules of a version, on a host with few others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pycgpu.install import installation, kernel_door
from pycgpu.install.host import Host, this_host
from pycgpu.install.installation import Options

Made = Callable[[str], Path]


def modules(made: Made, name: str, directory: Path, bridge: bool = True) -> Path:
    """Put the modules of the build *name*, and the simulated driver's bridge, in *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in made(name).glob("cgpu_*.ko"):
        shutil.copy(path, directory)
    if bridge:
        shutil.copy(made("bridge"), directory)
    return directory


@contextmanager
def few_modules(directory: Path) -> Iterator[None]:
    """No modules but ours: depmod over all of a distribution's takes minutes under emulation."""
    real = f"/lib/modules/{os.uname().release}"
    directory.mkdir()
    subprocess.run(["mount", "--bind", directory, real], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", real], check=True)


def install(directory: Path, **options: object) -> Host:
    """Install the modules in *directory*; return the host."""
    host = this_host()
    # depmod writes its tables anew: they are compared after it has run once.
    host.run(["depmod", "-a", host.release])
    installation.install(Options(modules=str(directory), **options), host)  # type: ignore[arg-type]
    return host


def running(host: Host) -> str:
    """Return the version that decides, as its module is named."""
    door = kernel_door.read(str(host.tree))
    assert door is not None and door.running is not None
    return door.running
