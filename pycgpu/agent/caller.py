# SPDX-License-Identifier: MIT
"""
Who called sudo, and as whom and in what environment a program shall run therefore.

sudo leaves its caller's numbers in the environment and takes most of the rest away (PATH, what
conda and CUDA set). What it was given itself is still to be read while it waits for us.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import NamedTuple

from pycgpu.errors import LaunchError

#: sudo may have a process of its own between itself and the command, which holds the terminal.
_GENERATIONS = 3


class Identity(NamedTuple):
    """``name`` is None for a number that no user has; ``environment`` is whole."""

    uid: int
    gid: int
    name: str | None
    environment: dict[str, str]


def caller(environment: Mapping[str, str], proc: str = "/proc") -> Identity | None:
    """Return who called sudo, with the environment that sudo was given; None: it was root."""
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if not (uid.isdecimal() and gid.isdecimal()) or uid == "0":
        return None
    found = _entry(int(uid))
    whole = _environment_of_sudo(proc)
    if whole is None:
        whole = _named(dict(environment), found)
    return Identity(int(uid), int(gid), found.pw_name if found else None, whole)


def user(text: str, environment: Mapping[str, str]) -> Identity | None:
    """
    Return the user of that name or number; None: it is root, and nothing is to change.

    Raises:
        LaunchError: there is none.
    """
    try:
        found = _entry(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except KeyError:
        raise LaunchError(f"--user {text!r}: no such user on this host") from None
    uid = found.pw_uid if found else int(text)
    if uid == 0:
        return None
    gid = found.pw_gid if found else uid
    return Identity(uid, gid, found.pw_name if found else None, _named(dict(environment), found))


def become(identity: Identity) -> None:
    """Give up root for good. LaunchError: the kernel refuses."""
    try:
        if identity.name is None:
            os.setgroups([])
        else:
            os.initgroups(identity.name, identity.gid)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    except OSError as error:
        raise LaunchError(f"user {identity.uid}: {error.strerror}") from None


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
