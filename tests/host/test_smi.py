# SPDX-License-Identifier: MIT
# ruff: noqa: E501 — the tables are as wide as they are printed
"""What cgpu-smi prints for a host, to the letter; the tree's text comes from the core itself."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pty
import pwd
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pycgpu
from pycgpu.cli import _csv, _json, _render, _table
from pycgpu.cli._screen import CONTAINER_COLUMNS, Screen
from pycgpu.cli._table import Cell, Column, Look
from pycgpu.cli.smi import app, with_interval
from pycgpu.errors import CgpuError
from pycgpu.tree import counters, nvml, process, snapshot, status
from pycgpu.tree.names import ContainerName
from pycgpu.tree.nvml import Board, Nvml
from pycgpu.tree.process import Process
from pycgpu.tree.snapshot import Share
from tests.host import program
from tests.host.coretree import GIB, CoreTree
from tests.host.nvml import make_library
from tests.process import output

HEX = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
MIB = 1 << 20
BOARD = Board(
    "GPU-00000000-0000-0000-0000-000000000001",
    *(0, "NVIDIA H200", 87, 30 * GIB, 140 * GIB, 41, 312.4, 700.0),
)
NAMES = {
    HEX: ContainerName("docker", "train"),
    OTHER: ContainerName("kubernetes", "server", "llm-0", "prod"),
}


def smi(*args: object) -> program.Result:
    return program.run(app, *args)


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    """Two cards; two containers on the first, one of them on the second too."""
    features = ("MEMORY", "SLICES", "GATE")
    made = CoreTree(tmp_path / "tree", [(16 * GIB, GIB), (16 * GIB, 0)], features=features)
    one = made.create(
        HEX,
        f"gpu=0,mem={4 * GIB},weight=3,quota=50,quota_min=10,policy=2",
        "gpu=1,mem=max,policy=0",
    )
    one.hold(0, 4711, 7, 3 * GIB, "python3").hold(0, 4712, 8, 900 * MIB, "python3")
    one.hold(1, 4711, 7, 100 * MIB, "python3")
    made.create(OTHER, f"gpu=0,mem={8 * GIB}").hold(0, 99, 0, 512 * MIB, "")
    made.write()
    return made


def moment(tree: CoreTree, **options: object) -> snapshot.Snapshot:
    taken = snapshot.take(str(tree.root), known=dict(NAMES), **options)  # type: ignore[arg-type]
    return taken._replace(time_ns=1_700_000_000 * 10**9)


def golden(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


# ---- the text


def test_the_report_of_a_host_with_nvml_and_an_engine(
    tree: CoreTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    before = {(0, HEX[:12]): (0, {"granted_ns": 0, "used_ns": 0, "throttled_ns": 0})}
    after = {(0, HEX[:12]): (10**9, {"granted_ns": 500e6, "used_ns": 498e6, "throttled_ns": 300e6})}
    taken = moment(tree, before=before, after=after, boards=Nvml((BOARD,), "580.159.04"))
    assert _render.report(taken, Look()) == golden("""
cgpu-smi 0.1.0 · module 0.1.0 · driver 580.159.04 · 2023-11-14 22:13:20
╭─────┬─────────────┬────────────┬────────────┬─────────────────────────────┬──────┬───────┬─────────────╮
│ GPU │ Name        │ Policy     │ Containers │ Used / promised / total MiB │ Util │  Temp │       Power │
├─────┼─────────────┼────────────┼────────────┼─────────────────────────────┼──────┼───────┼─────────────┤
│   0 │ NVIDIA H200 │ 2 weighted │     2 / 20 │       30720 / 12288 / 16384 │ 87 % │ 41 °C │ 312 / 700 W │
│   1 │ n/a         │ 0 average  │     1 / 20 │             100 / 0 / 16384 │  n/a │   n/a │         n/a │
╰─────┴─────────────┴────────────┴────────────┴─────────────────────────────┴──────┴───────┴─────────────╯
╭─────┬──────────────┬───────────────────┬────────────────────┬────────┬─────────┬─────────┬─────────┬────────┬───────────┬─────╮
│ GPU │ Container    │ Name              │ Memory / limit MiB │ Weight │   Quota │ Compute │ Granted │   Used │ Throttled │ OOM │
├─────┼──────────────┼───────────────────┼────────────────────┼────────┼─────────┼─────────┼─────────┼────────┼───────────┼─────┤
│   0 │ 0123456789ab │ train             │        3972 / 4096 │      3 │ 10–50 % │  50.0 % │  50.0 % │ 49.8 % │    30.0 % │   0 │
│   0 │ fedcba987654 │ prod/llm-0/server │         512 / 8192 │      1 │       – │  25.0 % │     n/a │    n/a │       n/a │   0 │
├─────┼──────────────┼───────────────────┼────────────────────┼────────┼─────────┼─────────┼─────────┼────────┼───────────┼─────┤
│   1 │ 0123456789ab │ train             │     100 / no limit │      1 │       – │   5.0 % │     n/a │    n/a │       n/a │   0 │
╰─────┴──────────────┴───────────────────┴────────────────────┴────────┴─────────┴─────────┴─────────┴────────┴───────────┴─────╯
╭─────┬──────────────┬──────┬────────────┬────────────┬─────────╮
│ GPU │ Container    │  PID │ PID inside │ Memory MiB │ Command │
├─────┼──────────────┼──────┼────────────┼────────────┼─────────┤
│   0 │ 0123456789ab │ 4711 │          7 │       3072 │ python3 │
│   0 │ 0123456789ab │ 4712 │          8 │        900 │ python3 │
│   0 │ fedcba987654 │   99 │          – │        512 │ (ended) │
├─────┼──────────────┼──────┼────────────┼────────────┼─────────┤
│   1 │ 0123456789ab │ 4711 │          7 │        100 │ python3 │
╰─────┴──────────────┴──────┴────────────┴────────────┴─────────╯
GPU 0: policy weighted as a container asks, until the last one goes
GPU 1: policy average as a container asks, until the last one goes
""")


def test_the_report_in_ascii_without_nvml_and_without_an_engine(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree")
    tree.create("job-1", f"gpu=0,mem={GIB},policy=0")
    taken = moment(tree, boards=Nvml(why="no nvidia-ml-py"))
    lines = _render.report(taken, Look(ascii=True))
    assert all(line.isascii() for line in lines)
    assert lines[1:] == golden("""
