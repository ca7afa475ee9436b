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

from ._pod import OvercommitRatio, follow_upgrades
from .device_plugin import driver_libraries

app = typer.Typer(add_completion=False)


@app.command("dra-driver")
def dra_driver(
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="The node's name in the cluster.")],
    api: Annotated[
        str | None, typer.Option(metavar="URL", help="The API server; default: the pod's own.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="File with the token for it.")] = None,
    ca: Annotated[str | None, typer.Option(help="File with its authority's certificate.")] = None,
    kubelet: Annotated[str, typer.Option(help="The kubelet's directory.")] = "/var/lib/kubelet",
    cdi_directory: Annotated[
        str, typer.Option(help="Where the engine looks for CDI devices.")
    ] = cdi.DIRECTORIES[1],
    hook: Annotated[str, typer.Option(help="The hook's program on the host.")] = f"/{HOOK}",
    prefix: Annotated[str, typer.Option(help="Where the host's root is mounted.")] = "/",
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
    libraries: Annotated[
        bool, typer.Option(help="Show the driver's libraries and nvidia-smi in containers.")
    ] = True,
    evict: Annotated[
        bool, typer.Option("--evict", help="End the pods of a failed card; else they go on.")
    ] = False,
    overcommit_ratio: OvercommitRatio = None,
) -> None:
    """Offer this node's cards by dynamic resource allocation, until a signal."""
    try:
        from pycgpu.kubernetes import apiserver
        from pycgpu.kubernetes.dra import Claims, Driver
        from pycgpu.kubernetes.node import Place
    except ImportError as error:
        raise CgpuError(f"{error}: pip install 'pycgpu[kubernetes]'") from None
    access = apiserver.access(api, token, ca)
    place = Place(
        (hook,),
        root,
        prefix,
        cdi_directory,
        driver_libraries(prefix) if libraries else (),
        overcommit_ratio,
    )
    logging.basicConfig(format="cgpu: %(message)s", level=logging.INFO)
    driver = Driver(node, Claims(access, place), kubelet, evict=evict)
    signal.signal(signal.SIGTERM, lambda number, frame: driver.end())
    follow_upgrades()
    try:
        driver.run()
    except KeyboardInterrupt:
        return
