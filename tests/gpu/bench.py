# SPDX-License-Identifier: MIT
"""
The GPU ring: what the user door promises, measured on a real card.

Every check is ``{name, value, unit, bound, pass}``; a bound of None is a figure that is reported
and not judged. Shares come from work of a fixed size (programs/work.cu) counted by the tenant and
read by us while it runs; a share is a rate over the rate alone.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = Path("/run/cgpu_km")
CGPU = [sys.executable, "-m", "pycgpu.cli.main"]
MIB = 1 << 20
WINDOW_S = 1.0
SETTLE_S = 0.6
POLICIES = (
    "average",
    "preemptive",
    "weighted",
    "fixed",
    "weak",
    "native",
    "mixed",
    "fair",
    "burst",
)


class Bench:
    """Checks so far, and where the programs are."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.checks: list[dict[str, Any]] = []
        self.bin = work / "bin"
        self.bin.mkdir(exist_ok=True)
        self.rate = 0.0
        self.iterations = "0"
        self.counter = 0

    def check(
        self,
        name: str,
        value: float | str,
        unit: str = "",
        bound: float | str | None = None,
        ok: bool | None = None,
    ) -> None:
        """Record one figure; ``ok`` None: it is not judged."""
        if isinstance(value, float):
            value = round(value, 4)
        self.checks.append({"name": name, "value": value, "unit": unit, "bound": bound, "pass": ok})
        mark = {None: "    ", True: "ok  ", False: "FAIL"}[ok]
        print(f"{mark} {name}: {value} {unit} (bound {bound})", flush=True)

    def equal(self, name: str, value: Any, wanted: Any, unit: str = "") -> None:
        self.check(name, value, unit, wanted, value == wanted)

    def near(self, name: str, value: float, wanted: float, within: float, unit: str = "%") -> None:
        self.check(name, value, unit, f"{wanted:.2f} ± {within}", abs(value - wanted) <= within)

    def build(self) -> None:
        """Compile the programs with nvcc."""
        libcuda = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
        where = [
            line.split("=> ")[1]
            for line in libcuda.stdout.splitlines()
            if "libcuda.so.1" in line and "=> " in line
        ]
        folder = os.path.dirname(where[0]) if where else "/usr/local/nvidia/lib64"
        for source in sorted((HERE / "programs").glob("*.cu")):
            subprocess.run(
                [
                    *("nvcc", "-O2", "-o", str(self.bin / source.stem), str(source)),
                    *(f"-L{folder}", "-l:libcuda.so.1"),
                ],
                check=True,
            )

    def file(self) -> Path:
        self.counter += 1
        return self.work / f"progress{self.counter}"


def tenant(name: str, program: Sequence[str], *options: str, **popen: Any) -> subprocess.Popen:
    """Start *program* as a tenant."""
    command = [*CGPU, "run", "--name", name, *options, "--", *map(str, program)]
    return subprocess.Popen(command, text=True, **popen)


