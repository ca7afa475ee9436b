# SPDX-License-Identifier: MIT
"""
The OOM script: when a container's allocation is refused, run what it named, then end the process.

The hook leaves one watcher a container, which lives as long as the container's first process. The
door refuses the allocation by itself (``oom_action=fail``), so a watcher that dies costs the
notice and never the limit.

The script's path is the tenant's: it runs as the offending process would have run it, inside the
container's namespaces, root and cgroup, under that process's user, with no capability and no way
to gain one.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal

from . import procfs
from .errors import CgpuError
from .hook_log import HookLog

SCRIPT_TIMEOUT_S = 30.0
_NAMESPACES = ("user", "ipc", "uts", "net", "pid", "cgroup", "mnt")
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAP_COUNT = 64


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
        # Reading begins with the past, and an id may be registered again while we watch: lines
        # before its last creation are about processes of a former life.
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
        try:
            # Held from before the script: the number may be another process's afterwards.
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if not _same_cgroup(pid, self.init_pid):
                return
            self.seen.add(pid)
            status = run_script(self.script, self.container_id, card, pid)
            self.log.line(
                "WARN",
                self.container_id,
                f"card {card}: process {pid} is out of memory; {self.script!r} gave {status}",
            )
            if self.kill:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except (OSError, CgpuError) as error:
            self.log.line("ERROR", self.container_id, f"OOM script: {error}")
            if self.kill:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def run_script(script: str, container_id: str, card: int, pid: int) -> int | None:
    """
    Run *script* inside the container of process *pid*; return its exit status.

    It finds CGPU_CONTAINER_ID, CGPU_GPU (N of /dev/nvidiaN) and CGPU_PID (the host's number) in
    its environment, besides what the process itself has. None: it was ended after 30 s.

    Raises:
        OSError: the container cannot be entered.
    """
    env = dict(
        entry.split(b"=", 1) for entry in _proc(pid, "environ").split(b"\0") if b"=" in entry
    )
    env |= {
        b"CGPU_CONTAINER_ID": container_id.encode(),
        b"CGPU_GPU": str(card).encode(),
        b"CGPU_PID": str(pid).encode(),
    }
    child = os.fork()
    if not child:
        try:
            _enter(pid)
            # The pid namespace holds for children only.
            inner = os.fork()
            if inner:
                _, status = os.waitpid(inner, 0)
                os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
            os.execve(script, [script], env)
        except BaseException:
            os._exit(126)
    fd = os.pidfd_open(child)
    try:
        if not select.select([fd], [], [], SCRIPT_TIMEOUT_S)[0]:
            # In its own session, with the grandchild: end both.
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
    finally:
        os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _enter(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.setsid()
    status = dict(
        line.split(":", 1) for line in _proc(pid, "status").decode().splitlines() if ":" in line
    )
    uid, gid = int(status["Uid"].split()[1]), int(status["Gid"].split()[1])
    groups = [int(word) for word in status["Groups"].split()]
    spaces = []
    for name in _NAMESPACES:
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if os.fstat(fd).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            spaces.append(fd)
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    _join_cgroup(pid)
    for fd in spaces:
        _check(libc, libc.setns(fd, 0))
    os.fchdir(root)
    os.chroot(".")
    _check(libc, libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    for capability in range(_CAP_COUNT):
        # EINVAL past the last capability that this kernel knows.
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _check(libc: ctypes.CDLL, result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _join_cgroup(pid: int) -> None:
    # cgroup v1 hierarchies are not joined: a notice of one short-lived process needs no share.
    for line in _proc(pid, "cgroup").decode().splitlines():
        if line.startswith("0::"):
            try:
                with open(f"/sys/fs/cgroup{line[3:]}/cgroup.procs", "w") as file:
                    file.write("0")
            except OSError:
                return


def _same_cgroup(pid: int, other: int) -> bool:
    return _proc(pid, "cgroup") == _proc(other, "cgroup") or (
        os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{other}/ns/pid").st_ino
    )


def _proc(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def main(args: list[str]) -> int:
    """Run the watcher; arguments as :func:`pycgpu.oom_spawn.spawn` gives them."""
    container_id, root, init_pid, action, script, *logs = args
    log = HookLog(tuple(logs))
    try:
        Watcher(container_id, root, int(init_pid), action == "kill", script, log).watch()
    except (OSError, CgpuError) as error:
        log.line("ERROR", container_id, f"OOM watcher ends: {error}")
        return 1
    return 0
