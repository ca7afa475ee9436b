# SPDX-License-Identifier: MIT
"""
Take an installation to the version of this package: hot, under running containers, or cold.

Hot: the new core is loaded next to the running one. The door hands the state over and begins a
trial. Files are put in place, and only then the trial is accepted. A failure before that undoes
everything. If the upgrade process dies, the door goes back when the trial ends. :func:`settle`
completes the upgrade if the trial was accepted, and undoes it otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import CgpuError, InstallError, NodeError
from . import (
    installation,
    journal,
    kernel_door,
    proof,
    secure_boot,
    service,
)
from .host import Host
from .installation import Options
from .journal import Journal, Layer
from .step import Step, do, foresee, take_back, undo
from .upgrade_plan import (
    Request,
    built_in,
    check_tools,
    options_of,
    place_steps,
    prepare_steps,
    united,
)

Say = Callable[[str], None]

#: How long calls inside the old module are waited for, attempt by attempt.
SWITCH_DEADLINE_S = 10.0
#: How long a module that is no longer used is given to become idle.
UNLOAD_DEADLINE_S = 10.0
_PAUSE_S = 0.05


def check(request: Request, host: Host, say: Say = lambda line: None) -> list[str]:
    """
    Return why a hot upgrade to this package is not possible, a line each; empty: it is possible.

    It builds the modules apart from the host's to inspect them, and changes nothing else.

    Raises:
        InstallError: nothing is installed, or nothing can be built.
    """
    held = journal.read(host)
    if held.version == request.version:
        return []
    options = options_of(held, request.modules)
    if options.agent:
        return ["the agent is replaced by stopping it: no container may run"]
    installation.check_modules(options, host, request.version)
    with tempfile.TemporaryDirectory(prefix="cgpu-check-") as scratch:
        directory = Path(scratch) / "built"
        if request.modules is not None:
            directory = Path(request.modules)
        else:
            data = installation.stage(host).data | {"path": str(directory)}
            say("building the modules to look at them")
            do(host, Step("stage", "", data))
        built = kernel_door.inspect(kernel_door.find(directory), host.run)
    # DKMS signs what it installs; the modules built here for inspection are not signed.
    signs = secure_boot.is_on(host.prefix) and not options.dkms
    return kernel_door.obstacles(kernel_door.read(str(host.tree)), built, host.release, signs)


def outline(request: Request, options: Options, held: Journal, host: Host) -> list[str]:
    """Return the steps that :func:`upgrade` would take, a line each."""
    new = kernel_door.core_name(request.version)
    lines = [step.shown for step in prepare_steps(options, request.version, host)]
    way = _way(request, options, host)
    if way == "hot":
        lines += [f"load {new}, hand the state over to it, look whether all is there"]
    elif way == "cold":
        lines.append("stop services, unload the modules")
    lines.append(f"put the files of {request.version} in the place of those of {held.version}")
    if way == "hot":
        lines.append(f"accept {new}, unload what ran before")
    elif way == "cold" and not options.agent:
        lines.append("load the new modules")
    return [*lines, *("restart " + unit for unit in service.OWN if _has(held, unit))]


def _has(held: Journal, unit: str) -> bool:
    return any(step.kind == "service" and step.data["unit"] == unit for step in held.steps)


def upgrade(request: Request, host: Host, say: Say = lambda line: None) -> list[str]:
    """
    Upgrade, or leave everything as it was.

    Args:
        say: is told each step before it is taken.

    Returns:
        What the operator should know, a line each.

    Raises:
        InstallError: it failed; the installed version still runs.
    """
    with journal.alone(host):
        settle(host, say)
        held = journal.read(host)
        if held.version == request.version:
            return [f"cgpu {request.version} is installed"]
        options = options_of(held, request.modules)
        if request.tools is not None:
            check_tools(request.tools)
        if not options.agent:
            installation.check_modules(options, host, request.version)
        way = _way(request, options, host)
        if way == "cold":
            installation.refuse_while_used(host)
        held = held._replace(layer=Layer(request.version, way, journal.PLACING, []))
        journal.write(host, held)
        try:
            for step in prepare_steps(options, request.version, host):
                _take(step, held, host, say)
            if way == "hot":
                held = _hot(request, options, held, host, say)
            else:
                held = _cold(request, options, held, host, say)
        except BaseException as error:
            refused = isinstance(error, (OSError, CgpuError))
            held = journal.read(host)
            if not refused and _accepted(held, host):
                # Interrupted after the last thing that could have been refused.
                _finish(held, host, say)
                raise
            say("failed: going back")
            left = _back(held, host)
            if not refused:
                raise
            told = f"; left behind: {'; '.join(left)}" if left else ""
            raise InstallError(f"{error}; cgpu {held.version} goes on{told}") from None
        return _finish(held, host, say)


def _way(request: Request, options: Options, host: Host) -> str:
    if options.agent or request.cold:
        return "cold"
    if "cgpu_km" not in host.loaded:
        return "files"
    return "hot"


def _take(step: Step, held: Journal, host: Host, say: Say) -> None:
    assert held.layer is not None
    say(step.shown)
    foresee(host, step)
    held.layer.steps.append(step)
    journal.write(host, held)
    do(host, step)


def _placed(request: Request, options: Options, held: Journal, host: Host, say: Say) -> Journal:
    assert held.layer is not None
    for step in place_steps(request, options, host, held):
        _take(step, held, host, say)
    held = held._replace(layer=held.layer._replace(stage=journal.PLACED))
    journal.write(host, held)
    return held


def _hot(request: Request, options: Options, held: Journal, host: Host, say: Say) -> Journal:
    tree = str(host.tree)
    built = kernel_door.inspect(
        kernel_door.find(built_in(options, request.version, host)), host.run
    )
    door = kernel_door.read(tree)
    found = kernel_door.obstacles(door, built, host.release, secure_boot.is_on(host.prefix))
    if found:
        raise InstallError(
            f"no hot upgrade: {'; '.join(found)}: stop all containers and use `cgpu upgrade --cold`"
        )
    assert door is not None and door.running is not None
    if door.running == built.core:
        # Loaded at boot, after an upgrade was cut short in the middle of its files.
        return _placed(request, options, held, host, say)
    say(f"load {built.core} beside {door.running}")
    host.run(["insmod", built.files[built.core], *_parameters(door.running, built, host)])
    events, log = proof.Events(tree), proof.KernelLog(str(host.prefix / "dev/kmsg"))
    try:
        before = proof.take(tree)
        say(f"switch from {door.running} to {built.core}")
        trial_ms = round(request.trial_s * 1000)
        _until_drained(host, kernel_door.switch(built.core, trial_ms))
        _prove(request, built.core, before, events, log, tree)
        held = _placed(request, options, held, host, say)
        faults = log.faults()
        if faults:
            raise InstallError(f"the kernel complains: {faults[0]}")
    finally:
        events.close()
        log.close()
    host.tell(kernel_door.ACCEPT, tree)
    return held


def _parameters(running: str, built: kernel_door.Built, host: Host) -> Iterator[str]:
    """Yield the running core's parameters that the new core knows, too."""
    for path in sorted((host.prefix / f"sys/module/{running}/parameters").glob("*")):
        with contextlib.suppress(OSError):
            value = path.read_text().strip()
            if path.name in built.parameters and value not in ("", "(null)"):
                yield f"{path.name}={value}"


