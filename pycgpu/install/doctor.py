# SPDX-License-Identifier: MIT
"""
What is in order on this host and what is not, each with what to do about it.

Every check only reads, and reads below *prefix*, so that a test can show it any host.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..errors import CgpuError, InstallError
from ..tree import cards as card_settings
from ..tree import nvml, procfs
from . import bulletin, containerd, kernel_door, module_build, registration, service

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"

#: Names of modules that products of other vendors use, and of those that are named like them.
RIVALS = re.compile(r"^([eqmx]gpu)(_.*)?$")
#: What is installed, see :mod:`pycgpu.install.journal`.
JOURNAL = "var/lib/cgpu/installation.json"
MODULES_LOAD = "etc/modules-load.d/cgpu.conf"
MODPROBE = "etc/modprobe.d/cgpu.conf"
FTRACE = "proc/sys/kernel/ftrace_enabled"
UNGRANTED = "sys/module/cgpu_km/parameters/ungranted"


class Finding(NamedTuple):
    """``level``: one of OK, NOTE, WARN, FAIL. ``remedy`` is empty where there is nothing to do."""

    level: str
    subject: str
    text: str
    remedy: str = ""


def examine(
    prefix: str = "/", root: str | None = None, release: str | None = None
) -> list[Finding]:
    """
    Return all findings, in the order in which their causes lie.

    Args:
        prefix: root of the host's files.
        root: the tree; default: the door that is open below *prefix*.
        release: the running kernel's.
    """
    host = Host(Path(prefix), root, release or os.uname().release)
    return [finding for check in CHECKS for finding in check(host)]


class Host:
    """The host that is examined; ``root`` is the tree, None if no door is open."""

    def __init__(self, prefix: Path, root: str | None, release: str) -> None:
        self.prefix = prefix
        self.release = release
        self.modules = {line.split(" ")[0] for line in self.read("proc/modules").splitlines()}
        found = (root,) if root else procfs.doors(str(prefix))
        self.root = next((door for door in found if procfs.is_open(door)), None)

    def read(self, path: str) -> str:
        """Return a file's text, empty if it cannot be read."""
        try:
            return (self.prefix / path).read_text(errors="replace")
        except OSError:
            return ""

    def cards(self) -> list[int]:
        """Return the minors of the driver's device nodes."""
        names = (path.name for path in (self.prefix / "dev").glob("nvidia[0-9]*"))
        return sorted(int(name[6:]) for name in names if name[6:].isdecimal())


def driver(host: Host) -> Iterator[Finding]:
    """NVIDIA's driver: there, and of a branch whose calls are known."""
    line = host.read("proc/driver/nvidia/version").partition("\n")[0]
    found = re.search(r"(\d+\.\d+(?:\.\d+)?)", line)
    if not found:
        if "nvidia" in host.modules:
            yield Finding(WARN, "driver", "loaded, but it does not tell its version")
            return
        yield Finding(
            FAIL, "driver", "NVIDIA's driver is not loaded", "install it, then `modprobe nvidia`"
        )
        return
    flavour = "open" if "Open Kernel Module" in line else "closed"
    version = found[1]
    from ..core import Abi

    try:
        abi = Abi(version)
    except ValueError as error:
        yield Finding(
            FAIL,
            "driver",
            f"{version} ({flavour}): {error}",
            "use a driver of a known branch, or load cgpu_km and cgpu_rm with force_branch=1, "
            "which may charge wrongly or oops (docs/install.md), and test it well",
        )
        return
    yield Finding(OK, "driver", f"{version} ({flavour} modules), calls of branch {abi.branch}")
    yield from _vulnerabilities(version, abi.branch)
    if bulletin.crashes_readers(version):
        yield Finding(
            WARN,
            "driver",
            f"{version} crashes the kernel when somebody, a tenant too, reads /proc/PID/mem where"
            " the card's memory is mapped",
            "install 595.71.05 or newer"
            " (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1107)",
        )
    if "nvidia_uvm" not in host.modules:
        yield Finding(
            WARN, "driver", "nvidia-uvm is not loaded: CUDA cannot start", "modprobe nvidia-uvm"
        )


def _vulnerabilities(version: str, branch: int) -> Iterator[Finding]:
    """A tenant talks to the driver itself: a flaw there is a way around everything here."""
    known = bulletin.last(branch)
    # Branches that nobody has verified borrow an older one's calls, not its bulletins.
    if known is None or not version.startswith(f"{branch}."):
        return
    if not bulletin.is_fixed(version, known):
        yield Finding(
            WARN,
            "driver",
            f"{version} has known vulnerabilities: bulletin {known.number} of {known.published}"
            f" ({', '.join(known.cves[:3])}{', …' * (len(known.cves) > 3)})",
            f"install {known.fixed} or newer ({bulletin.URL})",
        )
    elif known.number != bulletin.NEWEST:
        yield Finding(
            NOTE,
            "driver",
            f"no bulletin after {known.number} of {known.published} has a fix for branch {branch}",
            f"look whether a newer branch is wanted ({bulletin.URL})",
        )


