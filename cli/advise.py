# SPDX-License-Identifier: MIT
"""``cgpu advise``: which containers would do more in a group, and what that takes."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, NamedTuple

import typer

from pycgpu.request import idle_time
from pycgpu.tree import advice, authority, contender, counters, group, nvml, procfs, snapshot
from pycgpu.tree.advice import Advice, Bounds, Declined
from pycgpu.tree.contender import Contender, Owner
from pycgpu.tree.nvml_load import Load, Sampler
from pycgpu.tree.snapshot import CardView, Snapshot

from ._root import Root
from ._table import clean, width_of

app = typer.Typer(add_completion=False)

SCHEMA = "cgpu-advice/1"
_SAMPLE_S = (1, 3600)
#: NVML's samples are of a second at most.
_LOOK_S = 1.0
_MIB = 1 << 20
#: So many containers are shown with their figures in one line.
_SHOWN = 5
_COSTS = (
    "members share fate: an illegal access of one ends all, and a kernel that does not end holds"
    " the others",
    "members may take what their server shares with all of them, and share /dev/shm",
    "weight, quota, floor and priority are the group's: no member has a share or an account of its"
    " own",
)
_MODEL = (
    "the gain is a model's, and no promise: min(waiting for each other, 1 / part of the card that"
    f" they fill). Its least is times {advice.KEPT}, because kernels slow each other in caches and"
    " memory"
)


class _Card(NamedTuple):
    view: CardView
    contenders: list[Contender]
    load: Load
    advised: list[Advice]
    declined: list[Declined]


def _seconds(text: str | int) -> int:
    low, high = _SAMPLE_S
    try:
        found = idle_time.parse_seconds(str(text))
    except ValueError:
        found = 0
    if not low <= found <= high:
        raise typer.BadParameter(f"{str(text)[:40]!r}: write {low}s to 1h, such as 60s or 5m")
    return found


@app.command()
def advise(
    sample_s: Annotated[
        int,
        typer.Option(
            "--for", help="Measure for so long: 60s, 5m.", metavar="TIME", parser=_seconds
        ),
    ] = 60,
    as_json: Annotated[bool, typer.Option("--json", help=f"JSON, schema {SCHEMA}.")] = False,
    root: Root = None,
) -> None:
    """
    Say which containers would do more in a group, by about how much, and what is given up for it.

    It measures first: who has each card, who waits for it, and how much of it is in use meanwhile.
    """
    both = authority.complaint() if root is None else None
    if both is not None:
        print(f"cgpu: {both}", file=sys.stderr)
    cards, why = _measure(root or procfs.find_root(), sample_s)
    if as_json:
        from . import _json

        document = {
            "schema": SCHEMA,
            "sample_s": sample_s,
            "nvml_reason": why,
            "costs": _COSTS,
            "model": _MODEL,
            "gpus": [_fields(card) for card in cards],
        }
        print(_json.text(document, plain=False))
        return
    for card in cards:
        for line in _lines(card, sample_s, why):
            print(line)
    if any(card.advised for card in cards):
        print("Costs:", *(f"  {line}" for line in _COSTS), sep="\n")
        print(f"Model: {_MODEL}.")


def _measure(root: str, sample_s: int) -> tuple[list[_Card], str | None]:
    """Return the cards after *sample_s* seconds, and why NVML tells nothing, if it does not."""
    sampler = Sampler(card.uuid for card in procfs.find_cards(root) if card.uuid)
    before = counters.read(root)
    if counters.tell_compute(before):
        if sys.stderr.isatty():
            print(f"cgpu: measuring for {sample_s} s", file=sys.stderr)
        end_s = time.monotonic() + sample_s
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left_s))
            sampler.look()
    after = counters.read(root)
    loads = sampler.end()
    moment = snapshot.take(root, before=before, after=after, boards=nvml.read())
    return [_card(moment, view, loads) for view in moment.cards], sampler.why


def _card(moment: Snapshot, view: CardView, loads: dict[str, Load]) -> _Card:
    load = loads.get(view.status.card.uuid, Load())
    found = contender.of_card(moment, view.status.card.index, load.processes)
    return _Card(view, found, load, *advice.advise(found, load))


def _lines(card: _Card, sample_s: int, why: str | None) -> list[str]:
    gpu = f"GPU {card.view.status.card.index}"
    if not card.contenders:
        return [f"{gpu}: nothing to advise: it has no containers"]
    if not card.advised:
        return [f"{gpu}: nothing to advise after {sample_s} s: {_refused(card.declined)}"]
    lines = []
    for one in card.advised:
        what = "in a group" if one.group is None else f"in the group {one.group.id}"
        lines.append(
            f"{gpu}: {_names(one.members)} of {one.owner.of} would do {_times(one.gain)} as much"
            f" {what}"
        )
        lines += _table(one.members)
        lines.append(f"  while they have the card they fill {_percent(one.filled)}")
        lines += [f"  {line}" for line in (*_conditions(card, one), _how(one))]
    missing = card.load.missing
    if missing:
        reason = f" ({why})" if why else ""
        lines.append(f"  NVML does not tell: {', '.join(missing)}{reason}. The bounds are wider")
    lines += [f"  not {_figures(one.contender)}: {one.reason}" for one in card.declined]
    return lines


def _refused(declined: list[Declined]) -> str:
    """Return reasons and figures in one line, of who waits most first."""
    ordered = sorted(declined, key=lambda one: -(one.contender.waited or 0.0))
    told = [f"{_figures(one.contender)} {one.reason}" for one in ordered[:_SHOWN]]
    more = len(ordered) - _SHOWN
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def _figures(one: Contender) -> str:
    name = clean(one.label)
    if one.used is None or one.waited is None:
        return name
    return f"{name} (used {one.used:.1%}, waited {one.waited:.1%})"


def _names(members: tuple[Contender, ...]) -> str:
    return ", ".join(clean(one.label) for one in members)


def _table(members: tuple[Contender, ...]) -> list[str]:
    rows = [["CONTAINER", "USED%", "WAITED%", "KERNELS%"]]
    for one in members:
        parts = (one.used, one.waited, one.busy)
        rows.append(
            [clean(one.label), *("-" if part is None else f"{100 * part:.1f}" for part in parts)]
        )
    widths = [max(width_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            word + " " * (width - width_of(word)) for word, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _times(gain: Bounds) -> str:
    least, most = f"{gain.least:.1f}", f"{gain.most:.1f}"
    return f"{most} times" if least == most else f"{least} to {most} times"


def _percent(part: Bounds) -> str:
    least, most = f"{100 * part.least:.0f}", f"{100 * part.most:.0f}"
    if (least, most) == ("0", "100"):
        return "an unknown part of it"
    return f"{most} % of it" if least == most else f"{least} to {most} % of it"


def _conditions(card: _Card, one: Advice) -> list[str]:
    """Return what stands in the way of this group."""
    found = []
    free_bytes = max(0, card.view.status.card.free_bytes)
    if one.group is None and free_bytes < group.SERVER_BYTES:
        found.append(
            f"its server needs {group.SERVER_BYTES // _MIB} MiB of the card, and"
            f" {free_bytes // _MIB} MiB are not promised: lower a member's limit"
        )
    parked = [clean(member.label) for member in one.members if member.idle_park_s]
    if parked:
        found.append(f"no member is parked when idle: leave that out for {', '.join(parked)}")
    return found


def _how(one: Advice) -> str:
    """Return how its members are started."""
    name = "NAME" if one.group is None else one.group.id
    return f"start them again with: {_command(one.owner, name)}"


def _command(owner: Owner, name: str) -> str:
    if owner.of.startswith("namespace "):
        return f"annotation cgpu.io/group: {name.partition('.')[2] or name} in each pod"
    if owner.of.startswith("containers of "):
        return (
            f"docker run --runtime cgpu --annotation cgpu.io/group={name} ... (CGPU_GROUP={name}"
            " where policy.toml allows it)"
        )
    return f"sudo cgpu run --group {name} ..."


def _fields(card: _Card) -> dict[str, Any]:
    load = card.load
    return {
        "gpu": card.view.status.card.index,
        "uuid": card.view.status.card.uuid or None,
        "kernels": _rounded(load.kernels),
        "sms": _rounded(load.sms),
        "filled": _rounded(load.filled),
        "missing": load.missing,
        "groups": [
            {
                "members": [member.id for member in one.members],
                "owner": one.owner.of,
                "uid": one.owner.uid,
                "group": None if one.group is None else one.group.id,
                "filled": [_rounded(bound) for bound in one.filled],
                "gain": [_rounded(bound) for bound in one.gain],
                "conditions": _conditions(card, one),
                "how": _how(one),
            }
            for one in card.advised
        ],
        "declined": [{"id": one.contender.id, "reason": one.reason} for one in card.declined],
        "containers": [
            {
                "id": one.id,
                "name": one.label,
                "used": _rounded(one.used),
                "waited": _rounded(one.waited),
                "kernels": _rounded(one.busy),
            }
            for one in card.contenders
        ],
    }


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 4)
