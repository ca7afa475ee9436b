# SPDX-License-Identifier: MIT
"""``import pycgpu``: what it offers, against the text that the core printed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pycgpu
from tests.host.coretree import GIB, CoreTree

HEX = "0123456789abcdef" * 4
OTHER = "0123" + "f" * 60
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    made = CoreTree(tmp_path / "tree", [(16 * GIB, 0), (16 * GIB, 0)])
    one = made.create(HEX, f"gpu=0,mem={4 * GIB},weight=3,quota=30", f"gpu=1,mem={GIB}")
    one.hold(0, 4711, 7, GIB, "python3")
    made.create(OTHER, f"gpu=0,mem={8 * GIB}")
    made.write()
    return made


def test_cards_say_what_is_promised_and_free(tree: CoreTree) -> None:
    first, second = pycgpu.cards(str(tree.root))
    assert (first.index, second.index) == (0, 1)
    assert (first.memory_bytes, first.promised_bytes) == (16 * GIB, 12 * GIB)
    assert first.free_bytes == first.memory_bytes - first.reserved_bytes - 12 * GIB
    assert (first.used_bytes, second.used_bytes) == (GIB, 0)
    assert first.policy == "weighted-conserving"
    assert first.overcommit_ratio == 100
    tree.host.card[0].overcommit_ratio = 150
    tree.write()
    first, _ = pycgpu.cards(str(tree.root))
    assert (first.memory_bytes, first.free_bytes) == (16 * GIB, (24 - 12) * GIB)


def test_a_container_has_a_part_of_each_of_its_cards(tree: CoreTree) -> None:
    one, other = pycgpu.containers(str(tree.root))
    assert (one.id, other.id) == (HEX, OTHER)
    assert [(part.card, part.memory_bytes) for part in one.parts] == [(0, 4 * GIB), (1, GIB)]
    part = one.parts[0]
    assert (part.weight, part.quota, part.quota_min) == (3, 30, None)
    assert part.used_bytes == GIB
    assert [(process.pid, process.comm) for process in part.processes] == [(4711, "python3")]
    assert pycgpu.container("0123456789ab", str(tree.root)) == one


def test_a_text_that_means_no_container_or_two_is_an_error(tree: CoreTree) -> None:
    with pytest.raises(pycgpu.CgpuError, match="no container 'nobody'"):
        pycgpu.container("nobody", str(tree.root))
    with pytest.raises(pycgpu.CgpuError, match="more than one"):
        pycgpu.container("0123", str(tree.root))


def test_create_registers_with_all_limits(tree: CoreTree) -> None:
    limits = {
        1: pycgpu.Limits(memory="2GiB", quota=40, oom_action="kill"),
        0: pycgpu.Limits(memory=GIB),
    }
    pycgpu.create("job1", limits, pid=4712, root=str(tree.root))
    # The kernel's file takes the command whole; here it lies over the text that was there.
    assert (
        (tree.root / "inst_ctl")
        .read_text()
        .startswith(
            f"create job1 pid=4712 gpu=0,mem={GIB} gpu=1,mem={2 * GIB},quota=40,oom_action=kill\n"
        )
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "one of them"),
        ({"pid": 1, "cgroup": "/a"}, "one of them"),
        ({"cgroup": "/a b"}, "'/a b'"),
    ],
)
def test_create_without_one_identity_registers_nothing(
    tree: CoreTree, keys: dict[str, object], message: str
) -> None:
    before = (tree.root / "inst_ctl").read_text()
    with pytest.raises(pycgpu.CgpuError, match=message):
        pycgpu.create("job1", {0: pycgpu.Limits()}, root=str(tree.root), **keys)  # type: ignore[arg-type]
    assert (tree.root / "inst_ctl").read_text() == before


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "a part of a card at least"),
        ({9: pycgpu.Limits()}, r"no GPU 9 under control; there are: \[0, 1\]"),
        ({-1: pycgpu.Limits()}, "no GPU -1"),
        ({0: pycgpu.Limits(memory=4096)}, "write 4096MiB or GiB"),
        ({0: pycgpu.Limits(memory=-1)}, "is not an amount of memory"),
        ({0: pycgpu.Limits(memory="25%")}, "is not an amount of memory"),
        ({0: pycgpu.Limits(weight="1,quota=9")}, "weight '1,quota=9': write a whole number"),  # type: ignore[arg-type]
        ({0: pycgpu.Limits(quota=101)}, "write 1 to 100 percent"),
        ({0: pycgpu.Limits(quota=0)}, "write 1 to 100 percent"),
        ({0: pycgpu.Limits(priority=16)}, "write 0 to 15"),
        ({0: pycgpu.Limits(oom_action="explode")}, "write fail or kill"),
        ({0: pycgpu.Limits(idle_park="soon")}, "idle park: 'soon' is no time"),
        ({0: pycgpu.Limits(idle_park=604801)}, "idle park: '604801' is more than 7 days"),
        ({0: pycgpu.Limits(idle_park=60)}, "job1: it asks to be parked when idle, and this door"),
    ],
)
def test_create_says_which_value_is_none_and_registers_nothing(
    tree: CoreTree, limits: dict[int, pycgpu.Limits], message: str
) -> None:
    before = (tree.root / "inst_ctl").read_text()
    with pytest.raises(pycgpu.CgpuError, match=message):
        pycgpu.create("job1", limits, pid=4712, root=str(tree.root))
    assert (tree.root / "inst_ctl").read_text() == before


@pytest.mark.parametrize("period_s", [0, -1, float("nan"), float("inf")])
def test_usage_over_no_period_is_an_error(tree: CoreTree, period_s: float) -> None:
    with pytest.raises(pycgpu.CgpuError, match="more than 0"):
        pycgpu.usage(period_s, str(tree.root))


def test_set_writes_what_the_core_takes_and_says_what_changed(tree: CoreTree) -> None:
    changed = pycgpu.set("012345", card=0, memory="2G", weight=5, root=str(tree.root))
    assert [(one.what, one.shown) for one in changed] == [
        ("weight", "3 → 5"),
        ("memory", "4096 MiB → 2048 MiB"),
    ]
    assert tree.store("0/0123456789ab/weight") == tree.store("0/0123456789ab/memsize") == 0
    tree.write()
    part = pycgpu.container(HEX, str(tree.root)).parts[0]
    assert (part.weight, part.memory_bytes) == (5, 2 * GIB)


def test_when_it_is_parked_is_asked_and_set_where_the_door_parks(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree", [(16 * GIB, 0)], features=("PARK",))
    root = str(tree.root)
    pycgpu.create("job1", {0: pycgpu.Limits(idle_park="5m")}, pid=4712, root=root)
    wanted = "create job1 pid=4712 gpu=0,mem=max,idle_park_s=300\n"
    assert (tree.root / "inst_ctl").read_text().startswith(wanted)
    tree.create(HEX, f"gpu=0,mem={GIB},idle_park_s=300")
    assert pycgpu.container(HEX, root).parts[0].idle_park_s == 300
    (changed,) = pycgpu.set(HEX, idle_park="15m", root=root)
    assert (changed.what, changed.shown) == ("idle_park", "5m → 15m")
    assert tree.store("0/0123456789ab/idle_park_s") == 0
    tree.write()
    part = pycgpu.container(HEX, root).parts[0]
    assert (part.idle_park_s, part.state, part.parked_bytes) == (900, "running", 0)
    tree.create("chat", f"gpu=0,mem={GIB}", "group=chat")
    with pytest.raises(pycgpu.CgpuError, match="chat stays off: no container of a group is parked"):
        pycgpu.set("chat", idle_park="5m", root=root)


def test_who_is_never_parked_here_is_not_told_to_be(tree: CoreTree) -> None:
    with pytest.raises(pycgpu.CgpuError, match=r"stays off: this door \(.*\) cannot park"):
        pycgpu.set(HEX, weight=5, idle_park="5m", root=str(tree.root))
    assert (tree.root / "0/0123456789ab/weight").read_text() == "3\n"
    (one, _) = pycgpu.set(HEX, idle_park=0, dry_run=True, root=str(tree.root))
    assert one.shown == "off → off"


def test_set_with_one_bad_value_or_dry_changes_nothing(tree: CoreTree) -> None:
    before = pycgpu.containers(str(tree.root))
    with pytest.raises(pycgpu.CgpuError, match="write 1 to 100 percent"):
        pycgpu.set(HEX, weight=5, quota=101, root=str(tree.root))
    with pytest.raises(pycgpu.CgpuError, match="nothing to set"):
        pycgpu.set(HEX, root=str(tree.root))
    assert pycgpu.set(HEX, card=1, weight=5, dry_run=True, root=str(tree.root))
    assert pycgpu.containers(str(tree.root)) == before


def test_a_policy_is_set_by_name_on_a_card_that_is_there(tree: CoreTree) -> None:
    pycgpu.set_policy(1, "weighted", str(tree.root))
    assert (tree.root / "1/policy").read_text() == "2\n"
    with pytest.raises(pycgpu.CgpuError, match="there are: 0, 1"):
        pycgpu.set_policy(2, 0, str(tree.root))
    with pytest.raises(pycgpu.CgpuError, match="no policy 'fastest'"):
        pycgpu.set_policy(0, "fastest", str(tree.root))


def test_events_come_parsed_and_of_one_container_alone(tree: CoreTree) -> None:
    (tree.root / "events").write_text(
        f"7 create id={HEX}\n8 create id={OTHER}\n9 oom id={HEX} gpu=0\n"
    )
    every = list(pycgpu.events(root=str(tree.root)))
    assert [(one.time_ns, one.kind) for one in every] == [(7, "create"), (8, "create"), (9, "oom")]
    of_one = pycgpu.events(container=HEX, root=str(tree.root))
    assert [one.kind for one in of_one] == ["create", "oom"]


def test_events_of_a_group_are_those_of_its_members_too(tree: CoreTree) -> None:
    (tree.root / "events").write_text(
        f"7 create id={HEX} group={HEX}\n8 create id={OTHER} group={HEX}\n9 oom id={OTHER}\n"
    )
    of_group = pycgpu.events(container=HEX, root=str(tree.root))
    assert [one.id for one in of_group] == [HEX, OTHER]
    of_member = pycgpu.events(container=OTHER, root=str(tree.root))
    assert [one.kind for one in of_member] == ["create", "oom"]


def test_usage_names_each_container_on_each_card(tree: CoreTree) -> None:
    found = pycgpu.usage(0.01, str(tree.root))
    assert sorted((one.container, one.card) for one in found) == [(HEX, 0), (HEX, 1), (OTHER, 0)]
    held = {(one.container, one.card): one.byte_seconds for one in found}
    assert held[HEX, 0] > 0 and {one.joules for one in found} == {None}


def test_without_a_door_each_call_says_so(tmp_path: Path) -> None:
    root = str(tmp_path / "absent")
    for call in (pycgpu.cards, pycgpu.containers):
        with pytest.raises(pycgpu.ModuleNotLoaded):
            call(root)
    with pytest.raises(pycgpu.ModuleNotLoaded):
        pycgpu.events(root=root)


def test_the_stub_names_what_is_there_and_nothing_else() -> None:
    stub = ast.parse((REPOSITORY / "pycgpu/__init__.pyi").read_text())
    named = {
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == set(dir(pycgpu)) - {"__version__"}
    for name in named:
        assert name is not None and getattr(pycgpu, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pycgpu.nothing  # type: ignore[attr-defined]


def test_importing_the_package_or_a_part_of_it_loads_no_interface() -> None:
    program_text = (
        "import sys, pycgpu; from pycgpu import errors;"
        "print('pycgpu.api' in sys.modules, 'dataclasses' in sys.modules);"
        "pycgpu.cards; print('pycgpu.api' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program_text}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False", "True"]


@pytest.mark.parametrize("name", ["watch.py", "share.py", "follow.py"])
def test_the_documents_examples_run(tree: CoreTree, tmp_path: Path, name: str) -> None:
    text = (REPOSITORY / "docs/python.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    found = [block for block in blocks if block.startswith(f"# {name}\n")]
    assert len(found) == 1
    script = tmp_path / name
    # The documents' calls name no tree: the one that is open is this one here.
    script.write_text(
        f"from pycgpu.tree import procfs\nprocfs.KERNEL_DOOR = {str(tree.root)!r}\n" + found[0]
    )
    done = subprocess.run(
        [sys.executable, script, "4712"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
