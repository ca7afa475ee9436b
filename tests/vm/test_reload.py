# SPDX-License-Identifier: MIT
"""`systemctl daemon-reload` under containers whose cgroups are units of systemd's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vm import boot, installed, kernels, modules
from tests.vm.reload import NODES
from tests.vm.vm import VM

WANTED = ("km", "sim", "bridge", "smi", "rootfs")


@pytest.mark.on_host
def test_a_container_keeps_its_cards_when_systemd_is_reloaded(tmp_path: Path) -> None:
    made = modules.prepare(kernels.fetch("6.1"), WANTED)
    paths = {name: Path(path) for name, path in made.items()}
    built = installed.modules(paths.__getitem__, "km", tmp_path / "modules")
    with VM("6.1", timeout_s=600) as machine:
        (machine.share / "made.json").write_text(json.dumps(made))
        machine.start(boot.command("containers", paths["sim"], built, "tests.vm.reload"))
        result = machine.wait()
    assert result.status == 0 and not result.complaint(), result.output + result.complaint()
    first, links, opened = json.loads(result.output.splitlines()[-1])
    # Nobody has made links before our runtime did.
    assert (first, links) == ("systemd", [])
    print(opened["plain"])
    assert opened["ours"] == [dict.fromkeys(NODES, "")] * 2