+-----+------+-----------+------------+-----------------------------+------+------+-------+
| GPU | Name | Policy    | Containers | Used / promised / total MiB | Util | Temp | Power |
+-----+------+-----------+------------+-----------------------------+------+------+-------+
|   0 | n/a  | 0 average |     1 / 20 |            0 / 1024 / 16384 |  n/a |  n/a |   n/a |
+-----+------+-----------+------------+-----------------------------+------+------+-------+
+-----+-----------+------+--------------------+--------+-------+---------+---------+------+-----------+-----+
| GPU | Container | Name | Memory / limit MiB | Weight | Quota | Compute | Granted | Used | Throttled | OOM |
+-----+-----------+------+--------------------+--------+-------+---------+---------+------+-----------+-----+
|   0 | job-1     | -    |           0 / 1024 |      1 |     - |     n/a |     n/a |  n/a |       n/a |   0 |
+-----+-----------+------+--------------------+--------+-------+---------+---------+------+-----------+-----+
no processes
name, temperature, power: n/a (no nvidia-ml-py)
GPU 0: policy average as a container asks, until the last one goes
compute: n/a (nothing enforces it: is cgpu_rm loaded?)
granted, used, throttled: n/a (the module does not tell them)
""")


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LANG": "C"}, {"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}]
)
@pytest.mark.parametrize("args", [(), ("--json",), ("-q",), ("--help",), ("-L",)])
def test_under_the_locale_c_all_is_ascii(
    tree: CoreTree, locale: dict[str, str], args: tuple[str, ...]
) -> None:
    clean = {key: text for key, text in os.environ.items() if not key.startswith(("LC_", "LANG"))}
    out = subprocess.run(
        [sys.executable, "-m", "pycgpu.cli.smi", "--root", str(tree.root), *args],
        env=clean | locale,
        capture_output=True,
        check=True,
    ).stdout
    assert out.isascii() and b"?" not in out.replace(b"[=?", b"")
    if args == ("--json",):
        assert json.loads(out)["gpus"]


def test_other_locales_have_lines_and_signs(tree: CoreTree) -> None:
    command = [sys.executable, "-m", "pycgpu.cli.smi", "--root", str(tree.root)]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    out = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert "╭─" in out.decode()


@pytest.mark.parametrize("cards", [0, 1])
def test_a_host_without_containers_or_cards_has_a_report(tmp_path: Path, cards: Any) -> None:
    result = smi("--root", CoreTree(tmp_path / "tree", [(GIB, 0)] * cards).root)
    last = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    assert ("no containers" in last) if cards else last[-1].startswith("no GPU under control")


@pytest.mark.parametrize("width", [40, 79, 80, 100, 120])
def test_a_report_fits_the_screen_from_80_columns_on(tree: CoreTree, width: Any) -> None:
    lines = _render.report(moment(tree, boards=Nvml((BOARD,))), Look(width=width))
    tables = [line for line in lines if line[0] in "│╭├╰"]
    assert max(map(_table.width_of, tables)) <= max(80, width)
    assert any("0123456789ab" in line for line in tables)


@pytest.fixture
def parked(tmp_path: Path) -> CoreTree:
    """Four containers that are not where they compute, and one that is."""
    made = CoreTree(tmp_path / "parked", features=("PARK",))
    made.create("busy", f"gpu=0,mem={4 * GIB - MIB}").hold(0, 10, 3, GIB, "python3")
    for name, state, waits, told in (
        ("chat", "parking", False, {}),
        ("eval", "resuming", True, {"return_ns": 1_440_000_000}),
        ("notebook", "parked", True, {"short_bytes": 700 * MIB}),
        ("train", "parked", False, {}),
    ):
        one = made.create(name, f"gpu=0,mem={3 * GIB},idle_park_s=300")
        one.hold(0, 11, 3, 1536 * MIB, "python3").park(state, waits, **told)
    made.write()
    return made


def for_long(taken: snapshot.Snapshot, seconds: float) -> snapshot.Snapshot:
    cards = tuple(
        card._replace(
            containers=tuple(
                one._replace(
                    state_s=None if one.state_s is None else seconds,
                    wait=one.wait and one.wait._replace(wait_s=one.wait.wait_s and 3.0),
                )
                for one in card.containers
            )
        )
        for card in taken.cards
    )
    return taken._replace(cards=cards)


def test_what_is_parked_is_told_with_its_size_and_since_when(parked: CoreTree) -> None:
    taken = for_long(moment(parked, boards=Nvml()), 59)
    lines = _render.report(taken, Look(width=80))
    assert [line for line in lines if line.startswith("│   0 │ ")][1:] == golden("""
