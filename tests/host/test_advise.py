# SPDX-License-Identifier: MIT
"""``cgpu advise``: the model's rules for any figures, and the command against text of the core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pycgpu.cli import advise as command
from pycgpu.cli import main
from pycgpu.tree import advice, contender, group, nvml, snapshot
from pycgpu.tree.advice import Advice, Declined
from pycgpu.tree.contender import Contender, Owner
from pycgpu.tree.nvml_load import Load
from pycgpu.tree.snapshot import CardView
from tests.host import program
from tests.host.coretree import GIB, CoreTree
from tests.host.nvml import make_library

S = 10**9
ALICE, BOB = Owner("user 1000", 1000), Owner("user 1001", 1001)
PARTS = st.floats(0, 1)


def one(id: str, used: float | None, waited: float | None, **told: Any) -> Contender:
    return Contender(id, id, told.pop("owner", ALICE), used, waited, **told)


@st.composite
def contenders(draw: st.DrawFn) -> list[Contender]:
    """Containers of two users on a card: together they have it for no longer than there is."""
    found: list[Contender] = []
    left = 1.0
    for index in range(draw(st.integers(0, 6))):
        used = draw(st.floats(0, left))
        left -= used
        told = draw(st.none() | st.floats(0, 1))
        found.append(
            one(
                f"c{index}",
                used,
                draw(st.floats(0, 1 - used)),
                owner=draw(st.sampled_from((ALICE, BOB, None))),
                busy=told,
                is_group=draw(st.booleans()),
                priority=draw(st.integers(0, 1)),
            )
        )
    return found


LOADS = st.builds(Load, st.none() | PARTS, st.none() | PARTS, st.none() | PARTS)


# ---- the rules


@given(contenders(), LOADS)
def test_each_container_is_advised_or_declined_and_never_both(
    found: list[Contender], load: Load
) -> None:
    advised, declined = advice.advise(found, load)
    told = [member.id for each in advised for member in each.members]
    told += [each.contender.id for each in declined]
    assert sorted(told) == [each.id for each in found]
    assert all(each.reason for each in declined)


@given(contenders(), LOADS)
def test_a_gain_has_bounds_that_no_group_of_so_many_exceeds(
    found: list[Contender], load: Load
) -> None:
    for each in advice.advise(found, load)[0]:
        assert 1 <= each.gain.least <= each.gain.most <= len(each.members) + 1e-9
        assert 0 <= each.filled.least <= each.filled.most <= 1
        assert each.gain.most >= advice.GAIN_MIN


@given(contenders(), LOADS)
def test_a_group_is_one_owners_and_takes_who_waits(found: list[Contender], load: Load) -> None:
    for each in advice.advise(found, load)[0]:
        assert len(each.members) >= 2
        assert {member.owner for member in each.members} == {each.owner}
        assert len({member.priority for member in each.members}) == 1
        assert sum(member.is_group for member in each.members) <= 1
        assert all((member.waited or 0) >= advice.WAITED_MIN for member in each.members)


@given(contenders(), LOADS)
def test_the_order_of_the_containers_decides_nothing(found: list[Contender], load: Load) -> None:
    def bounds(order: list[Contender]) -> dict[frozenset[str], Any]:
        told = advice.advise(order, load)[0]
        return {
            frozenset(m.id for m in each.members): pytest.approx(each.gain.most) for each in told
        }

    forth, back = bounds(found), bounds(found[::-1])
    # Sums in another order may end on the other side of what is worth it, and of groups that used
    # the card alike the first is the one that is joined.
    assume(len({each.used for each in found}) == len(found))
    assume(all(abs(each.expected - advice.GAIN_MIN) > 1e-9 for each in (forth | back).values()))
    assert {members: each.expected for members, each in forth.items()} == back


@given(contenders(), LOADS)
def test_figures_that_are_missing_only_widen_the_bounds(found: list[Contender], load: Load) -> None:
    known = {
        frozenset(m.id for m in each.members): each.gain for each in advice.advise(found, Load())[0]
    }
    for each in advice.advise(found, load)[0]:
        wide = known[frozenset(m.id for m in each.members)]
        assert wide.least <= each.gain.least + 1e-9
        assert each.gain.most <= wide.most + 1e-9


@given(st.integers(2, 20), st.floats(0.01, 1))
def test_of_containers_that_always_work_a_group_does_n_or_one_by_what_they_fill(
    count: int, filled: float
) -> None:
    found = [one(str(index), 1 / count, 1 - 1 / count) for index in range(count)]
    expected = min(count, 1 / filled)
    advised, declined = advice.advise(found, Load(kernels=1.0, sms=filled, filled=filled))
    if expected < advice.GAIN_MIN - 1e-9:
        assert not advised and "fill the card" in declined[0].reason
    elif expected > advice.GAIN_MIN + 1e-9:
        assert [each.gain for each in advised] == [
            pytest.approx((max(1, advice.KEPT * expected), expected))
        ]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_card_that_is_filled_more_never_gives_more(less: float, more: float) -> None:
    less, more = sorted((less, more))
    found = [one("a", 0.5, 0.5), one("b", 0.5, 0.5)]

    def gain(part: float) -> float:
        return max(
            (each.gain.most for each in advice.advise(found, Load(filled=part))[0]), default=1
        )

    assert gain(more) <= gain(less)


def test_the_bounds_are_of_what_the_members_alone_can_have_filled() -> None:
    """A trainer of another user fills its half of the card; the servers are small in theirs."""
    found = [
        one("s1", 0.25, 0.75),
        one("s2", 0.25, 0.75),
        one("train", 0.5, 0.5, owner=BOB, busy=0.5),
    ]
    (each,), (other,) = advice.advise(found, Load(kernels=0.95, sms=0.6, filled=0.55))
    assert each.filled == pytest.approx((0.1, 1.0))
    assert each.gain == pytest.approx((1.0, 2.0))
    assert other.reason.startswith("no other of user 1001 waits")


def test_kernels_of_the_members_bound_what_they_fill_where_nothing_else_is_told() -> None:
    found = [one(id, 0.5, 0.5, busy=0.2) for id in "ab"]
    (each,), _ = advice.advise(found, Load())
    assert each.filled == pytest.approx((0, 0.4)) and each.gain == pytest.approx(
        (2 * advice.KEPT, 2)
    )


def test_waiting_for_others_is_not_gained_by_a_group() -> None:
    """Two that each ran a tenth and waited for the trainer most of the time."""
    found = [one("a", 0.1, 0.1), one("b", 0.1, 0.1), one("train", 0.8, 0.0, owner=BOB)]
    (each,), _ = advice.advise(found, Load())
    # Each waited a tenth, a ninth of it for the other.
    assert each.gain.most == pytest.approx((0.1 + 0.1 / 9) / 0.1)


def test_programs_outside_of_cgpu_ran_while_all_containers_waited() -> None:
    found = [one(id, 0.2, 0.8) for id in "ab"]
    (each,), _ = advice.advise(found, Load(filled=0.7))
    # Theirs are three fifths of the time: the containers fill the rest of 0.7 at least.
    assert each.filled == pytest.approx((0.25, 1)) and each.gain.most == pytest.approx(2)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([one("a", 1.0, 0.0)], "waits for 0.0% of the time"),
        ([one("a", 0.5, 0.5)], "no other of user 1000 waits"),
        ([one("a", None, None)], "has no figures"),
        ([one("a", 0.5, 0.5, owner=None)], "its user is not known"),
        ([one("a", 0.0, 0.5)], "had no time on the card"),
        ([one("a", 0.5, 0.5, priority=1), one("b", 0.5, 0.5)], "no other of user 1000 waits"),
        ([one("a", 0.5, 0.5, cards=(0, 1)), one("b", 0.5, 0.5, cards=(0,))], "no other of user"),
        ([one("a", 0.3, 0.5, is_group=True), one("b", 0.5, 0.5, is_group=True)], "is a group"),
        # Both wait for a third.
        ([one("a", 0.02, 0.02), one("b", 0.02, 0.02), one("c", 0.9, 0, owner=BOB)], "at most 1.02"),
    ],
)
def test_who_gains_nothing_is_told_why(found: list[Contender], reason: str) -> None:
    advised, declined = advice.advise(found, Load())
    assert advised == [] and any(reason in each.reason for each in declined)


# ---- from the tree


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    return CoreTree(tmp_path / "tree", [(16 * GIB, 0)], features=("MEMORY", "SLICES", "GATE"))


def run_as(prefix: Path, pid: int, uid: int) -> None:
    directory = prefix / "proc" / str(pid)
    directory.mkdir(parents=True)
    (directory / "status").write_text(f"Name:\tx\nUid:\t0\t{uid}\t{uid}\t{uid}\nGid:\t0\n")


def add(
    tree: CoreTree, prefix: Path, id: str, pid: int, uid: int, *clauses: str, inside: int = 0
) -> None:
    made = tree.create(id, f"gpu=0,mem={GIB}", *clauses)
    made.hold(0, pid, inside or pid, 1 << 20, "serve")
    if "group=chat" not in clauses or id == "chat":
        made.count(0, granted_ns=S, used_ns=S, throttled_ns=0, waited_ns=S)
    run_as(prefix, pid, uid)


def read(tree: CoreTree, prefix: Path, **told: Any) -> list[Contender]:
    """Everybody had a quarter of the time and waited for a half."""
    tree.write()
    after, before = {}, {}
    for each in tree.containers.values():
        counts = each.stats.get(0, {})
        before[0, each.name] = (0, counts)
        grown = {"granted_ns": S, "used_ns": S // 4, "throttled_ns": 0, "waited_ns": S // 2}
        after[0, each.name] = (S, {key: counts[key] + grown[key] for key in counts})
    moment = snapshot.take(
        str(tree.root), before=before, after=after, boards=nvml.Nvml(), prefix=str(prefix)
    )
    groups = str(prefix / "groups")
    return contender.of_card(moment, 0, told.get("processes"), prefix=str(prefix), groups=groups)


def test_whose_a_container_is_follows_its_processes(tree: CoreTree, tmp_path: Path) -> None:
    add(tree, tmp_path, "a", 4711, 1000)
    add(tree, tmp_path, "b", 4712, 1000, inside=7)
    pod = "0" * 64
    add(tree, tmp_path, pod, 4713, 1000, inside=7)
    logs = tmp_path / "var/log/containers"
    logs.mkdir(parents=True)
    (logs / f"llm-0_blue_server-{pod}.log").symlink_to("/nowhere")
    add(tree, tmp_path, "c", 4714, 0)
    tree.containers["c"].hold(0, 4711, 4711, 1 << 20, "another's")
    owners = {each.id: each.owner for each in read(tree, tmp_path)}
    assert owners == {
        "a": ALICE,
        "b": Owner("containers of user 1000", 1000),
        pod: Owner("namespace blue", 1000),
        "c": None,
    }


def test_a_group_is_one_with_its_members_kernels_and_its_own_owner(
    tree: CoreTree, tmp_path: Path
) -> None:
    add(tree, tmp_path, "chat", 5000, 1000, "group=chat")
    add(tree, tmp_path, "m", 5001, 1000, "group=chat")
    add(tree, tmp_path, "a", 4711, 1000)
    place = Path(group.pipe("chat", str(tmp_path / "groups")))
    place.parent.mkdir(parents=True)
    (place.parent / "owner").write_text("user 1000\n1000")
    found = read(tree, tmp_path, processes={5001: 0.1, 4711: 0.2, 9: 0.9})
    told = [(each.id, each.is_group, each.busy) for each in found]
    assert told == [("a", False, 0.2), ("chat", True, 0.1)]
    assert found[1].owner == Owner("user 1000", 1000)


def test_kernels_of_processes_by_another_namespaces_numbers_are_not_told(
    tree: CoreTree, tmp_path: Path
) -> None:
    add(tree, tmp_path, "a", 4711, 1000)
    assert [each.busy for each in read(tree, tmp_path, processes={7: 0.9})] == [None]


def test_a_container_that_never_ran_has_used_nothing_where_there_is_a_log(
    tree: CoreTree, tmp_path: Path
) -> None:
    add(tree, tmp_path, "a", 4711, 1000)
    add(tree, tmp_path, "b", 4712, 1000)
    tree.containers["b"].stats[0]["used_ns"] = 0
    tree.write()
    counts = tree.containers["a"].stats[0]
    still = tree.containers["b"].stats[0]
    grown = counts | {"used_ns": counts["used_ns"] + S // 2}
    moment = snapshot.take(
        str(tree.root),
        before={(0, "a"): (0, counts), (0, "b"): (0, still)},
        after={(0, "a"): (S, grown), (0, "b"): (S, still)},
        boards=nvml.Nvml(),
        prefix=str(tmp_path),
    )
    found = contender.of_card(moment, 0, None, prefix=str(tmp_path))
    assert [(each.used, each.waited) for each in found] == [(0.5, 0.0), (0.0, 0.0)]


# ---- the command


#: Long enough that a busy host neither begins after its middle nor counts after its end.
SAMPLE_S = 4


def work(tree: CoreTree, used: float, waited: float) -> threading.Timer:
    """In the middle of SAMPLE_S, all have worked for so many seconds more."""

    def count() -> None:
        for each in tree.containers.values():
            stats = each.stats[0]
            each.count(
                0,
                granted_ns=stats["granted_ns"] + S,
                used_ns=stats["used_ns"] + int(used * S),
                waited_ns=stats["waited_ns"] + int(waited * S),
            )
        tree.write()

    timer = threading.Timer(SAMPLE_S / 2, count)
    timer.start()
    return timer


def ours(tree: CoreTree, *names: str) -> None:
    """Containers of a process that is there: this one."""
    for name in names:
        made = tree.create(name, f"gpu=0,mem={GIB}")
        made.hold(0, os.getpid(), os.getpid(), 1 << 20, "serve")
        made.count(0, granted_ns=S, used_ns=S, throttled_ns=0, waited_ns=S)
    tree.write()


def cgpu(*args: object) -> program.Result:
    return program.run(main.app, "advise", *args)


def test_a_group_is_shown_with_gain_cost_and_command(tree: CoreTree) -> None:
    ours(tree, "a", "b")
    timer = work(tree, 0.5, 0.5)
    result = cgpu("--for", f"{SAMPLE_S}s", "--root", tree.root)
    timer.join()
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"GPU 0: a, b of user {os.geteuid()} would do 1.0 to 2.0 times")
    assert lines[1].split() == ["CONTAINER", "USED%", "WAITED%", "KERNELS%"]
    assert lines[2].split()[0] == "a" and lines[2].split()[3] == "-"
    assert "  start them again with: sudo cgpu run --group NAME ..." in lines
    assert any("NVML does not tell" in line for line in lines)
    assert "illegal access of one ends all" in result.stdout
    assert lines[-1].startswith("Model: the gain is a model's, and no promise")


def test_nothing_to_advise_is_one_line_with_the_figures(tree: CoreTree) -> None:
    ours(tree, "a", "b")
    timer = work(tree, 0.5, 0.0)
    result = cgpu("--for", SAMPLE_S, "--root", tree.root)
    timer.join()
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"GPU 0: nothing to advise after {SAMPLE_S} s: a (used ")
    assert "waited 0.0%) waits for 0.0% of the time" in line and "; b (used " in line


def test_a_card_without_figures_is_told_at_once(tree: CoreTree, tmp_path: Path) -> None:
    assert cgpu("--for", "1h", "--root", tree.root).stdout == (
        "GPU 0: nothing to advise: it has no containers\n"
    )
    tree.create("a", f"gpu=0,mem={GIB}")
    tree.write()
    # Nothing is waited for, because nothing would be told.
    (line,) = cgpu("--for", "1h", "--root", tree.root).stdout.splitlines()
    assert "a has no figures: it came meanwhile, its card is not scheduled" in line


def test_json_has_the_bounds_and_what_was_not_told(tree: CoreTree) -> None:
    ours(tree, "a", "b")
    timer = work(tree, 0.5, 0.5)
    document = json.loads(cgpu("--for", f"{SAMPLE_S}s", "--json", "--root", tree.root).stdout)
    timer.join()
    assert document["schema"] == command.SCHEMA and document["sample_s"] == SAMPLE_S
    (card,) = document["gpus"]
    (found,) = card["groups"]
    assert found["members"] == ["a", "b"] and found["group"] is None
    assert found["gain"] == [1.0, pytest.approx(2.0, abs=0.01)]
    assert "kernels by process" in card["missing"] and card["sms"] is None
    assert len(document["costs"]) == 3 and card["declined"] == []


@pytest.mark.parametrize("text", ["0", "off", "61m", "x", "-1", "1.5", ""])
def test_a_time_that_is_none_is_refused_in_words(tree: CoreTree, text: str) -> None:
    result = cgpu(f"--for={text}", "--root", tree.root)
    assert result.returncode == 2
    assert "write 1s to 1h, such as 60s or 5m" in " ".join(result.stderr.split())


def test_a_tree_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = cgpu("--root", tmp_path / "none")
    assert result.returncode == 1 and result.stderr.count("\n") == 1


def shown(contenders: list[Contender], view: CardView) -> list[str]:
    """What is printed of a card of which NVML tells nothing."""
    load = Load()
    card = command._Card(view, contenders, load, *advice.advise(contenders, load))
    lines: list[str] = command._lines(card, 60, None)
    return lines


@pytest.mark.parametrize(
    ("owner", "name", "line"),
    [
        (
            "containers of user 1000",
            "chat",
            "docker run --runtime cgpu --annotation cgpu.io/group=",
        ),
        ("namespace blue", "blue.llm.v2", "annotation cgpu.io/group: llm.v2 in each pod"),
        ("user 1000", "chat", "sudo cgpu run --group chat ..."),
    ],
)
def test_members_join_the_group_that_is_there(
    tree: CoreTree, owner: str, name: str, line: str
) -> None:
    found = [
        one(name, 0.5, 0.5, owner=Owner(owner, 1000), is_group=True),
        one("c", 0.3, 0.7, owner=Owner(owner, 1000), idle_park_s=600),
    ]
    (view,) = snapshot.take(str(tree.root), boards=nvml.Nvml(), prefix="/nowhere").cards
    lines = shown(found, view)
    assert lines[0].endswith(f" as much in the group {name}")
    assert any(f"start them again with: {line}" in each for each in lines)
    assert "  no member is parked when idle: leave that out for c" in lines


def test_the_server_needs_room_that_nobody_was_promised(tree: CoreTree) -> None:
    tree.create("all", f"gpu=0,mem={16 * GIB - (1 << 20)}")
    (view,) = snapshot.take(str(tree.root), boards=nvml.Nvml(), prefix="/nowhere").cards
    lines = shown([one("a", 0.5, 0.5), one("b", 0.5, 0.5)], view)
    assert any("needs 512 MiB of the card, and 1 MiB are not promised" in line for line in lines)


# ---- NVML

#: Prints what two looks see.
LOOK = """
from pycgpu.tree.nvml_load import Sampler
sampler = Sampler(["GPU-00000000-0000-0000-0000-000000000001"])
sampler.look()
sampler.look()
print(sampler.end(), sampler.why)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_library(tmp_path_factory.mktemp("nvml"))


