# SPDX-License-Identifier: MIT
"""
NVIDIA's MPS and the limits: a server of the host is named with whom it serves; in a container with
limits none comes up, and the limits hold for whatever is tried.
"""

from __future__ import annotations

import os
import subprocess

from pycgpu.install import doctor
from pycgpu.tree import nvml
from tests.gpu.peers import mps as daemon
from tests.gpu.tenants import CGPU, Bench, ended, outcome, progress, wait_for, wait_for_end

LIMIT = "2G"


def served() -> list[int]:
    return [pid for board in nvml.read().boards for pid in board.mps]


def host_server(bench: Bench) -> None:
    report = bench.report
    path = bench.file()
    with daemon(bench.work) as environment:
        command = bench.worker(path, 20)
        with ended(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)) as (one,):
            wait_for(lambda: progress(path)[0] > 2, "a client of MPS")
            report.equal("MPS on the host: whom it serves, by NVML", served(), [one.pid])
            shown = subprocess.run(
                [*CGPU, "smi"], capture_output=True, text=True, env=dict(os.environ, COLUMNS="150")
            ).stdout
            line = f"MPS serves {one.pid} (M+C)"
            report.equal("MPS on the host: cgpu smi names it", line in shown, True)
            said = [found.text for found in doctor.examine("/", None) if "MPS" in found.text]
            report.check("MPS on the host: cgpu doctor", str(said), "", "a warning", bool(said))


def container_server(bench: Bench) -> None:
    """A daemon and a server of a container's own, and a program that would be served."""
    report = bench.report
    path, folder = bench.file(), bench.work / "mps-inside"
    folder.mkdir()
    program = " ".join(bench.worker(path, 3))
    script = f"""
        export CUDA_MPS_PIPE_DIRECTORY={folder} CUDA_MPS_LOG_DIRECTORY={folder}
        nvidia-cuda-mps-control -d
        timeout 20 {program} >/dev/null 2>{folder}/client
        echo client $?
        echo server $(echo get_server_list | timeout 5 nvidia-cuda-mps-control)
        echo quit | timeout 10 nvidia-cuda-mps-control
        pkill -f {folder}; true
    """
    _, text = outcome("mps", ["sh", "-c", script], "--mem", LIMIT)
    wait_for_end()
    events = subprocess.run(
        [*CGPU, "events", "--container", "mps"], capture_output=True, text=True
    ).stdout
    refused = [line for line in events.splitlines() if "refused" in line]
    told = [line.strip() for line in text.splitlines()]
    for name in ("control.log", "server.log"):
        log = folder / name
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        report.check(f"MPS in a container: {name}", str(lines[-3:]))
    report.check("MPS in a container: what was said", str(told))
    report.check("MPS in a container: refused", str(refused), "", "0x900e", "900e" in events)
    report.equal("MPS in a container: kernels of the client", progress(path)[0], 0)


def mps(bench: Bench) -> None:
    """A server of the host is named; in a container none comes up."""
    host_server(bench)
    container_server(bench)
