# SPDX-License-Identifier: MIT
"""Whether what containers are recorded to have had adds up to the card's own figures."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from pycgpu.tree import nvml, procfs
from tests.gpu.shares import set_policy
from tests.gpu.tenants import CGPU, TREE, Bench, running, tenant, wait_for_end

SECONDS = 15.0
#: Of it one tenant more is there, which saturates the card like the others.
GUEST_S = 4.0
UNITS = 10


class Board(threading.Thread):
    """The board by itself: its energy counter, and its power and memory several times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float, float, int]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        with nvml.held():
            while not self.ended.wait(0.1):
                board = nvml.read().board(procfs.read_uuid(0, str(TREE)), 0)
                if board is not None and board.energy_j is not None:
                    self.samples.append(
                        (
                            time.time(),
                            board.energy_j,
                            board.power_w or 0.0,
                            board.memory_used_bytes or 0,
                        )
                    )

    def joules(self, since_s: float, until_s: float) -> tuple[float, float]:
        """Return what it drew by its counter, and by the mean of its power."""
        within = [one for one in self.samples if since_s <= one[0] <= until_s]
        first, last = within[0], within[-1]
        rate = (last[1] - first[1]) / (last[0] - first[0])
        mean = sum(one[2] for one in within) / len(within)
        return rate * (until_s - since_s), mean * (until_s - since_s)


def accounting(bench: Bench) -> None:
    """Two tenants, a third for a while, and the recorder as its service runs it."""
    directory = bench.work / "usage"
    board = Board()
    both = {
        "a": ["--mem", "4G", "--policy", "weighted-conserving", "--weight", "1"],
        "b": ["--mem", "8G", "--weight", "2"],
    }
    with running(bench, both):
        set_policy("weighted-conserving")
        board.start()
        recorder = subprocess.Popen(
            [*CGPU, "usage", "--record", "--interval", "1", "--directory", str(directory)]
        )
        try:
            time.sleep((SECONDS - GUEST_S) / 2)
            guest = tenant(
                "guest",
                bench.worker(bench.file(), GUEST_S),
                *("--mem", "2G"),
                stdout=subprocess.DEVNULL,
            )
            guest.wait()
            wait_for_end("guest")
            time.sleep((SECONDS - GUEST_S) / 2)
        finally:
            recorder.send_signal(signal.SIGTERM)
            recorder.wait(30)
            board.ended.set()
            board.join()
    judge(bench, directory, board)


def told(bench: Bench, directory: Path) -> list[dict[str, Any]]:
    settings = bench.work / "cards.toml"
    settings.write_text(f"[default]\nunits = {UNITS}\n")
    text = subprocess.run(
        [
            *(*CGPU, "usage", "--json", "--since", "10m"),
            *("--directory", str(directory), "--cards", str(settings)),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return [row for row in rows if row["gpu"] == 0]


def judge(bench: Bench, directory: Path, board: Board) -> None:
    report = bench.report
    rows = told(bench, directory)
    each = {row["id"]: row for row in rows if row["kind"] == "container"}
    (card,) = (row for row in rows if row["kind"] == "card")
    (idle,) = (row for row in rows if row["kind"] == "idle")
    report.equal("containers recorded", sorted(each), ["a", "b", "guest"])

    def percent(label: str, parts: float, whole: float, most: float = 1.0) -> None:
        report.near(f"accounting: {label}", 100 * parts / whole if whole else 0.0, 100, most)

    seconds = card["seconds"]
    used = sum(row["used_s"] or 0 for row in each.values())
    percent("used by containers, of what the card counted", used, card["used_s"])
    # a switch is nobody's; what they share anew they share by windows at first
    report.least("accounting: used, of the time", 100 * used / seconds, 96)
    granted = sum(row["granted_s"] or 0 for row in each.values())
    percent("granted, of the time", granted, seconds)
    for name in ("a", "b"):
        row = each[name]
        both = row["used_s"] + row["waited_s"]
        percent(f"used and waited by {name}, which always has work", both, row["seconds"], 2)
        percent(f"{name} was there, of the time", row["seconds"], seconds)
        share = max(row["core"], row["memory_bytes"] / card_bytes())
        due = row["seconds"] / 3600 * UNITS * share
        percent(f"GPU-hours of {name}", row["gpu_hours"], due)
    report.check("accounting: the guest was there", each["guest"]["seconds"], "s")
    memory = sum(row["memory_gib_hours"] for row in each.values())
    percent("memory-hours, of the card's", memory, card["memory_gib_hours"])
    energy(bench, directory, board, sum(row["joules"] or 0 for row in each.values()), idle)


def energy(
    bench: Bench, directory: Path, board: Board, joules: float, idle: dict[str, Any]
) -> None:
    """The board's energy over the same time, by NVML and without the recorder."""
    report = bench.report
    if not board.samples or idle["joules"] is None:
        report.check("accounting: energy", "no NVML that tells it here")
        return
    lines = [
        json.loads(text)
        for path in directory.glob("*.jsonl")
        for text in path.read_text().splitlines()
    ]
    since_s = min(line["from_ns"] for line in lines) / 1e9
    until_s = max(line["to_ns"] for line in lines) / 1e9
    counted, integral = board.joules(since_s, until_s)
    report.near(
        "accounting: energy of containers and nobody, of the board's",
        100 * (joules + idle["joules"]) / counted,
        100,
        1,
    )
    report.check("accounting: energy of containers", joules, "J")
    report.check("accounting: energy of nobody", idle["joules"], "J")
    # the mean of samples of a power that the driver averages itself
    report.near("accounting: energy by counter, of power × time", 100 * counted / integral, 100, 5)


def card_bytes() -> int:
    return procfs.read_memory(0, str(TREE))["total"]
