# SPDX-License-Identifier: MIT
"""/etc/cgpu/cards.toml: settings of cards that outlive module and machine."""

from __future__ import annotations

import errno
import os
import posix
from pathlib import Path

import pytest

from pycgpu.cli import main
from pycgpu.errors import CgpuError
from pycgpu.tree import cards, procfs
from tests.host import program
from tests.host.coretree import GIB, CoreTree


@pytest.fixture
def tree(tmp_path: Path) -> CoreTree:
    for minor, model in enumerate(("Tesla T4", "Tesla T4", "NVIDIA H100")):
        path = tmp_path / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"
        path.parent.mkdir(parents=True)
        path.write_text(f"Model: \t\t {model}\nIRQ: 1\nDevice Minor: \t {minor}\n")
    return CoreTree(tmp_path / "tree", [(16 * GIB, 0)] * 3)


def apply(tree: CoreTree, text: str, *options: str) -> program.Result:
    file = tree.root.parent / "cards.toml"
    file.write_text(text)
    proc = tree.root.parent / "proc"
    return program.run(
        main.app, "cards", "--file", file, "--proc", proc, "--root", tree.root, *options
    )


def test_a_cards_uuid_goes_before_its_model_and_that_before_the_default(tree: CoreTree) -> None:
    uuid = procfs.read_uuid(1, str(tree.root))
    text = (
        '[default]\npolicy = 0\nmax_inst = 16\n["Tesla T4"]\nmax_inst = 8\n'
        f'timeslice_us = 12000\n["{uuid}"]\npolicy = "mixed"\n'
    )
    shown = apply(tree, text)
    assert "GPU 2: max_inst 20 and not 16\n" in shown.stdout
    assert procfs.read_max_inst(2, str(tree.root)) == 20
    assert "GPU 1: policy 7 → 6\n" in apply(tree, text, "--apply").stdout
    root = str(tree.root)
    have = [
        tuple(procfs.read_setting(card, key, root) for key in cards.BOUNDS) for card in range(3)
    ]
    assert have == [(0, 8, 12000, 100), (6, 8, 12000, 100), (0, 16, 5000, 100)]
    for node in ("0/policy", "1/policy", "0/timeslice_us"):
        assert tree.store(node) == 0
    file = tree.root.parent / "cards.toml"
    assert apply(tree, text).stdout == f"all cards have what {file} says\n"


def test_a_card_promises_what_its_ratio_says_and_no_less_than_it_has(tree: CoreTree) -> None:
    text = "[default]\novercommit_ratio = 200\n"
    assert "GPU 0: overcommit_ratio 100 → 200\n" in apply(tree, text, "--apply").stdout
    assert tree.store("0/overcommit_ratio") == 0
    for name in ("a", "b"):
        tree.create(name, f"gpu=0,mem={12 * GIB}")
    card = procfs.read_card(0, str(tree.root))
    assert (card.overcommit_ratio, card.promisable_bytes) == (200, 32 * GIB)
    # What Python counts is what the core prints.
    assert card.free_bytes == procfs.read_memory(0, str(tree.root))["free"] == 8 * GIB
    (tree.root / "0/overcommit_ratio").write_text("140\n")
    assert tree.store("0/overcommit_ratio") == errno.EBUSY


def test_a_ratio_below_what_is_promised_is_refused_with_its_remedy(
    tree: CoreTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.root / "0/overcommit_ratio").write_text("200\n")
    write = posix.write

    def busy(file: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{file}").endswith("/0/overcommit_ratio"):
            raise OSError(errno.EBUSY, "busy")
        return write(file, data)

    monkeypatch.setattr(posix, "write", busy)
    with pytest.raises(CgpuError, match=r"add up to more already: lower some .*EBUSY"):
        procfs.write_setting(0, "overcommit_ratio", 100, str(tree.root))


def test_a_core_that_knows_no_overcommit_promises_what_it_has(tree: CoreTree) -> None:
    (tree.root / "0/overcommit_ratio").unlink()
    assert procfs.read_card(0, str(tree.root)).promisable_bytes == 16 * GIB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy = 7", "policy stands outside a table; write it below [default]"),
        ("[default]\nweight = 2", "'weight' is unknown; known are policy, max_inst, timeslice_us"),
        ("[default]\npolicy = 10", "no policy '10'"),
        ("[default]\nmax_inst = 0", "max_inst = 0: write 1 to 64"),
        ("[default]\novercommit_ratio = 99", "overcommit_ratio = 99: write 100 to 1000"),
        ("[default]\novercommit_ratio = 1001", "overcommit_ratio = 1001: write 100 to 1000"),
        ("[default]\novercommit_ratio = 1.5", "overcommit_ratio = 1.5: write 100 to 1000"),
        ("[default]\nmax_inst = true", "max_inst = True: write 1 to 64"),
        ("[default", "cards.toml: "),
    ],
)
def test_what_cannot_be_read_changes_nothing(tree: CoreTree, text: str, said: str) -> None:
    failed = apply(tree, f"{text}\n", "--apply")
    assert failed.returncode == 1 and said in failed.stderr
    assert procfs.read_policy(0, str(tree.root)) == 7


def test_a_card_that_two_tables_name_is_an_error() -> None:
    tables = {"GPU-28": {"policy": 1}, "GPU-28df": {"policy": 2}}
    with pytest.raises(CgpuError, match=r"both .GPU-28. and .GPU-28df. name it"):
        cards.wanted(tables, "GPU-28df2127", None)


def test_a_host_without_the_file_keeps_what_it_has(tmp_path: Path) -> None:
    assert cards.load(str(tmp_path / "none")) == {}


@pytest.mark.parametrize("options", [(), ("--apply",)])
def test_a_host_without_the_file_is_told_so(tree: CoreTree, options: tuple[str, ...]) -> None:
    file = tree.root / "none.toml"
    told = program.run(main.app, "cards", "--file", file, "--root", tree.root, *options)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == f"{file} is absent: cards keep their defaults\n"
