# SPDX-License-Identifier: MIT
"""A host that is installed, switched off and on again: what systemd makes of our units."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.vm import boot, installed, kernels, modules
from tests.vm.vm import VM, Result


def booted(step: str, disk: Path, sim: Path, built: Path) -> Result:
    """Boot systemd for a step; *disk* is what a disk keeps, from before and for after."""
    with VM("6.1", timeout_s=600) as machine:
        for path in disk.iterdir():
            shutil.copy(path, machine.share)
        machine.start(boot.command(step, sim, built))
        result = machine.wait()
        if (machine.share / boot.DISK.name).exists():
            shutil.copy(machine.share / boot.DISK.name, disk)
    return result


@pytest.mark.on_host
def test_what_cards_were_set_to_is_there_after_a_boot(tmp_path: Path) -> None:
    made = {
        name: Path(path)
        for name, path in modules.prepare(kernels.fetch("6.1"), ["km", "sim", "bridge"]).items()
    }
    built = installed.modules(made.__getitem__, "km", tmp_path / "modules")
    disk = tmp_path / "disk"
    disk.mkdir()
    results = [booted(step, disk, made["sim"], built) for step in ("install", "look")]
    for result in results:
        assert result.status == 0 and not result.complaint(), result.output + result.complaint()
    first, state, found, ungranted = json.loads(results[1].output.splitlines()[-1])
    assert first == "systemd" and state == ["ActiveState=active", "Result=success"]
    assert list(found.values()) == ["0", "8", "12000"]
    assert ungranted == "refuse"
