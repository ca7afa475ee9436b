# SPDX-License-Identifier: MIT
"""
The OCI hook: the request in a container's environment becomes one write to ``inst_ctl``.

``createRuntime`` (or ``prestart``) registers the container while its first process waits and
no program of its image runs yet. A non-zero exit makes the engine destroy it. ``poststop`` removes
it. The registration is bound to that process: if the hook or the engine is killed at any point,
the process dies with it, and the door removes the registration by itself.

A requested limit that cannot be granted always ends in a refusal, whatever goes wrong.

Every container's start waits for this, so nothing on its path imports ``os``. That is ``posix`` and
an abstract class for each kind of collection, and takes a tenth of the whole start.
"""

from __future__ import annotations

import errno
import sys

from .. import json_text
from ..errors import CgpuError, HookError, NodeError, RequestError
from ..request import admission, permit
from ..request.model import Card, CardGrant, Grant, Refusal, Request
from ..tree import device_nodes, hierarchy, mig, procfs
from ..tree.lock import LOCK, Admission
from . import mark, nodes
from .bundle import (
    FOR_POD,
    GIVEN,
    GIVEN_TO,
    TENANT,
    check_annotations,
    check_card,
    check_hook_output,
    hook_output,
    load_config,
    names,
    request_of,
)
from .log import CTYUN, DEFAULT, HookLog

STATE_MAX = 4 << 20
CREATE_STAGES = ("createRuntime", "prestart")
STAGES = (*CREATE_STAGES, "poststop")
USAGE = (
    "usage: cgpu-hook [--root DIR] [--lock FILE] [--log FILE]… [--policy FILE]"
    " [--set NAME=VALUE]… [--set-for CONTAINER:NAME=VALUE]… [--pod UID] [--tenant NAME]"
    f" [{'|'.join(STAGES)}] < state"
)


def run(
    stage: str | None,
    state_text: str,
    *,
    log: HookLog,
    root: str | None = None,
    lock: str = LOCK,
    proc: str = "/proc",
    dev: str = "/dev",
    policy: str = permit.PATH,
    shared: str | None = None,
    tenants: str | None = None,
    seccomp: str | None = None,
) -> int:
    """
    Perform one hook call; return its exit status, 1 for a refusal (explained on stderr).

    Args:
        stage: one of :data:`STAGES`, or None to go by the state's own status.
        state_text: the OCI state, JSON. runc calls the status before start ``creating``,
            crun ``created``; at poststop pid is absent or 0.
        root: the tree, or None for the door that is open.
        dev: the directory of the device nodes; missing ones are made.
        policy: the file with what containers may ask for, see :mod:`pycgpu.request.permit`.
        shared: the tenant that this container shares with others. Its cgroup is in *tenants*, or in
            the default directory.
        seccomp: the file with the agent's rules; None: the one that it publishes.
    """
    container_id = "-"
    removing = stage == "poststop"
    try:
        state = _state(state_text)
        log.alone = hook_output(state.get("annotations")) is not None
        container_id = str(state["id"])
        if stage is None:
            stage = "poststop" if state.get("status") == "stopped" else CREATE_STAGES[0]
        removing = stage == "poststop"
        if removing:
            if shared is not None:
                return _leave(shared, log, root, lock, tenants)
            return _remove(state, log, root)
        return _register(state, log, root, lock, proc, dev, policy, shared, tenants, seccomp)
    except CgpuError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{error.filename or 'hook'}: {error.strerror}"
    except Exception as error:  # whatever it is, no container starts without its limit
        reason = f"{type(error).__name__}: {error}"
    return _fail(log, container_id, "not removed" if removing else "refused", reason)


def _fail(log: HookLog, container_id: str, what: str, reason: str) -> int:
    log.line("ERROR", container_id, f"{what}: {reason}")
    log.say(reason)
    return 1


def _state(text: str) -> dict[str, object]:
    try:
        state = json_text.loads(text)
    except (ValueError, RecursionError) as error:
        raise HookError(f"the container's state is not JSON: {error}") from None
    if not isinstance(state, dict) or not isinstance(state.get("id"), str) or not state["id"]:
        raise HookError("the container's state has no id")
    return state


def _bundle(state: dict[str, object]) -> str | None:
    bundle = state.get("bundle", state.get("bundlePath"))
    return bundle if isinstance(bundle, str) else None


