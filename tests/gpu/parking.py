# SPDX-License-Identifier: MIT
"""
Containers that step off the card: how long that takes, what it costs others, and ten notebooks on
a card on which three fit.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.gpu.serving import Asked, Load, ends, measure, servers, start
from tests.gpu.tenants import (
    CGPU,
    PROGRAMS,
    Bench,
    agent_threads_s,
    node,
    table,
    wait_for_end,
)

MIB, GIB = 1 << 20, 1 << 30
MOVES, CYCLES = 5, 200
#: The notebooks': ten of 14 GiB where 48 GiB are left.
COUNT, MODEL_GIB, ROOM_GIB = 10, 14, 48
#: People run a cell so often; for so long.
CELL_S, DAY_S = (30.0, 120.0), 240.0
IDLE_S = 5
START_S = 240.0


@contextlib.contextmanager
def notebook(name: str, gib: float, *options: str) -> Iterator[Asked]:
    """A notebook under ``cgpu run``, not ready yet."""
    seed = random.Random(name).randint(1, 1 << 30)
    program = [sys.executable, PROGRAMS / "notebook.py", gib, seed]
    limit = f"{int(gib * 1024) + 1536}M"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ends(start(program, name, ("--mem", limit, *options), **pipes)) as process:
        yield Asked(process)


def cell(found: Asked, timeout_s: float = 120) -> tuple[float, bool]:
    """Run a cell; return how long its person waited, and whether the model is what it was."""
    began = time.monotonic()
    found.say()
    same = bool(found.line(timeout_s)["same"])
    return time.monotonic() - began, same


def cgpu(*words: str) -> str:
    done = subprocess.run([*CGPU, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def parking(bench: Bench) -> None:
    """Times of moves, what they cost a server beside them, and what parked ones cost the host."""
    report = bench.report
    with notebook("n", 8) as found:
        found.line(START_S)
        alone_s = statistics.median(cell(found)[0] for _ in range(MOVES))
        out_s, back_s, same = [], [], True
        for _ in range(MOVES):
            began = time.monotonic()
            cgpu("park", "n")
            out_s.append(time.monotonic() - began)
            report.equal("charged while it is parked", table("0/n/stat")["current_bytes"], 0)
            took_s, kept = cell(found)
            back_s.append(took_s - alone_s)
            same &= kept
        report.most("8 GiB: out", statistics.median(out_s), 4, "s")
        report.most("8 GiB: back, beyond the call itself", statistics.median(back_s), 1.6, "s")
        report.equal("8 GiB: its content is the same", same, True)
        beside_a_server(bench)
    wait_for_end()
    cycles(bench)
    cost(bench)


def beside_a_server(bench: Bench) -> None:
    """One that serves, while another is moved all the time; that one is there already."""
    load = Load()
    with servers("graph", {"s": ("--mem", "20G")}) as found:
        alone = measure(load, found)
        ended = threading.Event()

        def move() -> None:
            while not ended.is_set():
                cgpu("park", "n", "--hold")
                cgpu("resume", "n")

        mover = threading.Thread(target=move)
        mover.start()
        try:
            beside = measure(load, found)
        finally:
            ended.set()
            mover.join()
    wait_for_end("s")
    for key in ("token_p50_ms", "token_p99_ms"):
        part = beside[key] / alone[key] * 100
        bench.report.most(f"a server while others are moved: {key}, of alone", part, 110)


def cycles(bench: Bench) -> None:
    """Out and back, many times."""
    with notebook("n", 0.25) as found:
        found.line(START_S)
        kept, began = 0, time.monotonic()
        for _ in range(CYCLES):
            cgpu("park", "n")
            kept += cell(found)[1]
        took_s = (time.monotonic() - began) / CYCLES
    wait_for_end()
    bench.report.equal("moves out and back with the same content", kept, CYCLES)
    bench.report.check("256 MiB: out and back, one time", took_s, "s")


def cost(bench: Bench) -> None:
    """The agent's time for twenty that are parked and wait for nothing."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(notebook(f"n{n}", 0.1)) for n in range(20)]
        for one in found:
            one.line(START_S)
        for n in range(20):
            cgpu("park", f"n{n}")
        time.sleep(2)
        before, seconds = sum(agent_threads_s().values()), 20
        time.sleep(seconds)
        part = (sum(agent_threads_s().values()) - before) / seconds * 100
        bench.report.most("20 parked: the agent's time", part, 0.1, "% of a processor")
        waited_s, same = cell(found[0])
        bench.report.most("one of 20 parked: its call", waited_s, 2, "s")
        bench.report.equal("one of 20 parked: its content is the same", same, True)
    wait_for_end()


