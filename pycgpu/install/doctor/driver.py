# SPDX-License-Identifier: MIT
"""NVIDIA's driver, and the memory of its cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...tree import device_nodes, nvml, procfs
from .. import bulletin
from .finding import FAIL, NOTE, OK, WARN, Finding
from .host import Host

if TYPE_CHECKING:
    from ...core import Abi


def driver(host: Host) -> Iterator[Finding]:
    """NVIDIA's driver is there, and its branch's calls are known."""
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
    abi, findings = _branch(host, version, flavour)
    yield from findings
    if abi is None:
        return
    if not abi.compared:
        yield Finding(
            NOTE,
            "driver",
            f"branch {abi.branch}: its layouts are those that others published, and were not"
            " compared with NVIDIA's headers",
            "read docs/drivers.md, and try your programs before you rely on limits",
        )
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


def _branch(host: Host, version: str, flavour: str) -> tuple[Abi | None, list[Finding]]:
    """Return the layouts by which its calls are read; None: none is known."""
    from ...core import Abi

    told = f"{version} ({flavour} modules)"
    try:
        abi = Abi(version)
        return abi, [Finding(OK, "driver", f"{told}, calls of branch {abi.branch}")]
    except ValueError as error:
        why = str(error)
    try:
        abi = Abi(version, newest=True)
    except ValueError:
        return None, [Finding(FAIL, "driver", why, "use a driver of a known branch")]
    if host.root is not None and "memory" in procfs.read_features(host.root):
        said = (
            f"{told} is newer than all known: it passed the check against the layouts of branch"
            f" {abi.branch}, which limit memory. The check misses fields that moved within a"
            " structure of the same size"
        )
        return abi, [Finding(WARN, "driver", said, "upgrade cgpu, or try your programs first")]
    if host.read("sys/module/cgpu_km/parameters/unknown_driver").strip() == "newest":
        said = f"{told} is newer than all known, and has not passed the check: no container"
        remedy = "`dmesg | grep cgpu` says what differs; use a driver of a known branch"
        return None, [Finding(FAIL, "driver", f"{said} gets a card", remedy)]
    remedy = (
        "use a driver of a known branch; or have it checked: cgpu_km with unknown_driver=newest,"
        " or `cgpu run --unknown-driver newest` (docs/drivers.md)"
    )
    return None, [Finding(FAIL, "driver", f"{told} is newer than all known", remedy)]


def _vulnerabilities(version: str, branch: int) -> Iterator[Finding]:
    """A tenant talks to the driver itself: a flaw there is a way around everything here."""
    known = bulletin.last(branch)
    # An unverified branch uses an older branch's layouts, but not its bulletins.
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


def mig(host: Host) -> Iterator[Finding]:
    """No card is in MIG mode, in which the driver divides it and no container gets all of it."""
    proc = str(host.prefix / "proc")
    found = {minor for minor in device_nodes.minors(proc) if procfs.has_instances(minor, proc)}
    if host.prefix == Path("/"):
        found |= {
            board.minor for board in nvml.read().boards if board.mig and board.minor is not None
        }
    for minor in sorted(found):
        yield Finding(
            WARN,
            "mig",
            f"GPU {minor} is in MIG mode: no container is given it",
            f"nvidia-smi -i {minor} -mig 0 (by its number there), then reset the card",
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
