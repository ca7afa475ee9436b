# SPDX-License-Identifier: MIT
"""What containers had of cards: divided between readings, recorded, and billed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pycgpu.cli import main
from pycgpu.errors import CgpuError
from pycgpu.tree import procfs, snapshot, usage, usage_log
from pycgpu.tree.nvml import Board, Nvml
from pycgpu.tree.recorder import Recorder
from pycgpu.tree.usage import Reading, Spent
from tests.host import program
from tests.host.coretree import GIB, CoreTree

MIB = 1 << 20
S = 10**9
HOUR = 3600 * S
#: 2026-11-01T00:00:00 UTC
START = 1_793_491_200 * S
#: What an A10 has for mGPU, by Volcengine's document.
A10_BYTES = 22731 * MIB


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    return CoreTree(tmp_path / "tree", [(16 * GIB, 0)], features=("MEMORY", "SLICES", "GATE"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "usage"


@pytest.fixture
def writer(directory: Path) -> Iterator[usage_log.Writer]:
    made = usage_log.Writer(str(directory))
    yield made
    made.close()


def read(tree: CoreTree, at_ns: int, joules: float | None = None) -> Reading:
    tree.write()
    board = Board("x", 0, "NVIDIA A10", *(None,) * 6, energy_j=joules)
    uuid = (tree.root / "0/uuid").read_text().strip()
    boards = Nvml((board._replace(uuid=uuid),))
    taken = snapshot.take(str(tree.root), boards=boards, prefix="/nowhere")
    (reading,) = usage.readings(taken, START + at_ns, at_ns)
    return reading


def cgpu(*args: object) -> program.Result:
    return program.run(main.app, "usage", *args)


def rows(directory: Path, *args: object, **options: str) -> list[dict[str, Any]]:
    period = {"since": "2026-11-01", "until": "2026-11-02", **options}
    words = [f"--{key}={value}" for key, value in period.items()]
    result = cgpu("--json", "--directory", directory, *words, *args)
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def by_id(spent: list[Spent]) -> dict[str | None, Spent]:
    return {one.id: one for one in spent}


# ---- between two readings


def test_a_members_part_is_one_of_its_groups(tree: CoreTree) -> None:
    tree.create("chat", f"gpu=0,mem={GIB}", "group=chat")
    tree.create("one", f"gpu=0,mem={GIB},weight=4", "group=chat")
    tree.create("two", f"gpu=0,mem={GIB},quota=25", "group=chat")
    found = {one.id: one.core for one in read(tree, 0).containers}
    assert found == {"chat": 0.25, "one": 0, "two": 0}


def test_parts_and_what_is_nobodys_add_up_to_the_cards_own_figures(tree: CoreTree) -> None:
    one = tree.create("one", f"gpu=0,mem={4 * GIB}").hold(0, 7, 7, GIB, "a")
    two = tree.create("two", f"gpu=0,mem={4 * GIB}").hold(0, 8, 8, 3 * GIB, "b")
    for container in (one, two):
        container.count(0, granted_ns=0, used_ns=0, throttled_ns=0, waited_ns=0)
    tree.stats[0] = {"used_ns": 100}
    before = read(tree, 0, 1000.0)
    one.count(0, granted_ns=3 * S, used_ns=3 * S, throttled_ns=S, waited_ns=2 * S)
    two.count(0, granted_ns=6 * S, used_ns=5 * S, throttled_ns=0, waited_ns=0)
    tree.stats[0] = {"used_ns": 100 + 8 * S}
    whole, parts = usage.between(before, read(tree, 10 * S, 3000.0))
    found = by_id(parts)
    assert [found[id].sums.joules for id in ("one", "two")] == [600, 1000]
    # two seconds of ten nobody ran: their energy is nobody's
    assert whole.sums.joules == 2000
    assert whole.sums.used_ns == sum(part.sums.used_ns or 0 for part in parts) == 8 * S
    assert whole.sums.granted_ns == 9 * S and whole.sums.waited_ns == 2 * S
    assert found["one"].sums.throttled_ns == S
    assert whole.sums.byte_seconds == sum(part.sums.byte_seconds for part in parts)
    assert found["two"].sums.byte_seconds == 3 * GIB * 10


def test_memory_of_a_container_that_goes_while_its_card_is_read_is_nobodys(
    tree: CoreTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card's node was read with it, its own nodes no more."""
    tree.create("one", f"gpu=0,mem={4 * GIB}").hold(0, 7, 7, GIB, "a")
    tree.create("guest", f"gpu=0,mem={4 * GIB}").hold(0, 8, 8, 3 * GIB, "b")
    readings = [read(tree, 0)]
    names = procfs.container_names

    def gone(card: int, root: str) -> list[str]:
        tree.destroy("guest")
        tree.write()
        return names(card, root)

    with monkeypatch.context() as patch:
        patch.setattr(procfs, "container_names", gone)
        readings.append(read(tree, 10 * S))
    readings.append(read(tree, 20 * S))
    for before, after in pairwise(readings):
        whole, parts = usage.between(before, after)
        assert whole.sums.byte_seconds == sum(part.sums.byte_seconds for part in parts)


