# SPDX-License-Identifier: MIT
"""
Turns this process into a tenant: container, user, program.

If the module is loaded, the tenant is the module's, by a cgroup; otherwise the agent's, by a
filter.
"""

from __future__ import annotations

import os
import sys

from pycgpu import signals
from pycgpu.agent import client, filter
from pycgpu.agent.caller import Identity, become
from pycgpu.errors import CgpuError, LaunchError
from pycgpu.request import admission, permit
from pycgpu.request.model import Grant, Refusal, Request
from pycgpu.tree import authority, device_nodes, mig, procfs, tenant
from pycgpu.tree.lock import Admission

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from threading import Timer
    from types import ModuleType
    from typing import NoReturn

    from pycgpu.tree.group import Group

_START_S = 60
_PATIENCE_S = 1.0
_LOG = f"{client.DIRECTORY}/agent.log"
#: An agent started on demand ends when it has had no tenant for this long.
IDLE_S = 60


def ensure_agent(unknown_driver: str = "refused") -> None:
    """Start the agent if none runs, and no module. CgpuError: it does not start, and why."""
    if authority.is_modules() or _answers():
        return
    # These take longer to import than all the rest, and usually an agent runs already.
    import subprocess

    from pycgpu.tree import socket_server

    socket_server.own_directory(client.DIRECTORY)
    command = [sys.executable, "-m", "pycgpu.agent", "--idle", str(IDLE_S)]
    command += ["--unknown-driver", unknown_driver]
    with open(_LOG, "w", opener=_private) as log:
        try:
            started = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
                timeout=_START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise CgpuError(f"the agent does not start within {_START_S} s: see {_LOG}") from None
    # Another `cgpu run` may have been faster.
    if started and not _answers():
        with open(_LOG) as log:
            lines = log.read().strip().splitlines()
        reason = lines[-1].removeprefix("cgpu: ") if lines else f"status {started}"
        raise CgpuError(f"the agent does not start: {reason}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _answers() -> bool:
    try:
        return bool(client.ask({"op": "ping"}).get("ok"))
    except (OSError, ValueError):
        return False


def run(
    container_id: str,
    request: Request,
    program: Sequence[str],
    *,
    identity: Identity | None = None,
    allowed: permit.Permit = permit.DEFAULT,
    unknown_driver: str = "refused",
    group: Group | None = None,
) -> NoReturn:
    """
    Become *program* as the tenant *container_id*: same process, so signals and status are its own.

    Args:
        identity: the user to become; None: root, in this environment.
        allowed: the permit whose maxima hold.
        group: the group that it joins, to which the request's part of the compute then belongs.

    Raises:
        LaunchError: no root, no door, the request is refused, or the program is not there.
    """
    if os.geteuid() != 0:
        raise LaunchError("run needs root: try sudo; the program itself runs as you")
    try:
        if authority.is_modules():
            devices = _by_module(container_id, request, allowed, group)
        else:
            devices = _by_agent(container_id, request, allowed, unknown_driver, group)
    except (CgpuError, OSError) as error:
        raise LaunchError(str(error)) from None
    environment = dict(os.environ) if identity is None else identity.environment
    # CUDA gives up at a card that is refused, so it must not try one.
    if devices:
        environment.setdefault("CUDA_VISIBLE_DEVICES", ",".join(devices))
    if group is not None:
        environment |= _groups().environment(group.name, quota=_groups().quota_of(request))
    if identity is not None:
        become(identity)
    signals.as_before_python()
    try:
        os.execvpe(program[0], list(program), environment)
    except FileNotFoundError as error:
        raise LaunchError(f"{program[0]}: {error.strerror}", 127) from None
    except OSError as error:
        raise LaunchError(f"{program[0]}: {error.strerror}", 126) from None


def _groups() -> ModuleType:
    # Few runs need this, so only they import it.
    from pycgpu.tree import group

    return group


class _Granted:
    """Admits a request without a group: it takes no lock."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __enter__(self) -> Grant:
        return self._grant

    def __exit__(self, *_: object) -> None:
        return


def _granted(
    request: Request, allowed: permit.Permit, root: str, group: Group | None
) -> AbstractContextManager[Grant]:
    if group is None:
        return _Granted(_admitted(request, allowed, root))
    if allowed.groups:
        from pycgpu.request import group_rule

        allowed.check_join(group_rule.Asker(group.name, group.uid))
    found: AbstractContextManager[Grant] = _groups().joined(
        group, request, root, lambda one: _admitted(one, allowed, root)
    )
    return found


def _by_module(
    container_id: str, request: Request, allowed: permit.Permit, group: Group | None
) -> list[str]:
    """Become a container of the module's; return its cards' UUIDs, none if it has all."""
    root, pid = procfs.KERNEL_DOOR, os.getpid()
    with Admission():
        alive = procfs.container_ids(root)
        if container_id in alive:
            raise CgpuError(f"{container_id}: a container of this name exists: choose another name")
        tenant.sweep(alive)
        with _granted(request, allowed, root, group) as grant:
            _check_enforced(grant, allowed, root)
            # A process of a container reads no node of another or of a card, so read them before.
            cards = procfs.find_cards(root)
            try:
                cgroup = tenant.enter(container_id, pid)
                name = None if group is None else group.name
                procfs.create(container_id, grant, root, cgroup=cgroup, group=name)
            except BaseException:
                tenant.leave(pid)
                tenant.remove(container_id)
                raise
    uuids = [card.uuid for card in cards if card.index in {one.index for one in grant.cards}]
    return uuids if len(uuids) < len(cards) and all(uuids) else []


def _check_enforced(grant: Grant, allowed: permit.Permit, root: str) -> None:
    asked = any(one.quota is not None or one.weight is not None for one in grant.cards)
    if asked and not procfs.governs(root):
        why = "a part of the compute is asked, and nothing enforces one: modprobe cgpu_rm"
        if allowed.without_bridge == permit.REFUSE:
            raise CgpuError(why)
        print(f"cgpu: {why}", file=sys.stderr)


def _by_agent(
    container_id: str,
    request: Request,
    allowed: permit.Permit,
    unknown_driver: str,
    group: Group | None,
) -> list[str]:
    """Become a tenant of the agent's; return its cards' UUIDs, none if it has all."""
    with _Patience("waiting for the agent to start"):
        ensure_agent(unknown_driver)
    with _granted(request, allowed, procfs.USER_DOOR_SOCKET, group) as grant:
        name = None if group is None else group.name
        command = procfs.create_command(container_id, grant, pid=os.getpid(), group=name)
        return enter(container_id, command)


def enter(container_id: str, command: str) -> list[str]:
    """
    Become a tenant of the agent's by a `create` command; return its cards' UUIDs, none if it has
    all.

    Raises:
        LaunchError: the kernel or the agent refuses.
    """
    try:
        listener = filter.install()
    except OSError as error:
        raise LaunchError(
            f"the kernel installs no seccomp listener: {error.strerror}: Linux 5.6 or newer is"
            " needed, and not inside another container's seccomp agent"
        ) from None
    try:
        answer = client.ask({"op": "run", "create": command}, (listener,))
    except (OSError, ValueError) as error:
        raise LaunchError(f"the agent went away: {error}; see {_LOG}") from None
    finally:
        os.close(listener)
    if not answer.get("ok"):
        raise LaunchError(f"{container_id}: {answer.get('message', 'the agent refused')}")
    return [str(one) for one in answer.get("devices", ())]


def _admitted(request: Request, allowed: permit.Permit, root: str) -> Grant:
    # A run's quota is a ceiling, not a promise: ceilings may add up to more than the card.
    cards = [
        card._replace(tenants=tuple(one._replace(quota=None) for one in card.tenants))
        for card in mig.read_cards(root)
    ]
    found = allowed.bounded(admission.admit(request, cards), lambda: procfs.parks(root))
    if isinstance(found, Refusal):
        raise LaunchError(found.reason)
    for note in (*found.short, *found.notes):
        print(f"cgpu: {note}", file=sys.stderr)
    device_nodes.ensure(card.index for card in found.cards)
    return found


class _Patience:
    """Tells a person at a terminal what is waited for, if that takes longer than a moment."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._timer: Timer | None = None

    def __enter__(self) -> None:
        if sys.stderr.isatty():
            from threading import Timer

            text = f"cgpu: {self._what} …"
            self._timer = Timer(_PATIENCE_S, print, (text,), {"file": sys.stderr})
            self._timer.start()

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            # No other thread may run when the filter is installed.
            self._timer.join()
