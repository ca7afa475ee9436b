# SPDX-License-Identifier: MIT
"""The door and the core behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ... import __version__, parking
from ...agent import client
from ...parking.books import Books, Files
from ...tree import events, procfs
from .. import journal, kernel_door
from ..installation import MODPROBE, MODULES_LOAD
from .finding import FAIL, NOTE, OK, WARN, Finding
from .host import Host

UNGRANTED = "sys/module/cgpu_km/parameters/ungranted"


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


def _built(host: Host) -> bool:
    folder = host.prefix / "lib/modules" / host.release
    return any(folder.glob("**/cgpu_km.ko*"))


def ungranted(host: Host) -> Iterator[Finding]:
    """The treatment of a container that got a card past our runtime."""
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
            "a container that gets a card past our runtime (--gpus all) is refused once another has"
            " asked for a share, and not limited before",
            f"echo refuse > /{UNGRANTED}, and `options cgpu_km ungranted=refuse` in /{MODPROBE}",
        )
    elif said:
        what = {"refuse": "is refused"}
        shown = what.get(said, f"gets {said} of it")
        yield Finding(OK, "ungranted", f"a container that gets a card past our runtime {shown}")


def refused(host: Host) -> Iterator[Finding]:
    """Containers that were given a card past our runtime, and asked why it does not open."""
    if host.root is None:
        return
    who: dict[str, None] = {}
    for event in map(events.parse, events.lines(host.root, follow=False)):
        if event.kind == "ungranted":
            name = event.values.get("cgroup", "-")
            # as `docker ps` shows it
            name = re.sub(r"(?:docker-)?([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?", r"\1", name)
            who[f"process {event.values.get('pid', '?')}" if name == "-" else name] = None
    if who:
        shown = ", ".join([*who][-3:])
        yield Finding(
            WARN,
            "ungranted",
            f"{len(who)} came past our runtime and were refused a card, last by {shown}",
            "start it with --runtime=cgpu (CGPU_MEM=max: all of the card), or make that Docker's"
            " default: cgpu install-runtime --default",
        )


def core(host: Host) -> Iterator[Finding]:
    """The core behind the kernel door, and whether it can be replaced under containers."""
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


def parkd(host: Host) -> Iterator[Finding]:
    """The service that moves the module's containers."""
    if host.root is None or "cgpu_km" not in host.modules or not procfs.parks(host.root):
        return
    try:
        client.ask({"op": "ping"}, path=f"{host.prefix}{parking.SOCKET}")
    except (OSError, ValueError):
        away = [one.id for one in Books(Files(host.root)).moving()]
        text = "no cgpu parkd answers: no container can be parked"
        if away:
            text = f"no cgpu parkd answers to bring back {', '.join(away)}"
        remedy = "systemctl start cgpu-parkd, or `cgpu parkd`"
        cards = procfs.card_indexes(host.root)
        more = [card for card in cards if procfs.read_overcommit_ratio(card, host.root) > 100]
        yield Finding(WARN if away or more else NOTE, "parking", text, remedy)


def _pending(host: Host) -> str | None:
    try:
        layer = json.loads(host.read(journal.PATH) or "{}").get("layer")
        return None if layer is None else str(layer["version"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return None


def hooks(host: Host) -> Iterator[Finding]:
    """What the door can do with the driver that is there."""
    if host.root is None:
        return
    features = procfs.read_features(host.root)
    if "memory" in features:
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
            "`modprobe cgpu_rm`; if the kernel refuses it, `dkms install --force"
            f" cgpu/{__version__}` builds it for the driver that is installed",
        )
