# SPDX-License-Identifier: MIT
"""A card in the live view: what it is, how busy and how full it is, and how busy it was."""

from __future__ import annotations

from collections.abc import Sequence

from pycgpu.request.model import MIB
from pycgpu.tree.snapshot import CardView

from . import _meter, _render
from ._table import Look, clean, cut, level, plain, styled

#: Lines that :func:`lines` returns.
HEIGHT = 3
_LABEL = 10
_FIGURES = 30
_BAR_LEAST = 10


def lines(card: CardView, history: Sequence[float], look: Look) -> list[str]:
    """
    Return three lines of at most ``look.width`` columns.

    Args:
        history: parts of the card's time that were used, 0 to 1, the newest last.
    """
    width = look.width or 80
    # The bars of both lines end in the same column, and the history takes what is left.
    bar_width = max(_BAR_LEAST, min(30, (width - _LABEL - _FIGURES) // 2))
    used, promised, total = _render.memory_bytes(card)
    busy = card.utilization
    text = "n/a" if busy is None else f"{busy:.0f} %"
    text = f" {text:>6}  "
    drawn = _meter.history(
        history, max(0, width - _LABEL - bar_width - len(text)), ascii=look.ascii
    )
    memory = f"  {used // MIB} of {total // MIB if total else '?'} MiB, {promised // MIB} promised"
    if parked := card.parked_bytes:
        memory += f", {parked // MIB} parked"
    return [
        cut(plain(_title(card), look), width),
        _line("compute", None if busy is None else busy / 100, "good", bar_width, look)
        + cut(text + drawn, max(0, width - _LABEL - bar_width)),
        _line("memory", used / total if total else None, level(used, total), bar_width, look)
        + cut(memory, max(0, width - _LABEL - bar_width)),
    ]


def _line(label: str, part: float | None, style: str, width: int, look: Look) -> str:
    screen = look.width or 80
    head = cut(f"  {label}".ljust(_LABEL), screen)
    bar = cut(_meter.bar(part, width, ascii=look.ascii), max(0, screen - _LABEL))
    return head + styled(bar, style or "good", look)


def _title(card: CardView) -> str:
    board, status = card.board, card.status.card
    words = [
        f"GPU {status.index}",
        "" if board is None or board.name is None else clean(board.name),
        f"policy {status.policy} {_render.policy_name(status.policy)}",
    ]
    if board is not None and board.temperature_c is not None:
        words.append(f"{board.temperature_c} °C")
    if board is not None and board.power_w is not None:
        limit = "" if board.power_limit_w is None else f" / {board.power_limit_w:.0f}"
        words.append(f"{board.power_w:.0f}{limit} W")
    words.append(f"{len(card.status.containers)}/{status.max_inst} containers")
    return " · ".join(word for word in words if word)
