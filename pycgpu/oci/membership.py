# SPDX-License-Identifier: MIT
"""
A container as the member of a group: the group, the user, and the server's directories in it.

The runtime binds two directories into the container before the engine's own program makes it. The
hook starts the server that fills them. A group of pods belongs to their namespace: its leader is
named ``NAMESPACE.NAME``, and no namespace has a dot.
"""

from __future__ import annotations

import contextlib
import os

from ..errors import HookError, RequestError
from ..request import group_rule, permit
from ..request.model import Grant, Refusal
from ..tree import group
from .bundle import NAMESPACES, check_given, said

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..request.model import Card, Request

_SHM = "/dev/shm"
_OPTIONS = ("rbind", "nosuid", "nodev", "noexec", "rprivate")


def leader(config: dict[str, object], name: str) -> str:
    """
    Return the id of a group's leader.

    Raises:
        RequestError: it is another namespace's, or pods' and the container is of no pod.
    """
    namespace = _namespace(config)
    of, slash, own = name.rpartition("/")
    if namespace is None:
        if slash:
            raise RequestError(
                f"group {name}: NAMESPACE/NAME is a group of pods, and this container is of none:"
                f" write {own}"
            )
        return name
    if slash and of != namespace:
        raise RequestError(
            f"group {name}: this pod is of namespace {namespace}, and a group is one namespace's:"
            f" write {own}"
        )
    return group.of_namespace(namespace, own)


def _namespace(config: dict[str, object]) -> str | None:
    found = said(config, NAMESPACES)
    if len(found) > 1:
        # A pod may set another engine's annotation.
        raise RequestError(f"the container is said to be of namespaces {', '.join(sorted(found))}")
    return next(iter(found), None)


def of(
    bundle: str,
    config: dict[str, object],
    name: str,
    pid: int,
    allowed: permit.Permit,
    proc: str = "/proc",
) -> group.Group:
    """
    Return what a container asks of the group *name*.

    Args:
        pid: its first process, which waits.

    Raises:
        RequestError: as of :func:`leader`, or the operator does not let it in.
        HookError: its image may have set its namespace, its user is unknown on this host, or it
            lacks what :func:`give` adds.
    """
    annotations = config.get("annotations")
    given = annotations if isinstance(annotations, dict) else {}
    asked = {key for rule in allowed.groups for key in rule.annotations or {}}
    check_given(bundle, config, [key for key in given if key in asked or key in NAMESPACES])
    namespace, user = _namespace(config), _user(config, pid, proc)
    owner = f"containers of user {user}" if namespace is None else f"namespace {namespace}"
    member = group.Group(leader(config, name), user, policy_asked=False, containers_of=owner)
    own = name.rpartition("/")[2]
    shown = own if namespace is None else f"{namespace}/{own}"
    allowed.check_join(group_rule.Asker(shown, user, namespace, given))
    _check(config, member)
    return member


def _user(config: dict[str, object], pid: int, proc: str) -> int:
    """Return the host's number of the user as whom a container runs."""
    process = config.get("process")
    user = process.get("user") if isinstance(process, dict) else None
    inside = user.get("uid", 0) if isinstance(user, dict) else 0
    with open(f"{proc}/{pid}/uid_map", encoding="ascii") as file:
        for line in file:
            first, outside, count = map(int, line.split())
            if isinstance(inside, int) and first <= inside < first + count:
                return outside + inside - first
    raise HookError(f"its user {inside!r} is none of its user namespace's")


def give(config: dict[str, object], request: Request, root: str) -> None:
    """
    Add the directories and the environment of the requested group's server to *config*.

    Raises:
        CgpuError: as of :func:`leader` and :func:`pycgpu.tree.group.quota_of`, or the directories
            cannot be made, or the tree cannot be read.
    """
    whom = leader(config, request.group or "")
    # The hook checks the group's owner.
    here = group.Group(whom, 0, policy_asked=False, containers_of="")
    linux = config.get("linux")
    mount_label = linux.get("mountLabel") if isinstance(linux, dict) else None
    group.make_places(here, mount_label=mount_label)
    wanted = _mounts(here)
    places = [mount["destination"] for mount in wanted]
    mounts = config.get("mounts")
    config["mounts"] = [
        *(mount for mount in _list(mounts) if _destination(mount) not in places),
        *wanted,
    ]
    process: Any = config.setdefault("process", {})
    last = group.is_after_others(whom, request, root)
    own = group.environment(whom, quota=group.quota_of(request), after_others=last)
    env = [word for word in _list(process.get("env")) if str(word).partition("=")[0] not in own]
    process["env"] = [*env, *(f"{key}={value}" for key, value in own.items())]


def _check(config: dict[str, object], member: group.Group) -> None:
    process = config.get("process")
    env = _list(process.get("env")) if isinstance(process, dict) else []
    mounts = _list(config.get("mounts"))
    variables = [f"{key}={value}" for key, value in group.environment(member.name).items()]
    if any(one not in mounts for one in _mounts(member)) or any(
        one not in env for one in variables
    ):
        raise HookError(
            f"group {member.name}: the container has no way to its server: start it with the"
            " runtime cgpu (docker: --runtime cgpu; Kubernetes: runtimeClassName: cgpu)"
        )


@contextlib.contextmanager
def joined(
    member: group.Group,
    request: Request,
    root: str,
    decide: Callable[[Request], tuple[Grant | Refusal, bool]],
) -> Iterator[Grant]:
    """
    As :func:`pycgpu.tree.group.joined`.

    Args:
        decide: returns the decision on a request, and whether its compute limits are unenforced.
    """

    def admit(asked: Request) -> Grant:
        found, _ = decide(asked)
        if isinstance(found, Refusal):
            raise HookError(found.reason)
        return found

    with group.joined(member, request, root, admit) as grant:
        yield grant


def _mounts(member: group.Group) -> list[dict[str, object]]:
    pipe = group.pipe(member.name)
    return [
        {"destination": pipe, "type": "bind", "source": pipe, "options": [*_OPTIONS, "ro"]},
        {"destination": _SHM, "type": "bind", "source": member.shm, "options": [*_OPTIONS, "rw"]},
    ]


def _destination(mount: object) -> str | None:
    return os.path.normpath(str(mount.get("destination"))) if isinstance(mount, dict) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def among(config: dict[str, object], name: str, cards: Sequence[Card], root: str) -> list[Card]:
    """Return the cards that the group has, of *cards*; all of them before it has a server."""
    has = group.cards_of(leader(config, name), root)
    return [card for card in cards if card.index in has] or [*cards]
