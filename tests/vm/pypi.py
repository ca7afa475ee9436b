# SPDX-License-Identifier: MIT
"""Engines that come from the Python package index, installed into the cache and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.vm import packages
from tests.vm.modules import Build

REQUIREMENTS = {"ray": "ray==2.60.0", "spark": "pyspark==4.3.0"}


def build(name: str) -> Path:
    """
    Return a directory for PYTHONPATH with the engine *name*.

    Raises:
        PackageNotFound: the index cannot be reached, or has no such version.
    """
    wanted = REQUIREMENTS[name]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with Build(name, version, wanted.encode()) as made:
        path = made.root / "python"
        if not made.complete:
            run = subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--target", str(path), wanted],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode:
                raise packages.PackageNotFound(f"{wanted}: {run.stderr.strip()[-300:]}")
        return path
