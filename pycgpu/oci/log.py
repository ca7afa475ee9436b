# SPDX-License-Identifier: MIT
"""
The hook's log: one line an event, appended whole, so that hooks in parallel do not mix theirs.

``logging`` is not used: importing it takes longer than all that the hook does.
"""

from __future__ import annotations

import posix
import time

DEFAULT = "/var/log/cgpu-prestart-hook.log"
#: Where users of CTyun's eGPU look: written for containers that speak it, beside the default.
CTYUN = "/var/log/nvidia-egpu-prestart-hook.log"
ROTATE_BYTES = 1 << 20
KEPT = 3
#: Of one text: what a container calls its variables has no end, and the log keeps four files.
_HEAD, _TAIL = 3000, 1000


def shown(text: str) -> str:
    """
    Return *text* as one line that neither a terminal nor a log takes for anything else.

    An image chooses the names of its variables, which errors quote.
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]} ... {text[-_TAIL:]}"
    text = text.replace("\n", " | ")
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else repr(c)[1:-1] for c in text)
    return "".join(escaped)


class HookLog:
    """
    Append lines to files, and rotate each at 1 MiB to ``.1``, ``.2``, ``.3``.

    Attributes:
        ctyun: what :meth:`join_ctyun` adds to the files, or None.
    """

    def __init__(self, paths: tuple[str, ...] = (DEFAULT,), ctyun: str | None = None) -> None:
        self.paths = paths
        self.ctyun = ctyun

    def join_ctyun(self) -> None:
        """Write the lines to come where users of CTyun's eGPU look, too."""
        if self.ctyun is not None and self.ctyun not in self.paths:
            self.paths = (*self.paths, self.ctyun)

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
