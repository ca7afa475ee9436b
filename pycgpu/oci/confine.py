# SPDX-License-Identifier: MIT
"""
Run a program in a container, confined as the container's own processes are, or not at all.

The tenant chooses the program's path, so it must get nothing of the host. Namespaces, root, every
cgroup (the devices hierarchy of v1 too), the LSM's label, user, groups, resource limits and seccomp
filters are those of a container's process. It has no capabilities. If one of these cannot be taken
over, the attempt ends before the program is opened.

Until a child in the container executes the program, it is still this interpreter, whose file a
tenant must not reach (CVE-2019-5736). So the child cannot be traced, which closes
``/proc/<pid>/exe``. The program's file is opened without following the magic links of ``/proc``.

The child inherits nothing that this process has from its parent. Open files are closed, and its
standard streams are the container's ``/dev/null``, because the container's root could change the
mode of the host's. It has a session keyring of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import stat
import time
from typing import NamedTuple, NoReturn

from .. import signals
from ..errors import CgpuError
from ..tree import hierarchy

NOT_STARTED = 126
_NAMESPACES = ("user", "ipc", "uts", "net", "pid", "cgroup", "mnt")
_CAP_COUNT = 64
_ATTACH_TIMEOUT_S = 2.0

# include/uapi/linux: prctl.h, ptrace.h, seccomp.h, openat2.h, unistd.h of x86-64
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PTRACE_DETACH = 17
_PTRACE_SEIZE = 0x4206
_PTRACE_INTERRUPT = 0x4207
_PTRACE_SECCOMP_GET_FILTER = 0x420C
_WAIT_ALL = 0x40000000
_SECCOMP_SET_MODE_FILTER = 1
_RESOLVE_NO_MAGICLINKS = 0x02
_SYS_SECCOMP = 317
_SYS_KEYCTL = 250
_KEYCTL_JOIN_SESSION_KEYRING = 1
_NULL = os.makedev(1, 3)
_STDERR = 2
_SYS_OPENAT2 = 437
#: Bytes of one instruction of a filter, struct sock_filter.
_INSTRUCTION_BYTES = 8
_FILTERS_MAX = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Confinement(NamedTuple):
    """
    The confinement of a process.

    cgroups: its directories as the host sees them, one for each hierarchy.
    label: the text for attr/exec that sets AppArmor's or SELinux' label; None: none in force.
    filters: its seccomp filters, the first installed first.
    """

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...]
    environ: dict[bytes, bytes]
    cgroups: tuple[str, ...]
    label: str | None
    limits: tuple[tuple[int, tuple[int, int]], ...]
    oom_score_adj: int
    filters: tuple[bytes, ...]


def of_process(pid: int) -> Confinement:
    """
    Return the confinement of process *pid*, which is stopped for a moment to read its filters.

    Raises:
        ProcessLookupError, FileNotFoundError: the process has ended.
        CgpuError: a part of its confinement cannot be read.
    """
    # Its name is its own choice, in whatever encoding.
    lines = _read(pid, "status").decode(errors="replace").split("\n")
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return Confinement(
        pid=pid,
        uid=int(status["Uid"].split()[1]),
        gid=int(status["Gid"].split()[1]),
        groups=tuple(int(word) for word in status["Groups"].split()),
        environ=dict(
            entry.split(b"=", 1) for entry in _read(pid, "environ").split(b"\0") if b"=" in entry
        ),
        cgroups=_cgroups(pid),
        label=_label(pid),
        limits=_limits(pid),
        oom_score_adj=int(_read(pid, "oom_score_adj")),
        filters=_filters(pid, int(status.get("Seccomp", "0"))),
    )


def run(
    what: Confinement, pidfd: int, program: str, env: dict[bytes, bytes], timeout_s: float
) -> int | None:
    """
    Run *program* with the confinement *what*; return its exit status, None: it took too long.

    Status 126: it was not started, as the confinement cannot be taken over or no such program is
    there.

    Args:
        pidfd: *what*'s process, opened before *what* was read, because pids are reused.
    """
    child = os.fork()
    if not child:
        _be(what, pidfd, program, env)
    try:
        fd = os.pidfd_open(child)
        try:
            if not select.select([fd], [], [], timeout_s)[0]:
                # In its own session, with the grandchild: end both.
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
        finally:
            os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:
        return NOT_STARTED


def _be(what: Confinement, pidfd: int, program: str, env: dict[bytes, bytes]) -> NoReturn:
    try:
        _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
        os.setsid()
        _inherit_nothing()
        host_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        spaces = _foreign_namespaces(what.pid)
        root = os.open(f"/proc/{what.pid}/root", os.O_PATH | os.O_DIRECTORY)
        for directory in what.cgroups:
            _write(f"{directory}/cgroup.procs", b"0")
        _write("/proc/self/oom_score_adj", str(what.oom_score_adj).encode())
        for which, bounds in what.limits:
            resource.setrlimit(which, bounds)
        # The process still runs, so no later process with its pid was read.
        signal.pidfd_send_signal(pidfd, 0)
        for fd in spaces:
            _check(_libc.setns(fd, 0))
        os.fchdir(root)
        os.chroot(".")
        # The pid namespace holds for children only.
        inner = os.fork()
        if inner:
            _, status = os.waitpid(inner, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        _become(what, program, env, host_proc)
    except BaseException:
        os._exit(NOT_STARTED)


def _become(what: Confinement, program: str, env: dict[bytes, bytes], host_proc: int) -> NoReturn:
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if what.label is not None:
        fd = os.open("thread-self/attr/exec", os.O_WRONLY | os.O_CLOEXEC, dir_fd=host_proc)
        os.write(fd, what.label.encode())
    for capability in range(_CAP_COUNT):
        # EINVAL past the last capability that this kernel knows.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(what.groups)
    os.setresgid(what.gid, what.gid, what.gid)
    os.setresuid(what.uid, what.uid, what.uid)
    # A change of user makes a process traceable again where suid_dumpable says so.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    _join_session_keyring()
    _take_null()
    file = _open(program)
    signals.none_inherited()
    for instructions in what.filters:
        _install(instructions)
    os.execve(file, [program], env)


def _inherit_nothing() -> None:
    """Mark every open file but the first three, which :func:`_take_null` replaces."""
    for name in os.listdir("/proc/self/fd"):
        # The listing's own is gone by now.
        if int(name) > _STDERR:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)


def _join_session_keyring() -> None:
    if _libc.syscall(_SYS_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        number = ctypes.get_errno()
        # A kernel without keys, or a filter that keeps them from whoever starts from here.
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, os.strerror(number))


def _take_null() -> None:
    fd = os.open("/dev/null", os.O_RDWR | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != _NULL:
        raise OSError(errno.ENODEV, "the container's /dev/null is none")
    for number in range(_STDERR + 1):
        os.dup2(fd, number)


def _open(program: str) -> int:
    """A script's interpreter opens it by its number, so that must outlive the exec."""
    # struct open_how: flags, mode, resolve
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, _RESOLVE_NO_MAGICLINKS)
    fd = _libc.syscall(
        _SYS_OPENAT2, -100, ctypes.c_char_p(os.fsencode(program)), how, ctypes.sizeof(how)
    )
    _check(0 if fd >= 0 else -1)
    os.set_inheritable(fd, True)
    return int(fd)


