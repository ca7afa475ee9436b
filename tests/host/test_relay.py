# SPDX-License-Identifier: MIT
"""What the host's side of the VM ring does beside tests that run on the host."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.vm.relay import Group, Relay, keep_rewritten
from tests.vm.vm import REPOSITORY, VMError


def test_builds_are_not_who_a_test_on_the_host_makes_itself(pytestconfig: pytest.Config) -> None:
    """Some ask as nobody, in whose home there is no cache."""
    relay = Relay(pytestconfig)
    try:
        relay.builder.submit(os.geteuid).result()
        mine = os.geteuid()
        if mine == 0:
            os.seteuid(65534)
        try:
            assert relay.builder.submit(os.geteuid).result() == mine
        finally:
            os.seteuid(mine)
    finally:
        relay.builder.shutdown()


class Machine:
    """What a virtual machine is to a group: it speaks at the look of that number, or never."""

    running, overdue, smp, restarts, cpu_s = True, False, 1, 2, 3.0

    def __init__(self, share: Path, speaks: int = 0) -> None:
        self.share = share
        self.looks = 0
        self.speaks = speaks

    def settled(self) -> bool:
        self.looks += 1
        if not self.speaks:
            raise VMError("no sign of life")
        return self.looks >= self.speaks

    def give_time(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_a_machine_is_looked_at_until_it_speaks_and_nobody_waits(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    machine: Any = Machine(tmp_path, speaks=2)
    group = Group("6.1", {}, [], pytestconfig, machine=machine)
    group.look()
    assert not group.speaks
    (tmp_path / "reports").write_text('{"kind": "finish", "nodeid": "one"}\n')
    for _ in range(3):
        group.look()
    assert group.speaks and machine.looks == 2
    assert group.finished == {"one"}


def test_a_machine_that_never_speaks_is_why_its_tests_fail(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    machine: Any = Machine(tmp_path)
    group = Group("6.1", {}, [], pytestconfig, machine=machine)
    group.wait_for("one", meanwhile=lambda: None)
    assert group.absent("one") == "no sign of life"
    assert not group.machine_runs
    assert (group.spent.restarts, group.spent.cpu_s) == (2, 3.0)


def test_who_waits_on_the_host_comes_after_who_computes(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves its processor to machines."""
    rooms: list[int] = []
    relay = Relay(pytestconfig)
    try:
        monkeypatch.setattr(relay, "_start_ahead", rooms.append)
        names = ("core/test_quota.py", "host/test_parking.py", "vm/test_boot.py")
        items: list[Any] = [SimpleNamespace(path=REPOSITORY / "tests" / name) for name in names]
        asked = [items[0], items[2], items[1]]
        relay.pytest_collection_modifyitems(items)
        assert items == asked
        for item in items:
            relay.pytest_runtest_protocol(item)
        jobs = pytestconfig.getoption("--vm-jobs")
        assert rooms == [jobs - 1, jobs - 1, jobs]
    finally:
        relay.builder.shutdown()


def test_tests_are_kept_rewritten_for_guests_also_by_who_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also what pytest rewrites beside them."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    files = [tests / "vm/test_boot.py", tests / "vm/conftest.py", tests / "conftest.py"]
    tag = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}"
    kept = [path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc" for path in files]
    for path in kept:
        path.unlink(missing_ok=True)
    keep_rewritten(files[:1])
    assert all(path.exists() for path in kept), kept
