# SPDX-License-Identifier: MIT
"""
Servers in a group: beside NVIDIA's MPS alone, beside a trainer and beside another group. What a
member can do to the others and to those outside is in ``group_harm.py``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from pycgpu.simulate.check import PREEMPTION_MS, WAIT_MS
from tests.gpu import serving
from tests.gpu.peers import mps
from tests.gpu.serving import (
    Load,
    Server,
    against,
    measure,
    servers,
    trainer,
    window,
)
from tests.gpu.tenants import (
    Bench,
    last_json,
    node,
    outcome,
    rates,
    table,
    wait_for_end,
)

COUNTS = (2, 4, 8)
SECONDS = 1.5
WINDOWS = 3
ALWAYS = Load(rate=0, seconds=SECONDS)
_LATENCIES = ("token_p50_ms", "token_p99_ms")
LIMIT = "2G"
#: Each member is charged for what the server shares with its clients, besides the server.
SHARED_MIB = 4


def measured(found: Sequence[Server]) -> dict[str, Any]:
    """Medians of windows: of the sum, of each one's tokens, and of the slowest one's latencies."""
    windows = [window(ALWAYS, found, seed) for seed in range(WINDOWS)]
    rates = [key for key in windows[0] if key.startswith("tokens_per_s_")]
    return {
        "sum": statistics.median(sum(one[key] for key in rates) for one in windows),
        "each": [statistics.median(one[key] for one in windows) for key in rates],
        **{key: statistics.median(one[key] for one in windows) for key in _LATENCIES},
    }


def add_row(bench: Bench, label: str, count: int, found: dict[str, Any]) -> None:
    """Of the table of who served how much."""
    each = f"{min(found['each']):.0f} to {max(found['each']):.0f}"
    bench.report.row(
        "Small servers, width 1024, 48 layers, batch 8",
        ["", "servers", "tokens/s", "each", "p50, ms", "p99, ms"],
        [label, count, f"{found['sum']:.0f}", each, *(round(found[k], 2) for k in _LATENCIES)],
    )


def in_group(group: str, count: int) -> dict[str, Any]:
    return {f"{group}{n}": ("--group", group, "--mem", "8G") for n in range(count)}


def group_pausing(bench: Bench) -> None:
    """Members with requests by Poisson beside a trainer: the bounds of a server that is alone."""
    report, load, environment = bench.report, Load(), dict(os.environ)

    def row(label: str, load: Load, *what: Any) -> dict[str, float]:
        found = measure(load, *what)
        title = "A group that pauses beside training"
        serving.add_row(bench, title, label, found, "products/s")
        return found

    with servers("graph", {"n": environment}) as found:
        alone = row("alone", load, found)
        with trainer(bench, environment) as path:
            time.sleep(1)
            own = row("driver's own", load, found, path)

    def beside(label: str, load: Load, ways: dict[str, Any]) -> dict[str, float]:
        with (
            servers("graph", ways) as found,
            trainer(bench, ("--mem", "30G"), name="t") as path,
        ):
            got = row(label, load, found, path)
        wait_for_end()
        return got

    few, names = Load(rate=2), [f"s{n}" for n in range(3)]
    grouped = ("--group", "e", "--mem", "20G")
    one = beside("a group of one", load, {"s": grouped})
    apart = beside("three containers, 2 a second", few, dict.fromkeys(names, ("--mem", "20G")))
    three = beside("a group of three, 2 a second", few, dict.fromkeys(names, grouped))
    label = "a group that pauses, against the server alone"
    against(bench, label, one, alone, "token_p50_ms", 110)
    against(bench, label, one, alone, "token_p99_ms", 200)
    against(bench, label, one, alone, "request_p99_ms", 115)
    wait_ms = one["first_p99_ms"] - alone["token_p50_ms"]
    label = "a group that pauses"
    most = WAIT_MS + PREEMPTION_MS
    report.most(f"{label}: wait before a request's first token, p99", wait_ms, most, "ms")
    part = one["trainer_per_s"] / own["trainer_per_s"] * 100
    report.least(f"{label}: trainer against the driver's own sharing", part, 100)
    label = "three that pause, in a group against three containers"
    for key in ("request_p50_ms", "request_mean_ms"):
        against(bench, label, three, apart, key, 105)


def used_ns(name: str) -> int:
    return table(f"0/{name}/stat")["used_ns"]


def each_count(bench: Bench, label: str, found: Sequence[Server]) -> dict[int, dict[str, Any]]:
    """What the first two, four and eight serve."""
    got = {}
    for count in COUNTS:
        got[count] = measured(found[:count])
        add_row(bench, label, count, got[count])
    return got


def groups(bench: Bench) -> None:
    """Alone as by MPS; beside others as one; and each member within its own memory."""
    with (
        mps(bench.work) as environment,
        servers("small", {f"n{n}": environment for n in range(8)}) as found,
    ):
        native = each_count(bench, "MPS alone", found)
    with servers("small", {f"c{n}": ("--mem", "8G") for n in range(4)}) as found:
        add_row(bench, "containers", 4, measured(found))
    wait_for_end()
    with servers("small", in_group("a", 8)) as found:
        alone = each_count(bench, "a group", found)
        against_native(bench, native, alone)
        beside_trainer(bench, found[:2], alone[2])
        with servers("small", in_group("b", 2)) as others:
            beside_group(bench, found[:2], others, alone[2])
        wait_for_end(*(f"b{n}" for n in range(2)), "b")
        limits(bench)
    wait_for_end()


def against_native(bench: Bench, native: dict[int, Any], group: dict[int, Any]) -> None:
    for count in COUNTS:
        part = group[count]["sum"] / native[count]["sum"] * 100
        bench.report.least(f"{count} in a group, tokens of MPS alone", part, 97)
        for key in _LATENCIES:
            part = group[count][key] / native[count][key] * 100
            bench.report.most(f"{count} in a group, {key} of MPS alone", part, 105)


def beside_trainer(bench: Bench, found: list[Server], alone: dict[str, Any]) -> None:
    """The group is one beside a container of the same weight."""
    long = Load(rate=0, seconds=4 * SECONDS)
    node("0/a/weight", 1)
    with trainer(bench, ("--mem", "30G"), name="t") as path:
        got = measured(found)
        for one in found:
            one.ask(long, 1)
        time.sleep(SECONDS)
        before = used_ns("a"), used_ns("t")
        done = rates([path], 2 * SECONDS)[0]
        a, t = used_ns("a") - before[0], used_ns("t") - before[1]
        for one in found:
            one.answer(long)
    wait_for_end("t")
    add_row(bench, "a group beside a trainer", 2, got)
    report = bench.report
    report.near("a group beside a trainer: its time", a / (a + t) * 100, 50, 1)
    report.check("a group beside a trainer: of alone", got["sum"] / alone["sum"] * 100, "%")
    report.check("the trainer beside a group", done, "products/s")
    apart = (max(got["each"]) / min(got["each"]) - 1) * 100
    report.most("a group beside a trainer: its members apart", apart, 3)
    with (
        servers("small", {"c": ("--mem", "8G")}) as single,
        trainer(bench, ("--mem", "30G"), name="t") as path,
    ):
        single[0].ask(long, 1)
        rate = rates([path], 2 * SECONDS)[0]
        single[0].answer(long)
    wait_for_end("c", "t")
    report.check("the trainer beside a container", rate, "products/s")


def beside_group(bench: Bench, a: list[Server], b: list[Server], alone: dict[str, Any]) -> None:
    # as many others of a have no work
    node("0/b/weight", 1)
    before = used_ns("a"), used_ns("b")
    got = measured([*a, *b])
    used = used_ns("a") - before[0], used_ns("b") - before[1]
    add_row(bench, "two groups of two", 4, got)
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
