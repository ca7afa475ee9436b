# SPDX-License-Identifier: MIT
"""
Programs that keep a card busy, and what each got of it while all of them ran.

Shares can be compared only if they were taken over the same time. Making a context takes an
emulated machine up to a second, and not the same for everyone; so each program makes its own,
waits, and all are started at once.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.vm.container import Container
from tests.vm.loaded import SLOWNESS

SECONDS = 4.0
#: Percentage points by which a share may miss what is due. On a kernel that looks for faults
#: windows come late, and all that is told is who is held to no quota at all.
NEAR = 7.0 if SLOWNESS == 1 else 30.0


def computing_groups() -> list[dict[str, int]]:
    """The groups of the simulated driver's graphics engines, as it tells them."""
    lines = Path("/proc/driver/nvidia-sim").read_text().splitlines()
    told = [line.split() for line in lines if line.startswith(" group ")]
    groups = [dict(zip(words[::2], map(int, words[1::2]), strict=True)) for words in told]
    return [group for group in groups if group["engine"] == 1 and group["channels"]]


class Work:
    """
    simcuda launching kernels in a container, ready when this returns and waiting for :meth:`go`.

    Args:
        seconds: how long it works.
        kernel_ms: length of a kernel.
        card: N of ``/dev/nvidiaN``.
        slice_us: the timeslice that it asks for, if any.
        processes: how many do so side by side in the container.
        by_channel: its channels get to run one by one, not by their group.
        by_duplicate: likewise, by that of a duplicate of the group.
        duplicates: its address space, context share and doorbell are duplicates alone.
        any_engine: its group names no engine.
        free_userd: it frees the memory that its channels are driven by.
        leave_card: it closes the card's files once its work is queued.
        server: it is a client of that MPS server's.
        uid: as whom it runs.
    """

    def __init__(
        self,
        container: Container,
        seconds: float = SECONDS,
        kernel_ms: float = 1,
        *,
        card: int = 0,
        slice_us: int | None = None,
        processes: int = 1,
        by_channel: bool = False,
        by_duplicate: bool = False,
        duplicates: bool = False,
        any_engine: bool = False,
        free_userd: bool = False,
        leave_card: bool = False,
        server: str = "",
        uid: int = 0,
    ) -> None:
        ways = {
            "by-channel": by_channel,
            "by-duplicate": by_duplicate,
            "duplicates": duplicates,
            "any-engine": any_engine,
            "free-userd": free_userd,
            "leave-card": leave_card,
        }
        named = " ".join(f"--{way}" for way, taken in ways.items() if taken)
        if server:
            named += f" --server {server}"
        command = f"simcuda --json --wait {named} --gpu {card} launch"
        command += f" {seconds} {kernel_ms}"
        if slice_us is not None:
            command += f" {slice_us}"
        if processes == 1:
            self.child = container.popen(*command.split(), uid=uid)
        else:
            # A shell gives what runs in the background an empty input, unless it is told.
            crowd = " ".join([f"{command} <&3 &"] * processes)
            self.child = container.popen("sh", "-c", f"exec 3<&0; {crowd} wait", uid=uid)
        self.processes = processes
        self.timeout_s = (2 * seconds + 100) * SLOWNESS
        assert self.child.stdout is not None
        for _ in range(processes):
            line = self.child.stdout.readline()
            if line != "ready\n":
                raise AssertionError(f"{container.id}: {line}{self.child.communicate()[0]}")

    def go(self) -> Work:
        """Start it; return itself."""
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self

    def percent(self) -> float:
        """Wait for its end; return what its processes got, in percent of the card."""
        try:
            output, _ = self.child.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise
        answers = [json.loads(line) for line in output.splitlines()]
        if len(answers) != self.processes or not all("share_permille" in one for one in answers):
            raise AssertionError(output)
        return float(sum(one["share_permille"] for one in answers) / 10)


def together(*works: Work) -> list[float]:
    """Start *works* at once; return the percent of the card that each got while all ran."""
    for one in works:
        one.go()
    return [one.percent() for one in works]
