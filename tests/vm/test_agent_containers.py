# SPDX-License-Identifier: MIT
"""
Containers whose only door is the agent's: runc, podman and docker with the registered runtime.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pycgpu.install import registration
from tests.vm import customer, engines, mps, user_door
from tests.vm.container import as_volumes, with_libraries
from tests.vm.loaded import until
from tests.vm.user_door import START_S, TREE, Door

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("sim", "smi", "rootfs", "programs"),
    pytest.mark.vm(append="apparmor=0", memory="3G"),
]

MIB = 1 << 20
LIMIT_BYTES = 1024 * MIB
NO_MEMORY = 0x51
IMAGE = "localhost/cgpu-test:latest"


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
    user_door.emptied()


@pytest.fixture
def run(door: Door, made: Callable[[str], Path]) -> Iterator[customer.Run]:
    """``run("name", KEY=…)`` starts a container under runc, with the agent as the only door."""
    with customer.running(made) as start:
        yield start


def _volumes(door: Door) -> list[str]:
    return as_volumes(with_libraries("/bin/simcuda", Path(door.simcuda)))


def _info(container: customer.RuntimeContainer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(container.simcuda("--json", "info").stdout)
    return told


def test_containers_are_held_to_their_sizes(run: customer.Run) -> None:
    one = run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
    two = run("two", CGPU_MEM="2GiB", CGPU_GPU="0")
    assert _info(one)["board"] == LIMIT_BYTES
    assert _info(two)["board"] == 2 * LIMIT_BYTES
    assert "0MiB /   1024MiB" in one.smi()
    filled = json.loads(one.simcuda("--json", "fill", check=False).stdout)
    assert filled["status"] == NO_MEMORY
    assert filled["bytes"] <= LIMIT_BYTES
    assert two.simcuda("alloc", "1500M").returncode == 0


def test_every_way_to_look_at_a_card_works_as_on_the_host(
    run: customer.Run, made: Callable[[str], Path]
) -> None:
    one = run("one", CGPU_MEM="1GiB", CGPU_GPU="0")
    for way in customer.SMI_WAYS:
        assert one.looks(way) == customer.looks(made("smi"), way), way


def test_a_container_that_ends_gives_its_share_back(run: customer.Run) -> None:
    one = run("giver", CGPU_MEM="1GiB", CGPU_GPU="0")
    holder = one.popen("simcuda", "--hold", "alloc", "64M")
    until(lambda: "PID" in (TREE / "0/giver/meminfo").read_text(), "the program's memory", START_S)
    one.delete()
    holder.wait(timeout=START_S)
    until(lambda: not (TREE / "container/giver").exists(), "the container's removal", START_S)
    assert "allocated 0" in (TREE / "0/memory").read_text()
    with (TREE / "events").open("rb", buffering=0) as stream:
        lines = [line.split(b" ", 1)[1] for line in stream.read(1 << 16).splitlines()]
    assert b"create id=giver" in lines
    assert b"destroy id=giver" in lines


def test_containers_are_members_of_a_group(
    run: customer.Run, node_policy: Callable[[str], None]
) -> None:
    node_policy('[environment]\nallow = ["group"]\n')
    with mps.control():
        asked = {"CGPU_MEM": "1GiB", "CGPU_GPU": "0", "CGPU_GROUP": "chat"}
        members = [run(name, **asked) for name in ("one", "two")]
        told = {name: (TREE / f"0/{name}/group").read_text() for name in ("chat", "one", "two")}
        assert set(told.values()) == {"chat\n"}, told
        for one in members:
            assert one.exec("ls", "/run/cgpu/groups/chat/pipe").stdout == "control\n"
            assert _info(one)["board"] == LIMIT_BYTES
            one.delete()
        until(lambda: not list((TREE / "container").iterdir()), "the group's end", START_S)


#: What a container's programs may try to be rid of the agent, and what they are told.
LEAVES = "usurp - && entry && simcuda --json fill"
REFUSED = [
    f"listener {errno.EBUSY}",
    f"old mmap {errno.EPERM} mmap2 {errno.EPERM} ioctl {errno.EPERM} listener {errno.EBUSY}"
    f" x32 {errno.EPERM}",
]
#: Together more than the agent once read of a runtime's message; an argument has at most 128 KiB.
LONG = [word for key in "ab" for word in ("--annotation", f"{key}={'x' * 100_000}")]


@pytest.fixture
def leaving(door: Door, made: Callable[[str], Path]) -> list[str]:
    """What engines bring into a container for LEAVES."""
    programs = {f"/bin/{name}": made("programs") / name for name in ("usurp", "entry")}
    return _volumes(door) + as_volumes(programs)


def _left(said: str) -> tuple[list[str], int, bool]:
    """Return what LEAVES was told, how `fill` ended, and whether it was held to the limit."""
    *told, filled = said.splitlines()
    found = json.loads(filled)
    return [line.strip() for line in told], found["status"], found["bytes"] <= LIMIT_BYTES


@contextmanager
def _podman(behind: str) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Podman with that runtime, registered; yields ``podman run`` of what asks for 1 GiB."""
    programs = [shutil.which(name, path="/usr/bin:/usr/sbin") for name in ("podman", behind)]
    if None in programs:
        pytest.skip(f"no package: podman and {behind} are not both installed")
    options = registration.Options(("podman",), runtimes=(str(programs[1]),), hooks_d=False)
    # Podman 5 mounts an overlay in there, which the guest's root, an overlay itself, cannot hold.
    storage = tempfile.mkdtemp(dir="/run")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(str(programs[0]), "--root", storage, "--runroot", "/run/cgpu-podman"),
                *("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"),
                *("--events-backend", "none", "--runtime", str(customer.RUNTIME)),
                *("run", "--rm", "--network", "none", "-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0"),
                *words,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    try:
        registration.register(options)
        yield run
    finally:
        shutil.rmtree(storage, ignore_errors=True)
        registration.undo(registration.plan_undo())


