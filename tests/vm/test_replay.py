# SPDX-License-Identifier: MIT
"""
Programs recorded on an H200 run again, in a container, on the simulated driver.

Two things are shown at once: the module lets an honest program's every call through, and the
simulated driver answers as the real one did.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vm.loaded import until

pytestmark = pytest.mark.kernel("6.1", by_default=True)

TRACES = Path(__file__).parents[1] / "traces"
#: Programs of one process; what needs several is in tests/host/test_replay.py.
PROGRAMS = ("context", "ladder", "kinds", "pools", "graphs", "oom", "managed", "smi", "nvml")
#: PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2: in a container nobody used the card, whatever the
#: driver knows of it.
HIDDEN = "control 0x20802096: "
LIMIT_BYTES = 140 << 30


def replay(names: tuple[str, ...], namespace: int | None = None) -> dict[str, dict[str, Any]]:
    inside = ["nsenter", "-t", str(namespace), "-p", "-m"] if namespace else []
    files = [str(TRACES / f"{name}.trace.xz") for name in names]
    run = subprocess.run(
        [*inside, sys.executable, "-m", "tests.vm.replay", *files],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    return {answer["trace"].removesuffix(".trace.xz"): answer for answer in answers}


def test_a_recorded_program_gets_inside_a_container_what_it_gets_outside(
    sim: Any, km: Any, pid_namespace: int
) -> None:
    sim(model="h200", branch=580)
    outside = replay(PROGRAMS)
    cgpu = km()
    cgpu.create("one", f"pid={pid_namespace}", f"gpu=0,mem={LIMIT_BYTES}")
    inside = replay(PROGRAMS, pid_namespace)
    for name in PROGRAMS:
        print(name, json.dumps(inside[name], indent=1))
        assert inside[name]["calls"] == outside[name]["calls"] > 80, name
        differs = {k: v for k, v in outside[name]["different"].items() if not k.startswith(HIDDEN)}
        assert inside[name]["different"] == differs, name
    counters = cgpu.read("0/one/events")
    assert "refused 0\n" in counters
    until(lambda: "current_bytes 0\n" in cgpu.read("0/one/stat"), "the charge to return")
    peak = dict(line.split() for line in cgpu.read("0/one/stat").splitlines())["peak_bytes"]
    # a context alone takes 518 MiB of class 0x40 on an H200
    assert int(peak) > 518 << 20


def test_the_simulated_driver_answers_as_the_real_one_did(sim: Any) -> None:
    """What memory, objects and UVM answer is the same; controls that it lacks are named."""
    sim(model="h200", branch=580)
    for name, answer in replay(PROGRAMS).items():
        print(name, json.dumps(answer, indent=1))
        lacking = {what for what in answer["different"] if what.startswith("control ")}
        assert set(answer["different"]) - lacking == set(), name
        # refused as unknown, never answered wrongly
        assert all("status 0x56, was" in what or ", was 0x56" in what for what in lacking), name
