# SPDX-License-Identifier: MIT
"""
Checks of what is in order on this host and what is not, each with its remedy.

Every check only reads, and reads below *prefix*, so that a test can give it any host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ...errors import CgpuError, InstallError
from .access import rights, servers
from .cards import cards, settings
from .conflicts import conflicts
from .devices import devices
from .driver import driver, memory_errors, mig
from .engines import engines
from .finding import FAIL, NOTE, OK, WARN, Finding
from .host import Host
from .kernel import kernel
from .module import UNGRANTED, core, hooks, module, parkd, refused, ungranted
from .nvidia import nvidia
from .overcommit import overcommit

__all__ = [
    "FAIL",
    "NOTE",
    "OK",
    "UNGRANTED",
    "WARN",
    "Finding",
    "Host",
    "core",
    "examine",
    "memory_errors",
]


def examine(
    prefix: str = "/", root: str | None = None, release: str | None = None
) -> list[Finding]:
    """
    Return all findings, in the order in which their causes lie.

    Args:
        prefix: root of the host's files.
        root: the tree; default: the door that is open below *prefix*.
        release: the running kernel's.
    """
    host = Host(Path(prefix), root, release or os.uname().release)
    return [finding for check in CHECKS for finding in check(host)]


def _guarded(check: Callable[[Host], Iterator[Finding]]) -> Callable[[Host], Iterator[Finding]]:
    """A tree that does not read, or goes meanwhile, is a finding and not the end."""

    def run(host: Host) -> Iterator[Finding]:
        try:
            yield from check(host)
        except InstallError as error:
            yield Finding(WARN, check.__name__, str(error))
        except (CgpuError, OSError) as error:
            yield Finding(FAIL, check.__name__, str(error))

    return run


CHECKS = tuple(
    map(
        _guarded,
        (
            *(driver, mig, devices, kernel, module, ungranted, refused, core, hooks, parkd),
            *(cards, settings, overcommit, memory_errors, engines, nvidia, conflicts, servers),
            rights,
        ),
    )
)
