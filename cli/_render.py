# SPDX-License-Identifier: MIT
"""A snapshot as lines of text: cards, containers, processes. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pycgpu import __version__
from pycgpu.request.model import MIB, NATIVE, POLICIES
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot, Wait
from pycgpu.tree.status import ProcessUsage

from ._table import Cell, Column, Look, clean, cut, draw, left_out, level, plain, styled, width_of

UNKNOWN = Cell("n/a", "dim")
NONE = Cell("–", "dim")

CARD_COLUMNS = (
    Column("GPU", right=True),
    Column("Name", shrink=True, least=8, spare=1),
    Column("Policy", shrink=True, least=8),
    Column("Containers", right=True, spare=2),
    Column("Used / promised / total MiB", right=True),
    Column("Util", right=True),
    Column("Temp", right=True, spare=3),
    Column("Power", right=True, spare=4),
)
CONTAINER_COLUMNS = (
    Column("GPU", right=True),
    Column("Container"),
    Column("Name", shrink=True),
    Column("Memory / limit MiB", right=True),
    Column("Weight", right=True, spare=4),
    Column("Quota", right=True, spare=5),
    Column("Compute", right=True, spare=2),
    Column("Granted", right=True, spare=6),
    Column("Used", right=True),
    Column("Throttled", right=True, spare=3),
    Column("OOM", right=True, spare=1),
)
PROCESS_COLUMNS = (
    Column("GPU", right=True),
    Column("Container"),
    Column("PID", right=True),
    Column("PID inside", right=True),
    Column("Memory MiB", right=True),
    Column("Command", shrink=True, least=7),
)
_GROUP = Column("Group")


def report(snapshot: Snapshot, look: Look) -> list[str]:
    """Return everything, as ``cgpu-smi`` without arguments prints it."""
    lines = [headline(snapshot, look)]
    if not snapshot.cards:
        return [*lines, "no GPU under control: is NVIDIA's driver loaded? `cgpu doctor` says more"]
    lines += cards(snapshot.cards, look)
    hidden = left_out(CARD_COLUMNS, [[_card(view) for view in snapshot.cards]], look)
    if any(card.containers for card in snapshot.cards):
        lines += containers(snapshot.cards, look)
        hidden += left_out(CONTAINER_COLUMNS, _container_rows(snapshot.cards), look)
        lines += processes(snapshot.cards, look)
    else:
        lines.append("no containers")
    told = notes(snapshot)
    if hidden:
        told.append(f"no room on {look.width} columns: {', '.join(hidden)} (`cgpu-smi | cat`)")
    return lines + [styled(note, "dim", look) for note in told]


def listing(snapshot: Snapshot) -> list[str]:
    """Return what ``nvidia-smi -L`` says of cards, and below each its containers."""
    lines = []
    for card in snapshot.cards:
        name = card.board.name if card.board is not None and card.board.name else "NVIDIA GPU"
        uuid = card.status.card.uuid or "unknown"
        lines.append(f"GPU {card.status.card.index}: {clean(name)} (UUID: {uuid})")
        for one in card.containers:
            limit = one.status.memory_bytes
            size = "no limit" if limit is None else f"{limit // MIB} MiB"
            group = "" if one.status.group is None else f", group: {one.status.group}"
            lines.append(f"  {clean(one.label)}: {size} (ID: {one.status.id}{group})")
    return lines


def compact(snapshot: Snapshot, look: Look) -> list[str]:
    """Return a line a card: what it is, how busy, how full, and by whom."""
    rows = []
    for card in snapshot.cards:
        index, name, _, _, memory, busy, heat, watts = (cell.text for cell in _card(card))
        held = ", ".join(f"{clean(one.label)} {_held(one)}" for one in card.containers)
        used, _, total = memory.split(" / ")
        rows.append([index, name, busy, heat, watts, f"{used} / {total} MiB", held])
    widths = [max(width_of(row[column]) for row in rows) for column in range(6)] if rows else []
    # The name begins where the number ends; all other columns are numbers.
    lines = []
    for row in rows:
        spaces = [" " * (width - width_of(text)) for text, width in zip(row, widths, strict=False)]
        cells = [row[1] + spaces[1]] + [spaces[n] + row[n] for n in range(2, 6)]
        line = f"{spaces[0]}{row[0]}  {'  '.join(cells)}  {row[6]}".rstrip()
        lines.append(plain(line if look.width is None else cut(line, look.width), look))
    return lines


def headline(snapshot: Snapshot, look: Look) -> str:
    """Return the versions of everything that takes part, and when this was."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.time_ns / 1e9))
    driver = snapshot.nvml.driver
    words = [f"module {snapshot.version}", f"driver {driver}" if driver else "", stamp]
    rest = plain(" · ".join(["", *filter(None, words)]), look)
    return styled(f"cgpu-smi {__version__}", "title", look) + rest


