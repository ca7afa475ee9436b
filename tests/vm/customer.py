# SPDX-License-Identifier: MIT
"""Containers as a customer starts them: plain runc, with our runtime in its place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pycgpu.install import registration
from pycgpu.oci.log import CTYUN, DEFAULT
from tests.vm.container import Container

RUNTIME = Path("/") / registration.RUNTIME
HOOK = Path("/") / registration.HOOK
LOGS = (Path(DEFAULT), Path(CTYUN))
SIMCUDA = "/bin/simcuda"
SMI = "/usr/bin/nvidia-smi"


class RuntimeContainer(Container):
    """Like its parent, but started by cgpu-container-runtime, which brings the device nodes."""

    RUNTIME = str(RUNTIME)

    def simcuda(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the CUDA-like program inside."""
        return self.exec("simcuda", *map(str, words), check=check)

    def smi(self) -> str:
        """Return what NVIDIA's own nvidia-smi prints inside."""
        return self.exec("nvidia-smi", environment={"LD_LIBRARY_PATH": "/opt/nvidia"}).stdout

    def alive(self) -> bool:
        """Tell whether its first process runs."""
        return Path(f"/proc/{self.pid}").exists()


Run = Callable[..., RuntimeContainer]


@contextmanager
def running(made: Callable[[str], Path]) -> Iterator[Run]:
    """
    Install runtime and hook; yield ``run("name", EGPU=…)``, which starts a container.

    Containers are deleted and the installation is taken back at the end. The hook logs where
    CTyun's users look too.
    """
    options = registration.Options(
        engines=(), logs=tuple(map(str, LOGS)), runtimes=("/usr/sbin/runc", "runc")
    )
    registration.apply(registration.plan(options))
    for log in LOGS:
        log.unlink(missing_ok=True)
    started: list[RuntimeContainer] = []

    def start(id: str, **environment: str) -> RuntimeContainer:
        one = prepare(made, id, environment)
        started.append(one)
        return one.start()

    try:
        yield start
    finally:
        for one in reversed(started):
            one.delete()
        registration.undo(registration.plan_undo())


def prepare(
    made: Callable[[str], Path],
    id: str,
    environment: Mapping[str, str],
    mounts: Mapping[str, Path] | None = None,
    **options: Any,
) -> RuntimeContainer:
    """Return a container that is not started yet, with simcuda and nvidia-smi in it."""
    tools = made("smi")
    programs = {SIMCUDA: made("sim") / "simcuda" / "simcuda", SMI: tools / "bin" / "nvidia-smi"}
    own: dict[str, Any] = {
        "nodes": (),
        "programs": programs,
        "mounts": {"/opt/nvidia": tools / "lib", **(mounts or {})},
        "environment": environment,
    }
    return RuntimeContainer(made("rootfs"), id, **(own | options))


def log_lines(id: str, path: Path = LOGS[1]) -> list[str]:
    """Return what the hook's log says of a container, without time and id."""
    return [
        line.split(" ", 3)[3]
        for line in path.read_text().splitlines()
        if line.split(" ", 3)[2] == id[:12]
    ]
