# SPDX-License-Identifier: MIT
"""What parameters point to, as the agent finds it in the table, in what programs asked a driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pycgpu.core import lib
from tests.traces import format as traces

ROOT = Path(__file__).resolve().parents[2]
TRACES = sorted(
    path for path in (ROOT / "tests/traces").glob("*.trace.xz") if "rmprobe" not in path.name
)
NV_ESC_RM_CONTROL = 42
NV_ESC_RM_ALLOC = 43
LISTS_BYTES = 1 << 16


def _calls(path: Path, number: int) -> Iterator[tuple[traces.Buffer, traces.Buffer | None]]:
    for call in traces.load(str(path)).ioctls():
        argument = call.buffer(traces.Role.ARG)
        if call.device is not traces.Device.UVM and call.cmd & 0xFF == number and argument:
            yield argument, call.buffer(traces.Role.PARAM)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".trace.xz"))
def test_what_programs_ask_is_performed(path: Path) -> None:
    for argument, params in _calls(path, NV_ESC_RM_CONTROL):
        cmd = argument.u32(8, after=False)
        rule = lib.cgpu_control_rule(cmd)
        assert not rule.opaque, hex(cmd)
        assert not argument.u32(12, after=False) & 4, "serialised parameters"
        for pointer in rule.pointer:
            if not pointer.at or params is None or not params.u64(pointer.at - 1, after=False):
                continue
            # What stands there is an address of user space, and its list fits the agent's.
            assert 1 << 12 < params.u64(pointer.at - 1, after=False) < 1 << 47, hex(cmd)
            assert pointer.count, hex(cmd)
            count = params.u32(pointer.count - 1, after=False)
            assert count * pointer.element_bytes <= LISTS_BYTES
    for argument, _ in _calls(path, NV_ESC_RM_ALLOC):
        assert not lib.cgpu_class_rule(argument.u32(12, after=False)).opaque