def notes(snapshot: Snapshot) -> list[str]:
    """Return a line for each thing that the tables do not tell, and why."""
    lines = []
    if snapshot.nvml.why or not snapshot.nvml.boards:
        missing = "temperature, power" if snapshot.nvml.boards else "name, temperature, power"
        lines.append(f"{missing}: n/a ({clean(snapshot.nvml.why or 'no board in NVML')})")
    for card in snapshot.cards:
        strangers = _served_without_group(card)
        if strangers:
            pids = ", ".join(map(str, strangers))
            lines.append(
                f"GPU {card.status.card.index}: MPS serves {pids} (M+C): they compute in one"
                " context, which no limit divides"
            )
        lines += _groups(card)
        lines += _moved(card)
        if (ratio := card.status.card.overcommit_ratio) > 100:
            lines.append(
                f"GPU {card.status.card.index}: limits may add up to {ratio} % of the card"
            )
        if card.status.stat.get("policy_by_request"):
            lines.append(
                f"GPU {card.status.card.index}: policy {policy_name(card.status.card.policy)} as a"
                " container asks, until the last one goes"
            )
    # Under the driver's own sharing there is no limit to tell of; nor has a member one of its own.
    views = [
        one
        for card in snapshot.cards
        if card.status.card.policy != NATIVE
        for one in card.containers
        if not one.status.leader
    ]
    if views and all(one.limit is None for one in views):
        lines.append("compute: n/a (nothing enforces it: is cgpu_rm loaded?)")
    if views and all(one.share.granted is None and one.share.throttled is None for one in views):
        lines.append("granted, used, throttled: n/a (the module does not tell them)")
    return lines


def _served_without_group(card: CardView) -> list[int]:
    """Return the clients of MPS servers that are none of a group's."""
    grouped = {
        process.pid for one in card.status.containers if one.group for process in one.processes
    }
    return [] if card.board is None else [pid for pid in card.board.mps if pid not in grouped]


def _groups(card: CardView) -> list[str]:
    """Return a line for each group: its row has what its members compute together."""
    members: dict[str, list[str]] = {}
    for one in card.status.containers:
        if one.leader is not None:
            members.setdefault(one.leader, []).append(one.name)
    return [
        f"GPU {card.status.card.index}: group {clean(leader)} computes for {', '.join(names)}"
        for leader, names in members.items()
    ]


def _moved(card: CardView) -> list[str]:
    """Return a line for each container that is not where it computes, and since when."""
    lines = []
    for view in card.containers:
        if view.state_word == "running":
            continue
        size, span = f"{_mib(view.held_bytes)} MiB", _span(view.state_s or 0)
        said = {
            "parking": f"moves to the host, {size}, for {span} so far",
            "parked": f"is parked for {span}, {size} on the host",
            "resuming": f"comes back, {size}, for {span} so far",
        }
        # A later door may have other states.
        what = said.get(view.status.state, f"is {view.status.state} for {span}")
        if view.wait is not None:
            parked = view.status.state != "running"
            what = f"{_waits(view.wait)}{f': {what}' if parked else ''}"
        if (took_s := view.status.last_return_s) is not None:
            what += f", last return {took_s:.1f} s"
        lines.append(f"GPU {view.status.card}: {clean(view.label)} {what}")
    return lines


def _waits(wait: Wait) -> str:
    span = "" if wait.wait_s is None else f" for {_span(wait.wait_s)}"
    if not wait.short_bytes:
        return f"waits{span} until others are back"
    return f"waits{span}, {-(-wait.short_bytes // MIB)} MiB of room are wanting"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def cards(views: Sequence[CardView], look: Look) -> list[str]:
    """Return the table of cards."""
    return draw(CARD_COLUMNS, [[_card(view) for view in views]], look)


def _card(view: CardView) -> list[Cell]:
    card, board = view.status.card, view.board
    used, promised, total_bytes = memory_bytes(view)
    total = _mib(total_bytes) if total_bytes else "?"
    watts = UNKNOWN
    if board is not None and board.power_w is not None:
        limit = "" if board.power_limit_w is None else f" / {board.power_limit_w:.0f}"
        watts = Cell(f"{board.power_w:.0f}{limit} W")
    return [
        Cell(str(card.index)),
        UNKNOWN if board is None or board.name is None else Cell(clean(board.name)),
        Cell(f"{card.policy} {policy_name(card.policy)}"),
        Cell(f"{len(view.status.containers)} / {card.max_inst}"),
        Cell(
            f"{_mib(used)} / {_mib(promised)} / {total}",
            level(used, total_bytes),
        ),
        percent(view.utilization, 0),
        _temperature(None if board is None else board.temperature_c),
        watts,
    ]