def _until_drained(host: Host, command: str) -> None:
    """Give the door a command, again while calls are inside the module that is to be left."""
    deadline_s = time.monotonic() + SWITCH_DEADLINE_S
    while True:
        try:
            return host.tell(command, str(host.tree))
        except NodeError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(_PAUSE_S)


def _prove(
    request: Request,
    core: str,
    before: proof.Snapshot,
    events: proof.Events,
    log: proof.KernelLog,
    tree: str,
) -> None:
    deadline_s = time.monotonic() + request.prove_s
    while True:
        door = kernel_door.read(tree)
        if door is None or door.running != core:
            raise InstallError(f"{core} does not run")
        after = proof.take(tree)
        lost = proof.differences(before, after, events.ended(), events.changed())
        lost += proof.unbalanced(tree)
        lost += [f"the kernel complains: {line}" for line in log.faults()[:1]]
        if lost:
            raise InstallError(f"{core} is not in order: {'; '.join(lost)}")
        if time.monotonic() > deadline_s:
            return
        time.sleep(min(_PAUSE_S, request.prove_s))


def _cold(request: Request, options: Options, held: Journal, host: Host, say: Say) -> Journal:
    say("stop services, unload the modules")
    installation.unload(host, held)
    held = _placed(request, options, held, host, say)
    assert held.layer is not None
    if held.layer.way == "cold" and options.load:
        say("load the new modules")
        do(host, Step("load", "", {}))
        door, core = kernel_door.read(str(host.tree)), kernel_door.core_name(request.version)
        if door is None or door.running != core:
            raise InstallError(f"{core} does not run: `dmesg | grep cgpu` says why")
        faults = proof.unbalanced(str(host.tree))
        if faults:
            raise InstallError(faults[0])
    return held


