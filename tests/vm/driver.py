# SPDX-License-Identifier: MIT
"""
NVIDIA's own driver and tools, from the distribution's packages or from NVIDIA's source.

Nothing of them is part of this project: the packages are downloaded, unpacked and built in the
cache, for the tests and the demo alone. Debian has them in contrib and non-free.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.vm import packages
from tests.vm.kernels import Kernel
from tests.vm.modules import Build, make, toolchain

# Driver branch → the version that has both flavours: bookworm's, and trixie's.
PACKAGED = {"535": "535.261.03", "550": "550.163.01"}
# In no archive of Debian. Built where $CGPU_NVIDIA_SOURCE is a clone of
# NVIDIA/open-gpu-kernel-modules, which has a tag for each; the others have nothing new to try.
FROM_SOURCE = {"580": "580.142", "590": "590.48.01", "595": "595.44.03"}
VERSIONS = PACKAGED | FROM_SOURCE
SOURCE = "CGPU_NVIDIA_SOURCE"
TOOLS_VERSION = VERSIONS["550"]
FLAVOURS = {"open": "nvidia-open-kernel-dkms", "closed": "nvidia-kernel-dkms"}

# Only these two are wanted; the others would need the kernel's graphics stack.
MODULES = ("nvidia", "nvidia-uvm")
UNWANTED = ("nvidia-drm", "nvidia-modeset", "nvidia-peermem")

# All that nvidia-smi opens; libcuda is for its line "CUDA Version".
TOOLS = ("nvidia-smi", "libnvidia-ml1", "libcuda1")


class SourceNotFound(Exception):
    """NVIDIA's source is not at hand; the message says of what, and how to give it."""


def unpack_source(version: str, destination: Path, *paths: str) -> None:
    """
    Unpack NVIDIA's source of a release, or *paths* of it.

    Raises:
        SourceNotFound: there is no clone, or it has no such tag.
    """
    clone = os.environ.get(SOURCE)
    if not clone:
        raise SourceNotFound(
            f"driver {version}: set {SOURCE} to a clone of NVIDIA/open-gpu-kernel-modules"
        )
    archive = subprocess.run(
        ["git", "-C", clone, "archive", version, *paths], capture_output=True, check=False
    )
    if archive.returncode:
        said = archive.stderr.decode().strip()
        raise SourceNotFound(f"driver {version}: {SOURCE}={clone}: {said}")
    destination.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "x", "-C", destination], input=archive.stdout, check=True)


def _source_tree(kernel: Kernel) -> Path:
    """Return the headers that are common to all flavours, where Debian keeps them apart."""
    makefile = (kernel.headers / "Makefile").read_text()
    match = re.search(r"^include (\S+)/Makefile$", makefile, re.MULTILINE)
    return Path(match.group(1)) if match else kernel.headers


def _adapt(source: Path, headers: Path) -> None:
    """
    Make NVIDIA's sources fit kernels that are younger than they are.

    Linux 6.19 gave pci_resize_resource() a fourth argument, the BARs to leave alone, and the
    stable series took the change over; none is to be left alone here.
    """
    prototype = re.compile(r"pci_resize_resource\([^)]*exclude_bars\)")
    if prototype.search((headers / "include" / "linux" / "pci.h").read_text()):
        path = source / "nvidia" / "nv-pci.c"
        call = "pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size"
        path.write_text(path.read_text().replace(f"{call})", f"{call}, 0)"))


def build(kernel: Kernel, branch: str) -> Path:
    """
    Build nvidia.ko and nvidia-uvm.ko; return their directory, with their ``Module.symvers``.

    Args:
        branch: a key of :data:`VERSIONS` for the open flavour; ``550-closed`` for the other.

    Raises:
        PackageNotFound: the distribution does not have that driver.
        SourceNotFound: nor is its source at hand.
    """
    number, _, flavour = branch.partition("-")
    if number in FROM_SOURCE:
        return _build_from_source(kernel, number)
    package, version = FLAVOURS[flavour or "open"], VERSIONS[number]
    archive = packages.download(package, version)
    content = f"{archive.name} {toolchain(kernel)} 2".encode()
    with Build(f"driver-{branch}", kernel.tag, content) as made:
        (made.root / "modules").mkdir(exist_ok=True)
        if not made.complete:
            packages.unpack(archive, made.root / "package")
            (source,) = (made.root / "package" / "usr" / "src").iterdir()
            _adapt(source, _source_tree(kernel))
            _make_modules(kernel, source, made.root / "modules")
            # Objects and NVIDIA's sources are many times the size of what is kept.
            shutil.rmtree(made.root / "package")
        return made.root / "modules"


def _make_modules(kernel: Kernel, source: Path, destination: Path) -> None:
    make(
        source,
        "modules",
        f"SYSSRC={_source_tree(kernel)}",
        f"SYSOUT={kernel.headers}",
        *toolchain(kernel),
        "IGNORE_CC_MISMATCH=1",
        # Debugging information would be nine tenths of the modules' size.
        "CONFIG_DEBUG_INFO=",
        f"NV_EXCLUDE_KERNEL_MODULES={' '.join(UNWANTED)}",
    )
    for name in (*(f"{module}.ko" for module in MODULES), "Module.symvers"):
        shutil.copy(source / name, destination / name)
    subprocess.run(["strip", "-g", *(destination / f"{name}.ko" for name in MODULES)], check=True)


def _build_from_source(kernel: Kernel, branch: str) -> Path:
    """The open flavour: NVIDIA's own object, then the modules around it; four minutes of a CPU."""
    version = FROM_SOURCE[branch]
    content = f"{version} {toolchain(kernel)} 1".encode()
    with Build(f"driver-{branch}", kernel.tag, content) as made:
        (made.root / "modules").mkdir(exist_ok=True)
        if not made.complete:
            source = made.root / "source"
            unpack_source(version, source)
            make(source / "src" / "nvidia")
            (built,) = (source / "src" / "nvidia" / "_out").glob("Linux_*/nv-kernel.o")
            (source / "kernel-open" / "nvidia" / "nv-kernel.o_binary").symlink_to(built)
            _adapt(source / "kernel-open", _source_tree(kernel))
            _make_modules(kernel, source / "kernel-open", made.root / "modules")
            shutil.rmtree(source)
        return made.root / "modules"


def tools() -> Path:
    """Return a directory with ``bin/nvidia-smi`` and ``lib``, to be used by LD_LIBRARY_PATH."""
    archives = [packages.download(name, TOOLS_VERSION) for name in TOOLS]
    content = "\n".join(path.name for path in archives).encode()
    with Build("tools", TOOLS_VERSION, content) as made:
        if not made.complete:
            for archive in archives:
                packages.unpack(archive, made.root / "package")
            for name in ("bin", "lib"):
                (made.root / name).mkdir()
            for path in (made.root / "package").glob("usr/lib/**/nvidia/current/*"):
                if path.name == "nvidia-smi":
                    shutil.copy(path, made.root / "bin" / path.name)
                elif ".so" in path.name:
                    shutil.copy(path, made.root / "lib" / path.name, follow_symlinks=False)
            shutil.rmtree(made.root / "package")
        return made.root
