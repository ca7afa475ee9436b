# SPDX-License-Identifier: MIT
"""NVIDIA's own driver and tools from the distribution's packages."""

from __future__ import annotations

from pathlib import Path

from tests.vm import packages
from tests.vm.kernels import Kernel


def tools() -> Path:
    """Return a directory with nvidia-smi and the libraries it needs."""
    raise packages.PackageNotFound("nvidia-smi")


def build(kernel: Kernel, branch: str) -> Path:
    """Build the open kernel modules of one branch."""
    raise packages.PackageNotFound(f"{kernel}{branch}")
