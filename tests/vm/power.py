# SPDX-License-Identifier: MIT
"""
What runs in a guest whose power is cut amid a move, and in the next one over the same disk.

``python -m tests.vm.power lose|look {made}``: what a disk keeps goes from one to the other as an
archive in the share. So does /run, which a host has in its memory: who leaves it behind all the
same must not be stopped by that.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pycgpu.errors import CgpuError
from tests.vm import loaded
from tests.vm.boot import DISK
from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.test_parking import START_S, OfModule
from tests.vm.vm import SHARE

KEPT = ("etc/cgpu", "var/lib/cgpu", "run/cgpu")
#: There from when the power may go.
AMID = SHARE / "amid"


def door(made: dict[str, str]) -> OfModule:
    """The module over a simulated card, and who moves its containers."""
    stack = loaded.Modules()

    def container(name: str, **options: object) -> Container:
        return Container(Path(made["rootfs"]), name, **options).start()  # type: ignore[arg-type]

    bridges = {"bridge": Path(made["bridge"])}
    return OfModule(
        lambda **parameters: Sim(stack, Path(made["sim"])).load(**parameters),
        lambda **parameters: Km(stack, Path(made["km"]), bridges).load(**parameters),
        container,
    )


def lose(place: OfModule) -> None:
    """One is parked and held, one comes back, and one is on its way to the host; then nothing."""
    held, back, away = (place.start(name, 64, 64) for name in ("held", "back", "away"))
    place.park(held.name, hold=True)
    assert back.ask("halt") == "halts"
    place.park(back.name)
    back.tell("work")
    loaded.until(lambda: back.state() == "resuming", "its return begins", START_S)
    assert away.ask("halt out") == "halts"
    threading.Thread(target=leave, args=(place, away.name), daemon=True).start()
    loaded.until(lambda: away.state() == "parking", "it begins to leave", START_S)
    for path in KEPT:
        Path("/", path).mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-C", "/", "--ignore-failed-read", "-cf", DISK, *KEPT], check=True)
    AMID.write_text(json.dumps({name: one.state() for name, one in place.tenants.items()}))
    time.sleep(3600)


def leave(place: OfModule, name: str) -> None:
    with contextlib.suppress(CgpuError):
        place.park(name)


def look(place: OfModule) -> None:
    """Nothing is parked, held or reserved, and all of the card is there."""
    assert place.moving() == {}
    stat = place.card()
    assert stat["containers"] == stat["used_bytes"] == stat["allocated_bytes"] == 0, stat
    assert "parked_bytes" not in stat and "reserved_bytes" not in stat, stat
    one = place.start("held", 800, 800)
    for _ in range(2):
        place.park("held")
        assert one.ask("work") == "worked"
    place.kill("held")
    place.close()


STEPS: dict[str, Callable[[OfModule], None]] = {"lose": lose, "look": look}


def main(step: str, made: str) -> None:
    """Do one step."""
    if DISK.exists():
        subprocess.run(["tar", "-C", "/", "-xf", DISK], check=True)
    STEPS[step](door(json.loads(made)))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
