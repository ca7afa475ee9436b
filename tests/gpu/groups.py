# SPDX-License-Identifier: MIT
"""
Small servers in a group: beside NVIDIA's MPS alone, beside a trainer and beside another group, and
what one member can do to the others and to those outside.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.peers import mps
from tests.gpu.serving import Asked, ends, start, trainer
from tests.gpu.shares import calibrate
from tests.gpu.tenants import (
    PROGRAMS,
    Bench,
    ended,
    last_json,
    outcome,
    progress,
    rates,
    table,
    tenant,
    wait_for,
    wait_for_end,
)

SHAPE = (1024, 48, 8)
COUNTS = (2, 4, 8)
SECONDS = 1.5
WINDOWS = 3
LIMIT = "2G"
#: Each member is charged for what the server shares with its clients, besides the server.
SHARED_MIB = 4


@contextlib.contextmanager
def loops(ways: dict[str, Any]) -> Iterator[list[Asked]]:
    """A server for each of *ways*, all ready, none at work."""
    program = [sys.executable, PROGRAMS / "loop.py", *SHAPE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        found = [
            Asked(stack.enter_context(ends(start(program, name, way, **pipes))))
            for name, way in ways.items()
        ]
        for one in found:
            one.wait_ready()
        yield found


def at_once(found: Sequence[Asked], seconds: float = SECONDS) -> list[dict[str, Any]]:
    """What each measures while all work."""
    for one in found:
        one.say(seconds)
    return [one.line(seconds + 30) for one in found]


def measured(found: Sequence[Asked]) -> dict[str, Any]:
    """Medians of windows: of the sum, of each one's tokens, and of the slowest one's latencies."""
    windows = [at_once(found) for _ in range(WINDOWS)]
    each = [statistics.median(w[i]["tokens_s"] for w in windows) for i in range(len(found))]
    return {
        "sum": statistics.median(sum(one["tokens_s"] for one in w) for w in windows),
        "each": each,
        "p50_ms": statistics.median(max(one["p50_ms"] for one in w) for w in windows),
        "p99_ms": statistics.median(max(one["p99_ms"] for one in w) for w in windows),
    }


class Rows:
    """A table of who served how much."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def add(self, label: str, count: int, found: dict[str, Any]) -> None:
        each = f"{min(found['each']):.0f} to {max(found['each']):.0f}"
        self.rows.append(
            [label, count, f"{found['sum']:.0f}", each, *(round(found[k], 2) for k in _LATENCIES)]
        )


_LATENCIES = ("p50_ms", "p99_ms")


def in_group(group: str, count: int) -> dict[str, Any]:
    return {f"{group}{n}": ("--group", group, "--mem", "8G") for n in range(count)}


def used_ns(name: str) -> int:
    return table(f"0/{name}/stat")["used_ns"]


def groups(bench: Bench) -> None:
    """Alone as by MPS; beside others as one; and each member within its own memory."""
    rows = Rows()
    with mps(bench.work) as environment, loops({f"n{n}": environment for n in range(8)}) as found:
        native = {count: measured(found[:count]) for count in COUNTS}
    for count, got in native.items():
        rows.add("MPS alone", count, got)
    with loops({f"c{n}": ("--mem", "8G") for n in range(4)}) as found:
        rows.add("containers", 4, measured(found))
    wait_for_end()
    with loops(in_group("a", 8)) as found:
        alone = {count: measured(found[:count]) for count in COUNTS}
        for count, got in alone.items():
            rows.add("a group", count, got)
        against_native(bench, native, alone)
        beside_trainer(bench, rows, found[:2], alone[2])
        with loops(in_group("b", 2)) as others:
            beside_group(bench, rows, found[:2], others, alone[2])
        wait_for_end(*(f"b{n}" for n in range(2)), "b")
        limits(bench)
    wait_for_end()
    bench.report.table(
        "Small servers, width 1024, 48 layers, batch 8",
        ["", "servers", "tokens/s", "each", "p50, ms", "p99, ms"],
        rows.rows,
    )
    deaths(bench)


def against_native(bench: Bench, native: dict[int, Any], group: dict[int, Any]) -> None:
    for count in COUNTS:
        part = group[count]["sum"] / native[count]["sum"] * 100
        bench.report.least(f"{count} in a group, tokens of MPS alone", part, 97)
        for key in _LATENCIES:
            part = group[count][key] / native[count][key] * 100
            bench.report.most(f"{count} in a group, {key} of MPS alone", part, 105)