def outcome(
    name: str, program: Sequence[str], *options: str, timeout_s: float = 90
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


def node(path: str, value: object | None = None) -> str:
    """Read a node of the tree, or write it."""
    full = TREE / path
    if value is not None:
        with open(full, "w") as file:
            file.write(f"{value}\n")
        return ""
    return full.read_text().strip()


@contextlib.contextmanager
def running(
    bench: Bench,
    tenants: dict[str, Sequence[str]],
    seconds: float,
    *,
    ms: str = "",
    extra: str = "",
) -> Iterator[dict[str, Path]]:
    """Workers under way, each a tenant of its own; yields their progress files once all work."""
    files, processes = {}, []
    for name, options in tenants.items():
        files[name] = bench.file()
        size = ["--ms", ms] if ms else ["--iters", bench.iterations]
        program = [str(bench.bin / "work"), str(files[name]), *size, "--seconds", str(seconds)]
        processes.append(
            tenant(name, [*program, *extra.split()], *options, stdout=subprocess.DEVNULL)
        )
    try:
        for name, path in files.items():
            wait_for(lambda path=path: progress(path)[0] > 2, f"{name} at work")
        time.sleep(SETTLE_S)
        yield files
    finally:
        for process in processes:
            process.kill()
            process.wait()
        wait_for(
            lambda: not any((TREE / "container" / name).exists() for name in tenants),
            "the tenants' end",
        )


# ---------------------------------------------------------------- memory


def memory(bench: Bench) -> None:
    """Sizes, limits, and every way of taking memory."""
    status, text = outcome("smi", ["nvidia-smi"], "--mem", "3276M")
    bench.check(
        "nvidia-smi shows 0MiB / 3276MiB",
        " / ".join(
            word.strip()
            for line in text.splitlines()
            if "MiB /" in line
            for word in line.split("|")[2].split("/")
        ),
        bound="0MiB / 3276MiB",
        ok="0MiB /   3276MiB" in text and not status,
    )
    status, text = outcome("torch", [sys.executable, HERE / "programs/sizes.py"], "--mem", "8G")
    got = last_json(text)
    bench.equal("PyTorch: total memory", got.get("total"), 8 << 30, "bytes")
    bench.equal("PyTorch: memory that mem_get_info sees", got.get("seen"), 8 << 30, "bytes")
    bench.check(
        "PyTorch: OutOfMemoryError at the limit",
        str(got.get("oom"))[:60],
        "",
        "8.00 GiB",
        "8.00 GiB" in str(got.get("oom")) or "out of memory" in str(got.get("oom")),
    )
    bench.equal("PyTorch: goes on after freeing", got.get("after"), 100)
    bench.equal("PyTorch: DataLoader, 4 forked workers", got.get("loader"), 1023 * 512.0)
    bench.equal("PyTorch: CUDA graph", got.get("graph"), 3072.0)
    bench.equal("PyTorch: exit status", status, 0)

    limit = 4 << 30
    for mode in ("malloc", "managed", "vmm", "pool"):
        status, text = outcome(f"m-{mode}", [bench.bin / "memory", mode], "--mem", "4G")
        got = last_json(text)
        taken = int(got.get("got", 0))
        bench.equal(f"{mode}: total", got.get("total"), limit, "bytes")
        # the context's own 0.5 GiB and the granularity of the test
        bench.check(
            f"{mode}: taken before it is refused",
            taken / MIB,
            "MiB",
            "3200 .. 4096",
            3200 * MIB <= taken <= limit and bool(got.get("error")),
        )
        bench.check(
            f"{mode}: as much again after freeing",
            got.get("again", 0) / MIB,
            "MiB",
            taken / MIB,
            got.get("again") == taken,
        )
    status, text = outcome("m-ipc", [bench.bin / "memory", "ipc"], "--mem", "4G")
    bench.check(
        "IPC between two processes of a tenant",
        str(last_json(text)),
        "",
        "value 42",
        last_json(text).get("value") == 42 and not status,
    )
    status, text = outcome("m-reclaim", [bench.bin / "memory", "reclaim"], "--mem", "4G")
    got = last_json(text)
    bench.check(
        "half the card taken and freed 200 times, plain and managed",
        str(got),
        "",
        "no error",
        got.get("error") == 0,
    )
    status, text = outcome(
        "m-deny", [bench.bin / "memory", "managed"], "--mem", "4G", "--uvm-disable"
    )
    bench.equal("managed memory refused by --uvm-disable", last_json(text).get("got"), 0, "bytes")
    status, text = outcome("over", ["true"], "--mem", "900G")
    bench.check(
        "over-commit is refused and says who holds what",
        text.strip()[-120:],
        "",
        "free",
        status == 1 and "free" in text,
    )
    wait_for(lambda: not list((TREE / "container").iterdir()), "the tenants' end")
    used = dict(line.split() for line in node("0/memory").splitlines())["used"]
    bench.equal("charged after all have ended", int(used), 0, "bytes")


# ---------------------------------------------------------------- overhead


def overhead(bench: Bench) -> None:
    """What the door costs, against no door."""
    native, inside = [], []
    for _ in range(3):
        got = subprocess.run(
            [bench.bin / "memory", "speed"], capture_output=True, text=True, check=True
        )
        native.append(last_json(got.stdout))
        inside.append(last_json(outcome("speed", [bench.bin / "memory", "speed"])[1]))
    for key, unit in (("context_ms", "ms"), ("malloc_us", "us"), ("free_us", "us")):
        for label, found in (("native", native), ("tenant", inside)):
            bench.check(
                f"{key.split('_')[0]}: {label}",
                statistics.median(float(one.get(key, 0)) for one in found),
                unit,
            )
    for label, command in (("native", []), ("tenant", [*CGPU, "run", "--"])):
        took = []
        for _ in range(3):
            start = time.monotonic()
            subprocess.run([*command, "nvidia-smi", "-L"], stdout=subprocess.DEVNULL, check=True)
            took.append((time.monotonic() - start) * 1e3)
        bench.check(f"nvidia-smi -L, start to end: {label}", statistics.median(took), "ms")


def alone(bench: Bench) -> None:
    """The rate of one worker without any door: what every share is compared with."""
    got = subprocess.run(
        [bench.bin / "work", bench.file(), "--ms", "1", "--calibrate"],
        capture_output=True,
        text=True,
        check=True,
    )
    bench.iterations = got.stdout.strip()
    path = bench.file()
    process = subprocess.Popen(
        [bench.bin / "work", path, "--iters", bench.iterations, "--seconds", "60"],
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: progress(path)[0] > 2, "work without a door")
    time.sleep(SETTLE_S)
    bench.rate = median_rates([path], 5)[0]
    process.kill()
    process.wait()
    bench.check("fixed work alone, native", bench.rate, "kernels/s")
    with running(bench, {"lone": ["--policy", "fair"]}, 60) as files:
        share = median_rates(list(files.values()), 5)[0] / bench.rate * 100
        bench.check("lone tenant against native", share, "%", ">= 99.5", share >= 99.5)
        before, start = agent_cpu_s(), time.monotonic()
        time.sleep(3)
        cpu = (agent_cpu_s() - before) / (time.monotonic() - start) * 100
        bench.check("agent's CPU, one tenant without a cap", cpu, "% of a core", "< 1", cpu < 1)


def agent_cpu_s() -> float:
    """CPU time of the agent so far."""
    listed = subprocess.run(["pgrep", "-f", "pycgpu.agent"], capture_output=True, text=True)
    ticks = 0
    for pid in listed.stdout.split():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- shares


def shares_of(bench: Bench, files: dict[str, Path], names: str) -> list[float]:
    time.sleep(SETTLE_S)
    return [rate / bench.rate * 100 for rate in median_rates([files[n] for n in names.split()])]


def judge_shares(bench: Bench, label: str, got: list[float], weights: list[int]) -> None:
    """Shares of the card in the weights' proportion, and how much of it was used at all."""
    total = sum(got)
    for i, (share, weight) in enumerate(zip(got, weights, strict=True)):
        wanted = weight / sum(weights) * 100
        of_sum = share / total * 100 if total else 0.0
        bench.near(f"{label}: tenant {i + 1}, share of what was done", of_sum, wanted, 0.5)
    bench.check(f"{label}: sum of tenants against alone", total, "%", ">= 98", total >= 98)


def weights(bench: Bench) -> None:
    """Two tenants, then three; weights changed live."""
    plain = {"a": ["--policy", "weighted"], "b": ["--policy", "weighted"]}
    with running(bench, plain, 120) as files:
        for name in ("weighted", "fair", "preemptive", "weak"):
            node("0/policy", POLICIES.index(name))
            for a, b in ((1, 1), (1, 2), (1, 9)):
                if name in ("preemptive", "weak") and (a, b) != (1, 1):
                    continue
                node("0/a/weight", a)
                node("0/b/weight", b)
                got = shares_of(bench, files, "a b")
                judge_shares(bench, f"{name} {a}:{b}", got, [a, b])
        node("0/a/weight", 1)
        node("0/b/weight", 1)
        node("0/max_inst", 4)
        for name, wanted in (("average", 25), ("fixed", 25)):
            node("0/policy", POLICIES.index(name))
            for i, share in enumerate(shares_of(bench, files, "a b")):
                bench.near(f"{name}, max_inst 4: tenant {i + 1}", share, wanted, 0.5)
        node("0/policy", POLICIES.index("mixed"))
        node("0/a/quota", 30)
        got = shares_of(bench, files, "a b")
        bench.near("mixed, quota 30 and none: first", got[0], 30, 0.5)
        bench.check("mixed, quota 30 and none: second", got[1], "%", ">= 68", got[1] >= 68)
        node("0/policy", POLICIES.index("burst"))
        got = shares_of(bench, files, "a b")
        bench.check("burst, quota 30: first", got[0], "%", "<= 30.5", got[0] <= 30.5)
        bench.check("burst, quota 30: second", got[1], "%", ">= 68", got[1] >= 68)
        node("0/a/quota", 0)
        node("0/policy", POLICIES.index("native"))
        got = shares_of(bench, files, "a b")
        bench.check("driver's own sharing: sum of two tenants against alone", sum(got), "%")
        node("0/policy", POLICIES.index("weighted"))
        node("0/max_inst", 20)
        before, start = agent_cpu_s(), time.monotonic()
        time.sleep(3)
        cpu = (agent_cpu_s() - before) / (time.monotonic() - start) * 100
        bench.check("agent's CPU, two tenants in windows", cpu, "% of a core", "< 1", cpu < 1)
    three = {
        name: ["--policy", "weighted", "--weight", str(w)]
        for name, w in (("a", 1), ("b", 2), ("c", 3))
    }
    with running(bench, three, 60) as files:
        judge_shares(bench, "weighted 1:2:3", shares_of(bench, files, "a b c"), [1, 2, 3])
    stat = dict(line.split() for line in node("0/stat").splitlines())
    calls = int(stat.get("gate_calls", 0)) or 1
    bench.check("gate call, average", int(stat.get("gate_ns", 0)) / calls / 1e3, "us")
    bench.check("gate call, longest", int(stat.get("gate_max_ns", 0)) / 1e3, "us")


def quotas(bench: Bench) -> None:
    """A lone tenant's cap, changed live; long kernels, graphs, many processes."""
    with running(bench, {"q": ["--quota", "50"]}, 90) as files:
        for quota in (10, 33, 50):
            node("0/q/quota", quota)
            bench.near(
                f"quota {quota} of a lone tenant", shares_of(bench, files, "q")[0], quota, 0.5
            )
    with running(bench, {"q": ["--quota", "33"]}, 90, extra="--graph") as files:
        bench.near("quota 33, CUDA graphs", shares_of(bench, files, "q")[0], 33, 0.5)
    path = bench.file()
    long_ms = 300
    process = subprocess.Popen(
        [
            bench.bin / "work",
            path,
            "--iters",
            str(int(bench.iterations) * long_ms),
            "--seconds",
            "60",
        ],
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: progress(path)[0] > 3, "long kernels")
    rate = rates([path], 3)[0]
    process.kill()
    process.wait()
    program = [
        bench.bin / "work",
        path,
        "--iters",
        str(int(bench.iterations) * long_ms),
        "--seconds",
        "60",
    ]
    process = tenant("long", list(map(str, program)), "--quota", "33", stdout=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.kill)
        start = progress(path)[0]
        wait_for(lambda: (TREE / "container/long").exists(), "long")
        time.sleep(4)
        start = progress(path)[0]
        wait_for(lambda: progress(path)[0] > start + 1, "long kernels under a quota")
        bench.near("quota 33, kernels of 300 ms", rates([path], 8)[0] / rate * 100, 33, 0.5)


def many(bench: Bench) -> None:
    """A tenant of eight processes beside one of a single process, equal weights."""
    for policy, unit_us in (("fair", 5000), ("weighted", 5000), ("weighted", 40000)):
        label = f"one beside eight, {policy}, unit {unit_us // 1000} ms"
        paths = [bench.file() for _ in range(8)]
        one = f"{bench.bin}/work %s --iters {bench.iterations} --seconds 60"
        script = " & ".join(one % path for path in paths) + "; wait"
        crowd = tenant(
            "many",
            ["sh", "-c", script],
            "--policy",
            policy,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with running(bench, {"one": ["--policy", policy]}, 60) as files:
                node("0/policy", POLICIES.index(policy))
                node("0/timeslice_us", unit_us)
                with contextlib.suppress(TimeoutError):
                    wait_for(lambda at=paths: all(progress(p)[0] > 1 for p in at), "all eight", 12)
                time.sleep(SETTLE_S)
                got = median_rates([*paths, files["one"]])
                moving = sum(rate > 0 for rate in got[:8])
                bench.check(f"{label}: processes that progress", moving, "", 8, moving == 8)
                bench.near(f"{label}: share of the one", got[8] / sum(got) * 100, 50, 0.5)
                total = sum(got) / bench.rate * 100
                bench.check(f"{label}: sum against alone", total, "%", ">= 98", total >= 98)
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)
            crowd.wait()
            wait_for(lambda: not list((TREE / "container").iterdir()), "the tenants' end")
    node("0/timeslice_us", 5000)


def resnet(bench: Bench) -> None:
    """ResNet-50, fp16, batch 256, without synchronisation per step."""
    program = [sys.executable, str(HERE / "programs/resnet.py")]
    path = bench.file()
    solo = subprocess.Popen([*program, path, "25"], stdout=subprocess.DEVNULL)
    wait_for(lambda: progress(path)[0] > 30, "ResNet alone", 60)
    alone_rate = median_rates([path], 3, 2)[0]
    solo.kill()
    solo.wait()
    bench.check("ResNet-50 alone, native", alone_rate * 256, "images/s")
    for policy, a, b in (("weighted", 1, 1), ("weighted", 1, 2), ("native", 1, 1)):
        files, processes = [], []
        for name, weight in (("a", a), ("b", b)):
            files.append(bench.file())
            processes.append(
                tenant(
                    name,
                    [*program, str(files[-1]), "60"],
                    "--policy",
                    policy,
                    "--weight",
                    str(weight),
                    "--mem",
                    "60G",
                    stdout=subprocess.DEVNULL,
                )
            )
        try:
            for path in files:
                wait_for(lambda path=path: progress(path)[0] > 12, "ResNet tenants", 90)
            node("0/policy", POLICIES.index(policy))
            time.sleep(1)
            got = [rate / alone_rate * 100 for rate in median_rates(files, 3, 4)]
            label = f"ResNet-50 {policy} {a}:{b}"
            if policy == "native":
                bench.check(f"{label}: sum against alone", sum(got), "%")
            else:
                judge_shares(bench, label, got, [a, b])
        finally:
            for process in processes:
                process.kill()
                process.wait()
            wait_for(lambda: not list((TREE / "container").iterdir()), "the tenants' end")


# ---------------------------------------------------------------- attacks, faults, latency


def attacks(bench: Bench) -> None:
    """A tenant that reaches for more, with the door and without."""
    for mode in ("none", "slice", "disable", "enable", "wfi"):
        path = bench.file()
        attack = [str(bench.bin / "attack"), str(path), bench.iterations, "9", mode]
        with running(bench, {"victim": ["--policy", "weighted"]}, 60) as files:
            process = tenant("attacker", attack, "--policy", "weighted", stdout=subprocess.PIPE)
            wait_for(lambda path=path: progress(path)[0] > 2, "the attacker at work")
            time.sleep(1)
            got = [rate / bench.rate * 100 for rate in median_rates([path, files["victim"]])]
            text, _ = process.communicate(timeout=60)
        bench.near(f"attack {mode}: attacker", got[0], 49, 1.5)
        bench.near(f"attack {mode}: neighbour", got[1], 49, 1.5)
        bench.check(f"attack {mode}: calls", text.strip()[-140:])
    for mode in ("none", "slice", "disable"):
        paths = [bench.file(), bench.file()]
        victim = subprocess.Popen(
            [bench.bin / "work", paths[1], "--iters", bench.iterations, "--seconds", "60"],
            stdout=subprocess.DEVNULL,
        )
        wait_for(lambda at=paths[1]: progress(at)[0] > 2, "victim")
        attacker = subprocess.Popen(
            [bench.bin / "attack", paths[0], bench.iterations, "7", mode], stdout=subprocess.DEVNULL
        )
        wait_for(lambda at=paths[0]: progress(at)[0] > 2, "the attacker at work")
        time.sleep(1)
        got = [rate / bench.rate * 100 for rate in rates(paths, 2)]
        bench.check(f"stock driver, attack {mode}: attacker", got[0], "%")
        bench.check(f"stock driver, attack {mode}: neighbour", got[1], "%")
        attacker.wait(timeout=60)
        victim.kill()
        victim.wait()


def latency(bench: Bench) -> None:
    """1 ms of work every 20 ms beside one that always works."""
    timed = [
        bench.bin / "work",
        bench.file(),
        "--iters",
        bench.iterations,
        "--every",
        "20",
        "--seconds",
        "4",
    ]
    got = last_json(subprocess.run(timed, capture_output=True, text=True).stdout)
    bench.check("latency alone: p50", float(got.get("p50_ms", 0)), "ms")
    bench.check("latency alone: p99", float(got.get("p99_ms", 0)), "ms")
    for policy in ("native", "fair", "weighted", "average", "weak"):
        with running(bench, {"heavy": ["--policy", policy]}, 60):
            node("0/policy", POLICIES.index(policy))
            node("0/max_inst", 2)
            timed[1] = bench.file()
            _, text = outcome("light", list(map(str, timed)), "--policy", policy)
            got = last_json(text)
            bench.check(
                f"latency beside a saturating tenant, {policy}: p50",
                float(got.get("p50_ms", 0)),
                "ms",
            )
            bench.check(
                f"latency beside a saturating tenant, {policy}: p99",
                float(got.get("p99_ms", 0)),
                "ms",
            )
    node("0/max_inst", 20)


def faults(bench: Bench) -> None:
    """Illegal access, SIGKILL at a shut gate, the agent's death."""
    node("0/policy", POLICIES.index("fair"))
    with running(bench, {"neighbour": ["--weight", "1"]}, 90) as files:
        paths = [files["neighbour"]]
        _, text = outcome(
            "bad",
            [
                bench.bin / "work",
                bench.file(),
                "--iters",
                bench.iterations,
                "--fault",
                "1",
                "--seconds",
                "5",
            ],
        )
        bench.check("illegal access: the culprit's error", last_json(text).get("error", "none"))
        share = median_rates(paths)[0] / bench.rate * 100
        bench.check("neighbour after an illegal access", share, "%", ">= 98", share >= 98)
        victim = tenant(
            "capped",
            [bench.bin / "work", str(bench.file()), "--iters", bench.iterations, "--seconds", "60"],
            "--quota",
            "10",
            stdout=subprocess.DEVNULL,
        )
        time.sleep(4)
        victim.kill()
        victim.wait()
        wait_for(lambda: not (TREE / "container/capped").exists(), "its removal", 10)
        share = median_rates(paths)[0] / bench.rate * 100
        bench.check(
            "neighbour after SIGKILL of a tenant at a shut gate", share, "%", ">= 98", share >= 98
        )
    path = bench.file()
    victim = tenant(
        "orphan",
        [bench.bin / "work", path, "--iters", bench.iterations, "--seconds", "14"],
        "--quota",
        "20",
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: progress(path)[0] > 2, "orphan at work")
    time.sleep(2)
    share = median_rates([path])[0] / bench.rate * 100
    bench.near("before the agent's death: quota 20", share, 20, 0.5)
    agent = json.loads(ask_agent())["pid"]
    os.kill(agent, signal.SIGKILL)
    time.sleep(0.5)
    share = median_rates([path])[0] / bench.rate * 100
    bench.check("after the agent's SIGKILL every gate is open", share, "%", ">= 98", share >= 98)
    try:
        status = victim.wait(timeout=30)
        bench.check("the orphan ends, does not hang: status", status, "", "any", True)
    except subprocess.TimeoutExpired:
        victim.kill()
        bench.check("the orphan ends, does not hang: status", "hangs", "", "any", False)
    status, text = outcome("after", ["nvidia-smi", "-L"])
    bench.equal("a new agent starts by itself", status, 0)


def ask_agent() -> str:
    code = (
        "import json; from pycgpu.agent import server; print(json.dumps(server.ask({'op':'ping'})))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


SECTIONS = (memory, overhead, alone, weights, quotas, many, faults, attacks, latency, resnet)


def facts() -> dict[str, str]:
    """Card, driver, kernel and date of this run."""
    query = (
        subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.splitlines()[0]
        .split(", ")
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "card": query[0],
        "driver": query[1],
        "kernel": os.uname().release,
        "commit": commit or os.environ.get("CGPU_COMMIT", "unknown"),
    }


def markdown(found: dict[str, Any]) -> str:
    """The result as a page."""
    lines = [
        f"# {found['card']}, driver {found['driver']}, {found['date']}",
        "",
        f"Commit {found['commit']}, Linux {found['kernel']}. A bound of – is a figure that is "
        "reported and not judged.",
        "",
        "| check | value | unit | bound | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in found["checks"]:
        mark = {None: "", True: "pass", False: "**fail**"}[one["pass"]]
        value = str(one["value"]).replace("|", "/")
        bound = "–" if one["bound"] is None else one["bound"]
        lines.append(f"| {one['name']} | {value} | {one['unit']} | {bound} | {mark} |")
    return "\n".join(lines) + "\n"


def plot(found: dict[str, Any], path: Path) -> None:
    """Deviations of the judged shares from what was promised."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (one["name"], one["value"] - float(str(one["bound"]).split(" ± ")[0]))
        for one in found["checks"]
        if " ± " in str(one["bound"]) and isinstance(one["value"], int | float)
    ]
    if not bars:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.28 * len(bars) + 1))
    axes.barh([name for name, _ in bars], [value for _, value in bars], color="#4477aa")
    axes.axvspan(-0.5, 0.5, color="#bbbbbb", alpha=0.4)
    axes.invert_yaxis()
    axes.set_xlabel("points from the promised share")
    axes.set_title(f"{found['card']}, driver {found['driver']}, {found['date']}")
    figure.tight_layout()
    figure.savefig(path)


def main(out: Path, names: Sequence[str]) -> int:
    """Run the sections named, or all; return how many checks failed."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cgpu-bench-") as work:
        bench = Bench(Path(work))
        bench.build()
        for section in SECTIONS:
            if names and section.__name__ not in names and section is not alone:
                continue
            start = time.monotonic()
            try:
                section(bench)
            except Exception as error:
                traceback.print_exc()
                bench.check(
                    f"{section.__name__}: the section ended early", repr(error), "", "", False
                )
                subprocess.run(["pkill", "-KILL", "-P", str(os.getpid())], check=False)
            print(f"-- {section.__name__}: {time.monotonic() - start:.0f} s", flush=True)
        found = {**facts(), "checks": bench.checks}
    stem = f"{found['date']}-{found['card'].replace(' ', '-')}-{found['driver']}"
    (out / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / f"{stem}.md").write_text(markdown(found))
    with contextlib.suppress(ImportError):
        plot(found, out / f"{stem}.svg")
    failed = [one["name"] for one in bench.checks if one["pass"] is False]
    print(f"{len(bench.checks)} checks, {len(failed)} failed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]), sys.argv[2:]), 1))
