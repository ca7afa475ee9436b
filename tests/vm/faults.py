# SPDX-License-Identifier: MIT
"""Tests that must be reported as failures: test_harness.py runs this file and reads the report."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_passes() -> None:
    assert Path("/run/vm").is_mount()


def test_fails() -> None:
    assert Path("/run/vm").is_file(), "as it should"


def test_skips_without_an_allowed_reason() -> None:
    pytest.skip("not today")


def test_skips_for_an_allowed_reason() -> None:
    pytest.skip("no package: as if the archive lacked it")


def test_leaves_a_fault_in_the_kernels_log() -> None:
    Path("/dev/kmsg").write_text("BUG: sleeping function called from invalid context\n")


def test_crashes_the_machine() -> None:
    Path("/proc/sysrq-trigger").write_text("c")


def test_never_runs() -> None:
    pass
