# SPDX-License-Identifier: MIT
"""The scripts as people start them: by their name, and by `sh`, which on Debian is no bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path
    for path in (REPOSITORY / "scripts").iterdir()
    if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash\n")
)
HELPFUL = [path for path in SCRIPTS if "-h | --help)" in path.read_text()]
USERS = {"install", "uninstall", "upgrade.sh", "demo", "test"}


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True)


def test_what_users_start_has_help() -> None:
    assert {path.name for path in HELPFUL} >= USERS


@pytest.mark.parametrize("shell", ["sh", "dash"])
@pytest.mark.parametrize("script", HELPFUL, ids=lambda path: path.name)
def test_started_by_sh_a_script_does_the_same(script: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no package: {shell}")
    by_name, by_shell = run(script, "--help"), run(shell, script, "--help")
    assert (by_shell.returncode, by_shell.stdout) == (0, by_name.stdout), by_shell.stderr
    assert f"scripts/{script.name}" in by_shell.stdout
    # The comment's end, not the code below it.
    assert "BASH_VERSION" not in by_shell.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_goes_to_bash_before_it_says_anything_that_only_bash_knows(script: Path) -> None:
    code = [line for line in script.read_text().splitlines() if line and line[0] != "#"]
    assert code[:3] == [
        "set -eu",
        '[ "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # as `sh FILE`',
        "set -o pipefail",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_pipe_says_is_not_lost_to_a_reader_that_stops_early(script: Path) -> None:
    """Under pipefail `… | grep -q` fails when the writer has more to say: now and then."""
    assert "| grep -q" not in script.read_text()
