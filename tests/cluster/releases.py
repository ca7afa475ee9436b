# SPDX-License-Identifier: MIT
"""The real Helm, and the chart as it is published."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cluster import artefacts
from tests.cluster.artefacts import must
from tests.cluster.control_plane import REPOSITORY, ControlPlane


class Helm:
    """
    ``helm("template", "cgpu", helm.chart)`` runs it; with a cluster it is its administrator.

    Attributes:
        chart: the file that a release publishes.
        program: Helm's; kubeconform is beside it.
    """

    def __init__(self, directory: Path) -> None:
        self.program = Path(must(REPOSITORY / "scripts/build-helm").strip())
        self.chart = artefacts.chart(directory)

    def __call__(
        self, *words: object, api: ControlPlane | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run it; AssertionError if it fails."""
        environment = dict(os.environ)
        if api is not None:
            words = (*words, "--kubeconfig", api.config("admin", "127.0.0.1"))
            environment["HOME"] = str(api.directory)
        done = subprocess.run(
            [str(self.program), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done
