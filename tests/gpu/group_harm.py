# SPDX-License-Identifier: MIT
"""What one member of a group can do to the others, and never to those outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from pycgpu.tree.process import directories
from tests.gpu.serving import lies
from tests.gpu.shares import calibrate
from tests.gpu.tenants import (
    Bench,
    ended,
    last_json,
    median_rates,
    node,
    outcome,
    progress,
    rates,
    tenant,
    wait_for,
    wait_for_end,
)

LIMIT = "2G"
GROUP = ("--group", "d", "--mem", LIMIT)
SERVER = "the server's SIGKILL"


def group_harm(bench: Bench) -> None:
    """Whoever is outside keeps its part, whatever happens inside."""
    calibrate(bench)
    with tenant_at_work(bench, "out") as outside:
        alone = rates([outside])[0]
        threads(bench)
        for label, options in (("illegal access", ("--fault", "1")), ("SIGKILL", ())):
            one_death(bench, label, options, outside, alone)
        one_death(bench, SERVER, (), outside, alone)
        for label, blocks in (("of one block", "1"), ("that fills the card", bench.blocks)):
            one_hangs(bench, f"an endless kernel {label}", blocks, outside)
    wait_for_end()
    lies(bench, alone, " in a group", *GROUP)
    wait_for_end()


def threads(bench: Bench) -> None:
    """A member's quota is its part of the threads, for kernels that fill the card."""
    done = []
    for quota in ("100", "25"):
        with tenant_at_work(bench, "d0", *GROUP, "--quota", quota) as path:
            done.append(median_rates([path])[0])
        wait_for_end("d0", "d")
    bench.report.near("a member of quota 25, of one of 100", done[1] / done[0] * 100, 25, 3)


def one_hangs(bench: Bench, label: str, blocks: str, outside: Path) -> None:
    """A kernel without an end, then its process's: to the others inside, and outside."""
    report, file, hung = bench.report, bench.file(), bench.file()
    other = tenant("d0", bench.worker(file, 60), *GROUP, stdout=subprocess.PIPE)
    with ended(other):
        wait_for(lambda: progress(file)[0] > 2, "a member at work")
        node("0/d/weight", 1)
        inside, beside = median_rates([file, outside])
        work = [bench.bin / "adversary", hung, "frozen", "--blocks", blocks, "--seconds", "60"]
        with ended(tenant("d1", work, *GROUP, stdout=subprocess.DEVNULL)) as (culprit,):
            wait_for(lambda: progress(hung)[0] > 2, "a member that hangs")
            time.sleep(1)
            now, outer = median_rates([file, outside])
            report.check(f"{label}: the other member, of before", now / inside * 100, "%")
            report.least(f"{label}: outside, of before", outer / beside * 100, 95)
            culprit.send_signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(timeout=4)
        done = progress(file)[0]
        time.sleep(1)
        goes_on = progress(file)[0] > done
        other.kill()
        text, _ = other.communicate(timeout=60)
    said = "goes on" if goes_on else last_json(text).get("error", "stands still")
    report.check(f"{label}, then SIGKILL: the other member", str(said))
    wait_for_end("d0", "d1", "d")
    status, text = outcome("d2", [*bench.worker(bench.file(), 1)], *GROUP)
    served = status == 0 and "error" not in last_json(text)
    report.equal(f"{label}: a member that comes then is served", served, True)
    wait_for_end("d2", "d")


@contextlib.contextmanager
def tenant_at_work(bench: Bench, name: str, *options: str) -> Iterator[Path]:
    path = bench.file()
    # One that is outside works through all of the section.
    with ended(tenant(name, bench.worker(path, 400), *options, stdout=subprocess.DEVNULL)):
        wait_for(lambda: progress(path)[0] > 2, f"{name} at work")
        yield path


def one_death(
    bench: Bench, label: str, options: tuple[str, ...], outside: Path, alone: float
) -> None:
    report = bench.report
    file = bench.file()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    other = tenant("d0", bench.worker(file, 7), *GROUP, **pipes)
    path = bench.file()
    with ended(other):
        wait_for(lambda: progress(file)[0] > 2, "a member at work")
        work = bench.worker(path, 6, *options)
        with ended(tenant("d1", work, *GROUP, stdout=subprocess.DEVNULL)) as (culprit,):
            wait_for(lambda: progress(path)[0] > 2, "another at work")
            if label == "SIGKILL":
                culprit.send_signal(signal.SIGKILL)
            elif not options:
                os.kill(server(), signal.SIGKILL)
            text, told = other.communicate(timeout=60)
    said = "goes on" if other.returncode == 0 else f"ends, status {other.returncode}"
    report.check(f"{label}: the other member", str(last_json(text).get("error", said)))
    if label == SERVER:
        # it waits asleep: nobody else would wake it
        report.equal(f"{label}: the other is told", "the MPS server of this group" in told, True)
    report.least(f"{label}: outside, of before", rates([outside])[0] / alone * 100, 95)
    status, text = outcome("d2", [*bench.worker(bench.file(), 1)], *GROUP)
    served = status == 0 and "error" not in last_json(text)
    report.equal(f"{label}: a member that comes then is served", served, True)
    wait_for_end("d0", "d1", "d2", "d")


def server() -> int:
    """The process of the only MPS server."""
    for comm in (one / "comm" for one in directories(Path("/proc"))):
        with contextlib.suppress(OSError):
            if comm.read_text().startswith("nvidia-cuda-mps") and (
                b"mps-server" in (comm.parent / "cmdline").read_bytes()
            ):
                return int(comm.parent.name)
    raise LookupError("no MPS server runs")