class Day:
    """What the people of some notebooks met."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.lost = self.refused = 0

    def row(self, label: str, moves: int | str) -> list[Any]:
        waits_s = sorted(self.waits_s)
        p50, p99 = (
            f"{waits_s[min(int(len(waits_s) * part), len(waits_s) - 1)]:.1f}" if waits_s else "–"
            for part in (0.5, 0.99)
        )
        return [label, len(waits_s), p50, p99, moves, self.refused, self.lost]


def live(found: list[Asked], day: Day) -> None:
    """Everybody runs a cell now and then."""

    def person(number: int, one: Asked) -> None:
        rest, end_s = random.Random(number), time.monotonic() + DAY_S
        time.sleep(rest.uniform(0, CELL_S[0]))
        while time.monotonic() < end_s:
            waited_s, same = cell(one, 600)
            day.waits_s.append(waited_s)
            day.lost += not same
            time.sleep(rest.uniform(*CELL_S))

    people = [threading.Thread(target=person, args=pair) for pair in enumerate(found)]
    for one in people:
        one.start()
    for one in people:
        one.join()


def parks() -> int:
    """How often a container was parked, by the stream of events."""
    return len(cgpu("events", "--kind", "parked").splitlines())


@contextlib.contextmanager
def filled(bench: Bench) -> Iterator[None]:
    """A tenant of ours leaves so much of the card."""
    memory = table("0/memory")
    gib = (memory["total"] - memory["reserved"] - memory["used"]) // GIB - ROOM_GIB
    with notebook("rest", gib) as found:
        found.line(START_S)
        yield
    wait_for_end("rest")
    bench.report.check("left of the card for the notebooks", ROOM_GIB, "GiB")


def notebooks(bench: Bench) -> None:
    """Ten where three fit: parked by themselves, started anew for each cell, and refused."""
    rows = []
    with filled(bench):
        node("0/overcommit_ratio", 400)
        day = Day()
        with contextlib.ExitStack() as stack:
            found = []
            for n in range(COUNT):
                options = ("--idle-park", f"{IDLE_S}s")
                one = stack.enter_context(notebook(f"n{n}", MODEL_GIB, *options))
                one.line(START_S)
                found.append(one)
            before = parks()
            live(found, day)
            rows.append(day.row("parked by themselves", parks() - before))
        wait_for_end(*(f"n{n}" for n in range(COUNT)))
        bench.report.equal("ten notebooks: models that were lost", day.lost, 0)
        bench.report.least("ten notebooks: moves", parks() - before, 1, "")
        node("0/overcommit_ratio", 100)
        rows.append(anew().row("each cell starts its program", "–"))
        rows.append(refused().row("refused when it is full", "–"))
    bench.report.table(
        f"Ten notebooks of {MODEL_GIB} GiB in {ROOM_GIB} GiB",
        ["", "cells", "wait p50, s", "p99, s", "moves", "refused", "lost"],
        rows,
    )


def anew() -> Day:
    """What one person meets whose program is started for each cell."""
    day = Day()
    for _ in range(3):
        began = time.monotonic()
        with notebook("n", MODEL_GIB) as found:
            found.line(START_S)
            cell(found)
            day.waits_s.append(time.monotonic() - began)
        wait_for_end("n")
    return day


def refused() -> Day:
    """As many as fit are started; the others are refused for the day."""
    day = Day()
    with contextlib.ExitStack() as stack:
        found = []
        for n in range(COUNT):
            one = stack.enter_context(notebook(f"n{n}", MODEL_GIB))
            try:
                one.line(START_S)
                found.append(one)
            except RuntimeError:
                day.refused += 1
        for one in found:
            day.waits_s.append(cell(one)[0])
    wait_for_end(*(f"n{n}" for n in range(COUNT)))
    return day
