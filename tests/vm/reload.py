# SPDX-License-Identifier: MIT
"""
What runs in a guest under systemd: containers whose cgroup is a unit of systemd's, and a reload.

``python -m tests.vm.reload containers <modules>`` prints what a container of plain runc and one of
our runtime could open, each before ``systemctl daemon-reload`` and after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.vm import customer, guest
from tests.vm.container import Container

NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")


def _opened(one: Container) -> dict[str, str]:
    """Return by node what opening it says, empty where it opens."""
    found = {}
    for name in NODES:
        done = one.exec("sh", "-c", f": <>/dev/{name}", check=False)
        found[name] = done.stdout.strip().rpartition(": ")[2]
    return found


def _both(one: Container) -> list[dict[str, str]]:
    before = _opened(one)
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    return [before, _opened(one)]


def _containers(modules: Path) -> None:
    made = guest.made()
    # Each imports of those before it.
    for pattern in ("cgpu_km.ko", "cgpu_core_*.ko", "cgpu_rm.ko"):
        (path,) = modules.glob(pattern)
        subprocess.run(["insmod", str(path)], check=True)
    plain = Container(made["rootfs"], "plain", systemd=True)
    found = {"plain": _both(plain.start())}
    plain.delete()
    links = [link.name for link in Path("/dev/char").glob("195:*")]
    with customer.running(made.__getitem__):
        asked = {"CGPU_MEM": "1GiB", "CGPU_GPU": "0"}
        ours = customer.prepare(made.__getitem__, "ours", asked, systemd=True)
        found["ours"] = _both(ours.start())
        ours.delete()
    print(json.dumps([Path("/proc/1/comm").read_text().strip(), links, found]))


if __name__ == "__main__":
    _containers(Path(sys.argv[2]))
