# SPDX-License-Identifier: MIT
"""
The MPS server of a group: started with its first member, ended with its last.

``python -m pycgpu.agent.group_server NAME UID DIRECTORY SHM PROGRAM CLAUSE…`` writes one line:
``ready`` or what went wrong. Then it goes on in the background, in cgroups of its own: those of
the first member's engine or job may end with that member. Its child becomes the group's leader, a
container like any other, with the clauses of its `create`. There it executes NVIDIA's daemon as
the group's user.

Two processes keep the server: the keeper, which watches it and ends it, and its guard. A guard
whose keeper is killed starts another, and a keeper whose guard is killed becomes one. The daemon
does not end with either, so members notice nothing.

Clients need the socket ``control`` and nothing else that the daemon makes. The socket for orders,
``control_privileged``, is removed as soon as it is there, so that no program can give any. From
then on the directory is root's: no program of the group's user puts another socket in its place.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import select
import shutil
import signal
import stat
import sys
import time

from pycgpu import signals
from pycgpu.agent import apart, caller, clients, launch, private
from pycgpu.agent.group_watch import Watch, children
from pycgpu.errors import CgpuError
from pycgpu.tree import authority, group, label, procfs, tenant

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NamedTuple, NoReturn
else:
    from pycgpu.request.record import Record as NamedTuple

START_S = 30.0
END_S = 5.0
_LOOK_S = 0.5
_PAUSE_S = 0.01
#: The daemon writes lines for each client, /run is the host's, and members may be thousands.
LOG_BYTES_MAX = 1 << 20
#: Sockets and files that the daemon makes and clients do not need.
_NOT_CLIENTS = ("control_privileged", "control_lock", "log", f"{group.CONTROL}.pid")
_FOLLOWS = ": another takes its place"
_PR_SET_CHILD_SUBREAPER = 36


class Server(NamedTuple):
    """
    One group's server: its user, and what its container is created with.

    shm: the directory in place of /dev/shm; empty: the host's.
    """

    name: str
    uid: int
    directory: str
    shm: str
    program: str
    clauses: tuple[str, ...]

    @property
    def folder(self) -> str:
        return f"{self.directory}/{self.name}"


class Last(enum.Enum):
    """The part that ended while a server was watched."""

    MEMBER = enum.auto()
    DAEMON = enum.auto()
    GUARD = enum.auto()


class Served(NamedTuple):
    """
    A server that has been started, with what each of its keepers inherits.

    pid, daemon: of NVIDIA's daemon, by number and pidfd. pipe, folder: open directories, and the
        group's lock is held by *folder*.
    """

    server: Server
    root: str
    pid: int
    daemon: int
    pipe: int
    folder: int


def serve(server: Server, ready: Callable[[], None]) -> None:
    """
    Be the server's guard until its last member has gone, or it has ended by itself.

    Raises:
        CgpuError: it does not start.
    """
    root = procfs.KERNEL_DOOR if authority.is_modules() else procfs.USER_DOOR_SOCKET
    _adopt()
    apart.enter(server.name)
    pipe = _make_pipe(server)
    log = os.open(
        f"{server.folder}/log",
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    os.dup2(log, 2)
    folder = os.open(server.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    child = os.fork()
    if not child:
        _lead(server, log)
    served = Served(server, root, child, os.pidfd_open(child), pipe, folder)
    try:
        _await_control(served)
    except BaseException:
        _end(served, Watch(child, server.name, root), os.getpid())
        apart.leave(server.name)
        raise
    ready()
    _guard(served)
    apart.leave(server.name)


def _make_pipe(server: Server) -> int:
    """
    Clear the directory of the server's sockets; return its descriptor.

    The directory stays the same: containers that are about to start have it bound already.
    """
    path = group.pipe(server.name, server.directory)
    # By descriptor from here on: the user can change the directory's content.
    pipe = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    group.empty(pipe)
    os.fchmod(pipe, 0o700)
    os.fchown(pipe, server.uid, -1)
    return pipe


# ---- the leader


def _lead(server: Server, log: int) -> NoReturn:
    """Become the leader's first process. Its last words go to the log."""
    status = 1
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(log, number)
        _become_leader(server)
    except (CgpuError, OSError) as error:
        os.write(2, f"cgpu: {error}\n".encode())
    finally:
        os._exit(status)


