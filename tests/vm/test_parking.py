# SPDX-License-Identifier: MIT
"""
Containers step off a simulated card and come back: the same under the module and the agent.

The programs are ``kmod/sim/simcuda/parkable.c``, each with a libcuda that can be checkpointed.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.agent import client, moves
from pycgpu.errors import CgpuError
from pycgpu.install import kernel_door
from pycgpu.parking import SOCKET
from pycgpu.parking.books import Books, Files
from pycgpu.tree import procfs
from pycgpu.tree.moving import Moving
from pycgpu.tree.process import directories
from tests.vm import user_door
from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import SLOWNESS, Modules, until
from tests.vm.user_door import Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "km", "bridge", "rootfs"),
    pytest.mark.vm(memory="3G", timeout_s=2400),
]

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
#: What is parked must fit into the guest's memory, though its content is hardly there.
CARD_MIB = 2048
START_S = 120
ANSWER_S = 60


class NoStart(Exception):
    """The program found no room for its context."""


class Tenant:
    """A parkable program in a container of its own, which has all of the card if it can get it."""

    def __init__(self, place: Place, name: str, child: subprocess.Popen[str]) -> None:
        self.place, self.name, self.child = place, name, child
        said = self.line(START_S)
        if said != "ready":
            raise NoStart(f"{name}: {said}")

    def line(self, deadline_s: float = ANSWER_S) -> str:
        """Return the next that it says."""
        assert self.child.stdout is not None
        ready = select.select([self.child.stdout], [], [], deadline_s * SLOWNESS)[0]
        assert ready, f"{self.name} says nothing for {deadline_s:g} s"
        return self.child.stdout.readline().strip()

    def has_said(self) -> bool:
        """Return whether a line waits to be read."""
        assert self.child.stdout is not None
        return bool(select.select([self.child.stdout], [], [], 0)[0])

    def tell(self, what: str) -> None:
        """Have it do something, some time."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{what}\n")
        self.child.stdin.flush()

    def ask(self, what: str) -> str:
        """Have it do something; return its answer."""
        self.tell(what)
        return self.line()

    def state(self) -> str:
        return (self.place.root / "0" / self.name / "state").read_text().strip()

    def stat(self) -> dict[str, int]:
        return procfs.read_stat(0, self.name, str(self.place.root))

    def has_nothing(self) -> bool:
        return self.stat()["current_bytes"] == 0

    @property
    def pid(self) -> int:
        """Its process, as the host numbers it."""
        lines = (self.place.root / "0" / self.name / "procs").read_text().splitlines()
        (pid,) = [int(line.split()[0]) for line in lines]
        return pid


class Place(ABC):
    """One door with its card, and who moves its containers."""

    root: Path
    simcuda: Path
    socket: str

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}

    @abstractmethod
    def run(self, name: str, program: str, *arguments: str, group: str = "") -> Any:
        """Begin a program in a new container without a limit of its own."""

    @abstractmethod
    def end(self, name: str) -> None:
        """Kill a container."""

    @abstractmethod
    def mover(self) -> int:
        """Return the process that moves containers."""

    @abstractmethod
    def kill_mover(self) -> None:
        """Kill who moves containers; the next one has begun when this returns."""

    def kill_helper(self) -> None:
        """Kill the process that asks libcuda, if there is one, whatever it asks."""
        # It or its parent may end meanwhile.
        for children in (
            one / "children" for one in directories(Path(f"/proc/{self.mover()}/task"))
        ):
            with contextlib.suppress(OSError):
                for pid in children.read_text().split():
                    if "checkpoint_helper" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(int(pid), signal.SIGKILL)

    def start(self, name: str, *sizes_mib: int, priority: int = 0, group: str = "") -> Tenant:
        """Begin a program that can be parked."""
        child = self.run(name, "parkable", *map(str, sizes_mib), group=group)
        tenant = self.tenants[name] = Tenant(self, name, child)
        if priority:
            (self.root / f"0/{name}/priority").write_text(f"{priority}\n")
        return tenant

    def park(self, name: str, hold: bool = False) -> int:
        return moves.park(name, str(self.root), hold=hold, socket=self.socket)

    def resume(self, name: str) -> str:
        return moves.resume(name, str(self.root), socket=self.socket)

    def kill(self, name: str) -> None:
        """Kill a container and wait for its end."""
        self.end(name)
        self.tenants.pop(name, None)
        until(lambda: not (self.root / f"container/{name}").exists(), f"the end of {name}", START_S)

    def moving(self) -> dict[str, Moving]:
        """Return what the door's file says of those that are not running."""
        return {one.id: one for one in Books(Files(str(self.root))).moving()}

    def events(self) -> list[str]:
        """Return the lines that are kept, without their times."""
        descriptor = procfs.open_events(str(self.root))
        try:
            lines = procfs.new_events(descriptor)
        finally:
            os.close(descriptor)
        return [line.partition(" ")[2] for line in lines]

    def card(self) -> dict[str, int]:
        return procfs.read_card_stat(0, str(self.root))


