# SPDX-License-Identifier: MIT
"""NVIDIA's own driver, loaded without a card: what is real in these tests, and that it works."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from pycgpu.core import Abi
from tests.vm import layouts, loaded, rm
from tests.vm.drivers import RealDriver

# Building NVIDIA's driver takes minutes: one kernel, unless others are asked for.
pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(memory="3G", append="memmap=256M$0x40000000"),
]


def test_the_driver_shows_its_version_and_the_card(real_driver: RealDriver) -> None:
    assert f" {real_driver.version} " in Path("/proc/driver/nvidia/version").read_text()
    (card,) = Path("/proc/driver/nvidia/gpus").iterdir()
    information = (card / "information").read_text()
    assert re.search(r"^Device Minor:\s+0$", information, re.MULTILINE)


def test_a_program_of_the_same_version_is_accepted_and_another_refused(
    real_driver: RealDriver,
) -> None:
    with rm.File() as control:
        assert control.check_version(real_driver.version) == real_driver.version
        with pytest.raises(OSError) as refused:
            control.check_version("1.2.3")
        assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "xfer"])
def test_a_client_is_allocated_asked_and_freed(real_driver: RealDriver, wrapped: bool) -> None:
    """Also through NV_ESC_IOCTL_XFER_CMD, by which every call can be made."""
    with rm.File(wrapped=wrapped) as control:
        control.check_version(real_driver.version)
        client = control.client()
        assert len(rm.gpu_ids(control, client)) == 1
        assert rm.gpu_ids(control, client, rm.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS) == []
        assert control.free(client, 0, client) == rm.NV_OK
        status, _ = control.control(
            client, client, rm.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, rm.probed_params()
        )
        assert status == rm.NV_ERR_INVALID_CLIENT


def test_unified_memory_initializes_without_a_card(real_driver: RealDriver) -> None:
    with rm.File(Path("/dev/nvidia-uvm")) as memory:
        assert memory.uvm_initialize() == rm.NV_OK


def test_its_layouts_pass_the_check_of_unknown_drivers_up_to_what_needs_a_card(
    real_driver: RealDriver,
) -> None:
    found = layouts.verify(Abi(real_driver.version))
    # The first call that is to make something on a card: before it all sizes were found.
    assert layouts.told(found).startswith("failed escape 0x2b: the driver refuses"), layouts.told(
        found
    )
    assert found.checks > 80


def test_another_branchs_layouts_do_not_pass_the_check(real_driver: RealDriver) -> None:
    """UVM_MAP_EXTERNAL_ALLOCATION grew in 550, and so on: no two that are tried are alike."""
    other = "595.44.03" if int(real_driver.version[:3]) < 590 else "550.163.01"
    said = layouts.told(layouts.verify(Abi(other)))
    assert "its structure is" in said or "another size" in said, said


def test_opening_the_card_fails_for_want_of_hardware(real_driver: RealDriver) -> None:
    with pytest.raises(OSError) as refused:
        rm.File(Path("/dev/nvidia0"))
    assert refused.value.errno == errno.EIO


def test_the_driver_unloads_and_loads_again(real_driver: RealDriver) -> None:
    for _ in range(3):
        real_driver.unload()
        assert not {"nvidia", "nvidia_uvm"} & loaded.loaded_modules()
        real_driver.load()
        with rm.File() as control:
            assert control.check_version(real_driver.version) == real_driver.version
