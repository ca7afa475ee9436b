# SPDX-License-Identifier: MIT
"""What scripts/dev bench-start runs: see there."""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pycgpu.install.launcher import hook_program, runtime_program
from tests.host.devices import make_devices
from tests.host.tree import add_container, make_tree

REPOSITORY = Path(__file__).resolve().parents[2]


def program(path: Path, text: str) -> Path:
    """Write a program as `cgpu install-runtime` does."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def median_ms(
    runs: int, command: list[str], stdin: str = "", before: Callable[[], object] = bool
) -> float:
    """Return the median time of a command that must succeed."""
    times = []
    for _ in range(runs):
        before()
        start = time.perf_counter()
        subprocess.run(command, input=stdin, text=True, capture_output=True, check=True)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main(runs: int) -> None:
    """Measure and print."""
    median = functools.partial(median_ms, runs)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        root = make_tree(base / "cgpu_km", cards=8)
        for card in range(8):
            for number in range(10):
                add_container(root, card, f"{card}{number}" + "a" * 62, memsize="1048576")
        (base / "proc" / "7").mkdir(parents=True)
        (base / "proc" / "7" / "status").write_text("NSpid:\t7\t1\n")
        devices = make_devices(base, cards=8)
        options = [f"--{name}={base / name}".split("=") for name in ("lock", "log", "proc", "dev")]
        words = ["--root", str(root), *(word for pair in options for word in pair)]
        python = os.path.realpath(sys.executable), str(REPOSITORY)
        hook = program(base / "cgpu-hook", hook_program(*python, words))
        runtime = program(
            base / "cgpu-container-runtime",
            runtime_program(*python, (str(hook),), ("/bin/true",), str(root), **devices),
        )
        env = ["PATH=/bin", *(f"V{number}=x" for number in range(40))]
        cards = ":".join(f"PGPU={card},MEM=276,WEIGHT=10" for card in range(3))
        asking = {"process": {"env": [*env, f"EGPU=POLICY=0,ONLINE=0,TYPE=DOCKER:{cards}"]}}
        config = base / "config.json"
        create = [str(runtime), "create", "--bundle", str(base), "id"]
        state = json.dumps({"id": "f" * 64, "pid": 7, "status": "creating", "bundle": str(base)})

        def write(content: Mapping[str, object]) -> Callable[[], object]:
            return lambda: config.write_text(json.dumps(content))

        asks, plain = write(asking), write({"process": {"env": env}})
        alone = median([os.path.realpath(sys.executable), "-ISc", "pass"])
        created = median(create, before=asks)
        started = median([str(runtime), "start", "id"])
        hooked = median([str(hook), "createRuntime"], state, asks)
        print(f"python alone              {alone:6.1f}")
        print(f"runtime create            {created:6.1f}")
        print(f"runtime start             {started:6.1f}")
        print(f"hook createRuntime        {hooked:6.1f}")
        print(f"sum                       {created + started + hooked:6.1f}")
        print(f"runtime create, no limit  {median(create, before=plain):6.1f}")
        print(f"hook, no limit            {median([str(hook), 'prestart'], state, plain):6.1f}")
        smi = [sys.executable, "-m", "pycgpu.cli.smi", "--root", str(root)]
        print(f"cgpu-smi                  {median(smi):6.1f}")
        print(f"cgpu-smi -q               {median([*smi, '-q']):6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
