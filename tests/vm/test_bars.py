# SPDX-License-Identifier: MIT
"""
Root in a container that neither our runtime nor a hook has seen, at a card past its driver.

The card that has BARs is a PCI function of RAM, the simulated driver's or NVIDIA's own beside it.
"""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import procfs
from tests.vm import loaded
from tests.vm.container import CAPABILITIES, Container
from tests.vm.drivers import Km, RealDriver, Sim

pytestmark = [
    pytest.mark.needs("fakepci", "programs", "rootfs"),
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(memory="3G", append="memmap=256M$0x40000000"),
]

CARD = Path("/sys/bus/pci/devices/0001:00:00.0")
BAR1 = [str(CARD / name) for name in ("resource1", "resource1_wc")]
PORTS = str(CARD / "resource5")
REGISTRY = Path("/proc/driver/nvidia/registry")
#: a neighbour's memory, as it lies in the card's
SECRET = 0x5EC4E7
SEEN = [f"{SECRET:08x}"] * len(BAR1)
REFUSED = ["mmap: Operation not permitted"] * len(BAR1)


class Outsider(Container):
    """As Docker starts one by default: a sysfs that is read-only, and nothing masked in /proc."""

    capabilities: tuple[str, ...] = CAPABILITIES
    #: those that it has of its own
    namespaces: tuple[str, ...] = ("pid", "ipc", "uts", "mount", "network")

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = super()._config()
        options = ["nosuid", "noexec", "nodev", "ro"]
        sysfs = {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": options}
        config["mounts"].insert(1, sysfs)
        for capabilities in config["process"]["capabilities"].values():
            capabilities[:] = self.capabilities
        config["linux"]["namespaces"] = [{"type": kind} for kind in self.namespaces]
        return config

    def mapped(self, *paths: str) -> list[str]:
        """What root in it sees of each file."""
        return self.exec("map", *paths).stdout.splitlines()

    def read_port(self, path: str) -> str:
        """What comes of reading a port: "" or the error."""
        run = self.exec("dd", f"if={path}", "of=/dev/null", "bs=4", "count=1", check=False)
        return run.stdout if run.returncode else ""

    def written(self, path: Path | str, text: str) -> str:
        """What comes of writing to a file: "" or the error."""
        return self.exec("sh", "-c", f"echo {text} > {path}", check=False).stdout


class Privileged(Outsider):
    """One that is given the host."""

    capabilities = (*CAPABILITIES, "CAP_SYS_RAWIO")


class OfTheHosts(Outsider):
    """One that an engine leaves the host's namespaces; its files are its own."""

    namespaces = ("ipc", "uts", "mount")


@pytest.fixture
def outsider(made: Any) -> Any:
    started: list[Container] = []

    def start(kind: type[Outsider] = Outsider) -> Outsider:
        programs = {"/bin/map": made("programs") / "map"}
        one = kind(made("rootfs"), f"o{len(started)}-{os.getpid()}", programs=programs)
        started.append(one)
        one.start()
        return one

    yield start
    for one in reversed(started):
        one.delete()


@pytest.fixture
def card(made: Any, loaded_modules: loaded.Modules) -> None:
    """A card whose memory a neighbour has."""
    loaded_modules.load(made("fakepci"), ports=0xC800)
    keep_secret()


def keep_secret() -> None:
    descriptor = os.open(BAR1[0], os.O_RDWR)
    with mmap.mmap(descriptor, mmap.PAGESIZE) as memory:
        memory[:4] = SECRET.to_bytes(4, "little")
    os.close(descriptor)


def of_the_host(made: Any, *paths: str) -> list[str]:
    """What root of the host sees of each file."""
    command = [made("programs") / "map", *paths]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def refusals(cgpu: Km) -> list[str]:
    """The files that `events` says were refused."""
    descriptor = procfs.open_events(str(cgpu.root))
    try:
        lines = procfs.new_events(descriptor)
    finally:
        os.close(descriptor)
    return [line.split("file=")[1] for line in lines if " refused pid=" in line]


@pytest.mark.parametrize("kind", [Outsider, OfTheHosts])
def test_root_in_a_container_maps_no_card_by_a_file(
    sim: Callable[..., Sim],
    km: Callable[..., Km],
    card: None,
    outsider: Any,
    made: Any,
    kind: type[Outsider],
) -> None:
    sim(model="t4")
    one = outsider(kind)
    assert one.mapped(*BAR1) == SEEN, "without us it sees what its neighbours have"
    assert one.read_port(PORTS) == ""
    cgpu = km()
    assert one.mapped(*BAR1) == REFUSED
    assert "Operation not permitted" in one.read_port(PORTS)
    told = [line.split("/", 1)[1] for line in refusals(cgpu)]
    assert told == [f"{CARD.name}/{Path(file).name}" for file in (*BAR1, PORTS)]
    assert of_the_host(made, *BAR1) == SEEN
    privileged = outsider(Privileged)
    assert privileged.mapped(*BAR1) == SEEN
    assert privileged.read_port(PORTS) == ""
    cgpu.unload()
    assert one.mapped(*BAR1) == SEEN


def test_a_limited_container_maps_no_card_by_a_file(
    sim: Callable[..., Sim], km: Callable[..., Km], card: None, outsider: Any
) -> None:
    """As after a hook, which cannot mask what an engine mounts."""
    sim(model="t4")
    cgpu = km()
    one = outsider()
    cgpu.create("one", f"pid={one.pid}", "gpu=0,mem=1073741824")
    assert one.mapped(*BAR1) == REFUSED
    one.delete()


def test_root_in_a_container_does_not_write_the_drivers_registry(
    sim: Callable[..., Sim], km: Callable[..., Km], outsider: Any
) -> None:
    sim(model="t4")
    one, given_the_host = outsider(), outsider(Privileged)
    (of_a_card,) = Path("/proc/driver/nvidia/gpus").glob("*/registry")
    assert one.written(REGISTRY, "before=1") == ""
    cgpu = km()
    for file in (REGISTRY, of_a_card):
        before = file.read_text()
        assert "Operation not permitted" in one.written(file, "RmOther=1")
        assert one.exec("cat", str(file)).stdout == before
        assert given_the_host.written(file, "RmTheirs=1") == ""
        assert "RmTheirs" in file.read_text()
        file.write_text("RmOurs=1")
        assert "RmOurs" in file.read_text()
    assert refusals(cgpu) == [
        "driver/nvidia/registry",
        f"gpus/{of_a_card.parent.name}/registry",
    ]


def test_nvidias_own_driver_is_refused_past_itself(
    real_driver: RealDriver, km: Callable[..., Km], outsider: Any
) -> None:
    keep_secret()
    one = outsider()
    assert one.mapped(*BAR1) == SEEN
    assert one.written(REGISTRY, "RmBefore=1") == ""
    assert "RmBefore" in REGISTRY.read_text()
    cgpu = km()
    assert one.mapped(*BAR1) == REFUSED
    (of_a_card,) = Path("/proc/driver/nvidia/gpus").iterdir()
    files = [REGISTRY, of_a_card / "registry", of_a_card / "unbindLock"]
    files += Path("/proc/driver/nvidia/capabilities").rglob("config")
    files = [file for file in files if file.exists()]
    assert len(files) > 1
    for file in files:
        assert "Operation not permitted" in one.written(file, "RmAfter=1"), file
    assert len(refusals(cgpu)) == len(BAR1) + len(files)
    assert "RmAfter" not in REGISTRY.read_text()
    REGISTRY.write_text("RmOurs=1")
    assert "RmOurs" in REGISTRY.read_text()
