# SPDX-License-Identifier: MIT
"""
``cgpu park`` and ``cgpu resume``: the driver and its libcuda are pretended, all else is cgpu's.
What a real card does is measured by hand and stands in docs/parking.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu import parking
from pycgpu.agent import moves
from pycgpu.errors import CgpuError
from pycgpu.parking import host_memory, service, stopped
from pycgpu.parking.books import Books, Files, Wanting
from pycgpu.parking.checkpoint import Checkpoint, CheckpointError, ProcessState
from pycgpu.parking.moves import Parking
from pycgpu.parking.wishes import Process, stirred
from pycgpu.tree.moving import Moving, State
from tests.host import pretended_agent
from tests.host.tree import make_tree, put

GIB = 1 << 30
HEAD = '''
from pretended.inside import *
os.environ["LD_LIBRARY_PATH"] = os.getcwd()
CGPU = [sys.executable, "-m", "pycgpu.cli.main"]

class Parkable(Tenant):
    """A tenant that uses CUDA."""

    def __init__(self, name, held, number, mem="1G"):
        self.name, self.held, self.client = name, held, number
        words = ["run", "--name", name, "--mem", mem, "--", "./parkable", str(held), hex(number)]
        self.child = subprocess.Popen(
            [*CGPU, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"
        self.pid = int(self.line())

    def tell(self, what):
        self.child.stdin.write(what + "\\n")
        self.child.stdin.flush()

    def works(self):
        self.tell("work")
        worked = self.line() == "worked"
        # Its call may end before the books are closed.
        until(lambda: self.state() != "resuming", "the end of its return")
        return worked

    def grows(self, mib):
        self.tell(f"grow {mib}")
        said = self.line()
        self.held += mib if said == "grown" else 0
        return said

    def set(self, node, value):
        (TREE / "0" / self.name / node).write_text(f"{value}\\n")

    def waits_for_room(self):
        return "waits_for_room 1\\n" in (TREE / "0" / self.name / "stat").read_text()

    def state(self):
        return (TREE / "0" / self.name / "state").read_text().strip()

    def has_all(self):
        return self.charged() == taken(self.client) == self.held << 20

    def has_nothing(self):
        return until(lambda: self.charged() == taken(self.client) == 0, "its memory goes")

def cgpu(*words):
    done = subprocess.run([*CGPU, *words], capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).strip()

def helpers():
    """Of this namespace's: they are nobody's, and not to be looked into."""
    found = []
    for status in (one / "status" for one in directories(Path("/proc"))):
        with contextlib.suppress(OSError):
            text = status.read_text()
            if "\\nUid:\\t65534\\t" in text and "\\nState:\\tZ" not in text:
                found.append(int(status.parent.name))
    return found

def helper():
    (found,) = helpers()
    return found

one = Parkable("one", 16, 0xC1D00001, mem="4G")
'''
TAIL = """
assert one.works() and one.has_all()
one.end()
end_agent()
until(lambda: not helpers(), "the helper's end")
"""

BY_ITSELF = """
for _ in range(3):
    assert cgpu("park", "one") == (0, "one is parked: 16 MiB went to the host")
    assert one.state() == "parked" and one.has_nothing()
    stat = (TREE / "0/one/stat").read_text()
    assert f"parked_bytes {16 << 20}\\n" in stat and "reserved_bytes 0\\n" in stat
    time.sleep(0.5)
    # Its libcuda's own threads wait all the time.
    assert one.state() == "parked"
    assert one.works() and one.has_all()
text = os.read(os.open(TREE / "events", 0), 1 << 16).decode()
lines = [line.split()[1] for line in text.splitlines()]
assert lines.count("parked") == lines.count("resumed") == 3, lines
"""
HELD = """
assert cgpu("park", "one", "--hold")[0] == 0
one.tell("work")
time.sleep(1)
assert one.state() == "parked"
assert cgpu("park", "one") == (1, "cgpu: one is parked already, or moves at the moment")
assert cgpu("resume", "one") == (0, "one is back")
assert one.line() == "worked"
assert cgpu("resume", "one") == (1, "cgpu: one is not parked")
"""
REFUSED = """
os.kill(one.pid, signal.SIGSTOP)
code, said = cgpu("park", "one")
assert code == 1 and f"process {one.pid} is stopped; continue it first" in said, said
os.kill(one.pid, signal.SIGCONT)
one.tell("fail")
code, said = cgpu("park", "one")
assert code == 1 and "one was not parked, and goes on" in said and "status 801" in said, said
assert one.works() and one.state() == "running" and one.has_all()
other = Tenant("other", 4, 0xC1D00002)
code, said = cgpu("park", "other")
assert code == 1 and "has 4 MiB of the card and does not use CUDA" in said, said
other.child.kill()
"""
#: Who stops amid a move, or is stopped by another, keeps nobody waiting but itself.
STOPPED = """
two = Parkable("two", 8, 0xC1D00002)
for each in (one, two):
    assert cgpu("park", each.name, "--hold")[0] == 0
