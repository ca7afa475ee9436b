# SPDX-License-Identifier: MIT
"""The agent's table of pointers inside parameters, against what programs asked a real driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.traces import format as traces

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "pycgpu/agent/embedded.c").read_text()
TRACES = sorted(
    path for path in (ROOT / "tests/traces").glob("*.trace.xz") if "rmprobe" not in path.name
)
NV_ESC_RM_CONTROL = 42
NV_ESC_RM_ALLOC = 43
LISTS_BYTES = 1 << 16


def _table(name: str) -> str:
    found = re.search(rf"{name}\[\] = \{{(.*?)\n\}};", SOURCE, re.DOTALL)
    assert found
    return found[1]


POINTERS = {
    (int(cmd, 16), int(pointer)): (count, int(element))
    for cmd, pointer, count, element in re.findall(
        r"\{ (0x[0-9a-f]{8}), (\d+), (\w+), (\d+) \}", _table("pointers")
    )
}
REFUSED = {int(cmd, 16) for cmd in re.findall(r"0x[0-9a-f]{8}", _table("refused"))}


def _calls(path: Path, number: int) -> Iterator[tuple[traces.Buffer, traces.Buffer | None]]:
    for call in traces.load(str(path)).ioctls():
        argument = call.buffer(traces.Role.ARG)
        if call.device is not traces.Device.UVM and call.cmd & 0xFF == number and argument:
            yield argument, call.buffer(traces.Role.PARAM)


def test_no_control_is_both_translated_and_refused() -> None:
    assert len(POINTERS) > 20
    assert not REFUSED & {cmd for cmd, _ in POINTERS}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".trace.xz"))
def test_what_programs_ask_is_performed(path: Path) -> None:
    for argument, params in _calls(path, NV_ESC_RM_CONTROL):
        cmd = argument.u32(8, after=False)
        assert cmd not in REFUSED, hex(cmd)
        assert not argument.u32(12, after=False) & 4, "serialised parameters"
        for (known, pointer), (count, element) in POINTERS.items():
            if known != cmd or params is None or not params.u64(pointer, after=False):
                continue
            # What stands there is an address of user space, and its list fits the agent's.
            assert 1 << 12 < params.u64(pointer, after=False) < 1 << 47, (hex(cmd), pointer)
            assert count.isdecimal(), hex(cmd)
            assert params.u32(int(count), after=False) * element <= LISTS_BYTES
    refused = re.findall(r"case (0x[0-9a-f]+):", SOURCE.partition("embedded_refuses_class")[2])
    classes = {a.u32(12, after=False) for a, _ in _calls(path, NV_ESC_RM_ALLOC)}
    # The last ones in the file are those with a capability, which are taken.
    assert not classes & {int(number, 16) for number in refused if int(number, 16) < 0xC000} - {0xF}
