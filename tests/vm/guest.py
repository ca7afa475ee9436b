# SPDX-License-Identifier: MIT
"""
The guest's side of ``pytest tests/vm``: run the selected tests, write every report at once.

A line is written and flushed for each event, so that what was finished before a crash counts.
What the kernel logs during a test belongs to it: a fault there fails it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.vm import PROBLEMS, SHARE, without_wanted

_LOG: KernelLog | None = None


class KernelLog:
    """What the kernel has logged since the last look."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._lines: list[str] = []

    def begin(self) -> None:
        """Forget what came before."""
        self.text()
        self._lines.clear()

    def text(self) -> str:
        """Return everything since :meth:`begin`."""
        while True:
            try:
                record = os.read(self._fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Records were overwritten before they were read; the next read goes on.
                continue
            message = record.decode(errors="replace").partition(";")[2]
            self._lines.append(message.splitlines()[0] if message else "")
        return "\n".join(self._lines)


def _write(**event: Any) -> None:
    with (SHARE / "reports").open("a") as stream:
        stream.write(json.dumps(event, default=str) + "\n")


def pytest_configure() -> None:
    global _LOG
    _LOG = KernelLog()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected = set(json.loads((SHARE / "select.json").read_text()))
    dropped = [item for item in items if item.nodeid not in selected]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item.nodeid in selected]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(kind="collect", text=report.longreprtext)


def pytest_runtest_logstart(nodeid: str) -> None:
    assert _LOG is not None
    _LOG.begin()
    _write(kind="start", nodeid=nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    assert _LOG is not None
    text = _LOG.text()
    if report.when == "teardown" and report.passed and PROBLEMS.search(without_wanted(text)):
        report.outcome = "failed"
        report.longrepr = f"the kernel's log has a fault:\n{text[-8000:]}"
    elif report.failed and text:
        report.sections.append(("kernel log", text[-8000:]))
    return report  # type: ignore[return-value]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _write(kind="report", nodeid=report.nodeid, data=report._to_json())


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write(kind="finish", nodeid=nodeid)


def made() -> dict[str, Path]:
    """Return what the host has built for this group of tests."""
    path = SHARE / "made.json"
    if not path.exists():
        return {}
    return {name: Path(value) for name, value in json.loads(path.read_text()).items()}
