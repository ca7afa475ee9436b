# SPDX-License-Identifier: MIT
"""
The part of a card that a Slurm job's shards (``--gres=shard:4``) are.

The amounts come from Slurm itself, by ``scontrol`` and ``slurmd``, because a user can write the
job's environment. Slurm counts shards, and each card has a number of its own (``gres.conf``), by
which its memory and compute are divided. Since 23.11 a job's details have both numbers for each
card. Before, they only name the job's cards, and slurmd tells how many shards each card has.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pycgpu.errors import RequestError
from pycgpu.request.model import WEIGHTED_CONSERVING, CardShare, MemoryShare, Request
from pycgpu.tree.group import Group

#: Source of the SPANK plugin, which every site builds against its own Slurm.
PLUGIN = Path(__file__).with_name("spank_cgpu.c")
#: The variable by which a job's environment asks for a group.
GROUP = "CGPU_GROUP"
_TIMEOUT_S = 30
_ITEM = re.compile(r"(\w+)(?::[A-Za-z_][\w.-]*)*(?::(\d\w*))?(?:\((.*)\))?")
_COUNT = re.compile(r"(\d{1,18})(?:([kmgtp])(ib|b)?)?", re.IGNORECASE)
#: Of ``slurmd -G``, one of each card.
_CONFIGURED = re.compile(r"\bGres Name=shard\b.*? Count=(\d+) Index=(\d+)\b")
#: With the job's number before it, it is a container's id.
NAME_MAX = 40
_NAME = re.compile(rf"[\w.-]{{1,{NAME_MAX}}}", re.ASCII)
#: A function that runs a program and returns its output.
Ask = Callable[..., str]


class Shards(NamedTuple):
    """``number`` of the ``of`` shards of card ``card``."""

    card: int
    number: int
    of: int


def request(shards: Sequence[Shards], compute: str) -> Request:
    """
    Return the request to the door; *compute* is ``quota`` or ``weight``.

    Amounts are rounded down, so all jobs together never ask for more than a card.

    Raises:
        RequestError: so few shards are less than the smallest limit of compute.
    """
    if compute not in ("quota", "weight"):
        raise RequestError(f"compute={compute!r}: write quota or weight")
    shares = []
    for card, number, of in shards:
        share = CardShare(memory=MemoryShare(number, of, usable=True), policy=WEIGHTED_CONSERVING)
        if compute == "weight":
            share = share._replace(weight=number)
        elif 100 * number < of:
            raise RequestError(
                f"{number} of {of} shards of card {card} are less than 1 % of its compute: ask for"
                f" {-(-of // 100)} or more, or give the plugin compute=weight"
            )
        else:
            share = share._replace(quota=100 * number // of)
        shares.append(share)
    return Request(
        dialect="slurm", selectors=tuple(one.card for one in shards), shares=tuple(shares)
    )


def group(tenant: str, name: str, uid: int) -> Group:
    """
    Return the group of a job's programs, of user *uid* of the host.

    Its server's memory is part of the job's shards, and its compute is theirs.

    Raises:
        RequestError: it cannot be named so.
    """
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"{GROUP}={name!r}: write 1 to {NAME_MAX} letters, digits, '_', '.' and '-'"
        )
    return Group(f"{tenant}.{name}", uid, policy_asked=False, single=True)


def run(program: str, *words: str) -> str:
    """Return the output of a program of Slurm. RequestError: it fails; the message says why."""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"{program}: {error}") from None
    if done.returncode:
        why = (done.stderr or done.stdout).strip()
        raise RequestError(f"{' '.join((program, *words))}: {why}")
    # slurmd prints the requested figures to its log, stderr.
    return done.stdout + done.stderr


def of_job(job: int, ask: Ask = run) -> tuple[Shards, ...]:
    """
    Return the shards that *job* has of each card of this node; empty: no card, or whole cards.

    Raises:
        RequestError: Slurm does not answer, or does not tell the shards of each card.
    """
    nodes = ask("scontrol", "show", "aliases", socket.gethostname().partition(".")[0]).split()
    if not nodes:
        raise RequestError(f"Slurm knows no node on host {socket.gethostname()}")
    node = nodes[0]
    found: dict[int, Shards] = {}
    for count, where in _granted(ask("scontrol", "show", "job", "-d", str(job)), node, ask):
        for one in _cards(job, count, where, node, ask):
            before = found.get(one.card)
            number = one.number + (before.number if before else 0)
            found[one.card] = one._replace(number=number)
    return tuple(found[card] for card in sorted(found))


def items(gres: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, count and text in parentheses of ``gpu:t4:2(IDX:0-1),shard:1K(…)``."""
    for text in re.split(r",(?![^(]*\))", gres):
        match = _ITEM.fullmatch(text.strip())
        if match:
            yield match[1], _count(match[2] or "1", text), match[3] or ""


def _count(text: str, item: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise RequestError(f"Slurm's {item.strip()!r}: {text!r} is no number")
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    power = "kmgtp".index(match[2].lower()) + 1 if match[2] else 0
    return int(match[1]) * int(base**power)


def _granted(job: str, node: str, ask: Ask) -> list[tuple[int, str]]:
    for names, gres in re.findall(r"^ *Nodes=(\S+) .*\bGRES=(\S*)$", job, re.MULTILINE):
        listed = "[" in names or "," in names
        here = ask("scontrol", "show", "hostnames", names).split() if listed else [names]
        if node in here:
            return [(n, where) for name, n, where in items(gres) if name == "shard" and n]
    return []


def _cards(job: int, count: int, where: str, node: str, ask: Ask) -> Iterator[Shards]:
    if re.fullmatch(r"\d+/\d+(,\d+/\d+)*", where):
        # Since 23.11: of each card so many of so many.
        for card, pair in enumerate(where.split(",")):
            number, of = map(int, pair.split("/"))
            if number:
                yield Shards(card, number, of)
    elif match := re.fullmatch(r"IDX:(\d+)", where):
        card = int(match[1])
        yield Shards(card, count, _of_card(card, node, ask))
    else:
        raise RequestError(
            f"job {job} has shards of several cards ({where or 'no index'}), and this Slurm does"
            " not say how many of each: ask for those of one"
        )


def _of_card(card: int, node: str, ask: Ask) -> int:
    """Return how many shards a card of the node has."""
    match = re.search(r"^ *Gres=(\S+)$", ask("scontrol", "show", "node", node), re.MULTILINE)
    sums = {"gpu": 0, "shard": 0}
    for name, count, _ in items(match[1] if match else ""):
        if name in sums:
            sums[name] += count
    if sums["gpu"] == 1:
        of = sums["shard"]
    else:
        told = {int(index): int(n) for n, index in _CONFIGURED.findall(ask("slurmd", "-G"))}
        of = told.get(card, 0)
    if not of:
        raise RequestError(
            f"Slurm gives shards of card {card} of node {node}, and says of none that it has:"
            " see slurmd -G, gres.conf"
        )
    return of
