# SPDX-License-Identifier: MIT
"""Driver branches that changed what the module reads and calls, and one that nobody knows."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pycgpu.agent import client
from tests.vm import loaded, user_door
from tests.vm.loaded import until
from tests.vm.user_door import START_S

pytestmark = pytest.mark.kernel("6.1", by_default=True)

MIB = 1 << 20


def kernel_log() -> str:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout


def events() -> str:
    """The module's last lines: what is read once does not wait for the next."""
    with open("/proc/cgpu_km/events", "rb", buffering=0) as stream:
        return stream.read(1 << 16).decode()


@pytest.mark.parametrize("branch", [580, 590, 595])
def test_what_a_container_frees_returns_and_the_bridge_opens_its_card(
    sim: Any, km: Any, container: Any, branch: int
) -> None:
    driver = sim(cards="t4", branch=branch)
    cgpu = km()
    one = container("one", programs={"/bin/simcuda": driver.programs / "simcuda"})
    # a quota makes the bridge open the card: by the branch's own arguments
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={512 * MIB},quota=50")
    for _ in range(20):
        # frees its mappings by UVM_FREE, while the process lives
        said = one.exec("simcuda", "map", str(64 * MIB))
        assert said.returncode == 0, said.stderr
        assert "after_unmap 0" in said.stdout
    stat = dict(line.split() for line in cgpu.read("0/one/stat").splitlines())
    assert (stat["oom"], stat["refused"]) == ("0", "0")
    until(lambda: "current_bytes 0\n" in cgpu.read("0/one/stat"), "the return of all memory")
    assert "gate" in cgpu.read("features"), "the card is not open"
    assert f"attached to NVIDIA driver {branch}." in kernel_log()


def test_of_a_branch_that_the_bridge_does_not_know_memory_is_limited_all_the_same(
    sim: Any, km: Any, container: Any, made: Any, loaded_modules: Any
) -> None:
    driver = sim(cards="t4", branch=610)
    cgpu = km(bridge=False)
    with pytest.raises(OSError):
        loaded_modules.load(made("bridge"))
    assert "cgpu_rm: driver 610.57.04: branch 610 not known" in kernel_log()
    one = container("one", programs={"/bin/simcuda": driver.programs / "simcuda"})
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={512 * MIB}")
    said = one.exec("simcuda", "fill")
    assert said.returncode == 0, said.stderr
    # A context, its channels at the places of this branch, and all that is left of the limit.
    assert "status 81\n" in said.stdout, "NV_ERR_NO_MEMORY"
    said = one.exec("simcuda", "launch", "0.2", "1")
    assert said.returncode == 0, said.stderr
    assert "gate" not in cgpu.read("features")
    until(lambda: "current_bytes 0\n" in cgpu.read("0/one/stat"), "the return of all memory")


@pytest.mark.needs("sim", "programs")
@pytest.mark.parametrize("branch", [550, 595, 610])
def test_the_agent_reads_userd_without_the_drivers_access_method(
    made: Any, tmp_path: Path, branch: int
) -> None:
    """By it 550 reads a card's memory at the mapping's beginning, and 595 by a null pointer."""
    with user_door.opened(made, tmp_path, branch=branch) as door:
        program = (str(made("programs") / "userd"), "video", "8", "2")
        both = [door.start(*program, name=name) for name in ("one", "two")]
        for tenant in both:
            out, err = tenant.communicate(timeout=2 * START_S)
            assert tenant.returncode == 0 and json.loads(out)["kernels"] > 0, err
        counters = client.ask({"op": "counters"})["counters"]
        assert counters["look_reads"] > 0
        assert counters["userd_errors"] == 0
        user_door.emptied()
        door.close()