os.kill(one.pid, signal.SIGSTOP)
code, said = cgpu("resume", "one")
assert (code, said) == (
    1, f"cgpu: one cannot come back: process {one.pid} is stopped; continue it first"
)
assert "reserved_bytes 0\\n" in (TREE / "0/one/stat").read_text()
os.kill(one.pid, signal.SIGCONT)
for each in (one, two):
    assert cgpu("resume", each.name)[0] == 0
    assert each.works()

one.tell("halt")
for each in (one, two):
    assert cgpu("park", each.name)[0] == 0
one.tell("work")
until(lambda: one.state() == "resuming", "its return begins")
for _ in range(3):
    began = time.monotonic()
    assert two.works()
    took = time.monotonic() - began
    assert took < 6, took
    until(lambda: two.state() == "running", "the end of its return")
    assert cgpu("park", "two")[0] == 0
assert one.state() == "resuming"
os.kill(one.pid, signal.SIGCONT)
assert one.line() == "worked"
assert two.works()
two.end()
"""
#: Who asked first is stopped: others do not wait behind it.
STOPPED_FIRST = """
(TREE / "0/overcommit_ratio").write_text("200\\n")
rest = Parkable("rest", 16, 0xC1D00003, mem="15G")
two = Parkable("two", 8, 0xC1D00002, mem="3G")
assert one.grows(2560) == "grown"
for each in (one, two):
    assert cgpu("park", each.name)[0] == 0
assert [rest.grows(size) for size in (4096, 4096, 4096, 2000)] == ["grown"] * 4
one.tell("work")
until(one.waits_for_room, "its return waits")
os.kill(one.pid, signal.SIGSTOP)
assert two.works()
assert not one.waits_for_room() and one.state() == "parked"
os.kill(one.pid, signal.SIGCONT)
until(one.waits_for_room, "it asks anew")
rest.end()
assert one.line() == "worked"
two.end()
"""
KILLED = """
assert cgpu("park", "one")[0] == 0
os.kill(helper(), signal.SIGKILL)
assert one.works()
assert cgpu("park", "one")[0] == 0
first = agent()
os.kill(first, signal.SIGKILL)
follows(first)
assert until(lambda: one.state() == "parked", "the next agent's tree")
assert one.works() and one.has_all()
two = Parkable("two", 8, 0xC1D00002)
assert cgpu("park", "two")[0] == 0
os.kill(two.pid, signal.SIGKILL)
until(lambda: not (TREE / "0/two").exists(), "its container's end")
assert cgpu("park", "one", "--hold")[0] == 0
first = agent()
os.kill(first, signal.SIGKILL)
follows(first)
one.tell("work")
time.sleep(1)
assert one.state() == "parked", "the next agent knows that it is held"
assert cgpu("resume", "one") == (0, "one is back")
assert one.line() == "worked"
"""
#: /etc of its own, in which the operator may write.
ETC = """
Path("/run/upper").mkdir(), Path("/run/work").mkdir()
over = ["mount", "-t", "overlay", "-o", "lowerdir=/etc,upperdir=/run/upper,workdir=/run/work"]
subprocess.run([*over, "overlay", "/etc"], check=True)
Path("/etc/cgpu").mkdir(exist_ok=True)
"""
SHOWN = """
import json

def shown():
    (card,) = json.loads(cgpu("smi", "--json")[1])["gpus"]
    (found,) = card["containers"]
    return found["state"], found["memory"]["parked_bytes"] >> 20, found["memory"]["used_bytes"]

def told():
    text = cgpu("exporter", "--once")[1]
    found = [line.rpartition(" ") for line in text.splitlines() if line.startswith("cgpu_")]
    return {name.partition("{")[0]: float(value) for name, _, value in found if value != "0.0"}

assert cgpu("ps")[1].splitlines()[1].split()[-2:] == ["running", "0"]
assert cgpu("park", "one")[0] == 0
assert shown() == ("parked", 16, 0)
assert cgpu("ps")[1].splitlines()[1].split()[-2:] == ["parked", "16"]
assert "GPU 0: one is parked for " in cgpu("smi")[1]
found = told()
assert found["cgpu_gpu_parked_bytes"] == found["cgpu_container_parked_bytes"] == 16 << 20
assert (found["cgpu_container_state"], found["cgpu_parks_total"]) == (1, 1), found
assert "cgpu_resumes_total" not in found
assert one.works()
assert shown() == ("running", 0, 16 << 20)
found = told()
assert (found["cgpu_parks_total"], found["cgpu_resumes_total"]) == (1, 1)
assert 0 < found["cgpu_resume_seconds_total"] < 60
"""
ASKED = """
assert (TREE / "0/one/idle_park_s").read_text() == "0\\n"
assert cgpu("set", "one", "--idle-park", "90s") == (0, "GPU 0, one: idle_park off → 90s")
assert (TREE / "0/one/idle_park_s").read_text() == "90\\n"
run = [*CGPU, "run", "--name", "two", "--idle-park", "2h", "--", "cat", TREE / "0/two/idle_park_s"]
assert subprocess.run(run, capture_output=True, text=True, timeout=60).stdout == "7200\\n"
assert cgpu("set", "one", "--idle-park", "off")[0] == 0
"""
DEFAULT = (
    ETC
    + """
