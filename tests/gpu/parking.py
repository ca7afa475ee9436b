# SPDX-License-Identifier: MIT
"""
Containers that step off the card: how long that takes, what it costs others, and ten notebooks on
a card on which three fit. A section ends within SECTION_S: a card is lent for ten minutes.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pycgpu.agent import moves
from pycgpu.errors import CgpuError
from pycgpu.parking import host_memory, rules
from pycgpu.parking.checkpoint import Checkpoint
from tests.gpu.serving import Asked, Load, measure, servers, start
from tests.gpu.tenants import (
    PROGRAMS,
    TREE,
    Bench,
    agent_threads_s,
    ended,
    node,
    table,
    wait_for,
    wait_for_end,
)

MIB, GIB = 1 << 20, 1 << 30
SECTION_S = 450.0
SIZE_GIB, MOVES = 8, 5
#: The limit of the server that others are moved beside.
SERVER = "20G"
#: As many as fit into a section: several runs of it add up.
CYCLES, CYCLES_S = 1000, 400.0
PARKED, COST_S = 20, 20
#: The notebooks': as many where so much of the card is left.
COUNT, FIT, MODEL_GIB, ROOM_GIB = 10, 3, 12, 42
#: Of the host's memory beside a notebook's model.
PROGRAM_BYTES = 3 * GIB // 2
#: People run a cell so often; for so long.
CELL_S, DAY_S = (30.0, 120.0), 150.0
#: After the day: the same by starting programs anew, and by refusing.
AFTER_S = 90.0
IDLE_S = 5
START_S = 240.0
CALL_S = 120.0
NOTEBOOK = PROGRAMS / "notebook.py"


@contextlib.contextmanager
def notebook(name: str, gib: float, *options: str) -> Iterator[Asked]:
    """A notebook under ``cgpu run``; :func:`load` has it begin."""
    seed = random.Random(name).randint(1, 1 << 30)
    limit = f"{int(gib * 1024) + 1536}M"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    program = [sys.executable, NOTEBOOK, gib, seed]
    # One that is parked would come back only to end.
    with ended(start(program, name, ("--mem", limit, *options), **pipes)) as (process,):
        yield Asked(process)


def load(found: Asked) -> None:
    """Have it load its model."""
    found.say()
    found.line(START_S)


def cell(found: Asked, timeout_s: float = CALL_S) -> tuple[float, bool]:
    """Run a cell; return how long its person waited, and whether the model is what it was."""
    began = time.monotonic()
    found.say()
    same = bool(found.line(timeout_s)["same"])
    return time.monotonic() - began, same


def park(name: str, hold: bool = False) -> None:
    moves.park(name, str(TREE), hold=hold)


def resume(name: str) -> None:
    moves.resume(name, str(TREE))


def is_back(name: str) -> None:
    """Wait for the end of its return: its call may end before the books are closed."""
    wait_for(lambda: node(f"0/{name}/state") == "running", f"the end of {name}'s return")


def moved_s(name: str) -> float:
    """What its moves have taken so far."""
    return table(f"0/{name}/stat").get("moves_ns", 0) / 1e9


class Spent(NamedTuple):
    """The clock, and what a process has had: of a processor, of its kernel's part, of pages."""

    at_s: float
    processor_s: float
    kernel_s: float
    faults: float

    @classmethod
    def now(cls, pid: int) -> Spent:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        user_s, kernel_s = (int(word) / os.sysconf("SC_CLK_TCK") for word in words[11:13])
        return cls(time.monotonic(), user_s + kernel_s, kernel_s, int(words[7]))

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def tell_huge_pages(bench: Bench) -> None:
    """The copy on the host is the program's memory: in pages of 4 KiB unless the host says more."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    bench.report.check("the host's transparent huge pages", enabled.strip())


def park_natively(bench: Bench) -> None:
    """What the driver alone takes: out and back, one time after another, without any door."""
    tell_huge_pages(bench)
    moved: dict[str, list[Spent]] = {"out": [], "back": []}
    program, checkpoint = [sys.executable, NOTEBOOK, SIZE_GIB, 1], Checkpoint()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ways = {
        "out": (checkpoint.lock, checkpoint.checkpoint),
        "back": (checkpoint.restore, checkpoint.unlock),
    }
    with ended(start(program, "", dict(os.environ), **pipes)) as (process,):
        found = Asked(process)
        load(found)
        cell(found)
        for _ in range(MOVES):
            for way, steps in ways.items():
                before = Spent.now(process.pid)
                for step in steps:
                    step(process.pid)
                moved[way].append(Spent.now(process.pid).since(before))
            cell(found)
    checkpoint.close()
    for way, all_spent in moved.items():
        spent = Spent(*map(statistics.median, zip(*all_spent, strict=True)))
        name = f"{SIZE_GIB} GiB, the driver alone: {way}"
        bench.report.check(name, spent.at_s, "s")
        bench.report.check(f"{name}, of a processor", spent.processor_s, "s")
        bench.report.check(f"{name}, of that in the kernel", spent.kernel_s, "s")
        bench.report.check(f"{name}, faults of pages", spent.faults)


def parking(bench: Bench) -> None:
    """Times of moves, what they cost a server beside them, and what parked ones cost the host."""
    report = bench.report
    tell_huge_pages(bench)
    with notebook("n", SIZE_GIB) as found:
        load(found)
        alone_s = statistics.median(cell(found)[0] for _ in range(MOVES))
        rows, same = [], True
        for number in range(MOVES):
            before_s = moved_s("n")
            park("n")
            out_s = moved_s("n") - before_s
            # What the driver closed last is found by the next sweep.
            wait_for(lambda: not table("0/n/stat")["current_bytes"], "nothing charged", 5)
            call_s, kept = cell(found)
            is_back("n")
            back_s = table("0/n/stat")["last_return_ns"] / 1e9
            rows.append([number + 1, out_s, back_s, call_s - alone_s])
            report.check(f"move {number + 1}: out, back", f"{out_s:.2f}, {back_s:.2f}", "s")
            same &= kept
        report.table(f"{SIZE_GIB} GiB", ["", "out, s", "back, s", "its call, s"], rows)
        out_s, back_s, call_s = (statistics.median(row[at] for row in rows) for at in (1, 2, 3))
        report.most(f"{SIZE_GIB} GiB: out", out_s, 4, "s")
        report.most(f"{SIZE_GIB} GiB: back", back_s, 1.6, "s")
        report.most(f"{SIZE_GIB} GiB: from the call to its result", call_s, 1.7, "s")
        seen_s = statistics.median(row[3] - row[2] for row in rows)
        report.most(f"{SIZE_GIB} GiB: from the call until its return begins", seen_s, 0.1, "s")
        report.equal(f"{SIZE_GIB} GiB: its content is the same", same, True)
        beside_a_server(bench)
    wait_for_end()
    cost(bench)


class Mover:
    """Moves one container out and back, again and again, until it is told to end."""

    def __init__(self, name: str) -> None:
        self.moves = 0
        self.failed = ""
        self._name = name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                park(self._name, hold=True)
                resume(self._name)
                self.moves += 1
        except CgpuError as error:
            self.failed = str(error)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def beside_a_server(bench: Bench) -> None:
    """One that serves: while another is there, is parked, and is moved all the time."""
    load = Load()
    with servers("graph", {"s": ("--mem", SERVER)}) as found:
        alone = measure(load, found)
        park("n", hold=True)
        parked = measure(load, found)
        resume("n")
        mover = Mover("n")
        try:
            moved = measure(load, found)
        finally:
            mover.end()
    wait_for_end("s")
    bench.report.equal("a server while others are moved: a move failed", mover.failed, "")
    bench.report.least("a server while others are moved: moves", mover.moves, 1, "")
    for label, row in (("are parked", parked), ("are moved", moved)):
        for key in ("token_p50_ms", "token_p99_ms"):
            part = row[key] / alone[key] * 100
            bench.report.most(f"a server while others {label}: {key}, of alone", part, 110)


def park_cycles(bench: Bench) -> None:
    """Out and back, many times."""
    end_s = time.monotonic() + CYCLES_S
    with notebook("n", 0.25) as found:
        load(found)
        cell(found)
        done = kept = 0
        began_s = time.monotonic()
        while done < CYCLES and time.monotonic() < end_s:
            park("n")
            kept += cell(found)[1]
            is_back("n")
            done += 1
            if done % 50 == 0:
                bench.report.check(f"{done} moves out and back: with the same content", kept)
        took_s = (time.monotonic() - began_s) / done
    wait_for_end()
    bench.report.equal(f"{done} moves out and back: with another content", done - kept, 0)
    bench.report.check("256 MiB: out and back, one time", took_s, "s")


def cost(bench: Bench) -> None:
    """The agent's time for twenty that are parked and wait for nothing."""
    with contextlib.ExitStack() as stack:
        names = [f"n{n}" for n in range(PARKED)]
        found = [stack.enter_context(notebook(name, 0.1)) for name in names]
        for one in found:
            one.say()
        for one in found:
            one.line(START_S)
        for name in names:
            park(name)
        time.sleep(2)
        before_s, began_s = agent_threads_s(), time.monotonic()
        time.sleep(COST_S)
        took_s = time.monotonic() - began_s
        spent_s = {name: s - before_s.get(name, 0.0) for name, s in agent_threads_s().items()}
        bench.report.table(
            f"The agent, {PARKED} parked",
            ["thread", "% of a processor"],
            [[name, s / took_s * 100] for name, s in spent_s.items()],
        )
        bench.report.check(f"{PARKED} parked: the agent's time", percent(spent_s, took_s), "%")
        # What looks after the parked is Python; the agent's other threads have names of ours.
        looks_s = {name: s for name, s in spent_s.items() if not name.startswith("cgpud-")}
        part = percent(looks_s, took_s)
        bench.report.most(f"{PARKED} parked: looking after them", part, 0.1, "% of a processor")
        waited_s, same = cell(found[0])
        bench.report.most(f"one of {PARKED} parked: its call", waited_s, 2, "s")
        bench.report.equal(f"one of {PARKED} parked: its content is the same", same, True)
    wait_for_end()