@pytest.mark.parametrize("behind", ["runc", "crun"])
def test_podmans_containers_are_held_to_their_sizes(
    leaving: list[str], made: Callable[[str], Path], behind: str
) -> None:
    """Whatever annotations they have, and though they try to be rid of the agent."""
    with _podman(behind) as run:
        root = f"{made('rootfs')}:O"
        done = run(*LONG, *leaving, "--rootfs", root, "sh", "-c", LEAVES)
        assert done.stdout, done.stderr
        assert _left(done.stdout) == (REFUSED, NO_MEMORY, True)


def test_a_container_has_no_listener_of_its_own(
    run: customer.Run, made: Callable[[str], Path]
) -> None:
    """Nor a program that is executed in it."""
    mounts = {"/bin/usurp": made("programs") / "usurp"}
    asked = {"CGPU_MEM": "1GiB", "CGPU_GPU": "0"}
    one = customer.prepare(made, "usurper", asked, mounts).start()
    try:
        found = one.exec("usurp", "-", "simcuda", "--json", "fill", check=False).stdout
        assert _left(found) == (REFUSED[:1], NO_MEMORY, True)
    finally:
        one.delete()


@pytest.mark.needs("engines")
def test_dockers_containers_are_held_to_their_sizes(
    leaving: list[str], made: Callable[[str], Path], tmp_path: Path
) -> None:
    """With Docker's own seccomp profile in force, which the agent's rules are merged into."""
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", str(made("rootfs")), "-cf", str(archive), "."], check=True)
    options = registration.Options(("docker",), runtimes=("runc",))
    try:
        with engines.in_path(made("engines")):
            registration.register(options)
        with engines.docker(made("engines"), tmp_path) as base:
            subprocess.run([*base, "import", str(archive), IMAGE], check=True, timeout=300)
            common = ["run", "--rm", "--runtime", "cgpu", "--network", "none", *leaving]

            def run(*words: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [*base, *common, *words],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=300,
                )

            asked = ("-e", "CGPU_MEM=1GiB", "-e", "CGPU_GPU=0", IMAGE)
            done = run(*asked, "sh", "-c", LEAVES)
            assert done.stdout, done.stderr
            assert _left(done.stdout) == (REFUSED, NO_MEMORY, True)
            # Docker's own profile still refuses what it refused before.
            assert "not permitted" in run(*asked, "unshare", "-m", "true").stderr
            assert run(IMAGE, "echo", "plain").stdout.strip() == "plain"
    finally:
        registration.undo(registration.plan_undo())


def test_a_container_that_asks_for_nothing_is_left_alone(run: customer.Run) -> None:
    plain = run("plain")
    assert plain.exec("echo", "plain").stdout.strip() == "plain"
    assert not (TREE / "container/plain").exists()