│   0 │ busy      │ –    │          1024 / 4095 │     n/a │  n/a │   0 │
│   0 │ chat      │ –    │  parking 1536 / 3072 │     n/a │  n/a │   0 │
│   0 │ eval      │ –    │ resuming 1536 / 3072 │     n/a │  n/a │   0 │
│   0 │ notebook  │ –    │    waits 1536 / 3072 │     n/a │  n/a │   0 │
│   0 │ train     │ –    │   parked 1536 / 3072 │     n/a │  n/a │   0 │
""") + ["│   0 │ busy      │  10 │          3 │       1024 │ python3 │"]
    assert [line for line in lines if line.startswith("GPU ")] == [
        "GPU 0: chat moves to the host, 1536 MiB, for 59 s so far",
        "GPU 0: eval comes back, 1536 MiB, for 59 s so far, last return 1.4 s",
        "GPU 0: notebook waits for 3 s, 700 MiB of room are wanting: is parked for 59 s, 1536 MiB on the host",
        "GPU 0: train is parked for 59 s, 1536 MiB on the host",
    ]
    (line,) = _render.compact(taken, Look())
    assert line.endswith("busy 1024, chat parking 1536, eval resuming 1536, notebook waits 1536,"
                         " train parked 1536")  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0 s"), (119, "119 s"), (720, "12 min"), (9000, "2 h")]
)
def test_for_how_long_is_told_in_a_fitting_unit(
    parked: CoreTree, seconds: float, told: str
) -> None:
    taken = for_long(moment(parked, boards=Nvml()), seconds)
    assert f"GPU 0: train is parked for {told}, 1536 MiB on the host" in _render.notes(taken)


def test_what_is_parked_is_told_to_machines(parked: CoreTree) -> None:
    query = "container,state,parked.memory,parked.reserved,wait,wait.short,idle_park,memory.used"
    options = ("--root", parked.root)
    returns = smi("--csv", "--noheader", "--query=return.last", *options).stdout.splitlines()
    assert returns == ["[N/A]", "[N/A]", "1.4 s", "[N/A]", "[N/A]"]
    assert smi("--csv", "--noheader", f"--query={query}", *options).stdout.splitlines() == [
        "busy, running, 0 MiB, 0 MiB, 0, [N/A], 0 s, 1024 MiB",
        "chat, parking, 1536 MiB, 1536 MiB, 0, [N/A], 300 s, 0 MiB",
        "eval, resuming, 1536 MiB, 1536 MiB, 0, [N/A], 300 s, 0 MiB",
        "notebook, parked, 1536 MiB, 0 MiB, 1, 700 MiB, 300 s, 0 MiB",
        "train, parked, 1536 MiB, 0 MiB, 0, [N/A], 300 s, 0 MiB",
    ]
    cards = smi("--csv", "--noheader", "--query=gpu.parked.memory,gpu.parked.reserved", *options)
    assert cards.stdout == "3072 MiB, 3072 MiB\n"
    (card,) = json.loads(smi("--json", *options).stdout)["gpus"]
    assert card["memory"]["parked_bytes"] == card["memory"]["reserved_for_returns_bytes"] == 3 * GIB
    busy, _, back, waiting, _ = card["containers"]
    assert (busy["last_return_s"], back["last_return_s"]) == (None, 1.44)
    assert (busy["state"], busy["state_s"], busy["idle_park_s"]) == ("running", None, 0)
    assert (waiting["state"], waiting["wait"]["short_bytes"]) == ("parked", 700 * MIB)
    assert 0 <= waiting["wait"]["wait_s"] < 60 and busy["wait"] is None
    assert waiting["memory"]["parked_bytes"] == 3 * GIB // 2
    assert 0 <= waiting["state_s"] < 60 and waiting["idle_park_s"] == 300
    everything = smi("-q", "-d", "MEMORY,CONTAINERS", *options).stdout
    told = [" ".join(line.split()) for line in everything.splitlines()]
    for line in ("Parked : 3072 MiB", "State : parked", "Waits For Room : Yes", "Idle Park : 5m",
                 "Room Wanting : 700 MiB", "Last Return : 1.4 s"):  # fmt: skip
        assert line in told


def test_who_waits_for_others_or_for_a_call_is_told(parked: CoreTree) -> None:
    parked.containers["busy"].wants(want_card=0, want_bytes=300 * MIB)
    parked.containers["train"].park("parked", waits=True)
    parked.write()
    taken = for_long(moment(parked, boards=Nvml()), 59)
    told = [line for line in _render.notes(taken) if " waits" in line]
    assert told[0] == "GPU 0: busy waits, 300 MiB of room are wanting"
    assert told[2].startswith("GPU 0: train waits for 3 s until others are back: is parked for 59")
    busy = taken.cards[0].containers[0]
    assert (busy.status.state, busy.state_word) == ("running", "waits")
    assert "waits 1024 / 4095" in _render.report(taken, Look(width=80))[9]


def test_an_overcommitted_card_is_told(parked: CoreTree) -> None:
    assert not [line for line in _render.notes(moment(parked, boards=Nvml())) if "%" in line]
    (parked.root / "0/overcommit_ratio").write_text("250\n")
    taken = moment(parked, boards=Nvml())
    assert "GPU 0: limits may add up to 250 % of the card" in _render.notes(taken)
    assert _csv.rows(taken, _csv.parse_query("gpu.overcommit_ratio")) == ["250 %"]
    (card,) = _json.document(taken)["gpus"]
    assert card["memory"]["overcommit_ratio_percent"] == 250


def test_names_of_others_cannot_move_the_cursor_or_break_a_table(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree")
    tree.create(HEX, f"gpu=0,mem={GIB}").hold(0, 5, 6, 7, "a\x1b[2J\u4e16\u754c")
    tree.write()
    name = ContainerName("docker", "\x1b[31m\r\nx,y")
    taken = snapshot.take(str(tree.root), boards=Nvml(), known={HEX: name})
    lines = _render.report(taken, Look(color=False))
    assert "\x1b" not in "".join(lines) and "\r" not in "".join(lines)
    tables = [line for line in lines if line[0] in "│╭├╰"]
    assert {line[-1] for line in tables} <= set("│╮┤╯")
    (row,) = _csv.rows(taken, _csv.parse_query("container,name"))
    assert row.count(",") == 1 and row.isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\xff\xe4\xb8", "\ufffd\ufffd"),
        ("a\u20281 1 0 x", "a\u20281 1 0 x"),
        ("\x85", "\x85"),
        ("a\u2029", "a\u2029"),
    ],
)
def test_no_name_of_a_process_hides_the_others_or_adds_one(
    tree: CoreTree, name: str | bytes, shown: str
) -> None:
    """It chooses its name, of any bytes: what Python takes for the end of a line among them."""
    tree.containers[OTHER].hold(0, 4711, 7, MIB, name)
    tree.write()
    directory = tree.containers[OTHER].name
    found = status.read_procs(0, directory, str(tree.root))
    assert (4711, 7, MIB, shown) in found
    assert 1 not in [one.pid for one in found]
    with pytest.raises(CgpuError, match="is no process of"):
        process.send("TERM", 1, 0, directory, str(tree.root))
    taken = snapshot.take(str(tree.root), boards=Nvml())
    lines = [*_render.report(taken, Look()), _json.text(_json.document(taken), plain=False)]
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[-1])["gpus"]


def test_wide_characters_take_two_columns() -> None:
    lines = _table.draw([Column("A", shrink=True)], [[[Cell("世界")], [Cell("abc")]]], Look())
    assert {_table.width_of(line) for line in lines} == {8}
    assert _table.cut("世界世界", 5) == "世界…"


def test_styles_appear_only_where_colour_is_wanted(tree: CoreTree) -> None:
    taken = moment(tree, boards=Nvml((BOARD,)))
    assert "\x1b[31m" in "".join(_render.report(taken, Look(color=True)))
    assert "\x1b" not in "".join(_render.report(taken, Look()))


QUERY = ("--csv", "--noheader", "--nounits", "--query=compute.floor,compute.ceiling")


@pytest.mark.parametrize(
    ("policy", "first", "second", "limits"),
    [
        (0, "", "", ["5.0, 5.0", "5.0, 5.0"]),
        (1, "", "", ["50.0, 50.0", "50.0, 50.0"]),
        (2, "weight=3", "", ["75.0, 75.0", "25.0, 25.0"]),
        (2, "weight=3,quota=50", "", ["50.0, 50.0", "25.0, 25.0"]),
        (3, "weight=3", "", ["15.0, 15.0", "5.0, 5.0"]),
        (4, "weight=3", "", ["0.0, 100.0", "0.0, 100.0"]),
        (5, "weight=3", "", ["[N/A], [N/A]", "[N/A], [N/A]"]),
        (6, "quota=30", "", ["30.0, 30.0", "0.0, 70.0"]),
        (7, "quota=30", "", ["0.0, 30.0", "0.0, 100.0"]),
        (8, "quota_min=20,quota=60", "", ["20.0, 60.0", "0.0, 100.0"]),
        (8, "weight=0", "", ["0.0, 0.0", "0.0, 100.0"]),
    ],
)
def test_a_containers_compute_limit_is_what_its_cards_policy_makes_of_it(
    tmp_path: Path, policy: int, first: str, second: str, limits: list[str]
) -> None:
    tree = CoreTree(tmp_path / "tree", features=("MEMORY", "SLICES", "GATE"))
    for pid, id, rest in ((7, "one", first), (8, "two", second)):
        clause = f"gpu=0,mem={GIB},policy={policy},{rest}".rstrip(",")
        tree.create(id, clause).hold(0, pid, pid, 0, "python3")
    tree.write()
    assert smi(*QUERY, "--root", tree.root).stdout.splitlines() == limits


def test_one_that_holds_no_card_open_would_be_one_more_under_policy_1(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree", features=("MEMORY", "SLICES", "GATE"))
    tree.create("one", f"gpu=0,mem={GIB},policy=1").hold(0, 7, 7, 0, "python3")
    # its process has ended, and another one maps its memory
    tree.create("two", f"gpu=0,mem={GIB}").hold(0, 8, 0, MIB, "")
    tree.write()
    found = smi(*QUERY, "--root", tree.root).stdout.splitlines()
    assert found == ["100.0, 100.0", "50.0, 50.0"]
    compute = json.loads(smi("--json", "--root", tree.root).stdout)["gpus"][0]["containers"][0]
    assert {key: compute["compute"][key] for key in ("floor", "share", "ceiling")} == {
        "floor": 1.0,
        "share": 1.0,
        "ceiling": 1.0,
    }


def test_a_limit_that_nothing_enforces_is_not_shown(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree")
    tree.create("one", f"gpu=0,mem={GIB},quota=30,policy=6")
    assert smi(*QUERY, "--root", tree.root).stdout == "[N/A], [N/A]\n"


# ---- machine forms


def test_csv_has_titles_units_and_a_row_a_container_and_card(tree: CoreTree) -> None:
    out = smi("--csv", "--query=gpu,container,memory.used,memory.limit,quota", "--root", tree.root)
    assert out.stdout.splitlines() == [
        "gpu, container, memory.used [MiB], memory.limit [MiB], quota [%]",
        "0, 0123456789ab, 3972 MiB, 4096 MiB, 50 %",
        "0, fedcba987654, 512 MiB, 8192 MiB, [N/A]",
        "1, 0123456789ab, 100 MiB, [N/A], [N/A]",
    ]


def test_csv_of_the_cards_alone_has_a_row_a_card(tree: CoreTree) -> None:
    options = ("--csv", "--noheader", "--nounits", "--query=gpu,gpu.memory.total,gpu.policy")
    out = smi(*options, "--root", tree.root)
    assert out.stdout.splitlines() == ["0, 16384, weighted", "1, 16384, average"]


def test_every_field_of_a_query_can_be_had(tree: CoreTree) -> None:
    taken = moment(tree, boards=Nvml((BOARD,)))
    (first, *_) = _csv.rows(taken, _csv.parse_query(",".join(_csv.FIELDS)))
    assert first.count(", ") == len(_csv.FIELDS) - 1
    listed = smi("--query=help").stdout.split("\n")
    assert [line.partition(" ")[0] for line in listed if line] == list(_csv.FIELDS)


def test_json_has_a_numbered_schema_and_plain_units(tree: CoreTree) -> None:
    out = json.loads(smi("--json", "--root", tree.root).stdout)
    assert out["schema"] == "cgpu-smi/1"
    card = out["gpus"][0]
    assert card["memory"]["total_bytes"] == 16 * GIB
    assert card["policy"] == {"number": 2, "name": "weighted"}
    assert card["temperature_c"] is None and out["nvml"]["reason"]
    first, second = card["containers"]
    assert (first["id"], first["memory"]["limit_bytes"]) == (HEX, 4 * GIB)
    assert first["processes"][0] == {
        "pid": 4711,
        "container_pid": 7,
        "memory_bytes": 3 * GIB,
        "command": "python3",
    }
    assert second["compute"]["quota_percent"] is None
    assert out["gpus"][1]["containers"][0]["memory"]["limit_bytes"] is None


def test_json_carries_what_nvml_and_names_tell(tree: CoreTree) -> None:
    out = _json.document(moment(tree, boards=Nvml((BOARD,), "580.159.04")))
    assert (out["gpus"][0]["power_w"], out["gpus"][0]["utilization"]) == (312.4, 0.87)
    assert out["gpus"][0]["containers"][1]["pod"] == "llm-0"


# ---- as nvidia-smi is asked


def test_a_list_of_no_card_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    done = smi("-L", "--root", CoreTree(tmp_path / "tree", ()).root)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no card is under control: `sudo cgpu doctor` says why" in done.stderr


def test_a_list_names_cards_with_their_containers(tree: CoreTree) -> None:
    out = smi("-L", "--root", tree.root).stdout.splitlines()
    assert [line for line in out if line.startswith("GPU ")] == [
        "GPU 0: NVIDIA GPU (UUID: GPU-00000000-0000-0000-0000-000000000001)",
        "GPU 1: NVIDIA GPU (UUID: GPU-00000000-0000-0000-0000-000000000002)",
    ]
    assert out[1:3] == [
        f"  0123456789ab: 4096 MiB (ID: {HEX})",
        f"  fedcba987654: 8192 MiB (ID: {OTHER})",
    ]
    assert out[-1] == f"  0123456789ab: no limit (ID: {HEX})"
    named = _render.listing(moment(tree, boards=Nvml((BOARD,))))
    assert named[2] == f"  prod/llm-0/server: 8192 MiB (ID: {OTHER})"


def test_fields_and_format_are_taken_as_nvidia_smi_takes_them(tree: CoreTree) -> None:
    options = ("--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
    assert smi(*options, "--root", tree.root).stdout == "0, 16384\n1, 16384\n"
    out = smi("--query-gpu", "index,memory.total", "--format", "csv", "--root", tree.root).stdout
    assert out.splitlines() == ["index, memory.total [MiB]", "0, 16384 MiB", "1, 16384 MiB"]
    for field in _csv.OF_NVIDIA_SMI:
        assert _csv.parse_query_gpu(field)


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (
            ("--query-gpu=memory",),
            1,
            "--query-gpu: no field 'memory'; there are: timestamp, driver_version",
        ),
        (("--query-gpu=index", "--format=xml"), 2, "--format: write csv[,noheader][,nounits]"),
        (("--query-gpu=index", "--query=gpu"), 2, "two lists"),
        (("--query-gpu=index", "--json"), 2, "two formats"),
    ],
)
def test_what_is_no_list_or_format_is_refused(
    tree: CoreTree, args: tuple[str, ...], status: int, text: str
) -> None:
    result = smi(*args, "--root", tree.root)
    assert (result.returncode, result.stdout) == (status, "")
    assert text in " ".join(result.stderr.split()).replace("│", "")


@pytest.fixture(scope="module")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a libnvidia-ml.so.1 that tells of one board."""
    return make_library(tmp_path_factory.mktemp("nvml"))