policy = Path("/etc/cgpu/policy.toml")
policy.write_text('[maximum]\\nidle_park = "1h"\\n[default]\\nidle_park = "10m"\\n')
who = dict(os.environ, SUDO_UID="65534", SUDO_GID="65534", SUDO_USER="nobody")

def asks(*options):
    words = [*CGPU, "run", "--name", "two", *options, "--", "cat", TREE / "0/two/idle_park_s"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=who)
    return done.stdout + done.stderr

assert asks() == "600\\n"
assert asks("--idle-park", "5m") == "300\\n"
for asked in ("2h", "off"):
    bound = "a container may have 1h on this node (/etc/cgpu/policy.toml)"
    assert asks("--idle-park", asked) == f"cgpu: card 0: idle park {asked}, {bound}\\n"
"""
)
RIGHTS = """
assert cgpu("park", "one")[0] == 0
lines = Path(f"/proc/{helper()}/status").read_text().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
assert set(status["Uid"].split()) == {"65534"}, status["Uid"]
assert int(status["CapEff"], 16) == 1 << 1 | 1 << 2 | 1 << 19, status["CapEff"]
assert status["NoNewPrivs"] == "1"
# What it calls is the host's, whatever a container has by that name.
libraries = {line.split()[-1] for line in Path(f"/proc/{helper()}/maps").read_text().splitlines()}
assert {path for path in libraries if "libcuda" in path} == {f"{os.getcwd()}/libcuda.so.1"}
spaces = {os.readlink(f"/proc/{pid}/ns/mnt") for pid in (helper(), os.getpid())}
assert len(spaces) == 1
"""
OTHERS = """
from pycgpu.agent import moves

def as_nobody(do):
    read, write = os.pipe()
    if not os.fork():
        os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
        try:
            said = str(do())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        return told.read()

for name, ask in (("park", moves.park), ("resume", moves.resume)):
    told = as_nobody(lambda: ask("one", str(TREE)))
    assert told == f"CgpuError: only root may {name} a container: try sudo", told
for step in (f"park one pid={one.pid}", "return one", "running one", "no_room one", "stay one"):
    told = as_nobody(lambda: (TREE / "inst_ctl").write_text(step))
    assert told.startswith("PermissionError"), told
assert one.state() == "running"
"""
#: A thread's name as a tenant chooses it, which the file `procs` shows.
NAMED = """
def named(name):
    os.write(one.child.stdin.fileno(), b"name " + name + b"\\n")
    assert one.line() == "named"

two = Parkable("two", 8, 0xC1D00002)
for separator in ("\\u2028", "\\x85"):
    named(f"{separator}{two.pid} 1 9".encode())
    assert cgpu("park", "one", "--hold") == (0, "one is parked: 16 MiB went to the host")
    assert f"pid={one.pid}\\n" in (TREE / "parking").read_text(), "and nobody else is"
    assert two.works() and two.has_all()
    assert cgpu("resume", "one")[0] == 0
named(b"\\xff\\xfe")
one.set("idle_park_s", 1)
assert cgpu("park", "one", "--hold")[0] == 0
assert cgpu("park", "two")[0] == 0
assert two.works(), "who is parked beside it is looked after"
assert cgpu("resume", "one")[0] == 0
one.set("idle_park_s", 0)
two.end()
"""

#: Of a card of 16 GiB that promises 32, and has 4 for those who may be parked.
FULL = """
(TREE / "0/overcommit_ratio").write_text("200\\n")
rest = Parkable("rest", 16, 0xC1D00003, mem="12G")
assert rest.grows(11264) == "grown"
one.set("idle_park_s", 1)
assert one.works() and one.grows(2560) == "grown"
two = Parkable("two", 8, 0xC1D00002, mem="3G")
"""
GROWTH = (
    FULL
    + """
assert two.grows(3100) == "0 0x51", "its own limit"
assert "oom 1\\n" in (TREE / "0/two/stat").read_text()
assert one.state() == "running"
until(lambda: two.grows(2560) == "grown", "the other is idle for long enough")
assert one.state() == "parked"
one.tell("work")
until(one.waits_for_room, "its return waits")
assert two.works()
two.end()
assert one.line() == "worked"
rest.end()
one.set("idle_park_s", 0)
"""
)
AT_WORK = (
    FULL
    + """
