# SPDX-License-Identifier: MIT
"""
What a tenant of the user door may try against it, as root with Docker's capabilities and as an
ordinary user. Each test ran into its limit's other side before the door was closed there.
"""

from __future__ import annotations

import errno
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pycgpu.agent import server
from tests.vm import user_door
from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "programs"),
    pytest.mark.vm(append="secretmem.enable=1"),
]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
DOCKER = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,"
    "sys_chroot,mknod,audit_write,setfcap"
)
WHO = {
    "docker": ("setpriv", "--bounding-set", "-all,+" + DOCKER.replace(",", ",+"), "--"),
    "user": ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"),
}


@pytest.fixture(scope="module")
def opened(made: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The door over one simulated T4."""
    with user_door.opened(made, tmp_path_factory.mktemp("door")) as door:
        yield door
        door.close()


@pytest.fixture
def door(opened: Door) -> Iterator[Door]:
    """The door without tenants, before and after."""
    yield opened
    opened.end()
    user_door.emptied()


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What starts a program as an attacker."""
    return WHO[request.param]


@pytest.fixture
def unseen(made: Callable[[str], Path]) -> str:
    """The attacker's program."""
    return str(made("programs") / "unseen")


def _used_bytes(door: Door) -> int:
    """Video memory that the driver itself counts as taken."""
    run = subprocess.run(
        [door.simcuda, "--json", "info"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    return int(found["total"]) - int(found["free"])


def _events() -> str:
    with (TREE / "events").open("rb", buffering=0) as stream:
        return stream.read(1 << 16).decode()


def _words(door: Door, *command: str) -> list[str]:
    _, out, err = door.run(*command)
    assert out, err
    return out.split()


@pytest.mark.parametrize("lead", ["0", "64"])
def test_parameters_that_the_agent_cannot_read_take_nothing(
    door: Door, who: tuple[str, ...], unseen: str, lead: str
) -> None:
    granted = _words(door, *who, unseen, "params", lead, str(LIMIT_BYTES))
    assert granted == ["granted", "0", "status", str(-errno.EFAULT)]


def test_controls_that_the_agent_cannot_read_do_nothing(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    found = _words(door, *who, unseen, "control")
    assert found == ["params", str(-errno.EFAULT), "list", str(-errno.EFAULT)]


def test_numbers_of_the_driver_on_other_files_do_not_go_on(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    found = " ".join(_words(door, *who, unseen, "other-files"))
    refused = errno.ENOTTY
    assert found == (f"rm {refused} uvm {refused} uvm on ctl {refused} rm on uvm {refused} other 0")


def test_a_descriptor_that_is_exchanged_takes_no_memory(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    before = _used_bytes(door)
    tenant = door.start("env", "HOLD=1", *who, unseen, "swap-descriptor", str(256 * MIB), "3")
    assert tenant.stdout is not None
    line = tenant.stdout.readline().split()
    assert int(line[3]) <= LIMIT_BYTES // (256 * MIB), line
    assert _used_bytes(door) - before <= LIMIT_BYTES
    tenant.kill()


def _continued() -> int:
    return int(server.ask({"op": "counters"})["counters"]["continued"])


def test_no_control_goes_on_in_memory_that_the_tenant_can_change(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    keeper = door.start("sleep", "60", name="keeper")
    until((TREE / "container/keeper").exists, "the agent", START_S)
    counts = []
    for calls in ("2", "202"):
        before = _continued()
        assert _words(door, *who, unseen, "harmless", calls) == ["calls", calls]
        counts.append(_continued() - before)
    # What a program's start takes, of which mmap of its libraries is most.
    assert abs(counts[1] - counts[0]) < 50, counts
    keeper.kill()


def test_memory_in_the_place_of_a_client_ends_the_container(
    door: Door, who: tuple[str, ...], unseen: str
) -> None:
    before = _used_bytes(door)
    tenant = door.start("env", "HOLD=1", *who, unseen, "swap-class", str(2048 * MIB), "20")
    out, err = tenant.communicate(timeout=START_S)
    assert tenant.returncode == -signal.SIGKILL, (out, err)
    until(lambda: _used_bytes(door) == before, "the memory's return", START_S)
    assert "holds memory that it was not given" in _events()
