# SPDX-License-Identifier: MIT
"""
Device nodes through which a container can use a card's memory past RM, and so past its limits.

They belong to nvidia-modeset, nvidia-drm, and drivers besides NVIDIA's own: nvidia-caps, switches,
nvidia-fs, gdrdrv. The CDI specification of NVIDIA's toolkit brings some of them with every card.
From 1.18 on its runtime does so too, whatever NVIDIA_DRIVER_CAPABILITIES says.
"""

from __future__ import annotations

import posix

from .bundle import NVIDIA_MAJOR, given_cards

_KINDS = ("c", "u")
_MODESET_MINOR = 254
_DRM_MAJOR = 226
#: The drivers with names like NVIDIA's that the doors watch.
_WATCHED = ("nvidia", "nvidiactl", "nvidia-frontend", "nvidia-uvm")


def past_limits(
    config: dict[str, object], proc: str = "/proc", sysfs: str = "/sys"
) -> list[dict[str, object]]:
    """
    Return those of the nodes in an OCI *config*.

    Of a privileged container none: it is given all of the host's.
    """
    linux = config.get("linux")
    devices = linux.get("devices") if isinstance(linux, dict) else None
    nodes = [
        node
        for node in (devices if isinstance(devices, list) else [])
        if isinstance(node, dict) and node.get("type") in _KINDS
    ]
    if not nodes or given_cards(config)[1]:
        return []
    unwatched = _unwatched(proc)
    return [node for node in nodes if _is_past(node, unwatched, sysfs)]


def take_out(config: dict[str, object], proc: str = "/proc", sysfs: str = "/sys") -> bool:
    """Take them out of *config*, and the leave to use them; return whether there were any."""
    past = past_limits(config, proc, sysfs)
    linux = config.get("linux")
    if not past or not isinstance(linux, dict):
        return False
    linux["devices"] = [node for node in linux["devices"] if node not in past]
    numbers = {(node.get("major"), node.get("minor")) for node in past}
    resources = linux.get("resources")
    rules = resources.get("devices") if isinstance(resources, dict) else None
    if isinstance(resources, dict) and isinstance(rules, list):
        resources["devices"] = [
            rule
            for rule in rules
            if not isinstance(rule, dict)
            or not rule.get("allow")
            or rule.get("type") not in _KINDS
            or (rule.get("major"), rule.get("minor")) not in numbers
        ]
    return True


def _is_past(node: dict[str, object], unwatched: set[str], sysfs: str) -> bool:
    major, minor = node.get("major"), node.get("minor")
    if major == NVIDIA_MAJOR:
        return minor == _MODESET_MINOR
    if major == _DRM_MAJOR:
        try:
            driver = posix.readlink(f"{sysfs}/dev/char/{major}:{minor}/device/driver")
        except OSError:
            return False
        return driver.rpartition("/")[2] == "nvidia"
    return str(major) in unwatched


def _unwatched(proc: str) -> set[str]:
    """Return the major numbers of drivers that reach cards and that no door watches."""
    with open(f"{proc}/devices", encoding="ascii", errors="replace") as file:
        characters = file.read().partition("Block devices:")[0]
    return {
        words[0]
        for words in map(str.split, characters.splitlines())
        if len(words) == 2
        and words[0] != str(NVIDIA_MAJOR)
        and words[1] not in _WATCHED
        and words[1].startswith(("nvidia", "gdrdrv"))
    }