def _become_leader(server: Server) -> None:
    variables = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
    variables["PATH"] = f"{os.path.dirname(server.program)}:{os.defpath}"
    variables |= group.environment(server.name, server.directory)
    identity = caller.user(str(server.uid), {})
    if authority.is_modules():
        _enter_by_module(server)
    else:
        words = ["create", server.name, f"pid={os.getpid()}", *server.clauses]
        devices = launch.enter(server.name, " ".join(words))
        if devices:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    private.hide(keep=group.pipe(server.name, server.directory), used=server.program)
    if server.shm:
        private.bind(server.shm, "/dev/shm")
        label.execute_as_daemon()
    if identity is not None:
        caller.become(identity)
    signals.as_before_python()
    os.execve(server.program, [server.program, "-f"], variables)


def _enter_by_module(server: Server) -> None:
    cgroup = tenant.enter(server.name, os.getpid())
    words = ["create", server.name, f"cgroup={cgroup}", *server.clauses]
    procfs.write("inst_ctl", " ".join(words), procfs.KERNEL_DOOR)


# ---- its keeper


def _await_control(served: Served) -> None:
    """Wait until clients find the server, and remove what they do not need."""
    server, pipe = served.server, served.pipe
    deadline_s = time.monotonic() + START_S
    while not group.answers(server.name, server.directory):
        if _has_ended(served.daemon):
            raise CgpuError(f"its MPS server ended as it started: {_last_words(server)}")
        if time.monotonic() > deadline_s:
            raise CgpuError(f"its MPS server does not answer within {START_S:.0f} s")
        time.sleep(_PAUSE_S)
    # First, so that nothing in the directory changes any more.
    os.fchown(pipe, 0, 0)
    os.fchmod(pipe, 0o755)
    for name in _NOT_CLIENTS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=pipe)
    found = os.stat(group.CONTROL_SOCKET, dir_fd=pipe, follow_symlinks=False)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != server.uid:
        raise CgpuError(f"{group.CONTROL_SOCKET} is not its daemon's: another program made it")
    # The driver admits no other user, and every user may look into the directory.
    os.chmod(group.CONTROL_SOCKET, 0o600, dir_fd=pipe)


def _has_ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])


def _guard(served: Served) -> None:
    """Return once the server has ended; until then it has a keeper, even if one is killed."""
    is_new = True
    while True:
        guard = os.getpid()
        keeper = os.fork()
        if not keeper:
            if _keep(served, guard, is_new=is_new):
                os._exit(0)
            _note(served, f"the guard of this group, process {guard}, has ended{_FOLLOWS}")
            _adopt()
        elif number := _await(keeper):
            _note(served, f"the keeper of this group was ended by signal {number}{_FOLLOWS}")
        else:
            return
        is_new = False


def _adopt() -> None:
    """Become the subreaper of the daemon's orphans, so that the keeper finds them."""
    private.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The starting process may ignore SIGCHLD, and then no child could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _await(keeper: int) -> int:
    """Wait for a child, and for all that end before it; return the signal that ended it, or 0."""
    while True:
        pid, status = os.wait()
        if pid == keeper:
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _note(served: Served, text: str) -> None:
    os.write(2, f"cgpu: {served.server.name}: {text}\n".encode())


def _bound_log(served: Served) -> None:
    if os.fstat(2).st_size > LOG_BYTES_MAX:
        os.ftruncate(2, 0)
        _note(served, f"this log begins anew after {LOG_BYTES_MAX} bytes")


def _keep(served: Served, guard: int, *, is_new: bool) -> bool:
    """
    Watch the server, and end it after its last member.

    Args:
        is_new: its servers have not been announced yet.

    Return: True: the server has ended; False: the guard has.
    """
    server, root = served.server, served.root
    # A keeper that was killed may have held the lock.
    fcntl.flock(served.folder, fcntl.LOCK_UN)
    watch = Watch(served.pid, server.name, root)
    if not is_new:
        watch.new_servers()
    try:
        last = _watch(served, guard, watch)
    except BaseException:
        _end(served, watch, guard)
        raise
    if last is Last.GUARD:
        return False
    left = _tell_of_end(server, root, "died", served.pid, watch) if last is Last.DAEMON else []
    _end(served, watch, guard)
    _end_programs(server, root, left)
    for pid in watch.servers:
        _tell(server, root, f"ended pid={pid}")
    if last is Last.MEMBER and not server.shm:
        # No container has the directory bound, and two jobs must not share a name.
        shutil.rmtree(server.folder, ignore_errors=True)
    return True


