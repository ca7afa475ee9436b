# SPDX-License-Identifier: MIT
"""
Calls that nobody makes on purpose: broken ones from every side, for some seconds, at both doors.

``programs/fuzz.c`` says what is thrown. What is asked is that the driver never has given out more
than what is charged, that charges add up to that, that who is kept from a card has no channel there
that may run, that nothing is left, and that the kernel has nothing to say; the harness reads its
log, and under ``6.1-debug`` that of KASAN, lockdep and kmemleak. ``--fuzz-seconds`` and
``--fuzz-seed`` make it long, or another one. Under ``6.1-debug`` calls at the module are guided by
the code that they reach; with ``--fuzz-guided no`` it is only counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pycgpu.agent import filter
from pycgpu.tree.process import directories
from tests.vm import user_door
from tests.vm.loaded import SLOWNESS, until
from tests.vm.test_hot_upgrade import Versions, installed_versions, numbers

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "km", "km:0.1.1", "bridge", "programs"),
    pytest.mark.vm(smp=2, memory="3G", timeout_s=2400),
]

#: What the driver takes for itself is not charged, up to a bound: here it is nothing.
DRIVER = {"cards": "t4,a100", "hidden": 0}
#: There the kernel tells which of our code is reached, and the calls are guided by it.
KCOV = Path("/sys/kernel/debug/kcov")
#: Calls that a fuzzer must have got through to have tested anything: one in fifty. Where all is
#: slow a container hardly has a context before it ends.
GRANTED_PERCENT = 2 / SLOWNESS
#: One in some hundreds makes a mapping: of 697 calls, all that a machine beside others made of
#: the agent in 20 s, none did.
CALLS_WITHOUT_MAPS = 2000
MIB = 1 << 20
#: So the C library keeps little for later. Up to ten threads of libfuse stay, which have room for a
#: container's processes each: 12 MiB were seen after 12 containers, 15 after 53.
KEEPS_NOTHING = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "GLIBC_TUNABLES": "glibc.pthread.stack_cache_size=0",
}
AGENT_GROWTH_BYTES = 24 * MIB


class Fuzzer:
    """``programs/fuzz`` at the door whose tree this is."""

    def __init__(self, tree: Path, program: Path, config: pytest.Config) -> None:
        self._tree = tree
        self._seed = config.getoption("--fuzz-seed")
        self._seconds = config.getoption("--fuzz-seconds")
        self._command = [str(program), str(self._seed), str(self._seconds)]

    def run(self, *options: str, at_half_time: Callable[[], object] = lambda: None) -> Any:
        """Throw calls; return what was counted, which says that nothing was taken uncharged."""
        # The engine shall have something to do.
        self._tree.joinpath("0/policy").write_text("2\n")
        print(f"fuzz {self._seed} {self._seconds}")
        fuzzer = subprocess.Popen([*self._command, *options], stdout=subprocess.PIPE, text=True)
        try:
            middle_s = time.monotonic() + self._seconds / 2
            until(
                lambda: time.monotonic() > middle_s or fuzzer.poll() is not None,
                "half-time",
                self._seconds,
            )
            at_half_time()
            output, _ = fuzzer.communicate()
        finally:
            fuzzer.kill()
            fuzzer.wait()
        assert fuzzer.returncode == 0, output
        told = json.loads(output)
        print(told)
        assert told["containers"] > 0
        assert told["maps"] > 0 or told["calls"] < CALLS_WITHOUT_MAPS
        assert told["written"] + told["refused"] > 0
        assert told["granted"] * 100 > told["calls"] * GRANTED_PERCENT
        assert told["weighed"] > 0 and told["uncharged_bytes"] <= 0
        assert told["above_bytes"] <= 0 and told["lost_bytes"] <= 0
        assert told["open_channels"] == 0
        until(lambda: not os.listdir(self._tree / "container"), "the end of all containers")
        for card in ("0", "1"):
            memory = partial(numbers, f"{card}/memory", self._tree)
            until(lambda memory=memory: memory()["used"] == 0, "the return of all memory")  # type: ignore[misc]  # bound in this round of the loop
            assert memory()["allocated"] == 0
        return told


@pytest.fixture
def versions(sim: Any, made: Any, loaded_modules: Any, tmp_path: Path) -> Iterator[Versions]:
    """The module installed, with a later version to go to, on two cards."""
    sim(**DRIVER)
    with installed_versions(made, tmp_path) as there:
        yield there


def test_broken_calls_from_all_sides_leave_nothing_behind(
    versions: Versions, made: Any, pytestconfig: pytest.Config, record_property: Any
) -> None:
    fuzzer = Fuzzer(Path("/proc/cgpu_km"), made("programs") / "fuzz", pytestconfig)
    guided = pytestconfig.getoption("--fuzz-guided") == "yes"
    told = fuzzer.run(*([] if guided else ["unguided"]), at_half_time=versions.upgrade)
    record_property("measured", told)
    assert told["kept_from_the_card"] > 0
    assert (told["edges"] > 1000) == KCOV.exists()


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def _has(pid: int) -> Counter[str]:
    """Kinds of descriptors, and its own threads; libfuse and Python have as many as they like."""
    found: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # One that is gone by now was of that moment.
        with contextlib.suppress(FileNotFoundError):
            found[re.sub(r"\d+", "", str(link.readlink()))] += 1
    for name in (one / "comm" for one in directories(Path(f"/proc/{pid}/task"))):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[name.read_text()] += name.read_text().startswith("cgpud-")
    return found


@pytest.mark.vm(smp=1)
def test_broken_calls_from_all_sides_leave_nothing_in_the_agent(
    made: Any, tmp_path: Path, pytestconfig: pytest.Config, record_property: Any
) -> None:
    if int(os.uname().release.split(".")[0]) < 6:
        pytest.skip("calls that this kernel has taken up can be restarted")
    rules = tmp_path / "filter"
    rules.write_bytes(filter.program())
    fuzzer = Fuzzer(user_door.TREE, made("programs") / "fuzz", pytestconfig)
    with user_door.opened(made, tmp_path / "door", **DRIVER) as door:
        door.environment |= KEEPS_NOTHING
        daemon = door.daemon()
        until(user_door.TREE.joinpath("0/policy").exists, "the agent", user_door.START_S)
        # what it makes once is there after a first container
        before = door.sim("--context", "alloc", str(64 * MIB))
        user_door.emptied()
        has = _has(daemon.pid)
        resident_bytes = _resident_bytes(daemon.pid)
        told = fuzzer.run("unguided", str(rules))
        assert door.sim("--context", "alloc", str(64 * MIB)) == before
        user_door.emptied()
        killed = [line for line in user_door.events().splitlines() if " killed " in line]
        print("\n".join(killed))
        assert not any("was not given" in line for line in killed)
        told["agent_bytes"] = _resident_bytes(daemon.pid) - resident_bytes
        print(told["agent_bytes"])
        record_property("measured", told)
        more: list[Counter[str]] = []

        def nothing_more() -> bool:
            more[:] = [_has(daemon.pid) - has]
            return not more[0]

        with contextlib.suppress(AssertionError):
            until(nothing_more, "what it had before", user_door.START_S)
        assert not more[0], (more, has)
        assert told["agent_bytes"] < AGENT_GROWTH_BYTES
        door.close()
        assert daemon.wait() == 0
