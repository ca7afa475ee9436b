# SPDX-License-Identifier: MIT
"""
The demo on this machine's own card: two programs share it by ``cgpu run``, without a module.

Each step is checked; the first that is not as said ends the demo with status 1. Programs are
NVIDIA's own nvidia-smi, PyTorch where it is installed, and a small one on the driver's library.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from pycgpu.errors import CgpuError
from pycgpu.request.model import POLICIES
from tests.gpu.tenants import (
    PROGRAMS,
    TREE,
    ended,
    last_json,
    median_rates,
    node,
    outcome,
    progress,
    table,
    tenant,
    wait_for,
    wait_for_end,
)
from tests.telling import bars, check, console, no_room, shell, tell, title

GIB = 1 << 30
#: Percentage points over three seconds.
SHARE_TOLERANCE = 1.0
DRIVER = [sys.executable, PROGRAMS / "driver.py"]
#: What one tenant may take less than its size: its context, and what is left of a piece.
CONTEXT_MIB = 1200


def echo(value: object, path: str) -> None:
    shell(f"echo {value} > {TREE}/{path}")
    node(path, value)


def run(name: str, program: Sequence[object], *options: str) -> str:
    """A tenant's whole run; show it, return what it printed."""
    status, text = outcome(name, program, *options)
    told = " ".join(Path(str(word)).name for word in program)
    shown = [line for line in text.splitlines() if "MiB /" in line] or text.splitlines()[-1:]
    shell(f"cgpu run --name {name} {' '.join(options)} -- {told}", "\n".join(shown))
    check(status == 0, f"it ends with status {status}")
    return text


def host() -> None:
    title("One card, no module")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    shell("nvidia-smi -L", re.sub(r" \(UUID.*", "", listed.stdout))
    modules = Path("/proc/modules").read_text()
    check("cgpu_km" not in modules, "no module of cgpu's is loaded")


def sizes() -> None:
    title("Each sees its own card")
    text = run("one", ["nvidia-smi"], "--mem", "3276M")
    check(re.search(r"\b0MiB / +3276MiB", text), "nvidia-smi shows a card of 3276 MiB, none used")
    if importlib.util.find_spec("torch"):
        text = run("two", [sys.executable, PROGRAMS / "sizes.py"], "--mem", "8G")
        got = last_json(text)
        check(got.get("total") == 8 * GIB, "PyTorch sees 8 GiB to the byte")
        check("out of memory" in str(got.get("oom")), "its OutOfMemoryError comes at that limit")
        check(got.get("after") == 100, "and it goes on after freeing")
    got = last_json(run("two", [*DRIVER, "fill"], "--mem", "4G"))
    check(got["total"] == 4 * GIB, "the driver's own library sees 4 GiB to the byte")
    check(
        4096 - CONTEXT_MIB <= int(got["mib"]) <= 4096 and got["again_mib"] == got["mib"],
        f"it gets {got['mib']} MiB beside its context, and the same again after freeing",
    )
    status, text = outcome("three", ["true"], "--mem", "9000G")
    shell("cgpu run --name three --mem 9000G -- true", text)
    check(status == 1 and "free" in text, "more than there is: refused, and who holds what is said")


def shares(work: Path) -> None:
    title("Compute: who gets what of the card")
    path = work / "alone"
    with ended(subprocess.Popen([*map(str, DRIVER), "spin", path, "60"])):
        wait_for(lambda: progress(path)[0] > 10, "a program without a door", 60)
        alone = median_rates([path])[0]
    files = [work / name for name in ("one", "two")]
    tenants = []
    for path, gib in zip(files, (6, 8), strict=True):
        shell(f"cgpu run --name {path.name} --mem {gib}G --policy weighted -- driver.py spin … &")
        tenants.append(
            tenant(
                path.name, [*DRIVER, "spin", path, "300"], *("--mem", f"{gib}G"),
                *("--policy", "weighted"),
            )
        )  # fmt: skip
    with ended(*tenants):
        for path in files:
            wait_for(lambda path=path: progress(path)[0] > 10, f"{path.name} at work", 60)  # type: ignore[misc]  # bound in this round of the loop
        shell(f"ls {TREE}/0", " ".join(sorted(os.listdir(TREE / "0"))))
        rows = Table("setting", "one", "two", "together", "", box=None, padding=(0, 2))
        wrong = []

        def measure(label: str, due: float) -> None:
            time.sleep(1)
            got = [rate / alone * 100 for rate in median_rates(files)]
            rows.add_row(label, *(f"{one:.1f} %" for one in (*got, sum(got))), bars(*got))
            of_both = got[0] / sum(got) * 100
            if abs(of_both - due) > SHARE_TOLERANCE:
                wrong.append(f"{label}: {of_both:.1f} % instead of {due:.1f} %")

        measure("weights 1 : 1, weighted", 50)
        echo(2, "0/two/weight")
        measure("weights 1 : 2, live", 100 / 3)
        echo(9, "0/two/weight")
        measure("weights 1 : 9, live", 10)
        echo(POLICIES.index("weighted-conserving"), "0/policy")
        echo(1, "0/two/weight")
        measure("weights 1 : 1, work-conserving, live", 50)
        console.print(rows)
        check(not wrong, "; ".join(wrong) or "each gets its share, and a change holds at once")

        title("Changed while it runs")
        echo(5 * GIB, "0/one/memsize")
        check(int(node("0/one/memsize")) == 5 * GIB, "one now has a card of 5 GiB")
        much = 9000 * GIB
        no_room(TREE / "0/one/memsize", much, lambda: node("0/one/memsize", much))
        tenants[1].kill()
        wait_for_end("two")
        echo(25, "0/one/quota")
        time.sleep(1)
        got = median_rates(files[:1])[0] / alone * 100
        check(
            abs(got - 25) < SHARE_TOLERANCE, f"quota 25 of a lone tenant: {got:.1f} % of the card"
        )


def end() -> None:
    title("The end")
    wait_for_end()
    shell(f"cat {TREE}/0/memory", node("0/memory"))
    memory = table("0/memory")
    check(memory["allocated"] == memory["used"] == 0, "all memory is back, nobody freed it by hand")


def main() -> int:
    if os.geteuid():
        print("demo: --gpu needs root: try sudo", file=sys.stderr)
        return 1
    console.print(Panel.fit("cgpu: many programs, one GPU, no module", style="bold"))

    def story() -> None:
        host()
        sizes()
        shares(Path(work))
        end()

    with tempfile.TemporaryDirectory(prefix="cgpu-demo-") as work:
        return tell(story, CgpuError, OSError, TimeoutError)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
