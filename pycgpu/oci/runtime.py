# SPDX-License-Identifier: MIT
"""
``cgpu-container-runtime``: an engine starts it in place of runc, and it hands on to runc.

For ``create``, ``run`` and ``restore`` of a container that asks for a share, ``config.json`` gets
the hook, the device nodes of its cards and no others, and NVIDIA_VISIBLE_DEVICES narrowed to them
(so that nvidia-container-runtime, if it is next in line, shows the same cards). With the user door
it gets the agent's seccomp rules as well. Every other command is passed on at once.

NVIDIA's runtime may add nodes that no limited container must have. It looks for runc in PATH, where
it finds this program a second time. That removes the nodes and hands on to runc.

This file decides nothing about limits. A container whose request is malformed still gets the hook,
which refuses it with the reason where engines look for one.
"""

from __future__ import annotations

import os
import stat
import sys

from .. import signals
from ..errors import CgpuError, HookError
from . import rules

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: NVIDIA's runtime; it goes on to runc.
TOOLKIT = "nvidia-container-runtime"
#: The runtimes behind this one; the first that exists is executed.
RUNTIMES = (TOOLKIT, "runc", "crun")
#: Links to this program, by the names that the toolkit looks for.
BEHIND = "/run/cgpu/behind"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOOK = "/usr/lib/cgpu/cgpu-hook"
#: Commands that bring a container into being.
STARTS = ("create", "run", "restore")
_VALUE_OPTIONS = frozenset(
    ("--log", "--log-format", "--log-level", "--root", "--criu", "--rootless", "--cgroup-manager")
)
#: The part of a system call's argument that a 32-bit entry passes.
_LOWER_HALF = 0xFFFFFFFF
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
#: All capabilities except graphics and display.
_ALL = ("compute", "compat32", "utility", "video", "ngx")
_DEFAULT = ("compute", "utility")
_CAPABILITY_NODES = (
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
)
#: The form of variables that ask for a feature of the toolkit, each with another driver's nodes:
#: NVIDIA_GDS, NVIDIA_GDRCOPY, NVIDIA_NVSWITCH, NVIDIA_MOFED, and future ones.
_FEATURE, _FEATURE_ON = "NVIDIA_", "enabled"


def find_bundle(args: list[str]) -> str | None:
    """Return the bundle of a command line that starts a container, or None for others."""
    position = 0
    while position < len(args) and args[position].startswith("-"):
        position += 2 if args[position] in _VALUE_OPTIONS else 1
    if position >= len(args) or args[position] not in STARTS:
        return None
    rest = args[position + 1 :]
    for number, word in enumerate(rest):
        name, equals, text = word.partition("=")
        if name in ("--bundle", "-bundle", "-b"):
            if equals:
                return text
            if number + 1 < len(rest):
                return rest[number + 1]
        elif word == "--":
            break
    return os.getcwd()


def candidates(names: tuple[str, ...], path: str = PATH) -> list[str]:
    """Return the paths that *names* (paths, or names in *path*) may stand for, in order."""
    return [
        candidate
        for name in names
        for candidate in ([name] if "/" in name else [f"{part}/{name}" for part in path.split(":")])
    ]


def find_runtime(names: tuple[str, ...], path: str = PATH, own: str | None = None) -> str:
    """
    Return the first of :func:`candidates` that can be executed and is not *own*, this program.

    Raises:
        HookError: none of them is installed.
    """
    this = os.path.realpath(own or sys.argv[0])
    for candidate in candidates(names, path):
        if os.access(candidate, os.X_OK) and os.path.realpath(candidate) != this:
            return candidate
    raise HookError(f"none of {', '.join(names)} is installed; install runc")


