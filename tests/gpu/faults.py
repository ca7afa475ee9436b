# SPDX-License-Identifier: MIT
"""Tenants that reach for more than their share, tenants that break, and an agent that dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from tests.gpu.shares import set_policy
from tests.gpu.tenants import (
    Bench,
    agent_pid,
    all_returned,
    ended,
    last_json,
    median_rates,
    native,
    outcome,
    progress,
    rates,
    running,
    tenant,
    wait_for,
    wait_for_end,
)

#: points of the card that an attack may cost the neighbour
HARM = 2.0


def attacks(bench: Bench) -> None:
    """A tenant that reaches for more, with the door and without."""
    report = bench.report
    baseline = 0.0
    with running(bench, {"victim": ["--policy", "weighted"]}) as files:
        victim = files["victim"]
        set_policy("weighted")
        for mode in ("none", "slice", "disable", "enable", "wfi", "remap"):
            path = bench.file()
            attack = [bench.bin / "attack", path, bench.iterations, "6", mode]
            process = tenant("attacker", attack, stdout=subprocess.PIPE)
            with ended(process):
                wait_for(lambda path=path: progress(path)[0] > 2, "the attacker at work")  # type: ignore[misc]  # bound in this round of the loop
                time.sleep(1)
                got = [rate / bench.rate * 100 for rate in median_rates([path, victim])]
                text, _ = process.communicate(timeout=30)
            wait_for_end("attacker")
            if mode == "none":
                baseline = got[1]
                report.check("no attack: the one", got[0], "%")
                report.check("no attack: the other", got[1], "%")
                continue
            report.most(f"attack {mode}: attacker", got[0], baseline + HARM)
            report.least(f"attack {mode}: neighbour", got[1], baseline - HARM)
            found = last_json(text)
            report.check(
                f"attack {mode}: calls tried, and answered as if done",
                f"{found.get('tried')}, {found.get('accepted')}",
            )
        paths = [bench.file() for _ in range(8)]
        script = " & ".join(" ".join(bench.worker(path, 60)) for path in paths) + "; wait"
        crowd = tenant(
            "attacker", ["sh", "-c", script], stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_for(lambda: sum(progress(path)[0] > 2 for path in paths) >= 4, "the eight")
            time.sleep(2)
            got = [rate / bench.rate * 100 for rate in median_rates([victim])]
            report.least("attack by eight processes: neighbour", got[0], baseline - HARM)
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)
            crowd.wait()
    stock(bench)


def stock(bench: Bench) -> None:
    """The same without a door."""
    report = bench.report
    path = bench.file()
    with native(bench.worker(path, 90)):
        wait_for(lambda: progress(path)[0] > 2, "the neighbour")
        for mode in ("none", "slice", "wfi", "disable"):
            own = bench.file()
            with native([bench.bin / "attack", own, bench.iterations, "8", mode]) as attacker:
                # whoever gives itself a long slice there may not get a single kernel done
                with contextlib.suppress(TimeoutError):
                    wait_for(lambda own=own: progress(own)[0] > 2, "the attacker at work", 3)  # type: ignore[misc]  # bound in this round of the loop
                time.sleep(1)
                got = [rate / bench.rate * 100 for rate in rates([own, path], 2)]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    attacker.wait(timeout=10)
            report.check(f"stock driver, attack {mode}: attacker", got[0], "%")
            report.check(f"stock driver, attack {mode}: neighbour", got[1], "%")
        eight = [bench.file() for _ in range(8)]
        crowd = [subprocess.Popen(bench.worker(p, 60), stdout=subprocess.DEVNULL) for p in eight]
        with ended(*crowd):
            wait_for(lambda: all(progress(p)[0] > 2 for p in eight), "the eight")
            got = rates([path], 2)
        report.check(
            "stock driver, attack by eight processes: neighbour", got[0] / bench.rate * 100, "%"
        )


def xids() -> list[int]:
    """Processes that the driver's messages about errors name so far."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    return [int(found) for found in re.findall(r"NVRM: Xid.*?pid=(\d+)", log)]


def next_agent() -> int | None:
    """The agent's process; None while there is none."""
    try:
        return agent_pid()
    except (OSError, ValueError):
        return None


def faults(bench: Bench) -> None:
    """Illegal access, out of memory, SIGKILL at a shut gate, the agent's death."""
    report = bench.report
    before = len(xids())
    with running(bench, {"neighbour": []}) as files:
        set_policy("weighted-conserving")
        paths = [files["neighbour"]]
        bad = tenant(
            "bad",
            bench.worker(bench.file(), 5, "--fault", "1"),
            stdout=subprocess.PIPE,
        )
        text, _ = bad.communicate(timeout=60)
        report.check("illegal access: the culprit's error", last_json(text).get("error", "none"))
        share = median_rates(paths)[0] / bench.rate * 100
        report.least("neighbour after an illegal access", share, 98)
        named = xids()[before:]
        report.check(
            "driver's messages of errors name the culprit alone",
            f"{len(named)} messages, {len(set(named) - {bad.pid})} of others",
            "",
            "0 of others",
            not set(named) - {bad.pid},
        )
        _, text = outcome("full", [bench.bin / "memory", "malloc"], "--mem", "4G")
        share = median_rates(paths)[0] / bench.rate * 100
        report.least("neighbour after a tenant ran out of memory", share, 98)
        victim = tenant(
            "capped",
            bench.worker(bench.file(), 60),
            *("--quota", "10"),
            stdout=subprocess.DEVNULL,
        )
        with ended(victim):
            time.sleep(4)
        wait_for_end("capped")
        share = median_rates(paths)[0] / bench.rate * 100
        report.least("neighbour after SIGKILL of a tenant at a shut gate", share, 98)
    all_returned(bench)
    path = bench.file()
    victim = tenant("orphan", bench.worker(path, 12), *("--quota", "20"), stdout=subprocess.DEVNULL)
    with ended(victim):
        wait_for(lambda: progress(path)[0] > 2, "orphan at work")
        time.sleep(2)
        share = median_rates([path], 1)[0] / bench.rate * 100
        report.near("before the agent's death: quota 20", share, 20, 0.5)
        old = agent_pid()
        os.kill(old, signal.SIGKILL)
        # The watchdog opened all gates, and started it.
        wait_for(lambda: next_agent() not in (None, old), "the next agent")
        share = median_rates([path], 1)[0] / bench.rate * 100
        report.near("after the agent's SIGKILL, by the next one: quota 20", share, 20, 0.5)
        try:
            report.check("the orphan ends by itself: status", victim.wait(30), "", "any", True)
        except subprocess.TimeoutExpired:
            report.check("the orphan ends by itself: status", "hangs", "", "any", False)
    status, _ = outcome("after", ["nvidia-smi", "-L"])
    report.equal("a tenant of the next agent", status, 0)
    start = time.monotonic()
    pid = agent_pid()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the agent's end by SIGTERM", 15)
    report.most("the agent ends by SIGTERM after", time.monotonic() - start, 10, "s")
    outcome("again", ["true"])
    wait_for_end()
