# SPDX-License-Identifier: MIT
"""Programs on the card, as tenants and without a door, and what they have done so far."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pycgpu.agent import client
from tests.gpu.report import Report

PROGRAMS = Path(__file__).resolve().parent / "programs"
TREE = Path("/run/cgpu_km")
CGPU = [sys.executable, "-m", "pycgpu.cli.main"]
MIB = 1 << 20
WINDOW_S = 1.0
SETTLE_S = 0.6


class Bench:
    """Where the programs are, what is reported, and what one of them does alone."""

    def __init__(self, work: Path, report: Report) -> None:
        self.work = work
        self.report = report
        self.bin = work / "bin"
        self.bin.mkdir(exist_ok=True)
        self.rate = 0.0
        self.iterations = "0"
        self.blocks = "0"
        self._files = 0

    def build(self) -> None:
        """Compile the programs with nvcc, all at once."""
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
        where = [
            line.split("=> ")[1]
            for line in listed.stdout.splitlines()
            if "libcuda.so.1" in line and "=> " in line
        ]
        folder = os.path.dirname(where[0]) if where else "/usr/local/nvidia/lib64"
        compilers = [
            subprocess.Popen(
                [
                    *("nvcc", "-O2", "-o", str(self.bin / source.stem), str(source)),
                    *(f"-L{folder}", "-l:libcuda.so.1"),
                    # adversary.cu stands before libcuda's calls
                    *("-Xlinker", "--export-dynamic"),
                ]
            )
            for source in sorted(PROGRAMS.glob("*.cu"))
        ]
        statuses = [compiler.wait() for compiler in compilers]
        if any(statuses):
            raise SystemExit("bench-gpu: a program does not compile")

    def file(self) -> Path:
        """A new progress file."""
        self._files += 1
        return self.work / f"progress{self._files}"

    def worker(self, path: Path, seconds: float, *options: str) -> list[str]:
        """The command line of fixed work of about 1 ms a kernel."""
        return [
            *(str(self.bin / "work"), str(path), "--iters", self.iterations),
            *("--blocks", self.blocks, "--seconds", str(seconds), *options),
        ]


def tenant(name: str, program: Sequence[Any], *options: str, **popen: Any) -> subprocess.Popen[Any]:
    """Start *program* as a tenant."""
    command = [*CGPU, "run", "--name", name, *options, "--", *map(str, program)]
    return subprocess.Popen(command, text=True, **popen)


def outcome(
    name: str, program: Sequence[Any], *options: str, timeout_s: float = 90
) -> tuple[int, str]:
    """Run *program* as a tenant; return its status and what it printed."""
    run = tenant(name, program, *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        text, _ = run.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        run.kill()
        return -999, "timed out"
    return run.returncode, text


def last_json(text: str) -> dict[str, Any]:
    """Return the last JSON object printed, {} without one."""
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return {}


def progress(path: Path) -> tuple[int, int]:
    """Return what a worker has completed, and when (monotonic ns); (0, 0) before the first."""
    try:
        return struct.unpack("<QQ", path.read_bytes()[:16])
    except (OSError, struct.error):
        return 0, 0


def rates(paths: Sequence[Path], seconds: float = WINDOW_S) -> list[float]:
    """Completions a second of each worker over a window."""
    before = [progress(path) for path in paths]
    time.sleep(seconds)
    after = [progress(path) for path in paths]
    return [
        (b[0] - a[0]) / ((b[1] - a[1]) / 1e9) if b[0] > a[0] else 0.0
        for a, b in zip(before, after, strict=True)
    ]


def median_rates(paths: Sequence[Path], times: int = 3, seconds: float = WINDOW_S) -> list[float]:
    """Median of *times* windows, each worker for itself."""
    windows = [rates(paths, seconds) for _ in range(times)]
    return [statistics.median(column) for column in zip(*windows, strict=True)]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 40) -> None:
    """Poll until *condition* holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def wait_for_end(*names: str) -> None:
    """Until these tenants, or all, are gone."""
    folder = TREE / "container"

    def gone() -> bool:
        left = {path.name for path in folder.iterdir()}
        return not (left & set(names) if names else left)

    wait_for(gone, "the tenants' end")


def all_returned(bench: Bench) -> None:
    """Check that with the last tenant's last open file nothing is charged any more."""
    wait_for_end()
    start = time.monotonic()
    # A container's promises return at once; its memory when the driver has taken its files apart.
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: not table("0/memory")["used"], "the return of all memory", 10)
    took = (time.monotonic() - start) * 1e3
    bench.report.equal("charged after all have ended", table("0/memory")["used"], 0, "bytes")
    bench.report.check("until it was", took, "ms")


def node(path: str, value: object | None = None) -> str:
    """Read a node of the tree, or write it."""
    full = TREE / path
    if value is not None:
        with open(full, "w") as file:
            file.write(f"{value}\n")
        return ""
    return full.read_text().strip()


def table(path: str) -> dict[str, int]:
    """A node of ``key value`` lines."""
    return {k: int(v) for k, v in (line.split() for line in node(path).splitlines())}


@contextlib.contextmanager
def ended(*processes: subprocess.Popen[Any]) -> Iterator[tuple[subprocess.Popen[Any], ...]]:
    """Processes that are killed at the end, whatever comes."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def running(
    bench: Bench, tenants: Mapping[str, Sequence[str]], seconds: float = 120, extra: str = ""
) -> Iterator[dict[str, Path]]:
    """Workers under way, each a tenant of its own; yields their progress files once all work."""
    files = {name: bench.file() for name in tenants}
    processes = [
        tenant(
            name,
            bench.worker(files[name], seconds, *extra.split()),
            *options,
            stdout=subprocess.DEVNULL,
        )
        for name, options in tenants.items()
    ]
    with ended(*processes):
        for name, path in files.items():
            wait_for(lambda path=path: progress(path)[0] > 2, f"{name} at work")  # type: ignore[misc]  # bound in this round of the loop
        time.sleep(SETTLE_S)
        yield files
    wait_for_end(*tenants)


@contextlib.contextmanager
def native(command: Sequence[Any], **popen: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program without a door, killed at the end."""
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, **popen)
    with ended(process):
        yield process


def agent_pid() -> int:
    return int(client.ask({"op": "ping"})["pid"])


def agent_cpu_s() -> tuple[float, float]:
    """
    CPU time of the agent so far: its own code's, and the kernel's with the driver's for it.

    The sum is the scheduler's, in nanoseconds. What is its own is counted in ticks of 10 ms, which
    are half a per cent of two seconds.
    """
    words = Path(f"/proc/{agent_pid()}/stat").read_text().rsplit(")", 1)[1].split()
    own = int(words[11]) / os.sysconf("SC_CLK_TCK")
    return own, sum(agent_threads_s().values()) - own


def agent_threads_s() -> dict[str, float]:
    """CPU time of the agent so far by its threads' names."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{agent_pid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            name = (task / "comm").read_text().strip()
            ns = int((task / "schedstat").read_text().split()[0])
            found[name] = found.get(name, 0) + ns / 1e9
    return found


def agent_load(seconds: float) -> tuple[float, float]:
    """Percent of a core that the agent takes, as :func:`agent_cpu_s` divides it."""
    before, start = agent_cpu_s(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    own, kernel = ((b - a) / took * 100 for a, b in zip(before, agent_cpu_s(), strict=True))
    return own, kernel
