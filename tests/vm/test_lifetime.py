# SPDX-License-Identifier: MIT
"""Containers come and go, thousands of them: nothing is left behind."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.vm.loaded import until

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

CYCLES = 1000
#: Kernel memory that may be in use for other reasons after that many cycles: a leak of one
#: page a cycle would be twice that.
NOISE_BYTES = CYCLES * 2048


def kernel_memory_bytes() -> int:
    """Slab that cannot be reclaimed, and vmalloc, after everything deferred has been freed."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    text = Path("/proc/meminfo").read_text()
    return 1024 * sum(
        int(re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[0])
        for name in ("SUnreclaim", "VmallocUsed", "PageTables")
    )


def free_bytes(programs: Path) -> int:
    run = subprocess.run([programs / "simcuda", "info"], capture_output=True, text=True, check=True)
    return int(re.findall(r"^free (\d+)", run.stdout, re.MULTILINE)[0])


def test_a_thousand_containers_killed_at_work_leave_nothing(sim: Any, km: Any, made: Any) -> None:
    driver = sim(model="t4")
    cgpu = km()
    churn = made("programs") / "churn"
    cgpu.write("0/max_inst", "64\n")
    # The first ones allocate what is kept: caches of the kernel and of the driver.
    subprocess.run([churn, "50"], check=True, stdout=subprocess.DEVNULL)
    until(lambda: not os.listdir(cgpu.root / "container"), "the removal of all")
    free_before = free_bytes(driver.programs)
    before_bytes = kernel_memory_bytes()

    run = subprocess.run([churn, str(CYCLES)], capture_output=True, text=True, check=True)
    assert run.stdout == f"made {CYCLES}\n"
    until(lambda: not os.listdir(cgpu.root / "container"), "the removal of all")

    assert "allocated 0\nused 0\n" in cgpu.read("0/memory")
    assert cgpu.read("0/free_weight") == "64\n"
    assert free_bytes(driver.programs) == free_before
    until(
        lambda: kernel_memory_bytes() - before_bytes < NOISE_BYTES,
        "the return of the kernel's memory",
    )


@pytest.mark.kernel(by_default=True)
def test_loading_and_unloading_under_traffic_disturbs_no_host_process(
    sim: Any, km: Any, made: Any
) -> None:
    driver = sim(model="t4")
    cgpu = km()
    busy = subprocess.Popen(
        ["sh", "-c", f"while {driver.programs}/simcuda free 3M; do :; done"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(20):
            cgpu.unload()
            cgpu.load()
            assert busy.poll() is None, "a call of the host failed"
    finally:
        os.killpg(busy.pid, 15)
        busy.wait()