def prepare(
    bundle: str,
    *,
    hook: tuple[str, ...] = (HOOK,),
    root: str | None = None,
    seccomp: str = rules.PATH,
    dev: str = "/dev",
    proc: str = "/proc",
    sysfs: str = "/sys",
    policy: str | None = None,
    toolkit: bool = False,
) -> bool:
    """
    Add what a container with a request needs to the bundle's config; return whether it has one.

    Args:
        hook: the hook's program and its options, before the stage.
        root: the tree, or None for the door that is open.
        dev: the directory of the device nodes; missing ones are made.
        proc: the directory in which the kernel shows drivers.
        sysfs: the directory in which the kernel shows devices.
        policy: the file with what containers may ask for; None: the node's own.
        toolkit: NVIDIA's runtime comes next, which brings cards without a request, too.

    Raises:
        RequestError: a container names a card, asks for no part of it, and would get none.
        HookError: config.json cannot be read or replaced, the user door lacks its rules, or crun
            would have hooks write to a file that the container names.
        CgpuError: a device node is missing and cannot be made.
    """
    from ..request import permit
    from .bundle import (
        check_annotations,
        check_card,
        check_hook_output,
        load_config,
        request_of,
        save_config,
    )

    config = load_config(bundle)
    check_annotations(bundle, config)
    try:
        request = request_of(config, permit.load(policy or permit.PATH))
    except CgpuError:
        check_hook_output(config)
        add_hook(config, hook)
        save_config(bundle, config)
        return True
    if request is None:
        if not toolkit:
            check_card(config)
        if os.path.exists(seccomp):
            keep_off(bundle, config)
        return False
    check_hook_output(config)
    from ..request import admission
    from ..tree import device_nodes, mig, procfs
    from . import bars, nodes

    add_hook(config, hook)
    nodes.take_out(config, proc)
    bars.mask(config, sysfs)
    try:
        root = root or procfs.find_root()
        cards = device_nodes.find_cards(root, dev=dev, proc=proc)
        every = mig.read_cards(root) if admission.choosable(request, cards) else None
        if request.group is not None:
            from . import membership

            membership.give(config, request, root)
            if every is not None:
                every = membership.among(config, request.group, every, root)
        if every is not None:
            request = admission.choose(request, every)
        chosen = [card for card, _ in admission.bind(request, cards)]
    except CgpuError:
        # The hook meets the same and says so.
        save_config(bundle, config)
        return True
    # Before systemd has made the container's unit, which names devices by their links.
    device_nodes.ensure([card.index for card in chosen], dev=dev, proc=proc)
    add_devices(config, [card.index for card in chosen], dev)
    show_cards(config, [card.uuid or str(card.index) for card in chosen])
    leave_out(config)
    if procfs.is_users(root):
        add_seccomp(config, seccomp)
    save_config(bundle, config)
    return True


def _map(parent: dict[str, object], key: str) -> dict[str, object]:
    child = parent.get(key)
    if child is None:
        child = parent[key] = {}
    if not isinstance(child, dict):
        raise HookError(f"config.json: {key} is not an object")
    return child


def _list(parent: dict[str, object], key: str) -> list[object]:
    child = parent.get(key)
    if child is None:
        child = parent[key] = []
    if not isinstance(child, list):
        raise HookError(f"config.json: {key} is not a list")
    return child


def add_hook(config: dict[str, object], hook: tuple[str, ...]) -> None:
    """Add the hook to both stages, unless the engine (Podman, CRI-O) has put it there."""
    hooks = _map(config, "hooks")
    name = os.path.basename(hook[0])
    for stage, others in (("createRuntime", ("prestart",)), ("poststop", ())):
        present = [entry for other in (stage, *others) for entry in _list(hooks, other)]
        if not any(
            isinstance(entry, dict) and os.path.basename(str(entry.get("path"))) == name
            for entry in present
        ):
            _list(hooks, stage).append({"path": hook[0], "args": [name, *hook[1:], stage]})
    for stage in [stage for stage, entries in hooks.items() if not entries]:
        del hooks[stage]


def add_devices(config: dict[str, object], cards: list[int], dev: str = "/dev") -> None:
    """Add the control nodes and the nodes of *cards*, and leave to use them."""
    from .bundle import CONTROL_DEVICES

    linux = _map(config, "linux")
    devices = _list(linux, "devices")
    rules = _list(_map(linux, "resources"), "devices")
    present = {entry.get("path") for entry in devices if isinstance(entry, dict)}
    for path in (*CONTROL_DEVICES, *(f"/dev/nvidia{card}" for card in cards)):
        try:
            status = os.stat(dev + path.removeprefix("/dev"))
        except OSError:
            continue
        if not stat.S_ISCHR(status.st_mode):
            continue
        number = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
        if path not in present:
            devices.append(
                {"path": path, "type": "c", **number, "fileMode": 0o666, "uid": 0, "gid": 0}
            )
        rules.append({"allow": True, "type": "c", **number, "access": "rw"})


