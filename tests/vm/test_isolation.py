# SPDX-License-Identifier: MIT
"""A container is held to its share of a card's memory, whatever it runs (simulated driver)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import procfs
from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until

pytestmark = [pytest.mark.needs("programs"), pytest.mark.kernel("6.1", by_default=True)]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
# What `simcuda` prints for NV_ERR_NO_MEMORY (0x51) and NV_ERR_INSUFFICIENT_PERMISSIONS (0x1b).
REFUSED = "status 81\n"
FORBIDDEN = "status 27\n"


class Host:
    """A host with one simulated T4, the module, and containers on it."""

    def __init__(self, driver: Sim, cgpu: Km, container: Callable[..., Container], programs: Path):
        self.driver = driver
        self.cgpu = cgpu
        self.programs = {
            "/bin/simcuda": driver.programs / "simcuda",
            "/bin/simcuda32": driver.programs / "simcuda32",
            "/bin/attack": programs / "attack",
        }
        self._container = container

    def tenant(self, id: str = "one", mem: int | str = LIMIT_BYTES, **options: Any) -> Container:
        """A container that may use *mem* bytes of card 0."""
        extra = options.pop("extra", "")
        started = self._container(id, programs=self.programs, **options)
        self.cgpu.create(id, f"pid={started.pid}", f"gpu=0,mem={mem}{extra}")
        return started

    def simcuda(self, *arguments: str) -> dict[str, Any]:
        """What a process of the host gets."""
        run = subprocess.run(
            [self.driver.programs / "simcuda", "--json", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return told

    def driver_used_bytes(self) -> int:
        """Video memory that the driver itself counts as taken."""
        before = self.simcuda("info")
        return int(before["total"]) - int(before["free"])

    def recent_events(self) -> list[str]:
        """The lines that `events` still has."""
        descriptor = procfs.open_events(str(self.cgpu.root))
        try:
            return procfs.new_events(descriptor)
        finally:
            os.close(descriptor)

    def charged_bytes(self, id: str = "one") -> int:
        """What the ledger says."""
        lines = self.cgpu.read(f"0/{id}/stat").splitlines()
        return int(dict(line.split() for line in lines)["current_bytes"])


@pytest.fixture
def host(sim: Any, km: Any, container: Any, made: Any) -> Host:
    driver = sim(model="t4")
    return Host(driver, km(), container, made("programs"))


def say(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object that a `simcuda --json` printed last."""
    told: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return told


@pytest.mark.kernel(by_default=True)
def test_every_answer_about_memory_shows_the_container_s_card(host: Host) -> None:
    one = host.tenant()
    inside = say(one.exec("simcuda", "--json", "query"))
    outside = host.simcuda("query")
    for key, value in inside.items():
        if "total" in key or "limit" in key:
            assert value <= LIMIT_BYTES, (key, value)
            assert outside[key] > LIMIT_BYTES, (key, outside[key])
    info = say(one.exec("simcuda", "--json", "info"))
    assert info["total"] == LIMIT_BYTES
    assert info["free"] <= LIMIT_BYTES


@pytest.mark.parametrize(
    "form",
    [
        ["simcuda"],
        ["simcuda", "--old-alloc"],
        ["simcuda", "--xfer"],
        ["simcuda", "--heap", "2"],
        ["simcuda", "--heap", "6"],
        ["simcuda32"],
        ["simcuda32", "--xfer", "--heap", "2"],
    ],
    ids=" ".join,
)
def test_no_form_of_allocation_exceeds_the_limit(host: Host, form: list[str]) -> None:
    one = host.tenant()
    filled = say(one.exec(*form, "--json", "fill"))
    assert LIMIT_BYTES - MIB < filled["bytes"] <= LIMIT_BYTES
    assert filled["status"] == 0x51
    oom = [line for line in host.recent_events() if " oom " in line]
    assert oom and all(" oom id=one gpu=0 pid=" in line for line in oom), oom[:3]
    until(lambda: host.charged_bytes() == 0, "the charge of an ended program")


def test_memory_between_two_addresses_is_not_to_be_had(host: Host) -> None:
    """VID_HEAP_CONTROL's ALLOC_SIZE_RANGE."""
    run = host.tenant().exec("simcuda", "--heap", "14", "--json", "fill", check=False)
    filled = json.loads(run.stdout)
    assert (filled["bytes"], filled["status"]) == (0, 0x56)