def smi_with_nvml(library: Path, *args: object) -> str:
    """cgpu-smi in a process of its own, for a library once loaded stays."""
    command = [sys.executable, "-m", "pycgpu.cli.smi", *map(str, args)]
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "TZ": "UTC"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_clocks_and_ecc_are_asked_for_by_nvidia_smis_names(
    tree: CoreTree, nvml_library: Path
) -> None:
    fields = "index,name,clocks.sm,clocks.mem,clocks.max.sm,clocks.video,temperature.gpu,pstate"
    out = smi_with_nvml(nvml_library, f"--query-gpu={fields}", "--format=csv", "--root", tree.root)
    assert out.splitlines() == [
        "index, name, clocks.current.sm [MHz], clocks.current.memory [MHz], clocks.max.sm [MHz],"
        " clocks.current.video [MHz], temperature.gpu, pstate",
        "0, NVIDIA H200, 1770 MHz, 3201 MHz, 1985 MHz, [N/A], 41, P2",
        "1, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]",
    ]
    fields = "ecc.mode.current,ecc.mode.pending,driver_version,count,pci.bus_id"
    errors = "ecc.errors.corrected.aggregate.total,ecc.errors.uncorrected.volatile.total"
    options = (f"--query-gpu={fields},{errors}", "--format=csv,noheader", "--id=0")
    assert smi_with_nvml(nvml_library, *options, "--root", tree.root) == (
        "Enabled, Disabled, 580.159.04, 1, 00000000:01:00.0, 11, 20\n"
    )
    out = smi_with_nvml(nvml_library, "--json", "--root", tree.root)
    card = json.loads(out)["gpus"][0]
    assert (card["clocks_mhz"]["memory"], card["ecc"]) == (3201, True)


