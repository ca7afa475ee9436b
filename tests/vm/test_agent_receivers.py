# SPDX-License-Identifier: MIT
"""
The driver's files in the hands of who is under no filter: a tenant sends them over an abstract
socket. Nobody keeps what is had so, and who opened the card itself is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm import customer, user_door
from tests.vm.container import Container, nvidia_nodes
from tests.vm.loaded import SLOWNESS, until
from tests.vm.user_door import START_S, TREE, Door, events

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "smi", "rootfs", "programs"),
    pytest.mark.vm(append="apparmor=0", memory="3G"),
]

USER = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--")
#: The driver's list is read once a second, descriptors of all processes every five.
LIST_S, WALK_S = 1.0, 5.0


@pytest.fixture(scope="module")
def opened(made: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The door over one simulated T4, with the agent as the service starts it."""
    with user_door.opened(made, tmp_path_factory.mktemp("door")) as door:
        daemon = door.daemon()
        try:
            until((TREE / "api_version").exists, "the tree", START_S)
            yield door
        finally:
            daemon.terminate()
            assert daemon.wait(timeout=START_S) == 0


@pytest.fixture
def door(opened: Door) -> Iterator[Door]:
    """The door without containers, before and after."""
    yield opened
    opened.end()
    user_door.emptied()


@pytest.fixture
def smuggle(made: Callable[[str], Path]) -> Path:
    """The attackers' program."""
    return made("programs") / "smuggle"


