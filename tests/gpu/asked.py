# SPDX-License-Identifier: MIT
"""Natively and as a tenant, side by side: NVML's getters, and what developers debug with."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pycgpu
from pycgpu.errors import CgpuError
from pycgpu.tree import procfs
from tests.gpu.tenants import Bench, ended, last_json, outcome, tenant, wait_for
from tests.process import output
from tests.traces import record

TIMEOUT_S = 90
#: It needs no FUSE.
ROOT = procfs.USER_DOOR_SOCKET
LIMIT = ("--mem", "8G")
#: Figures that NVML makes of the processes of all containers: a tenant is told of none.
OF_NEIGHBOURS = {"nvmlDeviceGetSamples(1, 0)"}
#: They name the one card, which no result needs to.
NAMES = {"nvmlDeviceGetPdi()", "nvmlDeviceGetSerial()", "nvmlDeviceGetUUID()"}


def is_there(name: str) -> bool:
    try:
        return procfs.read(f"0/{name}/cid", ROOT).strip() == name
    except CgpuError:
        return False


def told(name: str) -> set[str]:
    """Numbers that were refused to it, or that it was let have without being listed."""
    return {
        event.text.partition(" pid=")[2].partition(" ")[2]
        for event in pycgpu.events(container=name, root=ROOT)
        if event.kind in ("refused", "unknown")
    }


def getters(bench: Bench) -> None:
    """Which questions have an answer natively, and none as a tenant, or another one."""
    report = bench.report
    program = [sys.executable, str(record.HERE / "programs/getters.py")]
    alone = last_json(subprocess.run(program, capture_output=True, text=True, check=False).stdout)
    rows: list[list[object]] = []
    neighbours: set[str] = set()
    for unknown in ("refuse", "log"):
        status, text, numbers = watched(f"getters-{unknown}", program, unknown)
        inside = last_json(text)
        neighbours |= {one for one in OF_NEIGHBOURS if "answer" in inside.get(one, {})}
        for question, native in alone.items():
            got = inside.get(question, {"error": f"no answer at all, status {status}"})
            if set(native) != set(got):
                rows.append([unknown, question, json.dumps(native)[:160], json.dumps(got)[:160]])
        rows += [[unknown, "not listed or refused", "", number] for number in sorted(numbers)]
    report.table("NVML's getters", ["unknown", "question", "natively", "as a tenant"], rows)
    report.check("getters: asked", len(alone))
    missing = {str(row[1]) for row in rows if row[0] == "refuse" and '"answer"' in str(row[2])}
    report.equal(
        "getters: answered natively, not to a tenant",
        ", ".join(sorted(missing - OF_NEIGHBOURS)),
        "",
    )
    report.equal("getters: told of neighbours", ", ".join(sorted(neighbours)), "")
    (bench.work / "getters.json").write_text(json.dumps(alone))
    report.table(
        "What NVML answers natively",
        ["question", "answer"],
        [
            [question, "its own" if question in NAMES else json.dumps(answer)[:300]]
            for question, answer in alone.items()
        ],
    )


def watched(name: str, program: Sequence[str], unknown: str) -> tuple[int, str, set[str]]:
    """Run it as a tenant; return its status, what it printed, and what was not listed."""
    run = f"timeout {TIMEOUT_S} {shlex.join(program)} </dev/null"
    said: list[str] = []
    process = tenant(
        name,
        ["sh", "-c", f"read go; {run}; status=$?; echo; echo ended $status; read go"],
        *LIMIT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with ended(process):
        wait_for(lambda: is_there(name), "the container")
        procfs.write(f"0/{name}/unknown", unknown, ROOT)
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        for line in output(process):
            said.append(line)
            if line.startswith("ended "):
                break
        numbers = told(name)
        process.communicate("\n", timeout=60)
    wait_for(lambda: not is_there(name), "the tenant's end")
    last = said[-1].split() if said else []
    status = int(last[1]) if len(last) == 2 and last[0] == "ended" else -1
    return status, "".join(said[:-1]), numbers


def tools(bench: Bench) -> None:
    """Debuggers and profilers: which work as a tenant, and what stands in their way."""
    work = bench.work / "tools"
    work.mkdir()
    record.build(work)
    rows: list[list[Any]] = []
    for name, (program, *arguments) in record.TOOLS.items():
        found = shutil.which(program)
        if found is None:
            rows.append([name, "not installed", "", "", ""])
            continue
        command = [found, *(str(work / a) if a.startswith("./") else a for a in arguments)]
        native = subprocess.run(
            ["timeout", str(TIMEOUT_S), *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=work,
        )
        rows.append([name, "natively", native.returncode, native.stdout[-300:], ""])
        for unknown in ("refuse", "log"):
            status, text, numbers = watched(f"{name}-{unknown}", command, unknown)
            rows.append([name, unknown, status, text[-300:], "; ".join(sorted(numbers))])
    report = bench.report
    report.table("Debuggers and profilers", ["tool", "where", "status", "said", "told"], rows)
    listed = {row[0]: row for row in rows if row[1] == "refuse"}
    for name in ("sanitizer", "racecheck", "gdb", "cupti"):
        if name in listed:
            report.equal(f"{name}: status as a tenant", listed[name][2], 0)
            # CUPTI asks for the profiler's class first, and goes on without it.
            refused = "class=0x90cc not listed" if name == "cupti" else ""
            report.equal(f"{name}: what was refused", listed[name][4], refused)


def pools(bench: Bench) -> None:
    """Pools that a second process shares, and checkpoints, are no refusals."""
    for name in ("poolshare", "checkpoint"):
        program = [sys.executable, str(record.HERE / f"programs/{name}.py")]
        alone = subprocess.run(program, capture_output=True, text=True, check=False)
        status, text, numbers = watched(name, program, "refuse")
        bench.report.equal(f"{name}: status", status, alone.returncode)
        bench.report.equal(f"{name}: said", text.strip()[-200:], alone.stdout.strip()[-200:])
        bench.report.equal(f"{name}: what was refused", "; ".join(sorted(numbers)), "")
    status, text = outcome("smi-alone", ["nvidia-smi"], *LIMIT)
    bench.report.equal("nvidia-smi: status", status, 0)
