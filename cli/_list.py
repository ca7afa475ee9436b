# SPDX-License-Identifier: MIT
"""A list without boxes, for a screen on which each line counts: titles, then a line a row."""

from __future__ import annotations

from collections.abc import Sequence

from ._table import Cell, Column, Look, padded, plain, room_for, shrink, styled, width_of

GAP = "  "


class List:
    """
    Columns that keep their widths from one picture to the next.

    Args:
        columns: ``spare`` tells which are left out first on a narrow screen.
        pinned: so many of them, the first, stay where the others are shifted.
    """

    def __init__(self, columns: Sequence[Column], pinned: int = 0) -> None:
        self.columns = tuple(columns)
        self.pinned = pinned
        self._widest = [width_of(column.title) for column in columns]

    def forget(self) -> None:
        """Let columns be as narrow as the next rows allow."""
        self._widest = [width_of(column.title) for column in self.columns]

    def draw(
        self, rows: Sequence[Sequence[Cell]], look: Look, shift: int = 0
    ) -> tuple[list[str], list[str]]:
        """
        Return the lines, and the titles of the columns for which there is no room.

        Args:
            rows: of one cell a column.
            shift: leave out so many columns after the pinned ones, so that the last ones show.
        """
        for index in range(len(self.columns)):
            found = [width_of(plain(row[index].text, look)) for row in rows]
            self._widest[index] = max([self._widest[index], *found])
        kept = self._kept(look, shift)
        columns = [self.columns[index] for index in kept]
        widths = [self._widest[index] for index in kept]
        shrink(widths, columns, look, len(GAP) * (len(kept) - 1))
        if look.width is not None:
            # A screen on which not even what may not go has room.
            while len(kept) > 1 and sum(widths) + len(GAP) * (len(kept) - 1) > look.width:
                del kept[-1], columns[-1], widths[-1]
            widths[0] = min(widths[0], look.width)
        titles = [Cell(column.title, "head") for column in columns]
        lines = [
            self._line([cells[n] for n in range(len(kept))], widths, columns, look)
            for cells in (titles, *([row[index] for index in kept] for row in rows))
        ]
        hidden = [c.title for index, c in enumerate(self.columns) if index not in kept]
        return lines, hidden

    def _kept(self, look: Look, shift: int) -> list[int]:
        every = range(len(self.columns))
        shown = [index for index in every if not self.pinned <= index < self.pinned + shift]
        columns = [self.columns[index] for index in shown]
        if shift:
            # The list runs to the right as far as the screen goes.
            columns = [
                column._replace(spare=0 if index < self.pinned else index)
                for index, column in zip(shown, columns, strict=True)
            ]
        widths = [self._widest[index] for index in shown]
        fits = room_for(widths, columns, look, len(GAP), -len(GAP))
        return [shown[place] for place in fits]

    @staticmethod
    def _line(
        cells: Sequence[Cell], widths: Sequence[int], columns: Sequence[Column], look: Look
    ) -> str:
        # The bar of the cursor, and the line below titles, have no holes.
        whole = {cell.style for cell in cells} & {"cursor", "head"}
        inner = look._replace(color=look.color and not whole)
        text = GAP.join(
            padded(cell, width, column, inner)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        )
        return styled(text, whole.pop(), look) if whole else text
