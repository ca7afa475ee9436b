# SPDX-License-Identifier: MIT
"""Boxed tables of styled text: no I/O, no dependency, so that the first line comes at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Styles as SGR parameters.
STYLES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "good": "32",
    "warn": "33",
    "bad": "31",
    "title": "1;36",
    "cursor": "7",
    "head": "1;4",
}


class Cell(NamedTuple):
    """Text and the name of its style, of :data:`STYLES`."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """
    ``shrink``: may be cut, down to ``least`` columns, when the screen is narrow. ``spare``: left
    out where that is not enough, the highest first; 0 stays.
    """

    title: str
    right: bool = False
    shrink: bool = False
    least: int = 8
    spare: int = 0


class Look(NamedTuple):
    """``width`` None: as wide as the content. ``ascii``: nothing but ASCII comes out."""

    color: bool = False
    ascii: bool = False
    width: int | None = None


class _Box(NamedTuple):
    top: str
    middle: str
    bottom: str
    line: str
    side: str


_UNICODE = _Box("╭┬╮", "├┼┤", "╰┴╯", "─", "│")
_ASCII = _Box("+++", "+++", "+++", "-", "|")
_REPLACED = {"…": "~", "–": "-", "·": "-", "×": "x", "→": "->", "°": "", "▲": "^", "▼": "v"}
_REPLACED |= {"─": "-", "│": "|", "−": "-", "↑": "up", "↓": "down", "└": "`", "├": "|", "≥": ">="}


def width_of(text: str) -> int:
    """Return the columns that *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def clean(text: str) -> str:
    """Return *text* without what could move a terminal's cursor; others choose their names."""
    return "".join(c if c.isprintable() else "?" for c in text)


def cut(text: str, width: int) -> str:
    """Return at most *width* columns of *text*, with an ellipsis where something is missing."""
    if width_of(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += width_of(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…" if width else ""


def styled(text: str, style: str, look: Look) -> str:
    """Return *text* as *look* wants it."""
    code = STYLES[style] if look.color else ""
    text = plain(text, look)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def level(used: int, total: int) -> str:
    """Return the style of so much of *total*: nothing to say, rather full, or nearly full."""
    if not total or used < 0.75 * total:
        return ""
    return "warn" if used < 0.9 * total else "bad"


def plain(text: str, look: Look) -> str:
    """Return *text* in ASCII if *look* wants that."""
    if not look.ascii or text.isascii():
        return text
    return "".join(c if c.isascii() else _REPLACED.get(c, "?") for c in text)


def draw(
    columns: Sequence[Column],
    groups: Iterable[Sequence[Sequence[Cell]]],
    look: Look,
    title: str = "",
) -> list[str]:
    """
    Return the lines of a table.

    Args:
        groups: of rows, of one cell a column; a line is drawn between two groups.
        title: stands in the upper edge.
    """
    shown, widths = _measured(columns, groups, look)
    kept = room_for(widths, columns, look, 3, 1)
    columns = [columns[index] for index in kept]
    widths = [widths[index] for index in kept]
    shown = [[[row[index] for index in kept] for row in group] for group in shown]
    shrink(widths, columns, look, 3 * len(widths) + 1)
    box = _ASCII if look.ascii else _UNICODE

    def edge(corners: str) -> str:
        return (
            corners[1]
            .join(box.line * (width + 2) for width in widths)
            .join((corners[0], corners[2]))
        )

    def line(cells: Sequence[Cell]) -> str:
        return (
            box.side
            + box.side.join(
                f" {padded(cell, width, column, look)} "
                for cell, width, column in zip(cells, widths, columns, strict=True)
            )
            + box.side
        )

    top = edge(box.top)
    if title:
        label = plain(f"{box.line} {cut(title, max(0, len(top) - 6))} ", look)
        top = top[0] + label + top[1 + width_of(label) :]
    lines = [top, line([Cell(column.title, "bold") for column in columns]), edge(box.middle)]
    for index, group in enumerate(shown):
        if index:
            lines.append(edge(box.middle))
        lines += [line(row) for row in group]
    return [*lines, edge(box.bottom)]


def _measured(
    columns: Sequence[Column], groups: Iterable[Sequence[Sequence[Cell]]], look: Look
) -> tuple[list[list[list[Cell]]], list[int]]:
    """Return the cells as they are drawn, and how wide each column is."""
    shown = [
        [[Cell(plain(cell.text, look), cell.style) for cell in row] for row in group]
        for group in groups
        if group
    ]
    widths = [
        max(
            [width_of(column.title)]
            + [width_of(row[index].text) for group in shown for row in group]
        )
        for index, column in enumerate(columns)
    ]
    return shown, widths


def left_out(
    columns: Sequence[Column], groups: Iterable[Sequence[Sequence[Cell]]], look: Look
) -> list[str]:
    """Return the titles of the columns for which :func:`draw` finds no room."""
    kept = room_for(_measured(columns, groups, look)[1], columns, look, 3, 1)
    return [column.title for index, column in enumerate(columns) if index not in kept]


def room_for(
    widths: Sequence[int], columns: Sequence[Column], look: Look, each: int, edges: int
) -> list[int]:
    """
    Return the indexes of the columns for which there is room.

    Args:
        each, edges: what a column, and the line, take besides the columns' own widths.
    """
    kept = list(range(len(columns)))
    if look.width is None:
        return kept
    least = [
        min(width, column.least) if column.shrink else width
        for width, column in zip(widths, columns, strict=True)
    ]
    while sum(least[i] + each for i in kept) + edges > look.width:
        spare = [i for i in kept if columns[i].spare]
        if not spare:
            break
        kept.remove(max(spare, key=lambda i: columns[i].spare))
    return kept


def shrink(widths: list[int], columns: Sequence[Column], look: Look, besides: int) -> None:
    """
    Cut the widest column that may be cut, until the line fits.

    Args:
        besides: what the line takes besides the columns' own widths.
    """
    if look.width is None:
        return
    excess = sum(widths) + besides - look.width
    while excess > 0:
        able = [i for i, c in enumerate(columns) if c.shrink and widths[i] > c.least]
        if not able:
            return
        widths[max(able, key=lambda i: widths[i])] -= 1
        excess -= 1


def padded(cell: Cell, width: int, column: Column, look: Look) -> str:
    """Return a cell as wide as its column, cut where it is wider."""
    text = plain(cut(cell.text, width), look)
    space = " " * (width - width_of(text))
    drawn = styled(text, cell.style, look)
    return space + drawn if column.right else drawn + space