def show_cards(config: dict[str, object], names: list[str]) -> None:
    """
    Set NVIDIA_VISIBLE_DEVICES of the container's process to *names*.

    Where CDI has brought them already it stays as it is: the runtime behind would bring them again.
    """
    from .bundle import VOID

    process = _map(config, "process")
    if VOID in _list(process, "env"):
        return
    key = "NVIDIA_VISIBLE_DEVICES="
    env = [entry for entry in _list(process, "env") if not str(entry).startswith(key)]
    process["env"] = [*env, key + ",".join(names)]


def leave_out(config: dict[str, object]) -> None:
    """
    Remove an image's requests to NVIDIA's toolkit that a limited container must not make.

    For ``graphics`` and ``display`` the toolkit brings the nodes of nvidia-modeset and nvidia-drm,
    which give video memory past RM. For the other variables it brings those of nvidia-caps, of the
    host's switches and network, and of drivers that map a card's memory. An image like the first
    CUDA images, which only sets CUDA_VERSION, gets all capabilities.
    """
    process = _map(config, "process")
    kept: list[object] = []
    asked: list[str] = []
    for entry in _list(process, "env"):
        key, _, value = str(entry).partition("=")
        if key == _CAPABILITIES:
            asked += [word.strip() for word in value.split(",")]
        elif key == "CUDA_VERSION":
            asked += [""]
        feature = key.startswith(_FEATURE) and value == _FEATURE_ON
        if key not in (_CAPABILITIES, *_CAPABILITY_NODES) and not feature:
            kept.append(entry)
    if asked:
        every = "all" in asked or not any(asked)
        words = [word for word in _ALL if every or word in asked]
        kept.append(f"{_CAPABILITIES}={','.join(words or _DEFAULT)}")
    process["env"] = kept


def add_seccomp(config: dict[str, object], path: str = rules.PATH) -> None:
    """
    Merge the agent's seccomp rules from *path* into the container's.

    Raises:
        HookError: the agent has published none, or the container has a listener of its own.
    """
    agents = rules.load(path)
    listener = agents["listenerPath"]
    seccomp = _merge(config, agents)
    if seccomp.get("listenerPath", listener) != listener:
        raise HookError("the container has a seccomp listener of its own; use the module")
    seccomp["listenerPath"] = listener
    if "listenerMetadata" in agents:
        seccomp["listenerMetadata"] = agents["listenerMetadata"]
    rules.check(config, path)


def keep_off(bundle: str, config: dict[str, object]) -> None:
    """Under the user door keep a container without a part from others' files of a card."""
    from . import bystander
    from .bundle import save_config

    if bystander.is_one(config):
        _merge(config, bystander.fragment())
        save_config(bundle, config)


def _merge(config: dict[str, object], ours: dict[str, Any]) -> dict[str, Any]:
    """
    Put *ours* before the container's rules, and return its ``seccomp``.

    libseccomp prefers an unconditional rule to a narrower one. So the engine's rules for the same
    system calls are rewritten to match only the rest of their arguments.
    """
    linux = _map(config, "linux")
    if not linux.get("seccomp"):
        linux["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW"}
    seccomp = _map(linux, "seccomp")
    names = {name for rule in ours["syscalls"] for name in rule["names"]}
    kept: list[Any] = []
    rule: Any
    for rule in _list(seccomp, "syscalls"):
        taken = [] if rule.get("args") else [name for name in rule["names"] if name in names]
        left = [name for name in rule["names"] if name not in taken]
        if left:
            kept.append({**rule, "names": left})
        for name in taken:
            kept += _rest_of(name, rule, ours["syscalls"])
    seccomp["syscalls"] = [*ours["syscalls"], *kept]
    architectures = _list(seccomp, "architectures")
    architectures += [a for a in ours.get("architectures", []) if a not in architectures]
    return seccomp


