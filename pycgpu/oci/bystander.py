# SPDX-License-Identifier: MIT
"""
Containers without a part of a card that may meet one with a part: a pod's sidecars.

Under the user door, a tenant can send the driver's files over a socket of a shared network to a
container whose calls the agent does not see. So a container that shares its network and has no card
gets a filter against calls that take anything of a card. The filter refuses them without the agent,
and still does so after the agent has ended.
"""

from __future__ import annotations

import errno

from .bundle import NVIDIA_MAJOR, given_cards

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: _IOC_NR and size of the RM escapes that take memory, channels or clients, or wrap one that does.
#: The driver ignores the rest of the number. kmod/core/rm/structs.h has the structures.
ESCAPES = (
    (39, 56),  # RM_ALLOC_MEMORY
    (40, 20),  # RM_ALLOC_OBJECT
    (42, 32),  # RM_CONTROL
    (43, 32),  # RM_ALLOC
    (43, 48),  # RM_ALLOC, of newer programs
    (52, 28),  # RM_DUP_OBJECT
    (74, 184),  # RM_VID_HEAP_CONTROL
    (78, 56),  # RM_MAP_MEMORY
    (211, 16),  # IOCTL_XFER_CMD
)
_UVM_INITIALIZE = 0x30000001
_NUMBER, _SIZE, _WHOLE = 0xFF, 0x3FFF << 16, 0xFFFFFFFF
_ADMINISTRATOR = "CAP_SYS_ADMIN"
#: Values of NVIDIA_VISIBLE_DEVICES that bring no card.
_NO_CARD = ("", "void", "none")


def fragment() -> dict[str, Any]:
    """Return keys of ``linux.seccomp``, as the agent's own are."""
    masks = [(_NUMBER | _SIZE, size << 16 | number) for number, size in ESCAPES]
    masks.append((_WHOLE, _UVM_INITIALIZE))
    return {
        # A program of another instruction set is not to end for it.
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            {
                "names": ["ioctl"],
                "action": "SCMP_ACT_ERRNO",
                # as of a device that has no such call
                "errnoRet": errno.ENOTTY,
                "args": [
                    {"index": 1, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
                ],
            }
            for mask, value in masks
        ],
    }


def is_one(config: dict[str, object]) -> bool:
    """Return whether a container without a request gets these rules."""
    return _shares_network(config) and not _has_card(config) and not _is_administrator(config)


def _shares_network(config: dict[str, object]) -> bool:
    linux = config.get("linux")
    spaces = linux.get("namespaces") if isinstance(linux, dict) else None
    networks = [
        space
        for space in (spaces if isinstance(spaces, list) else [])
        if isinstance(space, dict) and space.get("type") == "network"
    ]
    # by its path another's; without one listed the host's
    return not networks or any(space.get("path") for space in networks)


def _has_card(config: dict[str, object]) -> bool:
    linux = config.get("linux")
    devices = linux.get("devices") if isinstance(linux, dict) else None
    if given_cards(config)[1] or any(
        isinstance(node, dict) and node.get("major") == NVIDIA_MAJOR
        for node in (devices if isinstance(devices, list) else [])
    ):
        return True
    mounts = config.get("mounts")
    sources = [
        str(mount.get("source")).rstrip("/")
        for mount in (mounts if isinstance(mounts, list) else [])
        if isinstance(mount, dict)
    ]
    if any(source == "/dev" or source.startswith("/dev/nvidia") for source in sources):
        return True
    process = config.get("process")
    environment = process.get("env") if isinstance(process, dict) else None
    return any(
        str(entry).partition("=")[0] == "NVIDIA_VISIBLE_DEVICES"
        and str(entry).partition("=")[2] not in _NO_CARD
        for entry in (environment if isinstance(environment, list) else [])
    )


def _is_administrator(config: dict[str, object]) -> bool:
    process = config.get("process")
    capabilities = process.get("capabilities") if isinstance(process, dict) else None
    sets = capabilities.values() if isinstance(capabilities, dict) else ()
    return any(isinstance(one, list) and _ADMINISTRATOR in one for one in sets)
