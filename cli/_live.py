# SPDX-License-Identifier: MIT
"""
The live view's terminal: enter and leave it, read keys, draw a screen when something changed.

By hand, because cgpu-smi is to start within 150 ms (scripts/dev bench-start). To import this takes
46 ms of processor time, and textual 8.2.8 with its table takes 205 ms (2026-11-29, Python 3.11).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import FrameType

from pycgpu.errors import CgpuError
from pycgpu.tree import counters, nvml, process, snapshot
from pycgpu.tree.counters import Counters
from pycgpu.tree.names import ContainerName
from pycgpu.tree.snapshot import Snapshot

from ._screen import Screen
from ._table import Look

# Alternate screen, no cursor, no wrapping of lines that are too long; and all of it back.
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
#: What a terminal sends for keys that are no character, and their names.
KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
}


class Terminal:
    """The terminal on stdin and stdout; left as it was found, also when the process is stopped."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._in)
        # A signal must end select(), which Python otherwise takes up again.
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Terminal:
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number, handler in (
            (signal.SIGWINCH, self._on_resize),
            (signal.SIGTSTP, self._on_stop),
            (signal.SIGTERM, _on_end),
            (signal.SIGHUP, _on_end),
        ):
            self._handlers[number] = signal.signal(number, handler)
        self._begin()
        return self

    def __exit__(self, *unused: object) -> None:
        self._end()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wake)

    def _begin(self) -> None:
        tty.setcbreak(self._in)
        os.write(self._out, ENTER.encode())

    def _end(self) -> None:
        os.write(self._out, LEAVE.encode())
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        """The signal itself wakes :meth:`keys`; the next picture asks for the size."""

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()

    def draw(self, lines: list[str]) -> None:
        """Show *lines* from the top; one write, so that nothing flickers."""
        text = "\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J"
        data = text.encode()
        while data:
            data = data[os.write(self._out, data) :]

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        size = os.get_terminal_size(self._out)
        return size.columns or 80, size.lines or 24

    def keys(self, timeout_s: float) -> list[str]:
        """Return the keys pressed; none after *timeout_s* or a change of the size."""
        ready, _, _ = select.select([self._in, self._woken], [], [], max(0.0, timeout_s))
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in not in ready:
            return []
        data = os.read(self._in, 4096)
        return split_keys(data.decode(errors="replace")) if data else ["q"]


def split_keys(text: str) -> list[str]:
    """Return what was pressed, of what a terminal sent."""
    keys = []
    while text:
        known = [code for code in KEYS if text.startswith(code)]
        if known and not (known == ["\x1b"] and text[1:2] in ("[", "O")):
            code = max(known, key=len)
            keys.append(KEYS[code])
        elif text[0] == "\x1b":
            # A key that means nothing here: its sequence ends with a letter or '~'.
            end = next((i for i, c in enumerate(text[2:], 3) if c.isalpha() or c == "~"), len(text))
            code = text[:end]
        else:
            code = text[0]
            keys.append(code)
        text = text[len(code) :]
    return keys


def _on_end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def run(
    root: str,
    interval_s: float,
    choose: Callable[[Snapshot], Snapshot],
    look: Look,
    compact: bool = False,
) -> None:
    """Show the tree at *root* every *interval_s* seconds until the user leaves."""
    screen = Screen(root, interval_s, look)
    screen.compact = compact
    known: dict[str, ContainerName] = {}
    before: Counters | None = None
    # What is asked for wrongly must not be said on a screen that goes at once.
    choose(snapshot.take(root, known=known))
    try:
        with nvml.held(), Terminal() as terminal:
            due = time.monotonic()
            while not screen.done:
                now = time.monotonic()
                if now >= due and not screen.paused:
                    # Shares are known from the second reading on: that one does not wait.
                    due = now + (screen.interval_s if before else counters.SAMPLE_S)
                    before = _refresh(screen, root, choose, before, known)
                screen_size = terminal.size()
                terminal.draw(screen.frame(*screen_size))
                wait = 3600.0 if screen.paused else due - time.monotonic()
                for key in terminal.keys(wait):
                    interval = screen.interval_s
                    screen.press(key)
                    due += screen.interval_s - interval
                    if screen.changed:
                        screen.changed, due = False, time.monotonic()
    except KeyboardInterrupt:
        return


def _refresh(
    screen: Screen,
    root: str,
    choose: Callable[[Snapshot], Snapshot],
    before: Counters | None,
    known: dict[str, ContainerName],
) -> Counters | None:
    try:
        after = counters.read(root)
        moment = snapshot.take(root, before=before, after=after, known=known)
    except CgpuError as error:
        screen.fail(str(error))
        return None
    try:
        chosen = choose(moment)
        views = [one.status for card in chosen.cards for one in card.containers]
        screen.update(chosen, process.read(p.pid for one in views for p in one.processes))
    except CgpuError as error:
        # The container that was asked for may be gone, and come back.
        screen.fail(str(error))
    return after