for what in ("queue", "wait"):
    one.tell(what)
    time.sleep(2.5)
    began = time.monotonic()
    assert two.grows(2560) == "0 0x51"
    assert time.monotonic() - began < 5, "who cannot be helped waits"
    assert one.state() == "running"
    one.tell("")
    assert one.works()
one.set("idle_park_s", 60)
assert two.grows(2560) == "0 0x51", "it has worked just now"
one.set("idle_park_s", 0)
time.sleep(2.5)
assert two.grows(2560) == "0 0x51"
two.end()
rest.end()
"""
)
RETURN = (
    FULL
    + """
assert cgpu("park", "one")[0] == 0
assert two.grows(2560) == "grown"
one.tell("work")
until(one.waits_for_room, "its return waits")
time.sleep(2)
assert two.state() == "running", "nobody asked that it be parked"
rows = {words[1]: words[-2] for words in map(str.split, cgpu("ps")[1].splitlines())}
assert (rows["one"], rows["two"]) == ("waits", "running"), rows
(told,) = [line for line in cgpu("smi")[1].splitlines() if line.startswith("GPU 0: one waits for")]
assert " MiB of room are wanting: is parked for " in told, told
two.set("idle_park_s", 1)
assert one.line() == "worked"
assert two.state() == "parked"
one.set("idle_park_s", 0)
two.set("priority", 1)
two.tell("work")
until(two.waits_for_room, "its return waits")
time.sleep(2.5)
one.set("priority", 2)
one.set("idle_park_s", 1)
time.sleep(2.5)
assert one.state() == "running", "it is of a higher priority"
one.set("priority", 1)
assert two.line() == "worked" and one.state() == "parked"
two.end()
rest.end()
"""
)
SWAP = (
    ETC
    + FULL
    + """
def budget(mib):
    text = f"park_min_s = 0\\npark_host_bytes = {mib << 20}\\n"
    Path("/etc/cgpu/parking.toml").write_text(text)
    time.sleep(2.5)
budget(5000)
assert two.grows(2560) == "0 0x51", "one could not come back"
assert one.state() == "running"
budget(6000)
assert two.grows(2560) == "grown" and one.state() == "parked"
two.set("idle_park_s", 1)
for here, away in ((one, two), (two, one), (one, two)):
    assert here.works() and away.state() == "parked"
two.end()
rest.end()
one.set("idle_park_s", 0)
"""
)
RULES = (
    ETC
    + """
def rule(text):
    Path("/etc/cgpu/parking.toml").write_text(text)
one.set("idle_park_s", 1)
assert one.works()
time.sleep(3)
assert one.state() == "running", "nobody needs the room"
rule('when = "idle"\\npark_host_bytes = 1048576\\n')
time.sleep(3)
assert one.state() == "running"
code, said = cgpu("park", "one")
assert code == 1, said
assert "it has 16 MiB, and of the 1 MiB that /etc/cgpu/parking.toml gives" in said, said
rule('when = "idle"\\nmoves_per_min = 0\\n')
time.sleep(3)
assert one.state() == "running"
rule('when = "idle"\\nnonsense = 1\\n')
time.sleep(3)
assert one.state() == "running"
rule('when = "idle"\\npark_min_s = 4\\n')
until(lambda: one.state() == "parked", "it is idle")
for _ in range(2):
    assert one.works()
    back = time.monotonic()
    until(lambda: one.state() == "parked", "it is idle again")
    assert time.monotonic() - back > 3.9
"""
)
#: Of the one move that a minute may have nothing is left: who waits for room waits on.
KILLED_WAITING = (
    ETC
    + FULL
    + """
Path("/etc/cgpu/parking.toml").write_text('when = "idle"\\nmoves_per_min = 1\\npark_min_s = 0\\n')
until(lambda: one.state() == "parked", "it is idle")
assert one.works()
waiting = lambda: [line for line in (TREE / "parking").read_text().splitlines() if "want_" in line]
time.sleep(2)
two.tell("grow 2560")
until(waiting, "its call waits")
time.sleep(1)
assert waiting()[0].startswith("two state=running ") and one.state() == "running"
os.kill(two.pid, signal.SIGKILL)
until(lambda: not waiting(), "its wish goes with it")
"""
)

#: The sections of tests/gpu, by small figures, on a card of 16 GiB that is pretended.
ON_A_CARD = (
    ETC
    + """
import json
sys.path.append(sys.argv[1])
os.environ["LD_LIBRARY_PATH"] = os.getcwd()
from tests.gpu import bench, parking, report, serving

report.facts = lambda: {"date": "2026-11-30", "card": "none", "cards": 1, "driver": "0",
                        "kernel": "0", "commit": "0"}
here = Path("here")
here.mkdir()
for program in ("notebook.py", "serve.py"):
    (here / program).symlink_to(Path(sys.argv[1]) / "tests/host/pretended/notebook.py")
