# SPDX-License-Identifier: MIT
"""
Install the module and all that belongs to it on a host, and take every bit of it back.

An installation is a list of steps, each of which can undo itself. Before a step is taken it is
written to a journal; a failure undoes what was done, and :func:`uninstall` undoes the journal from
its end. What stood in a file before is in the journal too.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import __version__, doctor, install_step, procfs, runtime_install
from .errors import CgpuError, InstallError
from .install_step import (
    MODULES,
    UNITS,
    Host,
    Step,
    make_directories,
    products,
    remove_directories,
    take_back,
    write_file,
)

JOURNAL = "var/lib/cgpu/installation.json"
SOURCES = "usr/src/cgpu-{version}"
PLACED = "lib/modules/{release}/updates/cgpu"
MODULES_LOAD = doctor.MODULES_LOAD
#: What is left behind by use: by the hook, the runtime, ``cgpu cdi`` and this file.
LEFTOVERS = (
    "run/cgpu",
    "var/lib/cgpu",
    "var/log/cgpu-prestart-hook.log*",
    "etc/cdi/cgpu.json",
    "var/run/cdi/cgpu.json",
)

_UNIT = """\
[Unit]
Description=cgpu: modules that share NVIDIA GPUs between containers
Documentation=man:modprobe(8)
# Containers that start with the engine must find their limits enforced.
Before=docker.service containerd.service crio.service podman.service kubelet.service
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/modprobe cgpu_km
# Without the bridge memory is limited and compute is not: better than nothing at all.
ExecStart=-/sbin/modprobe cgpu_rm

[Install]
WantedBy=multi-user.target
"""
_EXPORTER_UNIT = """\
[Unit]
Description=cgpu: metrics for Prometheus
After=cgpu.service network.target

[Service]
ExecStart={cgpu} exporter
DynamicUser=yes
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


class Options(NamedTuple):
    """
    What to install.

    dkms: build by DKMS, so that the next kernel gets the module too; else for the running kernel.
    modules: a directory with modules that are built already, or None; implies no DKMS.
    runtimes: register with the container engines that are here.
    names, default: as in :class:`pycgpu.runtime_install.Options`.
    exporter: run the exporter as a service.
    load: load the module at once.
    cgpu: the program that services start.
    """

    dkms: bool = True
    modules: str | None = None
    runtimes: bool = True
    names: tuple[str, ...] = ("cgpu",)
    default: bool = False
    exporter: bool = False
    load: bool = True
    cgpu: str = "/usr/local/bin/cgpu"


# ---- install


def check(options: Options, host: Host) -> None:
    """
    Look for what would make the installation fail, before anything is changed.

    Raises:
        InstallError: what is missing, and how to get it.
    """
    journal = host.prefix / JOURNAL
    if journal.exists():
        version = read_journal(host)[0]
        if version == __version__:
            raise InstallError(f"cgpu {version} is installed already; `cgpu uninstall` removes it")
        raise InstallError(f"cgpu {version} is installed: `cgpu upgrade` takes it to {__version__}")
    tree = host.prefix / procfs.KERNEL_DOOR.lstrip("/")
    if tree.exists() and "cgpu_km" not in host.loaded:
        raise InstallError(f"{procfs.KERNEL_DOOR} is another product's: uninstall that first")
    if "cgpu_km" in host.loaded:
        raise InstallError("cgpu_km is loaded, but was not installed by this: rmmod it first")
    if options.modules is not None:
        if not (Path(options.modules) / "cgpu_km.ko").exists():
            raise InstallError(f"{options.modules}: no cgpu_km.ko in it")
        return
    headers = doctor.HEADERS.format(release=host.release)
    if not (host.prefix / headers / "Makefile").exists():
        raise InstallError(
            f"/{headers} is missing, without which no module can be built:"
            f" apt install linux-headers-{host.release} (RHEL: kernel-devel-{host.release})"
        )
    wanted = {"make": "make", "gcc": "gcc", **({"dkms": "dkms"} if options.dkms else {})}
    missing = [package for program, package in wanted.items() if not shutil.which(program)]
    if missing:
        other = ", or give --no-dkms" if "dkms" in missing else ""
        raise InstallError(f"missing: {', '.join(missing)}: apt install {' '.join(missing)}{other}")
    if doctor.secure_boot(host.prefix):
        _check_key(options, host)


