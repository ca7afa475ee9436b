# SPDX-License-Identifier: MIT
"""The driver's device nodes as a host without the driver can have them: links to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Character devices that every machine has, and that anybody may name.
OTHERS = ("null", "full", "random", "urandom", "tty")
#: /dev/zero is 1:5, so its driver stands for nvidia-uvm's.
LISTED = "Character devices:\n  1 nvidia-uvm\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n"


def make_devices(root: Path, cards: int = 4, listed: str = LISTED) -> dict[str, Any]:
    """Make ``root/dev`` and ``root/proc/devices``; return them as ``dev`` and ``proc``."""
    dev, proc = root / "dev", root / "proc"
    dev.mkdir(parents=True, exist_ok=True)
    proc.mkdir(exist_ok=True)
    (proc / "devices").write_text(listed)
    names = ["nvidiactl", *(f"nvidia{card}" for card in range(cards))]
    for number, name in enumerate(names):
        (dev / name).symlink_to(f"/dev/{OTHERS[number % len(OTHERS)]}")
    (dev / "nvidia-uvm").symlink_to("/dev/zero")
    # UVM's tools are handed to no container.
    (dev / "nvidia-uvm-tools").symlink_to("/dev/ptmx")
    return {"dev": str(dev), "proc": str(proc)}
