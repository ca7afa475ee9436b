# SPDX-License-Identifier: MIT
"""The driver's device nodes, and the links by which systemd knows them."""

from __future__ import annotations

from collections.abc import Iterator

from ...tree import device_nodes
from .finding import OK, WARN, Finding
from .host import Host


def devices(host: Host) -> Iterator[Finding]:
    """Every card's node is there, nvidia-uvm's too, and each has its link in /dev/char."""
    if not host.read("proc/driver/nvidia/version"):
        return
    dev, proc = str(host.prefix / "dev"), str(host.prefix / "proc")
    minors = device_nodes.minors(proc)
    names = [device_nodes.CONTROL, device_nodes.UVM, *(f"nvidia{minor}" for minor in minors)]
    missing = device_nodes.missing(names, dev, proc)
    if missing:
        listed = ", ".join(f"/dev/{name}" for name in missing)
        yield Finding(
            WARN,
            "devices",
            f"missing, or of a driver that has gone: {listed}: CUDA cannot start",
            "`cgpu device-nodes` makes them, as each container's start does",
        )
    unlinked = device_nodes.unlinked(names, dev)
    if unlinked:
        listed = ", ".join(f"/dev/char/{link.rpartition('/')[2]}" for link in unlinked)
        yield Finding(
            WARN,
            "devices",
            f"missing: {listed}: without its link a container loses a device at"
            " `systemctl daemon-reload`",
            "`cgpu device-nodes` makes them; then start running containers again",
        )
    if not missing and not unlinked:
        yield Finding(OK, "devices", "the driver's nodes and their links in /dev/char are there")
