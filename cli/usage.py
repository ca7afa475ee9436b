# SPDX-License-Identifier: MIT
"""``cgpu usage``: what containers had of the cards over a period, and what they are billed."""

from __future__ import annotations

import datetime
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer

from pycgpu.errors import CgpuError
from pycgpu.tree import cards, nvml, usage_log
from pycgpu.tree.recorder import INTERVAL_S, Recorder
from pycgpu.tree.usage import Spent, Sums, gpu_hours

from . import _number
from ._table import clean, width_of

app = typer.Typer(add_completion=False)

SCHEMA = "cgpu-usage/1"
_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HOUR_S = 3600
_GIB = 1 << 30


class Row(NamedTuple):
    """A container on a card, a card as a whole (``id`` None), or what of it was nobody's."""

    spent: Spent
    gpu_hours: float | None
    idle: bool = False


@app.command("usage")
def usage(
    since: Annotated[
        str, typer.Option(help="A date, a date and time, or so long ago: 90m, 24h, 30d.")
    ] = "24h",
    until: Annotated[str | None, typer.Option(help="As --since; default: now.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help=f"JSON, schema {SCHEMA}.")] = False,
    container: Annotated[
        str | None,
        typer.Option(
            help="This container alone: id, beginning of it, or name. A group with its members."
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record until a signal ends it.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            help="With --record: seconds between two readings.",
            metavar="SECONDS",
            parser=_number.seconds(0.1, 86400),
        ),
    ] = INTERVAL_S,
    directory: Annotated[str, typer.Option(help="Where the record is.")] = usage_log.DIRECTORY,
    settings: Annotated[
        str, typer.Option("--cards", help="Where the cards' units are.")
    ] = cards.PATH,
    root: Annotated[
        str | None,
        typer.Option(help="With --record: the tree; default: that of the module or the agent."),
    ] = None,
) -> None:
    """Show time, memory, energy and GPU-hours of every container, from the record."""
    if record:
        _record(directory, root, interval)
        return
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json are two formats: give one")
    now_s = time.time()
    since_ns, until_ns = (
        _moment(since, now_s),
        now_s * 1e9 if until is None else _moment(until, now_s),
    )
    if since_ns >= until_ns:
        raise CgpuError("--since must be before --until")
    tables = cards.load(settings)
    rows = list(_rows(usage_log.load(directory, int(since_ns), int(until_ns)), tables))
    if container is not None:
        rows = [row for row in rows if _matches(row.spent, container)]
        if not rows:
            raise CgpuError(f"nothing is recorded of a container {container!r} in that time")
    if as_json:
        from . import _json

        document = {
            "schema": SCHEMA,
            "since_ns": int(since_ns),
            "until_ns": int(until_ns),
            "rows": [_fields(row) for row in rows],
        }
        print(_json.text(document, plain=False))
    elif as_csv:
        _print_csv(rows)
    else:
        _print_table(rows)


def _record(directory: str, root: str | None, interval_s: float) -> None:
    writer = usage_log.Writer(directory)
    recorder = Recorder(writer, root)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ended.set())
    try:
        due = time.monotonic()
        while True:
            # It takes long, and first: the moment is that of the counters. Not held in between,
            # for who holds NVML holds the driver.
            boards = nvml.read()
            recorder.sample(time.time_ns(), time.monotonic_ns(), boards)
            if ended.is_set():
                return
            due = max(due + interval_s, time.monotonic())
            ended.wait(due - time.monotonic())
    finally:
        recorder.flush()
        writer.close()


def _moment(text: str, now_s: float) -> float:
    """Return ns since 1970. CgpuError: it is no time."""
    ago = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if ago:
        return (now_s - int(ago[1]) * _AGO[ago[2]]) * 1e9
    try:
        return datetime.datetime.fromisoformat(text).timestamp() * 1e9
    except (ValueError, OverflowError):
        raise CgpuError(f"{text!r} is no time: write 2026-11-01, 2026-11-01T08:00 or 24h") from None


def _matches(spent: Spent, text: str) -> bool:
    if spent.id is None:
        return False
    return spent.id.startswith(text) or text in (spent.name, spent.group)


def _rows(lines: Iterator[usage_log.Line], tables: dict[str, cards.Table]) -> Iterator[Row]:
    """Yield the rows of each card: its containers, the whole, and what was nobody's."""
    found: dict[tuple[str, str | None], tuple[Spent, float]] = {}
    for line in lines:
        spent = line.spent
        hours = gpu_hours(spent, tables)
        key = (spent.uuid or str(spent.card), spent.id)
        if key in found:
            earlier, so_far = found[key]
            # who it was is as of the last line
            members = tuple(sorted({*spent.members, *earlier.members}))
            spent = spent._replace(sums=spent.sums.plus(earlier.sums), members=members)
            hours += so_far
        found[key] = (spent, hours)
    for place in dict.fromkeys(place for place, _ in found):
        own = [(spent, hours) for (at, id), (spent, hours) in found.items() if at == place and id]
        for spent, hours in _in_order(own):
            yield Row(spent, hours)
        whole = found.get((place, None))
        if whole is None:
            continue
        yield Row(whole[0], sum(hours for _, hours in own))
        yield Row(_idle(whole[0], [spent for spent, _ in own]), None, idle=True)


def _in_order(own: list[tuple[Spent, float]]) -> list[tuple[Spent, float]]:
    """Return the most expensive first, of a group the leader and then its members."""
    together: dict[str | None, float] = {}
    for spent, hours in own:
        whose = spent.group or spent.id
        together[whose] = together.get(whose, 0) + hours

    def place(one: tuple[Spent, float]) -> tuple[float, str, bool, float]:
        whose = one[0].group or one[0].id
        return -together[whose], whose or "", one[0].id != whose, -one[1]

    return sorted(own, key=place)


def _idle(whole: Spent, parts: list[Spent]) -> Spent:
    """What of a card was nobody's: the time in which no container ran, and its energy."""
    used_ns = sum(part.sums.used_ns or 0 for part in parts)
    joules = whole.sums.joules
    if joules is not None:
        joules = max(0.0, joules - sum(part.sums.joules or 0 for part in parts))
    seconds = max(0.0, whole.sums.seconds - used_ns / 1e9)
    return whole._replace(sums=Sums(seconds, 0.0, joules=joules))


def _fields(row: Row) -> dict[str, Any]:
    spent, sums = row.spent, row.spent.sums

    def seconds(ns: float | None) -> float | None:
        return None if ns is None else round(ns / 1e9, 6)

    return {
        "gpu": spent.card,
        "uuid": spent.uuid or None,
        "model": spent.model,
        "kind": "idle" if row.idle else "card" if spent.id is None else "container",
        "id": spent.id,
        "name": spent.name,
        "seconds": round(sums.seconds, 6),
        "core": spent.core,
        "memory_bytes": spent.memory_bytes,
        "gpu_hours": None if row.gpu_hours is None else round(row.gpu_hours, 6),
        "used_s": seconds(sums.used_ns),
        "granted_s": seconds(sums.granted_ns),
        "throttled_s": seconds(sums.throttled_ns),
        "waited_s": seconds(sums.waited_ns),
        "memory_gib_hours": round(sums.byte_seconds / _GIB / _HOUR_S, 6),
        "joules": None if sums.joules is None else round(sums.joules, 3),
        "group": spent.group,
        "members": list(spent.members),
    }


def _print_csv(rows: list[Row]) -> None:
    nothing = Row(Spent(0, "", None, 0, None, None, None, None, Sums(0, 0)), None)
    print(",".join(_fields(nothing)))
    for row in rows:
        # Names are others' choice: a comma in one must not make a column more.
        values = (clean(_cell(value)) for value in _fields(row).values())
        print(",".join(value.replace(",", ";").replace('"', "'") for value in values))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(value)
    return "" if value is None else str(value)


def _print_table(rows: list[Row]) -> None:
    titles = (
        *("GPU", "CONTAINER", "NAME", "GROUP", "HOURS", "GPU-HOURS", "USED", "GRANTED"),
        *("THROTTLED", "WAITED", "GIB-HOURS", "WH"),
    )
    lines = [titles, *map(_line, rows)]
    widths = [max(width_of(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (
            word + " " * (width - width_of(word)) for word, width in zip(line, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


def _line(row: Row) -> tuple[str, ...]:
    spent, sums = row.spent, row.spent.sums

    def hours(value: float | None, per_hour: float = _HOUR_S) -> str:
        return "-" if value is None else f"{value / per_hour:.4g}"

    who = "(idle)" if row.idle else "(all)" if spent.id is None else spent.id[:12]
    times = (sums.used_ns, sums.granted_ns, sums.throttled_ns, sums.waited_ns)
    return (
        str(spent.card),
        who,
        clean(spent.name or "-"),
        clean(_group(spent)),
        hours(sums.seconds),
        hours(row.gpu_hours, 1),
        *(hours(time, _HOUR_S * 1e9) for time in times),
        hours(None if row.idle else sums.byte_seconds, _GIB * _HOUR_S),
        hours(sums.joules),
    )


def _group(spent: Spent) -> str:
    """Return what a container's group is; of a leader, who its members are."""
    if spent.members:
        return f"of {', '.join(spent.members)}"
    return spent.group or "-"