def test_what_mps_serves_is_told_as_under_no_limit(
    tree: CoreTree, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "MPS" not in smi_with_nvml(nvml_library, "--root", tree.root)
    monkeypatch.setenv("NVML_MPS", "1")
    out = smi_with_nvml(nvml_library, "--root", tree.root)
    assert "GPU 0: MPS serves 4711, 4712 (M+C): they compute in one context" in out


@pytest.fixture
def grouped(tree: CoreTree) -> CoreTree:
    """And two members of a group on the first card; both processes of the board's MPS are theirs."""
    tree.destroy(HEX)
    tree.create("chat", f"gpu=0,mem={512 * MIB},weight=3", "group=chat")
    tree.create("a", f"gpu=0,mem={GIB},quota=25", "group=chat").hold(
        0, 4711, 7, 300 * MIB, "python3"
    )
    tree.create("b", f"gpu=0,mem={GIB}", "group=chat").hold(0, 4712, 8, 300 * MIB, "python3")
    tree.write()
    return tree


def test_a_groups_members_compute_in_it_each_with_its_part(grouped: CoreTree) -> None:
    out = smi("--root", grouped.root).stdout
    rows = {
        cells[1]: cells[4:7]
        for line in out.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("│").split("│")]) == 11
    }
    assert rows["a"] == ["1", "25 %", "–"] and rows["b"] == ["1", "–", "–"]
    assert rows["chat"][0] == "3"
    assert "GPU 0: group chat computes for a, b\n" in out
    (card, *_) = json.loads(smi("--json", "--root", grouped.root).stdout)["gpus"]
    found = {one["id"]: (one["group"], one["compute"]["share"]) for one in card["containers"]}
    assert found["a"] == found["b"] == ("chat", None)
    # Its members hold the card open for it: nobody has a process of the leader's.
    assert found["chat"] == ("chat", 0.75) and found[OTHER] == (None, 0)


def test_a_group_is_named_where_its_members_are(grouped: CoreTree) -> None:
    def rows(*words: object) -> list[list[str]]:
        lines = smi(*words, "--root", grouped.root).stdout.splitlines()
        return [line.replace("│", " ").split() for line in lines]

    table = rows()
    (head,) = (row for row in table if row[-1:] == ["Command"])
    assert head[:3] == ["GPU", "Container", "Group"]
    shown = {row[1]: row[2] for row in table if row[-1:] == ["python3"]}
    assert shown["a"] == shown["b"] == "chat"
    assert ["a:", "1024", "MiB", "(ID:", "a,", "group:", "chat)"] in rows("-L")
    assert rows("-q", "-d", "PIDS").count(["Group", ":", "chat"]) == 2
    fields = rows("--csv", "--query", "container,group", "--noheader")
    assert ["a,", "chat"] in fields


