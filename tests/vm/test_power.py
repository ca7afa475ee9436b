# SPDX-License-Identifier: MIT
"""A host that loses its power while containers move, and is switched on again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.vm import kernels, modules
from tests.vm.boot import DISK
from tests.vm.loaded import until
from tests.vm.power import AMID
from tests.vm.vm import VM

MEMORY, TIMEOUT_S = "3G", 900
NEEDS = ["km", "sim", "bridge", "rootfs"]


@pytest.mark.on_host
@pytest.mark.timeout(1800)
def test_a_host_that_loses_its_power_amid_moves_begins_with_nothing_parked(tmp_path: Path) -> None:
    made = json.dumps(modules.prepare(kernels.fetch("6.1"), NEEDS))
    command = [sys.executable, "-m", "tests.vm.power"]
    with VM("6.1", memory=MEMORY, timeout_s=TIMEOUT_S) as machine:
        machine.start([*command, "lose", made])
        amid = machine.share / AMID.name
        until(lambda: amid.exists() or not machine.running, "moves under way", TIMEOUT_S)
        assert amid.exists(), machine.output()
        states = json.loads(amid.read_text())
        shutil.copy(machine.share / DISK.name, tmp_path)
        machine.stop()
    assert states == {"held": "parked", "back": "resuming", "away": "parking"}
    with VM("6.1", memory=MEMORY, timeout_s=TIMEOUT_S) as machine:
        shutil.copy(tmp_path / DISK.name, machine.share)
        machine.start([*command, "look", made])
        result = machine.wait()
    assert result.status == 0 and not result.complaint(), result.output + result.complaint()
    assert result.output.splitlines()[-1] == "done"
