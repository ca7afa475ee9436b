# SPDX-License-Identifier: MIT
"""
``cgpu run --group``: the group's MPS server is there from its first member to its last. NVIDIA's
daemon is stood in for by a program of the same name, the driver is pretended, all else is cgpu's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.host import pretended_agent

HEAD = '''
from pretended.inside import *
os.environ["PATH"] = MPS + os.pathsep + os.environ["PATH"]
CGPU = [sys.executable, "-m", "pycgpu.cli.main"]
GROUPS = Path("/run/cgpu/groups")

class Member:
    """A program in a group, until it is told to end."""

    def __init__(self, name, group, *options, script=":", **popen):
        words = ["run", "--name", name, "--group", group, "--mem", "1G", *options, "--"]
        self.child = subprocess.Popen(
            [*CGPU, *words, "sh", "-c", script + "; echo ready; read line; :"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **popen,
        )
        self.said = []
        for line in self.child.stdout:
            if line == "ready\\n":
                break
            self.said.append(line.rstrip())
        else:
            self.said += [self.child.stderr.read().rstrip(), str(self.child.wait())]

    def end(self):
        self.child.communicate("")
        return self.child.returncode

def containers():
    return sorted(path.name for path in (TREE / "container").iterdir())

def node(name, what):
    return (TREE / "0" / name / what).read_text().strip()

def told(*kinds):
    """Lines of `events` of these kinds, without their times."""
    import pycgpu
    return [f"{one.kind} {one.text}" for one in pycgpu.events() if one.kind in kinds]

def servers():
    """Processes of MPS servers and who keeps them, by their names."""
    found = {}
    for comm in (one / "comm" for one in directories(Path("/proc"))):
        with contextlib.suppress(OSError):
            words = (comm.parent / "cmdline").read_text().split("\\0")
            if not words[0]:
                continue  # It has ended, and this program inherited it.
            if comm.read_text() == "mps-server\\n":
                found["server"] = int(comm.parent.name)
            elif words[0].endswith("mps-control"):
                found["daemon"] = int(comm.parent.name)
            elif "pycgpu.agent.group_server" in words:
                found.setdefault("keepers", []).append(int(comm.parent.name))
    # The guard first, whose child the keeper is.
    keepers = found.get("keepers", ())
    pids = sorted(keepers, key=lambda pid: parent(pid) in keepers)
    return {**found, "keepers": pids} if pids else found

def kept():
    """Those, once both are there that keep the server."""
    return until(lambda: len((found := servers())["keepers"]) == 2 and found, "its keepers")

def parent(pid):
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
'''
LIFE = """
one = Member("one", "g")
assert not one.said, one.said
first = kept()
two = Member("two", "g")
found = {name: node(name, "group") for name in containers()}
same = servers() == first
one.end()
until(lambda: "one" not in containers(), "its end")
time.sleep(1.5)
stays = servers() == first
two.end()
until(lambda: not servers() and not containers(), "the server's end")
until(lambda: not [*GROUPS.iterdir()], "its folder's end")
again = Member("again", "g")
print(json.dumps([found, sorted(first), same, stays, containers()]))
again.end()
until(lambda: not containers(), "the end")
end_agent()
"""
ORDERS = """
os.environ["HOME"] = "/"
script = "ls -A $CUDA_MPS_PIPE_DIRECTORY; nvidia-cuda-mps-control </dev/null"
one = Member("one", "g", script=script)
before = servers()
root = subprocess.run(
    ["nvidia-cuda-mps-control"], stdout=subprocess.PIPE, text=True, check=True,
    env=dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(GROUPS / "g/pipe")),
).stdout.strip()
print(json.dumps([one.said, root, servers() == before]))
one.end()
until(lambda: not containers(), "the end")
end_agent()
"""
USER = """
one = Member("one", "g", "--user", "nobody", script="id -u; nvidia-cuda-mps-control </dev/null")
assert "server" in servers(), (one.said, (GROUPS / "g/log").read_text())
pid = servers()["server"]
uids = (Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split())[:4]
seen = os.listdir(f"/proc/{pid}/root/root"), os.listdir(f"/proc/{pid}/root/run")
pipe = os.stat(GROUPS / "g/pipe")
control = os.stat(GROUPS / "g/pipe/control")
connect = f"import socket; socket.socket(1, 5).connect({str(GROUPS / 'g/pipe/control')!r})"
reached = [
    subprocess.run(
        ["setpriv", "--reuid", uid, "--clear-groups", "/usr/bin/env", "python3", "-c", connect],
        stderr=subprocess.PIPE, text=True,
    ).stderr.splitlines()[-1:] for uid in ("65534", "1234")
]
places = [[one.st_uid, oct(one.st_mode)] for one in (pipe, control)]
print(json.dumps([one.said, uids, seen, places, reached]))
one.end()
until(lambda: not containers(), "the end")
end_agent()
"""
REFUSED = """
plain = subprocess.Popen([*CGPU, "run", "--name", "plain", "--", "sleep", "1000"])
until(lambda: agent() and "plain" in containers(), "a container")
said = {}
said["no group"] = Member("m", "plain").said
one = Member("one", "g", "--weight", "2")
def tell(what, *options, **more):
    said[what] = Member("m", "g", *options, **more).said
