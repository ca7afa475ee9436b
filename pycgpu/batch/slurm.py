# SPDX-License-Identifier: MIT
"""
What a Slurm job's shards (``--gres=shard:4``) are of a card.

The amounts are read from slurmctld by ``scontrol``: what stands in a job's environment its user
may have written. Slurm counts shards; a card's memory and compute are divided by them.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pycgpu.errors import RequestError
from pycgpu.request.model import WEIGHTED_CONSERVING, CardShare, MemoryShare, Request

#: Source of the SPANK plugin, which every site builds against its own Slurm.
PLUGIN = Path(__file__).with_name("spank_cgpu.c")
_TIMEOUT_S = 30
_ITEM = re.compile(r"(\w+)(?::[\w.-]+)??(?::(\d+))?(?:\((.*)\))?")


class Shards(NamedTuple):
    """``number`` of the ``of`` shards of card ``card``."""

    card: int
    number: int
    of: int

    def request(self, compute: str) -> Request:
        """Return what the door is asked for; *compute* is ``quota`` or ``weight``."""
        part = CardShare(memory=MemoryShare(self.number, self.of), policy=WEIGHTED_CONSERVING)
        if compute == "quota":
            part = part._replace(quota=max(1, 100 * self.number // self.of))
        elif compute == "weight":
            part = part._replace(weight=self.number)
        else:
            raise RequestError(f"compute={compute!r}: write quota or weight")
        return Request(dialect="slurm", selectors=(self.card,), shares=(part,))


def scontrol(*words: str) -> str:
    """Return what scontrol tells. RequestError: it fails, and why."""
    try:
        run = subprocess.run(
            ["scontrol", *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"scontrol: {error}") from None
    if run.returncode:
        raise RequestError(f"scontrol {' '.join(words)}: {(run.stderr or run.stdout).strip()}")
    return run.stdout


def of_job(job: int, ask: Callable[..., str] = scontrol) -> Shards | None:
    """
    Return the shards that *job* has on this node; None: it has none here, or whole cards.

    Raises:
        RequestError: Slurm does not answer, or says what one card's limits cannot express.
    """
    nodes = ask("show", "aliases", socket.gethostname().partition(".")[0]).split()
    if not nodes:
        raise RequestError(f"Slurm knows no node on host {socket.gethostname()}")
    node = nodes[0]
    granted = _granted(ask("show", "job", "-d", str(job)), node, ask)
    if granted is None:
        return None
    count, where = granted
    if not re.fullmatch(r"IDX:\d+", where):
        raise RequestError(
            f"job {job} has shards of several cards ({where or 'no index'}): ask for those of one"
        )
    return Shards(int(where[4:]), count, _shards_of_a_card(ask("show", "node", node), node))


def items(gres: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, count and what stands in parentheses, of ``gpu:t4:2(IDX:0-1),shard:4(…)``."""
    for text in re.split(r",(?![^(]*\))", gres):
        match = _ITEM.fullmatch(text.strip())
        if match:
            yield match[1], int(match[2] or 1), match[3] or ""


def _granted(job: str, node: str, ask: Callable[..., str]) -> tuple[int, str] | None:
    for names, gres in re.findall(r"^ *Nodes=(\S+) .*\bGRES=(\S*)$", job, re.MULTILINE):
        here = ask("show", "hostnames", names).split() if "[" in names or "," in names else [names]
        if node in here:
            for name, count, where in items(gres):
                if name == "shard" and count:
                    return count, where
    return None


def _shards_of_a_card(text: str, node: str) -> int:
    match = re.search(r"^ *Gres=(\S+)$", text, re.MULTILINE)
    sums = {"gpu": 0, "shard": 0}
    for name, count, _ in items(match[1] if match else ""):
        if name in sums:
            sums[name] += count
    if not sums["gpu"] or not sums["shard"] or sums["shard"] % sums["gpu"]:
        raise RequestError(
            f"node {node} has {sums['shard']} shards on {sums['gpu']} cards: give each card as many"
        )
    return sums["shard"] // sums["gpu"]
