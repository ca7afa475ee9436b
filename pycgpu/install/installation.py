# SPDX-License-Identifier: MIT
"""
Install the module and all that belongs to it on a host, and remove all of it again.

An installation is a list of steps, each of which can undo itself. Before a step is taken it is
written to the journal. A failure undoes the steps so far, and :func:`uninstall` undoes the journal
from its end. The journal also has the former contents of files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..errors import CgpuError, InstallError
from ..tree import authority, process, procfs
from . import (
    journal,
    kernel_door,
    module_build,
    registration,
    secure_boot,
    service,
    stranded,
)
from .host import Host
from .journal import Journal
from .step import (
    UNITS,
    Step,
    do,
    foresee,
    place,
    remove_directories,
    take_back,
    undo,
    write_file,
)

SOURCES = "usr/src/cgpu-{version}"
PLACED = "lib/modules/{release}/updates/cgpu"
STAGED = "var/lib/cgpu/staged"
MODULES_LOAD = "etc/modules-load.d/cgpu.conf"
MODPROBE = "etc/modprobe.d/cgpu.conf"
#: The record of containers' usage, which `cgpu usage --record` writes.
RECORD = "var/lib/cgpu/usage"
#: Files that the hook, the runtime, the agent and ``cgpu cdi`` leave.
LEFTOVERS = (
    "run/cgpu",
    "var/lib/cgpu",
    "var/log/cgpu-prestart-hook.log*",
    "var/log/nvidia-egpu-prestart-hook.log*",
    "etc/cdi/cgpu.json",
    "var/run/cdi/cgpu.json",
)


class Options(NamedTuple):
    """
    What to install.

    dkms: build by DKMS, so that the next kernel gets the module too; otherwise only for this one.
    modules: a directory with modules that are built already, or None; implies no DKMS.
    runtimes: register with the container engines that are here; otherwise only place the
        programs, for CDI.
    names, default: as in :class:`pycgpu.install.registration.Options`; no names: those that
        :func:`pycgpu.install.registration.names_free` gives.
    exporter: run the exporter as a service.
    usage: record what containers have of the cards, as a service.
    load: load the module at once.
    agent: install the agent as a service instead of the module.
    cgpu: the program that services start.
    ungranted: what a container without a grant may do: allow, refuse, asked, or a share as 10%.
    or_agent: use the agent where no module can be built or loaded.
    because: the reason for the agent, in a line.
    restart: have the engines read what was changed, at once.
    """

    dkms: bool = True
    modules: str | None = None
    runtimes: bool = True
    names: tuple[str, ...] = ()
    default: bool = False
    exporter: bool = False
    load: bool = True
    agent: bool = False
    cgpu: str = "/usr/local/bin/cgpu"
    ungranted: str = "refuse"
    usage: bool = False
    or_agent: bool = False
    because: str = "cgpu install --agent asked for it"
    restart: bool = False


#: The end of the message of a failure that has changed nothing.
_UNCHANGED = "; nothing was changed"


# ---- install


def check(options: Options, host: Host) -> None:
    """
    Look for what would make the installation fail, before anything is changed.

    Raises:
        InstallError: what is missing, and how to get it.
    """
    if journal.exists(host):
        version = journal.read(host).version
        if version == __version__:
            raise InstallError(f"cgpu {version} is installed already; `cgpu uninstall` removes it")
        raise InstallError(f"cgpu {version} is installed: `cgpu upgrade` takes it to {__version__}")
    if host.tree.exists() and "cgpu_km" not in host.loaded:
        raise InstallError(f"{procfs.KERNEL_DOOR} is another product's: uninstall that first")
    if "cgpu_km" in host.loaded:
        raise InstallError("cgpu_km is loaded, but was not installed by this: rmmod it first")
    if options.agent:
        return
    ids = authority.agents_containers(str(host.prefix))
    if ids is not None:
        holders = f", with {', '.join(ids)}" if ids else ""
        raise InstallError(
            f"an agent shares this host's cards{holders}, beside which no module is loaded: end"
            " its programs, and it by `systemctl stop cgpu` or in 60 s by itself"
        )
    check_ungranted(options.ungranted)
    check_modules(options, host)


def settled(options: Options, host: Host, say: Callable[[str], None]) -> Options:
    """Return the final options, as far as they can be known before anything is changed."""
    if options.or_agent and not options.agent and not journal.exists(host):
        try:
            check_modules(options, host)
        except InstallError as error:
            return _instead(options, error, say)
    return options


def _instead(options: Options, error: InstallError, say: Callable[[str], None]) -> Options:
    why = str(error).removesuffix(_UNCHANGED)
    say(f"no module: {why}")
    say("the agent in its place (--or-agent)")
    return options._replace(agent=True, because=why)


def check_ungranted(word: str) -> None:
    """Raise InstallError unless it is what the module's parameter `ungranted` takes."""
    if not re.fullmatch(r"allow|refuse|asked|([1-9]\d?|100)%", word):
        raise InstallError(f"--ungranted {word!r}: write refuse, asked, allow, or 1% to 100%")


