# SPDX-License-Identifier: MIT
"""Which files map a card's memory past its limits."""

from pathlib import Path

from pycgpu.oci import bars

MAPPED = ("resource0", "resource1", "resource1_wc")


def devices(sysfs: Path) -> list[str]:
    """A card of NVIDIA's below a bridge and another maker's; the files that map the first."""
    for name, vendor in (("0000:00:02.0", "0x1234"), ("0000:01:00.0", "0x10de")):
        device = sysfs / "devices" / "pci0000:00" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        for file in ("resource", *MAPPED, "config"):
            (device / file).write_text("")
        (device / "p2pmem").mkdir()
        for file in ("allocate", "size"):
            (device / "p2pmem" / file).write_text("")
        (sysfs / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (sysfs / "bus/pci/devices" / name).symlink_to(device)
    card = sysfs / "devices/pci0000:00/0000:01:00.0"
    return [str(card / file) for file in (*MAPPED, "p2pmem/allocate")]


def test_files_that_map_a_card_are_masked_and_the_drivers_own_are_read_only(
    tmp_path: Path,
) -> None:
    """Root in a container maps all of a card's memory by them, its neighbours' too."""
    files = devices(tmp_path)
    config: dict[str, object] = {"linux": {"maskedPaths": ["/proc/kcore"]}}
    assert bars.mask(config, str(tmp_path))
    assert config["linux"] == {
        "maskedPaths": ["/proc/kcore", *files],
        "readonlyPaths": ["/proc/driver/nvidia"],
    }


def test_a_privileged_container_and_a_host_without_cards_have_nothing_masked(
    tmp_path: Path,
) -> None:
    linux = {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}
    assert not bars.mask({"linux": {}}, str(tmp_path))
    devices(tmp_path)
    config: dict[str, object] = {"linux": dict(linux)}
    assert not bars.mask(config, str(tmp_path))
    assert config == {"linux": linux}
