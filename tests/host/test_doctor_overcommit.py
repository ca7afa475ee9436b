# SPDX-License-Identifier: MIT
"""The doctor on cards that promise more than they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pycgpu._core import lib
from pycgpu.install.doctor import NOTE, WARN, Finding, Host
from pycgpu.install.doctor.overcommit import overcommit
from tests.host.coretree import GIB, CoreTree

FEATURES = ("PID", "CGROUP", "EVENTS", "MEMORY", "PARK")
ONE, TWO = "1" * 64, "2" * 64


class Rig:
    """A host with a card of 16 GiB at 200 %, on which two containers are promised 24 GiB."""

    def __init__(self, path: Path, features: tuple[str, ...] = FEATURES, ratio: int = 200) -> None:
        self.path = path
        self.tree = CoreTree(path / "proc/cgpu_km", features=features)
        self.tree.host.card[0].overcommit_ratio = ratio
        self.tree.write()
        self.proc("self/mountinfo", f"1 2 0:3 / {path}/cgroup rw - cgroup2 cgroup2 rw\n")
        self.available(64 * GIB)

    def proc(self, name: str, text: str) -> None:
        path = self.path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def available(self, size: int) -> None:
        self.proc("meminfo", f"MemTotal: {100 * GIB >> 10} kB\nMemAvailable: {size >> 10} kB\n")

    def fill(self, *options: str, group: bool = False) -> None:
        """Put both containers on the card, each with the options of its place."""
        for number, (id, option) in enumerate(zip((ONE, TWO), options, strict=True), 1):
            words = [f"gpu=0,mem={12 * GIB}{option}", *([f"group={id}"] if group else [])]
            self.tree.create(id, *words).hold(0, number, number, GIB, "python3")
            self.proc(f"{number}/cgroup", f"0::/pods/{number}\n")
        self.tree.write()

    def limit(self, cgroup: str, size: int, used: int = 0) -> None:
        directory = self.path / "cgroup" / cgroup
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(str(size))
        (directory / "memory.current").write_text(str(used))

    def found(self) -> list[Finding]:
        return list(overcommit(Host(self.path, None, "6.1.0")))

    def only(self) -> Finding:
        (found,) = self.found()
        assert found.subject == "overcommit" and found.remedy
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "proc").mkdir()
    return Rig(tmp_path)


IDLE = ",idle_park_s=600"


def test_a_host_that_can_keep_what_its_card_promises_is_in_order(rig: Rig) -> None:
    assert rig.found() == []
    rig.fill(IDLE, IDLE)
    assert rig.found() == []
    assert list(overcommit(Host(rig.path / "none", None, "6.1.0"))) == []


def test_a_card_that_promises_what_it_has_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    rig = Rig(tmp_path, FEATURES[:-1], ratio=100)
    rig.available(0)
    assert rig.found() == []


def test_a_door_that_cannot_park_is_told(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    rig = Rig(tmp_path, FEATURES[:-1])
    rig.fill("", "")
    found = rig.only()
    assert found.level == WARN
    assert found.text.startswith("GPU 0: limits may add up to more than the card, and this door")
    assert "overcommit_ratio = 100 in /etc/cgpu/cards.toml" in found.remedy


def test_a_host_with_too_little_memory_is_told(rig: Rig) -> None:
    rig.fill(IDLE, IDLE)
    rig.available(24 * GIB)
    found = rig.only()
    assert found.level == WARN
    assert found.text == (
        "GPU 0: 20480 MiB more may have to be parked, 12288 of them while a container comes back,"
        " and the host has 19456 MiB for it"
    )
    # What lies there already is no more to be found room for.
    ledger = rig.tree.containers[ONE].ledger
    ledger.park_state, ledger.account[0].parked_bytes = lib.CGPU_PARK_PARKED, 2 * GIB
    rig.tree.write()
    assert rig.found() == []


def test_what_the_operator_gives_to_parking_is_counted(rig: Rig) -> None:
    rig.fill(IDLE, IDLE)
    rules = rig.path / "etc/cgpu/parking.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text(f"park_host_bytes = {20 * GIB}\n")
    assert rig.found() == []
    rules.write_text(f"park_host_bytes = {18 * GIB}\n")
    assert rig.only().text == (
        "GPU 0: 20480 MiB more may have to be parked, 12288 of them while a container comes back,"
        " and park_host_bytes in /etc/cgpu/parking.toml has 18432 MiB for it"
    )
    rules.write_text("moves_per_min = 0\n")
    found = rig.only()
    assert found.text.endswith(
        "moves_per_min = 0 in /etc/cgpu/parking.toml no container is parked by itself"
    )
    assert found.remedy.startswith("raise it, or overcommit_ratio = 100")


def test_a_container_whose_cgroup_takes_too_little_is_named(rig: Rig) -> None:
    rig.fill(IDLE, IDLE)
    rig.limit("pods/1", 4 * GIB)
    assert rig.found() == []  # the other one can be parked
    rig.limit("pods/2", 4 * GIB, used=3 * GIB)
    found = rig.only()
    assert found.level == WARN
    assert found.text == (
        "GPU 0: 8192 MiB may have to be parked, and its containers can park 5120 MiB:"
        " cgroup /pods/2 leaves 222222222222 1024 MiB"
    )
    assert found.remedy.startswith("raise the memory limit of /pods/2, or lower the limits")


def test_containers_of_one_cgroup_have_its_memory_together(rig: Rig) -> None:
    rig.fill(IDLE, IDLE)
    rig.limit("pods", 8 * GIB)
    assert rig.found() == []
    rig.limit("pods", 8 * GIB, used=GIB)
    assert "can park 7168 MiB: cgroup /pods leaves" in rig.only().text


def test_a_card_on_which_nobody_is_parked_when_idle_is_told(rig: Rig) -> None:
    rig.fill("", "")
    found = rig.only()
    assert found.level == WARN
    assert found.text == (
        "GPU 0: limits may add up to 200 % of it, and no container on it may be parked when idle"
    )
    assert "--idle-park 10m" in found.remedy and "/etc/cgpu/policy.toml" in found.remedy


def test_a_container_that_stays_counts_as_one_that_cannot_be_parked(rig: Rig) -> None:
    rig.fill("", IDLE)
    assert rig.found() == []
    rig.limit("pods/2", 6 * GIB)
    found = rig.only()
    assert "can park 6144 MiB: 111111111111 may not be parked when idle" in found.text
    assert found.remedy.startswith("`cgpu set 111111111111 --idle-park 10m`")


@pytest.mark.parametrize(
    ("swaps", "uuid", "plain"),
    [
        ("/dev/sda2 partition 1 0 -2\n", None, True),
        ("/dev/dm-1 partition 1 0 -2\n", "CRYPT-LUKS2-0-swap", False),
        ("/dev/dm-1 partition 1 0 -2\n", "LVM-0", True),
        ("/dev/zram0 partition 1 0 -2\n", None, False),
        ("/swapfile file 1 0 -2\n", None, False),
        ("", None, False),
    ],
)
def test_swap_that_is_not_encrypted_is_a_note(
    rig: Rig, swaps: str, uuid: str | None, plain: bool
) -> None:
    name = re.match(r"/dev/(\S+)", swaps)
    if name is not None:
        device = rig.path / "sys/class/block" / name[1]
        (device / "slaves").mkdir(parents=True)
        if uuid is not None:
            (device / "dm").mkdir()
            (device / "dm/uuid").write_text(f"{uuid}\n")
    rig.proc("swaps", f"Filename Type Size Used Priority\n{swaps}")
    found = rig.found()
    assert [one.level for one in found] == ([NOTE] if plain else [])
    assert all(name is not None and name[0] in one.text for one in found)


@pytest.mark.parametrize(
    ("enabled", "told"),
    [
        ("always [madvise] never\n", True),
        ("always madvise [never]\n", True),
        ("[always] madvise never\n", False),
        (None, False),
    ],
)
def test_small_pages_that_make_moves_slow_are_a_note(
    rig: Rig, enabled: str | None, told: bool
) -> None:
    if enabled is not None:
        path = rig.path / "sys/kernel/mm/transparent_hugepage/enabled"
        path.parent.mkdir(parents=True)
        path.write_text(enabled)
    found = rig.found()
    assert [one.level for one in found] == ([NOTE] if told else [])
    assert all("echo always" in one.remedy for one in found)


def test_swap_in_a_volume_above_an_encrypted_disk_is_encrypted(rig: Rig) -> None:
    block = rig.path / "sys/class/block"
    for device, uuid in (("dm-1", "LVM-0"), ("dm-0", "CRYPT-LUKS2-0-disk")):
        (block / device / "dm").mkdir(parents=True)
        (block / device / "dm/uuid").write_text(uuid)
    (block / "dm-1/slaves/dm-0").mkdir(parents=True)
    rig.proc("swaps", "Filename Type Size Used Priority\n/dev/dm-1 partition 1 0 -2\n")
    assert rig.found() == []