def _check_key(options: Options, host: Host) -> None:
    key = host.prefix / "var/lib/dkms/mok.pub"
    if options.dkms and key.exists():
        try:
            if "is already enrolled" in host.run(["mokutil", "--test-key", str(key)]):
                return
        except InstallError as error:
            # mokutil says so with either exit status, depending on its version.
            if "is already enrolled" in str(error):
                return
    if not options.dkms:
        raise InstallError(
            "Secure Boot is on and takes signed modules only: leave out --no-dkms, for DKMS signs"
        )
    raise InstallError(
        "Secure Boot is on and does not know DKMS's key: run `dkms generate_mok`, then"
        " `mokutil --import /var/lib/dkms/mok.pub`, reboot and enrol it, and try again"
    )


def plan(options: Options, host: Host) -> list[Step]:
    """Return the steps that installing takes, the module's loading last."""
    sources = str(Path(__file__).resolve().parent / "kmod")
    if not Path(sources).is_dir():
        # The repository, where the folder stands at the top.
        sources = str(Path(__file__).resolve().parents[1] / "kmod")
    steps = []
    if options.modules is not None:
        directory = Path(options.modules)
        files = [str(directory / f"{name}.ko") for name in MODULES]
        steps.append(_place([path for path in files if Path(path).exists()], host))
    elif options.dkms:
        path = SOURCES.format(version=__version__)
        data = {"path": path, "source": sources}
        steps.append(Step("tree", f"copy the sources to /{path}", data))
        shown = f"dkms add, build, install cgpu {__version__} for {host.release}"
        steps.append(Step("dkms", shown, {"version": __version__}))
    else:
        steps.append(Step("build", f"build the modules for {host.release}", {"source": sources}))
    steps.append(write_file(MODULES_LOAD, "cgpu_km\n", host.prefix))
    if options.runtimes and runtime_install.engines_here(host.prefix):
        listed = ", ".join(runtime_install.engines_here(host.prefix))
        data = {"names": list(options.names), "default": options.default}
        steps.append(Step("runtime", f"register the runtime with {listed}", data))
    if host.systemd:
        steps += _service("cgpu.service", _UNIT, False, host)
        if options.exporter:
            unit = _EXPORTER_UNIT.format(cgpu=options.cgpu)
            steps += _service("cgpu-exporter.service", unit, True, host)
    if options.load:
        steps.append(Step("load", "load cgpu_km, and cgpu_rm", {"modules": list(MODULES)}))
    return steps


def _service(unit: str, text: str, now: bool, host: Host) -> list[Step]:
    enable = f"systemctl enable {'--now ' if now else ''}{unit}"
    return [
        write_file(f"{UNITS}/{unit}", text, host.prefix),
        Step("service", enable, {"unit": unit, "now": now}),
    ]


def _place(files: list[str], host: Host) -> Step:
    path = PLACED.format(release=host.release)
    names = " and ".join(Path(file).name for file in files)
    data = {"path": path, "files": files, "release": host.release}
    return Step("place", f"copy {names} to /{path}, depmod", data)


def build(source: str, host: Host, directory: str) -> list[str]:
    """Build both modules for the running kernel in *directory*; return their paths."""
    work = Path(directory) / "kmod"
    shutil.copytree(source, work, ignore=products)
    headers = str(host.prefix / doctor.HEADERS.format(release=host.release))
    host.run(["make", "-C", str(work), f"KDIR={headers}", "all"])
    built = [str(work / "cgpu_km.ko")]
    bridge = work / "bridge"
    if (bridge / "Makefile").exists():
        symbols = f"KBUILD_EXTRA_SYMBOLS={work}/Module.symvers"
        host.run(
            ["make", "-C", str(bridge), f"KDIR={headers}", symbols, "KBUILD_MODPOST_WARN=1"]
        )
        built.append(str(bridge / "cgpu_rm.ko"))
    return built


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
    check(options, host)
    done: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="cgpu-build-") as scratch:
        try:
            for step in plan(options, host):
                say(step.shown)
                if step.kind == "build":
                    step = _place(build(step.data["source"], host, scratch), host)
                # First into the journal: a step that was cut short is undone as well.
                done.append(step)
                _write_journal(host, done)
                install_step.do(host, step)
                _write_journal(host, done)
        except (OSError, CgpuError) as error:
            say("failed: taking back what was done")
            left = take_back(host, done)
            _forget_journal(host)
            state = f"; left behind: {'; '.join(left)}" if left else "; nothing was changed"
            raise InstallError(f"{error}{state}") from None
        except BaseException:
            take_back(host, done)
            _forget_journal(host)
            raise
    return _advice(host, done)


