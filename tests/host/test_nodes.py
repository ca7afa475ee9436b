# SPDX-License-Identifier: MIT
"""Which device nodes reach a card past its limits."""

from pathlib import Path

import pytest

from pycgpu.oci import nodes

DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
226 drm
235 nvidia-fs
236 gdrdrv
237 nvidia-nvswitch
238 nvidia-caps-imex-channels
240 nvidia-caps
241 nvidia-uvm
242 amdgpu

Block devices:
  8 nvidia-caps
"""


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """Card 128 of /dev/dri is NVIDIA's, 129 another maker's."""
    (tmp_path / "devices").write_text(DEVICES)
    for minor, driver in ((128, "nvidia"), (129, "amdgpu")):
        device = tmp_path / "dev" / "char" / f"226:{minor}" / "device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return {"proc": str(tmp_path), "sysfs": str(tmp_path)}


@pytest.mark.parametrize(
    ("major", "minor", "past"),
    [
        (195, 0, False),
        (195, 253, False),
        (195, 254, True),
        (195, 255, False),
        (226, 128, True),
        (226, 129, False),
        (226, 130, False),
        (235, 0, True),
        (236, 0, True),
        (237, 255, True),
        (238, 0, True),
        (240, 1, True),
        (241, 0, False),
        (241, 1, False),
        (242, 0, False),
        (8, 0, False),
        (1, 3, False),
        (None, None, False),
    ],
)
@pytest.mark.parametrize("kind", ["c", "u"])
def test_a_node_is_known_by_its_numbers(
    host: dict[str, str], kind: str, major: int, minor: int, past: bool
) -> None:
    node = {"path": "/dev/x", "type": kind, "major": major, "minor": minor}
    kept = {"path": "/dev/y", "type": "b", "major": major, "minor": minor}
    rules = [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"},
    ]
    config: dict[str, object] = {
        "linux": {"devices": [node, kept], "resources": {"devices": rules}}
    }
    assert nodes.past_limits(config, **host) == [node] * past
    assert nodes.take_out(config, **host) == past
    assert config["linux"] == {
        "devices": [kept] if past else [node, kept],
        "resources": {"devices": rules[:1] if past else rules},
    }


@pytest.mark.parametrize(
    "linux", [None, 7, {}, {"devices": None}, {"devices": [7, {}]}, {"devices": {}}]
)
def test_a_config_without_nodes_is_left_as_it_is(host: dict[str, str], linux: object) -> None:
    config: dict[str, object] = {"linux": linux}
    assert not nodes.take_out(config, **host)
    assert config == {"linux": linux}
