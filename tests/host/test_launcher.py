# SPDX-License-Identifier: MIT
"""The runtime's program: what goes to Python, what straight on, and that words stay words."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycgpu.install.launcher import hook_program, runtime_program
from tests.host.devices import make_devices
from tests.host.tree import make_tree

REPOSITORY = str(Path(__file__).resolve().parents[2])


def executable(path: Any, text: Any) -> Any:
    path.write_text(text)
    path.chmod(0o755)
    return path


def plain(tmp_path: Path) -> Path:
    """This interpreter by a path without spaces, as a program's first line takes it."""
    link = tmp_path / "python"
    if not link.is_symlink():
        link.symlink_to(os.path.realpath(sys.executable))
    return link


@pytest.fixture
def behind(tmp_path: Path) -> Any:
    """A runtime that tells its arguments, one JSON list a line."""
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    return executable(tmp_path / "behind", f"#!{plain(tmp_path)} -IS\n{code}\n")


@pytest.fixture
def program(tmp_path: Path, behind: Any) -> Any:
    """The runtime's program, whose Python is one that says so."""
    code = "import json, sys; print('python', json.dumps(sys.argv[4:]), sys.argv[3])"
    python = executable(tmp_path / "a python's", f"#!{plain(tmp_path)} -IS\n{code}\n")
    return executable(
        tmp_path / "runtime",
        runtime_program(str(python), "/pkg", ("/hook",), ("no-such-runtime", str(behind))),
    )


def told(program: Any, *args: Any) -> Any:
    done = subprocess.run([program, *args], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize(
    "args",
    [
        ["create", "--bundle", "/b", "id"],
        ["--root", "/r x", "--log", "/l", "run", "-b", "/a b", "id"],
        ["restore", "--bundle", "/b", "id"],
        ["start", "create"],
        ["exec", "id", "sh", "-c", "run"],
    ],
)
def test_what_may_bring_a_bundle_goes_to_python(program: Any, args: Any) -> None:
    assert told(program, *args) == f"python {json.dumps(args)} {program}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(
            lambda word: word not in ("create", "run", "restore")
        )
        | st.sampled_from(["start", "kill", "-r", "createX", "*", "$0", "`id`", "'", '"', "--"])
    )
)
def test_everything_else_goes_straight_on_word_for_word(program: Any, args: Any) -> None:
    assert json.loads(told(program, *args)) == args


def test_the_program_is_not_its_own_runtime(tmp_path: Path, behind: Any) -> None:
    path = tmp_path / "runtime"
    (tmp_path / "runc").symlink_to(path)
    names = str(tmp_path / "runc"), str(path), str(behind)
    executable(path, runtime_program(sys.executable, "/pkg", ("/hook",), names))
    assert json.loads(told(path, "state", "id")) == ["state", "id"]


def test_without_a_runtime_it_says_so(tmp_path: Path) -> None:
    path = executable(
        tmp_path / "runtime",
        runtime_program(sys.executable, REPOSITORY, ("/hook",), ("no-such-runtime",)),
    )
    done = subprocess.run([path, "state", "id"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "cgpu: none of no-such-runtime is installed, install runc\n"


def test_a_hook_that_cannot_be_imported_refuses(tmp_path: Path) -> None:
    path = executable(tmp_path / "hook", hook_program(sys.executable, "/nonexistent"))
    assert subprocess.run([path, "createRuntime"], input=b"{}", capture_output=True).returncode == 1


@pytest.mark.parametrize("folder", ["a b", "it's", "l" * 150])
def test_a_hook_is_run_by_an_interpreter_of_any_path(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    python = tmp_path / folder / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pycgpu/oci").mkdir(parents=True)
    (tmp_path / "pycgpu/oci/hook.py").write_text("def main(words): return print(*words) or 7\n")
    path = executable(tmp_path / "hook", hook_program(str(python), str(tmp_path), ["--root", "/r"]))
    done = subprocess.run([path, "create Runtime"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")


# What `cgpu install` of 0.1.0 wrote to /usr/lib/cgpu, word for word, but for two paths. It stays
# there when the tools are renewed by pip, or when the runtime was registered by hand.
HOOK_0_1_0 = """\
#!PYTHON -IS
import os, sys
sys.path.append('PACKAGE')
from pycgpu.oci_hook import main
os._exit(main([*['--log', '/var/log/cgpu-prestart-hook.log'], *sys.argv[1:]]))
"""
RUNTIME_0_1_0 = """\
#!/bin/sh
prepared() {
	exec PYTHON -ISc 'import sys; sys.path.append('"'"'PACKAGE'"'"'); from pycgpu.runtime import main; sys.exit(main(sys.argv[2:], own=sys.argv[1], hook=('"'"'/usr/lib/cgpu/cgpu-hook'"'"',), runtimes=('"'"'BEHIND'"'"',), root=None))' "$0" "$@"
}
# Whatever could be a bundle's command goes to Python, which reads the line as runc does.
for word do
	case $word in
	create | run) prepared "$@" ;;
	esac
done
for runtime in BEHIND; do
	if [ -x "$runtime" ] && ! [ "$runtime" -ef "$0" ]; then
		exec "$runtime" "$@"
	fi
done
prepared "$@"
"""  # noqa: E501 - as it was written


@pytest.fixture
def asking(tmp_path: Path) -> Any:
    """A bundle whose container asks for 1 GiB of card 0."""
    config = {"process": {"env": ["CGPU_MEM=1GiB", "CGPU_GPU=0"]}, "linux": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_the_hooks_program_of_0_1_0_still_registers_a_container(asking: Any) -> None:
    root, log = make_tree(asking / "tree"), asking / "hook.log"
    make_devices(asking)
    (asking / "proc/7").mkdir(parents=True)
    (asking / "proc/7/status").write_text("NSpid:\t7\t1\n")
    text = HOOK_0_1_0.replace("PYTHON", str(plain(asking))).replace("PACKAGE", REPOSITORY)
    hook = executable(asking / "hook", text.replace("/var/log/cgpu-prestart-hook.log", str(log)))
    words = [f"--{name}={asking / name}".split("=") for name in ("lock", "proc", "dev")]
    subprocess.run(
        [hook, "--root", root, *(word for pair in words for word in pair), "createRuntime"],
        input=json.dumps({"id": "f" * 64, "pid": 7, "status": "creating", "bundle": str(asking)}),
        text=True,
        check=True,
    )
    assert (root / "inst_ctl").read_text() == f"create {'f' * 64} pid=7 gpu=0,mem=1073741824\n"
    assert "granted card 0: 1024 MiB" in log.read_text()


def test_the_runtimes_program_of_0_1_0_still_gives_a_bundle_the_hook(
    asking: Any, behind: Any
) -> None:
    text = RUNTIME_0_1_0.replace("PYTHON", str(plain(asking))).replace("PACKAGE", REPOSITORY)
    program = executable(asking / "runtime", text.replace("BEHIND", str(behind)))
    args = ["create", "--bundle", str(asking), "id"]
    assert json.loads(told(program, *args)) == args
    hooks = json.loads((asking / "config.json").read_text())["hooks"]
    assert hooks["createRuntime"][0]["path"] == "/usr/lib/cgpu/cgpu-hook"
