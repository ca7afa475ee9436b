# SPDX-License-Identifier: MIT
"""The machine on which an installation works, and the commands that it runs there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import InstallError
from ..tree import procfs
from . import kernel_door


class Host(NamedTuple):
    """
    Where to install: ``prefix`` is the root of its files, ``release`` the kernel's.

    run: executes a command and returns its output; raises InstallError when it fails.
    tell: gives the kernel door a command, as :func:`pycgpu.install.kernel_door.tell`.
    """

    prefix: Path
    release: str
    run: Callable[[list[str]], str]
    tell: Callable[[str, str], None] = kernel_door.tell

    @property
    def systemd(self) -> bool:
        return (self.prefix / "run/systemd/system").is_dir()

    @property
    def tree(self) -> Path:
        """The kernel door's root."""
        return self.prefix / procfs.KERNEL_DOOR.lstrip("/")

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
    """Run *command*. InstallError: it failed; the message is the last line of its output."""
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
            # The lock of the installation stays with a command that outlives us.
            close_fds=False,
        )
    except FileNotFoundError:
        raise InstallError(f"{command[0]} is missing: install it") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise InstallError(f"`{' '.join(command)}`: {said[-1] if said else done.returncode}")
    return done.stdout
