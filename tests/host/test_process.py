# SPDX-License-Identifier: MIT
"""Processes end while they are looked at, and nobody fails by that."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pycgpu.tree import process
from tests.host.architecture import REPOSITORY

#: Looks whether each directory found has the file, by a stat that fails with ESRCH.
GLOBBED = re.compile(
    r'\.glob\(\s*f?"(?:[^"]*/)?(?:\[0-9\]\*|\*)/(?:comm|cmdline|stat|status|fd|wchan|children)\b'
)


def test_each_process_has_its_directory() -> None:
    own = Path("/proc", str(os.getpid()))
    assert own in process.directories(Path("/proc"))
    assert Path("/proc/self") not in process.directories(Path("/proc"))


def test_nobody_looks_for_files_of_processes_by_path_glob() -> None:
    assert GLOBBED.search('Path("/proc").glob("[0-9]*/comm")')
    places = [
        path for top in ("pycgpu", "cli", "tests") for path in (REPOSITORY / top).rglob("*.py")
    ]
    assert len(places) > 100
    found = [str(path) for path in places if GLOBBED.search(path.read_text())]
    assert found == [__file__]
