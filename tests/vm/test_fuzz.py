# SPDX-License-Identifier: MIT
"""
Calls that nobody makes on purpose: broken ones from every side, for some seconds.

``programs/fuzz.c`` says what is thrown. What is asked is that the driver never has given out more
than what is charged, that charges add up to that, that who is kept from a card has no channel there
that may run, that nothing is left, and that the kernel has nothing to say; the harness reads its
log, and under ``6.1-debug`` that of KASAN, lockdep and kmemleak. ``--fuzz-seconds`` and
``--fuzz-seed`` make it long, or another one. Under ``6.1-debug`` calls are guided by the code that
they reach; with ``--fuzz-guided no`` it is only counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.loaded import SLOWNESS, until
from tests.vm.test_hot_upgrade import TREE, Versions, installed_versions, numbers

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "km:0.1.1", "bridge", "programs"),
    pytest.mark.vm(smp=2, memory="3G", timeout_s=2400),
]

#: There the kernel tells which of our code is reached, and the calls are guided by it.
KCOV = Path("/sys/kernel/debug/kcov")
#: Calls that a fuzzer must have got through to have tested anything: one in fifty. Where all is
#: slow a container hardly has a context before it ends.
GRANTED_PERCENT = 2 / SLOWNESS


@pytest.fixture
def versions(sim: Any, made: Any, loaded_modules: Any, tmp_path: Path) -> Iterator[Versions]:
    """
    The module installed, with a later version to go to, on two cards. What the driver takes for
    itself is not charged, up to a bound: here it is nothing.
    """
    sim(cards="t4,a100", hidden=0)
    with installed_versions(made, tmp_path) as there:
        yield there


def test_broken_calls_from_all_sides_leave_nothing_behind(
    versions: Versions, made: Any, pytestconfig: pytest.Config, record_property: Any
) -> None:
    seed = pytestconfig.getoption("--fuzz-seed")
    fuzz_s = pytestconfig.getoption("--fuzz-seconds")
    # The engine shall have something to do.
    TREE.joinpath("0/policy").write_text("2\n")
    print(f"fuzz {seed} {fuzz_s}")
    command = [made("programs") / "fuzz", str(seed), str(fuzz_s)]
    if pytestconfig.getoption("--fuzz-guided") == "no":
        command.append("unguided")
    fuzzer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        middle_s = time.monotonic() + fuzz_s / 2
        until(lambda: time.monotonic() > middle_s or fuzzer.poll() is not None, "half-time", fuzz_s)
        versions.upgrade()
        output, _ = fuzzer.communicate()
    finally:
        fuzzer.kill()
        fuzzer.wait()
    assert fuzzer.returncode == 0, output
    told = json.loads(output)
    print(told)
    record_property("measured", told)
    assert told["containers"] > 0 and told["written"] > 0 and told["maps"] > 0
    assert (told["edges"] > 1000) == KCOV.exists()
    assert told["granted"] * 100 > told["calls"] * GRANTED_PERCENT
    assert told["weighed"] > 0 and told["uncharged_bytes"] <= 0
    assert told["lost_bytes"] <= 0
    assert told["kept_from_the_card"] > 0 and told["open_channels"] == 0
    until(lambda: not os.listdir(TREE / "container"), "the end of all containers")
    for card in ("0", "1"):
        until(lambda card=card: numbers(f"{card}/memory")["used"] == 0, "the return of all memory")  # type: ignore[misc]  # bound in this round of the loop
        assert numbers(f"{card}/memory")["allocated"] == 0