def test_one_that_came_and_one_that_went_have_their_own_time_and_the_rest_of_the_cards(
    tree: CoreTree,
) -> None:
    tree.create("goes", f"gpu=0,mem={GIB}").hold(0, 7, 7, GIB, "a").count(0, used_ns=S)
    tree.create("stays", f"gpu=0,mem={GIB}").count(0, used_ns=0, granted_ns=0)
    tree.stats[0] = {"used_ns": S}
    before = read(tree, 0, 0.0)
    tree.destroy("goes")
    tree.create("comes", f"gpu=0,mem={GIB}").count(0, used_ns=2 * S)
    tree.containers["stays"].count(0, used_ns=3 * S, granted_ns=3 * S)
    tree.stats[0] = {"used_ns": 10 * S}
    after = read(tree, 10 * S, 100.0)
    came = {"comes": START + 6 * S, "flash": START + 7 * S}
    went = {"goes": START + 2 * S, "flash": START + 9 * S}
    whole, parts = usage.between(before, after, came, went)
    found = by_id(parts)
    assert {id: round(one.sums.seconds, 6) for id, one in found.items()} == {
        "goes": 2,
        "comes": 4,
        "stays": 10,
        "flash": 2,
    }
    # of the card's 9 s two are known: the rest was theirs who are gone
    assert [found[id].sums.used_ns for id in ("goes", "flash")] == pytest.approx([2 * S] * 2)
    assert [found[id].sums.granted_ns for id in ("goes", "flash")] == pytest.approx([2 * S] * 2)
    assert whole.sums.used_ns == 9 * S
    assert sum(one.sums.used_ns or 0 for one in parts) == pytest.approx(9 * S)
    assert sum(one.sums.joules or 0 for one in parts) == pytest.approx(90)
    # nobody saw what it was promised
    assert found["flash"].billed_part == 0


def test_counters_that_begin_anew_are_counted_from_zero(tree: CoreTree) -> None:
    one = tree.create("one", f"gpu=0,mem={GIB}").count(0, used_ns=50 * S)
    tree.stats[0] = {"used_ns": 50 * S}
    before = read(tree, 0, 500.0)
    one.count(0, used_ns=2 * S)
    tree.stats[0] = {"used_ns": 2 * S}
    whole, (part,) = usage.between(before, read(tree, 10 * S, 20.0))
    assert part.sums.used_ns == whole.sums.used_ns == 2 * S
    # the board's counter began anew, too
    assert whole.sums.joules is None and part.sums.joules is None


def test_what_no_door_or_board_tells_is_not_told_as_zero(tree: CoreTree) -> None:
    tree.create("one", f"gpu=0,mem={GIB}")
    whole, (part,) = usage.between(read(tree, 0), read(tree, S))
    assert (
        whole.sums.used_ns is whole.sums.joules is part.sums.used_ns is part.sums.waited_ns is None
    )
    assert part.sums.seconds == 1


def group_of_two(tree: CoreTree, weight: int = 4) -> None:
    tree.create("chat", f"gpu=0,mem={GIB},weight={weight}", "group=chat").count(0, used_ns=0)
    tree.create("one", f"gpu=0,mem={4 * GIB}", "group=chat").hold(0, 7, 7, GIB, "a")
    tree.create("two", f"gpu=0,mem={2 * GIB}", "group=chat")
    tree.stats[0] = {"used_ns": 0}


