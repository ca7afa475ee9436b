# SPDX-License-Identifier: MIT
"""
Finds the user who called sudo, and the identity and environment that a program runs with.

sudo leaves its caller's numbers in the environment and removes most of the rest (PATH, what conda
and CUDA set). sudo's own environment can still be read while it waits for us.
"""

from __future__ import annotations

import os
import pwd
import stat

from pycgpu.errors import LaunchError
from pycgpu.request.size import is_number

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from pycgpu.request.record import Record as NamedTuple

#: sudo may keep a process between itself and the command, which holds the terminal.
_GENERATIONS = 3
#: Excludes (uid_t)-1, with which setresuid() changes nothing: the process would stay root's.
_IDS = range(2**32 - 1)
#: No file of a job is longer.
FILE_MAX_BYTES = 1 << 20
#: root's own helpers make tenants with these names, and processes of others join them.
SLURM, CLAIM = "slurm-", "claim-"


class Identity(NamedTuple):
    """``name`` is None for a number that no user has; ``environment`` is whole."""

    uid: int
    gid: int
    name: str | None
    environment: dict[str, str]


def caller(environment: Mapping[str, str], proc: str = "/proc") -> Identity | None:
    """Return the user who called sudo, with sudo's own environment; None: it was root."""
    uid, gid = (_number(environment.get(key, "")) for key in ("SUDO_UID", "SUDO_GID"))
    if uid is None or gid is None or uid == 0:
        return None
    found = _entry(uid)
    whole = _environment_of_sudo(proc)
    if whole is None:
        whole = _named(dict(environment), found)
    return Identity(uid, gid, found.pw_name if found else None, whole)


def user(text: str, environment: Mapping[str, str]) -> Identity | None:
    """
    Return the user of that name or number; None: it is root, and nothing changes.

    Raises:
        LaunchError: there is none.
    """
    number = _number(text)
    try:
        found = pwd.getpwnam(text) if number is None else _entry(number)
    except KeyError:
        raise LaunchError(f"--user {text!r}: no such user on this host") from None
    uid = found.pw_uid if found else number
    assert uid is not None  # pwd has one, or raises
    if uid == 0:
        return None
    gid = found.pw_gid if found else uid
    return Identity(uid, gid, found.pw_name if found else None, _named(dict(environment), found))


def become(identity: Identity) -> None:
    """Give up root for good. LaunchError: the kernel refuses."""
    try:
        _take_groups(identity)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    except OSError as error:
        raise LaunchError(f"user {identity.uid}: {error.strerror}") from None


def check_name(name: str, identity: Identity | None, what: str = "--name") -> None:
    """Raise LaunchError if the caller of sudo gives a tenant a name that root's helpers give."""
    if identity is not None and name.startswith((SLURM, CLAIM)):
        raise LaunchError(f"{what} {name}: root alone gives such names; choose another")


def read(path: str, identity: Identity | None) -> str:
    """
    Return the text of a file that the caller named, read with that user's rights.

    Raises:
        LaunchError: the rights do not suffice, or it is no file of at most 1 MiB of text.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with _RightsOf(identity), open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LaunchError(f"{path}: no regular file")
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise LaunchError(f"{path}: longer than {FILE_MAX_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"{path}: not text in UTF-8") from None


class _RightsOf:
    """Gives this process an identity's rights while the context lasts; None: its own."""

    def __init__(self, identity: Identity | None) -> None:
        self._identity = identity
        self._own = os.geteuid(), os.getegid(), os.getgroups()

    def __enter__(self) -> None:
        if self._identity is not None:
            _take_groups(self._identity)
            os.setegid(self._identity.gid)
            os.seteuid(self._identity.uid)

    def __exit__(self, *error: object) -> None:
        if self._identity is not None:
            uid, gid, groups = self._own
            os.seteuid(uid)
            os.setegid(gid)
            os.setgroups(groups)


def _take_groups(identity: Identity) -> None:
    if identity.name is None:
        os.setgroups([])
    else:
        os.initgroups(identity.name, identity.gid)


def _number(text: str) -> int | None:
    """Return the number of a user or group, or None if *text* is none."""
    return int(text) if is_number(text) and int(text) in _IDS else None


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _named(environment: dict[str, str], found: pwd.struct_passwd | None) -> dict[str, str]:
    if found is not None:
        environment |= {"HOME": found.pw_dir, "USER": found.pw_name, "LOGNAME": found.pw_name}
        environment |= {"SHELL": found.pw_shell}
    return environment


def _environment_of_sudo(proc: str) -> dict[str, str] | None:
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        try:
            with open(f"{proc}/{pid}/stat", "rb") as file:
                before, _, after = file.read().rpartition(b")")
            if before.partition(b"(")[2] == b"sudo":
                with open(f"{proc}/{pid}/environ", "rb") as file:
                    pairs = (one.partition(b"=") for one in file.read().split(b"\0") if one)
                    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
            pid = int(after.split()[1])
        except (OSError, ValueError, IndexError):
            return None
    return None