def _install(instructions: bytes) -> None:
    text = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // _INSTRUCTION_BYTES, ctypes.addressof(text))
    _check(_libc.syscall(_SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(program)))


def _foreign_namespaces(pid: int) -> list[int]:
    spaces = []
    for name in _NAMESPACES:
        if not os.path.exists(f"/proc/self/ns/{name}"):
            continue  # a kernel without them
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if os.fstat(fd).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            spaces.append(fd)
    return spaces


def _cgroups(pid: int) -> tuple[str, ...]:
    """The directories that *pid* is in and this process is not."""
    own = hierarchy.places(os.getpid())
    mounted = hierarchy.mounts()
    found = []
    for place in hierarchy.places(pid):
        if place in own:
            continue
        directory = hierarchy.directory(place.controllers, mounted)
        if directory is not None:
            found.append(directory + place.path)
        elif place.controllers != ("",):
            # A v2 hierarchy next to v1, not mounted and without a controller, confines nothing.
            names = ",".join(place.controllers)
            raise CgpuError(f"hierarchy {place.number} ({names}) is mounted nowhere")
    return tuple(found)


def _label(pid: int) -> str | None:
    # a kernel without security modules
    if not os.path.exists("/proc/self/attr/current"):
        return None
    try:
        text = _read(pid, "attr/current").decode(errors="replace").rstrip("\n\0")
    except OSError as error:
        # EINVAL: no security module has such a file
        if error.errno == errno.EINVAL:
            return None
        raise
    name = text.rsplit(" (", 1)[0]
    if name in ("", "unconfined", "kernel"):
        return None
    # attr/exec takes a command of AppArmor, and a context of SELinux.
    return name if os.path.exists("/sys/fs/selinux/enforce") else f"exec {name}"


def _limits(pid: int) -> tuple[tuple[int, tuple[int, int]], ...]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    numbers = sorted({getattr(resource, name) for name in names})
    return tuple((number, resource.prlimit(pid, number)) for number in numbers)


def _filters(pid: int, mode: int) -> tuple[bytes, ...]:
    if mode == 0:
        return ()
    if mode != 2:
        raise CgpuError(f"process {pid} is in seccomp's strict mode")
    _trace(_PTRACE_SEIZE, pid)
    try:
        _trace(_PTRACE_INTERRUPT, pid)
        _wait_for_stop(pid)
        found = []
        for index in range(_FILTERS_MAX):
            count = _libc.ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, index, None)
            if count < 0 and ctypes.get_errno() == errno.ENOENT:
                break
            _check(0 if count >= 0 else -1)
            text = ctypes.create_string_buffer(count * _INSTRUCTION_BYTES)
            _trace(_PTRACE_SECCOMP_GET_FILTER, pid, index, ctypes.addressof(text))
            found.append(text.raw)
        else:
            raise CgpuError(f"process {pid} has more than {_FILTERS_MAX} seccomp filters")
        return tuple(found)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise
        raise CgpuError(f"the seccomp filters of process {pid}: {error.strerror}") from None
    finally:
        _libc.ptrace(_PTRACE_DETACH, pid, None, None)


def _wait_for_stop(pid: int) -> None:
    deadline = time.monotonic() + _ATTACH_TIMEOUT_S
    while not os.waitpid(pid, os.WNOHANG | _WAIT_ALL)[0]:
        if time.monotonic() > deadline:
            raise CgpuError(f"process {pid} does not stop")
        time.sleep(0.005)


def _trace(request: int, pid: int, address: int | None = None, data: int | None = None) -> None:
    _check(0 if _libc.ptrace(request, pid, address, data) >= 0 else -1)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        if number == errno.ESRCH:
            raise ProcessLookupError(number, os.strerror(number))
        raise OSError(number, os.strerror(number))


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
