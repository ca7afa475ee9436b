# SPDX-License-Identifier: MIT
"""Engines' daemons that run: the command line of each, its program and its service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..tree import process


class Daemon(NamedTuple):
    """
    A daemon of the host.

    words: its command line.
    program: the path of its program, as the host has it.
    unit: the service of systemd that it belongs to, without `.service`; empty for none.
    """

    words: list[str]
    program: str
    unit: str

    def option(self, *names: str) -> str | None:
        """Return the command line's value of the option with these *names*."""
        for number, word in enumerate(self.words):
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(iter(self.words[number + 1 :]), None)
        return None


def running(name: str, prefix: Path) -> Iterator[Daemon]:
    """
    Yield the daemons *name* that run on the host below *prefix*.

    One in a container (Docker in Docker) has other files before it, and is none of the host's.
    """
    proc = prefix / "proc"
    try:
        host = os.readlink(proc / "1/ns/mnt")
    except OSError:
        return
    for one in sorted(process.directories(proc)):
        try:
            if (one / "comm").read_text().strip() != name or os.readlink(one / "ns/mnt") != host:
                continue
            words = (one / "cmdline").read_text().split("\0")[:-1]
            program = os.readlink(one / "exe").removesuffix(" (deleted)")
            unit = _unit((one / "cgroup").read_text())
        except (OSError, UnicodeDecodeError):
            continue
        if words:
            yield Daemon(words, program, unit)


def _unit(cgroups: str) -> str:
    """Return the innermost service of the cgroups, in either hierarchy."""
    parts = [part for line in cgroups.splitlines() for part in line.split(":", 2)[-1].split("/")]
    return next((part[: -len(".service")] for part in parts[::-1] if part.endswith(".service")), "")
