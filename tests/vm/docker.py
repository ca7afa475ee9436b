# SPDX-License-Identifier: MIT
"""A Docker daemon of a test's own, without networks, which the guest's kernel has no part in."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.vm.loaded import until

START_S = 120


@contextlib.contextmanager
def serving(dockerd: str, docker: str, folder: Path) -> Iterator[list[str]]:
    """Run *dockerd* in *folder* and yield the command line that reaches it."""
    socket = f"unix://{folder}/docker.sock"
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            [
                *(dockerd, "--host", socket, "--data-root", f"{folder}/data"),
                *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"),
                *("--storage-driver", "vfs", "--iptables=false", "--ip6tables=false"),
                "--bridge=none",
            ],
            stdout=log,
            stderr=log,
        )
    base = [docker, "--host", socket]
    try:
        until(
            lambda: subprocess.run([*base, "version"], capture_output=True).returncode == 0,
            f"dockerd: see {folder}/log",
            deadline_s=START_S,
        )
        yield base
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)
