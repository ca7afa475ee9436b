# SPDX-License-Identifier: MIT
"""
What else divides a card, on the same machine in the same run: NVIDIA's MPS with percentages, and
HAMi-core if its source lies at ``$HAMI_CORE`` and builds here. The driver's own sharing is
measured beside each check of ours.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.gpu.tenants import (
    Bench,
    ended,
    last_json,
    median_rates,
    progress,
    wait_for,
)


@contextmanager
def mps(work: Path) -> Iterator[dict[str, str]]:
    """A control daemon of MPS; yields the environment of its clients."""
    environment = dict(
        os.environ,
        CUDA_MPS_PIPE_DIRECTORY=str(work / "mps-pipe"),
        CUDA_MPS_LOG_DIRECTORY=str(work / "mps-log"),
    )
    for name in ("mps-pipe", "mps-log"):
        (work / name).mkdir(exist_ok=True)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=20)
    try:
        yield environment
    finally:
        ask(environment, "quit -t 1")


def ask(environment: dict[str, str], command: str) -> str:
    """One command to the control daemon."""
    return subprocess.run(
        ["nvidia-cuda-mps-control"],
        input=f"{command}\n",
        capture_output=True,
        text=True,
        env=environment,
        timeout=20,
        check=False,
    ).stdout.strip()


def limited(environment: dict[str, str], percent: int) -> dict[str, str]:
    return dict(environment, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(percent))


def shares(
    bench: Bench,
    *environments: dict[str, str],
    settle_s: float = 1,
    window_s: float = 1,
    stderr: int | IO[str] | None = None,
) -> list[float]:
    """
    Shares of workers that run at once, each with its environment: medians of three windows.

    They end by themselves: a client of MPS that is killed leaves its server undefined.
    """
    files = [bench.file() for _ in environments]
    seconds = settle_s + 3 * window_s + 3
    workers = [
        subprocess.Popen(
            bench.worker(path, seconds), env=environment, stdout=subprocess.DEVNULL, stderr=stderr
        )
        for path, environment in zip(files, environments, strict=True)
    ]
    with ended(*workers):
        wait_for(lambda: all(progress(path)[0] > 2 for path in files), "all at work", 20)
        time.sleep(settle_s)
        got = [rate / bench.rate * 100 for rate in median_rates(files, seconds=window_s)]
        for worker in workers:
            worker.wait(timeout=30)
    return got


def peers(bench: Bench) -> None:
    """The peers' shares, sums, latency, and what a neighbour's fault does."""
    report = bench.report
    try:
        with mps(bench.work) as environment:
            with_mps(bench, environment)
    except (OSError, subprocess.SubprocessError) as error:
        report.check("MPS", f"not to be had here: {error}")
    source = os.environ.get("HAMI_CORE")
    if not source:
        report.check("HAMi-core", "no source at $HAMI_CORE")
        return
    with_hami(bench, Path(source))


def with_mps(bench: Bench, environment: dict[str, str]) -> None:
    report = bench.report
    path = bench.file()
    with ended(
        subprocess.Popen(
            bench.worker(path, 4), env=limited(environment, 33), stdout=subprocess.DEVNULL
        )
    ) as (client,):
        wait_for(lambda: progress(path)[0] > 2, "a client of MPS")
        servers = ask(environment, "get_server_list")
        clients = ask(environment, f"get_client_list {servers.split()[0]}") if servers else ""
        got = median_rates([path])[0] / bench.rate * 100
        client.wait(timeout=30)
    report.check("MPS is in force: its servers", servers or "none", "", "one", bool(servers))
    report.check("MPS is in force: clients of it", clients or "none", "", "one", bool(clients))
    report.near("MPS is in force: a lone client with 33 %", got, 33, 3)
    for a, b in ((50, 50), (33, 67), (10, 90)):
        parts = shares(bench, limited(environment, a), limited(environment, b))
        label = f"MPS {a} % and {b} %"
        report.check(f"{label}: first, share of what was done", parts[0] / sum(parts) * 100, "%")
        report.check(f"{label}: sum against alone", sum(parts), "%")
    parts = shares(bench, environment, environment)
    report.check("MPS without percentages: sum against alone", sum(parts), "%")
    path, timed = bench.file(), ("--every", "20.37")
    with ended(
        subprocess.Popen(bench.worker(path, 9), env=environment, stdout=subprocess.DEVNULL)
    ) as (heavy,):
        wait_for(lambda: progress(path)[0] > 2, "a saturating client")
        text = subprocess.run(
            bench.worker(bench.file(), 5, *timed), capture_output=True, text=True, env=environment
        ).stdout
        heavy.wait(timeout=30)
    for key in ("p50", "p99"):
        value = float(last_json(text).get(f"{key}_ms", 0))
        report.check(f"latency beside a saturating tenant, MPS: {key}", value, "ms")
    files = [bench.file(), bench.file()]
    neighbour = subprocess.Popen(
        bench.worker(files[0], 12), env=environment, stdout=subprocess.PIPE, text=True
    )
    with ended(neighbour):
        wait_for(lambda: progress(files[0])[0] > 2, "the neighbour")
        subprocess.run(
            bench.worker(files[1], 5, "--fault", "1"), env=environment, capture_output=True
        )
        try:
            text, _ = neighbour.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            text = '{"error": "hangs"}'
    report.check(
        "MPS: the neighbour of an illegal access",
        str(last_json(text).get("error", "goes on")),
    )


def with_hami(bench: Bench, source: Path) -> None:
    report = bench.report
    build = bench.work / "hami"
    build.mkdir(exist_ok=True)
    options = [
        *("-DDLSYM_HOOK_ENABLE=1", "-DMULTIPROCESS_LIMIT_ENABLE=1", "-DHOOK_MEMINFO_ENABLE=1"),
        # as its own build.sh does: a Release build hides the functions that it is to put in place
        *("-DHOOK_NVML_ENABLE=1", "-DCMAKE_BUILD_TYPE=Debug", "-DTEST_DEVICE_ID=0"),
        # the driver's own libraries are not where a linker looks
        "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",
        "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-all "
        f"-L{bench.work} -L/usr/local/nvidia/lib64",
    ]
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in ("libcuda.so", "libnvidia-ml.so"):
        found = [line.split("=> ")[1] for line in listed.splitlines() if f"{name}.1 " in line]
        if found and not (bench.work / name).exists():
            (bench.work / name).symlink_to(found[0])
    log = build / "log"
    with log.open("w") as out:
        for command in (
            ["cmake", str(source), *options],
            ["make", "-j8", "-k", "vgpu"],
        ):
            subprocess.run(command, cwd=build, stdout=out, stderr=out, timeout=120, check=False)
    libraries = list(build.rglob("libvgpu.so"))
    if not libraries:
        errors = [line for line in log.read_text().splitlines() if "rror" in line]
        report.check("HAMi-core does not build here", (errors or ["no reason given"])[0][:160])
        return
    Path("/tmp/vgpulock").mkdir(exist_ok=True)

    def environment(percent: int, number: int) -> dict[str, str]:
        # a cache of its own is what a container of its own would have
        return dict(
            os.environ,
            LD_PRELOAD=str(libraries[0]),
            # where its dlsym() looks, which else is its place when installed
            CUDA_REDIRECT=str(libraries[0]),
            CUDA_DEVICE_MEMORY_LIMIT="8g",
            CUDA_DEVICE_SM_LIMIT=str(percent),
            CUDA_DEVICE_MEMORY_SHARED_CACHE=str(bench.work / f"hami-cache-{number}-{percent}"),
            # else a program that is alone on the card is not limited
            GPU_CORE_UTILIZATION_POLICY="FORCE",
        )

    run = subprocess.run(
        [bench.bin / "memory", "malloc"], env=environment(33, 3), capture_output=True, text=True
    )
    size = last_json(run.stdout).get("total", 0)
    told = (run.stderr.strip().splitlines() or ["nothing"])[-1]
    report.check("HAMi-core: size that it shows of 8 GiB", size, "bytes")
    if size != 8 << 30:
        report.check("HAMi-core builds here, and is not in force; it says", told[-120:])
        return
    # how it divides swings over seconds: its watcher corrects eight times a second
    long = {"settle_s": 5, "window_s": 3}
    try:
        messages = bench.work / "hami-told"
        with messages.open("w") as file:
            lone = dict(environment(33, 0), LIBCUDA_LOG_LEVEL="3")
            got = shares(bench, lone, stderr=file, **long)
        report.check("HAMi-core, lone program with 33 %", got[0], "%")
        seen = re.findall(r"device 0: userutil=(\d+).* limit=(\d+)", messages.read_text())
        if seen:
            used = statistics.median(int(of_card) for of_card, _ in seen)
            report.check("HAMi-core: limit that its watcher knows", int(seen[-1][1]), "%")
            report.check("HAMi-core: use that its watcher sees, median", used, "%")
        else:
            report.check("HAMi-core: its watcher", "says nothing")
        for a, b in ((50, 50), (33, 67)):
            got = shares(
                bench, environment(a, 1), environment(b, 2), stderr=subprocess.DEVNULL, **long
            )
            label = f"HAMi-core {a} % and {b} %"
            report.check(f"{label}: first, share of what was done", got[0] / sum(got) * 100, "%")
            report.check(f"{label}: sum against alone", sum(got), "%")
    except TimeoutError as error:
        report.check("HAMi-core builds, but", str(error))
