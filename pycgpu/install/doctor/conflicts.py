# SPDX-License-Identifier: MIT
"""Others who share GPUs on this host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...tree import authority, group, process, procfs
from .finding import FAIL, OK, WARN, Finding
from .host import Host

#: Names of modules that products of other vendors use, and of those that are named like them.
RIVALS = re.compile(r"^([eqmx]gpu)(_.*)?$")


def conflicts(host: Host) -> Iterator[Finding]:
    """Others who share GPUs on this host."""
    found = False
    both = authority.complaint(str(host.prefix))
    if both is not None:
        found = True
        what, _, remedy = both.partition(": ")
        yield Finding(FAIL, "conflicts", what, remedy)
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
    if _serves_past_us(host):
        found = True
        yield Finding(
            WARN,
            "conflicts",
            "MPS runs (M+C): its clients compute in one context, which no limit divides",
            "echo quit | nvidia-cuda-mps-control; `cgpu run --group` starts a server with limits",
        )
    if not found:
        yield Finding(OK, "conflicts", "none found")


def _serves_past_us(host: Host) -> bool:
    """Whether a program of MPS runs that is none of our groups'."""
    for one in process.directories(host.prefix / "proc"):
        try:
            if "nvidia-cuda-mps" not in (one / "comm").read_text(errors="replace"):
                continue
            variables = (one / "environ").read_bytes().split(b"\0")
        except PermissionError:
            # Of another user's no more is known than its name: a group's own is told from none.
            if not _has_groups(host):
                return True
        except OSError:
            continue
        else:
            ours = f"CUDA_MPS_PIPE_DIRECTORY={group.DIRECTORY}/".encode()
            if not any(variable.startswith(ours) for variable in variables):
                return True
    return False


def _has_groups(host: Host) -> bool:
    return any((host.prefix / group.DIRECTORY.lstrip("/")).glob("*/pipe"))
