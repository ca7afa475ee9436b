# SPDX-License-Identifier: MIT
"""``cgpu cdi``: this host's cards as CDI devices ``cgpu.io/gpu=…``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.install import registration
from pycgpu.oci import cdi
from pycgpu.tree import procfs

from ._shared import for_all

app = typer.Typer(add_completion=False)


DEFAULT = Path(cdi.DIRECTORIES[0]) / cdi.FILE


@app.command("cdi")
def write_cdi(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; '-': stdout.")
    ] = DEFAULT,
    root: Annotated[
        str | None, typer.Option(help="The tree; default: the door that is open.")
    ] = None,
    hook: Annotated[str, typer.Option(help="The hook's program.")] = f"/{registration.HOOK}",
    libraries: Annotated[
        bool, typer.Option(help="Show the driver's libraries and nvidia-smi in the container too.")
    ] = True,
) -> None:
    """Write the CDI specification; run it again when a card or the driver changes."""
    for_all()
    shown: list[str] = []
    if libraries:
        cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
        shown = cdi.driver_libraries(cache.stdout)
        shown += [path for path in ("/usr/bin/nvidia-smi",) if Path(path).exists()]
    cards = procfs.read_cards(root or procfs.find_root(), tenants=False)
    text = cdi.render(cdi.specification(cards, (hook,), libraries=shown))
    if str(output) == "-":
        print(text, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(output.name + ".cgpu")
    draft.write_text(text)
    draft.rename(output)
    print(f"wrote {output}: {len(cards)} cards; podman run --device {cdi.KIND}=0 …")