def beside_trainer(bench: Bench, rows: Rows, found: list[Asked], alone: dict[str, Any]) -> None:
    """The group is one beside a container of the same weight."""
    with trainer(bench, ("--mem", "30G"), name="t") as path:
        got = measured(found)
        for one in found:
            one.say(4 * SECONDS)
        time.sleep(SECONDS)
        before = used_ns("a"), used_ns("t")
        done = rates([path], 2 * SECONDS)[0]
        a, t = used_ns("a") - before[0], used_ns("t") - before[1]
        for one in found:
            one.line(4 * SECONDS + 30)
    wait_for_end("t")
    rows.add("a group beside a trainer", 2, got)
    report = bench.report
    report.near("a group beside a trainer: its time", a / (a + t) * 100, 50, 1)
    report.check("a group beside a trainer: of alone", got["sum"] / alone["sum"] * 100, "%")
    report.check("the trainer beside a group", done, "products/s")
    apart = (max(got["each"]) / min(got["each"]) - 1) * 100
    report.most("a group beside a trainer: its members apart", apart, 3)
    with (
        loops({"c": ("--mem", "8G")}) as single,
        trainer(bench, ("--mem", "30G"), name="t") as path,
    ):
        single[0].say(3 * SECONDS)
        rate = rates([path], 2 * SECONDS)[0]
        single[0].line(3 * SECONDS + 30)
    wait_for_end("c", "t")
    report.check("the trainer beside a container", rate, "products/s")


def beside_group(
    bench: Bench, rows: Rows, a: list[Asked], b: list[Asked], alone: dict[str, Any]
) -> None:
    before = used_ns("a"), used_ns("b")
    got = measured([*a, *b])
    used = used_ns("a") - before[0], used_ns("b") - before[1]
    rows.add("two groups of two", 4, got)
    bench.report.near("two groups: the first's time", used[0] / sum(used) * 100, 50, 1)
    part = got["sum"] / alone["sum"] * 100
    bench.report.check("two groups: both, of what one has alone", part, "%")


def limits(bench: Bench) -> None:
    """A member is refused at its own limit, and nobody else notices."""
    report = bench.report
    _, text = outcome("plain", [bench.bin / "memory", "malloc"], "--mem", LIMIT)
    plain = last_json(text)
    before = table("0/a0/stat")
    member = ("--group", "a", "--mem", LIMIT)
    _, text = outcome("m", [bench.bin / "memory", "malloc"], *member)
    got = last_json(text)
    report.equal("a member's memory", got.get("total"), plain.get("total"), "bytes")
    report.check("a container's own, taken before it is refused", plain.get("got", 0) >> 20)
    report.check("a member's, taken before it is refused", got.get("got", 0) >> 20, "MiB")
    after = table("0/a0/stat")
    same = all(after[key] == before[key] for key in ("current_bytes", "oom", "max_bytes"))
    report.equal("its neighbour's account", same, True)
    report.check("the server keeps", table("0/a/stat")["peak_bytes"] >> 20, "MiB")
    quiet = 'echo quit | nvidia-cuda-mps-control; ls -A "$CUDA_MPS_PIPE_DIRECTORY"'
    _, text = outcome("m", ["sh", "-c", quiet], *member)
    report.check("a member tells the server to quit", " ".join(text.split()), "", "Not enough",
                 "Not enough privilege" in text)  # fmt: skip
    status, text = outcome("m", ["true"], "--group", "a", "--user", "nobody")
    report.check("another user joins", text.strip(), "", "user 0's", status == 125)


def deaths(bench: Bench) -> None:
    """What ends all members, and never anybody outside."""
    calibrate(bench)
    with tenant_at_work(bench, "out") as outside:
        alone = rates([outside])[0]
        for label, options in (("illegal access", ("--fault", "1")), ("SIGKILL", ())):
            one_death(bench, label, options, outside, alone)
        one_death(bench, "the server's SIGKILL", (), outside, alone)
    wait_for_end()


@contextlib.contextmanager
def tenant_at_work(bench: Bench, name: str, *options: str) -> Iterator[Path]:
    path = bench.file()
    with ended(tenant(name, bench.worker(path, 90), *options, stdout=subprocess.DEVNULL)):
        wait_for(lambda: progress(path)[0] > 2, f"{name} at work")
        yield path


def one_death(
    bench: Bench, label: str, options: tuple[str, ...], outside: Path, alone: float
) -> None:
    report = bench.report
    group, file = ("--group", "d", "--mem", LIMIT), bench.file()
    other = tenant("d0", bench.worker(file, 7), *group, stdout=subprocess.PIPE)
    path = bench.file()
    with ended(other):
        wait_for(lambda: progress(file)[0] > 2, "a member at work")
        work = bench.worker(path, 6, *options)
        with ended(tenant("d1", work, *group, stdout=subprocess.DEVNULL)) as (culprit,):
            wait_for(lambda: progress(path)[0] > 2, "another at work")
            if label == "SIGKILL":
                culprit.send_signal(signal.SIGKILL)
            elif not options:
                os.kill(server(), signal.SIGKILL)
            text, _ = other.communicate(timeout=60)
    report.check(f"{label}: the other member", str(last_json(text).get("error", "goes on")))
    report.least(f"{label}: outside, of before", rates([outside])[0] / alone * 100, 95)
    status, text = outcome("d2", [*bench.worker(bench.file(), 1)], *group)
    served = status == 0 and "error" not in last_json(text)
    report.equal(f"{label}: a member that comes then is served", served, True)
    wait_for_end("d0", "d1", "d2", "d")


def server() -> int:
    """The process of the only MPS server."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().startswith("nvidia-cuda-mps") and (
                b"mps-server" in (comm.parent / "cmdline").read_bytes()
            ):
                return int(comm.parent.name)
    raise LookupError("no MPS server runs")