parking.NOTEBOOK = here / "notebook.py"
serving.PROGRAMS = here
small = dict(SERVER="1G", SIZE_GIB=1, MOVES=2, CYCLES=2, PARKED=3, COST_S=1, COUNT=4, FIT=2,
             MODEL_GIB=3, ROOM_GIB=11, CELL_S=(0.1, 2.0), DAY_S=8.0, IDLE_S=1, PROGRAM_BYTES=0)
for name, value in small.items():
    assert type(getattr(parking, name)) is type(value), name
    setattr(parking, name, value)
bench.main(Path("found"), ["parking", "park_cycles", "notebooks"])
(found,) = Path("found").glob("*.json")
checks = {one["name"]: one for one in json.loads(found.read_text())["checks"]}
for name, one in checks.items():
    # How long things take here says nothing of a card.
    assert one["pass"] in (None, True) or one["unit"] in ("s", "% of a processor"), one
assert checks["1 GiB: its content is the same"]["pass"]
assert checks["2 moves out and back: with another content"]["pass"]
assert checks["4 notebooks: time of moves"]["value"] > 0
end_agent()
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not pretended_agent.can_run():
        pytest.skip("no root")
    made = tmp_path_factory.mktemp("parking")
    pretended_agent.build(made)
    parts, simcuda = pretended_agent.PARTS, pretended_agent.REPOSITORY / "kmod/sim/simcuda"
    library = ["-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1"]
    commands = [
        [*library, simcuda / "libcuda.c", "-o", made / "libcuda.so.1"],
        [parts / "parkable.c", made / "libcuda.so.1", "-o", made / "parkable"],
    ]
    for words in commands:
        common = ["cc", "-O1", "-D_GNU_SOURCE", "-iquote", pretended_agent.REPOSITORY / "kmod"]
        subprocess.run([*map(str, [*common, *words])], check=True, timeout=120)
    return made


def test_a_parked_container_comes_back_when_it_calls_cuda(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + BY_ITSELF + TAIL)


def test_one_that_is_held_waits_for_its_operator(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + HELD + TAIL)


def test_what_cannot_be_parked_goes_on_and_is_told_why(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + REFUSED + TAIL)


def test_who_stands_still_amid_a_move_keeps_nobody_else_waiting(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + STOPPED + TAIL)


def test_nobody_waits_for_room_behind_one_that_stands_still(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + STOPPED_FIRST + TAIL)


def test_agent_helper_and_tenant_may_be_killed_while_it_is_parked(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + KILLED + TAIL)


def test_where_its_memory_is_can_be_seen(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + SHOWN + TAIL)


def test_when_it_is_parked_by_itself_is_asked_at_its_start_and_set_later(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + ASKED + TAIL)


def test_who_is_idle_is_parked_for_one_that_needs_the_room(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + GROWTH + TAIL)


def test_nobody_at_work_is_parked_and_who_cannot_be_helped_is_told_at_once(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + AT_WORK + TAIL)


def test_a_call_that_is_killed_while_it_waits_wants_nothing_any_more(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + KILLED_WAITING + TAIL)


def test_a_return_has_idle_ones_parked_and_none_of_a_higher_priority(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + RETURN + TAIL)


def test_only_so_much_is_parked_that_any_of_it_can_come_back(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + SWAP + TAIL)


def test_the_operators_rules_say_when_and_how_often_idle_ones_are_parked(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + RULES + TAIL)


def test_what_is_measured_on_a_card_can_be_measured(folder: Path) -> None:
    pretended_agent.run(
        folder, "from pretended.inside import *\n" + ON_A_CARD, str(pretended_agent.REPOSITORY)
    )


def test_who_does_not_say_has_what_the_node_says(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + DEFAULT + TAIL)


def test_the_helper_has_no_more_rights_than_it_needs(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + RIGHTS + TAIL)


def test_a_name_of_a_thread_moves_nobody_else(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + NAMED + TAIL)


def test_nobody_but_root_moves_a_container(folder: Path) -> None:
    pretended_agent.run(folder, HEAD + OTHERS + TAIL)


def proc(folder: Path, available: int, limit: str, current: int, inactive: int) -> str:
    """Return a /proc whose process 7 is in a memory cgroup with these figures."""
    cgroups = folder / "cgroup"
    (cgroups / "a/b").mkdir(parents=True)
    (folder / "meminfo").write_text(
        f"MemTotal: {100 * GIB >> 10} kB\nMemAvailable: {available >> 10} kB\n"
    )
    (folder / "7").mkdir()
    (folder / "7/cgroup").write_text("0::/a/b\n")
    (folder / "self").mkdir()
    (folder / "self/mountinfo").write_text(f"1 2 0:3 / {cgroups} rw - cgroup2 cgroup2 rw\n")
    (cgroups / "a/memory.max").write_text(limit)
    (cgroups / "a/memory.current").write_text(str(current))
    (cgroups / "a/memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("available", "limit", "current", "inactive", "why"),
    [
        (50 * GIB, "max", 0, 0, None),
        (12 * GIB, "max", 0, 0, "12288 MiB are available and 5120 MiB stay free"),
        (50 * GIB, str(20 * GIB), 12 * GIB, 0, None),
        (50 * GIB, str(20 * GIB), 13 * GIB, 0, "cgroup /a, whose limit leaves 7168 MiB"),
        (50 * GIB, str(20 * GIB), 13 * GIB, GIB, None),
    ],
)
def test_parking_fills_neither_the_host_nor_a_memory_cgroup(
    tmp_path: Path, available: int, limit: str, current: int, inactive: int, why: str | None
) -> None:
    root = proc(tmp_path, available, limit, current, inactive)
    if why is None:
        host_memory.check({7: 8 * GIB}, root)
        return
    with pytest.raises(host_memory.NoHostMemory, match=why):
        host_memory.check({7: 8 * GIB}, root)