def _back(held: Journal, host: Host) -> list[str]:
    """Undo the layer, in the kernel and in the files; return the errors."""
    layer = held.layer
    assert layer is not None
    left = _leave_kernel(layer, host)
    left += take_back(host, layer.steps)
    if layer.way == "cold" and any(step.kind == "load" for step in held.steps):
        try:
            door = kernel_door.read(str(host.tree))
            if door is not None and door.running == kernel_door.core_name(layer.version):
                undo(host, Step("load", "", {}))
            do(host, Step("load", "", {}))
        except (OSError, CgpuError) as error:
            left.append(f"load the modules: {error}")
    if not left:
        held = held._replace(layer=None)
        journal.write(host, held)
    left += _restart(held, host)
    return left


def _leave_kernel(layer: Layer, host: Host) -> list[str]:
    """Go back to the former core if the new one is on trial, and unload those that stand by."""
    tree = str(host.tree)
    try:
        door = kernel_door.read(tree)
        if door is None:
            return []
        if door.trial_ms:
            # Refused where the trial ends by itself at this moment.
            with contextlib.suppress(NodeError):
                _until_drained(host, kernel_door.REVERT)
        return _unload_idle(host)
    except (OSError, CgpuError) as error:
        return [str(error)]


def _unload_idle(host: Host) -> list[str]:
    """Unload the cores that do not run; return which stay loaded, and why."""
    left = []
    deadline_s = time.monotonic() + UNLOAD_DEADLINE_S
    for name in kernel_door.cores(host.loaded):
        while True:
            door = kernel_door.read(str(host.tree))
            if door is None or door.running is None or door.running == name:
                break
            try:
                host.run(["rmmod", name])
                break
            except InstallError as error:
                # A call that began in it may still be inside the driver.
                if time.monotonic() > deadline_s:
                    left.append(str(error))
                    break
            time.sleep(_PAUSE_S)
    return left


def _finish(held: Journal, host: Host, say: Say) -> list[str]:
    """Make the new version the installation, and remove the rest of the old one."""
    layer = held.layer
    assert layer is not None
    notes = [step.data["note"] for step in layer.steps if step.data.get("note")]
    if any(step.kind == "relaunch" for step in layer.steps):
        notes.append("containers that start from now on use the new runtime and hook")
    former, held = held.version, united(held)
    journal.write(host, held)
    notes += _unload_idle(host)
    held, left = _retire(held, host, say)
    notes += left
    notes += _restart(held, host)
    door = kernel_door.read(str(host.tree))
    if layer.way == "hot" and door is not None:
        notes.append(f"the longest pause of a call was {door.pause_ns / 1e6:.3f} ms")
    notes.append(f"cgpu {former} is now {held.version} ({layer.way})")
    return notes


def _retire(held: Journal, host: Host, say: Say) -> tuple[Journal, list[str]]:
    left = []
    for step in held.retired:
        say(step.shown if step.kind == "leftover" else f"undo: {step.shown}")
        failed = take_back(host, [step])
        left += failed
        if not failed:
            held = held._replace(retired=tuple(one for one in held.retired if one != step))
            journal.write(host, held)
    return held, left


def _restart(held: Journal, host: Host) -> list[str]:
    """Enable the services, and restart those that run the tools; return the errors."""
    left = []
    services = [step for step in held.steps if step.kind == "service"]
    for step in services:
        try:
            do(host, step)
            if step.data["unit"] in service.OWN:
                host.run(["systemctl", "restart", step.data["unit"]])
        except InstallError as error:
            left.append(str(error))
    return left


def _accepted(held: Journal, host: Host) -> bool:
    """Whether the upgrade has come so far that it is completed and not undone."""
    layer = held.layer
    if layer is None or layer.stage != journal.PLACED:
        return False
    if layer.way == "files":
        return True
    door = kernel_door.read(str(host.tree))
    new = kernel_door.core_name(layer.version)
    # The new core is accepted only when all files are in place.
    return door is not None and door.running == new and not door.trial_ms


def settle(host: Host, say: Say = lambda line: None) -> None:
    """
    Complete or undo an upgrade that was interrupted; do nothing if none was.

    The caller holds the installation's lock.

    Raises:
        InstallError: it could neither be completed nor undone.
    """
    held = journal.read(host)
    if held.layer is not None:
        if _accepted(held, host):
            say(f"the upgrade to {held.layer.version} was cut short: going on with it")
            for line in _finish(held, host, say):
                say(line)
            return
        say(f"the upgrade to {held.layer.version} was cut short: going back")
        left = _back(held, host)
        if left:
            raise InstallError(f"an earlier upgrade left behind: {'; '.join(left)}")
        held = journal.read(host)
    if held.retired:
        _, left = _retire(held, host, say)
        if left:
            raise InstallError(f"an earlier upgrade left behind: {'; '.join(left)}")
    door = kernel_door.read(str(host.tree))
    if door is not None and not door.trial_ms:
        _unload_idle(host)
