# SPDX-License-Identifier: MIT
"""
Kills a program at its n-th step: a write, a rename, a removal, a command, as the interpreter's
audit events tell of them. The program knows nothing of it and runs as it always does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

_CHANGES = {
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.truncate"),
    *("os.link", "os.chown", "subprocess.Popen"),
}
_WRITING = os.O_WRONLY | os.O_RDWR


class Steps:
    """
    Counts steps in this process; after the last one given the process is killed.

    Attributes:
        paused: whether steps are not counted now.
        skipped: whether changes of this path are not counted.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.paused: Callable[[], bool] = lambda: False
        self.skipped: Callable[[str], bool] = lambda path: False
        self._done = 0

    def step(self) -> None:
        """Take a step."""
        if self.paused():
            return
        if self._done == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self._done += 1

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """What :func:`sys.addaudithook` calls."""
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if (event in _CHANGES or writes) and not self.skipped(str(arguments[0])):
            self.step()


def killed_after(last: int, run: Callable[[Steps], None]) -> bool:
    """
    Call *run* in a child of this process and kill it after *last* steps.

    Returns:
        False if it came to its end first.

    Raises:
        AssertionError: it failed by itself.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            steps = Steps(last)
            sys.addaudithook(steps.audit)
            run(steps)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0, f"it failed before step {last}"
    return False