def test_what_a_groups_server_serves_is_under_its_limits(
    grouped: CoreTree, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVML_MPS", "1")
    assert "MPS serves" not in smi_with_nvml(nvml_library, "--root", grouped.root)
    grouped.destroy("b")
    assert "MPS serves 4712 (M+C)" in smi_with_nvml(nvml_library, "--root", grouped.root)


def test_everything_is_told_a_value_a_line(tree: CoreTree, nvml_library: Path) -> None:
    options = ("-q", "-i", "GPU-00000000-0000-0000-0000-000000000001", "-d", "clock,ECC")
    out = smi_with_nvml(nvml_library, *options, "--root", tree.root)
    lines = out.splitlines()
    assert (lines[1], lines[3][:9]) == (f"{' cgpu-smi LOG ':=^40}", "Timestamp")
    assert lines[4:] == golden("""
Driver Version                                    : 580.159.04
cgpu Version                                      : 0.1.0
Module Version                                    : 0.1.0

Attached GPUs                                     : 1
GPU 00000000:01:00.0
    ECC Mode
        Current                                   : Enabled
        Pending                                   : Disabled
    ECC Errors
        Volatile
            Corrected                             : 10
            Uncorrected                           : 20
        Aggregate
            Corrected                             : 11
            Uncorrected                           : 21
    Clocks
        Graphics                                  : 1755 MHz
        SM                                        : 1770 MHz
        Memory                                    : 3201 MHz
        Video                                     : N/A
    Max Clocks
        Graphics                                  : 1980 MHz
        SM                                        : 1985 MHz
        Memory                                    : 3205 MHz
        Video                                     : N/A
""") + [""]


def test_everything_without_nvml_is_what_the_door_tells(tree: CoreTree) -> None:
    out = smi("-q", "--id=0", "--root", tree.root).stdout.splitlines()
    assert "GPU 0" in out
    start = out.index("    FB Memory Usage")
    assert [line.split(": ")[1] for line in out[start + 1 : start + 6]] == [
        "16384 MiB",
        "1024 MiB",
        "12288 MiB",
        "4484 MiB",
        "3072 MiB",
    ]
    words = {line.partition(":")[0].strip(): line.partition(": ")[2] for line in out}
    # of the last container: 1 of the weights 3 and 1
    assert (words["Compute Guaranteed"], words["Compute At Most"]) == ("25.0 %", "25.0 %")
    assert (words["SM"], words["Current"], words["Power Draw"]) == ("N/A",) * 3
    assert words["NVML"]
    assert "    Containers" in out and "        0123456789ab" in out
    start = out.index("        Process ID 4712")
    assert [line.split(": ")[1] for line in out[start + 1 : start + 6]] == [
        "0123456789ab",
        "none",
        "8",
        "python3",
        "900 MiB",
    ]


def test_the_version_needs_no_door() -> None:
    assert smi("--version").stdout == f"cgpu-smi {pycgpu.__version__}\n"


def test_without_nvml_names_and_version_come_from_the_drivers_files(tmp_path: Path) -> None:
    top = tmp_path / "proc/driver/nvidia"
    (top / "gpus/0000:01:00.0").mkdir(parents=True)
    (top / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        "GCC version:  gcc version 12.2.0\n"
    )
    (top / "gpus/0000:01:00.0/information").write_text(
        "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-aa\nDevice Minor: \t 3\n"
    )
    found = nvml.from_files("no nvidia-ml-py", str(tmp_path))
    assert (found.driver, found.why) == ("580.159.04", "no nvidia-ml-py")
    board = found.board("GPU-aa", 0)
    assert board is not None
    assert (board.name, board.minor, board.power_w) == ("NVIDIA H100 80GB HBM3", 3, None)
    assert nvml.from_files("x", str(tmp_path / "none")) == Nvml(why="x")


# ---- choosing


def test_cards_and_containers_are_chosen(tree: CoreTree) -> None:
    fields = ("--csv", "--noheader", "--query=gpu,container", "--root", tree.root)
    assert smi(*fields, "--id", "1").stdout == "1, 0123456789ab\n"
    assert smi(*fields, "--container", "0123").stdout.splitlines() == [
        "0, 0123456789ab",
        "1, 0123456789ab",
    ]
    assert smi(*fields, "--container", HEX, "--id", "0").stdout == "0, 0123456789ab\n"
    uuid = "GPU-00000000-0000-0000-0000-000000000002"
    assert smi(*fields, "-i", uuid).stdout == "1, 0123456789ab\n"


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (("--id", "7"), 1, "no GPU 7 under control; there are: 0, 1"),
        (("--container", "zz"), 1, "no container 'zz' on a GPU; there are: 0123456789ab"),
        (("--csv", "--query", "memory"), 1, "no field 'memory'"),
        (("--id", "x"), 2, "write minors such as 0,1"),
        (("--id", "GPU-1"), 1, "no GPU GPU-1 under control"),
        (("--display", "CLOCK"), 2, "give -q, too"),
        (("-q", "-d", "FAN"), 2, "no section 'FAN'"),
        (("--json", "--csv"), 2, "two formats"),
        *[(("--watch", value), 2, "0.1 to 86400 seconds") for value in ("0", "0.01", "86401")],
        *[((f"--watch={value}",), 2, "0.1 to 86400 seconds") for value in ("nan", "inf", "-1")],
        (("--watch", "²"), 2, "unexpected extra argument"),
    ],
)
def test_what_cannot_be_shown_is_said(tree: CoreTree, args: Any, status: Any, text: Any) -> None:
    result = smi(*args, "--root", tree.root)
    assert (result.returncode, result.stdout) == (status, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    if status == 1:
        assert result.stderr.count("\n") == 1


def test_without_a_module_there_is_one_line(tmp_path: Path) -> None:
    result = smi("--root", tmp_path / "none")
    assert result.returncode == 1
    assert result.stderr == (
        f"cgpu-smi: {tmp_path}/none is absent: run `modprobe cgpu_km`, or start the agent\n"
    )


def test_a_tree_of_another_version_is_not_guessed_at(tree: CoreTree) -> None:
    (tree.root / "api_version").write_text("2\n")
    result = smi("--root", tree.root)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


# ---- again and again


def test_watch_repeats_where_there_is_no_terminal(tree: CoreTree) -> None:
    out = smi("-w", "0.1", "-c", "3", "--csv", "--noheader", "--query=gpu", "--root", tree.root)
    assert out.stdout.splitlines() == ["0", "1"] * 3


def test_once_overrules_watch(tree: CoreTree) -> None:
    out = smi("-w", "--once", "--csv", "--noheader", "--query=gpu", "--root", tree.root)
    assert out.stdout.splitlines() == ["0", "1"]


def test_watch_may_stand_without_a_number() -> None:
    assert with_interval(["-w", "--json"]) == ["-w", "2.0", "--json"]
    assert with_interval(["--watch", "0.5"]) == ["--watch", "0.5"]
    assert with_interval(["-l", "--csv"]) == ["-l", "2.0", "--csv"]


def test_it_loops_as_nvidia_smi_does(tree: CoreTree) -> None:
    fields = ("--query-gpu=index", "--format=csv,noheader", "--root", tree.root)
    for option in (("-l", "1"), ("--loop=1",)):
        assert smi(*option, "-c", "1", *fields).stdout == "0\n1\n"


def test_whoever_reads_no_further_ends_it_quietly(tree: CoreTree) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pycgpu.cli.smi", "-w", "0.1", "--csv", "--root", str(tree.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out = output(process)
    assert out.readline().startswith("gpu")
    out.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr and process.stderr.read() == ""


# ---- shares


def test_the_tree_is_read_while_nvml_is_waited_for(tree: CoreTree) -> None:
    """Else a screen would take as long as both, and with many containers much longer."""

    def answered() -> Nvml:
        shutil.rmtree(tree.root)
        return Nvml((BOARD,), "580.159.04")

    taken = snapshot.sample(str(tree.root), boards=answered)
    assert [len(card.containers) for card in taken.cards] == [2, 1]
    assert taken.cards[0].board == BOARD


def test_a_share_is_the_difference_of_two_readings() -> None:
    before = (1_000, {"granted_ns": 10, "used_ns": 5})
    after = (2_000, {"granted_ns": 510, "used_ns": 255})
    assert snapshot.share(before, after) == Share(0.5, 0.25)


def test_a_use_that_nobody_measures_is_unknown_and_not_zero() -> None:
    before, after = (
        (at, {"granted_ns": at, "used_ns": 0, "waited_ns": 0}) for at in (1_000, 2_000)
    )
    assert snapshot.share(before, after) == Share(1.0)


def test_counters_of_another_container_of_the_same_name_give_no_share() -> None:
    assert snapshot.share((0, {"used_ns": 9}), (10, {"used_ns": 3})) == Share()
    assert snapshot.share(None, (10, {"used_ns": 3})) == Share()


def test_shares_are_sampled_only_where_the_module_counts(tree: CoreTree) -> None:
    started = time.monotonic()
    assert snapshot.sample(str(tree.root), sample_s=30).cards[0].utilization is None
    assert time.monotonic() - started < 20
    tree.containers[HEX].count(0, granted_ns=5, used_ns=5, throttled_ns=0)
    tree.write()
    taken = snapshot.sample(str(tree.root), sample_s=0.01)
    assert taken.cards[0].containers[0].share == Share(0.0, 0.0, 0.0)
    assert taken.cards[0].utilization == 0.0


def test_a_container_that_goes_while_it_is_read_is_left_out(tree: CoreTree) -> None:
    before = counters.read(str(tree.root))
    tree.destroy(OTHER)
    taken = snapshot.take(str(tree.root), before=before, after=before, boards=Nvml())
    assert [one.status.id for one in taken.cards[0].containers] == [HEX]


# ---- on a terminal


def has_ended(pidfd: int, timeout_s: float = 20) -> bool:
    """Whether the process of a descriptor ends in time: a signal that was sent is not yet taken."""
    return bool(select.select([pidfd], [], [], timeout_s)[0])


class Terminal:
    """cgpu-smi on a pseudo-terminal, and what it has drawn."""

    def __init__(self, *args: object) -> None:
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm", COLUMNS="", LINES="", LC_ALL="C.UTF-8")
            os.environ.pop("NO_COLOR", None)
            # A shell does so; what runs in the background ignores it and hands that on.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # The child's standard streams are the terminal from here on.
            command = [sys.executable, "-m", "pycgpu.cli.smi", *map(str, args)]
            os.execv(sys.executable, command)
        self.text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def until(self, text: str, timeout_s: float = 20) -> None:
        """Read until *text* was drawn after what was waited for before."""
        end = time.monotonic() + timeout_s
        while text not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} was not drawn:\n{self.text}"
            try:
                self.text += self._decode(os.read(self.fd, 65536))
            except OSError:
                raise AssertionError(f"it ended before {text!r}:\n{self.text}") from None
        self.text = self.text.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self, timeout_s: float = 20) -> int:
        """Wait for the end; return the exit status."""
        end = time.monotonic() + timeout_s
        while True:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it did not end:\n{self.text}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self.text += self._decode(data)


