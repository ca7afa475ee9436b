# SPDX-License-Identifier: MIT
"""What the host's side of the VM ring does beside tests that run on the host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.vm.relay import Relay, keep_rewritten


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