tell("user", "--user", "nobody")
tell("quotas", "--quota", "30,40", "--gpu", "0,1")
tell("policy", "--policy", "weighted")
tell("room", "--mem", "999G")
said["name"] = Member("m", "../outside").said
said["name"].append(str((GROUPS / "../outside").exists()))
bare = dict(os.environ, PATH="/bin")
said["no program"] = Member("m", "h", env=bare).said
said["same"] = Member("n", "g", "--policy", "weighted-conserving").end()
print(json.dumps([said, containers(), [path.name for path in GROUPS.iterdir()]]))
one.end()
plain.kill()
plain.wait()
until(lambda: not containers(), "the end")
end_agent()
"""
#: A server's end, to programs that have memory of a card and to one that has not.
LOST = """
def member(name, number, before=""):
    return Member(name, "g", script=f"{before}exec ./tenant 1 {number:#x}")
one, quiet = member("one", 0x101), member("quiet", 0x102, "exec 2>&-; ")
idle = Member("idle", "g")
outside = Tenant("outside", 1, 0x103)
held = node("one", "procs").split(), node("quiet", "procs").split()
began = time.monotonic()
pid = servers()["server"]
os.kill(pid, signal.SIGKILL)
found = [[each.child.wait(30), each.child.stderr.read()] for each in (one, quiet)]
took = time.monotonic() - began
until(lambda: len(told("killed")) == 2, "what is told of it")
alive = [idle.child.poll(), outside.child.poll()]
idle.end()
outside.end()
until(lambda: not containers(), "the end")
lines = told("create", "destroy", "killed", *(f"server_{one}" for one in ("started", "ended",
                                                                      "died", "lost")))
print(json.dumps([held, found, took, alive, pid, lines]))
end_agent()
"""
#: A member that means ill: towards its server, and what keeps it, the limits, and files of others.
ILL = r"""
precious = Path("/run/precious")
precious.mkdir()
(precious / "file").write_text("x")
one = Member("one", "g", "--user", "nobody")
found = kept()
script = "\n".join([
    "cd $CUDA_MPS_PIPE_DIRECTORY/..",
    "ls pipe",
    "rm -f pipe/control 2>/dev/null || echo kept",
    "mv pipe/control pipe/other 2>/dev/null || echo named",
    "chmod 700 pipe 2>/dev/null || echo mode",
    "ln -s /run/precious pipe/link 2>/dev/null || echo link",
    "echo x 2>/dev/null >log || echo log",
    "rm -f owner 2>/dev/null || echo owner",
    *(f"kill -9 {pid} 2>/dev/null || echo keeper" for pid in found["keepers"]),
    # Another pid namespace, as a container has, of the same user.
    "unshare -r -p --fork --mount-proc sh -c"
    f" 'kill -0 1 && ! kill -9 {found['server']}' 2>/dev/null && echo apart",
    "for file in /run/cgpu_km/0/g/memsize /run/cgpu_km/0/ill/memsize /run/cgpu_km/inst_ctl; do",
    "echo 99999999999 2>/dev/null >$file || echo limit; done",
])
ill = Member("ill", "g", "--user", "nobody", script=script)
limits = [node(name, "memsize") for name in ("g", "ill")]
same = servers() == found
# As one might that had the directory while the daemon started.
(GROUPS / "g/pipe/link").symlink_to(precious)
(GROUPS / "g/pipe/more").mkdir()
(GROUPS / "g/pipe/more/link").symlink_to(precious)
root = Member("root", "h", script="for name in h root; do"
              " echo 99999999999 2>/dev/null >/run/cgpu_km/0/$name/memsize || echo limit; done")