def _register(
    state: dict[str, object],
    log: HookLog,
    root: str | None,
    lock: str,
    proc: str,
    dev: str,
    policy: str,
    shared: str | None,
    tenants: str | None,
    seccomp: str | None,
) -> int:
    container_id = str(state["id"])
    bundle = _bundle(state)
    if bundle is None:
        raise HookError("the container's state names no bundle")
    config, allowed, request = _asked(bundle, log, policy)
    if request is None:
        return 0
    pid = state.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        raise HookError(f"the container's state names no process (pid {pid!r})")
    log.line("INFO", container_id, f"{request.dialect}: process {pid} asks for a share")
    root = root or procfs.find_root()
    if procfs.is_users(root):
        from . import rules

        rules.check(config, seccomp or rules.PATH)
    cgroup = None if shared is not None else cgroup_of(pid, proc)
    registered = container_id if shared is None else shared
    # Before others wait for this one: NVML may take its time.
    divided = _divided(request, root, dev, proc)

    def decide(asked: Request) -> tuple[Grant | Refusal, bool]:
        decided = _decide(asked, root, shared, divided, dev, proc)
        found = allowed.bounded(decided, lambda: procfs.parks(root))
        unenforced = isinstance(found, Grant) and not _enforced(found, root)
        return _allowed_here(found, unenforced, allowed, config, proc), unenforced

    def settle(result: Grant | Refusal, unenforced: bool, group: str | None) -> bool | None:
        """Register the container; None: it was refused, False: the tenant is there already."""
        if isinstance(result, Refusal):
            _refused(log, container_id, result)
            return None
        _note(log, container_id, result, unenforced, dev, proc)
        return _create(registered, _door_part(result), root, pid, cgroup, shared, group)

    with Admission(lock):
        if shared is not None:
            # Before it is looked whether the tenant is there: with a process in it it stays.
            from ..tree import tenant

            cgroup = tenant.enter(shared, pid, tenants or tenant.DIRECTORY, proc)
        if request.group is None:
            result, unenforced = decide(request)
            created = settle(result, unenforced, None)
        else:
            from . import membership

            member = membership.of(bundle, config, request.group, pid, allowed, proc)
            with membership.joined(member, request, root, decide) as result:
                unenforced = False
                created = settle(result, unenforced, member.name)
            log.line("INFO", container_id, f"is in group {member.name}")
    if created is None or isinstance(result, Refusal):
        return 1
    if not created:
        log.line("INFO", container_id, f"shares {registered}")
        return 0
    short = (*result.short, *((_WITHOUT_BRIDGE,) if unenforced else ()))
    if short and not log.alone:
        _tell(short, pid, config, proc)
    if shared is None:
        mark.leave(bundle, container_id)
    if result.oom_script is not None:
        _watch(registered, result, root, pid, log)
    for card in result.cards:
        without = ", its part of the compute is not enforced" if unenforced else ""
        log.line("INFO", container_id, f"granted {_describe(card)}{without}")
    return 0


def _asked(
    bundle: str, log: HookLog, policy: str
) -> tuple[dict[str, object], permit.Permit, Request | None]:
    """Return a bundle's configuration, its permit, and its request; None: it has none."""
    config = load_config(bundle)
    # Set before any output: the tenant chooses that file, and may choose the output's text.
    log.alone = log.alone or hook_output(config.get("annotations")) is not None
    check_annotations(bundle, config)
    if names(config, "EGPU"):
        # Before the request is read: the log is where its refusal is looked for.
        log.join_ctyun()
    allowed = permit.load(policy)
    request = request_of(config, allowed)
    if request is None:
        check_card(config)
    else:
        check_hook_output(config)
    return config, allowed, request


def _allowed_here(
    result: Grant | Refusal,
    unenforced: bool,
    allowed: permit.Permit,
    config: dict[str, object],
    proc: str,
) -> Grant | Refusal:
    """Return the decision, or a refusal if it would not hold on this node."""
    if isinstance(result, Refusal):
        return result
    if unenforced and allowed.without_bridge == permit.REFUSE:
        return Refusal((_WITHOUT_BRIDGE,))
    past = nodes.past_limits(config, proc)
    if past and _is_limited(result):
        paths = ", ".join(str(node.get("path")) for node in past)
        return Refusal((paths + _PAST_LIMITS,))
    return result


def _refused(log: HookLog, container_id: str, refusal: Refusal) -> None:
    for card in refusal.fitting:
        log.line("INFO", container_id, f"would have fitted: {_describe(card)}")
    log.line("INFO", container_id, "nothing was reserved: all cards are granted or none")
    _fail(log, container_id, "refused", refusal.reason)