def test_an_unknown_branch_is_refused_by_the_module_and_by_the_bridge(
    sim: Any, km: Any, loaded_modules: loaded.Modules, made: Any
) -> None:
    cgpu = km()
    sim(cards="t4", branch=999)
    with pytest.raises(OSError) as refused:
        cgpu.create("one", f"pid={os.getpid()}", "gpu=0,mem=1073741824")
    assert refused.value.errno == errno.EOPNOTSUPP
    assert "driver 999.10: branch not known" in kernel_log()
    bridge = made("bridge")
    with pytest.raises(OSError, match="not supported"):
        loaded_modules.load(bridge)
    assert "cgpu_rm: driver 999.10: branch 999 not known" in kernel_log()


def test_a_driver_newer_than_all_known_is_checked_if_the_operator_says_so_and_limits_hold(
    sim: Any, km: Any, container: Any, made: Any, loaded_modules: loaded.Modules
) -> None:
    driver = sim(cards="t4", branch=700)
    cgpu = km(bridge=False, unknown_driver="newest")
    one = container("one", programs={"/bin/simcuda": driver.programs / "simcuda"})
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={512 * MIB}")
    log = kernel_log()
    assert "driver 700.10 is newer than all known" in log
    assert "answers are those of branch 620, memory is limited" in log
    assert "verify driver 700.10 branch=620 passed" in events()
    assert {"memory", "managed"} <= set(cgpu.read("features").split())
    # A context, its channels, and all that is left of the limit.
    assert "status 81\n" in one.exec("simcuda", "fill").stdout, "NV_ERR_NO_MEMORY"
    assert "after_unmap 0" in one.exec("simcuda", "map", str(64 * MIB)).stdout
    until(lambda: "current_bytes 0\n" in cgpu.read("0/one/stat"), "the return of all memory")
    # What a kernel function takes cannot be tried: compute is not shared.
    with pytest.raises(OSError):
        loaded_modules.load(made("bridge"))
    assert "gate" not in cgpu.read("features")


CHANGES = {
    "grown_class": (0x40, "class 0x40: its parameters are longer"),
    "swapped_size": (1, "class 0x40: the driver does not allocate by our layout"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_newer_driver_whose_structure_changed_gives_no_container_a_card_and_says_which(
    sim: Any, km: Any, container: Any, change: str
) -> None:
    value, why = CHANGES[change]
    sim(cards="t4", branch=700, **{change: value})
    cgpu = km(bridge=False, unknown_driver="newest")
    with pytest.raises(OSError) as refused:
        cgpu.create("one", f"pid={os.getpid()}", "gpu=0,mem=1073741824")
    assert refused.value.errno == errno.EOPNOTSUPP
    assert f"driver 700.10 is not branch 620: {why}" in kernel_log()
    assert f"verify driver 700.10 branch=620 failed {why}" in events()
    assert "memory" not in cgpu.read("features").split()


def test_the_module_is_not_loaded_with_another_word_for_unknown_drivers(km: Any) -> None:
    with pytest.raises(OSError):
        km(bridge=False, unknown_driver="oldest")
    assert "unknown_driver=oldest: use refused or newest" in kernel_log()


@pytest.mark.needs("sim", "programs")
def test_the_agent_checks_a_newer_driver_by_the_same_word(made: Any, tmp_path: Path) -> None:
    with user_door.opened(made, tmp_path, branch=700) as door:
        out, err = door.start(door.simcuda, "fill", name="no").communicate(timeout=START_S)
        assert "a branch that is not known" in err and "--unknown-driver newest" in err
        tenant = door.start(door.simcuda, "fill", mem="512M", unknown_driver="newest")
        out, err = tenant.communicate(timeout=2 * START_S)
        assert "status 81\n" in out, err
        assert "verify driver 700.10 branch=620 passed" in user_door.events()
        user_door.emptied()
        door.close()


@pytest.mark.needs("sim", "programs")
def test_the_agent_does_not_start_beside_a_newer_driver_that_fails_the_check(
    made: Any, tmp_path: Path
) -> None:
    with user_door.opened(made, tmp_path, branch=700, grown_class=0x90F1) as door:
        tenant = door.start(door.simcuda, "fill", unknown_driver="newest")
        _, err = tenant.communicate(timeout=START_S)
        assert "class 0x90f1: its parameters are longer" in err