class OfModule(Place):
    """Containers of runc under the module, and ``cgpu parkd``."""

    root = Km.root
    socket = SOCKET

    def __init__(self, sim: Any, km: Any, container: Callable[..., Container]) -> None:
        super().__init__()
        driver: Sim = sim(cards="T4", fb_mib=CARD_MIB)
        self.module: Km = km()
        self.simcuda = driver.programs
        self._container = container
        self._containers: dict[str, Container] = {}
        self._parkd = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        environment = dict(
            os.environ,
            PYTHONPATH=str(ROOT),
            LD_LIBRARY_PATH=str(self.simcuda),
            PYTHONUNBUFFERED="1",
        )
        program = "from pycgpu.parking import service; service.main()"
        parkd = subprocess.Popen([sys.executable, "-c", program], env=environment, cwd="/")

        def answers() -> bool:
            try:
                return bool(client.ask({"op": "ping"}, path=SOCKET)["pid"] == parkd.pid)
            except (OSError, ValueError):
                return False

        until(answers, "the answer of cgpu parkd", START_S)
        return parkd

    def run(self, name: str, program: str, *arguments: str, group: str = "") -> Any:
        files = {
            f"/bin/{one}": self.simcuda / one for one in ("parkable", "libcuda.so.1", "simcuda")
        }
        one = self._containers[name] = self._container(name, programs=files)
        words = [f"group={group}"] if group else []
        self.module.create(name, f"pid={one.pid}", "gpu=0,mem=max", *words)
        return one.popen(f"/bin/{program}", *arguments)

    def end(self, name: str) -> None:
        self._containers.pop(name).delete()

    def mover(self) -> int:
        return self._parkd.pid

    def kill_mover(self) -> None:
        self._parkd.kill()
        self._parkd.wait()
        self._parkd = self._begin()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Nobody is moved, and nobody is told anything, meanwhile."""
        self._parkd.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._parkd.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._parkd.terminate()
        assert self._parkd.wait(START_S) == 0


class OfAgent(Place):
    """Tenants of ``cgpu run``, and their agent."""

    root = user_door.TREE
    socket = client.SOCKET

    def __init__(self, door: Door) -> None:
        super().__init__()
        self.door = door
        self.simcuda = Path(door.simcuda).parent
        door.environment["LD_LIBRARY_PATH"] = str(self.simcuda)
        self._children: dict[str, subprocess.Popen[str]] = {}

    def run(self, name: str, program: str, *arguments: str, group: str = "") -> Any:
        command = (str(self.simcuda / program), *arguments)
        child = self.door.start(*command, name=name, mem="max", group=group, told=True)
        self._children[name] = child
        return child

    def end(self, name: str) -> None:
        child = self._children.pop(name)
        child.kill()
        child.wait()

    def mover(self) -> int:
        return self.door.agent()

    def kill_mover(self) -> None:
        pid = self.door.agent()
        os.kill(pid, signal.SIGKILL)
        self.door.follows(pid)


@pytest.fixture
def module(sim: Any, km: Any, container: Any) -> Iterator[OfModule]:
    """A card under the module."""
    place = OfModule(sim, km, container)
    yield place
    for name in list(place.tenants):
        place.kill(name)
    place.close()


@pytest.fixture(params=["module", "agent"])
def place(request: pytest.FixtureRequest, made: Any, tmp_path: Path) -> Iterator[Place]:
    """A card at one of the doors."""
    if request.param == "module":
        yield request.getfixturevalue("module")
        return
    with user_door.opened(made, tmp_path, fb_mib=CARD_MIB) as door:
        yield OfAgent(door)
        door.end()
        door.close()


def parked(place: Place, name: str, *sizes_mib: int, priority: int = 0) -> Tenant:
    tenant = place.start(name, *sizes_mib, priority=priority)
    place.park(name)
    return tenant


def waits(tenant: Tenant) -> bool:
    return tenant.stat()["waits_for_room"] == 1


def test_a_parked_container_comes_back_with_its_content_when_it_calls_cuda(place: Place) -> None:
    one = place.start("one", 16, 32, 64)
    before = one.stat()["current_bytes"]
    pid = one.pid
    for _ in range(3):
        assert place.park("one") >= 112 * MIB
        assert one.state() == "parked"
        assert one.has_nothing()
        found = place.moving()["one"]
        assert (found.pids, found.asked_ns) == ((pid,), 0)
        assert one.stat()["parked_bytes"] == found.parked_bytes == before
        assert place.card()["parked_bytes"] == before
        # libcuda's own threads wait all the time.
        time.sleep(0.5)
        assert one.state() == "parked"
        assert one.ask("work") == "worked"
        # Its call may end before the books are closed.
        until(lambda: one.state() == "running", "the end of its return")
        assert one.stat()["current_bytes"] == before
        assert place.moving() == {}
    told = [line.split()[0] for line in place.events()]
    assert told.count("parked") == told.count("resumed") == 3


def test_one_that_is_held_waits_for_its_operator(place: Place) -> None:
    one = place.start("one", 16)
    place.park("one", hold=True)
    place.kill_mover()
    one.tell("work")
    time.sleep(1)
    assert one.state() == "parked"
    with pytest.raises(CgpuError, match="one is parked already"):
        place.park("one")
    assert place.resume("one") == ""
    assert one.line() == "worked"
    with pytest.raises(CgpuError, match="one is not parked"):
        place.resume("one")


@pytest.mark.parametrize(("priority", "first_back"), [(0, "early"), (5, "late")])
def test_who_waits_for_room_comes_back_by_priority_and_then_by_time(
    place: Place, priority: int, first_back: str
) -> None:
    tenants = {"early": parked(place, "early", 400, 400)}
    tenants["late"] = parked(place, "late", 400, 400, priority=priority)
    other = place.start("other", 650, 650)
    for name in ("early", "late"):
        tenants[name].tell("work")
        until(lambda one=tenants[name]: waits(one), f"{name} waits")  # type: ignore[misc]
    first, second = tenants.pop(first_back), *tenants.values()
    # Who waited already is told at its next turn.
    until(lambda: place.moving()[second.name].short_card is None, "others are first")
    moving = place.moving()
    assert moving[first.name].short_card == 0
    assert 0 < moving[first.name].short_bytes < 850 * MIB
    assert {"waits id=early", "waits id=late"} <= {
        line.partition(" bytes=")[0] for line in place.events()
    }
    assert other.ask("less") == "freed"
    assert first.line() == "worked"
    time.sleep(0.5)
    assert second.state() == "parked"
    assert not second.has_said()
    # Who is at work keeps what it has, and finds no room in what others come back to.
    assert other.ask("more 1000") == "none"
    assert other.ask("less") == "freed"
    assert second.line() == "worked"
    assert other.ask("work") == "worked"


def test_who_is_idle_is_parked_for_one_that_comes_back(place: Place) -> None:
    one, idle = parked(place, "one", 400, 400), place.start("idle", 650, 650)
    one.tell("work")
    until(lambda: waits(one), "one waits")
    time.sleep(2)
    assert (one.state(), idle.state()) == ("parked", "running")
    (place.root / "0/idle/idle_park_s").write_text("1\n")
    assert one.line() == "worked"
    assert idle.state() == "parked"
    idle.tell("work")
    until(lambda: waits(idle), "idle waits")
    place.kill("one")
    assert idle.line() == "worked"


def test_one_that_has_all_of_a_card_comes_back_to_it(place: Place) -> None:
    """There is no room beside it for what a return may take for a moment."""
    one = place.start("one")
    for size in (400, 100, 30, 10, 3, 1):
        while one.ask(f"more {size}") == "has":
            pass
    for _ in range(2):
        place.park("one")
        assert one.ask("work") == "worked"
        until(lambda: one.state() == "running", "the end of its return")


def test_a_call_waits_for_room_while_an_idle_container_is_parked_for_it(place: Place) -> None:
    idle, other = place.start("idle", 400, 400), place.start("other", 400)
    (place.root / "0/overcommit_ratio").write_text("200\n")
    began = time.monotonic()
    assert other.ask("more 1000") == "none"
    assert time.monotonic() - began < 10 * SLOWNESS, "nobody can be parked for it"
    (place.root / "0/idle/idle_park_s").write_text("1\n")
    # Until it has been idle for a second.
    until(lambda: other.ask("more 1000") == "has", "room for it")
    assert idle.state() == "parked"
    assert other.ask("more 1000") == "none", "nobody else is idle"
    idle.tell("work")
    until(lambda: waits(idle), "idle waits")
    assert other.ask("less") == "freed"
    assert idle.line() == "worked"
    (place.root / "0/idle/idle_park_s").write_text("0\n")
    place.kill("other")
    # Its call may end before the books are closed.
    until(lambda: place.moving() == {}, "the end of its return")


def test_a_call_that_is_killed_while_it_waits_wants_nothing_any_more(module: OfModule) -> None:
    idle, other = module.start("idle", 400, 400), module.start("other", 400)
    (module.root / "0/overcommit_ratio").write_text("200\n")
    (module.root / "0/idle/idle_park_s").write_text("1\n")
    books = Books(Files(str(module.root)))
    with module.still():
        other.tell("more 1000")
        until(lambda: [one.id for one in books.listed()] == ["other"], "its call waits")
        os.kill(other.pid, signal.SIGKILL)
        until(lambda: books.listed() == [], "its wish goes with it")
    time.sleep(2)
    assert idle.state() == "running", "it would have been parked in vain"


def test_the_next_mover_goes_on_with_what_is_parked(place: Place) -> None:
    one, two = parked(place, "one", 16), parked(place, "two", 400, 400)
    other = place.start("other", 650, 650)
    two.tell("work")
    until(lambda: waits(two), "two waits")
    since_ns = place.moving()["two"].asked_ns
    place.kill_mover()
    assert (one.state(), two.state()) == ("parked", "parked")
    assert place.moving()["two"].asked_ns == since_ns
    assert other.ask("less") == "freed"
    assert two.line() == "worked"
    assert one.ask("work") == "worked"


def test_a_move_that_a_mover_did_not_end_is_undone(place: Place) -> None:
    one = place.start("one", 16)
    books = Books(Files(str(place.root)))
    books.park("one", [one.pid])
    assert one.state() == "parking"
    place.kill_mover()
    until(lambda: one.state() == "running", "what was left halfway is settled")
    assert "not_parked id=one" in place.events()
    assert one.ask("work") == "worked"


def test_a_container_that_is_killed_while_it_is_parked_leaves_nothing(place: Place) -> None:
    parked(place, "one", 400)
    assert place.card()["parked_bytes"] >= 400 * MIB
    place.kill("one")
    assert place.moving() == {}
    assert "parked_bytes" not in place.card()
    again = place.start("one", 800, 800)
    assert again.ask("work") == "worked"


def test_what_cannot_be_parked_goes_on_and_is_told_why(place: Place) -> None:
    one = place.start("one", 16)
    with pytest.raises(CgpuError, match="no container two"):
        place.park("two")
    os.kill(one.pid, signal.SIGSTOP)
    with pytest.raises(CgpuError, match=f"process {one.pid} is stopped"):
        place.park("one")
    os.kill(one.pid, signal.SIGCONT)
    assert one.ask("fail") == "fails"
    with pytest.raises(CgpuError, match=r"one was not parked, and goes on.*status 801"):
        place.park("one")
    assert (one.ask("work"), one.state()) == ("worked", "running")
    place.run("raw", "simcuda", "--hold", "alloc", "64M")
    raw = place.root / "0/raw/stat"
    until(lambda: raw.exists() and "current_bytes 0\n" not in raw.read_text(), "its memory")
    with pytest.raises(CgpuError, match="does not use CUDA"):
        place.park("raw")
    place.kill("raw")


@pytest.mark.parametrize("way", ["halt", "halt out"])
def test_who_stands_still_amid_a_move_keeps_nobody_else_waiting(place: Place, way: str) -> None:
    one, other = place.start("one", 16, 32), parked(place, "other", 16)
    pid = one.pid
    assert one.ask(way) == "halts"
    if way == "halt":
        place.park("one")
        one.tell("work")
        until(lambda: one.state() == "resuming", "its return begins")
    else:
        with pytest.raises(CgpuError, match=f"process {pid} is stopped; continue it first"):
            place.park("one")
    for _ in range(2):
        began = time.monotonic()
        assert other.ask("work") == "worked"
        assert time.monotonic() - began < 10 * SLOWNESS, "the driver would not answer for minutes"
        until(lambda: other.state() == "running", "the end of its return")
        place.park("other")
    assert one.state() == ("resuming" if way == "halt" else "parking")
    os.kill(pid, signal.SIGCONT)
    if way == "halt out":
        # It is parked by then, as was wanted, or still on the card: it comes back either way.
        one.tell("work")
    assert one.line() == "worked"
    assert other.ask("work") == "worked"


def test_a_container_in_a_group_is_not_parked(module: OfModule) -> None:
    lead = module.start("lead", 16, group="lead")
    with pytest.raises(CgpuError, match="lead is in a group, and what MPS serves cannot be parked"):
        module.park("lead")
    assert lead.ask("work") == "worked"


def test_a_parked_container_is_not_destroyed_by_hand(module: OfModule) -> None:
    one = parked(module, "one", 16)
    with pytest.raises(OSError, match="busy"):
        module.module.destroy("one")
    assert one.ask("work") == "worked"


@pytest.mark.needs("km:0.1.1")
def test_a_container_stays_parked_over_a_hot_upgrade(
    module: OfModule, made: Any, loaded_modules: Modules
) -> None:
    one, two = parked(module, "one", 16, 32), parked(module, "two", 400, 400)
    other = module.start("other", 650, 650)
    two.tell("work")
    until(lambda: waits(two), "two waits")
    before = module.moving()
    (core,) = made("km:0.1.1").glob("cgpu_core_*.ko")
    loaded_modules.load(core)
    kernel_door.tell(kernel_door.switch(core.stem, 600_000))
    kernel_door.tell(kernel_door.ACCEPT)
    assert module.moving() == before
    assert other.ask("less") == "freed"
    assert two.line() == "worked"
    assert one.ask("work") == "worked"


class Play:
    """Whatever containers do to each other by chance: each comes back with all that it had."""

    NAMES = ("a", "b", "c", "d")
    #: What a move is told whose helper was killed: it is undone, or ended by a later look.
    KILLED = ("was not parked, and goes on", "is not back yet", "the helper has ended")

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.random = random.Random(seed)
        self.tenants: dict[str, Tenant] = {}
        #: Those that were told something and have not answered.
        self.owes: dict[str, str] = {}
        self.moves, self.kills = 0, 0
        #: By kind of step: where a long run spends its time.
        self.took_s: dict[str, float] = {}

    def free(self) -> list[Tenant]:
        return [one for name, one in self.tenants.items() if name not in self.owes]

    def create(self) -> None:
        name = self.random.choice([n for n in self.NAMES if n not in self.tenants])
        sizes = [self.random.choice([1, 30, 150, 300]) for _ in range(self.random.randint(1, 3))]
        priority = self.random.randint(0, 2)
        try:
            one = self.place.start(name, priority=priority)
        except NoStart:
            self.place.kill(name)
            return
        self.tenants[name] = one
        for size in sizes:
            assert one.ask(f"more {size}") in ("has", "none")

    def more(self) -> None:
        self.tell(self.random.choice(self.free()), f"more {self.random.choice([30, 300, 600])}")

    def less(self) -> None:
        self.tell(self.random.choice(self.free()), "less")

    def work(self) -> None:
        self.tell(self.random.choice(self.free()), "work")

    def tell(self, one: Tenant, what: str) -> None:
        one.tell(what)
        self.owes[one.name] = what

    def hear(self) -> None:
        for name in [name for name in self.owes if self.tenants[name].has_said()]:
            what, said = self.owes.pop(name), self.tenants[name].line()
            wanted = {"work": ("worked",), "less": ("freed", "nothing to free")}
            assert said in wanted.get(what, ("has", "none")), (name, what, said)

    def park(self) -> None:
        one = self.random.choice(list(self.tenants.values()))
        try:
            self.place.park(one.name)
            self.moves += 1
        except CgpuError as error:
            told = ("parked already", *self.KILLED)
            assert any(why in str(error) for why in told), f"{error}; {self.found(one)}"

    def found(self, one: Tenant) -> str:
        """What is to be seen of one of whom something unforeseen is told."""
        texts = [self.place.root / f"0/{one.name}" / node for node in ("state", "procs")]
        said = [text.read_text() if text.exists() else "no file" for text in texts]
        return f"status {one.child.poll()}, {said}, {self.place.moving().get(one.name)}"

    def resume(self) -> None:
        one = self.random.choice(list(self.tenants.values()))
        try:
            self.place.resume(one.name)
        except CgpuError as error:
            assert any(told in str(error) for told in ("is not parked", *self.KILLED)), error

    def kill(self) -> None:
        name = self.random.choice(list(self.tenants))
        self.place.kill(name)
        del self.tenants[name]
        self.owes.pop(name, None)

    def kill_helper(self) -> None:
        """Soon, whatever it asks then."""
        self.kills += 1
        killing = threading.Timer(self.random.uniform(0, 0.5), self.place.kill_helper)
        killing.daemon = True
        killing.start()

    def kill_mover(self) -> None:
        self.kills += 1
        self.place.kill_mover()

    def step(self) -> None:
        if self.random.random() < 0.02:
            self.kill_helper()
        able = []
        if len(self.tenants) < len(self.NAMES):
            able += [self.create]
        if self.free():
            able += [self.more, self.less, self.work, self.work]
        if self.tenants:
            able += [self.park] * 3 + [self.resume]
        if self.tenants and self.random.random() < 0.05:
            able = [self.kill]
        elif self.tenants and self.random.random() < 0.005:
            able = [self.kill_mover]
        step, begun_s = self.random.choice(able), time.monotonic()
        step()
        took_s = time.monotonic() - begun_s
        self.took_s[step.__name__] = self.took_s.get(step.__name__, 0.0) + took_s
        self.hear()

    def end(self) -> None:
        """Whoever waits comes back once others are gone."""
        while self.owes:
            deadline = time.monotonic() + 10 * SLOWNESS
            while self.owes and time.monotonic() < deadline:
                self.hear()
                time.sleep(0.05)
            idle = [name for name in self.tenants if name not in self.owes]
            assert not self.owes or idle, f"{self.owes} have the card for themselves"
            if self.owes:
                self.place.kill(idle[0])
                del self.tenants[idle[0]]
        for name, one in list(self.tenants.items()):
            if one.state() == "parked":
                one.tell("work")
                self.owes[name] = "work"


def test_no_container_comes_back_to_a_card_that_has_no_room_for_it(
    place: Place, pytestconfig: pytest.Config
) -> None:
    play, begun_s = Play(place, pytestconfig.getoption("--fuzz-seed")), time.monotonic()
    for number in range(pytestconfig.getoption("--park-steps")):
        play.step()
        if number % 100 == 0:
            print(f"{number} steps, {play.moves} moves, {play.kills} kills,"
                  f" {time.monotonic() - begun_s:.0f} s, of them"
                  f" {', '.join(f'{kind} {s:.0f}' for kind, s in play.took_s.items())}",
                  flush=True)  # fmt: skip
    play.end()
    play.end()
    for one in play.tenants.values():
        assert one.ask("work") == "worked"
    assert place.moving() == {}
    assert "reserved_bytes" not in place.card()
