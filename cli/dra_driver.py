# SPDX-License-Identifier: MIT
"""``cgpu dra-driver``: this node's cards for Kubernetes, as devices that claims share."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.install.launcher import HOOK
from pycgpu.oci import cdi

from ._node import (
    KUBELET,
    CdiDirectory,
    Hook,
    KubeletDirectory,
    Libraries,
    NodeName,
    OvercommitRatio,
    Prefix,
    place,
)
from ._pod import Api, Ca, Token, follow_upgrades
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command("dra-driver")
def dra_driver(
    node: NodeName,
    api: Api = None,
    token: Token = None,
    ca: Ca = None,
    kubelet: KubeletDirectory = KUBELET,
    cdi_directory: CdiDirectory = cdi.DIRECTORIES[1],
    hook: Hook = f"/{HOOK}",
    prefix: Prefix = "/",
    root: Root = None,
    libraries: Libraries = True,
    evict: Annotated[
        bool, typer.Option("--evict", help="End the pods of a failed card; otherwise they go on.")
    ] = False,
    overcommit_ratio: OvercommitRatio = None,
) -> None:
    """Offer this node's cards by dynamic resource allocation, until a signal."""
    try:
        from pycgpu.kubernetes import apiserver
        from pycgpu.kubernetes.dra import Claims, Driver
    except ImportError as error:
        raise CgpuError(f"{error}: pip install 'pycgpu[kubernetes]'") from None
    access = apiserver.access(api, token, ca)
    found = place(
        hook, root, prefix, cdi_directory, libraries=libraries, overcommit_ratio=overcommit_ratio
    )
    logging.basicConfig(format="cgpu: %(message)s", level=logging.INFO)
    driver = Driver(node, Claims(access, found), kubelet, evict=evict)
    signal.signal(signal.SIGTERM, lambda number, frame: driver.end())
    follow_upgrades()
    try:
        driver.run()
    except KeyboardInterrupt:
        return