own = [node(name, "memsize") for name in ("h", "root")]
root.end()
ill.end()
one.end()
until(lambda: not containers() and not [*GROUPS.iterdir()], "the end")
print(json.dumps([ill.said, limits, same, root.said, own, [*map(str, precious.iterdir())]]))
end_agent()
"""
#: A program ends, and then the server.
AFTER = """
one = Member("one", "g", script="exec ./tenant 1 0x101")
two = Member("two", "g", script="exec ./tenant 1 0x102")
# So long it takes until programs are looked for.
time.sleep(3)
pid = servers()["server"]
two.child.kill()
time.sleep(0.2)
os.kill(pid, signal.SIGKILL)
found = [one.child.wait(30), one.child.stderr.read()]
until(lambda: not containers(), "the end")
print(json.dumps([found, pid, told("server_died", "server_lost", "killed")]))
end_agent()
"""
#: A member that comes to its server so often that the daemon's log would fill the host's /run.
CHATTER = r"""
come = (
    "import os, socket\n"
    "for _ in range(24000):\n"
    "    with socket.socket(1, 5) as one:\n"
    "        one.connect(os.environ['CUDA_MPS_PIPE_DIRECTORY'] + '/control')\n"
)
one = Member("one", "g", script=f'{sys.executable} -c "{come}"')
assert not one.said, one.said
log = GROUPS / "g/log"
until(lambda: "g: this log begins anew after " in log.read_text(errors="replace"), "a short log")
size = log.stat().st_size
again = Member("two", "g")
again.end()
one.end()
until(lambda: not containers(), "the end")
print(json.dumps([size, again.said]))
end_agent()
"""
#: What each of a group asks for of its compute.
SHARES = """
def told(*words):
    run = subprocess.run([*CGPU, *words], capture_output=True, text=True)
    return [run.returncode, (run.stdout + run.stderr).strip()]
def parts():
    return {name: [node(name, "weight"), node(name, "quota")] for name in containers()}
show = "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
one = Member("one", "g", "--quota", "25", script=show)
two = Member("two", "g", "--weight", "3", "--quota", "40", script=show)
three = Member("three", "g", script=show)
found = [parts(), one.said, two.said, three.said]
quota = told("set", "one", "--quota", "30")
weight = told("set", "one", "--weight", "2")
parked = [told("park", name) for name in ("one", "g")]
row = {}
for seen in json.loads(told("smi", "--json")[1])["gpus"][0]["containers"]:
    compute = seen["compute"]
    row[seen["id"]] = [compute["weight"], compute["quota_percent"], seen["group"]]