def _rest_of(name: str, rule: dict[str, Any], ours: list[Any]) -> list[dict[str, Any]]:
    """
    Return *rule* for calls of *name* whose arguments none of *ours* matches.

    A profile has no 'otherwise', but libseccomp tries a mask before masks that are part of it. So
    two rules on one bit that all our masks contain cover the rest: the bit is set, or it is not.
    One of our rules may equal one of the two. Our rules on an upper half are for 32-bit entries,
    and leave no rest of those.
    """
    tests = [test for entry in ours if name in entry["names"] for test in entry.get("args", [])]
    tests = [test for test in tests if test["value"] & _LOWER_HALF]
    common = -1
    for test in tests:
        common &= test["value"] if test["op"] == "SCMP_CMP_MASKED_EQ" else 0
    bit = common & -common
    if not tests or bit <= 0 or len({test["index"] for test in tests}) != 1:
        raise HookError(f"the agent's rules for {name} do not go with the container's profile")
    rest = [{**tests[0], "value": bit, "valueTwo": value} for value in (0, bit)]
    return [{**rule, "names": [name], "args": [test]} for test in rest if test not in tests]


def step_behind(own: str, behind: str = BEHIND) -> dict[str, str]:
    """
    Return an environment in which the toolkit finds *own*, this program, where it looks for runc.

    It is unchanged if this user may not write below /run. The hook then refuses nodes that the
    toolkit should not add.
    """
    environment = dict(os.environ)
    program = os.path.realpath(own)
    try:
        os.makedirs(behind, 0o755, exist_ok=True)
        for name in RUNTIMES[1:]:
            link = f"{behind}/{name}"
            if os.path.realpath(link) != program:
                new = f"{link}.{os.getpid()}"
                os.symlink(program, new)
                os.rename(new, link)
    except OSError:
        return environment
    environment["PATH"] = f"{behind}:{environment.get('PATH', PATH)}"
    return environment


def hand_on(
    bundle: str | None, runtimes: tuple[str, ...], own: str, behind: str = BEHIND
) -> tuple[str, dict[str, str]]:
    """
    Remove the toolkit's forbidden nodes from *bundle*; return the next program, its environment.

    Raises:
        HookError: config.json cannot be read or replaced, or no such program is installed.
    """
    from . import nodes
    from .bundle import load_config, save_config

    if bundle is not None:
        config = load_config(bundle)
        if nodes.take_out(config):
            save_config(bundle, config)
    names = [name for name in runtimes if not os.path.basename(name).startswith(TOOLKIT)]
    # the toolkit chose by name
    names.sort(key=lambda name: os.path.basename(name) != os.path.basename(own))
    environment = dict(os.environ)
    environment["PATH"] = environment.get("PATH", PATH).removeprefix(f"{behind}:")
    return find_runtime(tuple(names), own=own), environment


def main(
    argv: list[str] | None = None,
    *,
    hook: tuple[str, ...] = (HOOK,),
    runtimes: tuple[str, ...] = RUNTIMES,
    root: str | None = None,
    own: str | None = None,
    behind: str = BEHIND,
    dev: str = "/dev",
    proc: str = "/proc",
) -> int:
    """Prepare the bundle if there is one, and become the next runtime; returns only to fail."""
    args = list(sys.argv[1:] if argv is None else argv)
    own = own or sys.argv[0]
    try:
        bundle = find_bundle(args)
        environment = dict(os.environ)
        if os.path.dirname(own) == behind:
            runtime, environment = hand_on(bundle, runtimes, own, behind)
        else:
            runtime = find_runtime(runtimes, own=own)
            toolkit = os.path.basename(runtime).startswith(TOOLKIT)
            prepared = bundle is not None and prepare(
                bundle, hook=hook, root=root, dev=dev, proc=proc, toolkit=toolkit
            )
            if prepared and toolkit:
                environment = step_behind(own, behind)
        signals.as_before_python()
        os.execve(runtime, [runtime, *args], environment)
    except CgpuError as error:
        reason = str(error)
    except Exception as error:  # a container must not start without what it asked for
        reason = f"{type(error).__name__}: {error}"
    report(args, reason)
    return 1


def report(args: list[str], reason: str) -> None:
    """Say why on stderr, and in the log that containerd reads its error from (``--log``)."""
    from .log import shown

    reason = shown(reason)
    print(f"cgpu: {reason}", file=sys.stderr)
    if "--log" in args[:-1]:
        import time

        from .. import json_text

        entry = {
            "level": "error",
            "msg": f"cgpu: {reason}",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        try:
            with open(args[args.index("--log") + 1], "a", encoding="utf-8") as file:
                file.write(json_text.dumps(entry) + "\n")
        except OSError:
            return