def memory_bytes(view: CardView) -> tuple[int, int, int]:
    """Return what of a card is in use, promised to containers, and there; 0: not told."""
    card, board = view.status.card, view.board
    used = card.used_bytes
    if board is not None and board.memory_used_bytes is not None:
        used = board.memory_used_bytes
    return used, card.allocated_bytes, card.total_bytes


def containers(views: Sequence[CardView], look: Look) -> list[str]:
    """Return the table of containers, those of each card together."""
    return draw(CONTAINER_COLUMNS, _container_rows(views), look)


def _container_rows(views: Sequence[CardView]) -> list[list[list[Cell]]]:
    return [[container_row(card, one) for one in card.containers] for card in views]


def container_row(card: CardView, view: ContainerView) -> list[Cell]:
    """Return the cells of :data:`CONTAINER_COLUMNS`."""
    one = view.status
    limit = one.memory_bytes
    full = "" if limit is None else level(view.held_bytes, limit)
    if view.state_word != "running":
        full = "dim" if view.wait is None else "warn"
    throttled = view.share.throttled
    oom = one.events.get("oom", 0)
    return [
        Cell(str(one.card)),
        Cell(one.name),
        NONE if view.name is None else Cell(clean(str(view.name))),
        Cell(f"{_held(view)} / {'no limit' if limit is None else _mib(limit)}", full),
        Cell(str(one.weight), "warn" if one.weight == 0 else ""),
        _quota(one.quota, one.quota_min),
        _limit(card, view),
        ratio(view.share.granted),
        ratio(view.share.used),
        ratio(throttled, "warn" if throttled is not None and throttled > 0.25 else ""),
        Cell(str(oom), "bad" if oom else "dim"),
    ]


def processes(views: Sequence[CardView], look: Look) -> list[str]:
    """Return the table of processes, with their groups if there are any."""
    grouped = any(one.status.group for card in views for one in card.containers)
    rows = [
        [
            _process(one, process, grouped)
            for one in card.containers
            for process in sorted(one.status.processes)
        ]
        for card in views
    ]
    columns = (*PROCESS_COLUMNS[:2], _GROUP, *PROCESS_COLUMNS[2:]) if grouped else PROCESS_COLUMNS
    return draw(columns, rows, look) if any(rows) else ["no processes"]


def _process(view: ContainerView, process: ProcessUsage, grouped: bool) -> list[Cell]:
    # A process that is gone may have left memory behind, which another one holds.
    inside = process.container_pid
    group = view.status.group
    return [
        Cell(str(view.status.card)),
        Cell(view.status.name),
        *([NONE if group is None else Cell(clean(group))] if grouped else ()),
        Cell(str(process.pid)),
        Cell(str(inside)) if inside else NONE,
        Cell(_mib(process.memory_bytes)),
        Cell(clean(process.comm)) if inside else Cell("(ended)", "dim"),
    ]


def able(value: bool | None) -> str | None:
    """Return a switch as nvidia-smi words it."""
    return None if value is None else "Enabled" if value else "Disabled"


def set_by(stat: Mapping[str, int]) -> str:
    """Return whose choice a card's policy is, by the ``stat`` of the card."""
    if stat.get("policy_by_hand"):
        return "hand"
    return "request" if stat.get("policy_by_request") else "default"


def policy_name(policy: int) -> str:
    """Return the name of a policy; one that this version does not know is only a number."""
    return POLICIES[policy] if policy < len(POLICIES) else "?"


def percent(value: float | None, digits: int = 1, style: str = "") -> Cell:
    """Return a number of percent."""
    return UNKNOWN if value is None else Cell(f"{value:.{digits}f} %", style)


def ratio(value: float | None, style: str = "") -> Cell:
    """Return a part of one as percent."""
    return percent(None if value is None else 100 * value, 1, style)


def _held(view: ContainerView) -> str:
    word = view.state_word
    return f"{'' if word == 'running' else f'{word} '}{_mib(view.held_bytes)}"


def _mib(size_bytes: int) -> str:
    return str(round(size_bytes / MIB))


def _quota(quota: int | None, quota_min: int | None) -> Cell:
    if quota is None and quota_min is None:
        return NONE
    highest = "" if quota is None else str(quota)
    return Cell(f"{highest} %" if quota_min is None else f"{quota_min}–{highest or 100} %")


def _limit(card: CardView, view: ContainerView) -> Cell:
    if card.status.card.policy == NATIVE or view.status.leader:
        return NONE
    if view.limit is None:
        return UNKNOWN
    floor, ceiling = (100 * part for part in view.limit[:2])
    return percent(ceiling) if floor == ceiling else Cell(f"{floor:.3g}–{ceiling:.3g} %")


def _temperature(celsius: int | None) -> Cell:
    if celsius is None:
        return UNKNOWN
    return Cell(f"{celsius} °C", "bad" if celsius >= 85 else "warn" if celsius >= 75 else "")