def test_a_groups_time_is_its_leaders_and_a_members_memory_its_own(tree: CoreTree) -> None:
    group_of_two(tree)
    tree.create("other", f"gpu=0,mem={GIB}").count(0, used_ns=0)
    before = read(tree, 0, 0.0)
    tree.containers["chat"].count(0, used_ns=4 * S)
    # Its time is not that of a member which ends meanwhile.
    tree.destroy("two")
    tree.destroy("other")
    tree.stats[0] = {"used_ns": 5 * S}
    _, parts = usage.between(before, read(tree, 10 * S, 1000.0), None, {"two": START + 5 * S})
    found = by_id(parts)
    used = {id: one.sums.used_ns for id, one in found.items()}
    assert used == {"chat": 4 * S, "one": None, "two": None, "other": S}
    assert [found[id].sums.joules for id in ("chat", "one", "two")] == [400, 0, 0]
    assert found["one"].sums.byte_seconds == 10 * GIB
    assert found["chat"].members == ("one", "two") and not found["one"].members
    # of 16 GiB: 4 all the time, 2 for half of it
    assert found["chat"].members_part == pytest.approx(4 / 16 + 2 / 16 / 2)
    assert [found[id].group for id in ("one", "chat", "other")] == ["chat", "chat", None]


@pytest.mark.parametrize(
    ("weight", "leader"),
    # of 20: all memory is 7 of 16 GiB, so that the compute counts past that
    [(1, 1 / 16), (16, 16 / 20 - 6 / 16)],
)
def test_a_group_is_billed_as_one_container(tree: CoreTree, weight: int, leader: float) -> None:
    group_of_two(tree, weight)
    _, parts = usage.between(read(tree, 0), read(tree, HOUR))
    billed = {one.id: one.billed_part for one in parts}
    assert billed == pytest.approx({"chat": leader, "one": 4 / 16, "two": 2 / 16})
    assert sum(billed.values()) == pytest.approx(max(weight / 20, 7 / 16))


def test_a_group_with_a_member_of_the_whole_card_is_billed_the_card(tree: CoreTree) -> None:
    tree.create("chat", f"gpu=0,mem={GIB},weight=4", "group=chat")
    tree.create("one", "gpu=0,mem=max", "group=chat")
    _, parts = usage.between(read(tree, 0), read(tree, HOUR))
    assert {one.id: one.billed_part for one in parts} == {"chat": 0, "one": 1}


def test_a_group_between_two_readings_has_its_time_alone(tree: CoreTree) -> None:
    tree.stats[0] = {"used_ns": 0}
    before = read(tree, 0, 0.0)
    tree.stats[0] = {"used_ns": 3 * S}
    came, went = (dict.fromkeys(("chat", "one"), START + at * S) for at in (2, 8))
    groups = dict.fromkeys(("chat", "one"), "chat")
    _, parts = usage.between(before, read(tree, 10 * S, 10.0), came, went, groups)
    found = by_id(parts)
    assert {id: one.sums.used_ns for id, one in found.items()} == {"chat": 3 * S, "one": None}
    assert found["chat"].members == ("one",)
    assert all(one.billed_part == 0 for one in parts)


# ---- billing


@pytest.mark.parametrize(
    ("settings", "billed"),
    [
        # mgpu-core 30, mgpu-memory 4096 of an A10, of which an hour counts 10: the document's 3
        (f"mem={4096 * MIB},quota=30,policy=6", 3.0),
        (f"mem={4096 * MIB},quota=10,policy=6", 10 * 4096 / 22731),
        (f"mem={4096 * MIB},quota_min=40,policy=8", 4.0),
        (f"mem={4096 * MIB},weight=10", 5.0),
        ("mem=max", 10.0),
    ],
)
def test_an_hour_of_a_part_of_a_card_is_billed_as_the_document_says(
    tmp_path: Path, directory: Path, writer: usage_log.Writer, settings: str, billed: float
) -> None:
    tree = CoreTree(tmp_path / "tree", [(A10_BYTES, 0)])
    tree.create("job", f"gpu=0,{settings}")
    _, (part,) = usage.between(read(tree, 0), read(tree, HOUR))
    writer.append([usage_log.Line(START, START + HOUR, part)])
    (tmp_path / "cards.toml").write_text('["NVIDIA A10"]\nunits = 10\n')
    (row,) = rows(directory, "--cards", tmp_path / "cards.toml")
    assert row["gpu_hours"] == pytest.approx(billed, abs=1e-5)
    (row,) = rows(directory, "--cards", tmp_path / "none.toml")
    assert row["gpu_hours"] == pytest.approx(billed / 10, abs=1e-5)


