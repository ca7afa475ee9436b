# SPDX-License-Identifier: MIT
"""
The OOM script: when an allocation is refused, run the container's script, then end the process.

The hook leaves one watcher a container, which lives as long as the container's first process. The
door refuses the allocation by itself (``oom_action=fail``), so a watcher that dies costs the
notice and never the limit.

The tenant chooses the script's path. So the script runs with the confinement of the offending
process (:mod:`.confine`), or of the container's first one if that process has ended. A failure at
one event does not affect the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal

from ..errors import CgpuError
from ..tree import procfs
from . import confine, notice
from .log import HookLog

SCRIPT_TIMEOUT_S = 30.0
STDERR = 2
_SYS_PIDFD_GETFD = 438


def parse_event(line: str, container_id: str) -> tuple[int, int] | None:
    """
    Return (card, process) if *line* of ``events`` tells of an OOM in the container.

    The line reads ``<ns> oom id=<full id> gpu=<n> pid=<host's number> bytes=<asked>``.
    """
    words = line.split()
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    if words[1:2] != ["oom"] or fields.get("id") != container_id:
        return None
    card, pid = fields.get("gpu", ""), fields.get("pid", "")
    if not (card.isdecimal() and pid.isdecimal()):
        raise CgpuError(f"events: cannot read {line!r}")
    return int(card), int(pid)


class Watcher:
    """Wait for refused allocations of one container until its first process ends."""

    def __init__(
        self, container_id: str, root: str, init_pid: int, kill: bool, script: str, log: HookLog
    ) -> None:
        self.container_id = container_id
        self.init_pid = init_pid
        self.kill = kill
        self.script = script
        self.log = log
        self.seen: set[int] = set()
        self.init_fd = os.pidfd_open(init_pid)
        self.events_fd = procfs.open_events(root)

    def watch(self) -> None:
        """Serve events until the container is gone."""
        poll = select.poll()
        poll.register(self.init_fd, select.POLLIN)
        poll.register(self.events_fd, select.POLLIN | select.POLLPRI)
        lines = procfs.new_events(self.events_fd)
        while True:
            for line in self._since_create(lines):
                event = parse_event(line, self.container_id)
                if event is not None:
                    self._act(*event)
            ready = dict(poll.poll())
            lines = procfs.new_events(self.events_fd) if self.events_fd in ready else []
            if self.init_fd in ready and not lines:
                return
            if not lines and ready[self.events_fd] & (select.POLLHUP | select.POLLERR):
                raise CgpuError("events: the door went away")

    def _since_create(self, lines: list[str]) -> list[str]:
        # The ring also has old lines, and an id may be registered again while we watch. So lines
        # before its last creation are about processes of an earlier container.
        created = [
            number
            for number, line in enumerate(lines)
            if line.split()[1:] == ["create", f"id={self.container_id}"]
        ]
        if not created:
            return lines
        self.seen.clear()
        return lines[created[-1] + 1 :]

    def _act(self, card: int, pid: int) -> None:
        if pid in self.seen:
            return
        self.seen.add(pid)
        # Held from before the script: the number may be another process's afterwards.
        fd = _pidfd(pid)
        try:
            if fd is not None and not _same_container(pid, self.init_pid):
                return
            self.tell(f"process {pid} is out of GPU memory on card {card}")
            first = (self.init_pid, self.init_fd)
            self._run_script(card, pid, [first] if fd is None else [(pid, fd), first])
            if self.kill and fd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    self.tell(f"process {pid} is killed for it (SIGKILL)")
        except OSError as error:
            self.log.line("ERROR", self.container_id, f"process {pid}: {error}")
        finally:
            if fd is not None:
                os.close(fd)

    def _run_script(self, card: int, pid: int, confined_as: list[tuple[int, int]]) -> None:
        """As the first of *confined_as*, numbers with pidfds, that has not ended."""
        for one in confined_as:
            try:
                status = run_script(self.script, self.container_id, card, pid, confined_as=one)
            except (ProcessLookupError, FileNotFoundError):
                continue
            except (OSError, CgpuError) as error:
                self.log.line("ERROR", self.container_id, f"OOM script not run: {error}")
                return
            level = "ERROR" if status == confine.NOT_STARTED else "WARN"
            self.log.line(
                level,
                self.container_id,
                f"card {card}: process {pid} is out of memory; {self.script!r} gave {status}",
            )
            return
        self.log.line("WARN", self.container_id, f"card {card}: the container ended, no script ran")

    def tell(self, text: str) -> None:
        """
        A line where the container's user looks: the standard error of its first process.

        Written through that process's own descriptor, so nothing can be written to that it could
        not write to, and only if there is room.
        """
        with contextlib.suppress(OSError):
            fd = _descriptor_of(self.init_fd, STDERR)
            try:
                notice.write(fd, text)
            finally:
                os.close(fd)


def run_script(
    script: str, container_id: str, card: int, pid: int, *, confined_as: tuple[int, int]
) -> int | None:
    """
    Run *script* with the confinement of the process *confined_as*, a pid and a pidfd.

    The script's environment is that process's, with CGPU_CONTAINER_ID, CGPU_GPU (N of
    /dev/nvidiaN) and CGPU_PID (the host's pid).

    Returns:
        Its exit status; 126: it was not started; None: it was ended after 30 s.

    Raises:
        ProcessLookupError, FileNotFoundError: the process of *confined_as* has ended.
        CgpuError: its confinement cannot be read.
    """
    what = confine.of_process(confined_as[0])
    env = what.environ | {
        b"CGPU_CONTAINER_ID": container_id.encode(),
        b"CGPU_GPU": str(card).encode(),
        b"CGPU_PID": str(pid).encode(),
    }
    return confine.run(what, confined_as[1], script, env, SCRIPT_TIMEOUT_S)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, FileNotFoundError):
        return None
    except OSError as error:
        # EINVAL: the number is now a thread's, so the process that the event named has ended.
        if error.errno == errno.EINVAL:
            return None
        raise


def _descriptor_of(pidfd: int, number: int) -> int:
    fd = ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return int(fd)


def _same_container(pid: int, other: int) -> bool:
    try:
        return _cgroup(pid) == _cgroup(other) or (
            os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{other}/ns/pid").st_ino
        )
    except (ProcessLookupError, FileNotFoundError):
        # Ended, so there is nothing to enter or to kill; the event named our container.
        return True


def _cgroup(pid: int) -> bytes:
    with open(f"/proc/{pid}/cgroup", "rb") as file:
        return file.read()


def main(args: list[str]) -> int:
    """Run the watcher; arguments as :func:`pycgpu.oci.oom_spawn.spawn` gives them."""
    container_id, root, init_pid, action, script, *logs = args
    log = HookLog(tuple(logs))
    try:
        Watcher(container_id, root, int(init_pid), action == "kill", script, log).watch()
    except (OSError, CgpuError) as error:
        log.line("ERROR", container_id, f"OOM watcher ends: {error}")
        return 1
    return 0