@pytest.mark.parametrize(
    ("environment", "load"),
    [
        ({}, Load(0.87)),
        # Of metrics that a board has not, the others are taken.
        ({"NVML_GPM": "2 48 3 12 10 21 5 17"}, Load(0.87, 0.48, 0.21)),
        ({"NVML_GPM": "2 48 10 21"}, Load(0.87, 0.48, None)),
        ({"NVML_PROCESSES": "4711 40 4712 8"}, Load(0.87, processes={4711: 0.4, 4712: 0.08})),
        ({"NVML_PROCESSES": ""}, Load(0.87, processes={})),
    ],
)
def test_a_board_is_sampled_for_as_much_as_it_tells(
    library: Path, environment: dict[str, str], load: Load
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | {"LD_LIBRARY_PATH": str(library)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found, _, why = done.stdout.strip().rpartition(" ")
    assert (found, why) == (
        repr({"GPU-00000000-0000-0000-0000-000000000001": load}),
        "None",
    )


def test_a_host_without_nvml_is_told_why(library: Path, tmp_path: Path) -> None:
    (tmp_path / "nvml").write_text("down")
    environment = {"LD_LIBRARY_PATH": str(library), "NVML_STATE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "{} NVML: driver not loaded"


def test_what_is_declined_names_those_that_wait_most() -> None:
    found = [Declined(one(str(index), 0.1, index / 100), "x") for index in range(8)]
    line = command._refused(found)
    assert line.startswith("7 (used 10.0%, waited 7.0%) x; 6 ") and line.endswith("; and 3 more")


def test_an_advice_names_the_group_to_join() -> None:
    bounds = advice.Bounds(1, 2)
    members = (one("a", 0.5, 0.5), one("g", 0.5, 0.5, is_group=True))
    assert Advice(members, ALICE, bounds, bounds).group == members[1]
    assert Advice(members[:1], ALICE, bounds, bounds).group is None
