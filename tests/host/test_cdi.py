# SPDX-License-Identifier: MIT
"""The CDI specification, and that the hook understands its devices."""

import json
from typing import Any

import pytest

from pycgpu.dialects import request_from, settings
from pycgpu.errors import CgpuError, RequestError
from pycgpu.oci import cdi
from pycgpu.request.model import GIB, Card
from tests.host.asking import granted

HOST = [Card(0, "GPU-aaaa", 16 * GIB), Card(2, "GPU-cccc", 16 * GIB)]


def specification(**options: Any) -> Any:
    return json.loads(cdi.render(cdi.specification(HOST, ("/usr/lib/cgpu/cgpu-hook",), **options)))


def test_cards_are_named_by_index_by_uuid_and_all() -> None:
    names = [device["name"] for device in specification()["devices"]]
    assert names == ["0", "GPU-aaaa", "2", "GPU-cccc", "all"]
    assert specification()["kind"] == "cgpu.io/gpu"


def test_a_device_brings_its_node_and_the_hook_in_both_stages() -> None:
    spec = specification()
    assert spec["devices"][2]["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia2"}]
    common = spec["containerEdits"]
    # Not the tools of UVM, which no container may open.
    assert common["deviceNodes"] == [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]
    assert [(hook["hookName"], hook["args"]) for hook in common["hooks"]] == [
        ("createRuntime", ["cgpu-hook", "createRuntime"]),
        ("poststop", ["cgpu-hook", "poststop"]),
    ]


@pytest.mark.parametrize(("names", "cards"), [(["2"], [2]), (["0", "GPU-cccc"], [0, 2])])
@pytest.mark.parametrize("visible", [[], ["NVIDIA_VISIBLE_DEVICES=all"]])
def test_the_limit_holds_for_the_devices_that_were_given(
    names: Any, cards: Any, visible: Any
) -> None:
    env = [
        entry
        for device in specification()["devices"]
        if device["name"] in names
        for entry in device["containerEdits"]["env"]
    ]
    got = granted(settings([*env, *visible, "CGPU_MEM=4GiB"]), HOST)
    assert [card.index for card in got.cards] == cards


def test_a_device_alone_asks_for_no_limit() -> None:
    assert request_from({"CGPU_CARD_0": "1"}) is None


def test_a_variable_of_that_form_without_an_index_is_refused() -> None:
    with pytest.raises(RequestError, match="CGPU_CARD_x='1'"):
        request_from({"CGPU_CARD_x": "1", "CGPU_MEM": "1G"})


def test_libraries_are_mounted_read_only() -> None:
    cache = (
        "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1\n"
        "\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6\n"
        "junk\n"
    )
    libraries = cdi.driver_libraries(cache)
    assert libraries == ["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    (mount,) = specification(libraries=libraries)["containerEdits"]["mounts"]
    assert mount["containerPath"] == libraries[0]
    assert "ro" in mount["options"]


def test_without_cards_there_is_nothing_to_specify() -> None:
    with pytest.raises(CgpuError, match="no card"):
        cdi.specification([], ("/hook",))
