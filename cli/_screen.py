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

from . import _meter, _panel, _render
from ._list import List
from ._table import Cell, Column, Look, clean, cut, plain, styled

Key = tuple[int, str]
HISTORY = 16
#: As many as a wide screen shows of a card.
CARD_HISTORY = 240
HELP = (
    "↑ ↓ select   s sort by the next column   r reverse   ← → other columns",
    "space pause   + − faster, slower   c a line a card   q quit",
    "w weight   u quota   m memory limit   i idle park   p the card's policy",
    "Esc give up   Tab to the processes and back   k end the selected process",
)
# What an operator looks at first comes first, and goes last.
CONTAINER_COLUMNS = (
    Column("GPU", right=True),
    Column("Container", shrink=True, least=12),
    Column("Memory / limit", right=True),
    Column("Used", right=True),
    Column("Compute", right=True, spare=2),
    Column("Throttled", right=True, spare=4),
    Column("OOM", right=True, spare=1),
    Column("History", spare=3),
    Column("Weight", right=True, spare=5),
    Column("Quota", right=True, spare=6),
    Column("Granted", right=True, spare=7),
    Column("Id", spare=8),
)
_PINNED = 2
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
    ("memory", lambda one: one.held_bytes),
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
        self.shift = 0
        self.history: dict[Key, deque[float]] = {}
        self.card_history: dict[int, deque[float]] = {}
        self._list = List(CONTAINER_COLUMNS, _PINNED)
        self._process_list = List(PROCESS_COLUMNS, 1)
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
        keys = {_key(one) for _, one in rows}
        if keys != self.history.keys():
            self._list.forget()
        for key in self.history.keys() - keys:
            del self.history[key]
        for card in snapshot.cards:
            if card.utilization is not None:
                past = self.card_history.setdefault(
                    card.status.card.index, deque(maxlen=CARD_HISTORY)
                )
                past.append(card.utilization / 100)
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
        elif key in ("left", "right"):
            last = len(CONTAINER_COLUMNS) - _PINNED - 1
            self.shift = max(0, min(last, self.shift + (1 if key == "right" else -1)))
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
        elif key in EDITS:
            self._begin(EDITS[key])

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

    def _selected_name(self) -> str:
        return "".join(one.label for _, one in self._rows() if _key(one) == self.selected)

    def _selected_group(self) -> str:
        group = next(
            (one.status.group for _, one in self._rows() if _key(one) == self.selected), None
        )
        return f" in group {clean(group)}" if group else ""

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
            return [cut(self.broken or "reading …", width)][:height]
        head = [cut(_render.headline(self.snapshot, look._replace(color=False)), width)]
        if look.color:
            head = [styled(head[0], "title", look)]
        # On a few lines containers count more than what surrounds them.
        lines = head if height >= 8 else []
        lines += self._cards(look, max(0, (height - len(lines) - 1) // 2))
        helps = [cut(text, width) for text in HELP] if self.help else []
        room = height - len(lines) - len(helps) - 1
        held = self._process_rows()
        shown_held = min(len(held), max(1, room // 2 - 2)) if room >= 8 else 0
        rows, place, hidden = self._containers(look, room - (shown_held + 2 if shown_held else 0))
        lines += rows
        if shown_held:
            lines += self._process_table(held, shown_held, look)
        below = [*helps, self._status(look, place, hidden)]
        return lines[: max(0, height - len(below))] + below[-height:]

    def _cards(self, look: Look, room: int) -> list[str]:
        shown = self.snapshot.cards if self.snapshot is not None else ()
        if not self.compact and len(shown) * _panel.HEIGHT <= room:
            return [
                line
                for card in shown
                for line in _panel.lines(
                    card, self.card_history.get(card.status.card.index, ()), look
                )
            ]
        lines = _render.compact(self.snapshot, look) if self.snapshot is not None else []
        if len(lines) > room:
            left = len(lines) - room + 1
            lines = [*lines[: max(0, room - 1)], cut(f"{left} more GPUs", look.width or 80)][:room]
        return lines

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
        title = f"processes of {self._selected_name()}{self._selected_group()}"
        if len(rows) > room:
            title += f", {first + 1} to {first + room} of {len(rows)}"
        lines, _ = self._process_list.draw(group, look)
        return [styled(cut(title, look.width or 80), "dim", look), *lines]

    def _containers(self, look: Look, room: int) -> tuple[list[str], str, list[str]]:
        """Return at most *room* lines, which rows they are, and the titles that have no room."""
        rows = self._rows()
        if not rows:
            return ["no containers"[: look.width]][: max(0, room)], "", []
        room = max(1, room - 1)
        keys = [_key(one) for _, one in rows]
        place = keys.index(self.selected) if self.selected in keys else 0
        first = max(0, min(place - room // 2, len(rows) - room))
        group = []
        for card, one in rows[first : first + room]:
            cells = self._cells(card, one, look)
            if _key(one) == self.selected:
                cells = [Cell(cell.text, "cursor") for cell in cells]
            group.append(cells)
        lines, hidden = self._list.draw(group, look, self.shift)
        shown = f"{first + 1}–{first + len(group)} of {len(rows)}" if len(rows) > room else ""
        return lines, shown, hidden

    def _cells(self, card: CardView, one: ContainerView, look: Look) -> list[Cell]:
        """Return the cells of :data:`CONTAINER_COLUMNS`."""
        gpu, id, name, memory, weight, quota, limit, granted, used, throttled, oom = (
            _render.container_row(card, one)
        )
        past = self.history.get(_key(one), ())
        bars = Cell(_meter.history(past, HISTORY, ascii=look.ascii), "good")
        return [
            *(gpu, id if one.name is None else name, memory, used, limit, throttled, oom),
            *(bars, weight, quota, granted, id),
        ]

    def _status(self, look: Look, place: str, hidden: list[str]) -> str:
        """Return the last line: a question, what is wrong, or what is shown and how."""
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
            arrow = "▼" if self.reverse else "▲"
            words = [state, "? help", "q quit", place, f"by {SORTS[self.sort][0]} {arrow}"]
            if hidden:
                words.append(f"→ {', '.join(hidden)}")
            line = styled(cut(" · ".join(filter(None, words)), width), "dim", look)
        return line


#: What the keys change.
EDITS = {"w": "weight", "u": "quota", "m": "memory", "i": "idle_park", "p": "policy"}
PROMPTS = {
    "weight": "new weight",
    "quota": "new quota in percent, 0 for none",
    "memory": "new memory limit, such as 8GiB",
    "idle_park": "may be parked when idle for so long, such as 5m, or off",
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