admitted = told("run", "--name", "whole", "--quota", "100", "--", "true")
two.end()
until(lambda: "two" not in containers(), "its end")
less = parts()
by_hand = told("set", "g", "--weight", "5", "--quota", "60")
three.end()
until(lambda: "three" not in containers(), "its end")
print(json.dumps([parked, found, quota, weight, row, admitted, less, by_hand[0], parts()]))
one.end()
until(lambda: not containers(), "the end")
end_agent()
"""
#: What the runtime adds to containers that ask for priorities, and for none.
GIVEN = """
from pycgpu.agent import launch
from pycgpu.oci import membership
from pycgpu.request.model import CardShare, Request
launch.ensure_agent()
def given(priority):
    config = {"linux": {"mountLabel": "system_u:object_r:container_file_t:s0:c1,c2"}}
    share = CardShare(priority=priority, quota=30)
    membership.give(config, Request("cgpu", (0,), (share,), group="g"), str(TREE))
    return dict(word.split("=") for word in config["process"]["env"])
first = given(1)
one = Member("one", "g")
subprocess.run([*CGPU, "set", "g", "--priority", "2"], check=True)
rest = [given(priority) for priority in (None, 1, 2)]
labels = [os.getxattr(place, "security.selinux").decode() for place in (
    "/run/cgpu/groups/g/pipe", "/dev/shm/cgpu/g")]
one.end()
until(lambda: not containers(), "the end")
print(json.dumps([first, rest, labels]))
end_agent()
"""
#: Whose the group is, and whose a program beside it that could join.
ADVISED = """
from pycgpu.tree import contender, nvml, snapshot
one = Member("one", "g", "--user", "nobody")
outside = Tenant("outside", 1, 0x103)
moment = snapshot.take(str(TREE), boards=nvml.Nvml())
found = {each.id: [each.owner, each.is_group] for each in contender.of_card(moment, 0, None)}
told = subprocess.run([*CGPU, "advise", "--for", "1s"], capture_output=True, text=True)
print(json.dumps([found, told.returncode, told.stdout.splitlines(), told.stderr]))
outside.end()
one.end()
until(lambda: not containers(), "the end")
end_agent()
"""
#: Members come and go at once: whoever runs finds a server.
RACE = """
from concurrent.futures import ThreadPoolExecutor
def turn(number):
    one = Member(f"m{number}", "g", script="nvidia-cuda-mps-control </dev/null")
    time.sleep(number % 7 / 10)
    one.end()
    return one.said
with ThreadPoolExecutor(3) as pool:
    said = list(pool.map(turn, range(int(sys.argv[1]))))
until(lambda: not servers() and not containers(), "the end")
print(json.dumps(said))
end_agent()
"""
DEATH = """
one = Member("one", "g")
os.kill(servers()["daemon"], signal.SIGKILL)
until(lambda: not servers(), "the end of all of it")
late = Member("late", "g").said
one.end()
until(lambda: not containers(), "the end")
after = Member("after", "g")
after.end()
print(json.dumps([late, after.said]))
until(lambda: not containers(), "the end")
end_agent()
"""
#: Whoever keeps the server is killed, the one, the other, and the one again.
KEPT = """
# Of whoever starts a group the disposition of signals is inherited.
ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
one = Member("one", "g", script="exec ./tenant 1 0x101", preexec_fn=ignore)
first = kept()
keepers = {*first["keepers"]}
def follow(place):
    pid = servers()["keepers"][place]
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(now := {*servers().get("keepers", ())} - {pid}) == 2 and now, "another")
    keepers.update(servers()["keepers"])
    return {name: servers().get(name) == first[name] for name in ("daemon", "server")}
