# SPDX-License-Identifier: MIT
"""NVIDIA's own nvidia-smi and libnvidia-ml, unmodified, on the simulated driver."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.drivers import Sim

pytestmark = pytest.mark.kernel("6.1", by_default=True)

MIB = 1 << 20
# What the driver takes for a context beside its allocations: 9024 KiB.
CONTEXT_MIB = 8.8125

Smi = Callable[..., str]


@pytest.fixture
def smi(nvidia_smi: Path) -> Smi:
    """Run nvidia-smi, behind a wrapper if one is given; return what it printed."""

    def call(*arguments: str, wrapper: tuple[str, ...] = ()) -> str:
        done = subprocess.run(
            [*wrapper, nvidia_smi / "bin" / "nvidia-smi", *arguments],
            env=os.environ | {"LD_LIBRARY_PATH": str(nvidia_smi / "lib")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def hold(driver: Sim, *arguments: str) -> subprocess.Popen[str]:
    """A simcuda that has done what it was told and waits."""
    process = subprocess.Popen(
        [driver.programs / "simcuda", "--json", "--hold", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["status"] == 0
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def proc_uuid(bus: int) -> str:
    text = Path(f"/proc/driver/nvidia/gpus/0000:{bus:02x}:00.0/information").read_text()
    return re.search(r"GPU UUID:\s+(\S+)", text)[1]  # type: ignore[index]


def test_nvidia_smi_prints_every_card_and_its_memory(sim: Callable[..., Sim], smi: Smi) -> None:
    sim(cards="t4,v100,h200")
    printed = smi()
    assert re.search(r"NVIDIA-SMI 550\.163\.01 +Driver Version: 550\.163\.01", printed)
    for number, name, total in (
        (0, "Tesla T4", 15109),
        (1, "Tesla V100-SXM2-32GB", 32768),
        (2, "NVIDIA H200", 143771),
    ):
        assert re.search(
            rf"\| +{number}  {re.escape(name)} .*\|.*\n\|.* 0MiB / +{total}MiB \|", printed
        ), printed
    assert "No running processes found" in printed


def test_nvidia_smi_lists_the_uuids_that_proc_tells(sim: Callable[..., Sim], smi: Smi) -> None:
    sim(cards=8)
    lines = smi("-L").splitlines()
    assert lines == [f"GPU {n}: Tesla T4 (UUID: {proc_uuid(n + 1)})" for n in range(8)]


def test_nvidia_smi_shows_a_process_and_what_it_holds(sim: Callable[..., Sim], smi: Smi) -> None:
    driver = sim(cards="t4,t4")
    process = hold(driver, "--gpu", "1", "--context", "alloc", "500M")
    printed = smi()
    apps = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    query = "--query-gpu=memory.total,memory.used,memory.free,pci.bus_id"
    memory = smi(query, "--format=csv,noheader,nounits").splitlines()
    end(process)
    assert re.search(rf"\|    1 .* {process.pid} +C .*simcuda +500MiB \|", printed), printed
    assert apps.strip() == f"{process.pid}, 500"
    assert memory[0] == "15109, 0, 15109, 00000000:01:00.0"
    # nvidia-smi rounds both up.
    used = math.ceil(500 + CONTEXT_MIB)
    free = math.ceil(15109 - 500 - CONTEXT_MIB)
    assert memory[1] == f"15109, {used}, {free}, 00000000:02:00.0"


def test_processes_of_another_pid_namespace_are_not_shown(
    sim: Callable[..., Sim], smi: Smi
) -> None:
    driver = sim(cards="t4")
    process = hold(driver, "--context", "alloc", "100M")
    inside = smi(wrapper=("unshare", "--pid", "--fork", "--mount-proc"))
    end(process)
    assert "No running processes found" in inside
    assert re.search(r" 109MiB / +15109MiB ", inside)


PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import pynvml as n

n.nvmlInit()
cards = []
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    memory = n.nvmlDeviceGetMemoryInfo(h)
    text = lambda x: x.decode() if isinstance(x, bytes) else x
    cards.append({
        "name": text(n.nvmlDeviceGetName(h)), "uuid": text(n.nvmlDeviceGetUUID(h)),
        "total": memory.total, "free": memory.free, "used": memory.used,
        "bus": text(n.nvmlDeviceGetPciInfo(h).busId), "minor": n.nvmlDeviceGetMinorNumber(h),
        "capability": n.nvmlDeviceGetCudaComputeCapability(h),
        "processes": [(p.pid, p.usedGpuMemory)
                      for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
    })
print(json.dumps({"version": text(n.nvmlSystemGetDriverVersion()), "cards": cards}))
n.nvmlShutdown()
"""


def test_pynvml_reads_cards_memory_and_processes(sim: Callable[..., Sim], nvidia_smi: Path) -> None:
    driver = sim(cards="a100,h200")
    process = hold(driver, "--context", "alloc", "1G")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"LD_LIBRARY_PATH": str(nvidia_smi / "lib")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    end(process)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    first, second = said["cards"]
    assert said["version"] == "550.163.01"
    assert (first["name"], second["name"]) == ("NVIDIA A100-SXM4-40GB", "NVIDIA H200")
    assert (first["uuid"], second["uuid"]) == (proc_uuid(1), proc_uuid(2))
    assert (first["total"], second["total"]) == (40960 * MIB, 143771 * MIB)
    assert (first["minor"], first["bus"]) == (0, "00000000:01:00.0")
    assert first["capability"] == [8, 0]
    assert first["processes"] == [[process.pid, 1 << 30]]
    assert second["processes"] == []
    # The driver's own part counts as used in this older answer.
    assert first["free"] == (40960 - 424 - 1024) * MIB - 9024 * 1024
    assert first["total"] - first["free"] == first["used"]