def check_modules(options: Options, host: Host, version: str = __version__) -> None:
    """
    Look for what building modules of *version* that load takes.

    Raises:
        InstallError: what is missing, and how to get it.
    """
    if options.modules is not None:
        (core,) = kernel_door.cores(set(kernel_door.find(Path(options.modules))))
        if core != kernel_door.core_name(version):
            raise InstallError(f"{options.modules}: holds {core}, and this is cgpu {version}")
        return
    headers = module_build.HEADERS.format(release=host.release)
    if not (host.prefix / headers / "Makefile").exists():
        raise InstallError(
            f"/{headers} is missing, without which no module can be built:"
            f" apt install linux-headers-{host.release} (RHEL: kernel-devel-{host.release})"
        )
    missing = module_build.missing_tools(host.prefix, host.release)
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if options.dkms and not shutil.which("dkms", path=path):
        missing.append("dkms")
    if missing:
        other = ", or give --no-dkms" if "dkms" in missing else ""
        manager = "apt" if shutil.which("apt-get") or not shutil.which("dnf") else "dnf"
        remedy = f"{manager} install {' '.join(missing)}{other}"
        raise InstallError(f"missing: {', '.join(missing)}: {remedy}")
    if secure_boot.is_on(host.prefix):
        _check_key(options, host)


def _check_key(options: Options, host: Host) -> None:
    if not options.dkms:
        raise InstallError(
            "Secure Boot is on and takes signed modules only: leave out --no-dkms, for DKMS signs"
        )
    if secure_boot.enrolled(host.prefix, host.release, host.run) is None:
        raise InstallError(
            "Secure Boot is on and does not know DKMS's key:"
            f" {secure_boot.remedy(host.prefix, host.release)}, and try again"
        )


def plan(options: Options, host: Host) -> list[Step]:
    """Return the steps that installing takes, the module's loading last."""
    steps = []
    placed = PLACED.format(release=host.release)
    if options.agent:
        pass
    elif options.modules is not None:
        steps.append(place(Path(options.modules), placed, host))
    elif options.dkms:
        steps.append(tree(__version__))
        shown = f"dkms add, build, install cgpu {__version__} for {host.release}"
        steps.append(Step("dkms", shown, {"version": __version__}))
    else:
        steps.append(stage(host))
        shown = f"copy the modules to /{placed}, depmod"
        steps.append(Step("built", shown, {"from": STAGED, "path": placed}))
    steps += files(options, host)
    if options.agent:
        steps.append(write_file(authority.BECAUSE, f"{options.because}\n", host.prefix))
    steps.append(_runtime(options, host))
    steps += map(enable, units(options, host))
    if options.load and not options.agent:
        steps.append(Step("load", "load cgpu_km, its core, and cgpu_rm", {}))
    return steps


