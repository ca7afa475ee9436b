# SPDX-License-Identifier: MIT
"""udev and NVIDIA's nvidia-modprobe as this machine's release has them, unpacked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.vm import packages
from tests.vm.modules import Build

UDEVADM, NVIDIA_MODPROBE = "udevadm", "nvidia-modprobe"


def build() -> Path:
    """Return a directory with ``systemd-udevd`` and ``nvidia-modprobe``, and udev's libraries."""
    names = ("udev", "libudev1", NVIDIA_MODPROBE)
    archives = [packages.download(name, packages.own_version(name)) for name in names]
    content = "\n".join(path.name for path in archives).encode()
    with Build("udev", packages.os_release().get("VERSION_CODENAME", ""), content) as made:
        if not made.complete:
            for tree in map(packages.unpacked, archives):
                for path in sorted(tree.rglob("*")):
                    wanted = path.name in (UDEVADM, NVIDIA_MODPROBE) and os.access(path, os.X_OK)
                    if path.is_file() and (wanted or path.name.startswith("libudev.so")):
                        shutil.copy(path, made.root / path.name)
            # By this name the program is the daemon.
            (made.root / "systemd-udevd").symlink_to(UDEVADM)
        return made.root
