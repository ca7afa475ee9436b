# SPDX-License-Identifier: MIT
"""Containers as a customer starts them: plain runc, with our runtime in its place."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pycgpu.install import launcher, registration
from pycgpu.oci.log import CTYUN, DEFAULT
from tests.vm.container import Container

RUNTIME = Path("/") / launcher.RUNTIME
HOOK = Path("/") / launcher.HOOK
LOGS = (Path(DEFAULT), Path(CTYUN))
SIMCUDA = "/bin/simcuda"
SMI = "/usr/bin/nvidia-smi"
#: Ways of nvidia-smi's to look at cards; those without an end as people cut them off.
SMI_WAYS = (
    "-q -x", "-l 1 | head -n 30", "-q -d MEMORY,UTILIZATION,PIDS -l 1 | head -n 90",
    "--query-gpu=memory.used --format=csv -lms 500 | head -n 3", "dmon -s pucvmet -c 1",
    "pmon -c 1", "nvlink -s", "mig -lgi",
)  # fmt: skip


class RuntimeContainer(Container):
    """Like its parent, but started by cgpu-container-runtime, which brings the device nodes."""

    RUNTIME = str(RUNTIME)

    def simcuda(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the CUDA-like program inside."""
        return self.exec("simcuda", *map(str, words), check=check)

    def smi(self) -> str:
        """Return what NVIDIA's own nvidia-smi prints inside."""
        return self.exec("nvidia-smi", environment={"LD_LIBRARY_PATH": "/opt/nvidia"}).stdout

    def looks(self, way: str) -> tuple[int, int]:
        """Look at the cards that way; return how it ends, and how many lines it prints."""
        done = self.exec(
            "sh",
            "-c",
            f"nvidia-smi {way}",
            environment={"LD_LIBRARY_PATH": "/opt/nvidia"},
            check=False,
        )
        return done.returncode, done.stdout.count("\n")

    def alive(self) -> bool:
        """Tell whether its first process runs."""
        return Path(f"/proc/{self.pid}").exists()


Run = Callable[..., RuntimeContainer]


def looks(tools: Path, way: str) -> tuple[int, int]:
    """Look at the cards that way on the host, which has *tools*; return as a container does."""
    done = subprocess.run(
        ["sh", "-c", f"{tools}/bin/nvidia-smi {way}"],
        env=os.environ | {"LD_LIBRARY_PATH": str(tools / "lib")},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.count("\n")


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