def _advice(host: Host, done: list[Step]) -> list[str]:
    lines = []
    for step in done:
        lines += [f"now run: {command}" for command in step.data.get("restart", ())]
        if step.data.get("note"):
            lines.append(f"without compute limits: {step.data['note']}")
    if any(step.kind == "load" for step in done) and "nvidia" not in host.loaded:
        lines.append("NVIDIA's driver is not loaded yet: the module attaches when it is")
    return lines


# ---- uninstall


def holders(host: Host) -> list[str]:
    """Return ids of containers on GPUs, of either door."""
    doors = (procfs.KERNEL_DOOR, procfs.USER_DOOR)
    roots = [str(host.prefix / door.lstrip("/")) for door in doors]
    return [
        one
        for root in roots
        if os.path.exists(f"{root}/api_version")
        for one in procfs.container_ids(root)
    ]


def readers(host: Host) -> list[str]:
    """Return the processes that hold files of the tree open, which pins the module."""
    found = []
    for link in (host.prefix / "proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
            if target.startswith(f"{procfs.KERNEL_DOOR}/"):
                pid = link.parts[-3]
                comm = (link.parents[1] / "comm").read_text().strip()
                found.append(f"{comm} ({pid})")
        except OSError:
            continue
    return sorted(set(found))


def plan_uninstall(host: Host) -> list[Step]:
    """
    Return the steps whose undoing removes the installation, in that order.

    Raises:
        InstallError: nothing is installed, or containers or readers hold it.
    """
    steps = read_journal(host)[1]
    listed = holders(host)
    if listed:
        shown = ", ".join(one[:12] for one in listed[:6]) + (" …" if len(listed) > 6 else "")
        count = "1 container uses" if len(listed) == 1 else f"{len(listed)} containers use"
        raise InstallError(f"{count} a GPU: {shown}: stop them first (`cgpu ps`)")
    return list(reversed(steps))


def uninstall(host: Host, say: Callable[[str], None] = lambda line: None) -> None:
    """
    Leave the host as it was before the installation.

    Raises:
        InstallError: containers or readers hold the module, and nothing was changed; or what
            could not be undone, and a second run goes on from there.
    """
    steps = plan_uninstall(host)
    made = json.loads((host.prefix / JOURNAL).read_text()).get("made", ())
    stopped = [step for step in steps if step.kind == "service"]
    for step in stopped:
        say(f"undo: {step.shown}")
        install_step.undo(host, step)
    # First what may be refused: while the module is in use, nothing else has been touched.
    try:
        install_step.undo(host, Step("load", "", {}))
    except InstallError as error:
        for step in reversed(stopped):
            install_step.do(host, step)
        held = readers(host)
        by = f"; held by {', '.join(held)}" if held else ""
        raise InstallError(f"{error}{by}; nothing was changed") from None
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
    runtime_install.undo(runtime_install.plan_undo(host.prefix), host.prefix)
    say("remove logs and state")
    for pattern in LEFTOVERS:
        for path in host.prefix.glob(pattern):
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    remove_directories(made, host.prefix)


# ---- the journal


def _write_journal(host: Host, steps: list[Step]) -> None:
    path = host.prefix / JOURNAL
    made = make_directories(path.parent, host.prefix)
    if path.exists():
        made = json.loads(path.read_text())["made"]
    draft = path.with_name(path.name + ".cgpu")
    held = {"version": __version__, "made": made, "steps": [list(step) for step in steps]}
    draft.write_text(json.dumps(held, indent=1) + "\n")
    draft.rename(path)


def read_journal(host: Host) -> tuple[str, list[Step]]:
    """
    Return version and steps of what is installed.

    Raises:
        InstallError: nothing is, or the journal cannot be read.
    """
    try:
        held = json.loads((host.prefix / JOURNAL).read_text())
        return str(held["version"]), [Step(*step) for step in held["steps"]]
    except FileNotFoundError:
        raise InstallError(f"cgpu is not installed here (no /{JOURNAL})") from None
    except PermissionError:
        raise InstallError(f"/{JOURNAL}: permission denied: run this as root") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InstallError(f"/{JOURNAL}: cannot be read: {error}") from None


def _forget_journal(host: Host) -> None:
    path = host.prefix / JOURNAL
    if path.exists():
        made = json.loads(path.read_text())["made"]
        path.unlink()
        remove_directories(made, host.prefix)
