# SPDX-License-Identifier: MIT
"""The runtime's program: what goes to Python, what straight on, and that words stay words."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycgpu.launcher import hook_program, runtime_program


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def behind(tmp_path):
    """A runtime that tells its arguments, one JSON list a line."""
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    return executable(tmp_path / "behind", f"#!{sys.executable} -IS\n{code}\n")


@pytest.fixture
def program(tmp_path, behind):
    """The runtime's program, whose Python is one that says so."""
    code = "import json, sys; print('python', json.dumps(sys.argv[4:]), sys.argv[3])"
    python = executable(tmp_path / "a python's", f"#!{sys.executable} -IS\n{code}\n")
    return executable(
        tmp_path / "runtime",
        runtime_program(str(python), "/pkg", ("/hook",), ("no-such-runtime", str(behind))),
    )


def told(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize(
    "args",
    [
        ["create", "--bundle", "/b", "id"],
        ["--root", "/r x", "--log", "/l", "run", "-b", "/a b", "id"],
        ["start", "create"],
        ["exec", "id", "sh", "-c", "run"],
    ],
)
def test_what_may_bring_a_bundle_goes_to_python(program, args):
    assert told(program, *args) == f"python {json.dumps(args)} {program}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(
            lambda word: word not in ("create", "run")
        )
        | st.sampled_from(["start", "kill", "-r", "createX", "*", "$0", "`id`", "'", '"', "--"])
    )
)
def test_everything_else_goes_straight_on_word_for_word(program, args):
    assert json.loads(told(program, *args)) == args


def test_the_program_is_not_its_own_runtime(tmp_path, behind):
    path = tmp_path / "runtime"
    (tmp_path / "runc").symlink_to(path)
    names = str(tmp_path / "runc"), str(path), str(behind)
    executable(path, runtime_program(sys.executable, "/pkg", ("/hook",), names))
    assert json.loads(told(path, "state", "id")) == ["state", "id"]


def test_without_a_runtime_it_says_so(tmp_path):
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = executable(
        tmp_path / "runtime",
        runtime_program(sys.executable, package, ("/hook",), ("no-such-runtime",)),
    )
    done = subprocess.run([path, "state", "id"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "cgpu: none of no-such-runtime is installed; install runc\n"


def test_a_hook_that_cannot_be_imported_refuses(tmp_path):
    path = executable(tmp_path / "hook", hook_program(sys.executable, "/nonexistent"))
    assert subprocess.run([path, "createRuntime"], input=b"{}", capture_output=True).returncode == 1
