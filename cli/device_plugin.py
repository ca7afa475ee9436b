# SPDX-License-Identifier: MIT
"""``cgpu device-plugin``: this node's cards for Kubernetes."""

from __future__ import annotations

import logging
import signal
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.install.launcher import HOOK
from pycgpu.oci import cdi

from ._pod import OvercommitRatio, follow_upgrades

app = typer.Typer(add_completion=False)


@app.command("device-plugin")
def device_plugin(
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="The node's name in the cluster.")],
    config: Annotated[
        str, typer.Option(help="Families of resources that this node offers.")
    ] = "/etc/cgpu/kubernetes.toml",
    api: Annotated[
        str | None, typer.Option(metavar="URL", help="The API server; default: the pod's own.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="File with the token for it.")] = None,
    ca: Annotated[str | None, typer.Option(help="File with its authority's certificate.")] = None,
    kubelet: Annotated[str, typer.Option(help="The kubelet's directory.")] = "/var/lib/kubelet",
    mapping: Annotated[
        str, typer.Option(help="File that says which container was promised what.")
    ] = "/var/lib/cgpu/kubernetes/mapping.json",
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
    overcommit_ratio: OvercommitRatio = None,
) -> None:
    """Offer this node's cards to its kubelet, and give containers their parts, until a signal."""
    try:
        from pycgpu.kubernetes import apiserver, families
        from pycgpu.kubernetes.device_plugin import Plugin
        from pycgpu.kubernetes.kubelet import Kubelet
        from pycgpu.kubernetes.mapping import Mapping
        from pycgpu.kubernetes.node import Node, Place
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
    plugin = Plugin(
        Node(node, families.load(config), Mapping(mapping), Kubelet(kubelet), access, place)
    )
    signal.signal(signal.SIGTERM, lambda number, frame: plugin.ended.set())
    follow_upgrades()
    try:
        plugin.run()
    except KeyboardInterrupt:
        return


def driver_libraries(prefix: str) -> tuple[str, ...]:
    """Return the driver's files on the host, which is another root than a pod's."""
    command = ["ldconfig", "-p"] if prefix == "/" else ["ldconfig", "-r", prefix, "-p"]
    cache = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = cdi.driver_libraries(cache.stdout)
    program = "/usr/bin/nvidia-smi"
    return (*shown, *([program] if Path(prefix, program[1:]).exists() else []))
