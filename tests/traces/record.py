# SPDX-License-Identifier: MIT
"""Record the traces: run this on a machine with an NVIDIA GPU, nvcc, gcc and PyTorch.

python3 -m tests.traces.record OUT [NAME...]

Builds the tracer and the programs, runs each program under the tracer, alone and (``*-heap``) with
the driver's free memory asked after every call, and leaves OUT/<name>.trace.xz. The card's UUID and
serial numbers are replaced. Takes about two minutes; changes no setting of the GPU.
"""

from __future__ import annotations

import ctypes
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.process import output
from tests.traces import format as trace_format

HERE = Path(__file__).resolve().parent
UUID = "GPU-c6900000-5eed-4000-8000-0000000000a5"

PROGRAMS = {
    "smi": "nvidia-smi on an idle card",
    "smi-q": "nvidia-smi -q on an idle card",
    "smi-list": "nvidia-smi -L",
    "smi-busy": "nvidia-smi beside a process that holds 300 MiB",
    "smi-apps": "nvidia-smi --query-compute-apps=pid,name,used_memory beside that process",
    "smi-query": "nvidia-smi --query-gpu=memory.*,utilization.*,name beside that process",
    "smi-pmon": "nvidia-smi pmon -c 1 beside that process",
    "nvml": "pynvml: what monitoring programs ask, beside that process",
    "getters": "pynvml: all that can be asked of a card without changing it, beside that process",
    "context": "a CUDA context, destroyed and created again",
    "ladder": "cudaMalloc and cudaFree of 18 sizes, cuMemGetInfo after each",
    "oom": "allocations that fail, and life after them",
    "kinds": "pinned, registered, pitched memory, arrays, streams, kernel stack",
    "managed": "managed memory touched on both sides and prefetched",
    "pools": "cudaMallocAsync and memory pools",
    "poolshare": "a memory pool shared with a second process by a descriptor",
    "vmm": "cuMemCreate, cuMemMap, export and import of a handle in a second process",
    "ipc": "CUDA IPC of memory and an event between two processes",
    "graphs": "CUDA graphs with kernels and allocation nodes",
    "processes": "three forked processes with contexts: exit, _exit, SIGKILL",
    "threads": "four threads of one process allocate and free at once",
    "checkpoint": "a process with 64 MiB is checkpointed and restored by another",
    "mps": "an MPS server and three clients, two of them at once",
    "nccl": "all-reduces over two cards by NCCL, by P2P and by shared memory",
    "train": "four training steps of ResNet-50 in PyTorch",
    "rmprobe": "RM calls without CUDA: sizes, lifetimes, call forms, statuses of wrong calls",
}
# What developers debug and profile with; recorded when they are named, not with all.
TOOLS = {
    "sanitizer": ["compute-sanitizer", "./context"],
    "racecheck": ["compute-sanitizer", "--tool", "racecheck", "./graphs"],
    "gdb": ["cuda-gdb", "-batch", "-ex", "run", "./context"],
    "ncu": ["ncu", "--clock-control", "none", "./graphs"],
    "nsys": ["nsys", "profile", "-o", "report", "./graphs"],
    "cupti": [sys.executable, str(HERE / "programs/cupti.py")],
}
BUSY = {"smi-busy", "smi-apps", "smi-query", "smi-pmon", "nvml", "getters"}
# A second client would change what these see.
ALONE = {"smi", "smi-q", "smi-list", "smi-busy", "smi-apps", "smi-query", "smi-pmon", "nvml",
         "getters", "mps", "nccl", *TOOLS}  # fmt: skip
ARGUMENTS = {
    "smi": [],
    "smi-q": ["-q"],
    "smi-list": ["-L"],
    "smi-busy": [],
    "smi-apps": ["--query-compute-apps=pid,name,used_memory", "--format=csv"],
    "smi-query": [
        "--query-gpu=name,memory.total,memory.reserved,memory.used,memory.free,utilization.gpu",
        "--format=csv",
    ],
    "smi-pmon": ["pmon", "-c", "1"],
}


def libcuda() -> str:
    """Path of the driver's libcuda.so.1."""
    library = ctypes.CDLL("libcuda.so.1")
    del library
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcuda.so" in line:
            return line.split(maxsplit=5)[5]
    raise SystemExit("libcuda.so.1 is not mapped: is NVIDIA's driver installed?")