def percent(spent_s: dict[str, float], took_s: float) -> float:
    """Of a processor."""
    return sum(spent_s.values()) / took_s * 100


class Day:
    """What the people of some notebooks met."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.waits_s: list[float] = []
        self.moves: int | str = "–"
        self.lost = self.stuck = self.refused = 0

    def wait_s(self, part: float) -> str:
        waits_s = sorted(self.waits_s)
        if not waits_s:
            return "–"
        return f"{waits_s[min(int(len(waits_s) * part), len(waits_s) - 1)]:.1f}"

    def row(self) -> list[Any]:
        waits = [self.wait_s(0.5), self.wait_s(0.99)]
        ends = [self.moves, self.refused, self.stuck, self.lost]
        return [self.label, len(self.waits_s), *waits, *ends]

    def tell(self, bench: Bench) -> None:
        said = f"{self.wait_s(0.5)}, {self.wait_s(0.99)}"
        bench.report.check(f"{self.label}: {len(self.waits_s)} cells: wait p50, p99", said, "s")


def live(found: list[Asked], day: Day, seconds: float) -> None:
    """Everybody runs a cell now and then."""

    def person(number: int, one: Asked) -> None:
        rest, end_s = random.Random(number), time.monotonic() + seconds
        time.sleep(rest.uniform(0, CELL_S[0]))
        while time.monotonic() < end_s:
            try:
                waited_s, same = cell(one)
            except (RuntimeError, OSError, ValueError):
                day.stuck += 1
                return
            day.waits_s.append(waited_s)
            day.lost += not same
            time.sleep(min(rest.uniform(*CELL_S), max(end_s - time.monotonic(), 0)))

    people = [threading.Thread(target=person, args=pair) for pair in enumerate(found)]
    for one in people:
        one.start()
    for one in people:
        one.join()


@contextlib.contextmanager
def filled(bench: Bench) -> Iterator[None]:
    """A tenant of ours leaves so much of the card."""
    memory = table("0/memory")
    gib = (memory["total"] - memory["reserved"] - memory["used"]) // GIB - ROOM_GIB
    with notebook("rest", gib) as found:
        load(found)
        bench.report.check("left of the card for the notebooks", ROOM_GIB, "GiB")
        yield
    wait_for_end("rest")


@contextlib.contextmanager
def overcommitted(ratio: int) -> Iterator[None]:
    """Limits may add up to more; containers that came back are parked again soon."""
    path = Path(rules.PATH)
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text("park_min_s = 5\nmoves_per_min = 60\n")
    node("0/overcommit_ratio", ratio)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: len(list((TREE / "container").iterdir())) <= 1, "the notebooks' end")
        node("0/overcommit_ratio", 100)


def fitting() -> int:
    """How many the host can keep, of which some are on the card, and two may be amid a swap."""
    left = [host_memory.available_bytes(), *(left for _, left in host_memory.cgroups(os.getpid()))]
    each = MODEL_GIB * GIB + PROGRAM_BYTES
    more = (min(left) - FIT * PROGRAM_BYTES - MODEL_GIB * GIB) // each
    return min(COUNT, FIT + max(0, more))


def notebooks(bench: Bench) -> None:
    """Ten where three fit: parked by themselves, started anew for each cell, and refused."""
    began_s, count = time.monotonic(), fitting()
    bench.report.equal("notebooks that the host's memory has room for", count, COUNT)
    names = [f"n{n}" for n in range(count)]
    with notebook("first", 0.1) as one:
        # The agent starts with its first tenant, and stays for a while after the last.
        load(one)
    wait_for_end()
    with filled(bench):
        days = [parked_by_themselves(bench, names, began_s)]
        for day in (anew(), refused(names)):
            day.tell(bench)
            days.append(day)
    wait_for_end()
    bench.report.table(
        f"{count} notebooks of {MODEL_GIB} GiB in {ROOM_GIB} GiB",
        ["", "cells", "wait p50, s", "p99, s", "moves took", "refused", "stuck", "lost"],
        [day.row() for day in days],
    )


def parked_by_themselves(bench: Bench, names: list[str], began_s: float) -> Day:
    """What people meet whose notebooks are parked while they think."""
    day = Day("parked by themselves")
    with contextlib.ExitStack() as stack:
        stack.enter_context(overcommitted(400))
        options = ("--idle-park", f"{IDLE_S}s")
        found = [stack.enter_context(notebook(name, MODEL_GIB, *options)) for name in names]
        loaded_s: list[float] = []
        for number, one in enumerate(found):
            if number >= FIT:
                # Who asks for room is refused at once if nobody has been idle for long enough.
                idle_s = time.monotonic() - loaded_s[number - FIT]
                time.sleep(max(0, IDLE_S + 2 - idle_s))
            asked_s = time.monotonic()
            load(one)
            loaded_s.append(time.monotonic())
            took_s = loaded_s[-1] - asked_s
            bench.report.check(f"notebook {number + 1}: until its model is there", took_s, "s")
        moved = sum(moved_s(name) for name in names)
        left_s = SECTION_S - AFTER_S - CALL_S / 2 - (time.monotonic() - began_s)
        live(found, day, min(DAY_S, left_s))
        moved = sum(moved_s(name) for name in names) - moved
        day.moves = f"{moved:.0f} s"
    wait_for_end(*names)
    day.tell(bench)
    bench.report.equal(f"{len(names)} notebooks: models that were lost", day.lost, 0)
    bench.report.equal(f"{len(names)} notebooks: people who were stuck", day.stuck, 0)
    bench.report.least(f"{len(names)} notebooks: time of moves", moved, 1, "s")
    return day


def anew() -> Day:
    """What one person meets whose program is started for each cell."""
    day = Day("each cell starts its program")
    for _ in range(3):
        began = time.monotonic()
        with notebook("n", MODEL_GIB) as found:
            load(found)
            cell(found)
            day.waits_s.append(time.monotonic() - began)
        wait_for_end("n")
    return day


def refused(names: list[str]) -> Day:
    """As many as fit are started; the others are refused for the day."""
    day = Day("refused when it is full")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(notebook(name, MODEL_GIB)) for name in names]
        for one in started:
            try:
                load(one)
                day.waits_s.append(cell(one)[0])
            except (RuntimeError, OSError):
                day.refused += 1
    wait_for_end(*names)
    return day
