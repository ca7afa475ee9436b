# SPDX-License-Identifier: MIT
"""
Watches what a group's keeper needs to see end: the daemon's servers, and the members' programs.

The daemon starts a server with the first program, and another after a server's end. The driver does
not tell which member's program brought a server down. So the keeper tells whose program was the
last to end before the server.
"""

from __future__ import annotations

import contextlib
import os
import select
import time

from pycgpu.agent import clients
from pycgpu.errors import CgpuError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: A program that ends at most this long before a server is named with the server's end.
_BEFORE_S = 1.0
#: The pause between two looks for new programs, which read all containers' nodes.
_LOOK_S = 2.0


def children(of: int | str = "self") -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    # The process may end meanwhile, or a thread of it.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{of}/task"):
            with open(f"/proc/{of}/task/{thread}/children") as file:
                found += [int(word) for word in file.read().split()]
    return found


class Watch:
    """
    Watches the servers of *daemon*, and the programs of the group *name*.

    Attributes:
        servers: those alive at the last look, by the host's numbers.
    """

    def __init__(self, daemon: int, name: str, root: str) -> None:
        self._daemon, self._name, self._root = daemon, name, root
        self._handles: dict[int, int] = {}
        self._programs: dict[int, clients.Client] = {}
        self._looked_s = 0.0
        self._last: tuple[float, str] | None = None
        #: Servers and programs that have ended, but are not yet reaped.
        self._gone: set[int] = set()

    @property
    def servers(self) -> list[int]:
        return sorted(self._handles)

    @property
    def handles(self) -> list[int]:
        """Pidfds of the servers; the watch closes each when its server ends."""
        return list(self._handles.values())

    @property
    def ended_before(self) -> str | None:
        """The member whose program ended just before now."""
        if self._last is None or time.monotonic() - self._last[0] > _BEFORE_S:
            return None
        return self._last[1]

    def new_servers(self) -> list[int]:
        """Look for servers that the daemon has started."""
        self._gone = {pid for pid in self._gone if os.path.exists(f"/proc/{pid}")}
        new = sorted(set(children(self._daemon)) - set(self._handles) - self._gone)
        self._open(new)
        return [pid for pid in new if pid in self._handles]

    def _open(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._handles[pid] = os.pidfd_open(pid)

    def wait(self, seconds: float) -> list[int]:
        """Return the servers that end within that time, as soon as one does."""
        self._look_for_programs()
        deadline_s = time.monotonic() + seconds
        while True:
            left_s = deadline_s - time.monotonic()
            found = self._ended(max(left_s, 0))
            ended = [pid for pid, handle in self._handles.items() if handle in found]
            for pid in ended:
                os.close(self._handles.pop(pid))
                self._gone.add(pid)
            if ended or left_s <= 0:
                return ended
            # A program that ends with the server is left out: the server may have ended it.
            for member in self._drop_programs(found):
                self._last = time.monotonic(), member

    def forget_ended(self) -> None:
        """Ignore programs that have ended since the last wait."""
        self._drop_programs(self._ended(0))

    def _drop_programs(self, handles: set[int]) -> list[str]:
        """Return the members that the dropped programs belonged to."""
        ended = [one for one in self._programs.values() if one.handle in handles]
        for one in ended:
            del self._programs[one.pid]
            os.close(one.handle)
            self._gone.add(one.pid)
        return [one.member for one in ended]

    def _ended(self, seconds: float) -> set[int]:
        poll = select.poll()
        for handle in (*self._handles.values(), *(one.handle for one in self._programs.values())):
            poll.register(handle, select.POLLIN)
        return {handle for handle, _ in poll.poll(seconds * 1000)}

    def _look_for_programs(self) -> None:
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        # Between one agent and the next no door answers.
        with contextlib.suppress(CgpuError):
            new = clients.find(self._name, self._root, known=self._programs.keys() | self._gone)
            self._programs.update((one.pid, one) for one in new)
