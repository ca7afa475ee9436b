# SPDX-License-Identifier: MIT
"""The driver's device nodes: which are missing, who makes them, and what is said if nobody can."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pycgpu.errors import CgpuError
from pycgpu.tree import device_nodes

from .devices import LISTED, make_devices

Host = dict[str, Any]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return make_devices(tmp_path)


def never(names: Sequence[str], proc: str) -> str:
    """Nothing is missing, so nothing is loaded."""
    raise AssertionError(names)


def no_driver(names: Sequence[str], proc: str) -> str:
    """What the driver's loading says on a host without it."""
    return f"modprobe: {names[0]}: not found"


def test_nodes_that_are_there_are_left_alone_and_get_their_links(host: Host) -> None:
    before = {path.name: path.readlink() for path in Path(host["dev"]).iterdir()}
    assert device_nodes.ensure([0, 2], **host, load=never) == []
    links = Path(host["dev"], "char")
    # runc names a device by its numbers: /dev/null's is nvidiactl's here.
    assert os.stat(links / "1:3").st_rdev == os.stat("/dev/null").st_rdev
    assert os.readlink(links / "1:5") == "../nvidia-uvm"
    left = {path.name: path.readlink() for path in Path(host["dev"]).iterdir() if path != links}
    assert left == before


def test_a_link_that_leads_elsewhere_is_made_anew(host: Host) -> None:
    links = Path(host["dev"], "char")
    links.mkdir()
    (links / "1:5").symlink_to("../gone")
    assert device_nodes.unlinked([device_nodes.UVM], host["dev"]) == [f"{links}/1:5"]
    device_nodes.ensure([], **host)
    assert os.readlink(links / "1:5") == "../nvidia-uvm"
    assert device_nodes.unlinked([device_nodes.UVM], host["dev"]) == []


def test_a_link_that_cannot_be_made_is_told(host: Host) -> None:
    Path(host["dev"], "char").write_text("")
    told = device_nodes.ensure([], **host)
    assert sorted(told) == sorted(
        f"{host['dev']}/char/1:{minor}: Not a directory" for minor in (3, 5)
    )


def test_nvidia_uvm_that_is_not_loaded_is_refused_with_what_loading_said(host: Host) -> None:
    Path(host["proc"], "devices").write_text(LISTED.replace("1 nvidia-uvm", "1 mem"))
    Path(host["dev"], "nvidia-uvm").unlink()
    with pytest.raises(CgpuError, match=r"nvidia-uvm is not loaded.*modprobe: nvidia-uvm: not f"):
        device_nodes.ensure([0], **host, load=no_driver)


def test_a_node_of_a_former_load_of_nvidia_uvm_is_none(host: Host) -> None:
    Path(host["proc"], "devices").write_text(LISTED.replace("1 nvidia-uvm", "509 nvidia-uvm"))
    assert device_nodes.missing(["nvidiactl", "nvidia-uvm"], **host) == ["nvidia-uvm"]


def test_the_nodes_that_lack_are_loaded_and_then_looked_for_again(host: Host) -> None:
    for name in ("nvidia-uvm", "nvidia1"):
        Path(host["dev"], name).unlink()
    asked = []

    def load(names: Sequence[str], proc: str) -> str:
        asked.append(list(names))
        for name in names:
            Path(host["dev"], name).symlink_to("/dev/zero")
        return ""

    assert device_nodes.ensure([1], **host, load=load) == []
    assert asked == [["nvidia-uvm", "nvidia1"]]


def test_a_driver_whose_files_are_the_operators_has_none_made(host: Host) -> None:
    params = Path(host["proc"], "driver/nvidia/params")
    params.parent.mkdir(parents=True)
    params.write_text("DeviceFileMode: 438\nModifyDeviceFiles: 0\n")
    Path(host["dev"], "nvidia0").unlink()
    wanted = re.escape(f"`mknod -m 666 {host['dev']}/nvidia0 c 195 0`")
    with pytest.raises(CgpuError, match=f"NVreg_ModifyDeviceFiles=0.*{wanted}"):
        device_nodes.ensure([0], **host, load=no_driver)


def test_without_a_driver_it_is_the_driver_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CgpuError, match="nvidiactl is missing: NVIDIA's driver is not loaded"):
        device_nodes.ensure([], dev=str(tmp_path), proc=str(tmp_path), load=no_driver)


def test_where_nobody_may_make_nodes_the_command_for_root_is_told(host: Host) -> None:
    Path(host["dev"], "nvidia0").unlink()
    with pytest.raises(
        CgpuError, match=r"nvidiactl is missing and cannot be made: .*as root: `mknod"
    ):
        device_nodes.ensure([0], dev=f"{host['dev']}/gone", proc=host["proc"], load=no_driver)


def test_cards_are_those_that_the_driver_tells(tmp_path: Path) -> None:
    for bus, minor in (("0000:01:00.0", "1"), ("0000:02:00.0", "0"), ("0000:03:00.0", "x")):
        path = tmp_path / f"driver/nvidia/gpus/{bus}/information"
        path.parent.mkdir(parents=True)
        path.write_text(f"Model: \t\t Tesla T4\nDevice Minor: \t {minor}\n")
    assert device_nodes.minors(str(tmp_path)) == [0, 1]
    assert device_nodes.minors(str(tmp_path / "none")) == []