same = [follow(place) for place in (1, 0, 1, 0)]
two = Member("two", "g")
log = (GROUPS / "g/log").read_text().splitlines()
stays = one.child.poll()
# And whoever is there by now does what the first would have done.
pid = servers()["server"]
os.kill(pid, signal.SIGKILL)
lost = [one.child.wait(30), one.child.stderr.read()]
two.end()
until(lambda: not servers() and not containers(), "the end")
until(lambda: not [*GROUPS.iterdir()], "its folder's end")
lines = told("server_started", "server_ended", "server_died", "server_lost")
print(json.dumps([same, two.said, log, len(keepers), stays, lost, pid, lines]))
end_agent()
"""
SUCCESSOR = """
one = Member("one", "g")
pid = agent()
os.kill(pid, signal.SIGKILL)
follows(pid)
two = Member("two", "g")
found = {name: node(name, "group") for name in containers()}
one.end()
two.end()
until(lambda: not servers() and not containers(), "the end")
print(json.dumps([found, two.said]))
end_agent()
"""
#: As the SPANK plugin does, with what Slurm would say of a job: tasks that ask a helper of root's.
SLURM = r"""
task = '''
import os, subprocess, sys
from pycgpu.agent import filter
words = [sys.executable, "-m", "pycgpu.cli.main", "slurm-task", "7", str(os.getpid())]
helper = subprocess.Popen([*words, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, bufsize=1)
for line in helper.stdout:
    if line.startswith("filter "):
        print(filter.install(), file=helper.stdin, flush=True)
    else:
        print(line.rstrip())
print("ready", flush=True)
sys.stdin.readline()
'''
job = '''#!/bin/sh
case "$*" in
"show aliases"*) echo n1 ;;
"show job"*) echo "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:{}(IDX:0)" ;;
*) echo "   Gres=gpu:1,shard:{}" ;;
esac
'''
bin = Path("bin").absolute()
bin.mkdir(exist_ok=True)
os.environ["PATH"] = f"{bin}:" + os.environ["PATH"]
def shards(number, of):
    (bin / "scontrol").write_text(job.format(number, of))
    (bin / "scontrol").chmod(0o755)