def _runtime(options: Options, host: Host) -> Step:
    if not options.runtimes:
        # CDI's devices name the hook, whichever engine has them.
        data: dict[str, object] = {"engines": [], "names": [], "default": False}
        return Step("runtime", "write the runtime's and the hook's programs", data)
    try:
        engines = registration.need_engines(host.prefix)
    except InstallError as error:
        raise InstallError(f"{error}: install one, or give --no-runtimes") from None
    names = list(options.names or registration.names_free(host.prefix))
    # Find out what an engine rejects before anything is built.
    registration.plan(registration.Options(engines, tuple(names), options.default), host.prefix)
    shown = f"register the runtime with {', '.join(engines)}, as {' and '.join(names)}"
    data = {"engines": list(engines), "names": names, "default": options.default}
    return Step("runtime", shown, data)


def tree(version: str) -> Step:
    """Return the step that gives DKMS the sources."""
    path = SOURCES.format(version=version)
    data = {"path": path, "source": str(module_build.sources())}
    return Step("tree", f"copy the sources to /{path}", data)


def stage(host: Host) -> Step:
    """Return the step that builds the modules for the running kernel, apart from the host's."""
    data = {"path": STAGED, "source": str(module_build.sources())}
    return Step("stage", f"build the modules for {host.release}", data)


def units(options: Options, host: Host) -> list[str]:
    """Return the services that belong to the installation."""
    if not host.systemd:
        return []
    first = [service.AGENT] if options.agent else [service.MODULE, service.PARKD]
    others = ((service.EXPORTER, options.exporter), (service.USAGE, options.usage))
    return [*first, *(unit for unit, wanted in others if wanted)]


def enable(unit: str) -> Step:
    """Return the step that has systemd start a service, now if its program is the package's."""
    now = unit in service.OWN
    shown = f"systemctl enable {'--now ' if now else ''}{unit}"
    return Step("service", shown, {"unit": unit, "now": now})


def files(options: Options, host: Host) -> list[Step]:
    """Return the steps that write the files of one version."""
    steps = []
    if not options.agent:
        parameters = f"options cgpu_km ungranted={options.ungranted}\n"
        steps.append(write_file(MODULES_LOAD, "cgpu_km\n", host.prefix))
        steps.append(write_file(MODPROBE, parameters, host.prefix))
    if (host.prefix / service.RULES_D).parent.parent.is_dir():
        steps.append(write_file(service.RULES_D, service.rules(options.cgpu), host.prefix))
    for unit in units(options, host):
        text = service.text(unit, options.cgpu)
        steps.append(write_file(f"{UNITS}/{unit}", text, host.prefix))
    return steps


def install(
    options: Options, host: Host, say: Callable[[str], None] = lambda line: None
) -> list[str]:
    """
    Install, or change nothing.

    Args:
        say: is told each step before it is taken.

    Returns:
        What the operator should know or do next, a line each.

    Raises:
        InstallError: why not; everything is as it was.
    """
    options = settled(options, host, say)
    try:
        return _install(options, host, say)
    except InstallError as error:
        if options.agent or not options.or_agent or journal.exists(host):
            raise
        return _install(_instead(options, error, say), host, say)


def _install(options: Options, host: Host, say: Callable[[str], None]) -> list[str]:
    with journal.alone(host):
        check(options, host)
        steps = plan(options, host)
        held = journal.begin(host, __version__)
        try:
            for step in steps:
                say(step.shown)
                if step.kind == "built":
                    directory = host.prefix / step.data["from"]
                    step = place(directory, step.data["path"], host)
                foresee(host, step)
                # First into the journal: a step that was cut short is undone as well.
                held.steps.append(step)
                journal.write(host, held)
                do(host, step)
                journal.write(host, held)
            for step in [one for one in held.steps if one.kind == "stage"]:
                undo(host, step)
                held.steps.remove(step)
            journal.write(host, held)
        except (OSError, CgpuError) as error:
            say("failed: taking back what was done")
            left = take_back(host, held.steps)
            journal.forget(host, held)
            state = f"; left behind: {'; '.join(left)}" if left else _UNCHANGED
            raise InstallError(f"{error}{state}") from None
        except BaseException:
            take_back(host, held.steps)
            journal.forget(host, held)
            raise
        if options.restart:
            _restart(host, held.steps, say)
    return _advice(options, host, held.steps)


