# SPDX-License-Identifier: MIT
"""
Containers in a group, by our runtime and hook under the module: who is let in, what a member is
given, and the server's life. NVIDIA's daemon is stood in for by a program of the same name.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pycgpu.tree import group, procfs
from pycgpu.tree.process import directories
from tests.vm import mps
from tests.vm.customer import RuntimeContainer, prepare, running
from tests.vm.drivers import Km
from tests.vm.loaded import until
from tests.vm.mps import keepers

pytestmark = [
    pytest.mark.kernel("6.1", by_default=True),
    pytest.mark.needs("km", "sim", "smi", "rootfs"),
]

NAMESPACE = "io.kubernetes.cri.sandbox-namespace"
ASKED = {"CGPU_MEM": "1GiB", "CGPU_GPU": "0"}

Start = Callable[..., RuntimeContainer]


@pytest.fixture
def host(sim: Any, km: Callable[..., Km]) -> Iterator[Km]:
    sim(cards=2, model="t4")
    with mps.control():
        yield km()


@pytest.fixture
def start(host: Km, made: Callable[[str], Path]) -> Iterator[Start]:
    """``start("name", "group", uid=…, namespace=…, CGPU_GPU=…)`` starts a member."""
    begun: list[RuntimeContainer] = []

    def run(
        id: str,
        name: str,
        *,
        uid: int = 0,
        namespace: str | None = None,
        mapped: int | None = None,
        annotations: Mapping[str, str] | None = None,
        **environment: str,
    ) -> RuntimeContainer:
        one = prepare(made, id, {**ASKED, **environment})
        begun.append(one)
        path = one.bundle / "config.json"
        config = json.loads(path.read_text())
        config["process"]["user"] = {"uid": uid, "gid": uid}
        config["annotations"] = {
            **({"cgpu.io/group": name} if name else {}),
            **({NAMESPACE: namespace} if namespace else {}),
            **(annotations or {}),
        }
        if mapped is not None:
            config["linux"]["namespaces"].append({"type": "user"})
            ids = [{"containerID": 0, "hostID": mapped, "size": 1000}]
            config["linux"] |= {"uidMappings": ids, "gidMappings": ids}
            # Its root makes what is mounted upon.
            whose = f"{mapped}:{mapped}"
            subprocess.run(["chown", "-R", whose, one.bundle / "rootfs"], check=True)
        path.write_text(json.dumps(config))
        return one.start()

    with running(made):
        yield run
        for one in begun:
            one.delete()
        until(lambda: not containers(host), "the groups' end")


def containers(host: Km) -> set[str]:
    return set(procfs.container_ids(str(host.root)))


def refused(start: Start, *words: Any, **options: Any) -> str:
    """Return what the engine shows of a refusal, which is one line."""
    with pytest.raises(RuntimeError) as failed:
        start(*words, **options)
    lines = [line for line in str(failed.value).splitlines() if "cgpu: " in line]
    assert len(set(lines)) == 1, failed.value
    return lines[0]


def test_a_groups_server_is_there_from_its_first_container_to_its_last(
    host: Km, start: Start
) -> None:
    root = str(host.root)
    one = start("one", "chat")
    until(lambda: len(keepers()["chat"]) == 2, "its keepers")
    kept = keepers()
    two = start("two", "chat")
    assert containers(host) == {"one", "two", "chat"}
    told = {name: procfs.read_group(0, name, root) for name in ("chat", "one", "two")}
    assert set(told.values()) == {"chat"}, told
    assert procfs.read_memsize(0, "two", root) == 1 << 30
    # Whatever mask the engine has, nobody else writes where members look.
    ours = (group.DIRECTORY, f"{group.DIRECTORY}/chat", f"{group.DIRECTORY}/chat/owner", group.SHM)
    assert [oct(os.stat(path).st_mode & 0o022) for path in ours] == ["0o0"] * 4
    # It goes on when the first member's cgroup, and whoever started it, is gone.
    for pid in kept["chat"]:
        assert "/cgpu-group-chat\n" in Path(f"/proc/{pid}/cgroup").read_text()
    one.delete()
    until(lambda: "one" not in containers(host), "its end")
    assert keepers() == kept and group.answers("chat")
    two.delete()
    until(lambda: not containers(host) and not keepers(), "the server's end")
    until(lambda: not list(Path("/sys/fs/cgroup").rglob("cgpu-group-*")), "its cgroup's end")
    assert list(Path(group.SHM, "chat").iterdir()) == []
    # And one that comes after it starts another.
    start("three", "chat")
    assert keepers().keys() == {"chat"}


def test_a_member_has_the_way_to_its_server_and_none_to_give_it_orders(
    host: Km, start: Start
) -> None:
    one, two = start("one", "chat"), start("two", "chat", CGPU_QUOTA="25")
    other = start("other", "work")
    pipe = group.pipe("chat")
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert f"{threads}=25" in Path(f"/proc/{two.pid}/environ").read_text().split("\0")
    assert threads not in Path(f"/proc/{one.pid}/environ").read_text()
    variables = Path(f"/proc/{one.pid}/environ").read_text().split("\0")
    assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}" in variables
    assert one.exec("ls", "-A", pipe).stdout.split() == [group.CONTROL_SOCKET]
    # root in the container has every right to the directory, and none to change what is there
    assert "Read-only" in one.exec("touch", f"{pipe}/mine", check=False).stdout
    one.exec("sh", "-c", "echo told >/dev/shm/said")
    assert two.exec("cat", "/dev/shm/said").stdout == "told\n"
    assert other.exec("ls", "-A", "/dev/shm").stdout == ""
    assert other.exec("ls", "-A", "/run/cgpu/groups").stdout.split() == ["work"]
    [daemon] = [
        pid
        for pid in (one.name for one in directories(Path("/proc")))
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/usr/local/nvidia/bin/")
        and "chat" in Path(f"/proc/{pid}/cgroup").read_text()
        and b"chat" in Path(f"/proc/{pid}/environ").read_bytes()
        and "mps-server" not in Path(f"/proc/{pid}/comm").read_text()
    ]
    assert os.listdir(f"/proc/{daemon}/root/dev/shm") == ["said"]
    for pid in (daemon, *keepers()["chat"]):
        killed = one.exec("sh", "-c", f"kill -9 {pid} || echo none", check=False).stdout
        assert killed.endswith("none\n"), "it is of another pid namespace"
    assert group.answers("chat")


def test_who_may_not_join_is_told_why(host: Km, start: Start) -> None:
    start("one", "chat")
    start("plain", "")
    said = refused(start, "other", "chat", uid=1000)
    assert (
        "group chat: it belongs to containers of user 0, and containers of user 1000 asks" in said
    )
    said = refused(start, "far", "chat", CGPU_GPU="1")
    assert "group chat: it is on card 0, and card 1 is asked" in said
    assert "group plain: a container of this name exists" in refused(start, "p", "plain")
    assert "group a/chat: NAMESPACE/NAME is a group of pods" in refused(start, "q", "a/chat")
    said = refused(start, "env", "", CGPU_GROUP="chat")
    assert "CGPU_GROUP='chat': an image could set it" in said and "cgpu.io/group" in said
    assert containers(host) == {"one", "plain", "chat"}


def test_a_group_has_its_members_floors_and_the_first_ones_priority(host: Km, start: Start) -> None:
    root = str(host.root)

    def asked(floor: int, priority: int) -> dict[str, str]:
        return {"cgpu.io/CGPU_QUOTA_MIN": str(floor), "cgpu.io/CGPU_PRIORITY": str(priority)}

    one = start("one", "chat", annotations=asked(20, 2))
    two = start("two", "chat", annotations=asked(30, 1))
    found = [procfs.read_quota_min(0, id, root) for id in ("chat", "one", "two")]
    assert (found, procfs.read_priority(0, "chat", root)) == ([50, 20, 30], 2)
    # The kernels of one that asks for less are after the others'.
    environs = [Path(f"/proc/{each.pid}/environ").read_text().split("\0") for each in (one, two)]
    assert ["CUDA_MPS_CLIENT_PRIORITY=1" in environ for environ in environs] == [False, True]
    said = refused(start, "more", "chat", annotations=asked(5, 3))
    assert "group chat: priority 3 asked, and the group has 2: cgpu set chat --priority" in said
    assert "60 % guaranteed asked, 50 % free" in refused(
        start, "m", "chat", annotations=asked(60, 2)
    )
    two.delete()
    until(lambda: procfs.read_quota_min(0, "chat", root) == 20, "its floor's end")


def test_a_group_of_pods_is_their_namespaces(host: Km, start: Start) -> None:
    start("one", "chat", namespace="blue")
    start("two", "blue/chat", namespace="blue")
    start("three", "chat", namespace="red")
    assert containers(host) == {"one", "two", "three", "blue.chat", "red.chat"}
    said = refused(start, "four", "blue/chat", namespace="red")
    assert "this pod is of namespace red, and a group is one namespace's: write chat" in said
    other = {"io.kubernetes.pod.namespace": "blue"}
    said = refused(start, "five", "chat", namespace="red", annotations=other)
    assert "said to be of namespaces blue, red" in said
    said = refused(start, "six", "blue.chat")
    assert "group blue.chat: it belongs to namespace blue, and containers of user 0 asks" in said
    said = refused(start, "seven", "chat", namespace="blue", uid=7)
    assert "its server runs as user 0 of the host, and this container as user 7" in said


def test_the_server_runs_as_the_hosts_user_of_a_user_namespace(host: Km, start: Start) -> None:
    one = start("one", "chat", uid=5, mapped=100_000)
    two = start("two", "chat", uid=5, mapped=100_000)
    control = f"{group.pipe('chat')}/{group.CONTROL_SOCKET}"
    assert os.stat(control).st_uid == 100_005
    for member in (one, two):
        assert member.exec("stat", "-c", "%u %a", control, uid=5).stdout.split() == ["5", "600"]
    said = refused(start, "three", "chat", uid=5, mapped=200_000)
    assert "it belongs to containers of user 100005, and containers of user 200005 asks" in said
