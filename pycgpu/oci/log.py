# SPDX-License-Identifier: MIT
"""
The hook's log: one line an event, appended whole, so that hooks in parallel do not mix theirs.

``logging`` is not used: importing it takes longer than all that the hook does.
"""

from __future__ import annotations

import posix
import sys
import time

DEFAULT = "/var/log/cgpu-prestart-hook.log"
#: The log that users of CTyun's eGPU read; written for such containers besides the default.
CTYUN = "/var/log/nvidia-egpu-prestart-hook.log"
ROTATE_BYTES = 1 << 20
KEPT = 3
#: Bounds of one text: a container's variable names may be long, and the log keeps four files.
_HEAD, _TAIL = 3000, 1000
#: Characters that are shown unchanged. In a shell they execute nothing.
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:=/+%@'\"()[]\\"
)
#: Our own sentences have these, which read as well so.
_LIKE = {"\n": " / ", ";": ",", "`": "'"}


def shown(text: str) -> str:
    """
    Return *text* as one line that no terminal, log or shell interprets.

    An image chooses the names of its variables, which errors quote.
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]} ... {text[-_TAIL:]}"
    if _PLAIN.issuperset(text) and "(" not in text:
        return text
    said = "".join(c if c in _PLAIN else _LIKE.get(c) or _escaped(c) for c in text)
    # For zsh =(…) is a command, and so may be x(…); a sentence has a blank before it.
    return "".join(
        _escaped(c) if c == "(" and before not in " (" else c
        for before, c in zip(" " + said, said, strict=False)
    )


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\U{number:08x}"


class HookLog:
    """
    Append lines to files, and rotate each at 1 MiB to ``.1``, ``.2``, ``.3``.

    Attributes:
        ctyun: the file that :meth:`join_ctyun` adds, or None.
        alone: nothing goes to stderr, because that leads to a file that the container has named.
    """

    alone = False

    def __init__(self, paths: tuple[str, ...] = (DEFAULT,), ctyun: str | None = None) -> None:
        self.paths = paths
        self.ctyun = ctyun

    def join_ctyun(self) -> None:
        """Write the lines to come where users of CTyun's eGPU look, too."""
        if self.ctyun is not None and self.ctyun not in self.paths:
            self.paths = (*self.paths, self.ctyun)

    def say(self, text: str) -> None:
        """Tell the engine's user, who reads stderr."""
        if not self.alone:
            print(f"cgpu: {shown(text)}", file=sys.stderr)

    def line(self, level: str, container_id: str, text: str) -> None:
        """Write one line; a log that cannot be written must not decide over a container."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {level} {shown(container_id[:12])} {shown(text)}\n"
        for path in self.paths:
            try:
                _append(path, line)
            except OSError:
                continue


def _append(path: str, line: str) -> None:
    fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC, 0o640)
    try:
        if posix.fstat(fd).st_size >= ROTATE_BYTES:
            posix.close(fd)
            _rotate(path)
            fd = posix.open(
                path, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC, 0o640
            )
        posix.write(fd, line.encode(errors="backslashreplace"))
    finally:
        posix.close(fd)


def _rotate(path: str) -> None:
    for number in range(KEPT - 1, 0, -1):
        try:
            posix.rename(f"{path}.{number}", f"{path}.{number + 1}")
        except FileNotFoundError:
            continue
    # Gone already if another hook rotated in between; both then append to the new file.
    try:
        posix.rename(path, f"{path}.1")
    except FileNotFoundError:
        return
