# SPDX-License-Identifier: MIT
"""A server after a boot without X: no nvidia-uvm, no nodes, no links; and who brings them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import CgpuError
from pycgpu.install import service
from pycgpu.tree import device_nodes
from tests.vm import installed, loaded
from tests.vm.customer import running

pytestmark = [
    pytest.mark.needs("sim", "km", "bridge", "smi", "rootfs", "udev"),
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(timeout_s=900),
]

GIB = 1 << 30
#: Where distributions have it; this machine has none.
NVIDIA_MODPROBE = Path("/usr/bin/nvidia-modprobe")


def command(*words: str) -> Any:
    done = [sys.executable, "-m", "pycgpu.cli.main", *words]
    return subprocess.run(done, capture_output=True, text=True, check=False)


def links() -> dict[str, str]:
    """What leads from /dev/char to nodes of NVIDIA's."""
    found = {link.name: os.readlink(link) for link in Path("/dev/char").glob("*:*")}
    return {name: target for name, target in found.items() if "nvidia" in target}


def without_nodes() -> None:
    loaded.remove_nodes()
    for name in links():
        (Path("/dev/char") / name).unlink()


@pytest.fixture
def booted(made: Any, loaded_modules: loaded.Modules, tmp_path: Path) -> Iterator[loaded.Modules]:
    """The driver is loaded and nvidia-uvm can be, as a boot leaves them."""
    with installed.few_modules(tmp_path / "modules"):
        for name in ("nvidia", "nvidia-uvm"):
            shutil.copy(made("sim") / f"{name}.ko", f"/lib/modules/{os.uname().release}")
        subprocess.run(["depmod", "-a"], check=True)
        loaded_modules.load(made("sim") / "nvidia.ko", cards=2, modify_device_files=1)
        without_nodes()
        yield loaded_modules
        if "nvidia_uvm" in loaded.loaded_modules():
            loaded_modules.names.append("nvidia_uvm")
        loaded_modules.unload_all()
        without_nodes()


@pytest.fixture(params=["ours", "nvidia-modprobe"])
def helper(request: pytest.FixtureRequest, made: Any) -> Iterator[str]:
    """Hosts without nvidia-modprobe, and with it."""
    if request.param == "nvidia-modprobe":
        shutil.copy(made("udev") / "nvidia-modprobe", NVIDIA_MODPROBE)
    yield request.param
    NVIDIA_MODPROBE.unlink(missing_ok=True)


def is_whole() -> None:
    """Nodes and links are the driver's, and open."""
    uvm = Path("/dev/nvidia-uvm").stat().st_rdev
    wanted = {"195:0": "nvidia0", "195:1": "nvidia1", "195:255": "nvidiactl"}
    wanted |= {f"{os.major(uvm)}:0": "nvidia-uvm"}
    assert links().items() >= {number: f"../{name}" for number, name in wanted.items()}.items()
    for name in wanted.values():
        node = Path("/dev") / name
        assert node.stat().st_mode & 0o777 == 0o666
        with node.open("rb+", buffering=0):
            pass


def test_a_boot_without_nodes_is_made_whole(booted: loaded.Modules, helper: str) -> None:
    done = command("device-nodes")
    assert (done.returncode, done.stderr) == (0, "")
    is_whole()
    # Once more changes nothing.
    before = {path: path.lstat().st_ino for path in Path("/dev/char").iterdir()}
    assert command("device-nodes").returncode == 0
    assert {path: path.lstat().st_ino for path in Path("/dev/char").iterdir()} == before


def test_a_node_of_another_load_of_nvidia_uvm_is_replaced(booted: loaded.Modules) -> None:
    os.mknod("/dev/nvidia-uvm", 0o666 | 0o020000, os.makedev(511, 0))
    device_nodes.ensure([0, 1])
    is_whole()


def test_a_container_starts_after_a_boot_without_nodes(
    booted: loaded.Modules, km: Any, made: Any
) -> None:
    door = km()
    with running(made) as run:
        one = run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
        assert json.loads(one.simcuda("--json", "info").stdout)["total"] == GIB
        is_whole()
        one.delete()
    loaded.until(lambda: not list((door.root / "container").iterdir()), "the container's end")


def test_where_nvidia_uvm_cannot_be_loaded_each_says_so_and_nothing_starts(
    booted: loaded.Modules, km: Any, made: Any, tmp_path: Path
) -> None:
    Path(f"/lib/modules/{os.uname().release}/nvidia-uvm.ko").unlink()
    subprocess.run(["depmod", "-a"], check=True)
    km()
    reason = "/dev/nvidia-uvm is missing, without which CUDA cannot start: nvidia-uvm is not loaded"
    for words in (("cdi", "-o", str(tmp_path / "cgpu.json")), ("device-nodes",)):
        done = command(*words)
        assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "cgpu.json").exists()
    with running(made) as run:
        with pytest.raises(Exception, match=reason):
            run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
        assert command("ps", "--json").stdout.strip() in ("", "[]")


def test_a_driver_whose_files_are_the_operators_is_left_alone(
    made: Any, loaded_modules: loaded.Modules
) -> None:
    loaded_modules.load(made("sim") / "nvidia.ko")
    loaded_modules.load(made("sim") / "nvidia-uvm.ko")
    without_nodes()
    with pytest.raises(CgpuError, match=r"nvidiactl is missing.*NVreg_ModifyDeviceFiles=0.*mknod"):
        device_nodes.ensure([0])
    assert not list(Path("/dev").glob("nvidia*"))


def test_udev_makes_them_when_the_driver_comes(made: Any, booted: loaded.Modules) -> None:
    """Also those that came before udev: a boot triggers them again."""
    cgpu = Path("/usr/local/bin/cgpu-under-udev")
    repository = Path(__file__).parents[2]
    cgpu.write_text(f'#!/bin/sh\ncd {repository}\nexec {sys.executable} -m pycgpu.cli.main "$@"\n')
    cgpu.chmod(0o755)
    rules = Path("/") / service.RULES_D
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(service.rules(str(cgpu)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(made("udev"))}
    daemon = subprocess.Popen([made("udev") / "systemd-udevd"], env=environment)
    try:
        loaded.until(Path("/run/udev/control").exists, "udev")
        booted.load(made("sim") / "nvidia-uvm.ko")

        loaded.until(lambda: len(links()) >= 4, "the nodes and their links, by udev")
        is_whole()
    finally:
        daemon.terminate()
        daemon.wait()
        rules.unlink()