class Task:
    def __init__(self, *options):
        self.child = subprocess.Popen([sys.executable, "-c", task, *options], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = [line.rstrip() for line in iter(self.child.stdout.readline, "ready\n")]
    def end(self):
        self.child.communicate("")
def gone():
    until(lambda: not containers(), "the job's end")
def all_of(*nodes):
    return {name: [node(name, one) for one in nodes] for name in containers()}
group = "--group", "chat", "--uid", "65534"
shards(4, 16)
from pycgpu.agent import launch
launch.ensure_agent()
plain = Task()
part = int(node("slurm-7", "memsize"))
late = Task(*group).said
plain.end()
gone()
one, two = Task(*group), Task(*group)
found = all_of("group", "memsize", "quota", "weight")
uid = os.stat(f"/proc/{servers()['server']}").st_uid
other = Task("--group", "code", "--uid", "65534").said
one.end()
stays = "server" in servers()
two.end()
gone()
until(lambda: not [*GROUPS.iterdir()], "its folder's end")
weighted = Task(*group, "--compute", "weight")
weights = all_of("quota", "weight")
weighted.end()
gone()
shards(1, 64)
small = Task(*group).said
print(json.dumps([part, late, one.said, two.said, found, uid, other, stays, weights, small]))
end_agent()
"""
#: Two executors of Spark on a card, whose Java is a shell.
SPARK = r"""
Path("resources").write_text(json.dumps(
    [{"id": {"componentName": "spark.executor", "resourceName": "gpu"}, "addresses": ["0"]}]
))
from pycgpu.agent import launch
launch.ensure_agent()
# An executor's own environment is all that it asks for.
asked = {key: value for key, value in os.environ.items() if not key.startswith("CGPU_")}
asked |= {"CGPU_MEM": "1GiB", "CGPU_QUOTA": "30", "CGPU_GROUP": "etl"}
show = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; read line; :"
executors = [
    subprocess.Popen(
        [*CGPU, "spark-java", "--java", "/bin/sh", "--", "-c", show, "x",
         "--resourcesFile", "resources", "--app-id", "app", "--executor-id", str(number)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=asked,
    )
    for number in (1, 2)
]
said = [one.stdout.readline().split() for one in executors]
found = {name: node(name, "group") for name in containers()}
for one in executors:
    one.communicate("\\n")
until(lambda: not servers() and not containers(), "the end")
print(json.dumps([said, found]))
end_agent()
"""
#: As Ray's workers do: processes that are there already.
ATTACHED = """
script = '''
import os, sys
from pycgpu.batch import ray
os.environ["PYCGPU_GROUP"] = "g"
os.environ["PYCGPU_ATTACH"] = f"{sys.executable} -m pycgpu.cli.main attach"
ray.join((("0", 0.25),))
print(os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.listdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"]))
print("ready", flush=True)
sys.stdin.readline()
'''
workers = [
    subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for _ in range(2)
]
said = []
for one in workers:
    said.append(one.stdout.readline().strip())
    one.stdout.readline()
found = sorted(node(name, "group") for name in containers())
names = [f"ray-{one.pid}" in containers() for one in workers]
for one in workers:
    one.communicate("\\n")
until(lambda: not servers() and not containers(), "the end")
print(json.dumps([said, found, names]))
end_agent()
"""


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """``beside(program)``: what it said last, as JSON, beside the agent with the driver."""
    if not pretended_agent.can_run():
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("group")
    pretended_agent.build(folder)
    source = pretended_agent.PARTS / "mps_control.c"
    # A user's processes execute it, too, and pytest keeps its own folders from them.
    with tempfile.TemporaryDirectory() as where:
        os.chmod(where, 0o755)
        built = f"{where}/nvidia-cuda-mps-control"
        subprocess.run(["cc", "-O1", source, "-o", built], check=True, timeout=120)

        def run(program: str, *arguments: str) -> Any:
            text = f"MPS = {where!r}\n{HEAD}{program}"
            return json.loads(pretended_agent.run(folder, text, *arguments).splitlines()[-1])

        yield run


def test_its_server_starts_with_the_first_member_and_ends_with_the_last(
    beside: Callable[..., Any],
) -> None:
    found, first, same, stays, again = beside(LIFE)
    assert found == {"g": "g", "one": "g", "two": "g"}
    assert first == ["daemon", "keepers", "server"]
    assert same and stays
    assert again == ["again", "g"]


def test_nobody_can_give_its_daemon_orders(beside: Callable[..., Any]) -> None:
    refused = "Not enough privilege to execute quit command"
    assert beside(ORDERS) == [["control", refused], refused, True]


def test_its_server_is_its_users_and_sees_no_users_files(beside: Callable[..., Any]) -> None:
    said, uids, seen, places, reached = beside(USER)
    assert said == ["65534", "Not enough privilege to execute quit command"]
    assert uids == ["65534"] * 4
    assert seen == [[], ["cgpu"]]
    # What is in the directory only root changes, and who connects is the kernel's to say.
    assert places == [[0, "0o40755"], [65534, "0o140600"]]
    assert reached == [[], ["PermissionError: [Errno 13] Permission denied"]]


def test_advice_knows_whose_a_group_and_a_program_beside_it_are(
    beside: Callable[..., Any],
) -> None:
    found, status, lines, errors = beside(ADVISED)
    # A member has its group's compute, and is nothing that contends.
    assert found == {
        "g": [["user 65534", 65534], True],
        "outside": [["user 0", 0], False],
    }
    assert (status, errors) == (0, "")
    assert lines[0].startswith("GPU 0: nothing to advise after 1 s: ")
    assert "outside" in lines[0] and "one" not in lines[0].split()


def test_who_may_not_join_is_told_why_and_changes_nothing(beside: Callable[..., Any]) -> None:
    said, containers, folders = beside(REFUSED)
    head = "cgpu: --group g: "
    assert said.pop("same") == 0
    assert said["no group"][0].startswith("cgpu: --group plain: a container of this name exists")
    assert said["user"][0].startswith(head + "it belongs to user 0, and user 65534 asks: ")
    assert said["quotas"][0].startswith("cgpu: quota: one for all cards in a group, ")
    assert said["policy"][0].startswith(head + "--policy 2 asked, and card 0 has 7 weighted-")
    assert said["name"].pop() == "False"
    assert said["name"][0].startswith("cgpu: container id '../outside': write 1 to 64 letters")
    assert "999" in said["room"][0] or "card" in said["room"][0]
    assert said["no program"][0].startswith("cgpu: a group needs nvidia-cuda-mps-control, and")
    assert all(len(one) == 2 and one[1] == "125" and "\n" not in one[0] for one in said.values())
    assert containers == ["g", "one", "plain"]
    assert folders == ["g"]


def test_each_member_has_its_part_of_the_threads_and_the_group_the_sum_of_weights(
    beside: Callable[..., Any],
) -> None:
    parked, found, quota, weight, row, admitted, less, by_hand, last = beside(SHARES)
    parts, *said = found
    one, three = ["1", "25"], ["1", "0"]
    assert parts == {"g": ["5", "0"], "one": one, "two": ["3", "40"], "three": three}
    assert said == [["25"], ["40"], [""]]
    assert quota[0] == 1 and "quota of one stays 25: MPS gives a member its threads" in quota[1]
    assert quota[1].endswith("cgpu set g --quota")
    assert weight[0] == 1 and weight[1].endswith("for all: cgpu set g --weight")
    assert row["one"] == [1, 25, "g"] and row["g"] == [5, None, "g"]
    why = "is in a group, and what MPS serves cannot be parked"
    assert parked == [[1, f"cgpu: {name} {why}"] for name in ("one", "g")]
    assert admitted == [0, ""], "what members have of threads is nothing of the card's"
    assert less == {"g": ["2", "0"], "one": one, "three": three}
    assert by_hand == 0
    assert last == {"g": ["5", "60"], "one": one}


def test_a_member_of_less_priority_than_its_group_is_after_the_others(
    beside: Callable[..., Any],
) -> None:
    first, rest, labels = beside(GIVEN)
    way = {f"CUDA_MPS_{what}_DIRECTORY": "/run/cgpu/groups/g/pipe" for what in ("PIPE", "LOG")}
    own = {**way, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
    assert first == own, "the group is to have what its first member asks for"
    assert rest == [own, {**own, "CUDA_MPS_CLIENT_PRIORITY": "1"}, own]
    assert labels == ["system_u:object_r:container_file_t:s0\0"] * 2


def test_programs_that_their_server_leaves_are_told_so_and_ended(
    beside: Callable[..., Any],
) -> None:
    held, found, took, alive, pid, lines = beside(LOST)
    line = "cgpu: g: the MPS server of this group has ended, and this program with it: start it"
    assert all(held)
    assert found == [[-9, f"{line} again\n"], [-9, ""]]
    assert 5 <= took < 15
    assert alive == [None, None]
    came = {f"create id={name} group=g" for name in ("g", "one", "quiet", "idle")}
    assert set(lines[:5]) == came | {f"server_started id=g group=g pid={pid}"}
    assert lines[0] == "create id=g group=g" and lines[5] == "create id=outside"
    lost = [f"server_{what} group=g pid={pid}" for what in ("died id=g", "lost id=one")]
    assert lines[6:9] == [*lost, lost[1].replace("one", "quiet")]
    killed = [line.split(" pid=")[0] for line in lines if line.startswith("killed")]
    assert sorted(killed) == ["killed id=one group=g", "killed id=quiet group=g"]
    assert sum(line.endswith(" its MPS server has ended") for line in lines) == 2
    assert lines[-1] == "destroy id=g group=g"
    assert {f"destroy id={name} group=g" for name in ("one", "quiet", "idle")} < set(lines[9:])


def test_a_member_that_means_ill_reaches_its_own_users_programs_at_most(
    beside: Callable[..., Any],
) -> None:
    said, limits, same, root, own, precious = beside(ILL)
    assert said == [
        "control",
        "kept",
        "named",
        "mode",
        "link",
        "log",
        "owner",
        "keeper",
        "keeper",
        "apart",
        *["limit"] * 3,
    ]
    assert limits == own == [str(512 << 20), str(1 << 30)]
    assert same and root == ["limit"] * 2
    assert precious == ["/run/precious/file"], "a group's end follows no link"


def test_a_members_many_clients_do_not_fill_the_hosts_run(beside: Callable[..., Any]) -> None:
    size, again = beside(CHATTER)
    assert size < 1 << 20
    assert again == []


def test_whose_program_ended_just_before_the_server_is_told(beside: Callable[..., Any]) -> None:
    found, pid, lines = beside(AFTER)
    line = "cgpu: g: the MPS server of this group has ended, just after a program of two, and this"
    assert found == [-9, f"{line} program with it: start it again\n"]
    assert lines[:2] == [
        f"server_died id=g group=g pid={pid} after=two",
        f"server_lost id=one group=g pid={pid} after=two",
    ]
    assert len(lines) == 3 and lines[2].startswith("killed id=one group=g pid=")


def test_whoever_comes_as_the_last_leaves_finds_a_server(
    beside: Callable[..., Any],
) -> None:
    said = beside(RACE, "24")
    assert said == [["Not enough privilege to execute quit command"]] * 24


def test_a_server_that_ended_is_told_of_and_another_starts_after_its_members(
    beside: Callable[..., Any],
) -> None:
    late, after = beside(DEATH)
    assert late[0].startswith("cgpu: --group g: its MPS server has ended, and one must end before")
    assert after == []


def test_nobody_notices_that_who_keeps_the_server_is_killed(beside: Callable[..., Any]) -> None:
    same, two, log, keepers, stays, lost, pid, lines = beside(KEPT)
    assert same == [{"daemon": True, "server": True}] * 4
    assert two == [] and stays is None
    found = [line for line in log if line.startswith("cgpu: g: the ")]
    assert [line.split(" of this group")[0] for line in found] == [
        "cgpu: g: the keeper",
        "cgpu: g: the guard",
    ] * 2
    assert keepers == 6, "each is another process"
    line = "cgpu: g: the MPS server of this group has ended, and this program with it: start it"
    assert lost == [-9, f"{line} again\n"]
    assert lines == [
        f"server_started id=g group=g pid={pid}",
        f"server_died id=g group=g pid={pid}",
        f"server_lost id=one group=g pid={pid}",
    ]


def test_a_group_outlives_its_agent(beside: Callable[..., Any]) -> None:
    found, said = beside(SUCCESSOR)
    assert found == {"g": "g", "one": "g", "two": "g"}
    assert said == []


def test_a_slurm_jobs_tasks_are_served_together_within_its_shards(
    beside: Callable[..., Any],
) -> None:
    part, late, one, two, found, uid, other, stays, weights, small = beside(SLURM)
    head = "error group slurm-7.chat: "
    there = "slurm-7 is there already, in"
    assert late == [f"{head}{there} no group: name one for all of it"]
    where = "/run/cgpu/groups/slurm-7.chat/pipe"
    variables = [f"env CUDA_MPS_{what}_DIRECTORY={where}" for what in ("PIPE", "LOG")]
    assert one == two == [*variables, "ok"]
    server = 512 << 20
    assert found == {
        "slurm-7.chat": ["slurm-7.chat", str(server), "25", "1"],
        "slurm-7": ["slurm-7.chat", str(part - server), "0", "1"],
    }
    assert uid == 65534 and stays
    assert other == [
        f"error group slurm-7.code: {there} the group slurm-7.chat: name one for all of it"
    ]
    assert weights == {"slurm-7.chat": ["0", "4"], "slurm-7": ["0", "4"]}
    (refused,) = small
    assert refused.startswith(head) and refused.endswith("; 512 MiB are its server's")


def test_executors_of_spark_share_their_cards_group(beside: Callable[..., Any]) -> None:
    said, found = beside(SPARK)
    assert said == [["/run/cgpu/groups/etl-0/pipe", "30"]] * 2
    assert found == dict.fromkeys(("etl-0", "spark-app-1", "spark-app-2"), "etl-0")


def test_processes_that_are_there_already_join_it(beside: Callable[..., Any]) -> None:
    said, found, names = beside(ATTACHED)
    assert said == ["/run/cgpu/groups/g-0/pipe ['control']"] * 2
    assert found == ["g-0"] * 3
    assert names == [True, True]