def test_the_live_view_changes_a_weight_only_when_confirmed(tree: CoreTree) -> None:
    screen = Terminal("-w", "0.2", "--root", tree.root)
    screen.until("0123456789ab")
    screen.type("w")
    screen.until("new weight")
    screen.type("5\r")
    screen.until("3 → 5: really?")
    screen.type("n")
    screen.until("nothing was changed")
    assert (tree.root / "0/0123456789ab/weight").read_text() == "3\n"
    screen.type("w5\ry")
    screen.until("weight is changed")
    assert (tree.root / "0/0123456789ab/weight").read_text() == "5\n"
    assert tree.store("0/0123456789ab/weight") == 0
    screen.type("q")
    assert screen.end() == 0
    assert screen.text.endswith("\x1b[?1049l")


def screen_of(tree: CoreTree, used: float = 0.5) -> Screen:
    """The live view after one reading, of a tree whose first container used so much of card 0."""
    screen = Screen(str(tree.root), 2.0, Look())
    feed(screen, tree, used)
    return screen


def feed(screen: Screen, tree: CoreTree, used: float) -> None:
    before = {(0, HEX[:12]): (0, {"granted_ns": 0, "used_ns": 0, "throttled_ns": 0})}
    now = {"granted_ns": 500e6, "used_ns": used * 1e9, "throttled_ns": 300e6}
    after = {(0, HEX[:12]): (10**9, now)}
    boards = Nvml((BOARD,), "580.159.04")
    screen.update(moment(tree, before=before, after=after, boards=boards))


def test_the_live_view_tells_what_is_parked_and_sets_when(parked: CoreTree) -> None:
    screen = Screen(str(parked.root), 2.0, Look())
    screen.update(moment(parked, boards=Nvml()))
    lines = screen.frame(80, 24)
    assert any("1024 of 16384 MiB, 16383 promised, 3072 parked" in line for line in lines)
    (waiting,) = [line for line in lines if "notebook" in line]
    assert "waits 1536 / 3072" in waiting
    screen.selected = (0, "train")
    for key in ("i", *"15m", "enter"):
        screen.press(key)
    assert screen.frame(80, 24)[-1] == "idle_park of train, GPU 0: 5m → 15m: really? (y/N)"
    screen.press("y")
    assert screen.message == "idle_park is changed"
    assert (parked.root / "0/train/idle_park_s").read_text() == "900\n"
    for key in ("i", *"soon", "enter"):
        screen.press(key)
    assert screen.message.startswith("idle park: 'soon' is no time: write seconds, 90s, 5m")


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 9), st.booleans(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_live_view_of_any_size_stays_within_it(
    tree: CoreTree, width: int, height: int, shift: int, help: bool, compact: bool
) -> None:
    screen = screen_of(tree)
    screen.help, screen.compact = help, compact
    for _ in range(shift):
        screen.press("right")
    lines = screen.frame(width, height)
    assert len(lines) <= height
    assert max(map(_table.width_of, lines)) <= width
    if width >= 60 and height >= 10 and not help:
        assert any("train" in line and "3972 / 4096" in line for line in lines) or shift
        assert any(line.startswith("every 2 s") for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (130, 40), (60, 10)])
def test_the_live_view_shows_out_of_memory_and_names_what_has_no_room(
    tree: CoreTree, width: int, height: int
) -> None:
    lines = screen_of(tree).frame(width, height)
    text = "\n".join(lines)
    (titles,) = (line for line in lines if "Memory / limit" in line)
    assert "OOM" in titles and titles.count("Used") == 1
    if height >= 24:
        assert "41 °C · 312 / 700 W" in text and "87 %" in text and "█" in text
    every = [column.title for column in CONTAINER_COLUMNS]
    hidden = [title for title in every if title not in titles]
    assert bool(hidden) == ("→ " in lines[-1])
    if width == 80:
        assert hidden == ["Throttled", "Weight", "Quota", "Granted", "Id"]
        assert "→ Throttled, Weight, Quota" in lines[-1]


def test_what_has_no_room_in_the_live_view_is_shown_by_the_arrow_key(tree: CoreTree) -> None:
    screen = screen_of(tree)
    seen = set()
    for _ in range(len(CONTAINER_COLUMNS)):
        titles = next(line for line in screen.frame(80, 24) if line.startswith("GPU  "))
        assert "Container" in titles
        seen |= {column.title for column in CONTAINER_COLUMNS if column.title in titles}
        screen.press("right")
    assert seen == {column.title for column in CONTAINER_COLUMNS}


def test_columns_of_the_live_view_do_not_move_with_the_numbers(tree: CoreTree) -> None:
    screen = screen_of(tree, 1.0)
    titles = [line for line in screen.frame(80, 24) if line.startswith("GPU  ")]
    for used in (0.01, 0.4, 0.0999, 1.0):
        feed(screen, tree, used)
        assert [line for line in screen.frame(80, 24) if line.startswith("GPU  ")] == titles


def test_a_report_names_the_columns_that_have_no_room(tree: CoreTree) -> None:
    narrow = _render.report(moment(tree, boards=Nvml((BOARD,))), Look(width=80))
    assert "OOM" in "\n".join(narrow)
    assert narrow[-1].startswith("no room on 80 columns: Temp, Power, ")
    assert "no room" not in "\n".join(_render.report(moment(tree), Look(width=200)))


def test_under_the_drivers_own_sharing_nobody_asks_for_the_bridge(tmp_path: Path) -> None:
    tree = CoreTree(tmp_path / "tree", features=("MEMORY", "SLICES", "GATE"))
    tree.create("job-1", f"gpu=0,mem={GIB},policy=5")
    tree.write()
    assert "cgpu_rm" not in "\n".join(_render.report(moment(tree), Look()))


