# SPDX-License-Identifier: MIT
"""What a tenant of the user door may try to be rid of its agent, or to keep it from others."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.tree.process import directories
from tests.vm.loaded import SLOWNESS, until
from tests.vm.test_attacks_agent import LIMIT_BYTES, WHO, _used_bytes
from tests.vm.user_door import START_S, TREE, Door, _ended, events

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
]


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What starts a program as an attacker."""
    return WHO[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user gets to."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _line(tenant: subprocess.Popen[str]) -> list[str]:
    """Return the words of the tenant's next line, which it writes before long."""
    assert tenant.stdout is not None
    assert select.select([tenant.stdout], [], [], 60 * SLOWNESS)[0], "it says nothing"
    return tenant.stdout.readline().split()


def _kill_agent(door: Door) -> None:
    pid = door.agent()
    os.kill(pid, signal.SIGKILL)
    until(lambda: _ended(pid), "the agent's end")
    # the next one begins with the next tenant
    door.sim("info", name="next")


def _destroy(door: Door) -> None:
    (TREE / "inst_ctl").write_text("destroy one")
    until(lambda: not (TREE / "container/one").exists(), "the container's end", START_S)


@pytest.mark.parametrize("loses", [_destroy, _kill_agent])
def test_who_has_lost_the_agent_answers_no_calls_of_its_own(
    door: Door,
    made: Callable[[str], Path],
    who: tuple[str, ...],
    folder: Path,
    loses: Callable[[Door], None],
) -> None:
    """With a listener of its own it had the whole card, 15109 MiB at a limit of 1024."""
    hold = folder / "hold"
    hold.touch()
    usurp = str(made("programs") / "usurp")
    before = _used_bytes(door)
    tenant = door.start(*who, usurp, str(hold), door.simcuda, "--hold", "--json", "fill")
    comm = Path(f"/proc/{tenant.pid}/comm")
    until(lambda: comm.read_text() == "usurp\n", "the program", START_S)
    loses(door)
    hold.unlink()
    assert _line(tenant) == ["listener", str(errno.EBUSY)]
    _line(tenant)
    assert _used_bytes(door) - before <= LIMIT_BYTES
    tenant.kill()
    tenant.wait()


def _waits(pid: int) -> bool:
    """Tell whether a thread of a process waits for the server of a FUSE file system."""
    for wait in (one / "wchan" for one in directories(Path(f"/proc/{pid}/task"))):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if wait.read_text() == "request_wait_answer":
                return True
    return False


@pytest.fixture
def silent(door: Door, made: Callable[[str], Path]) -> str:
    """The program with a file system that does not answer, of which /dev/fuse is everybody's."""
    # the agent loads what file systems need
    door.sim("info", name="first")
    Path("/dev/fuse").chmod(0o666)
    return str(made("programs") / "silent")


#: What of the driver's is asked of a file that is another's, and what becomes of it.
ASKED = {"ioctl": [str(errno.ENOTTY)] * 6, "mmap": ["0"] * 6}


@pytest.mark.parametrize("way", ASKED)
def test_a_tenants_file_system_holds_no_thread_of_the_agents(
    door: Door, silent: str, who: tuple[str, ...], folder: Path, way: str
) -> None:
    """Its files ask it when they are closed; four such calls, and nobody answered it any more."""
    tenant = door.start(*who, silent, way, str(folder))
    assert _line(tenant) == [*ASKED[way], "asked", "0"]
    assert not _waits(door.agent())
    assert door.sim("info", name="neighbour")["board"] == LIMIT_BYTES
    tenant.kill()
    tenant.wait()


@pytest.mark.parametrize("way", ASKED)
def test_a_file_system_that_tells_of_no_file_holds_no_thread_of_the_agents(
    door: Door, silent: str, who: tuple[str, ...], folder: Path, way: str
) -> None:
    """One that lets the host's root ask."""
    server = subprocess.Popen([silent, "serve", folder])
    try:
        until(folder.is_mount, "the file system", START_S)
        tenant = door.start(*who, silent, way, str(folder), "there")
        assert _line(tenant) == [*ASKED[way], "asked", "0"]
        assert not _waits(door.agent())
        assert door.sim("info", name="neighbour")["board"] == LIMIT_BYTES
    finally:
        # until then whoever has its files open does not end
        server.kill()
        server.wait()
        subprocess.run(["umount", "--lazy", folder], check=False)
    tenant.kill()
    tenant.wait()


@pytest.mark.vm(smp=2)
def test_a_file_that_is_exchanged_for_the_drivers_holds_no_thread_of_the_agents(
    door: Door, silent: str, who: tuple[str, ...], folder: Path
) -> None:
    """Between the agent's look and its duplicate."""
    tenant = door.start(*who, silent, "exchange", str(folder))
    out, err = tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == -signal.SIGKILL, (out, err)
    assert "exchanges descriptors under its calls" in events()
    assert not _waits(door.agent())
    assert door.sim("info", name="neighbour")["board"] == LIMIT_BYTES


@pytest.mark.parametrize("who", ["docker"], indirect=True)
def test_an_agent_begins_after_one_that_waits_for_a_tenants_memory(
    door: Door, silent: str, who: tuple[str, ...], folder: Path
) -> None:
    """
    In a file of its own file system. That wait no signal ends, so that the process stays.

    FUSE asks nothing for a user whom the file system's namespace does not know: of an ordinary
    user's, which does not know the agent's, there is nothing to wait for.
    """
    tenant = door.start(*who, silent, "memory", str(folder))
    until(lambda: _waits(door.agent()), "the agent's wait", START_S)
    assert door.sim("info", name="neighbour")["board"] == LIMIT_BYTES
    _kill_agent(door)
    assert door.sim("info", name="after")["board"] == LIMIT_BYTES
    tenant.kill()
    tenant.wait()


def test_an_agent_begins_after_one_that_a_tenants_file_system_was_shown(
    door: Door, silent: str, who: tuple[str, ...], folder: Path
) -> None:
    """Threads that no signal ends kept what the agent had open, its lock and all listeners."""
    tenant = door.start(*who, silent, "ioctl", str(folder))
    _line(tenant)
    _kill_agent(door)
    assert door.sim("info", name="neighbour")["board"] == LIMIT_BYTES
    tenant.kill()
    tenant.wait()
