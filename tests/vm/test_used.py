# SPDX-License-Identifier: MIT
"""
What a container used of the card, and who gets the windows of one that has no work, by the
driver's log of context switches; and that a suspend finds every gate open.

Bounds are coarse, as in test_compute.py; the exact ones are held by tests/core/test_switch_log.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pycgpu.tree import usage_log
from pycgpu.tree.recorder import Recorder
from tests.vm.loaded import until
from tests.vm.test_compute import Card, card, divided, shares
from tests.vm.work import NEAR, SECONDS, Work, together

__all__ = ["card"]

pytestmark = pytest.mark.kernel("6.1", by_default=True)

SIM = Path("/proc/driver/nvidia-sim")


def engine_ns() -> int:
    """What the simulated card's graphics engine worked and switched so far."""
    # No line before the first group.
    lines = [line for line in SIM.read_text().splitlines() if line.startswith("runlist 0")]
    words = lines[0].split()[2:] if lines else ["busy_ns", "0", "switch_ns", "0"]
    numbers = dict(zip(words[::2], words[1::2], strict=True))
    return int(numbers["busy_ns"]) + int(numbers["switch_ns"])


@pytest.mark.parametrize("policy", [1, 2, 7])
def test_used_time_is_what_the_card_counted(card: Card, policy: int) -> None:
    card.policy(policy)
    one, two = card.tenant("one", weight=1), card.tenant("two", weight=2)
    before, used = engine_ns(), [card.stat(name)["used_ns"] for name in ("one", "two")]
    got = together(Work(one), Work(two))
    spent = [
        card.stat(name)["used_ns"] - then for name, then in zip(("one", "two"), used, strict=True)
    ]
    assert divided(*spent) == pytest.approx(divided(*got), abs=NEAR)
    # A context stays loaded until another is wanted: more than the engine worked. Between two
    # contexts it is nobody's: less.
    counted = engine_ns() - before
    assert 0.94 * counted < sum(spent) < counted + 600_000_000


def busy_beside_an_idle_one(card: Card, policy: int) -> float:
    """The percent that a busy tenant gets beside one with a quota of 60 % and no work."""
    card.policy(policy)
    idle, busy = card.tenant("idle", quota=60), card.tenant("busy")
    context = idle.popen("simcuda", "--json", "--hold", "context")
    assert context.stdout is not None
    assert context.stdout.readline()
    work = Work(busy, seconds=2 * SECONDS).go()
    got = work.percent()
    context.kill()
    context.wait()
    return got


@pytest.mark.parametrize("policy", [7, 8])
def test_windows_of_an_idle_container_with_a_quota_go_to_the_others(
    card: Card, policy: int
) -> None:
    assert busy_beside_an_idle_one(card, policy) > 85


def test_under_policy_6_a_quota_is_kept_free(card: Card) -> None:
    assert busy_beside_an_idle_one(card, 6) == pytest.approx(40, abs=NEAR)


def test_one_that_wakes_has_its_quota_again(card: Card) -> None:
    card.policy(7)
    sleeper, busy = card.tenant("sleeper", quota=60), card.tenant("busy")
    awake, _ = together(Work(sleeper), Work(busy))
    long = Work(busy, seconds=3 * SECONDS)
    later = Work(sleeper, seconds=SECONDS)
    long.go()
    before = card.stat("busy")["used_ns"]
    until(lambda: card.stat("busy")["used_ns"] > before + 2 * 10**9, "the busy one's work", 60)
    assert later.go().percent() == pytest.approx(awake, abs=NEAR)
    long.percent()


def test_a_suspend_finds_every_gate_open_and_windows_go_on_after_it(card: Card) -> None:
    card.policy(1)
    one = card.tenant("one", quota=10)
    work = Work(one, seconds=60).go()
    until(lambda: card.stat("one")["throttled_ns"] > 10**8, "the first shut gates")
    # All of a suspend but the sleep: notifiers, then processes frozen, for some seconds.
    Path("/sys/power/pm_test").write_text("freezer")
    before, start = card.stat("one"), time.monotonic()
    Path("/sys/power/state").write_text("freeze")
    took_ns = int((time.monotonic() - start) * 1e9)
    after = card.stat("one")
    Path("/sys/power/pm_test").write_text("none")
    # The kernel waits in a loop that a busy host calibrates short: 5 s were 0.54 once.
    assert took_ns > 3 * 10**8
    assert after["throttled_ns"] - before["throttled_ns"] < took_ns / 2, "90 % without it"
    until(lambda: card.stat("one")["switches"] > after["switches"] + 10, "windows again")
    work.child.kill()
    work.child.wait()


def test_what_is_recorded_of_containers_adds_up_to_the_cards_own(
    card: Card, tmp_path: Path
) -> None:
    card.policy(7)
    one, two = card.tenant("one", weight=1), card.tenant("two", weight=3)
    writer = usage_log.Writer(str(tmp_path))
    recorder = Recorder(writer, str(card.cgpu.root))
    recorder.sample(time.time_ns(), time.monotonic_ns())
    shares(one, two)
    recorder.sample(time.time_ns(), time.monotonic_ns())
    recorder.flush()
    writer.close()
    found = {line.spent.id: line.spent.sums for line in usage_log.load(str(tmp_path), 0, 2**63)}
    assert set(found) == {None, "one", "two"}
    used = sum(found[id].used_ns or 0 for id in ("one", "two"))
    assert used == pytest.approx(found[None].used_ns, rel=0.01)
    assert 0 < used <= 1.01e9 * found[None].seconds
    # the one of less weight had less and waited more
    assert (found["one"].used_ns or 0) < (found["two"].used_ns or 0)
    assert (found["one"].waited_ns or 0) > (found["two"].waited_ns or 0) > 0
