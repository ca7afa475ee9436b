# SPDX-License-Identifier: MIT
"""What the live view shows and how it answers keys: state and lines, no terminal and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, cast

from pycgpu.errors import CgpuError
from pycgpu.request.model import MIB
from pycgpu.tree import change, process
from pycgpu.tree.process import Process
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot
from pycgpu.tree.status import ProcessUsage

from . import _render
from ._table import Cell, Column, Look, clean, cut, draw, plain, styled

Key = tuple[int, str]
HISTORY = 16
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.,-=+*#"
HELP = (
    "↑ ↓ select   s sort by the next column   r reverse   space pause   + − faster, slower",
    "w weight   u quota   m memory limit   p the card's policy   Esc give up   q quit",
    "Tab to the processes and back   k end the selected process   c a line a card",
)
PROCESS_COLUMNS = (
    Column("PID", right=True),
    Column("PID inside", right=True, spare=4),
    Column("User", shrink=True, least=4, spare=3),
    Column("CPU", right=True, spare=1),
    Column("Host MiB", right=True, spare=2),
    Column("GPU MiB", right=True),
    Column("Command", shrink=True),
)
SORTS: tuple[tuple[str, Callable[[ContainerView], str | float]], ...] = (
    ("container", lambda one: one.status.name),
    ("name", lambda one: "" if one.name is None else str(one.name)),
    ("memory", lambda one: one.used_bytes),
    ("weight", lambda one: one.status.weight),
    ("used", lambda one: one.share.used or 0),
    ("throttled", lambda one: one.share.throttled or 0),
)


class Edit(NamedTuple):
    """
    A change that is being made. ``confirm`` is the question before it, None while typing.

    apply: makes the change.
    pid: of the process that is to end, with what ``kill``.
    """

    what: str
    card: int
    name: str
    typed: str = ""
    confirm: str | None = None
    apply: Callable[[], None] | None = None
    pid: int = 0


class Screen:
    """
    ``interval_s`` and ``paused`` are the caller's to obey; ``done`` says to leave, ``changed``
    that the user wrote something and wants to see it.
    """

    def __init__(self, root: str, interval_s: float, look: Look) -> None:
        self.root = root
        self.interval_s = interval_s
        self.look = look
        self.paused = False
        self.done = False
        self.changed = False
        self.sort = 0
        self.reverse = False
        self.selected: Key | None = None
        self.edit: Edit | None = None
        self.message = ""
        self.help = False
        self.compact = False
        # The selected process, where keys move among processes and not among containers.
        self.among_processes = False
        self.pid: int | None = None
        self.history: dict[Key, deque[float]] = {}
        self.running: Mapping[int, Process] = {}
        self.ran: Mapping[int, Process] = {}
        self.snapshot: Snapshot | None = None
        self.broken = ""

    # ---- what comes in

    def update(self, snapshot: Snapshot, running: Mapping[int, Process] | None = None) -> None:
        """Take a new moment, with the host's view of the processes in it."""
        self.snapshot = snapshot
        self.ran, self.running = self.running, running or {}
        self.broken = ""
        rows = self._rows()
        for key in self.history.keys() - {_key(one) for _, one in rows}:
            del self.history[key]
        for _, one in rows:
            self.history.setdefault(_key(one), deque(maxlen=HISTORY)).append(_height(one))
        if self.selected not in self.history:
            self.selected = _key(rows[0][1]) if rows else None

    def fail(self, why: str) -> None:
        """Show that there is nothing new to show; the module may come back."""
        self.broken = why
        self.message = ""

    def press(self, key: str) -> None:
        """Answer a key: a character, or one of :data:`pycgpu.cli._live.KEYS` by its name."""
        if self.edit is not None:
            self._edit_key(self.edit, key)
            return
        self.message = ""
        if key == "q":
            self.done = True
        elif key in ("up", "down", "pageup", "pagedown"):
            self._move({"up": -1, "down": 1, "pageup": -10, "pagedown": 10}[key])
        elif key == "tab":
            self.among_processes = not self.among_processes
        elif key == "c":
            self.compact = not self.compact
        elif key == "k":
            self._begin_kill()
        elif key == "s":
            self.sort = (self.sort + 1) % len(SORTS)
        elif key == "r":
            self.reverse = not self.reverse
        elif key == " ":
            self.paused = not self.paused
        elif key in ("+", "-", "−"):
            factor = 0.5 if key == "+" else 2
            self.interval_s = min(60.0, max(0.25, self.interval_s * factor))
        elif key in ("?", "h"):
            self.help = not self.help
        elif key in ("w", "u", "m", "p"):
            self._begin({"w": "weight", "u": "quota", "m": "memory", "p": "policy"}[key])

    def _rows(self) -> list[tuple[CardView, ContainerView]]:
        if self.snapshot is None:
            return []
        rows = []
        for card in self.snapshot.cards:
            # One column's values are all of one type.
            by = cast(Callable[[ContainerView], float], SORTS[self.sort][1])
            ordered = sorted(card.containers, key=by, reverse=self.reverse)
            rows += [(card, one) for one in ordered]
        return rows

    def _processes(self) -> list[tuple[ProcessUsage, int]]:
        """Return the processes of the selected container, each with its depth in their tree."""
        for _, one in self._rows():
            if _key(one) == self.selected:
                held = {usage.pid: usage for usage in one.status.processes}
                return [(held[pid], depth) for pid, depth in process.forest(held, self.running)]
        return []

    def _selected_process(self) -> ProcessUsage | None:
        listed = [one for one, _ in self._processes()]
        return next((one for one in listed if one.pid == self.pid), listed[0] if listed else None)

    def _move(self, step: int) -> None:
        if self.among_processes:
            pids = [one.pid for one, _ in self._processes()]
            chosen = self._selected_process()
            if chosen is not None:
                place = pids.index(chosen.pid) + step
                self.pid = pids[max(0, min(place, len(pids) - 1))]
            return
        keys = [_key(one) for _, one in self._rows()]
        if self.selected in keys:
            place = keys.index(self.selected) + step
            self.selected = keys[max(0, min(place, len(keys) - 1))]

    def _begin(self, what: str) -> None:
        if self.selected is None:
            self.message = "no container is selected"
            return
        self.edit = Edit(what, *self.selected)

    def _begin_kill(self) -> None:
        chosen = self._selected_process() if self.among_processes else None
        if self.selected is None or chosen is None:
            self.message = "no process is selected: Tab leads to a container's processes"
            return
        self.edit = Edit("kill", *self.selected, pid=chosen.pid)

    def _edit_key(self, edit: Edit, key: str) -> None:
        if key == "escape":
            self.edit = None
            self.message = "nothing was changed"
        elif edit.confirm is not None:
            self.edit = None
            self.message = "nothing was changed"
            if key in ("y", "Y") and edit.apply is not None:
                self._apply(edit)
        elif key == "enter":
            self._ask(edit)
        elif key in ("\x7f", "\b"):
            self.edit = edit._replace(typed=edit.typed[:-1])
        elif len(key) == 1 and key.isprintable():
            self.edit = edit._replace(typed=edit.typed + key)

    def _ask(self, edit: Edit) -> None:
        try:
            if edit.what == "kill":
                self._ask_kill(edit)
                return
            planned = change.plan(edit.what, edit.card, edit.name, edit.typed, self.root)
        except CgpuError as error:
            self.edit = None
            self.message = str(error)
            return
        subject = f"GPU {edit.card}" if edit.what == "policy" else f"{edit.name}, GPU {edit.card}"
        confirm = f"{edit.what} of {subject}: {planned.shown}: really? (y/N)"
        self.edit = edit._replace(confirm=confirm, apply=planned.apply)

    def _ask_kill(self, edit: Edit) -> None:
        name = process.parse_signal(edit.typed)
        one = self.running.get(edit.pid)
        shown = "" if one is None else f" {clean(one.command)[:40]}"
        confirm = f"SIG{name} to {edit.pid}{shown} of {edit.name}: really? (y/N)"
        send = partial(process.send, name, edit.pid, edit.card, edit.name, self.root)
        self.edit = edit._replace(confirm=confirm, apply=send)

    def _apply(self, edit: Edit) -> None:
        try:
            edit.apply()  # type: ignore[misc]
        except CgpuError as error:
            self.message = str(error)
        else:
            self.message = f"{edit.what} is changed"
            if edit.what == "kill":
                self.message = f"{edit.pid} was sent the signal"
            self.changed = True

    # ---- what comes out

    def frame(self, width: int, height: int) -> list[str]:
        """Return the lines of a screen of this size, at most *height*."""
        look = self.look._replace(width=width)
        return [plain(line, look) for line in self._frame(look, width, height)]

    def _frame(self, look: Look, width: int, height: int) -> list[str]:
        if self.snapshot is None:
            return [cut(self.broken or "reading …", width)]
        shown = self.snapshot
        lines = [_render.headline(shown, look)]
        if self.compact:
            lines += _render.compact(shown, look)
        else:
            lines += _render.cards(shown.cards, look)
        below = self._below(look)
        room = height - len(lines) - len(below)
        # Four lines are a table's own edges and titles.
        held = self._process_rows()
        shown_held = min(len(held), max(3, room // 2 - 4)) if held and room >= 12 else 0
        lines += self._containers(look, max(1, room - 4 - (shown_held + 4 if shown_held else 0)))
        if shown_held:
            lines += self._process_table(held, shown_held, look)
        return lines[: height - len(below)] + below

    def _process_rows(self) -> list[tuple[int, list[Cell]]]:
        """Return the selected container's processes as (pid, cells)."""
        rows = []
        for usage, depth in self._processes():
            one = self.running.get(usage.pid)
            inside = usage.container_pid
            busy = process.cpu_share(self.ran.get(usage.pid), one)
            command = clean(usage.comm if one is None else one.command) if inside else "(ended)"
            cells = [
                Cell(str(usage.pid)),
                Cell(str(inside)) if inside else _render.NONE,
                _render.UNKNOWN if one is None else Cell(clean(one.user)),
                _render.UNKNOWN if busy is None else Cell(f"{100 * busy:.0f} %"),
                _render.UNKNOWN if one is None else Cell(str(one.resident_bytes // MIB)),
                Cell(str(usage.memory_bytes // MIB)),
                Cell("  " * (depth - 1) + "└ " * bool(depth) + command, "" if inside else "dim"),
            ]
            rows.append((usage.pid, cells))
        return rows

    def _process_table(
        self, rows: list[tuple[int, list[Cell]]], room: int, look: Look
    ) -> list[str]:
        chosen = self._selected_process() if self.among_processes else None
        pids = [pid for pid, _ in rows]
        place = pids.index(chosen.pid) if chosen is not None else 0
        first = max(0, min(place - room // 2, len(rows) - room))
        group = [
            [Cell(cell.text, "cursor") for cell in cells]
            if chosen is not None and pid == chosen.pid
            else cells
            for pid, cells in rows[first : first + room]
        ]
        title = f"processes of {self.selected[1]}" if self.selected else ""
        if len(rows) > room:
            title += f", {first + 1} to {first + room} of {len(rows)}"
        return draw(PROCESS_COLUMNS, [group], look, title)

    def _containers(self, look: Look, room: int) -> list[str]:
        rows = self._rows()
        if not rows:
            return ["no containers"]
        keys = [_key(one) for _, one in rows]
        place = keys.index(self.selected) if self.selected in keys else 0
        first = max(0, min(place - room // 2, len(rows) - room))
        groups: dict[int, list[list[Cell]]] = {}
        for card, one in rows[first : first + room]:
            cells = [*_render.container_row(card, one), self._bars(_key(one), look)]
            if _key(one) == self.selected:
                cells = [Cell(cell.text, "cursor") for cell in cells]
            groups.setdefault(0, []).append(cells)
        columns = (*_render.CONTAINER_COLUMNS, Column(self._history_title(), spare=4))
        arrow = "▼" if self.reverse else "▲"
        title = f"by {SORTS[self.sort][0]} {arrow}"
        if len(rows) > room:
            title += f", {first + 1} to {min(first + room, len(rows))} of {len(rows)}"
        return draw(columns, groups.values(), look, title)

    def _history_title(self) -> str:
        told = any(one.share.used is not None for _, one in self._rows())
        return "Used, history" if told else "Memory, history"

    def _bars(self, key: Key, look: Look) -> Cell:
        bars = _ASCII_BARS if look.ascii else _BARS
        return Cell("".join(bars[round(part * 7)] for part in self.history.get(key, ())), "good")

    def _below(self, look: Look) -> list[str]:
        width = look.width or 80
        if self.edit is not None and self.edit.confirm is not None:
            line = styled(cut(self.edit.confirm, width), "warn", look)
        elif self.edit is not None:
            line = cut(f"{PROMPTS[self.edit.what]}: {self.edit.typed}_", width)
        elif self.broken:
            line = styled(cut(self.broken, width), "bad", look)
        elif self.message:
            line = cut(self.message, width)
        else:
            state = "paused" if self.paused else f"every {self.interval_s:g} s"
            line = styled(cut(f"{state} · ? help · q quit", width), "dim", look)
        helps = [cut(text, width) for text in HELP] if self.help else []
        return [*helps, line]


PROMPTS = {
    "weight": "new weight",
    "quota": "new quota in percent, 0 for none",
    "memory": "new memory limit, such as 8GiB",
    "policy": "new policy, number or name",
    "kill": "signal, TERM (also where nothing is typed) or KILL",
}


def _key(view: ContainerView) -> Key:
    return view.status.card, view.status.name


def _height(view: ContainerView) -> float:
    if view.share.used is not None:
        return min(1.0, view.share.used)
    limit = view.status.memory_bytes
    return min(1.0, view.used_bytes / limit) if limit else 0.0
