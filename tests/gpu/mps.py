# SPDX-License-Identifier: MIT
"""
NVIDIA's MPS and the limits: a server of the host is named with whom it serves; one in a container
with limits serves nobody, until `unknown=log` admits its clients, under the same limits.
"""

from __future__ import annotations

import os
import subprocess

from pycgpu.install import doctor
from pycgpu.tree import nvml
from tests.gpu.peers import mps as daemon
from tests.gpu.tenants import (
    CGPU,
    TREE,
    Bench,
    ended,
    node,
    progress,
    table,
    tenant,
    wait_for,
    wait_for_end,
)

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


def container_server(bench: Bench, unknown: str) -> None:
    """A daemon and a server of a container's own, and a program that would be served."""
    report, label = bench.report, f"MPS in a container, unknown={unknown}"
    # the kernel knows names of the tree for a second after they have gone
    name = f"mps-of-{unknown}"
    path, folder = bench.file(), bench.work / name
    folder.mkdir()
    script = f"""
        export CUDA_MPS_PIPE_DIRECTORY={folder} CUDA_MPS_LOG_DIRECTORY={folder}
        while [ ! -e {folder}/go ]; do sleep 0.1; done
        nvidia-cuda-mps-control -d
        timeout 20 {" ".join(bench.worker(path, 2))} >/dev/null 2>&1
        touch {folder}/done
        while [ ! -e {folder}/end ]; do sleep 0.1; done
        echo quit -t 1 | timeout 10 nvidia-cuda-mps-control
    """
    with ended(tenant(name, ["sh", "-c", script], "--mem", LIMIT, stdout=subprocess.DEVNULL)):
        wait_for(lambda: (TREE / "0" / name).exists(), "the container")
        node(f"0/{name}/unknown", unknown)
        (folder / "go").touch()
        wait_for(lambda: (folder / "done").exists(), "the client's end")
        events = subprocess.run(
            [*CGPU, "events", "--container", name], capture_output=True, text=True
        ).stdout
        report.check(f"{label}: charged", table(f"0/{name}/stat")["current_bytes"] >> 20, "MiB")
        (folder / "end").touch()
        wait_for_end()
    last = [line.split(maxsplit=2)[-1] for line in events.splitlines() if "900e" in line][-1:]
    report.check(f"{label}: events", str(last), "", "class 0x900e", bool(last))
    served = progress(path)[0] > 2
    report.equal(f"{label}: the client is served", served, unknown == "log")


def mps(bench: Bench) -> None:
    """A server of the host is named; in a container it serves nobody, unless that is admitted."""
    host_server(bench)
    for unknown in ("refuse", "log"):
        container_server(bench, unknown)