def test_a_cgroup_has_room_for_all_of_its_processes_together(tmp_path: Path) -> None:
    """Each alone fits, and the first is in another cgroup."""
    root = proc(tmp_path, 50 * GIB, str(20 * GIB), 12 * GIB, 0)
    for pid, cgroup in ((6, "/"), (8, "/a")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/cgroup").write_text(f"0::{cgroup}\n")
    host_memory.check({6: 9 * GIB, 7: 4 * GIB, 8: 4 * GIB, 5: GIB}, root)
    with pytest.raises(
        host_memory.NoHostMemory, match=r"8193 MiB .* cgroup /a, whose limit leaves"
    ):
        host_memory.check({6: GIB, 7: 4 * GIB, 8: 4 * GIB + (1 << 20)}, root)


def test_the_topmost_cgroup_has_a_limit_where_we_are_in_a_container(tmp_path: Path) -> None:
    root = proc(tmp_path, 50 * GIB, "max", 0, 0)
    (tmp_path / "7/cgroup").write_text("0::/\n")
    for name, size in (("max", 20 * GIB), ("current", 13 * GIB)):
        (tmp_path / f"cgroup/memory.{name}").write_text(str(size))
    with pytest.raises(host_memory.NoHostMemory, match="cgroup /, whose limit leaves 7168 MiB"):
        host_memory.check({7: 8 * GIB}, root)


@pytest.mark.parametrize(
    ("state", "mount", "name", "said", "why"),
    [
        ("S", "cgroup2 cgroup2 rw", "cgroup.events", "populated 1\nfrozen 0\n", ""),
        ("T", "cgroup2 cgroup2 rw", "cgroup.events", "", "process 7 is stopped; continue it first"),
        ("t", "cgroup2 cgroup2 rw", "cgroup.events", "", "process 7 is stopped; continue it first"),
        ("S", "cgroup2 cgroup2 rw", "cgroup.events", "populated 1\nfrozen 1\n",
         "process 7 is frozen with cgroup /a/b; thaw it first"),
        ("D", "cgroup cgroup rw,freezer", "freezer.state", "FROZEN\n",
         "process 7 is frozen with cgroup /a/b; thaw it first"),
        ("D", "cgroup cgroup rw,freezer", "freezer.state", "THAWED\n", ""),
    ],
)  # fmt: skip
def test_who_stands_still_is_told_why(
    tmp_path: Path, state: str, mount: str, name: str, said: str, why: str
) -> None:
    root = proc(tmp_path, GIB, "max", 0, 0)
    (tmp_path / "7/stat").write_text(f"7 (a) T b) {state} 1 7\n")
    (tmp_path / "self/mountinfo").write_text(f"1 2 0:3 / {tmp_path}/cgroup rw - {mount}\n")
    if name == "freezer.state":
        (tmp_path / "7/cgroup").write_text("3:freezer:/a/b\n")
    (tmp_path / "cgroup/a/b" / name).write_text(said)
    assert stopped.reason(7, root) == why
    assert stopped.reason(8, root) == "", "it has ended"


def test_a_look_at_who_is_parked_opens_nothing_anew_and_costs_little(tmp_path: Path) -> None:
    """Of twenty that rest, on a monotonic clock of its own."""
    root = make_tree(tmp_path / "tree")
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(20)]
        for child in children:
            stack.callback(child.kill)
        now_ns = time.monotonic_ns()
        lines = [f"c{n} state=parked since_ns={now_ns} bytes=6 pid={one.pid}\n"
                 for n, one in enumerate(children)]  # fmt: skip
        (root / "parking").write_text("".join(lines))
        found = Parking(Books(Files(str(root))))
        found.look(0.0)
        opened, costs_s = len(os.listdir("/proc/self/fd")), []
        for number in range(5):
            began_s = time.thread_time()
            for look in range(50):
                found.look(0.1 * (50 * number + look))
            costs_s.append((time.thread_time() - began_s) / 50)
        assert len(os.listdir("/proc/self/fd")) == opened
        assert min(costs_s) * 10 < 0.002, "0.1 % of a processor, of a slow one"
        children[0].kill()
        children[0].wait()
        (root / "inst_ctl").write_text("")
        found.look(100.0)
        assert (root / "inst_ctl").read_text() == "running c0"
        (root / "parking").write_text("")
        found.look(200.0)
        assert len(os.listdir("/proc/self/fd")) == opened - 2 * 20, "of each itself, and a thread"


