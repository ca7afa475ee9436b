# SPDX-License-Identifier: MIT
"""
An agent that ends, however that comes, leaves its tenants to a watchdog, and the next one goes on
for them. The driver is pretended, all else is the programs' own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.host import pretended_agent

HEAD = "from pretended.inside import *\n"
#: Every end, under load; whatever an agent did twice, or left out, the driver or the books show.
ROUNDS = """
held = (16, 48)
tenants = [Tenant(f"t{n}", n, 0xC1D00000 + n) for n in held]
pid = agent()
(TREE / "0/t16/weight").write_text("7")
(TREE / "0/max_inst").write_text("19")
before = books()
for one in tenants:
    one.say()
for turn in range(int(sys.argv[1])):
    time.sleep(0.02 * (turn % 9))
    os.kill(pid, (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)[turn % 3])
    pid = follows(pid)
    # Others are what a program starts with, which it may have by then.
    assert min(tenants_numbers(pid)) >= 64
    now = until(lambda: len(found := books()) >= len(before) and found, "the tree")
    assert now == before, [line for line in before.items() if line[1] != now[line[0]]]
told = []
for one, count in zip(tenants, held):
    one.say()
    told.append(one.told())
    assert one.charged() == taken(0xC1D00000 + count) == count << 20
for one in tenants:
    assert one.end() == 0, told
end_agent()
until(lambda: not watchdog(), "the watchdog's end")
print(json.dumps(told))
"""
#: Nobody comes: calls wait, then fail, and when somebody comes they succeed.
PATIENCE = """
service = serve("--wait", "2")
one = Tenant("one", 4, 0xC1D00001)
one.say()
time.sleep(0.2)
service.kill()
service.wait()
time.sleep(3)
one.say()
told = one.told()
first = watchdog()
service = serve()
assert first and watchdog() not in (0, first)
assert agent() == service.pid
assert one.charged() == taken(0xC1D00001) >= 4 << 20
assert one.child.poll() is None
print(json.dumps(told))
one.child.kill()
end_agent()
"""
#: An agent of another version says so, and the one that fits goes on.
VERSION = """
service = serve("--wait", "100")
one = Tenant("one", 4, 0xC1D00001)
service.kill()
service.wait()
other = serve("--hold-gates", "0", *sys.argv[1:])
print(json.dumps([other.returncode, other.stderr.read() if other.returncode else ""]))
service = serve()
assert one.charged() == 4 << 20
one.say()
one.say()
assert one.told()["failed"] == 0 and one.end() == 0
end_agent()
"""
#: It is killed itself; and later told to end.
WATCHDOG = """
service = serve()
one = Tenant("one", 4, 0xC1D00001)
first = watchdog()
os.kill(first, signal.SIGKILL)
until(lambda: watchdog() not in (0, first), "another watchdog")
service.kill()
service.wait()
service = serve()
one.say()
one.say()
assert one.told()["failed"] == 0
service.kill()
service.wait()
end = [sys.executable, "-m", "pycgpu.cli.main", "agent", "--end-watchdog"]
assert subprocess.run(end).returncode == 0
until(lambda: not watchdog(), "its end")
again = subprocess.run(end, stderr=subprocess.PIPE, text=True)
print(json.dumps([again.returncode, again.stderr, one.end()]))
"""
#: A thread of it reads a tenant's memory, which lies in a file system that does not answer.
SILENT = """
one = Tenant("one", 4, 0xC1D00001)
os.makedirs("files", exist_ok=True)
command = [sys.executable, "-m", "pycgpu.cli.main", "run", "--name", "silent", "--mem", "1G"]
silent = subprocess.Popen([*command, "--", "./silent", "memory", "files"])
pid = agent()
tasks, waits = Path(f"/proc/{pid}/task"), "request_wait_answer"
until(lambda: waits in [(one / "wchan").read_text() for one in directories(tasks)], "the wait")
one.say()
os.kill(pid, signal.SIGKILL)
follows(pid)
one.say()
told = one.told()
assert Path(f"/proc/{pid}/stat").exists(), "nobody waited"
silent.kill()
print(json.dumps([told, one.end()]))
end_agent()
"""


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``beside(program)``: what it said last, as JSON, beside the agent with the driver."""
    if not pretended_agent.can_run():
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("pretended")
    pretended_agent.build(folder)

    def run(program: str, *arguments: str) -> Any:
        return json.loads(pretended_agent.run(folder, HEAD + program, *arguments).splitlines()[-1])

    return run


def test_agents_end_at_any_instruction_and_no_call_is_lost_or_done_twice(
    beside: Callable[..., Any], pytestconfig: pytest.Config
) -> None:
    told = beside(ROUNDS, str(3 * pytestconfig.getoption("--upgrades")))
    print(told)
    for one in told:
        assert (one["failed"], one["first"]) == (0, "")
        assert one["turns"]


def test_calls_wait_for_an_agent_then_fail_and_nobody_is_free(beside: Callable[..., Any]) -> None:
    told = beside(PATIENCE)
    # EPERM, and not ENOSYS, which the kernel says when a listener is closed.
    assert told["failed"] and "errno 1," in told["first"]
    assert told["longest_ns"] > 1_000_000_000


def test_an_agent_goes_on_for_one_that_a_tenants_file_system_keeps_from_ending(
    beside: Callable[..., Any],
) -> None:
    """No signal ends such a wait: the process, and what it has open, stay."""
    told, status = beside(SILENT)
    print(told)
    assert (told["failed"], status) == (0, 0)
    assert told["longest_ns"] < 10_000_000_000


def test_the_watchdog_is_replaced_when_killed_and_ends_when_told(
    beside: Callable[..., Any],
) -> None:
    status, error, tenant = beside(WATCHDOG)
    assert (status, error) == (1, "cgpu: no watchdog runs, so no tenants wait for an agent\n")
    # It frees what it holds, and its calls fail.
    assert tenant == 1
