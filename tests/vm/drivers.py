# SPDX-License-Identifier: MIT
"""What tests load: the simulated driver, NVIDIA's own, and our module on either."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.vm import loaded
from tests.vm.driver import VERSIONS


class Sim:
    """The simulated driver: its programs, and the ways to load and unload it."""

    def __init__(self, stack: loaded.Modules, directory: Path) -> None:
        self._stack = stack
        self.directory = directory
        self.programs = directory / "simcuda"

    def load(self, **parameters: object) -> Sim:
        """Load nvidia.ko with parameters, and nvidia-uvm.ko; make the device nodes."""
        self._stack.load(self.directory / "nvidia.ko", **parameters)
        self._stack.load(self.directory / "nvidia-uvm.ko")
        self._stack.driver = "sim"
        loaded.make_nodes()
        return self

    def unload(self) -> None:
        """Unload both, as on a driver's upgrade."""
        self._stack.unload("nvidia_uvm")
        self._stack.unload("nvidia")
        loaded.remove_nodes()


class RealDriver:
    """
    NVIDIA's own driver over a PCI function without a card behind it.

    Everything up to the card is the real thing; opening ``/dev/nvidia0`` fails with EIO.

    Attributes:
        version: such as ``550.163.01``.
    """

    def __init__(self, stack: loaded.Modules, branch: str, directory: Path, fakepci: Path) -> None:
        self._stack = stack
        self._fakepci = fakepci
        self.branch = branch
        self.version = VERSIONS[branch.partition("-")[0]]
        self.directory = directory

    def load(self) -> RealDriver:
        """Load the PCI function if it is not there, nvidia.ko and nvidia-uvm.ko; make the nodes."""
        if "fakepci" not in loaded.loaded_modules():
            self._stack.load(self._fakepci)
        self._depend(self.directory / "nvidia.ko")
        # There is no interrupt controller that could take the card's messages.
        self._stack.load(self.directory / "nvidia.ko", NVreg_EnableMSI=0)
        self._stack.load(self.directory / "nvidia-uvm.ko")
        self._stack.driver = self.branch
        loaded.make_nodes()
        return self

    def _depend(self, module: Path) -> None:
        shown = subprocess.run(
            ["modinfo", "-F", "depends", str(module)], capture_output=True, text=True, check=True
        )
        for name in filter(None, shown.stdout.strip().split(",")):
            subprocess.run(["modprobe", name], check=True)

    def unload(self) -> None:
        """Unload both modules of the driver; the PCI function stays."""
        self._stack.unload("nvidia_uvm")
        self._stack.unload("nvidia")
        loaded.remove_nodes()


class Km:
    """cgpu_km: load, unload, and the tree of its nodes."""

    root = Path("/proc/cgpu_km")

    def __init__(self, stack: loaded.Modules, directory: Path, bridges: Mapping[str, Path]) -> None:
        self._stack = stack
        self.directory = directory
        self._bridges = bridges

    @property
    def core(self) -> Path:
        """The core of this build: ``cgpu_core_<version>.ko``."""
        (path,) = self.directory.glob("cgpu_core_*.ko")
        return path

    def load(self, bridge: bool = True, **parameters: object) -> Km:
        """Load cgpu_km.ko with parameters, its core, and the bridge for the loaded driver."""
        self._stack.load(self.directory / "cgpu_km.ko", **parameters)
        self._stack.load(self.core)
        name = "bridge" if self._stack.driver == "sim" else f"bridge:{self._stack.driver}"
        if bridge and name in self._bridges and "nvidia" in loaded.loaded_modules():
            self._stack.load(self._bridges[name])
        return self

    def unload(self) -> None:
        """Unload bridge, core and door; OSError while containers exist."""
        if "cgpu_rm" in loaded.loaded_modules():
            self._stack.unload("cgpu_rm")
        for name in loaded.loaded_modules():
            if name.startswith("cgpu_core_"):
                self._stack.unload(name)
        self._stack.unload("cgpu_km")

    def write(self, node: str, text: str) -> None:
        """Write *text* to a node below the root by one write(2); OSError as the kernel says."""
        descriptor = os.open(self.root / node, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def read(self, node: str) -> str:
        """Return a node's text."""
        return (self.root / node).read_text()

    def create(self, id: str, *clauses: str) -> None:
        """Create a container: ``km.create("a", "pid=1", "gpu=0,mem=max")``."""
        self.write("inst_ctl", " ".join(["create", id, *clauses]) + "\n")

    def destroy(self, id: str) -> None:
        """Destroy a container."""
        self.write("inst_ctl", f"destroy {id}\n")