MANY_THREADS = """
import threading
for _ in range(400):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
input()
"""


def test_a_tenant_of_many_threads_does_not_use_up_the_files_that_may_be_open() -> None:
    pipe = subprocess.PIPE
    program = [sys.executable, "-c", MANY_THREADS]
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(subprocess.Popen(program, stdin=pipe, stdout=pipe))
        stack.callback(child.kill)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        await_rest(child.pid)
        opened = len(os.listdir("/proc/self/fd"))
        with contextlib.closing(Process(child.pid)) as found:
            assert not found.wants(1.0)
            assert 200 < len(os.listdir("/proc/self/fd")) - opened < 300
        assert len(os.listdir("/proc/self/fd")) == opened


def await_rest(pid: int) -> None:
    """Wait until a process waits for its input again."""
    end_s = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_first_look_at_a_parked_process_does_not_delay_the_next() -> None:
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(subprocess.Popen(["cat"], bufsize=0, stdin=pipe, stdout=pipe))
        stack.callback(child.kill)
        found = stack.enter_context(contextlib.closing(Process(child.pid)))
        assert child.stdin is not None and child.stdout is not None
        for now_s in (1.0, 1.01, 1.011):
            child.stdin.write(b"x")
            child.stdout.read(1)
            await_rest(child.pid)
            assert stirred([found]) == [found]
            assert not found.wants(now_s), "it waits for no card"
            waits = [found] if now_s == 1.011 else []
            assert stirred([found]) == waits, "the second look is paid for, and the third waits"


def test_without_parkd_one_line_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_tree(tmp_path / "tree")
    with pytest.raises(CgpuError, match="cannot park: `cgpu upgrade`"):
        moves.park("one", str(root))
    put(root, features="memory\npark")
    monkeypatch.setattr(parking, "SOCKET", str(tmp_path / "parkd.sock"))
    for ask in (moves.park, moves.resume):
        with pytest.raises(CgpuError, match="start it by `systemctl start cgpu-parkd`") as failure:
            ask("one", str(root))
        assert "\n" not in str(failure.value)


def test_a_second_parkd_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_LOCK_PATIENCE_S", 0)
    path = str(tmp_path / "parkd.lock")
    with (
        service.only_one(path),
        pytest.raises(CgpuError, match="a cgpu parkd runs already"),
        service.only_one(path),
    ):
        pass
    with service.only_one(path):
        pass


class Driver(Checkpoint):
    """A driver with one process: what it is in, and what becomes of each step."""

    def __init__(self, state: ProcessState, steps: Callable[[str], ProcessState | None]) -> None:
        super().__init__()
        self.process, self._steps = state, steps

    def state(self, pid: int) -> ProcessState:
        return self.process

    def restore(self, pid: int) -> None:
        self._do("restore", pid)

    def _do(self, operation: str, pid: int) -> None:
        found = self._steps(operation)
        if found is None:
            raise CheckpointError(f"{operation} fails")
        self.process = found


def left(
    folder: Path, state: str, driver: Driver, pid: int = 0, since_ns: int = 1 << 62
) -> tuple[Path, Parking]:
    """Return a tree in which an agent left a process so, and who settles it."""
    folder.mkdir(exist_ok=True)
    root = make_tree(folder / "tree")
    put(root, parking=f"c state={state} since_ns={since_ns} bytes=6"
        f" pid={pid or os.getpid()}")  # fmt: skip
    return root, Parking(Books(Files(str(root))), driver)


def test_a_copy_that_ends_after_its_helper_is_brought_back(tmp_path: Path) -> None:
    """The process is locked until its copy is there, and cannot be unlocked meanwhile."""
    done: list[str] = []

    def step(operation: str) -> ProcessState | None:
        done.append(operation)
        if done == ["unlock"]:
            driver.process = ProcessState.CHECKPOINTED
            return None
        return {"restore": ProcessState.LOCKED, "unlock": ProcessState.RUNNING}[operation]

    driver = Driver(ProcessState.LOCKED, step)
    root, found = left(tmp_path, "parking", driver)
    found.look(0.0)
    assert (done, driver.process) == (["unlock", "restore", "unlock"], ProcessState.RUNNING)
    assert (root / "inst_ctl").read_text() == "running c"


