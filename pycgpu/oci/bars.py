# SPDX-License-Identifier: MIT
"""
Files of ``/sys`` by which a container has a card's memory past RM.

Engines mount /sys read-only, and by such a file root maps a BAR all the same. In BAR1 drivers from
580 on may have all of the card's memory.
"""

from __future__ import annotations

import os

from .bundle import given_cards

_VENDOR = "0x10de"
#: Its files set how the driver starts next. They are 0644, so a container's root may write them.
_DRIVERS_OWN = "/proc/driver/nvidia"


def mask(config: dict[str, object], sysfs: str = "/sys") -> bool:
    """
    Mask the files in *config*, and make the driver's own read-only; return whether there are cards.

    Of a privileged container nothing is: it is given all of the host's.
    """
    files = _resources(sysfs)
    if not files or given_cards(config)[1]:
        return False
    linux = config.setdefault("linux", {})
    if not isinstance(linux, dict):
        return False
    for key, paths in (("maskedPaths", files), ("readonlyPaths", [_DRIVERS_OWN])):
        present = linux.get(key)
        linux[key] = [*(present if isinstance(present, list) else []), *paths]
    return True


def _resources(sysfs: str) -> list[str]:
    """Return the files of all of NVIDIA's devices that map memory of theirs, or resize it."""
    found: list[str] = []
    try:
        names = sorted(os.listdir(f"{sysfs}/bus/pci/devices"))
    except FileNotFoundError:
        return found
    for name in names:
        device = os.path.realpath(f"{sysfs}/bus/pci/devices/{name}")
        with open(f"{device}/vendor", encoding="ascii") as file:
            if file.read().strip() != _VENDOR:
                continue
        # the one without a number is a list of addresses
        found += [
            f"{device}/{entry}"
            for entry in sorted(os.listdir(device))
            if entry.startswith("resource") and entry != "resource"
        ]
        # pages of a BAR that UVM lends to other devices
        lent = f"{device}/p2pmem/allocate"
        if os.path.exists(lent):
            found.append(lent)
    return found
