# SPDX-License-Identifier: MIT
"""What the programs are told that publish a node's cards."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pycgpu.oci import cdi

if TYPE_CHECKING:
    from pycgpu.kubernetes.node import Place

NodeName = Annotated[str, typer.Option(envvar="NODE_NAME", help="The node's name in the cluster.")]
KubeletDirectory = Annotated[str, typer.Option(help="The kubelet's directory.")]
CdiDirectory = Annotated[str, typer.Option(help="Where the engine looks for CDI devices.")]
Hook = Annotated[str, typer.Option(help="The hook's program on the host.")]
Prefix = Annotated[str, typer.Option(help="Where the host's root is mounted.")]
Libraries = Annotated[
    bool, typer.Option(help="Show the driver's libraries and nvidia-smi in containers.")
]
OvercommitRatio = Annotated[
    int | None,
    typer.Option(
        metavar="PERCENT",
        min=100,
        max=1000,
        help="Let limits add up to so much of a card, where cards.toml does not say.",
    ),
]

KUBELET = "/var/lib/kubelet"


def place(
    hook: str,
    root: str | None,
    prefix: str,
    cdi_directory: str,
    *,
    libraries: bool,
    overcommit_ratio: int | None,
) -> Place:
    """
    Return where the node's cards are published, by these options.

    Raises:
        ImportError: what Kubernetes takes is not installed.
    """
    from pycgpu.kubernetes.node import Place

    shown = _driver_libraries(prefix) if libraries else ()
    return Place((hook,), root, prefix, cdi_directory, shown, overcommit_ratio)


def _driver_libraries(prefix: str) -> tuple[str, ...]:
    """Return the driver's files on the host, which is another root than a pod's."""
    command = ["ldconfig", "-p"] if prefix == "/" else ["ldconfig", "-r", prefix, "-p"]
    cache = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = cdi.driver_libraries(cache.stdout)
    program = "/usr/bin/nvidia-smi"
    return (*shown, *([program] if Path(prefix, program[1:]).exists() else []))
