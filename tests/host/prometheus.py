# SPDX-License-Identifier: MIT
"""Debian's Prometheus, which scrapes what a test serves, and answers queries."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm import packages


def installed() -> Path:
    """Return the server's program; the test is skipped where the archive has none."""
    return _unpacked("prometheus") / "usr/bin/prometheus"


def promtool() -> Path:
    """Return promtool; before Debian 13 it is in the server's package."""
    try:
        packages.own_version("promtool")
    except packages.PackageNotFound:
        return installed().with_name("promtool")
    return _unpacked("promtool") / "usr/bin/promtool"


def _unpacked(package: str) -> Path:
    try:
        return packages.unpacked(packages.download(package, packages.own_version(package)))
    except packages.PackageNotFound as error:
        pytest.skip(f"no package: {package}: {error}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(read: Callable[[], Any], what: str, timeout_s: float = 60) -> Any:
    """Return what *read* gives, as soon as that is true."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if value := read():
                return value
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {timeout_s} s")


class Server:
    """A Prometheus with a file of settings, from its start to its end, a context."""

    def __init__(self, program: Path, settings: str, directory: Path) -> None:
        self.program = program
        self.directory = directory
        self.port = free_port()
        (directory / "prometheus.yml").write_text(settings)

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(
            [
                self.program,
                f"--config.file={self.directory}/prometheus.yml",
                f"--storage.tsdb.path={self.directory}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self.directory / "prometheus.log").open("w"),
        )
        return self

    def __exit__(self, *what: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of everything that a query finds."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query"
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode({'query': query})}") as answer:
            result = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]

    def value(self, query: str) -> float | None:
        """Return the first value that a query finds."""
        found = self.ask(query)
        return found[0][1] if found else None
