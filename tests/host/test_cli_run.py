# SPDX-License-Identifier: MIT
"""``cgpu run``: its options, and who called it. What it starts, tests/vm/test_agent.py sees."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from pycgpu.agent import caller
from pycgpu.cli import _run, main, start
from pycgpu.dialects import cgpu
from pycgpu.errors import LaunchError
from pycgpu.request import permit
from pycgpu.request.model import (
    GIB,
    MIB,
    WEIGHTED_CONSERVING,
    CardShare,
    MemoryBytes,
    MemoryShare,
)
from tests.host import program

UUID = "GPU-00000000-1111-2222-3333-444444444444"


def test_options_stand_for_all_cards_or_for_one_each() -> None:
    values = {cgpu.GPU: f"0,{UUID}", cgpu.MEM: "8G,25%", cgpu.QUOTA: "30"}
    found = _run.request({**values, cgpu.WEIGHT: None}, uvm_disable=True)
    assert found.selectors == (0, UUID)
    common = {"quota": 30, "policy": WEIGHTED_CONSERVING, "uvm_disable": True}
    assert found.shares == (
        CardShare(memory=MemoryBytes(8 * GIB), **common),  # type: ignore[arg-type]
        CardShare(memory=MemoryShare(2500, 10000, 0, MIB, usable=True), **common),  # type: ignore[arg-type]
    )


def test_without_options_it_is_the_first_card_without_limits() -> None:
    found = _run.request({}, uvm_disable=False)
    assert (found.selectors, found.idle_park_s) == ((0,), None)
    assert _run.request({cgpu.IDLE_PARK: "5m"}, uvm_disable=False).idle_park_s == 300
    assert found.shares == (CardShare(policy=WEIGHTED_CONSERVING),)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--mem", "8"), "--mem '8': '8' is 8 bytes, less than 1 MiB: write 8MiB or GiB"),
        (("--mem", "101%"), "--mem '101%': '101%': write 1% to 100%"),
        (("--quota", "0"), "--quota '0': write 1 to 100 percent"),
        (("--quota", "30,101"), "--quota '30,101': write 1 to 100 percent"),
        (("--weight", "-1"), "--weight '-1': write a positive whole number"),
        (("--gpu", "0,0"), "--gpu '0,0': "),
        (("--mem", "1G,2G", "--quota", "1,2,3"), "--mem '1G,2G': write one value, or 3"),
        (("--policy", "fast"), "--policy 'fast': write 0 to "),
        (("--idle-park", "soon"), "--idle-park 'soon': 'soon' is no time: write seconds, 90s, "),
        (("--user", "nobody-here"), "--user 'nobody-here': no such user on this host"),
        # setresuid() would leave root as it is, and int() takes the digits of every script
        (("--user", "4294967295"), "--user '4294967295': no such user on this host"),
        (("--user", "9" * 20), f"--user '{'9' * 20}': no such user on this host"),
        (("--user", "\u0663"), "--user '\u0663': no such user on this host"),
    ],
)
def test_an_error_names_the_option_and_its_bounds(options: tuple[str, ...], text: str) -> None:
    result = program.run(main.app, "run", *options, "--", "true")
    assert result.returncode == 125
    assert result.stderr.startswith(f"cgpu: {text}")
    assert result.stderr.count("\n") == 1


def test_a_wrong_command_line_is_the_launchers_fault_too() -> None:
    assert program.run(main.app, "run").returncode == 125
    assert program.run(main.app, "run", "--no-such-option", "--", "true").returncode == 125
    assert program.run(main.app, "ps", "--no-such-option").returncode == 2


# ---- who called sudo


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--weight", "20"), "--weight '20': it takes from others, and is root's to ask for; "),
        (("--policy", "online"), "--policy 'online': it takes from others"),
        (("--name", "slurm-7"), "--name slurm-7: root alone gives such names"),
        (("--name", "claim-7"), "--name claim-7: root alone gives such names"),
    ],
)
@pytest.mark.parametrize("command", ["run", "attach"])
def test_who_came_by_sudo_is_judged_as_an_images_environment(
    command: str, options: tuple[str, ...], text: str
) -> None:
    rest = ("--", "true") if command == "run" else (str(os.getpid()),)
    told = program.run(main.app, command, *options, *rest, **SUDO)
    said = told.stderr if command == "run" else told.stdout
    if os.geteuid() == 0 or command == "run":
        assert said.removeprefix("cgpu: ").removeprefix("error ").startswith(text), told
    asked = {cgpu.WEIGHT: "20", cgpu.POLICY: "online"}
    assert _run.request({**asked}, uvm_disable=False).shares[0].weight == 20


def test_what_the_node_allows_is_allowed_by_sudo_too() -> None:
    allowed = permit.parse({"environment": {"allow": ["weight"]}})
    assert _run.request({cgpu.WEIGHT: "20"}, False, allowed).shares[0].weight == 20
    assert (
        _run.request({cgpu.MEM: "1G", cgpu.QUOTA: "9"}, True, permit.DEFAULT).shares[0].quota == 9
    )
    with pytest.raises(LaunchError, match="--policy '9'"):
        _run.request({cgpu.POLICY: "9"}, False, allowed)


SUDO = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody", "HOME": "/root"}


def process(proc: Path, pid: int, comm: str, parent: int, **environment: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({comm}) S {parent} {pid} 0 0")
    pairs = "".join(f"{key}={value}\0" for key, value in environment.items())
    (proc / str(pid) / "environ").write_text(pairs)


def test_the_callers_environment_is_what_sudo_was_given(tmp_path: Path) -> None:
    conda = {"PATH": "/opt/conda/bin:/usr/bin", "CONDA_PREFIX": "/opt/conda", "CUDA_HOME": "/c"}
    # sudo keeps a process of its own between itself and a command that has a terminal.
    process(tmp_path, os.getppid(), "sudo", 7, **conda)
    found = caller.caller(SUDO, str(tmp_path))
    assert found is not None
    assert (found.uid, found.gid, found.environment) == (65534, 65534, conda)


def test_sudo_is_found_behind_a_shell(tmp_path: Path) -> None:
    process(tmp_path, os.getppid(), "sh (x)", 7)
    process(tmp_path, 7, "sudo", 1, PATH="/opt/bin")
    found = caller.caller(SUDO, str(tmp_path))
    assert found is not None and found.environment == {"PATH": "/opt/bin"}


def test_without_a_sudo_to_read_the_home_is_the_callers_all_the_same(tmp_path: Path) -> None:
    process(tmp_path, os.getppid(), "su", 1, PATH="/evil")
    found = caller.caller({**SUDO, "PATH": "/usr/bin"}, str(tmp_path))
    home = pwd.getpwuid(65534).pw_dir
    assert found is not None
    assert (found.environment["HOME"], found.environment["PATH"]) == (home, "/usr/bin")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SUDO_UID": "0", "SUDO_GID": "0"},
        {"SUDO_UID": "\u0663", "SUDO_GID": "3"},
        {"SUDO_UID": "x", "SUDO_GID": "1"},
        {"SUDO_UID": "5"},
    ],
)
def test_root_or_nobody_called(environment: dict[str, str]) -> None:
    assert caller.caller(environment) is None


def test_a_user_is_known_by_name_or_number() -> None:
    assert caller.user("root", {}) is None and caller.user("0", {}) is None
    named, numbered = caller.user("nobody", {"HOME": "/root"}), caller.user("65534", {})
    assert named is not None and numbered is not None
    assert (named.uid, named.gid) == (numbered.uid, numbered.gid)
    assert named.environment["USER"] == "nobody" and named.environment["HOME"] != "/root"
    unknown = caller.user("54321", {"HOME": "/h"})
    assert unknown is not None and (unknown.uid, unknown.gid, unknown.name) == (54321, 54321, None)
    with pytest.raises(LaunchError, match="no such user"):
        caller.user("nobody-here", {})


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("true", _run.Options(), ["true"]),
        ("-- -x --mem 1G", _run.Options(), ["-x", "--mem", "1G"]),
        ("--mem 1G --gpu 0 --gpu=1 sh -c", _run.Options(mem="1G", gpu=("0", "1")), ["sh", "-c"]),
        ("-u root --name=a=b x", _run.Options(user="root", name="a=b"), ["x"]),
        ("--uvm-disable x", _run.Options(uvm_disable=True), ["x"]),
        ("--weight -1 x", _run.Options(weight="-1"), ["x"]),
    ],
)  # fmt: skip
def test_plain_options_are_read_without_typer(
    words: str, options: _run.Options, rest: list[str]
) -> None:
    assert _run.parse(words.split()) == (options, rest)


@pytest.mark.parametrize("words", ["", "--", "--help", "--mem", "-uroot x", "--wrong x", "--mem="])
def test_mistakes_and_help_are_typers(words: str) -> None:
    assert _run.parse(words.split()) is None


@pytest.mark.parametrize("words", ["--mem 8 true", "--mem 8", "--wrong true"])
def test_both_ways_say_the_same(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [program.run(app, *["run", *words.split()]) for app in (start.app, main.app)]
    assert said[0] == said[1]
    assert said[0][0] == 125