@pytest.fixture
def family(tree: CoreTree) -> Iterator[tuple[int, int]]:
    """A shell and its child, which hold the first card in a container of their own."""
    script = "sleep 1000 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        child = int(output(parent).readline())
        one = tree.create("job-1", f"gpu=0,mem={GIB}")
        one.hold(0, parent.pid, 11, 5 * MIB, "sh").hold(0, child, 12, 6 * MIB, "sleep")
        tree.write()
        yield parent.pid, child
        for pid in (child, parent.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_the_live_view_shows_processes_as_a_tree_and_ends_one_when_confirmed(
    tree: CoreTree, family: tuple[int, int]
) -> None:
    _, child = family
    pidfd = os.pidfd_open(child)
    screen = Terminal("-w", "0.2", "--container", "job-1", "--root", tree.root)
    screen.until("processes of job-1")
    screen.until(f"{child} ")
    screen.until("└ sleep 1000")
    screen.type("k")
    screen.until("no process is selected")
    screen.type("\t")
    screen.type("\x1b[6~k\r")
    screen.until(f"SIGTERM to {child} ")
    screen.until("really? (y/N)")
    screen.type("n")
    screen.until("nothing was changed")
    os.kill(child, 0)
    screen.type("kHUP\r")
    screen.until("no signal 'HUP' here; there are: TERM, KILL")
    screen.type("kkill\r")
    screen.until(f"SIGKILL to {child} ")
    screen.type("y")
    screen.until("was sent the signal")
    screen.type("q")
    assert screen.end() == 0
    assert has_ended(pidfd)
    os.close(pidfd)


def test_only_processes_of_containers_are_sent_a_signal(
    tree: CoreTree, family: tuple[int, int]
) -> None:
    root = str(tree.root)
    with subprocess.Popen(["sleep", "1000"]) as other:
        for pid in (other.pid, 4194305):
            with pytest.raises(CgpuError, match="is no process of job-1 on GPU 0 any more"):
                process.send("KILL", pid, 0, "job-1", root)
        assert other.poll() is None
        other.kill()
    # Memory of one that has ended is listed under its old number, which another may have now.
    tree.containers[OTHER].hold(0, os.getpid(), 0, MIB, "")
    tree.write()
    with pytest.raises(CgpuError, match="is no process of"):
        process.send("KILL", os.getpid(), 0, "fedcba987654", root)
    process.send("KILL", family[1], 0, "job-1", root)


def test_processes_are_below_the_nearest_that_they_descend_from() -> None:
    def one(pid: int, parent: int, cpu_ns: int = 0, at_ns: int = 0) -> Process:
        return Process(pid, parent, "u", "c", cpu_ns, 0, at_ns)

    known = {pid: one(pid, parent) for pid, parent in ((9, 1), (5, 9), (3, 5), (4, 9), (7, 1))}
    assert process.forest([3, 4, 9, 7, 8], known) == [(7, 0), (8, 0), (9, 0), (3, 1), (4, 1)]
    assert process.forest([2, 3], {2: one(2, 3), 3: one(3, 2)}) == [(2, 0), (3, 0)]
    assert process.cpu_share(one(1, 0, 10, 100), one(1, 0, 260, 200)) == 2.5
    assert process.cpu_share(one(1, 0, 300, 100), one(1, 0, 260, 200)) is None
    assert process.cpu_share(None, one(1, 0)) is None


def test_a_process_is_read_with_its_user_and_its_parents() -> None:
    found = process.read([os.getpid(), 4194305])
    me = found[os.getpid()]
    assert me.user == pwd.getpwuid(os.getuid()).pw_name
    assert me.parent in found and 4194305 not in found
    assert me.resident_bytes > MIB and me.cpu_ns > 0
    assert "pytest" in me.command or "python" in me.command


def test_a_line_a_card_says_who_is_on_it(tree: CoreTree) -> None:
    taken = moment(tree, boards=Nvml((BOARD,)))
    assert _render.compact(taken, Look()) == [
        "0  NVIDIA H200  87 %  41 °C  312 / 700 W  30720 / 16384 MiB  train 3972, prod/llm-0/server 512",
        "1  n/a           n/a    n/a          n/a    100 / 16384 MiB  train 100",
    ]
    out = smi("--compact", "--root", tree.root).stdout.splitlines()
    assert len(out) == 2 and out[0].endswith("0123456789ab 3972, fedcba987654 512")
    screen = Terminal("-w", "0.2", "--root", tree.root)
    screen.until("promised")
    screen.type("c")
    screen.until("0123456789ab 3972, fedcba987654 512")
    screen.type("q")
    assert screen.end() == 0


# ---- completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["--compa"], ["--compact"]),
        (["--dis"], ["--display"]),
        (["-q", "-d", "MEMORY,CL"], ["MEMORY,CLOCK"]),
        (["--query-gpu", "index,ecc.mode."], ["index,ecc.mode.current", "index,ecc.mode.pending"]),
        (["--query", "gpu.pol"], ["gpu.policy", "gpu.policy_number"]),
        (["--format", "csv,no"], ["csv,noheader", "csv,nounits"]),
        (["--root", "TREE", "--container", "fed"], ["fedcba987654"]),
        (["--root", "TREE", "-i", "0,"], ["0,1", "0,GPU-1", "0,GPU-2"]),
    ],
)
def test_bash_completes_options_fields_and_containers(
    tree: CoreTree, typed: list[str], offered: list[str]
) -> None:
    words = [str(tree.root) if word == "TREE" else word for word in typed]
    bin = Path(sys.executable).parent
    script = f"""
        PATH={shlex.quote(str(bin))}:$PATH
        eval "$(cgpu completion bash)"
        COMP_WORDS=(cgpu-smi {" ".join(words)}); COMP_CWORD={len(words)}
        $(complete -p cgpu-smi | sed 's/.*-F //; s/ .*//') cgpu-smi
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    command = ["bash", "--norc", "-c", script]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [word.replace("GPU-00000000-0000-0000-0000-00000000000", "GPU-") for word in out] == (
        offered
    )


@pytest.mark.parametrize(
    ("typed", "completed"), [("cgpu po", "cgpu policy"), ("cgpu-smi --compa", "cgpu-smi --compact")]
)
def test_zsh_completes_at_the_tabulator_without_a_start_file(typed: str, completed: str) -> None:
    if not shutil.which("zsh"):
        pytest.skip("no package: zsh")
    bin = Path(sys.executable).parent
    begin = 'eval "$(cgpu completion zsh)"; PS1=READ"Y> "'
    # A terminal in which somebody types; zpty -r waits for what is to be seen.
    script = f"""
        PATH={shlex.quote(str(bin))}:$PATH
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell {shlex.quote(begin)}
        zpty -r shell seen '*READY> *' && print -r -- $seen
        zpty -w -n shell {shlex.quote(typed)}$'\\t'
        zpty -r shell seen '*{completed[len(typed) :]}*' && print -r -- completed
    """
    command = ["timeout", "30", "zsh", "-f", "-c", script]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "not found" not in out
    assert out.endswith("completed\n")


def test_the_live_view_says_what_is_wrong_with_a_value_and_survives_the_module(
    tree: CoreTree, tmp_path: Path
) -> None:
    screen = Terminal("-w", "0.2", "--root", tree.root)
    screen.until("0123456789ab")
    screen.type("u300\r")
    screen.until("write 1 to 100 percent")
    tree.root.rename(tmp_path / "away")
    screen.until("is absent")
    (tmp_path / "away").rename(tree.root)
    screen.until("every 0.2 s")
    screen.type("\x03")
    assert screen.end() == 0


def grown(count: int) -> counters.Counters:
    return {(0, str(number)): (time.monotonic_ns(), {"used_ns": 5}) for number in range(count)}


@pytest.mark.parametrize(("containers", "sample_s"), [(0, 0.04), (1, 0.04), (6, 0.06), (20, 0.08)])
def test_counters_grow_for_two_periods_of_the_fullest_card(
    containers: int, sample_s: float
) -> None:
    found = grown(containers) | {(1, "a"): (0, {}), (2, "b"): (0, {}), (3, "c"): (0, {})}
    assert counters.sample_s(found) == sample_s


def test_what_was_read_long_ago_is_not_waited_for(
    tree: CoreTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.containers[HEX].count(0, granted_ns=5, used_ns=5, throttled_ns=0)
    tree.write()
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    now = counters.read(str(tree.root))
    before = {key: (at_ns - 10**9, stat) for key, (at_ns, stat) in now.items()}
    snapshot.sample(str(tree.root), before=before)
    assert slept == [0.0]
    snapshot.sample(str(tree.root), before=counters.read(str(tree.root)))
    assert 0.0 < slept[1] <= 0.08