def _note(
    log: HookLog, container_id: str, grant: Grant, unenforced: bool, dev: str, proc: str
) -> None:
    """Log the notes of a container's grant, before it is registered."""
    for note in (*grant.short, *grant.notes):
        log.line("WARN", container_id, note)
    cards = [card.index for card in grant.cards]
    for failed in device_nodes.ensure(cards, dev=dev, proc=proc):
        log.line("WARN", container_id, f"may lose a device at a daemon-reload: {failed}")
    if unenforced:
        log.line("WARN", container_id, _WITHOUT_BRIDGE)
        log.say(_WITHOUT_BRIDGE)


_WITHOUT_BRIDGE = (
    "a part of the compute is asked for, and nothing here enforces one: load the bridge"
    f' (modprobe cgpu_rm), or set without_bridge = "warn" in {permit.PATH} to start without'
)


_PAST_LIMITS = (
    ": by such a node a container has more of the card than its limits. Start it with the runtime"
    " cgpu, which leaves them out; where NVIDIA's toolkit adds them behind it, run nvidia-ctk"
    " config --in-place --set nvidia-container-runtime.mode=legacy"
)


def _is_limited(grant: Grant) -> bool:
    return any((card.memory_bytes, card.quota) != (None, None) for card in grant.cards)


def _enforced(grant: Grant, root: str) -> bool:
    """Tell whether the door can give the parts of the compute that were asked for."""
    asked = any((card.weight, card.quota, card.quota_min) != (None,) * 3 for card in grant.cards)
    return not asked or procfs.governs(root)


def _create(
    name: str,
    grant: Grant,
    root: str,
    pid: int,
    cgroup: str | None,
    shared: str | None,
    group: str | None,
) -> bool:
    """Register a container; return False if the tenant that it shares is there already."""
    try:
        if cgroup is None:
            procfs.create(name, grant, root, pid=pid, group=group)
        else:
            procfs.create(name, grant, root, cgroup=cgroup, group=group)
    except NodeError as error:
        if shared is None or error.errno != errno.EEXIST:
            raise
        return False
    return True


def cgroup_of(pid: int, proc: str = "/proc") -> str | None:
    """
    Return the directory of the cgroup that identifies a container, or None if its pid does.

    A process that is not the first of its pid namespace shares the host's or another container's
    (``--pid=host``, pods with one namespace). There only the cgroup identifies the container.

    Raises:
        HookError: no such process, or it has no cgroup of its own.
    """
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
            numbers = next(line for line in file if line.startswith("NSpid:")).split()[1:]
        if len(numbers) > 1 and numbers[-1] == "1":
            return None
        places, mounted = hierarchy.places(pid, proc), hierarchy.mounts(proc)
    except (OSError, StopIteration) as error:
        raise HookError(f"process {pid}: {error!r}: it has ended") from None
    # The unified hierarchy first, then a controller that engines always use.
    for controller in ("", "memory", "devices", "pids"):
        for place in places:
            if controller not in place.controllers or place.path == "/" or ".." in place.path:
                continue
            directory = hierarchy.directory((controller,), mounted)
            if directory is not None:
                return directory + place.path
    raise HookError(
        f"process {pid} has neither a pid namespace nor a cgroup of its own; give it one of them"
    )


def _decide(
    request: Request,
    root: str,
    shared: str | None,
    divided: frozenset[str],
    dev: str,
    proc: str,
) -> Grant | Refusal:
    cards = device_nodes.find_cards(root, dev=dev, proc=proc)
    try:
        if admission.choosable(request, cards):
            request = admission.choose(request, mig.noted(procfs.read_cards(root), divided))
        chosen = {card.index for card, _ in admission.bind(request, cards)}
    except RequestError as error:
        return Refusal((str(error),))
    # The nodes of other cards and their containers are not read: on a full host they are hundreds.
    now = [
        _without(procfs.read_card(card.index, root), shared, root) if card.index in chosen else card
        for card in cards
    ]
    return admission.admit(request, mig.noted(now, divided))


def _divided(request: Request, root: str, dev: str, proc: str) -> frozenset[str]:
    """Return those boards in MIG mode that the request may mean."""
    try:
        cards = device_nodes.find_cards(root, dev=dev, proc=proc)
        if not admission.choosable(request, cards):
            cards = [card for card, _ in admission.bind(request, cards)]
    except CgpuError:
        return frozenset()  # said where the request is decided
    return mig.in_mode(cards, root)