# ---- the record


def line(begin_s: int, end_s: int, seconds: float | None = None, id: str = "job") -> usage_log.Line:
    sums = usage.Sums(end_s - begin_s if seconds is None else seconds, 0.0, used_ns=float(S))
    spent = Spent(0, "GPU-1", None, GIB, id, None, 1.0, GIB, sums)
    return usage_log.Line(START + begin_s * S, START + end_s * S, spent)


def test_a_period_takes_of_each_line_what_overlaps_it(
    directory: Path, writer: usage_log.Writer
) -> None:
    writer.append([line(0, 3600), line(3600, 7200)])
    (row,) = rows(directory, since="2026-11-01T00:30", until="2026-11-01T01:30")
    assert (row["seconds"], row["used_s"], row["gpu_hours"]) == (3600, 1, 1)
    assert rows(directory, since="2026-11-01T02:00") == []


def test_a_line_of_before_groups_is_read(directory: Path, writer: usage_log.Writer) -> None:
    writer.append([line(0, 3600)])
    (path,) = directory.iterdir()
    old = json.loads(path.read_text())
    assert {old.pop(key) is None for key in ("group", "members", "members_part")} == {True, False}
    path.write_text(json.dumps(old) + "\n")
    (row,) = rows(directory)
    assert (row["gpu_hours"], row["group"], row["members"]) == (1, None, [])


def test_a_line_that_a_crash_cut_short_costs_itself_alone(
    directory: Path, writer: usage_log.Writer
) -> None:
    writer.append([line(0, 60)])
    (path,) = directory.iterdir()
    whole = path.read_text()
    for length in range(1, len(whole) - 1, 7):
        path.write_text(whole + whole[:length])
        writer.append([line(60, 120)])
        (row,) = rows(directory)
        assert row["seconds"] == 120, length


def test_a_clock_that_is_set_changes_no_length(directory: Path, writer: usage_log.Writer) -> None:
    # set back by half an hour, and forward by a day
    writer.append([line(3600, 1860, seconds=60), line(1860, 86400, seconds=60, id="two")])
    found = rows(directory, until="2026-11-03")
    assert {row["id"]: row["seconds"] for row in found} == {"job": 60, "two": 60}
    assert [row["id"] for row in rows(directory, until="2026-11-01T00:40")] == ["job"]


def test_the_record_is_roots_alone_and_old_days_go(
    directory: Path, writer: usage_log.Writer
) -> None:
    writer.append([line(0, 60)])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    days = usage_log.KEPT_DAYS
    writer.append([line(days * 86400 + 3600, days * 86400 + 3660)])
    assert len(list(directory.iterdir())) == 2
    writer.append([line((days + 1) * 86400, (days + 1) * 86400 + 60)])
    assert "2026-11-01.jsonl" not in {path.name for path in directory.iterdir()}


def test_two_recorders_do_not_write_one_record(directory: Path, writer: usage_log.Writer) -> None:
    with pytest.raises(CgpuError, match="another recorder"):
        usage_log.Writer(str(directory))


def test_without_a_record_one_line_says_how_to_get_one(directory: Path) -> None:
    result = cgpu("--directory", directory)
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "cgpu usage --record" in result.stderr


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "5"])
def test_what_is_no_time_is_refused(directory: Path, since: str) -> None:
    result = cgpu("--directory", directory, "--since", since)
    assert result.returncode == 1 and "is no time: write 2026-11-01" in result.stderr