def _restart(host: Host, done: list[Step], say: Callable[[str], None]) -> None:
    """
    Restart engines whose containers keep running meanwhile; the others stay in the steps.

    Docker's containers keep running only where it is configured for that.
    """
    for step in done:
        left = []
        for command in step.data.get("restart", ()):
            try:
                if command.split()[-1] == "docker" or not host.systemd:
                    left.append(command)
                    continue
                say(command)
                host.run(shlex.split(command))
            except InstallError as error:
                say(str(error))
                left.append(command)
        if "restart" in step.data:
            step.data["restart"] = left


def _advice(options: Options, host: Host, done: list[Step]) -> list[str]:
    lines = []
    if not host.systemd:
        lines += _start_by_hand(options)
    for step in done:
        lines += [f"now run: {command}" for command in step.data.get("restart", ())]
        if step.data.get("note"):
            lines.append(f"without compute limits: {step.data['note']}")
    for step in done:
        if step.kind == "runtime" and step.data["engines"]:
            lines += registration.left_out(tuple(step.data["engines"]), host.prefix)
            lines.append(_runtime_nvidia(step.data["names"]))
    if not options.agent:
        lines.append(_UNGRANTED[options.ungranted if options.ungranted in _UNGRANTED else "%"])
    if any(step.kind == "load" for step in done) and "nvidia" not in host.loaded:
        lines.append("NVIDIA's driver is not loaded yet: the module attaches when it is")
    return lines


_REFUSED = (
    "a container that gets a card past our runtime (--gpus all without a default runtime of ours,"
    " --device, a privileged pod) cannot open it"
)
_UNGRANTED = {
    "refuse": f"{_REFUSED}: with CGPU_MEM=max a container has all of the card",
    "asked": f"{_REFUSED} once any other has asked for a share; the first can, unlimited",
    "allow": "a container that gets a card past our runtime (--gpus all) is not limited",
    "%": "a container that gets a card past our runtime (--gpus all) gets the share that was set",
}


def _runtime_nvidia(names: list[str]) -> str:
    """The runtime that `--runtime=nvidia` starts, which vendors' documents print."""
    if "nvidia" in names:
        return (
            "--runtime=nvidia starts cgpu's runtime, and that the toolkit's"
            " (nvidia-container-runtime) where there is one; an uninstallation gives the name back"
        )
    return (
        "--runtime=nvidia, as vendors' documents have it, is the toolkit's and limits nothing:"
        " `cgpu install-runtime --name cgpu --name nvidia` makes it start ours, then the toolkit's"
    )


def _start_by_hand(options: Options) -> list[str]:
    """What systemd would have started."""
    missing = "no systemd here"
    if options.agent:
        lines = [
            f"{missing}: start `{options.cgpu} agent` at boot, before containers that need it;"
        ]
        lines.append("`cgpu run` starts one itself where none runs")
    else:
        lines = [f"{missing}: run `modprobe cgpu_km`, `modprobe cgpu_rm` and"]
        lines.append(f"`{options.cgpu} cards --apply` at boot")
        lines.append(f"{missing}: start `{options.cgpu} parkd` for `cgpu park`")
    if options.exporter:
        lines.append(f"{missing}: start `{options.cgpu} exporter` for the metrics")
    if options.usage:
        lines.append(f"{missing}: start `{options.cgpu} usage --record` for the record")
    return lines


# ---- uninstall


def holders(host: Host) -> list[str]:
    """Return ids of containers on GPUs, of either door."""
    return [
        one
        for root in procfs.doors(str(host.prefix))
        if procfs.is_open(root)
        for one in procfs.container_ids(root)
    ]