def test_the_neighbour_and_the_host_keep_what_is_theirs(host: Host) -> None:
    one, two = host.tenant("one"), host.tenant("two", 2 * LIMIT_BYTES)
    holder = one.popen("simcuda", "--json", "--hold", "fill")
    assert holder.stdout is not None
    assert json.loads(holder.stdout.readline())["bytes"] <= LIMIT_BYTES
    assert say(two.exec("simcuda", "--json", "fill"))["bytes"] > 2 * LIMIT_BYTES - MIB
    assert host.simcuda("fill", "64M")["bytes"] > 10 * LIMIT_BYTES
    one.kill()
    until(lambda: not (host.cgpu.root / "container/one").exists(), "the removal of one")
    assert "one" not in os.listdir(host.cgpu.root / "0")


@pytest.mark.vm(smp=2)
def test_64_racing_threads_together_get_the_limit_and_not_a_byte_more(host: Host) -> None:
    one = host.tenant()
    words = one.exec("attack", "threads", "64", str(MIB)).stdout.split()
    got_bytes, odd = int(words[1]), int(words[3])
    assert got_bytes == LIMIT_BYTES
    assert odd == 0
    assert "oom 64" in host.cgpu.read("0/one/events")


def test_processes_of_one_container_share_its_limit(host: Host) -> None:
    one = host.tenant()
    shared = say(one.exec("simcuda", "--json", "processes", "4", "1M", check=False))
    assert shared["bytes"] <= LIMIT_BYTES


@pytest.mark.parametrize("what", ["map", "export"])
def test_memory_that_lives_on_after_rm_free_stays_charged(host: Host, what: str) -> None:
    """Map (or export), free, repeat: the oldest way around a limit."""
    one = host.tenant()
    run = one.exec("simcuda", what, "100M", "30", check=False)
    assert REFUSED in run.stdout
    peak = dict(line.split() for line in host.cgpu.read("0/one/stat").splitlines())["peak_bytes"]
    assert LIMIT_BYTES - 100 * MIB <= int(peak) <= LIMIT_BYTES
    until(lambda: host.charged_bytes() == 0, "the charge of an ended program")


@pytest.mark.kernel(by_default=True)
@pytest.mark.parametrize("what", ["dup", "import", "dmabuf"])
def test_a_second_life_of_memory_is_charged_once_and_ends(host: Host, what: str) -> None:
    one = host.tenant()
    one.exec("simcuda", what, "100M")
    until(lambda: host.charged_bytes() == 0, f"the charge after {what}")
    peak = dict(line.split() for line in host.cgpu.read("0/one/stat").splitlines())["peak_bytes"]
    assert 100 * MIB <= int(peak) < 200 * MIB


@pytest.mark.kernel(by_default=True)
def test_a_shared_pool_is_charged_once_while_a_place_of_its_descriptor_holds_it(
    host: Host,
) -> None:
    """It grows in a descriptor that another process has; most of its places are empty."""
    one = host.tenant()
    said = say(one.exec("simcuda", "--json", "pool", "100M", "4"))
    assert [said[key] for key in ("taken", "child", "without_one", "after_close")] == [
        *(400 * MIB, 4, 300 * MIB, 0)
    ]
    until(lambda: host.charged_bytes() == 0, "the charge of a pool")
    stat = dict(line.split() for line in host.cgpu.read("0/one/stat").splitlines())
    assert (int(stat["peak_bytes"]), int(stat["refused"])) == (400 * MIB, 0)
    # and is no way around the limit
    said = say(one.exec("simcuda", "--json", "pool", "100M", "30", check=False))
    assert said["taken"] <= LIMIT_BYTES


@pytest.mark.kernel(by_default=True)
def test_managed_memory_is_charged_and_can_be_denied(host: Host) -> None:
    one = host.tenant()
    one.exec("simcuda", "managed", "100M")
    peak = dict(line.split() for line in host.cgpu.read("0/one/stat").splitlines())["peak_bytes"]
    assert int(peak) >= 100 * MIB
    until(lambda: host.charged_bytes() == 0, "the charge of managed memory")
    assert one.exec("simcuda", "managed", "2G", check=False).returncode != 0
    host.cgpu.write("0/one/uvm_disable", "1\n")
    assert one.exec("simcuda", "managed", "1M", check=False).returncode != 0
    host.cgpu.write("0/one/uvm_disable", "0\n")
    one.exec("simcuda", "managed", "1M")
    last = host.recent_events()
    assert any(" refused id=one pid=" in line and "managed bytes=" in line for line in last), last


@pytest.mark.parametrize("what", ["fill", "managed"])
def test_who_asks_for_too_much_is_killed_where_the_container_wants_it(
    host: Host, what: str
) -> None:
    one = host.tenant(extra=",oom_action=kill")
    run = one.exec("simcuda", what, "2G", check=False)
    assert run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), run
    oom = [line for line in host.recent_events() if " oom " in line]
    assert len(oom) == 1 and " oom id=one gpu=0 pid=" in oom[0], oom
    assert int(oom[0].split("bytes=")[1]) >= (1024 if what == "managed" else 1) * MIB
    assert host.cgpu.read("0/one/events").startswith("oom 1\n")