# ---- the recorder


def test_a_recorder_sums_up_a_containers_life_over_its_own_restarts(
    tree: CoreTree, directory: Path
) -> None:
    one = tree.create("one", f"gpu=0,mem={4 * GIB},quota=50").hold(0, 7, 7, GIB, "a")
    for start_s in (0, 100):
        writer = usage_log.Writer(str(directory))
        recorder = Recorder(writer, str(tree.root), prefix="/nowhere")
        for second in range(start_s, start_s + 91, 5):
            one.count(0, used_ns=second * S // 2)
            tree.stats[0] = {"used_ns": second * S // 2}
            tree.write()
            recorder.sample(START + second * S, second * S)
        recorder.flush()
        writer.close()
    found = {row["kind"]: row for row in rows(directory)}
    assert found["container"]["seconds"] == found["card"]["seconds"] == 180
    assert found["container"]["used_s"] == found["card"]["used_s"] == 90
    assert found["idle"]["seconds"] == 90
    assert found["container"]["memory_gib_hours"] == pytest.approx(180 / 3600, abs=1e-6)
    assert found["container"]["gpu_hours"] == pytest.approx(0.5 * 180 / 3600, abs=1e-6)
    # about a line a minute, not one a reading
    (path,) = directory.iterdir()
    assert len(path.read_text().splitlines()) <= 8


def test_a_changed_grant_is_billed_from_then_on(tree: CoreTree, directory: Path) -> None:
    one = tree.create("one", f"gpu=0,mem={4 * GIB},quota=50")
    writer = usage_log.Writer(str(directory))
    recorder = Recorder(writer, str(tree.root), prefix="/nowhere")
    recorder.sample(START, 0)
    recorder.sample(START + 30 * S, 30 * S)
    one.create.grant[0].quota = 100
    tree.write()
    recorder.sample(START + 60 * S, 60 * S)
    recorder.flush()
    writer.close()
    (row,) = (row for row in rows(directory) if row["kind"] == "container")
    assert row["gpu_hours"] == pytest.approx((0.5 * 30 + 1.0 * 30) / 3600, abs=1e-6)


def test_a_groups_record_has_its_members_and_adds_up(tree: CoreTree, directory: Path) -> None:
    group_of_two(tree)
    writer = usage_log.Writer(str(directory))
    recorder = Recorder(writer, str(tree.root), prefix="/nowhere")
    for at_s in range(0, 181, 10):
        if at_s == 60:
            tree.destroy("two")
            tree.events = f"{START + 60 * S} destroy id=two group=chat\n"
            tree.create("three", f"gpu=0,mem={2 * GIB}", "group=chat")
            tree.events += f"{START + 60 * S} create id=three group=chat\n"
        tree.containers["chat"].count(0, used_ns=at_s * S // 2)
        tree.stats[0] = {"used_ns": at_s * S // 2}
        tree.write()
        recorder.sample(START + at_s * S, at_s * S)
    recorder.flush()
    writer.close()
    found = rows(directory)
    assert [row["id"] for row in found] == ["chat", "one", "three", "two", None, None]
    chat, one, *_, whole, _ = found
    assert chat["members"] == ["one", "three", "two"] and one["members"] == []
    assert {row["group"] for row in found[:4]} == {"chat"}
    assert chat["used_s"] == whole["used_s"] == 90 and one["used_s"] is None
    assert whole["gpu_hours"] == pytest.approx(180 / 3600 * 7 / 16, abs=1e-5)
    period = ("--since", "2026-11-01", "--until", "2026-11-02", "--directory", directory)
    table = cgpu(*period).stdout.splitlines()
    assert "of one, three, two" in table[1]
    assert table[2].split()[:4] == ["0", "one", "-", "chat"]
    comma = cgpu("--csv", *period).stdout.splitlines()
    assert comma[1].endswith(",chat,one; three; two") and comma[2].endswith(",chat,")
    both = cgpu(*period, "--container", "chat").stdout.splitlines()
    assert [line.split()[1] for line in both[1:]] == ["chat", "one", "three", "two"]


def test_containers_between_two_readings_are_found_in_the_events(
    tree: CoreTree, directory: Path
) -> None:
    writer = usage_log.Writer(str(directory))
    recorder = Recorder(writer, str(tree.root), prefix="/nowhere")
    recorder.sample(START, 0)
    tree.create("late", f"gpu=0,mem={4 * GIB},quota=50")
    tree.events = (
        f"{START - S} create id=before\n{START + S} create id=flash\n"
        f"{START + 3 * S} destroy id=flash\n{START + 4 * S} create id=late\n"
    )
    tree.write()
    recorder.sample(START + 10 * S, 10 * S)
    tree.destroy("late")
    tree.events += f"{START + 12 * S} destroy id=late\n"
    tree.write()
    recorder.sample(START + 20 * S, 20 * S)
    recorder.flush()
    writer.close()
    found = {row["id"]: row["seconds"] for row in rows(directory) if row["id"]}
    assert found == {"flash": 2, "late": 8}


def test_a_door_that_shuts_and_opens_leaves_a_gap_and_no_wrong_sum(
    tree: CoreTree, directory: Path
) -> None:
    tree.create("one", f"gpu=0,mem={GIB}")
    writer = usage_log.Writer(str(directory))
    recorder = Recorder(writer, str(tree.root), prefix="/nowhere")
    recorder.sample(START, 0)
    recorder.sample(START + 10 * S, 10 * S)
    away = tree.root.with_name("away")
    os.rename(tree.root, away)
    recorder.sample(START + 20 * S, 20 * S)
    os.rename(away, tree.root)
    recorder.sample(START + 30 * S, 30 * S)
    recorder.sample(START + 40 * S, 40 * S)
    recorder.flush()
    writer.close()
    (row,) = (row for row in rows(directory) if row["kind"] == "container")
    assert row["seconds"] == 20


def test_the_recorder_of_the_service_writes_what_it_has_when_it_is_told_to_end(
    tree: CoreTree, directory: Path
) -> None:
    tree.create("one", f"gpu=0,mem={4 * GIB},quota=50")
    command = [sys.executable, "-m", "pycgpu.cli.main", "usage", "--record", "--interval", "0.1"]
    recorder = subprocess.Popen([*command, "--root", tree.root, "--directory", directory])
    try:
        time.sleep(0.5)
        while not directory.is_dir():
            assert recorder.poll() is None
            time.sleep(0.1)
        time.sleep(1)
    finally:
        recorder.terminate()
    assert recorder.wait(20) == 0
    until = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time.time() + 5))}"
    (row,) = (row for row in rows(directory, since="5m", until=until) if row["id"])
    assert row["id"] == "one" and 0.5 < row["seconds"] < 60 and row["core"] == 0.5


# ---- what is printed


def test_the_table_and_the_csv_have_a_row_a_container_a_card_and_its_rest(
    tree: CoreTree, directory: Path, writer: usage_log.Writer
) -> None:
    one = tree.create("job-1", f"gpu=0,mem={4 * GIB}")
    one.count(0, used_ns=0)
    tree.stats[0] = {"used_ns": 0}
    before = read(tree, 0, 0.0)
    one.count(0, used_ns=HOUR // 2)
    tree.stats[0] = {"used_ns": HOUR // 2}
    whole, parts = usage.between(before, read(tree, HOUR, 360000.0))
    named = [part._replace(name="a,b\x1b[2J") for part in parts]
    writer.append([usage_log.Line(START, START + HOUR, spent) for spent in (whole, *named)])
    period = ("--since", "2026-11-01", "--until", "2026-11-02", "--directory", directory)
    lines = cgpu(*period).stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["job-1", "(all)", "(idle)"]
    # half of 100 Wh while it ran, half while nobody did
    assert [line.split()[-1] for line in lines[1:]] == ["50", "100", "50"]
    table = [line.split(",") for line in cgpu("--csv", *period).stdout.splitlines()]
    assert {len(line) for line in table} == {len(table[0])} and "\x1b" not in str(table)
    assert table[1][table[0].index("gpu_hours")] == "0.25"
    assert cgpu(*period, "--container", "job").stdout.count("\n") == 2
    assert "nothing is recorded of a container 'x'" in cgpu(*period, "--container", "x").stderr
