# SPDX-License-Identifier: MIT
"""``cgpu device-nodes``: what /dev needs of the driver before a container starts."""

from __future__ import annotations

import sys

import typer

from pycgpu.errors import CgpuError, ModuleNotLoaded
from pycgpu.tree import device_nodes

from . import cdi
from ._root import Root
from ._shared import for_all

app = typer.Typer(add_completion=False)


@app.command("device-nodes")
def make(
    root: Root = None,
) -> None:
    """
    Load nvidia-uvm, and make the driver's device nodes and their links in /dev/char.

    A CDI file is written again if cards have come. Udev calls this when the driver is loaded, and
    the service at boot.
    """
    for_all()
    # Without a driver there are no cards yet; nvidia-uvm brings it.
    device_nodes.ensure(())
    failed = device_nodes.ensure(device_nodes.minors())
    for line in failed:
        print(f"cgpu: {line}", file=sys.stderr)
    try:
        for path in cdi.renew(root):
            print(f"wrote {path}")
    except ModuleNotLoaded:
        # Which cards there are is known when the door opens, and then this is called again.
        return
    if failed:
        raise CgpuError("containers may lose these devices at `systemctl daemon-reload`")


if __name__ == "__main__":
    app()
