# SPDX-License-Identifier: MIT
"""Who belongs to a container: pid namespaces and cgroups, also those below, v1 and v2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.container import Container
from tests.vm.drivers import Km, Sim
from tests.vm.loaded import until

pytestmark = pytest.mark.kernel(by_default=True)

LIMIT_BYTES = 512 << 20


def total_bytes(driver: Sim, *prefix: str) -> int:
    """The card's size as `simcuda` sees it behind *prefix*."""
    run = subprocess.run(
        [*prefix, str(driver.programs / "simcuda"), "--json", "info"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(json.loads(run.stdout)["total"])


class Group:
    """A cgroup of this test's own, in whatever version is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def prefix(self) -> tuple[str, ...]:
        """Words before a command that put it in here."""
        return ("sh", "-c", f'echo $$ > {self.path}/cgroup.procs; exec "$@"', "sh")


@pytest.fixture
def group() -> Iterator[Callable[[str], Group]]:
    made: list[Group] = []
    root = Path("/sys/fs/cgroup")
    hierarchy = root if (root / "cgroup.procs").exists() else root / "memory"

    def make(name: str) -> Group:
        made.append(Group(hierarchy / name))
        return made[-1]

    yield make
    for one in reversed(made):
        until(lambda one=one: not (one.path / "cgroup.procs").read_text(), "its emptiness")  # type: ignore[misc]  # bound in this round of the loop
        one.path.rmdir()


def end_first_thread(one: Container) -> None:
    """Of the first process, which is `race stay`: it goes on with another thread."""
    os.kill(one.pid, signal.SIGUSR1)
    stat = Path(f"/proc/{one.pid}/stat")
    until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "Z", "the thread's end")


def check_cgroup(driver: Sim, cgpu: Km, group: Callable[[str], Group]) -> None:
    whole = total_bytes(driver)
    inside, below, beside = group("tenant"), group("tenant/below"), group("tenant-too")
    cgpu.create("one", f"cgroup={inside.path}", f"gpu=0,mem={LIMIT_BYTES}")
    # what holds the container together, as a container's first process does
    first = subprocess.Popen([*inside.prefix(), "sleep", "1000000"])
    until(lambda: str(first.pid) in (inside.path / "cgroup.procs").read_text(), "its start")
    assert total_bytes(driver, *inside.prefix()) == LIMIT_BYTES
    assert total_bytes(driver, *below.prefix()) == LIMIT_BYTES
    assert total_bytes(driver, *beside.prefix()) == whole
    assert total_bytes(driver) == whole
    first.kill()
    first.wait()
    # Populated once and empty now: it ends without anyone's help.
    until(lambda: not os.listdir(cgpu.root / "container"), "the removal of an empty cgroup")
    assert "allocated 0\n" in cgpu.read("0/memory")


def test_processes_of_a_cgroup_and_of_those_below_it_are_the_container_s(
    sim: Any, km: Any, group: Callable[[str], Group]
) -> None:
    check_cgroup(sim(model="t4"), km(), group)


@pytest.mark.kernel("6.1", by_default=True)
@pytest.mark.vm(cgroup=1)
def test_a_cgroup_of_version_1_names_a_container_as_well(
    sim: Any, km: Any, group: Callable[[str], Group]
) -> None:
    check_cgroup(sim(model="t4"), km(), group)


@pytest.mark.kernel("6.1", by_default=True)
@pytest.mark.vm(cgroup=1)
def test_a_cgroup_of_a_hierarchy_without_controllers_is_no_container(
    sim: Any, km: Any, tmp_path: Path
) -> None:
    """Nobody can be told to be in it: the container would limit nobody."""
    sim(model="t4")
    cgpu = km()
    mount = ["mount", "-t", "cgroup", "-o", "none,name=cgpu", "cgroup", str(tmp_path)]
    subprocess.run(mount, check=True)
    (tmp_path / "one").mkdir()
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            cgpu.create("one", f"cgroup={tmp_path}/one", f"gpu=0,mem={LIMIT_BYTES}")
    finally:
        (tmp_path / "one").rmdir()
        subprocess.run(["umount", tmp_path], check=True)


def test_a_container_inside_a_container_is_held_to_the_outer_one_s_share(
    sim: Any, km: Any, container: Callable[..., Container]
) -> None:
    driver, cgpu = sim(model="t4"), km()
    one = container("one", programs={"/bin/simcuda": driver.programs / "simcuda"})
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    nested = ("nsenter", "-t", str(one.pid), "-p", "unshare", "--pid", "--fork")
    assert total_bytes(driver, *nested) == LIMIT_BYTES


@pytest.mark.needs("programs")
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_container_lives_on_when_only_a_thread_of_its_first_process_has_ended(
    sim: Any, km: Any, container: Callable[..., Container], made: Any, order: str
) -> None:
    sim(model="t4")
    cgpu = km()
    one = container("one", programs={"/bin/race": made("programs") / "race"}, args=("race", "stay"))

    if order == "before":
        end_first_thread(one)
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    if order == "after":
        end_first_thread(one)
    # Who looks which containers have ended looks at all of them.
    two = container("two")
    cgpu.create("two", f"pid={two.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    two.kill()
    until(lambda: not (cgpu.root / "container/two").exists(), "the removal of another")
    assert (cgpu.root / "container/one").exists()
    one.kill()
    until(lambda: not (cgpu.root / "container/one").exists(), "its removal")


def test_the_first_of_two_requests_for_the_same_processes_stands(
    sim: Any, km: Any, container: Callable[..., Container]
) -> None:
    driver, cgpu = sim(model="t4"), km()
    one = container("one", programs={"/bin/simcuda": driver.programs / "simcuda"})
    cgpu.create("one", f"pid={one.pid}", f"gpu=0,mem={LIMIT_BYTES}")
    with pytest.raises(FileExistsError):
        cgpu.create("two", f"pid={one.pid}", f"gpu=0,mem={2 * LIMIT_BYTES}")
    assert int(json.loads(one.exec("simcuda", "--json", "info").stdout)["total"]) == LIMIT_BYTES


def test_a_process_of_the_host_s_own_namespace_is_no_container(sim: Any, km: Any) -> None:
    sim(model="t4")
    cgpu = km()
    with pytest.raises(OSError, match="Invalid argument"):
        cgpu.create("host", f"pid={os.getpid()}", f"gpu=0,mem={LIMIT_BYTES}")
    assert not os.listdir(cgpu.root / "container")