def _last_words(server: Server) -> str:
    with open(f"{server.folder}/log", errors="replace") as file:
        lines = file.read().split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("cgpu: ") if said else f"see {server.folder}/log"


def _watch(served: Served, guard: int, watch: Watch) -> Last:
    """Return what ends first; if that is the last member, with the group's lock held."""
    server, root = served.server, served.root
    while not _has_ended(served.daemon):
        if os.getppid() != guard:
            return Last.GUARD
        _bound_log(served)
        for pid in watch.new_servers():
            _tell(server, root, f"started pid={pid}")
        if not _has_members(server, root):
            fcntl.flock(served.folder, fcntl.LOCK_EX)
            if not _has_members(server, root):
                return Last.MEMBER
            fcntl.flock(served.folder, fcntl.LOCK_UN)
        for pid in watch.wait(_LOOK_S):
            # At once: the daemon starts another server for a client that comes now.
            _end_programs(server, root, _tell_of_end(server, root, "ended", pid, watch))
            watch.forget_ended()
    return Last.DAEMON


def _tell_of_end(
    server: Server, root: str, fate: str, pid: int, watch: Watch
) -> list[clients.Client]:
    """Return the programs that a server's end has left, once all members have been told."""
    after = watch.ended_before
    try:
        left = clients.find(server.name, root)
    except CgpuError:
        # Between one agent and the next no door answers.
        left = []
    before = "," if after is None else f", just after a program of {after},"
    clients.tell(
        left,
        f"{server.name}: the MPS server of this group has ended{before} and this program with it:"
        " start it again",
    )
    last = "" if after is None else f" after={after}"
    _tell(server, root, f"{'died' if left else fate} pid={pid}{last if left else ''}")
    for member in sorted({one.member for one in left}):
        _tell(server, root, f"lost pid={pid} member={member}{last}")
    return left


def _end_programs(server: Server, root: str, left: list[clients.Client]) -> None:
    for one in clients.end(left):
        _tell(server, root, f"killed pid={one.pid} member={one.member}")


def _tell(server: Server, root: str, news: str) -> None:
    """Put news of the server into the tree's ``events``."""
    # Perhaps no door takes it, or the module's core is older than this command.
    with contextlib.suppress(CgpuError):
        procfs.write("inst_ctl", f"server {server.name} {news}", root)


def _has_members(server: Server, root: str) -> bool:
    try:
        return bool(group.members(server.name, root))
    except CgpuError:
        # Between one agent and the next no door answers.
        return True


def _end(served: Served, watch: Watch, guard: int) -> None:
    """End the daemon and its servers, and wait until the door has seen their end."""
    server, root, pipe = served.server, served.root, served.pipe
    with contextlib.suppress(FileNotFoundError):
        os.unlink(group.CONTROL_SOCKET, dir_fd=pipe)
    left = {served.daemon, *watch.handles, *_left_behind(guard)}
    _kill([served.daemon], signal.SIGTERM)
    deadline_s = time.monotonic() + END_S
    while left := {handle for handle in left if not _has_ended(handle)}:
        if time.monotonic() > deadline_s:
            _kill(left, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    deadline_s = time.monotonic() + END_S
    while time.monotonic() < deadline_s:
        try:
            if server.name not in procfs.container_ids(root):
                break
        except CgpuError:
            break
        time.sleep(_PAUSE_S)
    if authority.is_modules():
        tenant.remove(server.name)
    group.empty(pipe)
    if server.shm:
        shm = os.open(server.shm, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        group.empty(shm)
        os.close(shm)


def _left_behind(guard: int) -> list[int]:
    """Return handles of the processes that the guard inherited when their parent ended."""
    found = [pid for pid in children(guard) if pid != os.getpid()]
    if guard not in (os.getpid(), os.getppid()):
        # The guard has ended meanwhile, and its number may be another process's.
        return []
    handles = []
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    return handles


def _kill(handles: Iterable[int], number: int) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def main(words: Sequence[str]) -> int:
    """Keep a group's server; see the module's docstring."""
    name, uid, directory, shm, program, *clauses = words
    told = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)

    def say(line: str) -> None:
        os.write(told, f"{line}\n".encode())
        os.close(told)

    try:
        serve(
            Server(name, int(uid), directory, shm, program, tuple(clauses)),
            lambda: say("ready"),
        )
    except (CgpuError, OSError) as error:
        with contextlib.suppress(OSError):
            say(" ".join(str(error).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
