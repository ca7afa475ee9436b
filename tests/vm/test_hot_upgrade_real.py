# SPDX-License-Identifier: MIT
"""The core is replaced under programs that talk to NVIDIA's own driver."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.errors import NodeError
from pycgpu.install import kernel_door
from tests.vm import loaded, rm
from tests.vm.drivers import Km, RealDriver
from tests.vm.test_real_hook import WALK, Namespace, namespace, tenant, traffic

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.vm(memory="3G", append="memmap=256M$0x40000000"),
    pytest.mark.needs("km", "km:0.1.1"),
]

__all__ = ["namespace"]

SWITCHES = 20


def test_programs_go_on_and_get_the_same_answers(
    real_driver: RealDriver,
    km: Callable[..., Km],
    made: Callable[[str], Path],
    loaded_modules: loaded.Modules,
    namespace: Callable[[], Namespace],
) -> None:
    cgpu = km()
    other = made("km:0.1.1") / "cgpu_core_0_1_1.ko"
    own = next(made("km").glob("cgpu_core_*.ko"))
    one, two = namespace(), namespace()
    walk = WALK.format(version=real_driver.version)
    with tenant(cgpu, one, "one"), tenant(cgpu, two, "two"):
        before = two.run(walk)
        with traffic(one, real_driver.version) as goes_on, rm.File() as control:
            control.check_version(real_driver.version)
            client = control.client()
            for number in range(SWITCHES):
                core = (other, own)[number % 2]
                former = running_core()
                loaded_modules.load(core)
                loaded.until(lambda core=core: switched(core.stem), "calls to come to an end")  # type: ignore[misc]  # bound in this round of the loop
                goes_on()
                kernel_door.tell(kernel_door.ACCEPT)
                loaded_modules.unload(former)
                goes_on()
            # A client of before the first switch is still known to the driver, and to us.
            assert rm.gpu_ids(control, client)
        assert two.run(walk) == before
        door = kernel_door.read()
        assert door is not None
        assert (door.switches, door.reverts) == (SWITCHES, 0)
        print(f"longest pause {door.pause_ns_max / 1e6:.3f} ms")


def running_core() -> str:
    """The core that decides now."""
    door = kernel_door.read()
    assert door is not None and door.running is not None
    return door.running


def switched(core: str) -> bool:
    """Whether the door has taken *core*; not while calls are on their way."""
    try:
        kernel_door.tell(kernel_door.switch(core, 30000))
    except NodeError as error:
        assert error.errno == errno.EBUSY, error
        return False
    return True