def memory_errors(host: Host) -> Iterator[Finding]:
    """Without ECC, a tenant that makes bits flip makes them flip in its neighbours' memory."""
    if host.prefix != Path("/"):
        return
    off = [board for board in nvml.read().boards if board.ecc is False]
    if off:
        yield Finding(
            WARN,
            "ecc",
            "off on " + ", ".join(f"{board.name} {board.uuid}" for board in off) + ": errors in"
            " memory, a neighbour's included, go unnoticed",
            "nvidia-smi -e 1, then reset the card or reboot",
        )


def kernel(host: Host) -> Iterator[Finding]:
    """The running kernel, and what building a module for it takes."""
    yield Finding(OK, "kernel", host.release)
    if not (host.prefix / module_build.HEADERS.format(release=host.release) / "Makefile").exists():
        yield Finding(
            WARN,
            "kernel",
            "no headers of the running kernel: the module cannot be built for it",
            f"Debian, Ubuntu: apt install linux-headers-{host.release};"
            f" RHEL: dnf install kernel-devel-{host.release}",
        )
    if secure_boot(host.prefix):
        yield Finding(
            NOTE,
            "kernel",
            "Secure Boot is on: only signed modules load",
            "enrol DKMS's key once: mokutil --import /var/lib/dkms/mok.pub",
        )
    if host.read(FTRACE).strip() == "0":
        yield Finding(
            WARN,
            "kernel",
            "ftrace is off: the module, which follows the driver by it, is not loaded",
            "sysctl kernel.ftrace_enabled=1",
        )