@pytest.mark.parametrize("number", ["3f", "c2", "82", "83"])
def test_classes_that_reach_video_memory_directly_are_refused(host: Host, number: str) -> None:
    one = host.tenant()
    run = one.exec("simcuda", "class", number, check=False)
    assert FORBIDDEN in run.stdout
    assert "refused 1" in host.cgpu.read("0/one/events")


def test_a_live_change_of_memsize_holds_at_once(host: Host) -> None:
    one = host.tenant()
    host.cgpu.write("0/one/memsize", f"{2 * LIMIT_BYTES}\n")
    assert say(one.exec("simcuda", "--json", "info"))["total"] == 2 * LIMIT_BYTES
    assert say(one.exec("simcuda", "--json", "fill"))["bytes"] > 2 * LIMIT_BYTES - MIB


@pytest.mark.vm(smp=2)
@pytest.mark.kernel(by_default=True)
@pytest.mark.parametrize("what", ["flip-size", "flip-class", "flip-pointer"])
def test_rewriting_a_request_while_the_driver_reads_it_gains_nothing(host: Host, what: str) -> None:
    """A second thread changes what is asked between the hook's reading and the driver's."""
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    holder = one.popen("attack", what, str(300 * MIB), environment={"HOLD": "1"})
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith("calls ")
    taken_bytes = host.driver_used_bytes() - idle_bytes
    assert taken_bytes <= LIMIT_BYTES
    assert taken_bytes <= host.charged_bytes()


@pytest.mark.vm(smp=2)
def test_duplicating_what_is_being_freed_gains_nothing(host: Host) -> None:
    one = host.tenant()
    idle_bytes = host.driver_used_bytes()
    holder = one.popen("attack", "race-dup", str(50 * MIB), environment={"HOLD": "1"})
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith("calls ")
    assert host.driver_used_bytes() - idle_bytes <= host.charged_bytes() <= LIMIT_BYTES


@pytest.mark.kernel(by_default=True)
def test_the_memory_that_the_driver_is_handed_is_out_of_reach(host: Host) -> None:
    one = host.tenant()
    words = dict(
        line.rsplit(" ", 1) for line in one.exec("attack", "probe-scratch").stdout.splitlines()
    )
    works = words.pop("works after")
    assert works == "yes"
    assert set(words.values()) == {"no"}, words


@pytest.mark.vm(smp=2)
@pytest.mark.kernel(by_default=True)
def test_nobody_takes_that_memory_away_under_a_call(host: Host) -> None:
    one = host.tenant()
    run = one.exec("attack", "unmap-scratch")
    assert "survived" in run.stdout


@pytest.fixture
def relay_socket(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A listening socket of the host, in a directory that containers may have mounted."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        listener.settimeout(60)
        yield path, listener


@pytest.mark.kernel(by_default=True)
def test_a_control_file_handed_to_another_container_is_of_no_use_there(
    host: Host, relay_socket: tuple[Path, socket.socket]
) -> None:
    """SCM_RIGHTS: the giver stays charged until the last holder closes it."""
    path, listener = relay_socket
    mounts = {"/shared": path.parent}
    one, two = host.tenant("one", mounts=mounts), host.tenant("two", mounts=mounts)
    giver = one.popen("attack", "give-away", "/shared/socket")
    assert giver.stdout is not None
    _, client, _, device = giver.stdout.readline().split()
    connection, _ = listener.accept()
    _, (descriptor,), _, _ = socket.recv_fds(connection, 1, 1)
    assert host.charged_bytes("one") >= 100 * MIB

    taker = two.popen("attack", "take-over", "/shared/socket", client, device)
    assert taker.stdout is not None
    connection, _ = listener.accept()
    socket.send_fds(connection, [b"x"], [descriptor])
    assert taker.stdout.readline() == "ioctl -1 errno 1 status 0\n"
    assert host.charged_bytes("two") == 0

    one.kill()
    # Two processes still have the file open: its memory is not free, and stays charged.
    assert host.charged_bytes("one") >= 100 * MIB
    os.close(descriptor)
    two.kill()
    until(lambda: not os.listdir(host.cgpu.root / "container"), "the removal of both")
    assert "allocated 0" in host.cgpu.read("0/memory")


@pytest.mark.kernel(by_default=True)
def test_a_process_of_the_host_is_not_limited_or_charged(host: Host) -> None:
    host.tenant()
    assert host.simcuda("fill")["bytes"] > 10 * LIMIT_BYTES
    assert host.charged_bytes() == 0