def _without(card: Card, shared: str | None, root: str) -> Card:
    """Return the card as it would be without that tenant."""
    try:
        for one in card.tenants if shared is not None else ():
            if procfs.read_cid(card.index, one.id, root) == shared:
                return card._replace(
                    allocated_bytes=card.allocated_bytes
                    - (procfs.read_memsize(card.index, one.id, root) or 0),
                    free_weight=card.free_weight + procfs.read_weight(card.index, one.id, root),
                    tenants=tuple(other for other in card.tenants if other != one),
                )
    except NodeError as error:
        if not procfs.is_gone(error):
            raise
        return procfs.read_card(card.index, root)
    return card


def _describe(card: CardGrant) -> str:
    memory = (
        "no memory limit" if card.memory_bytes is None else admission.format_mib(card.memory_bytes)
    )
    words = [f"card {card.index}: {memory}"]
    for key in ("quota", "quota_min"):
        percent = getattr(card, key)
        if percent is not None:
            words.append(f"{key} {percent} %")
    for key in ("weight", "priority"):
        if getattr(card, key) is not None:
            words.append(f"{key} {getattr(card, key)}")
    if card.idle_park_s:
        words.append(f"may be parked when idle for {card.idle_park_s} s")
    return ", ".join(words)


def _door_part(grant: Grant) -> Grant:
    # A process that the door kills at once runs no script: the watcher kills it afterwards.
    if grant.oom_script is None:
        return grant
    return grant._replace(cards=tuple(card._replace(oom_action="fail") for card in grant.cards))


def _tell(short: tuple[str, ...], pid: int, config: dict[str, object], proc: str) -> None:
    """Tell the user who starts a container that it gets less than it asked for."""
    from .log import shown
    from .notice import tell

    process = config.get("process")
    terminal = isinstance(process, dict) and process.get("terminal") is True
    tell(pid, shown("; ".join(short)), terminal=terminal, proc=proc)


def _watch(container_id: str, grant: Grant, root: str, pid: int, log: HookLog) -> None:
    from .oom_spawn import spawn

    try:
        spawn(container_id, grant, root, pid, log.paths)
    except BaseException:
        if procfs.destroy(container_id, root):
            log.line("INFO", container_id, "removed again: its watcher did not start")
        raise


def _remove(state: dict[str, object], log: HookLog, root: str | None) -> int:
    # Engines call this for containers without a request, too. A closed door has nothing to
    # remove, and the door itself reaps processes that linger.
    container_id = str(state["id"])
    bundle = _bundle(state)
    if bundle is None or not mark.take(bundle, container_id):
        return 0
    try:
        if procfs.destroy(container_id, root or procfs.find_root()):
            log.line("INFO", container_id, "removed")
    except CgpuError as error:
        log.line("WARN", container_id, f"not removed: {error}")
    return 0


def _leave(shared: str, log: HookLog, root: str | None, lock: str, tenants: str | None) -> int:
    """Remove the tenant if this was its last container."""
    from ..tree import tenant

    directory = tenants or tenant.DIRECTORY
    with Admission(lock):
        if not tenant.is_empty(shared, directory):
            return 0
        try:
            if procfs.destroy(shared, root or procfs.find_root()):
                log.line("INFO", shared, "removed")
        except CgpuError as error:
            log.line("WARN", shared, f"not removed: {error}")
        tenant.remove(shared, directory)
    return 0


#: Options that are read with the bundle; only the tenant is read here, too.
_ELSEWHERE = (GIVEN, GIVEN_TO, FOR_POD, TENANT)


def main(argv: list[str] | None = None) -> int:
    """Run as ``cgpu-hook``; see :data:`USAGE`. --set and --pod are read where the bundle is."""
    args = list(sys.argv[1:] if argv is None else argv)
    options: dict[str, list[str]] = {
        name: []
        for name in ("--root", "--lock", "--log", "--proc", "--dev", "--policy", *_ELSEWHERE)
    }
    stage = None
    while args:
        word = args.pop(0)
        if word in options and args:
            options[word].append(args.pop(0))
        elif word in STAGES and stage is None:
            stage = word
        else:
            print(f"cgpu: {word!r}: {USAGE}", file=sys.stderr)
            return 2
    logs = tuple(options["--log"]) or (DEFAULT,)
    return run(
        stage,
        sys.stdin.buffer.read(STATE_MAX).decode(errors="replace"),
        log=HookLog(logs, CTYUN if DEFAULT in logs else None),
        root=options["--root"][-1] if options["--root"] else None,
        lock=(options["--lock"] or [LOCK])[-1],
        proc=(options["--proc"] or ["/proc"])[-1],
        dev=(options["--dev"] or ["/dev"])[-1],
        policy=(options["--policy"] or [permit.PATH])[-1],
        shared=options[TENANT][-1] if options[TENANT] else None,
    )
