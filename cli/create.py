# SPDX-License-Identifier: MIT
"""``cgpu create``: register a container, or a cgroup, that an engine started without us."""

from __future__ import annotations

from typing import Annotated

import typer

from pycgpu.dialects import cgpu
from pycgpu.errors import CgpuError
from pycgpu.request import admission
from pycgpu.request.model import Refusal
from pycgpu.tree import procfs
from pycgpu.tree.lock import Admission

from . import _asked
from ._root import Root

app = typer.Typer(add_completion=False)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Its id: letters, digits, '_', '.', '-'.")],
    pid: Annotated[
        int | None, typer.Option(min=1, help="A process in the container's pid namespace.")
    ] = None,
    cgroup: Annotated[
        str | None, typer.Option(help="Or a cgroup: a directory below /sys/fs/cgroup.")
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(help="Card: N of /dev/nvidiaN or UUID; repeat, or a list; default 0."),
    ] = None,
    mem: Annotated[
        str | None,
        typer.Option(help="Memory: 8G, 512MiB, bytes, 25%, max; one for each card: 8G,4G."),
    ] = None,
    quota: Annotated[
        str | None, typer.Option(help="At most so much of the card, 1 to 100 percent; or a list.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Weight among the containers that compute; or a list.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="For the card, unless somebody set it by hand.")
    ] = None,
    uvm_disable: Annotated[bool, typer.Option(help="Refuse managed memory.")] = False,
    idle_park: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Idle time after which it may be parked: 90s, 5m, 1h; off."
        ),
    ] = None,
    root: Root = None,
) -> None:
    """Give a container that runs already a part of cards: all that is asked for, or nothing."""
    if (pid is None) == (cgroup is None):
        raise typer.BadParameter("say which container: --pid or --cgroup, one of them")
    values = {
        cgpu.GPU: ",".join(gpu) if gpu else None,
        cgpu.MEM: mem,
        cgpu.QUOTA: quota,
        cgpu.WEIGHT: weight,
        cgpu.POLICY: policy,
        cgpu.UVM_DISABLE: "1" if uvm_disable else None,
        cgpu.IDLE_PARK: idle_park,
    }
    request = _asked.parse({key: text for key, text in values.items() if text is not None})
    tree = root or procfs.find_root()
    with Admission():
        grant = admission.admit(request, procfs.read_cards(tree))
        if isinstance(grant, Refusal):
            raise CgpuError(f"{name}: {grant.reason}")
        procfs.create(name, grant, tree, pid=pid, cgroup=cgroup)
    for card in grant.cards:
        size = "no limit" if card.memory_bytes is None else admission.format_mib(card.memory_bytes)
        print(f"GPU {card.index}: {name} has {size}")