def secure_boot(prefix: Path) -> bool:
    """Whether the firmware checks signatures."""
    for path in (prefix / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            # Four bytes of attributes, then the value.
            return path.read_bytes()[4:5] == b"\1"
        except OSError:
            return False
    return False


def module(host: Host) -> Iterator[Finding]:
    """The door: there, and of this package's version."""
    loaded = "cgpu_km" in host.modules
    if host.root is None:
        if loaded:
            yield Finding(
                FAIL, "module", "cgpu_km is loaded and has no tree", "look at `dmesg | grep cgpu`"
            )
            return
        remedy = "`cgpu install`, then `modprobe cgpu_km`"
        if _built(host):
            remedy = "`modprobe cgpu_km`; if that fails, `dmesg | grep cgpu` says why"
        yield Finding(FAIL, "module", "no tree: neither cgpu_km nor the agent runs", remedy)
        return
    version = procfs.read_version(host.root)
    api_version = procfs.read_api_version(host.root)
    door = "kernel door" if loaded or host.root.endswith(procfs.KERNEL_DOOR) else "user door"
    yield Finding(OK, "module", f"{version}, {door}, {host.root}")
    if api_version != procfs.API_VERSION:
        yield Finding(
            FAIL,
            "module",
            f"its tree is of version {api_version}, this package reads {procfs.API_VERSION}",
            "`cgpu upgrade`",
        )
    elif version != __version__:
        yield Finding(WARN, "module", f"module {version}, package {__version__}", "`cgpu upgrade`")
    if not (host.prefix / MODULES_LOAD).exists() and loaded:
        yield Finding(NOTE, "module", "not loaded at boot", f"echo cgpu_km > /{MODULES_LOAD}")


def ungranted(host: Host) -> Iterator[Finding]:
    """What happens to a container that was given a card past our runtime."""
    said = host.read(UNGRANTED).strip()
    if said == "allow":
        yield Finding(
            NOTE,
            "ungranted",
            "a container that gets a card past our runtime (--gpus all) is not limited",
            f"echo refuse > /{UNGRANTED}, and `options cgpu_km ungranted=refuse` in /{MODPROBE}",
        )
    elif said == "asked":
        yield Finding(
            NOTE,
            "ungranted",
            "a container that gets a card past our runtime (--gpus all) is refused once any other"
            " has asked for a share, and not limited before, whatever it asks for",
            f"echo refuse > /{UNGRANTED}, and `options cgpu_km ungranted=refuse` in /{MODPROBE}",
        )
    elif said:
        what = {"refuse": "is refused"}
        shown = what.get(said, f"gets {said} of it")
        yield Finding(OK, "ungranted", f"a container that gets a card past our runtime {shown}")


def core(host: Host) -> Iterator[Finding]:
    """What decides behind the kernel door, and whether it can be replaced under containers."""
    pending = _pending(host)
    if pending is not None:
        yield Finding(
            WARN,
            "core",
            f"an upgrade to {pending} was cut short",
            "repeat it: it goes on, or goes back, by itself; `cgpu uninstall` removes all of it",
        )
    if host.root is None or "cgpu_km" not in host.modules:
        return
    door = kernel_door.read(host.root)
    if door is None:
        yield Finding(NOTE, "core", "cannot be replaced while containers run")
        return
    if door.running is None:
        yield Finding(
            FAIL, "core", "no module decides: the driver is not hooked", "`modprobe cgpu-core`"
        )
        return
    if door.trial_ms:
        left = f"{door.trial_ms / 1000:.0f} s"
        yield Finding(
            NOTE,
            "core",
            f"{door.running} is on trial; the former one is back in {left} unless it is accepted",
        )
    else:
        yield Finding(
            OK,
            "core",
            f"{door.running}; hot upgrade from door {door.door_api}, state {door.state}",
        )
    idle = [name for name in kernel_door.cores(host.modules) if name != door.running]
    if idle and not door.trial_ms:
        listed = " ".join(idle)
        yield Finding(WARN, "core", f"loaded and not used: {listed}", f"rmmod {listed}")


def _pending(host: Host) -> str | None:
    try:
        layer = json.loads(host.read(JOURNAL) or "{}").get("layer")
        return None if layer is None else str(layer["version"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return None


def _built(host: Host) -> bool:
    folder = host.prefix / "lib/modules" / host.release
    return any(folder.glob("**/cgpu_km.ko*"))


def hooks(host: Host) -> Iterator[Finding]:
    """What the door can do with the driver that is there."""
    if host.root is None:
        return
    features = procfs.read_features(host.root)
    # The module finds its cards through the driver's own files, once these are hooked.
    through_cards = "cgpu_km" in host.modules and bool(procfs.card_indexes(host.root))
    if "memory" in features or through_cards:
        yield Finding(OK, "hooks", "memory limits are enforced")
    else:
        yield Finding(
            FAIL,
            "hooks",
            "the driver is not hooked: nothing is limited",
            "`dmesg | grep cgpu` says why; `modprobe nvidia nvidia-uvm` if it is not loaded",
        )
    if features & {"slices", "gate"}:
        told = " and ".join(sorted(features & {"slices", "gate"}))
        yield Finding(OK, "compute", f"shares are enforced by {told}")
    elif "cgpu_rm" in host.modules:
        yield Finding(OK, "compute", "shares are enforced through cgpu_rm")
    else:
        yield Finding(
            WARN,
            "compute",
            "no way to steer the GPU: only memory is limited",
            "`modprobe cgpu_rm` (it is built with the driver's symbols)",
        )


def cards(host: Host) -> Iterator[Finding]:
    """Every card of the driver is under control."""
    if host.root is None:
        return
    under = set(procfs.card_indexes(host.root))
    if not under:
        yield Finding(FAIL, "cards", "no card under control", "is there a GPU? see `nvidia-smi -L`")
    for card in sorted(under):
        memory = procfs.read_memory(card, host.root)
        if not memory["total"]:
            yield Finding(
                WARN,
                "cards",
                f"GPU {card}: its size is not known",
                f"echo total <bytes> > {host.root}/{card}/memory",
            )
    missing = sorted(set(host.cards()) - under)
    if missing:
        listed = ", ".join(map(str, missing))
        yield Finding(
            WARN, "cards", f"not under control: GPU {listed}", "`dmesg | grep cgpu` says why"
        )
    elif under:
        yield Finding(OK, "cards", f"{len(under)} under control")


def settings(host: Host) -> Iterator[Finding]:
    """The cards have what was written down for them, also after a reload of the driver."""
    if host.root is None:
        return
    tables = card_settings.load(str(host.prefix / card_settings.PATH.lstrip("/")))
    proc = str(host.prefix / "proc")
    for card, key, now, value in card_settings.pending(tables, host.root, proc):
        yield Finding(
            WARN,
            "settings",
            f"GPU {card}: {key} is {now}, and {card_settings.PATH} says {value}",
            "`cgpu cards --apply`",
        )


def engines(host: Host) -> Iterator[Finding]:
    """Container engines start containers through the runtime."""
    there = registration.engines_here(host.prefix)
    if not there:
        yield Finding(NOTE, "engines", "no container engine is configured here")
        return
    for engine in there:
        text = "".join(host.read(path) for path in _files(engine, host))
        if f"/{registration.RUNTIME}" in text or f"/{registration.HOOK}" in text:
            yield Finding(OK, "engines", f"{engine}: the runtime is registered")
        else:
            yield Finding(
                WARN,
                "engines",
                f"{engine}: the runtime is not registered: its containers are not limited",
                f"cgpu install-runtime --engine {engine}",
            )


def _files(engine: str, host: Host) -> tuple[str, ...]:
    if engine != "containerd":
        return _ENGINE_FILES[engine]
    try:
        return (containerd.deciding(host.prefix),)
    except InstallError:
        return (containerd.MAIN,)  # which it cannot read, either


_HOOK_FILE = f"{registration.HOOKS_D}/90-cgpu-createruntime.json"
_ENGINE_FILES = {
    "docker": (registration.DAEMON_JSON,),
    "podman": (registration.PODMAN_CONF, _HOOK_FILE),
    "crio": (registration.CRIO_CONF, _HOOK_FILE),
}


def conflicts(host: Host) -> Iterator[Finding]:
    """Others who share GPUs on this host."""
    found = False
    for name in sorted(filter(RIVALS.match, host.modules)):
        found = True
        yield Finding(FAIL, "conflicts", f"module {name} hooks the same driver", f"`rmmod {name}`")
    tree = host.prefix / procfs.KERNEL_DOOR.lstrip("/")
    if tree.exists() and not (tree / "api_version").exists():
        found = True
        yield Finding(
            FAIL, "conflicts", f"{procfs.KERNEL_DOOR} is another product's", "uninstall that first"
        )
    preload = host.read("etc/ld.so.preload")
    if re.search(r"libvgpu|vgpu-control|libcuda-control", preload):
        found = True
        yield Finding(
            WARN,
            "conflicts",
            "/etc/ld.so.preload limits GPUs in user space too: the lower limit holds",
            "remove it there, unless you want both",
        )
    if any("nvidia-cuda-mps" in name for name in _processes(host)):
        found = True
        yield Finding(
            WARN,
            "conflicts",
            "MPS runs (M+C): its clients compute in one context, which no limit divides",
            "echo quit | nvidia-cuda-mps-control",
        )
    if not found:
        yield Finding(OK, "conflicts", "none found")


def exporter(host: Host) -> Iterator[Finding]:
    """Who can read the metrics, which name containers and pods, from elsewhere."""
    port = f"{service.EXPORTER_PORT:04X}"
    for path in ("proc/net/tcp", "proc/net/tcp6"):
        for words in map(str.split, host.read(path).splitlines()[1:]):
            address, _, number = words[1].partition(":")
            if (number, words[3]) == (port, _LISTENS) and not address.strip("0"):
                yield Finding(
                    WARN,
                    "exporter",
                    f"port {service.EXPORTER_PORT} is open on every address, to whoever asks",
                    "CGPU_EXPORTER_LISTEN=127.0.0.1:9836 in /etc/default/cgpu-exporter,"
                    " or a firewall",
                )


#: TCP_LISTEN in /proc/net/tcp.
_LISTENS = "0A"


def _processes(host: Host) -> Iterator[str]:
    for path in (host.prefix / "proc").glob("[0-9]*/comm"):
        try:
            yield path.read_text(errors="replace")
        except OSError:
            continue


def rights(host: Host) -> Iterator[Finding]:
    """Whether whoever asks may change anything."""
    if host.root is None:
        return
    mode = stat.S_IMODE(os.stat(f"{host.root}/inst_ctl").st_mode)
    if mode & 0o022:
        yield Finding(
            FAIL,
            "rights",
            f"inst_ctl is writable by others ({mode:o})",
            f"chmod 0644 {host.root}/inst_ctl",
        )
    if not os.access(f"{host.root}/inst_ctl", os.W_OK):
        yield Finding(NOTE, "rights", "changes are root's: you can only look")


def _guarded(check: Callable[[Host], Iterator[Finding]]) -> Callable[[Host], Iterator[Finding]]:
    """A tree that does not read, or goes meanwhile, is a finding and not the end."""

    def run(host: Host) -> Iterator[Finding]:
        try:
            yield from check(host)
        except InstallError as error:
            yield Finding(WARN, check.__name__, str(error))
        except (CgpuError, OSError) as error:
            yield Finding(FAIL, check.__name__, str(error))

    return run


CHECKS = tuple(
    map(
        _guarded,
        (
            *(driver, kernel, module, ungranted, core, hooks, cards, settings),
            *(memory_errors, engines, conflicts, exporter, rights),
        ),
    )
)
