# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", type=Path, help="keep pictures of the page there")


@pytest.fixture(scope="session")
def screenshots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept: Path | None = request.config.getoption("--screenshots")
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    return kept or tmp_path_factory.mktemp("screenshots")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of the distribution, or the one that is named."""
    program = os.environ.get("CGPU_CHROMIUM") or shutil.which("chromium")
    assert program, "no chromium: run scripts/test-web, or name one in CGPU_CHROMIUM"
    # Its own sandbox does not run as root, and what it shows here is ours.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=options)
        yield started
        started.close()