def quietly(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output and status, whatever they are."""
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def build(work: Path) -> None:
    """Compile tracer.c and programs/* into ``work``."""
    commands = [
        ["gcc", "-O2", "-fPIC", "-shared", "-o", work / "libnvtrace.so", HERE / "tracer.c",
         "-ldl", "-pthread"],
        ["gcc", "-O1", "-o", work / "rmprobe", HERE / "programs/rmprobe.c"],
    ]  # fmt: skip
    library = libcuda()
    for source in sorted((HERE / "programs").glob("*.cu")):
        commands.append(["nvcc", "-arch=sm_90", "-cudart", "static", "-o", work / source.stem,
                         source, "-Xlinker", library])  # fmt: skip
    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(quietly, commands):
            if done.returncode:
                raise SystemExit(f"{' '.join(map(str, done.args))}\n{done.stderr}")


def smi(*fields: str) -> list[list[str]]:
    """Answers of nvidia-smi --query-gpu, a list a card."""
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    return [line.split(", ") for line in done.stdout.strip().splitlines()]


def secrets() -> dict[bytes, bytes]:
    """Numbers that name the cards themselves, and what stands for them."""
    found: dict[bytes, bytes] = {}
    for number, (uuid, serial) in enumerate(smi("uuid", "serial")):
        other = f"{UUID[:-1]}{int(UUID[-1], 16) + number:x}"
        found[uuid.encode()] = other.encode()
        found[bytes.fromhex(uuid[4:].replace("-", ""))] = bytes.fromhex(other[4:].replace("-", ""))
        found[uuid[4:].encode()] = other[4:].encode()
        if serial.isdigit() and len(serial) >= 6:
            found[serial.encode()] = b"1" * len(serial)
    report = quietly(["nvidia-smi", "-q"]).stdout
    for line in report.splitlines():
        name, _, value = (part.strip() for part in line.partition(" : "))
        if name in {"GPU PDI", "Chassis Serial Number"} and len(value) >= 10:
            found[value.encode()] = value[:2].encode() + b"1" * (len(value) - 2)
            if name == "GPU PDI":
                found[int(value, 16).to_bytes(8, "little")] = bytes.fromhex("11" * 8)
    return found


def run(name: str, heap: bool, work: Path) -> tuple[list[Path], dict[str, Any]]:
    """Run one program under the tracer. Returns the raw files and the trace's description."""
    raw = work / (name + ("-heap" if heap else "") + ".raw")
    raw.mkdir()
    if name in ARGUMENTS:
        command = [shutil.which("nvidia-smi") or "nvidia-smi", *ARGUMENTS[name]]
    elif name in TOOLS:
        command = list(TOOLS[name])
    elif (HERE / f"programs/{name}.py").exists():
        command = [sys.executable, str(shutil.copy(HERE / f"programs/{name}.py", work))]
    else:
        command = [f"./{name}"]
    env = os.environ | {"LD_PRELOAD": str(work / "libnvtrace.so"), "NVTRACE_DIR": str(raw)}
    if heap:
        env["NVTRACE_HEAP"] = "1"
    holder = None
    if name in BUSY:
        holder = subprocess.Popen([work / "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        output(holder).readline()
    try:
        done = quietly(command, env=env, cwd=work, timeout=60)
    except subprocess.TimeoutExpired as late:
        done = subprocess.CompletedProcess(command, -1, (late.stdout or b"").decode(), "timed out")
    finally:
        if holder:
            holder.communicate(b"")
    print(f"--- {raw.name} rc {done.returncode}\n{done.stdout}{done.stderr[-2000:]}", flush=True)
    meta = {
        "name": name,
        "about": PROGRAMS.get(name) or " ".join(TOOLS[name]),
        "command": [Path(command[0]).name, *(Path(a).name for a in command[1:])],
        "returncode": done.returncode,
        "heap": heap,
        "stdout": done.stdout[:20000],
    }
    return sorted(raw.glob("*.raw")), meta


def finish(job: tuple[Path, list[Path], dict[str, Any], dict[bytes, bytes]]) -> str:
    """Merge and compress one trace."""
    path, raw, meta, replace = job
    trace = trace_format.merge(raw, meta, replace)
    trace_format.save(path, trace)
    return f"{path.name}: {len(trace.records)} records, {path.stat().st_size} bytes"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(f"usage: {sys.argv[0]} OUT [{'|'.join((*PROGRAMS, *TOOLS))}]...")
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or list(PROGRAMS)
    work = Path(os.environ.get("NVTRACE_WORK") or tempfile.mkdtemp(prefix="nvtrace"))
    work.mkdir(exist_ok=True)
    build(work)
    (driver, card), *_ = smi("driver_version", "name")
    common = {
        "card": card,
        "driver": driver,
        "date": datetime.date.today().isoformat(),
        "kernel": platform.release().partition("-")[0],
        "cpus": os.cpu_count(),
    }
    replace = secrets()
    with ProcessPoolExecutor() as pool:
        jobs = []
        for name in names:
            for heap in (False,) if name in ALONE else (False, True):
                raw, meta = run(name, heap, work)
                path = out / (name + ("-heap" if heap else "") + ".trace.xz")
                jobs.append(pool.submit(finish, (path, raw, common | meta, replace)))
        for job in jobs:
            print(job.result(), flush=True)


if __name__ == "__main__":
    main()
