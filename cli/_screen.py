# SPDX-License-Identifier: MIT
"""What the live view shows and how it answers keys: state and lines, no terminal and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from pycgpu.errors import CgpuError
from pycgpu.tree import change
from pycgpu.tree.snapshot import CardView, ContainerView, Snapshot

from . import _render
from ._table import Cell, Column, Look, cut, draw, plain, styled

Key = tuple[int, str]
HISTORY = 16
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.,-=+*#"
HELP = (
    "↑ ↓ select   s sort by the next column   r reverse   space pause   + − faster, slower",
    "w weight   u quota   m memory limit   p the card's policy   Esc give up   q quit",
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
    """

    what: str
    card: int
    name: str
    typed: str = ""
    confirm: str | None = None
    apply: Callable[[], None] | None = None


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
        self.history: dict[Key, deque[float]] = {}
        self.snapshot: Snapshot | None = None
        self.broken = ""

    # ---- what comes in

    def update(self, snapshot: Snapshot) -> None:
        """Take a new moment."""
        self.snapshot = snapshot
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
        """Answer a key: a character, or 'up', 'down', 'pageup', 'pagedown', 'escape', 'enter'."""
        if self.edit is not None:
            self._edit_key(self.edit, key)
            return
        self.message = ""
        if key == "q":
            self.done = True
        elif key in ("up", "k", "down", "j", "pageup", "pagedown"):
            self._move({"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10}.get(key, 10))
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

    def _move(self, step: int) -> None:
        keys = [_key(one) for _, one in self._rows()]
        if self.selected in keys:
            place = keys.index(self.selected) + step
            self.selected = keys[max(0, min(place, len(keys) - 1))]

    def _begin(self, what: str) -> None:
        if self.selected is None:
            self.message = "no container is selected"
            return
        self.edit = Edit(what, *self.selected)

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
            planned = change.plan(edit.what, edit.card, edit.name, edit.typed, self.root)
        except CgpuError as error:
            self.edit = None
            self.message = str(error)
            return
        subject = f"GPU {edit.card}" if edit.what == "policy" else f"{edit.name}, GPU {edit.card}"
        confirm = f"{edit.what} of {subject}: {planned.shown}: really? (y/N)"
        self.edit = edit._replace(confirm=confirm, apply=planned.apply)

    def _apply(self, edit: Edit) -> None:
        try:
            edit.apply()  # type: ignore[misc]
        except CgpuError as error:
            self.message = str(error)
        else:
            self.message = f"{edit.what} is changed"
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
        lines = [_render.headline(shown, look), *_render.cards(shown.cards, look)]
        below = self._below(look)
        # Three lines are the table's own edges and titles.
        room = height - len(lines) - len(below) - 4
        lines += self._containers(look, max(1, room))
        return lines[: height - len(below)] + below

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
}


def _key(view: ContainerView) -> Key:
    return view.status.card, view.status.name


def _height(view: ContainerView) -> float:
    if view.share.used is not None:
        return min(1.0, view.share.used)
    limit = view.status.memory_bytes
    return min(1.0, view.used_bytes / limit) if limit else 0.0