def readers(host: Host) -> list[str]:
    """Return the processes that hold files of the tree open, which pins the module."""
    found = []
    for one in process.directories(host.prefix / "proc"):
        # It, or one of its files, may go meanwhile.
        with contextlib.suppress(OSError):
            comm = (one / "comm").read_text().strip()
            for name in os.listdir(one / "fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(one / "fd" / name).startswith(f"{procfs.KERNEL_DOOR}/"):
                        found.append(f"{comm} ({one.name})")
    return sorted(set(found))


def refuse_while_used(host: Host) -> None:
    """Raise InstallError, with their ids, while containers use a GPU."""
    listed = holders(host)
    if listed:
        shown = ", ".join(one[:12] for one in listed[:6]) + (" …" if len(listed) > 6 else "")
        count = "1 container uses" if len(listed) == 1 else f"{len(listed)} containers use"
        raise InstallError(f"{count} a GPU: {shown}: stop them first (`cgpu ps`)")


def unload(host: Host, held: Journal, say: Callable[[str], None] = lambda line: None) -> list[Step]:
    """
    Stop our own services, then unload the modules; return the services that were stopped.

    Raises:
        InstallError: containers or readers hold the module; nothing was changed.
    """
    every = [*held.steps, *(held.layer.steps if held.layer else ())]
    stopped = [step for step in reversed(every) if step.kind == "service"]
    for step in stopped:
        say(f"undo: {step.shown}")
        undo(host, step)
    # Unloading comes first: if it fails because the module is in use, nothing else has changed.
    try:
        undo(host, Step("load", "", {}))
    except InstallError as error:
        for step in reversed(stopped):
            do(host, step)
        listed = readers(host)
        by = f"; held by {', '.join(listed)}" if listed else ""
        raise InstallError(f"{error}{by}; nothing was changed") from None
    return stopped


def plan_uninstall(host: Host, force: bool = False) -> list[Step]:
    """
    Return the steps whose undoing removes the installation, in that order.

    Args:
        force: also where containers would not start without our runtime.

    Raises:
        InstallError: nothing is installed, or containers hold it or were created with it.
    """
    held = journal.read(host)
    refuse_while_used(host)
    found = [] if force else stranded.containers(host)
    if found:
        raise InstallError(stranded.refusal(found))
    layer = held.layer.steps if held.layer else []
    # An upgrade that was cut short lies on top.
    return [*reversed(layer), *held.retired, *reversed(held.steps)]


def left_by_use(host: Host, purge: bool = False) -> tuple[list[Path], list[Path]]:
    """
    Return files made in use: those that an uninstallation removes, and those that it keeps.

    Args:
        purge: keep nothing.
    """
    found = sorted({path for pattern in LEFTOVERS for path in host.prefix.glob(pattern)})
    record = host.prefix / RECORD
    if purge or not record.exists():
        return found, []
    # Keep the record, because bills may depend on it, and remove the rest of its directory.
    gone = [path for path in found if path not in record.parents]
    return gone + sorted(path for path in record.parent.iterdir() if path != record), [record]


def uninstall(
    host: Host,
    say: Callable[[str], None] = lambda line: None,
    force: bool = False,
    purge: bool = False,
) -> None:
    """
    Restore the host as it was before the installation, except for the record of usage.

    Args:
        force: also where containers were created with our runtime; they are listed.
        purge: remove the record, too.

    Raises:
        InstallError: containers or readers hold the module, and nothing was changed; or a step
            could not be undone, and a second run continues there.
    """
    with journal.alone(host):
        steps = plan_uninstall(host, force)
        found = stranded.containers(host)
        held = journal.read(host)
        unload(host, held, say)
        left = []
        for step in steps:
            if step.kind in ("service", "load"):
                continue
            say(f"undo: {step.shown}")
            left += take_back(host, [step])
        if host.systemd:
            left += take_back(host, [Step("reload", "systemctl daemon-reload", {})])
        if left:
            raise InstallError(f"left behind: {'; '.join(left)}")
        # The runtime may have been registered without this installation.
        registration.undo(registration.plan_undo(host.prefix), host.prefix)
        todo = stranded.settle(host)
        gone, kept = left_by_use(host, purge)
        for path in gone:
            say(f"remove {path}")
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        for path in kept:
            say(f"kept: {path}, what containers had of the cards; --purge removes it")
        for one in found:
            say(f"does not start any more: {one}")
        if todo is not None:
            say(todo)
        remove_directories(held.made, host.prefix)
