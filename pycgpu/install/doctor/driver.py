# SPDX-License-Identifier: MIT
"""NVIDIA's driver, and the memory of its cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...tree import device_nodes, nvml, procfs
from .. import bulletin
from .finding import FAIL, NOTE, OK, WARN, Finding
from .host import Host


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
    from ...core import Abi

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


def mig(host: Host) -> Iterator[Finding]:
    """No card is in MIG mode, in which the driver divides it and nobody has the whole of it."""
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
