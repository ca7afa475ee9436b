# SPDX-License-Identifier: MIT
"""What real programs ask the driver for is on the list: none of their calls is refused."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pycgpu
from tests.gpu.tenants import PROGRAMS, TREE, Bench, ended, table, tenant, wait_for_end
from tests.process import output
from tests.traces import record

#: Its calls are wrong on purpose.
PROBE = "rmprobe"
FRAMEWORKS = {
    "torch": "torch",
    "cupy": "cupy",
    "jax": "jax",
    "triton": "triton",
    "share": "torch",
    "nvml": "pynvml",
    "nccl": "torch",
}
TIMEOUT_S = 120
#: One that asks the driver to wake it, ended after two looks at the card.
WATCH = "nvidia-smi -l 1 | head -n 60"
#: oom.cu wants room for a block of 16 GiB.
LIMIT_BYTES = 40 << 30


def commands(work: Path) -> Iterator[tuple[str, list[str]]]:
    """Names and command lines: the programs of the traces, and frameworks."""
    for name in record.PROGRAMS:
        script = record.HERE / f"programs/{name}.py"
        if name in record.ARGUMENTS:
            yield name, ["nvidia-smi", *record.ARGUMENTS[name]]
        elif script.exists():
            yield name, [sys.executable, str(script)]
        elif name != PROBE:
            yield name, [str(work / name)]
    yield "smi-watch", ["sh", "-c", WATCH]
    for name, module in FRAMEWORKS.items():
        if importlib.util.find_spec(module) is not None:
            yield f"framework {name}", [sys.executable, str(PROGRAMS / "frameworks.py"), name]


def run(name: str, command: list[str]) -> tuple[int, int, set[str]]:
    """Run it as a tenant; return its status, how many of its calls were refused, and which."""
    # the container lasts until its counters have been read
    shell = f"{shlex.join(command)} >&2; echo ended $?; read go_on"
    process = tenant(
        name,
        ["timeout", str(TIMEOUT_S), "sh", "-c", shell],
        *("--mem", str(LIMIT_BYTES)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with ended(process):
        said = output(process).readline().split()
        refused = table(f"0/{name}/stat")["refused"]
        told = {
            event.text.partition(" pid=")[2].partition(" ")[2]
            for event in pycgpu.events(container=name, root=str(TREE))
            if event.kind == "refused"
        }
        process.communicate("\n", timeout=60)
    wait_for_end(name)
    return int(said[-1]) if said else -1, refused, told


def allowed(bench: Bench) -> None:
    """Each program ends well, and nothing of it is refused."""
    work = bench.work / "traced"
    work.mkdir()
    record.build(work)
    rows: list[list[object]] = []
    told: set[str] = set()
    for name, command in commands(work):
        status, refused, which = run(f"t-{name.split()[-1]}", command)
        rows.append([name, status, refused])
        told |= which
    bench.report.table(
        "Programs under the list of allowed calls",
        ["program", "status", "refused"],
        rows,
    )
    bench.report.equal(
        "allowed: programs that do not end well",
        ", ".join(str(row[0]) for row in rows if row[1]),
        "",
    )
    bench.report.equal("allowed: calls refused", sum(int(str(row[2])) for row in rows), 0)
    bench.report.equal("allowed: what was refused", "; ".join(sorted(told)), "")
