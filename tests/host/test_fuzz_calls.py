# SPDX-License-Identifier: MIT
"""What the fuzzer, the agent and its filter take for UVM's is what the core has a rule for."""

from __future__ import annotations

import re
from pathlib import Path

from pycgpu.agent import filter
from pycgpu.core import lib

SOURCE = Path(__file__).parents[1] / "vm/programs/fuzz_calls.c"
#: What drivers serve and the core names not: atomics of the whole system (54, 55), the profiler's
#: (56 to 64, 67, 76, 77), zombies (69), pageable memory (71), access counters (79).
#: Source: uvm_ioctl() and uvm_tools_ioctl() of 535.274.02, 550.163.01, 570.86.15, 580.95.05,
#: 590.44.01 and 595.45.04, kernel-open/nvidia-uvm.
UNLISTED = {54, 55, *range(56, 65), 67, 69, 71, 76, 77, 79}


def named() -> set[int]:
    """The whole numbers that the core has a rule for."""
    numbers = (*range(1 << 12), *range(0x30000000, 0x30000100))
    return {nr for nr in numbers if lib.cgpu_uvm_judge(nr) != lib.CGPU_JUDGE_NONE}


def test_the_fuzzer_makes_every_call_of_uvm_that_a_driver_serves() -> None:
    listed = re.search(r"uvm_commands\[\] = \{([^}]*)\}", SOURCE.read_text())
    assert listed
    calls = {int(number, 0) for number in re.findall(r"\w+", listed[1])}
    assert not UNLISTED & named()
    assert calls == UNLISTED | named()


def test_the_agent_and_its_filter_know_all_numbers_of_uvm() -> None:
    assert filter.UVM_END == lib.CGPU_UVM_NUMBERS
    outside = {nr for nr in UNLISTED | named() if nr >= filter.UVM_END}
    assert outside == {0x30000001, 0x30000002}
    assert outside < set(filter.UVM_COMMANDS)
