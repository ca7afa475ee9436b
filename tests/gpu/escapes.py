# SPDX-License-Identifier: MIT
"""Ways around the limits that were argued or proven on the simulated driver, tried on a card."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from tests.gpu.tenants import (
    MIB,
    PROGRAMS,
    Bench,
    ended,
    last_json,
    median_rates,
    progress,
    table,
    tenant,
    wait_for,
    wait_for_end,
)

QUOTA = 10
LIMIT_MIB = 4096
START_S = 15
#: ways to have memory of a file that no process has a descriptor of, and MiB
UNDESCRIBED = (("mapped", 3072), ("sent", 3072))
USER = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--")
#: The driver's list is read once a second; descriptors of all processes every five and longer.
FOUND_S = 20
# beyond what the ledger has: 10 MiB a context, and what the driver rounds
UNSEEN_MIB = 64


def escapes(bench: Bench) -> None:
    """A group scheduled under another name; memory that nobody is charged for."""
    shim = bench.bin / "sibling.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", shim, PROGRAMS / "sibling.c", "-ldl"], check=True
    )
    _gates(bench)
    for way in ("none", "channel", "duplicate", "each"):
        _scheduled(bench, way, ["env", f"LD_PRELOAD={shim}", f"SIBLING={way}"])
    _made_anew(bench, "contexts made anew", [])
    _made_anew(
        bench,
        "contexts made anew, channel by channel",
        ["env", f"LD_PRELOAD={shim}", "SIBLING=each"],
    )
    for mode, size in (("pageable", 8192), ("tables", 20_000), ("channels", 400), *UNDESCRIBED):
        _uncharged(bench, mode, [bench.bin / "escapes", mode, size])
    for mode in ("fixed", "aligned"):
        _uncharged(bench, mode, [sys.executable, PROGRAMS / "place.py", mode, 40_000])
    for words in ([], ["bare"]):
        _handed_over(bench, words)


def _gates(bench: Bench) -> None:
    """What the doors take for granted of a card: when it opens what was shut."""
    shim = bench.bin / "gates.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", shim, PROGRAMS / "gates.c", "-ldl"], check=True
    )
    for before in ("", "group", "channel"):
        run = subprocess.run(
            [sys.executable, PROGRAMS / "gates.py"],
            env={**os.environ, "LD_PRELOAD": str(shim), "GATES": before},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        what = f"gates: disabled before it was first scheduled: {before or 'nothing'}"
        opens = [name for name, works in last_json(run.stdout).items() if works]
        expected = ["begins", "works", "enabled", "enabled again", "enabled twice"]
        if before == "channel":  # for the first time as a whole
            expected.insert(2, "groups scheduled")
        bench.report.equal(f"{what}: open", ", ".join(opens), ", ".join(expected))


def _made_anew(bench: Bench, what: str, prefix: list[str]) -> None:
    """
    Contexts that begin and end all the time: most begin while the gate is shut. The driver
    opens a channel that it schedules for the first time.
    """
    files = [bench.file() for _ in range(4)]
    end_s = int(time.time()) + 25
    loops = "".join(
        f"while [ $(date +%s) -lt {end_s} ]; do "
        f"{shlex.join([*prefix, *bench.worker(path, 0.3)])}; done & "
        for path in files
    )
    program = tenant(
        "renew",
        ["sh", "-c", f"{loops} wait"],
        *("--quota", str(QUOTA)),
        stdout=subprocess.DEVNULL,
    )
    with ended(program):
        wait_for(lambda: all(progress(path)[0] > 2 for path in files), "work", START_S)
        done = [progress(path)[0] for path in files]
        start_s = time.monotonic()
        time.sleep(8)
        made = sum(progress(path)[0] - was for path, was in zip(files, done, strict=True))
        share = made / (time.monotonic() - start_s) / bench.rate * 100
        bench.report.most(f"quota {QUOTA}, {what}", share, QUOTA + 0.5)
        program.wait(timeout=60)
    wait_for_end("renew")


def _scheduled(bench: Bench, way: str, prefix: list[str]) -> None:
    path = bench.file()
    worker = tenant(
        "sibling",
        [*prefix, *bench.worker(path, 12)],
        *("--quota", str(QUOTA)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with ended(worker):
        try:
            wait_for(lambda: progress(path)[0] > 2, "work", START_S)
            time.sleep(1)
            share = median_rates([path])[0] / bench.rate * 100
            bench.report.most(f"quota {QUOTA}, groups scheduled by {way}", share, QUOTA + 0.5)
        except TimeoutError as error:
            # a card that runs nothing of it is no way around the quota either
            bench.report.check(f"quota {QUOTA}, groups scheduled by {way}", str(error))
        worker.kill()
        _, text = worker.communicate()
    bench.report.check(f"groups scheduled by {way}: what the driver said", str(last_json(text)))
    wait_for_end("sibling")


def _handed_over(bench: Bench, words: list[str]) -> None:
    """The driver's files, sent to a program of an ordinary user's that is under no filter."""
    what = " ".join(["files handed over", *words])
    program = bench.work / "smuggle.py"
    shutil.copy(PROGRAMS / "smuggle.py", program)
    bench.work.chmod(0o755)
    before = card_used_mib()
    taker = subprocess.Popen(
        [*USER, sys.executable, program, "take", "cgpu-smuggle", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert taker.stdout is not None
    taker.stdout.readline()
    sender = tenant(
        "sender",
        [sys.executable, program, "open", "cgpu-smuggle"],
        *("--mem", f"{LIMIT_MIB}M"),
        stdout=subprocess.DEVNULL,
    )
    with ended(taker), ended(sender):
        began_s = time.monotonic()
        try:
            taker.wait(timeout=60)
        except subprocess.TimeoutExpired:
            bench.report.check(f"{what}: not found within 60 s", card_used_mib() - before, "MiB")
        seconds = time.monotonic() - began_s
        wait_for(lambda: card_used_mib() - before < UNSEEN_MIB, "the memory's return", 60)
        gone = time.monotonic() - began_s
        told = [json.loads(line) for line in taker.stdout]
        taken = max((one.get("mib", 0) for one in told), default=0)
        bench.report.check(f"{what}: taken meanwhile", taken, "MiB")
        bench.report.most(f"{what}: found after", seconds, FOUND_S, "s")
        bench.report.check(f"{what}: memory back after", gone, "s")
        bench.report.equal(f"{what}: how the receiver ended", taker.returncode, -signal.SIGKILL)
        bench.report.equal(f"{what}: and the sender", sender.wait(timeout=30), -signal.SIGKILL)
    wait_for_end("sender")


def card_used_mib() -> int:
    """What the driver counts as used on the card."""
    text = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(text.stdout)


def _uncharged(bench: Bench, mode: str, command: list[object]) -> None:
    before = card_used_mib()
    program = tenant(
        "escape",
        command,
        *("--mem", f"{LIMIT_MIB}M"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with ended(program):
        assert program.stdout is not None
        line = program.stdout.readline()
        charged = table("0/memory")["used"] / MIB
        taken = card_used_mib() - before
        program.communicate("\n", timeout=60)
    bench.report.check(f"{mode}: what it did", line.strip())
    bench.report.check(f"{mode}: charged", charged, "MiB")
    bench.report.most(f"{mode}: taken of the card", taken, charged + UNSEEN_MIB, "MiB")
    wait_for_end("escape")
