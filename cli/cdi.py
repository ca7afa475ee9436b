# SPDX-License-Identifier: MIT
"""``cgpu cdi``: this host's cards as CDI devices ``cgpu.io/gpu=…``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.errors import CgpuError
from pycgpu.install import launcher
from pycgpu.oci import cdi
from pycgpu.request.model import Card
from pycgpu.tree import device_nodes, mig, procfs

from ._root import Root
from ._shared import for_all

app = typer.Typer(add_completion=False)


DEFAULT = Path(cdi.DIRECTORIES[0]) / cdi.FILE


@app.command("cdi")
def write_cdi(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; '-': stdout.")
    ] = DEFAULT,
    root: Root = None,
    hook: Annotated[str, typer.Option(help="The hook's program.")] = f"/{launcher.HOOK}",
    libraries: Annotated[
        bool, typer.Option(help="Show the driver's libraries and nvidia-smi in the container too.")
    ] = True,
    prefix: Annotated[str, typer.Option(help="Root of the host's files.", hidden=True)] = "/",
) -> None:
    """Write the CDI specification; `cgpu device-nodes` writes it again when a card comes."""
    for_all()
    host = {name: str(Path(prefix) / name) for name in ("dev", "proc")}
    door = root or procfs.find_root()
    device_nodes.find_cards(door, **host)
    cards, divided = _cards(door)
    if divided and not cards:
        raise CgpuError(f"{_divided(divided)}: there is no whole card to specify")
    device_nodes.ensure((card.index for card in cards), dev=host["dev"], proc=host["proc"])
    text = _text(cards, hook, libraries)
    if str(output) == "-":
        print(text, end="")
        return
    _write(output, text)
    print(f"wrote {output}: {len(cards)} cards; podman run --device {cdi.KIND}={cards[0].index} …")
    if divided:
        print(f"left out: {_divided(divided)}")


def _cards(door: str) -> tuple[list[Card], list[Card]]:
    """Return the cards that can be had whole, and those in MIG mode."""
    every = mig.read_cards(door, tenants=False)
    return [card for card in every if not card.mig], [card for card in every if card.mig]


def _divided(cards: Sequence[Card]) -> str:
    numbers = ", ".join(str(card.index) for card in cards)
    return f"card {numbers} in MIG mode (nvidia-smi -i {cards[0].uuid} -mig 0)"


def _text(cards: Sequence[Card], hook: str, libraries: bool) -> str:
    shown: list[str] = []
    if libraries:
        cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
        shown = cdi.driver_libraries(cache.stdout)
        shown += [path for path in ("/usr/bin/nvidia-smi",) if Path(path).exists()]
    return cdi.render(cdi.specification(cards, (hook,), libraries=shown))


def _write(output: Path, text: str) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f"{output.name}.{os.getpid()}")
    draft.write_text(text)
    draft.rename(output)


def renew(root: str | None = None, directories: Sequence[str] = cdi.DIRECTORIES) -> list[Path]:
    """Write those files anew, in the way they were written, that lack a card; return them."""
    changed = []
    for path in (Path(directory) / cdi.FILE for directory in directories):
        before = path.read_text(errors="replace") if path.is_file() else ""
        how = cdi.written(before)
        if how is None:
            continue
        cards, _ = _cards(root or procfs.find_root())
        text = _text(cards, how.hook, how.libraries) if cards else before
        if text != before:
            _write(path, text)
            changed.append(path)
    return changed
