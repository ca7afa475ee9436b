# SPDX-License-Identifier: MIT
"""
The simulated driver answers as NVIDIA's own, as far as that goes without a card.

One program, ``tests/vm/answers``, runs on both. What NVIDIA's answered is kept in its directory;
after a change of the program, or for another release of a branch, it is recorded anew by

    pytest --kernel 6.1 -rPf tests/vm/test_same_answers.py -k recording >said
    python3 -m tests.vm.answers <said
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import answers
from tests.vm.drivers import RealDriver, Sim

pytestmark = pytest.mark.kernel("6.1", by_default=True)

#: by which every call can be made
WRAPPED = pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "xfer"])

#: Why the simulated driver must answer otherwise: by the beginnings of calls' names.
DIFFERS = {
    # NVIDIA's finds none that answers, and tells so before it looks who has it open.
    "alloc device without a card's file": "the simulated driver has a card",
    "alloc device 7 of none": "the simulated driver has a card",
    "alloc device 32": "the simulated driver has a card",
    "class 0x80 for a user": "the simulated driver has a card",
    "alloc, parameters of device, size alone": "the simulated driver has a card",
    # sizes are looked at first, and of these two it knows none
    "control 0x90f10101": "a control that the simulated driver has not",
    "control 0x83de0301": "a control that the simulated driver has not",
    # UVM_TOOLS_WRITE_PROCESS_MEMORY, UVM_TOOLS_FLUSH_EVENTS
    "uvm before: command 0x3f": "a profiler's command",
    "uvm before: command 0x43": "a profiler's command",
    "uvm: command 0x3f": "a profiler's command",
    "uvm: command 0x43": "a profiler's command",
    # programs for the simulated driver call the processor by no name
    "uvm: migrate nothing": "who is no card is the processor",
}


@pytest.mark.vm(memory="3G", append="memmap=256M$0x40000000")
@WRAPPED
def test_a_recording_is_what_the_real_driver_answers(
    real_driver: RealDriver, wrapped: bool
) -> None:
    branch = int(real_driver.branch)
    if branch not in answers.RECORDED:
        pytest.skip(f"no recording of {branch}")
    said = answers.Program(branch, real_driver.version, wrapped).run()
    print("RECORD", branch, json.dumps(said))
    assert not list(answers.different(said, answers.recorded(branch)))


@WRAPPED
@pytest.mark.parametrize("branch", answers.RECORDED)
def test_the_simulated_driver_answers_as_the_real_one(
    sim: Callable[..., Sim], branch: int, wrapped: bool
) -> None:
    sim(model="t4", branch=branch)
    version = Path("/sys/module/nvidia/version").read_text().strip()
    said = answers.Program(branch, version, wrapped).run()
    others = list(answers.different(said, answers.recorded(branch)))
    assert not [line for line in others if not line.startswith(tuple(DIFFERS))]