class Pod:
    """A container with a part of the card, and one without in the same network namespace."""

    def __init__(self, made: Callable[[str], Path], smuggle: Path) -> None:
        mounts = {"/bin/smuggle": smuggle}
        self.tenant = customer.prepare(
            made, "tenant", {"CGPU_MEM": "1GiB", "CGPU_GPU": "0"}, mounts
        ).start()
        self.beside = Container(made("rootfs"), "beside", nodes=(), mounts=mounts)
        #: as that, and started by our runtime, as all containers of a pod with its RuntimeClass
        self.sidecar = customer.RuntimeContainer(made("rootfs"), "sidecar", nodes=(), mounts=mounts)
        self._join(self.beside)
        self._join(self.sidecar)

    def _join(self, container: Container) -> None:
        path = container.bundle / "config.json"
        config = json.loads(path.read_text())
        for namespace in config["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = f"/proc/{self.tenant.pid}/ns/net"
        path.write_text(json.dumps(config))
        container.start()

    def end(self) -> None:
        self.sidecar.delete()
        self.beside.delete()
        self.tenant.delete()


@pytest.fixture
def pod(door: Door, made: Callable[[str], Path], smuggle: Path) -> Iterator[Pod]:
    with customer.running(made):
        pod = Pod(made, smuggle)
        try:
            yield pod
        finally:
            pod.end()


def _free_bytes(door: Door) -> int:
    """Video memory that the driver itself has left."""
    told = subprocess.run(
        [door.simcuda, "--json", "info"], capture_output=True, text=True, check=True
    )
    return int(json.loads(told.stdout.splitlines()[-1])["free"])


def _outcome(taker: subprocess.Popen[str], begun_s: float) -> tuple[int, float]:
    """Bytes that it said it had, and after how long it ended."""
    assert taker.stdout
    lines = taker.stdout.read().splitlines()
    taker.wait(timeout=START_S * SLOWNESS)
    taken = [int(line.split()[1]) for line in lines if line.startswith("taken")]
    return max(taken, default=0), time.monotonic() - begun_s


def _waits(taker: subprocess.Popen[str]) -> None:
    assert taker.stdout
    assert taker.stdout.readline() == "waits\n"


@pytest.mark.parametrize("how", ["close", "use", "leave"])
def test_a_container_without_a_card_keeps_none_that_it_was_sent(
    pod: Pod, door: Door, how: str
) -> None:
    """Whatever the sender does with its own, and whosever client it is."""
    before = _free_bytes(door)
    taker = pod.beside.popen("smuggle", "take", "x")
    _waits(taker)
    begun_s = time.monotonic()
    sender = pod.tenant.popen("smuggle", "open", "x", how)
    taken, seconds = _outcome(taker, begun_s)
    print(f"{how}: {taken >> 20} MiB for {seconds:.1f} s")
    until(lambda: not pod.tenant.alive(), "the end of the container that sent it", START_S)
    sender.wait(timeout=START_S)
    until(lambda: _free_bytes(door) == before, "the memory's return", START_S)
    assert "killed id=tenant receiver=" in events()
    # the one without a card had but that program to lose
    assert pod.beside.state()["status"] == "running"


def test_a_pods_containers_without_a_card_get_nothing_by_its_files(pod: Pod) -> None:
    """Their own filter refuses, and what else they ask of files it does not."""
    taker = pod.sidecar.popen("smuggle", "take", "x")
    _waits(taker)
    sender = pod.tenant.popen("smuggle", "open", "x", "close")
    taken, _ = _outcome(taker, time.monotonic())
    assert (taken, taker.returncode) == (0, 2)
    sender.kill()
    assert pod.sidecar.exec("sh", "-c", "stty -a < /dev/null; echo lives").stdout.endswith(
        "lives\n"
    )


@pytest.mark.parametrize("how", ["keep", "use"])
def test_a_program_of_the_same_user_keeps_no_card_that_a_tenant_sent_it(
    door: Door, smuggle: Path, how: str
) -> None:
    """Where the agent knows the file: the tenant has it still, or made a call on it."""
    before = _free_bytes(door)
    taker = subprocess.Popen(
        [*USER, str(smuggle), "take", "x"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _waits(taker)
    begun_s = time.monotonic()
    tenant = door.start(*USER, str(smuggle), "open", "x", how, name="sender")
    taken, seconds = _outcome(taker, begun_s)
    assert taker.returncode == -signal.SIGKILL
    print(f"{how}: {taken >> 20} MiB for {seconds:.1f} s")
    tenant.communicate(timeout=START_S * SLOWNESS)
    assert tenant.returncode == -signal.SIGKILL
    until(lambda: _free_bytes(door) == before, "the memory's return", START_S)
    assert f"killed id=sender receiver={taker.pid}" in events()


def test_a_user_who_may_not_open_the_card_keeps_none_that_it_was_sent(
    door: Door, smuggle: Path
) -> None:
    """Nodes of a group that only the tenants' account is in: what the agent's page advises."""
    nodes = [Path("/dev") / name for name in ("nvidiactl", "nvidia0", "nvidia-uvm")]
    account = ("setpriv", "--reuid=1001", "--regid=2001", "--clear-groups", "--")
    for node in nodes:
        os.chown(node, 0, 2001)
        node.chmod(0o660)
    try:
        before = _free_bytes(door)
        taker = subprocess.Popen(
            [*USER, str(smuggle), "take", "x"], stdout=subprocess.PIPE, text=True
        )
        _waits(taker)
        door.start(*account, str(smuggle), "open", "x", "close", name="sender")
        taken, seconds = _outcome(taker, time.monotonic())
        assert taker.returncode == -signal.SIGKILL
        print(f"{taken >> 20} MiB for {seconds:.1f} s")
        until(lambda: _free_bytes(door) == before, "the memory's return", START_S)
    finally:
        for node in nodes:
            os.chown(node, 0, 0)
            node.chmod(0o666)


def _has_card(pid: int) -> bool:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(fd) == "/dev/nvidia0":
                return True
    return False


def _began_with_leave(
    door: Door, made: Callable[[str], Path], denied: Container
) -> tuple[Container, subprocess.Popen[str]]:
    """
    A program in a container whose nodes NVIDIA's runtime mounted, without the leave to open them.

    It had that when it began; systemd takes it away where it is reloaded, and was not told of it.
    """
    one = Container(
        made("rootfs"),
        "mounted",
        nodes=(),
        programs={"/bin/simcuda": Path(door.simcuda)},
        mounts={str(path): path for path in nvidia_nodes()},
    )
    path = one.bundle / "config.json"
    config = json.loads(path.read_text())
    config["linux"]["resources"]["devices"].append({"allow": True, "access": "rwm"})
    path.write_text(json.dumps(config))
    one.start()
    program = one.popen("simcuda", "--hold", "alloc", "64M")
    procs = Path(f"/sys/fs/cgroup{one.cgroup}/cgroup.procs")
    until(lambda: len(procs.read_text().split()) == 2, "the program", START_S)
    pid = max(int(word) for word in procs.read_text().split())
    until(lambda: _has_card(pid), "its card", START_S)
    Path(f"/sys/fs/cgroup{denied.cgroup}/cgroup.procs").write_text(str(pid))
    return one, program


def test_who_opened_the_card_itself_is_left_alone(
    door: Door, made: Callable[[str], Path], container: Callable[..., Container]
) -> None:
    """Beside tenants: a user's program, root's and a container's with all nodes; and children."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        simcuda = str(shutil.copy(door.simcuda, folder))
        _see_who_is_left_alone(door, made, container, simcuda)


def _see_who_is_left_alone(
    door: Door,
    made: Callable[[str], Path],
    container: Callable[..., Container],
    simcuda: str,
) -> None:
    holding = (simcuda, "--hold", "alloc", "64M")
    whole = container(programs={"/bin/simcuda": Path(door.simcuda)})
    mounted, without_leave = _began_with_leave(door, made, container(nodes=()))
    inside = whole.popen("simcuda", "--hold", "alloc", "64M")
    others = [subprocess.Popen([*prefix, *holding]) for prefix in ((), USER)]
    tenant = door.start(door.simcuda, "--hold", "alloc", "64M")
    memory = TREE / "0/one/meminfo"
    until(lambda: memory.exists() and "PID" in memory.read_text(), "the tenant's memory", START_S)
    # a child that has the files and makes no call
    unseen = str(made("programs") / "unseen")
    heir = door.start("env", "HEIR=1", "HOLD=1", *USER, unseen, "harmless", "2", name="heir")
    children = Path(f"/proc/{heir.pid}/task/{heir.pid}/children")
    child = int(until(lambda: children.read_text().split(), "the child", START_S)[0])
    everybody: tuple[subprocess.Popen[Any], ...] = (heir, tenant, inside, without_leave, *others)
    deadline = time.monotonic() + 3 * WALK_S
    while time.monotonic() < deadline:
        assert [one.poll() for one in everybody] == [None] * len(everybody)
        assert Path(f"/proc/{child}").exists()
        time.sleep(0.2)
    assert "receiver=" not in events().rpartition("create id=one")[2]
    os.kill(child, signal.SIGKILL)
    mounted.delete()
    for one in everybody:
        one.kill()
        one.wait()
