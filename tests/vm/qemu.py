# SPDX-License-Identifier: MIT
"""
The emulator that guests run in: this machine's own, or a newer one beside it.

Before 8.1 QEMU's threads race: while one translates a page of code another may write to it, and
the translation of what was there before stays. Linux patches its own code that way (jump labels,
kprobes, ftrace), by an int3 that stands there for some microseconds: a processor that is left with
it panics (``int3: 0000``) or stands at the patched instruction for good, a stall to RCU's and the
watchdog's eyes. QEMU's commit deba78709ae8, "accel/tcg: Always lock pages before translation",
mended it. Debian 12 has 7.2, and a newer one among its backports.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.vm import packages

NAME = "qemu-system-x86_64"
SAFE = (8, 1)
#: Where Debian's firmware is, which is a package of its own.
FIRMWARE = Path("/usr/share/seabios")


class QemuNotFound(Exception):
    """This machine has none; the message names the remedy."""


def version(program: Path | str) -> tuple[int, int]:
    """Return the first two numbers of a program's version, (0, 0) if it tells none."""
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"emulator version (\d+)\.(\d+)", shown.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@functools.cache
def command() -> tuple[str, ...]:
    """
    Return the beginning of QEMU's command line.

    Raises:
        QemuNotFound: there is none on this machine.
    """
    own = shutil.which(NAME)
    if not own:
        raise QemuNotFound(f"no {NAME}: apt-get install qemu-system-x86")
    return chosen(own, _backport)


def chosen(own: str, newer: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Return *own* if it is safe or if there is no newer one that is, which is told."""
    had = version(own)
    if had >= SAFE:
        return (own,)
    try:
        command = newer()
        if version(command[0]) >= SAFE:
            return command
        reason = f"{command[0]} does not run here"
    except (packages.PackageNotFound, packages.FetchError) as error:
        reason = str(error).splitlines()[0]
    print(
        f"vm: QEMU {had[0]}.{had[1]} now and then kills a guest with two processors (int3, RCU "
        f"stalls), and {SAFE[0]}.{SAFE[1]} or newer cannot be had: {reason}",
        file=sys.stderr,
    )
    return (own,)


def _backport() -> tuple[str, ...]:
    # Of the same release, so its libraries are those of the one that is installed.
    full = packages.backport("qemu-system-x86")
    root, data = (
        packages.unpacked(packages.download(name, full))
        for name in ("qemu-system-x86", "qemu-system-data")
    )
    return (str(root / "usr/bin" / NAME), "-L", str(data / "usr/share/qemu"), "-L", str(FIRMWARE))
