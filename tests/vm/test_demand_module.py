# SPDX-License-Identifier: MIT
"""
The module's looks at USERD, counted by a probe at what they begin with: the module's thread takes
on the address space of the container. What the looks are good for is held in virtual time by
tests/core.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.work import Work

pytestmark = [pytest.mark.kernel("6.1", by_default=True), pytest.mark.needs("programs")]

#: seconds that the neighbour works, unless it is killed before
LONG = 600.0
FAIR = 7
TRACING = Path("/sys/kernel/tracing")
PROBE = "use_mm"


class Card:
    """One simulated T4 with the module, and tenants on it."""

    def __init__(
        self, driver: Sim, cgpu: Km, container: Callable[..., Container], programs: Path
    ) -> None:
        self.cgpu = cgpu
        self._container = container
        self._programs = {
            "/bin/simcuda": driver.programs / "simcuda",
            "/bin/userd": programs / "userd",
        }
        cgpu.write("0/policy", f"{FAIR}\n")

    def tenant(self, id: str) -> Container:
        one = self._container(id, programs=self._programs)
        self.cgpu.create(id, f"pid={one.pid}", "gpu=0,mem=1073741824")
        return one


@pytest.fixture
def card(
    sim: Callable[..., Sim],
    km: Callable[..., Km],
    container: Callable[..., Container],
    made: Callable[[str], Path],
) -> Card:
    return Card(sim(model="t4"), km(), container, made("programs"))


@pytest.fixture(autouse=True)
def probe() -> Iterator[None]:
    """Counts who takes on an address space; nobody else does so here."""
    events = TRACING / "kprobe_events"
    events.write_text(f"p:cgpu/{PROBE} kthread_use_mm\n")
    enable = TRACING / "events/cgpu" / PROBE / "enable"
    enable.write_text("1")
    yield
    enable.write_text("0")
    events.write_text("")


def looks() -> int:
    lines = (TRACING / "kprobe_profile").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == PROBE)


def ended_early(work: Work, container: Container) -> None:
    """End what was to go on for long, and see that it did until now."""
    assert work.child.poll() is None, work.child.communicate()
    container.kill()
    work.child.wait()


def last(run: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_a_lone_container_is_not_looked_at(card: Card) -> None:
    one = card.tenant("one")
    assert Work(one).go().percent() > 0
    assert looks() == 0


def test_a_container_that_pauses_beside_one_that_works_is_looked_at(card: Card) -> None:
    busy, server = card.tenant("busy"), card.tenant("server")
    work = Work(busy, seconds=LONG).go()
    served = last(server.exec("simcuda", "--json", "serve", "10", "5", "3", "1.5"))
    assert served["requests"] > 3
    seen = looks()
    # of ten seconds with a look each millisecond, a busy emulated machine made 59
    assert seen > 20
    ended_early(work, busy)


@pytest.mark.parametrize("mode", ["moved", "frozen", "spinning", "video"])
def test_whatever_a_container_does_to_its_userd_wins_nothing(card: Card, mode: str) -> None:
    busy, liar = card.tenant("busy"), card.tenant("liar")
    work = Work(busy, seconds=LONG).go()
    before = looks()
    assert last(liar.exec("userd", mode, "8", "2"))["share_permille"] < 600
    # the mapping is followed to where it went, and read wherever the memory is
    assert looks() > before
    ended_early(work, busy)
