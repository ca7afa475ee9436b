# SPDX-License-Identifier: MIT
"""Reading and writing the tree of nodes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.errors import CgpuError, ModuleNotLoaded, NodeError, PermissionDenied, ProtocolError
from pycgpu.request.model import MIB, CardGrant, Grant, Tenant
from pycgpu.tree import moving, procfs, status
from pycgpu.tree.status import ProcessUsage

from .tree import add_container, make_tree, memory, put

CID = "012b2edccd7a" + "0" * 52


@pytest.fixture
def root(tmp_path: Path) -> Any:
    return make_tree(tmp_path / "cgpu_km", cards=2)


def test_cards_are_read_with_their_containers(root: Any) -> None:
    add_container(root, 1, CID, quota="30")
    put(root / "1", memory=memory(15109 * MIB, reserved=100 * MIB, allocated=1024 * MIB))
    first, second = procfs.read_cards(str(root))
    assert (first.index, first.tenants) == (0, ())
    assert second.tenants == (Tenant("012b2edccd7a", 30, None),)
    assert second.free_bytes == (15109 - 1124) * MIB


def test_the_status_of_a_container(root: Any) -> None:
    add_container(root, 0, CID)
    (container,) = status.read(0, str(root)).containers
    assert (container.id, container.name) == (CID, "012b2edccd7a")
    assert (container.used_bytes, container.free_bytes) == (24 * MIB, 1000 * MIB)
    assert container.processes == (ProcessUsage(4711, 7, 24 * MIB, "python3 train me"),)
    assert container.events == {"oom": 1, "refused": 2}


def test_a_door_that_parks_by_hand_alone_hides_no_container(root: Any) -> None:
    add_container(root, 0, CID)
    other = "f" * 64
    add_container(root, 0, other, idle_park_s="300")
    found = status.read_containers(0, str(root), parks=True)
    assert {one.id: one.idle_park_s for one in found} == {CID: 0, other: 300}
    assert moving.read(str(root)) == {}


@pytest.mark.parametrize("line", ["one", "one state=away since_ns=1 bytes=2", "one state=parked"])
def test_a_line_of_parking_that_says_nothing_is_quoted(root: Any, line: str) -> None:
    put(root, parking=f"two state=parked since_ns=1 bytes=2 pid=3\n{line}")
    with pytest.raises(ProtocolError, match="parking:2"):
        moving.read(str(root))


def test_containers_whose_names_clash_are_told_apart(root: Any) -> None:
    other = CID[:20] + "f" * 44
    add_container(root, 0, CID)
    add_container(root, 0, other, name=other[:21], weight="7")
    found = {entry.id: (entry.name, entry.weight) for entry in status.read_containers(0, str(root))}
    assert found == {CID: (CID[:12], 1), other: (other[:21], 7)}


def test_max_is_no_limit(root: Any) -> None:
    add_container(root, 0, CID, memsize="max", quota="max")
    (tenant,) = procfs.read_tenants(0, str(root))
    memory_bytes = procfs.read_memsize(0, tenant.id, str(root))
    assert (memory_bytes, tenant.quota) == (None, None)


def test_a_container_that_goes_while_it_is_read_is_left_out(root: Any) -> None:
    add_container(root, 0, CID)
    (root / "0" / CID[:12] / "quota").unlink()
    assert procfs.read_tenants(0, str(root)) == ()
    assert status.read_containers(0, str(root)) == ()


def test_small_nodes(root: Any) -> None:
    text = str(root)
    assert procfs.read_version(text) == "0.1.0"
    assert procfs.read_features(text) == {"memory", "slices", "gate"}
    assert procfs.read_timeslice_us(0, text) == 5000
    procfs.write_policy(1, 2, text)
    assert procfs.read_policy(1, text) == 2
    assert procfs.container_ids(text) == []


def test_an_absent_tree_is_a_module_that_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotLoaded, match="modprobe cgpu_km"):
        procfs.read_cards(str(tmp_path / "none"))


def test_another_api_version_is_refused(root: Any) -> None:
    put(root, api_version="2")
    with pytest.raises(ProtocolError, match="install them together"):
        procfs.read_cards(str(root))


def test_a_node_that_may_not_be_read_says_so(root: Any) -> None:
    (root / "0" / "policy").chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionDenied, match="run this as root"):
            procfs.read_policy(0, str(root))
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("node", "text", "line"),
    [
        ("memory", "total x", 1),
        ("memory", "total 1\nreserved 2", 0),
        ("policy", "weighted", 1),
        ("policy", "", 1),
        ("policy", "-1", 1),
        ("max_inst", "٣", 1),
    ],
)
def test_a_card_node_that_breaks_the_contract_names_file_and_line(
    root: Any, node: Any, text: Any, line: Any
) -> None:
    put(root / "0", **{node: text})
    with pytest.raises(ProtocolError) as caught:
        procfs.read_card(0, str(root))
    assert caught.value.file == f"{root}/0/{node}"
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("meminfo", "PID: 1 Mem: 2"),
        ("meminfo", ""),
        ("meminfo", "Free: 1\nPID: 1 Mem:"),
        ("procs", "1 2"),
        ("procs", "1 2 x comm"),
        ("memsize", "1G"),
        ("events", "oom"),
    ],
)
def test_a_container_node_that_breaks_the_contract_names_its_file(
    root: Any, node: Any, text: Any
) -> None:
    add_container(root, 0, CID, **{node: text})
    with pytest.raises(ProtocolError, match=f"{node}:"):
        status.read_containers(0, str(root))


def test_a_node_that_is_not_text_is_a_protocol_error(root: Any) -> None:
    (root / "0" / "policy").write_bytes(b"\xff\xfe")
    with pytest.raises(ProtocolError):
        procfs.read_policy(0, str(root))


GRANT = Grant(
    (
        CardGrant(0, 3276 * MIB, quota=10, policy=6),
        CardGrant(3, None, weight=4, quota_min=5, priority=1, uvm_disable=True, oom_action="kill"),
    )
)


def test_the_create_command() -> None:
    assert procfs.create_command(CID, GRANT, pid=4711) == (
        f"create {CID} pid=4711 gpu=0,mem=3435134976,quota=10,policy=6"
        " gpu=3,mem=max,weight=4,quota_min=5,priority=1,oom_action=kill,uvm_disable=1"
    )
    assert " cgroup=/a/b gpu=0" in procfs.create_command("a", GRANT, cgroup="/a/b")


def test_create_is_one_write_with_one_newline(root: Any) -> None:
    procfs.create(CID, GRANT, str(root), pid=1)
    text = (root / "inst_ctl").read_text()
    assert text.startswith(f"create {CID} pid=1 ")
    assert text.count("\n") == 1


@pytest.mark.parametrize("bad", ["", "-a", ".a", "a b", "a\nb", "a/b", "é", "a" * 65, "_a"])
def test_an_id_that_inst_ctl_does_not_take_is_refused_before_the_write(root: Any, bad: Any) -> None:
    with pytest.raises(CgpuError, match="container id"):
        procfs.create(bad, GRANT, str(root), pid=1)
    with pytest.raises(CgpuError, match="container id"):
        procfs.destroy(bad, str(root))
    assert (root / "inst_ctl").read_text() == ""


@pytest.mark.parametrize("cgroup", ["", "/a b", "/a\n"])
def test_a_cgroup_that_would_break_the_command_is_refused(cgroup: Any) -> None:
    with pytest.raises(CgpuError, match="cgroup"):
        procfs.create_command("a", GRANT, cgroup=cgroup)


def test_a_command_beyond_the_limit_is_refused() -> None:
    cards = tuple(CardGrant(n, 1 << 40, weight=1, quota=1, priority=1) for n in range(100))
    with pytest.raises(CgpuError, match="do not fit one command"):
        procfs.create_command("a", Grant(cards), pid=1)


def test_a_write_that_the_door_refuses_says_why(root: Any) -> None:
    (root / "inst_ctl").unlink()
    (root / "inst_ctl").symlink_to("/dev/full")
    with pytest.raises(NodeError, match=r"max_inst is reached.*\(ENOSPC\)") as caught:
        procfs.create(CID, GRANT, str(root), pid=1)
    assert caught.value.errno == errno.ENOSPC


@given(st.binary(max_size=200))
def test_no_text_of_a_node_makes_anything_but_a_cgpu_error(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    root = tmp_path_factory.mktemp("t") / "cgpu_km"
    make_tree(root)
    add_container(root, 0, CID)
    for node in ("memory", "policy", f"{CID[:12]}/meminfo", f"{CID[:12]}/procs"):
        path = root / "0" / node
        kept = path.read_bytes()
        path.write_bytes(data)
        try:
            procfs.read_cards(str(root))
            status.read(0, str(root))
        except CgpuError as error:
            assert "\n" not in str(error)
        path.write_bytes(kept)
