# SPDX-License-Identifier: MIT
"""The scripts as people start them: by their name, and by `sh`, which on Debian is no bash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: What a developer runs: `scripts/dev NAME`.
DEV = REPOSITORY / "scripts/dev.d"
PROGRAMS = sorted(
    path
    for folder in (DEV.parent, DEV)
    for path in folder.iterdir()
    if path.is_file() and path.read_text().startswith("#!/usr/bin/env")
)
SCRIPTS = [path for path in PROGRAMS if path.read_text().startswith("#!/usr/bin/env bash\n")]


VENV = REPOSITORY / ".venv/bin"


def run(*words: object, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.run(
        [str(word) for word in words], env=environment, capture_output=True, text=True
    )


def test_dev_lists_each_command_with_what_it_does() -> None:
    done = run(REPOSITORY / "scripts/dev")
    listed = dict(re.findall(r"^  (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    assert listed.keys() == {path.name for path in DEV.iterdir()}
    assert all(len(said) > 20 and "scripts/dev" not in said for said in listed.values())


def path_without_venv() -> str:
    """A shell's in which nobody has activated the environment of the scripts."""
    return ":".join(word for word in os.environ["PATH"].split(":") if word != str(VENV))


@pytest.mark.parametrize("script", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_script_explains_itself_and_does_nothing(script: Path, option: str) -> None:
    found = run(script, option)
    assert (found.returncode, found.stderr) == (0, "")
    assert f"scripts/{'dev ' * (script.parent == DEV)}{script.name}" in found.stdout
    # The comment's end, not the code below it.
    assert "BASH_VERSION" not in found.stdout


@pytest.mark.parametrize("shell", ["sh", "dash"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_started_by_sh_a_script_does_the_same(script: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no package: {shell}")
    by_name, by_shell = run(script, "--help"), run(shell, script, "--help")
    assert (by_shell.returncode, by_shell.stdout) == (0, by_name.stdout), by_shell.stderr


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


@pytest.mark.parametrize("activated", [False, True], ids=["plain", "activated"])
def test_the_start_cost_is_measured_whatever_environment_is_activated(activated: bool) -> None:
    plain = path_without_venv()
    done = run(
        REPOSITORY / "scripts/dev",
        "bench-start",
        "1",
        path=f"{VENV}:{plain}" if activated else plain,
    )
    assert done.returncode == 0, done.stderr
    named = dict(re.findall(r"^(.+?) {2,}(\d+\.\d)$", done.stdout, re.MULTILINE))
    assert {"runtime create", "hook createRuntime", "sum", "cgpu-smi", "cgpu-smi -q"} <= {*named}
    assert all(float(value) > 0 for value in named.values())


def test_an_activated_environment_of_the_scripts_stays() -> None:
    """What stands for its interpreter is the one it was made of: it is not made once more."""
    run(REPOSITORY / "scripts/setup-venv", path=path_without_venv())
    done = run(REPOSITORY / "scripts/setup-venv", path=f"{VENV}:{path_without_venv()}")
    assert (done.stdout, done.stderr) == (f"{VENV}/python\n", "")


@pytest.mark.parametrize("words", [("x",), ("0",), ("-3",), ("",), ("3", "4")], ids=" ".join)
def test_a_wrong_number_of_runs_is_named(words: tuple[str, ...]) -> None:
    done = run(REPOSITORY / "scripts/dev", "bench-start", *words)
    told = f"bench-start: RUNS is a number of 1 or more, not: {' '.join(words)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("test-fresh", "xenial"), 1, "xenial: no release that is tried; there are bookworm"),
        (("test-fresh", "--quik"), 1, "--quik: no such option"),
        (("setup-venv", "all"), 2, "scripts/setup-venv [check|browser]"),
        (("setup-packages", "all"), 2, "scripts/setup-packages [--list]"),
        (("dev", "make-docs", "--nope"), 1, "--nope: no such option"),
        (("dev", "make-coffee"), 2, "no command make-coffee; scripts/dev lists them"),
        (("demo", "--kernal", "6.1"), 2, "unrecognized arguments: --kernal 6.1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_word_that_a_script_does_not_know_is_named(
    words: tuple[str, ...], status: int, told: str
) -> None:
    failed = run(REPOSITORY / "scripts" / words[0], *words[1:])
    assert (failed.returncode, failed.stdout) == (status, "")
    assert told in failed.stderr and "Traceback" not in failed.stderr


def test_the_core_is_timed_by_one_command() -> None:
    done = run(sys.executable, DEV / "bench-core", "1000")
    assert done.returncode == 0, done.stderr
    told = re.findall(r"(\d+\.\d) ns$", done.stdout, re.MULTILINE)
    assert len(told) == 7
    # a table whose walks grow with what is in it was a hundred times as slow with 10,000 objects
    assert float(told[5]) < 20 * float(told[3])
