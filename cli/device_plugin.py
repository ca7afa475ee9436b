# SPDX-License-Identifier: MIT
"""``cgpu device-plugin``: this node's cards for Kubernetes."""

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


@app.command("device-plugin")
def device_plugin(
    node: NodeName,
    config: Annotated[
        str, typer.Option(help="Families of resources that this node offers.")
    ] = "/etc/cgpu/kubernetes.toml",
    api: Api = None,
    token: Token = None,
    ca: Ca = None,
    kubelet: KubeletDirectory = KUBELET,
    mapping: Annotated[
        str, typer.Option(help="File that says which container was promised what.")
    ] = "/var/lib/cgpu/kubernetes/mapping.json",
    cdi_directory: CdiDirectory = cdi.DIRECTORIES[1],
    hook: Hook = f"/{HOOK}",
    prefix: Prefix = "/",
    root: Root = None,
    libraries: Libraries = True,
    overcommit_ratio: OvercommitRatio = None,
) -> None:
    """Offer this node's cards to its kubelet, and give containers their parts, until a signal."""
    try:
        from pycgpu.kubernetes import apiserver, families
        from pycgpu.kubernetes.device_plugin import Plugin
        from pycgpu.kubernetes.kubelet import Kubelet
        from pycgpu.kubernetes.mapping import Mapping
        from pycgpu.kubernetes.node import Node
    except ImportError as error:
        raise CgpuError(f"{error}: pip install 'pycgpu[kubernetes]'") from None
    access = apiserver.access(api, token, ca)
    found = place(
        hook, root, prefix, cdi_directory, libraries=libraries, overcommit_ratio=overcommit_ratio
    )
    logging.basicConfig(format="cgpu: %(message)s", level=logging.INFO)
    plugin = Plugin(
        Node(node, families.load(config), Mapping(mapping), Kubelet(kubelet), access, found)
    )
    signal.signal(signal.SIGTERM, lambda number, frame: plugin.ended.set())
    follow_upgrades()
    try:
        plugin.run()
    except KeyboardInterrupt:
        return
