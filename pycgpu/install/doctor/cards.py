# SPDX-License-Identifier: MIT
"""The cards under control, and their settings."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...tree import cards as card_settings
from ...tree import procfs
from .finding import FAIL, OK, WARN, Finding
from .host import Host


def cards(host: Host) -> Iterator[Finding]:
    """Every card of the driver is under control."""
    if host.root is None:
        return
    under = set(procfs.card_indexes(host.root))
    if not under:
        yield _none(host)
        return
    for card in sorted(under):
        memory = procfs.read_memory(card, host.root)
        if not memory["total"]:
            yield Finding(
                WARN,
                "cards",
                f"GPU {card}: its size is not known",
                f"echo total <bytes> > {host.root}/{card}/memory",
            )
    missing = sorted(set(host.cards()) - under)
    if missing:
        listed = ", ".join(map(str, missing))
        yield Finding(
            WARN, "cards", f"not under control: GPU {listed}", "`dmesg | grep cgpu` says why"
        )
    elif under:
        yield Finding(OK, "cards", f"{len(under)} under control")


def _none(host: Host) -> Finding:
    what = "no card under control"
    if not host.cards():
        remedy = "NVIDIA's driver has none: see `nvidia-smi -L`"
        if "nvidia" not in host.modules:
            remedy = "NVIDIA's driver is not loaded: modprobe nvidia"
        return Finding(FAIL, "cards", what, remedy)
    listed = ", ".join(map(str, host.cards()))
    if os.geteuid():
        remedy = "root must look first after the driver was loaded again: sudo cgpu doctor"
    else:
        remedy = "`dmesg | grep cgpu` says why"
    return Finding(FAIL, "cards", f"{what}, and the driver has GPU {listed}", remedy)


def settings(host: Host) -> Iterator[Finding]:
    """The cards have their settings of cards.toml, also after a reload of the driver."""
    if host.root is None:
        return
    tables = card_settings.load(str(host.prefix / card_settings.PATH.lstrip("/")))
    proc = str(host.prefix / "proc")
    for card, key, now, value in card_settings.pending(tables, host.root, proc):
        yield Finding(
            WARN,
            "settings",
            f"GPU {card}: {key} is {now}, and {card_settings.PATH} says {value}",
            "`cgpu cards --apply`",
        )