def test_a_process_that_has_the_number_of_one_that_ended_is_not_moved(tmp_path: Path) -> None:
    """It may be another container's, and parked: nobody has reserved room for it."""
    driver = Driver(ProcessState.CHECKPOINTED, lambda operation: ProcessState.RUNNING)
    since_ns = time.monotonic_ns()
    time.sleep(0.1)
    with subprocess.Popen(["sleep", "600"]) as child:
        root, found = left(tmp_path, "parked", driver, child.pid, since_ns)
        found.resume("c")
        assert driver.state(0) is ProcessState.CHECKPOINTED
        assert (root / "inst_ctl").read_text() == "running c"
        root, found = left(tmp_path / "seen", "parked", driver, child.pid, since_ns)
        found.look(0.0)
        assert (root / "inst_ctl").read_text() == "running c", "its own processes have ended"
        _, found = left(tmp_path / "again", "parked", driver, child.pid, time.monotonic_ns())
        found.resume("c")
        assert driver.state(0) is ProcessState.RUNNING
        child.kill()


class Helpless(Checkpoint):
    """Its helper is killed each time that it is asked."""

    def start(self) -> None:
        pass

    def state(self, pid: int) -> ProcessState:
        raise CheckpointError("the helper has ended")


@pytest.mark.parametrize("size", [0, 5 << 20])
def test_a_helper_that_ends_is_told_of_and_not_that_nobody_uses_cuda(
    tmp_path: Path, size: int
) -> None:
    root = make_tree(tmp_path / "tree")
    (root / "parking").write_text("")
    card = root / "container/c/0"
    card.mkdir(parents=True)
    (card / "group").write_text("-\n")
    (card / "procs").write_text(f"{os.getpid()} 7 {size} python3\n")
    with pytest.raises(CgpuError, match=r"^c cannot be parked: the helper has ended$"):
        Parking(Books(Files(str(root))), Helpless()).park("c")


def test_who_hangs_amid_its_return_keeps_others_waiting_for_a_tenth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = hung_s = 0.0

    def hang(operation: str) -> None:
        nonlocal now_s, hung_s
        assert operation == "restore"
        now_s += 180
        hung_s += 180

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(time, "sleep", sleep)
    _, found = left(tmp_path, "resuming", Driver(ProcessState.CHECKPOINTED, hang))
    while now_s < 4 * 3600:
        now_s += found.look(now_s)
    assert 0 < hung_s < 0.15 * now_s


def test_a_door_that_comes_later_is_waited_for_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The module may be loaded later than its service is started."""
    assert Parking(Books(Files(str(tmp_path / "none")))).look_quietly(0.0) > 0
    assert caplog.records == []


def test_the_books_are_read_from_the_tree_and_changed_by_commands(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree", cards=2)
    waits = (
        "one state=parked since_ns=5 bytes=6 asked_ns=7 short_gpu=1 short_bytes=8 pid=9,10\n"
        "two state=resuming since_ns=1 bytes=0 hold=1 pid=2"
    )
    put(root, parking=waits)
    for card in range(2):
        directory = root / f"container/one/{card}"
        directory.mkdir(parents=True)
        put(directory, procs="9 1 5 python3 -m x\n10 2 0 \u202812 1 9\n11 0 7 -")
        with (directory / "procs").open("ab") as file:
            file.write(b"13 0 0 \xff\n")
    books = Books(Files(str(root)))
    assert books.moving() == [
        Moving("one", State.PARKED, 5, 6, (9, 10), asked_ns=7, short_card=1, short_bytes=8),
        Moving("two", State.RESUMING, 1, 0, (2,), held=True),
    ]
    # Who is not in the container any more is nobody to park.
    assert books.holders("one") == {9: 10, 10: 0}
    assert books.known() == {0: 0, 1: 0}
    commands: dict[str, Callable[[], object]] = {
        "park one pid=9,10": lambda: books.park("one", [9, 10]),
        "park one pid=9 hold=1": lambda: books.park("one", [9], hold=True),
        "parked one": lambda: books.parked("one"),
        "return one foreign=0:3 foreign=1:5": lambda: books.come_back("one", {1: 5, 0: 3}),
        "running one": lambda: books.running("one"),
        "stay one": lambda: books.stay("one"),
    }
    for told, command in commands.items():
        (root / "inst_ctl").write_text("")
        command()
        assert (root / "inst_ctl").read_text() == told


@pytest.mark.parametrize(("asked", "wanting"), [("one", Wanting(1, 8)), ("two", Wanting(None, 0))])
def test_who_has_to_wait_is_told_for_what(tmp_path: Path, asked: str, wanting: Wanting) -> None:
    class Refusing(Files):
        def write(self, path: str, data: bytes) -> int:
            raise BlockingIOError(errno.EAGAIN, "no room")

    put(make_tree(tmp_path / "tree"), parking=(
        "one state=parked since_ns=5 bytes=6 asked_ns=7 short_gpu=1 short_bytes=8 pid=9\n"
        "two state=parked since_ns=5 bytes=6 asked_ns=9 pid=9"
    ))  # fmt: skip
    assert Books(Refusing(str(tmp_path / "tree"))).come_back(asked, {}) == wanting
