# SPDX-License-Identifier: MIT
"""What every container's start waits for; the figures are scripts/dev bench-start's."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from pycgpu import dialects
from pycgpu.install.launcher import TOOLS, hook_program, tool_program

from .devices import make_devices
from .tree import make_tree

REPOSITORY = Path(__file__).parents[2]
#: Each takes as long to import as all that the hook does, or brings one that does.
DEAR = {"collections", "contextlib", "dataclasses", "enum", "functools", "importlib", "json"} | {
    "logging", "pathlib", "re", "subprocess", "typing"
}  # fmt: skip
#: What the hook does without besides; the runtime needs paths, and starts one program more.
DEAR_TO_THE_HOOK = {"os", "stat", "tomllib"}


def imported(*modules: str) -> set[str]:
    code = f"import sys; sys.path.append({str(REPOSITORY)!r})\n"
    code += "".join(f"import pycgpu.{module}\n" for module in modules)
    code += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-ISc", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "modules",
    [
        ("oci.hook",),
        ("oci.runtime", "oci.hook"),
        ("oci.hook", "oci.oom_spawn"),
        *[("oci.hook", f"dialects.{module}") for module, *_ in dialects.DIALECTS],
    ],
    ids=lambda modules: modules[-1],
)
def test_hook_and_runtime_import_nothing_dear(modules: Any) -> None:
    assert "pycgpu.request.model" in imported(*modules)
    dear = DEAR if {"oci.runtime", "oci.oom_spawn"} & {*modules} else DEAR | DEAR_TO_THE_HOOK
    assert not imported(*modules) & dear


def test_the_hook_grants_a_share_without_importing_anything_dear(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "cgpu_km")
    (tmp_path / "config.json").write_text('{"process": {"env": ["CGPU_MEM=1G"]}}')
    for file in ("proc/7/status", "run/lock"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("NSpid:\t7\t1\n")
    state = {"id": "f" * 64, "pid": 7, "status": "creating", "bundle": str(tmp_path)}
    words = {"root": root, "lock": tmp_path / "run/lock", "proc": tmp_path / "proc"}
    words |= {"dev": Path(make_devices(tmp_path)["dev"])}
    words |= {"log": tmp_path / "log", "policy": tmp_path / "none"}
    args = [word for name, path in words.items() for word in (f"--{name}", str(path))]
    hook = tmp_path / "cgpu-hook"
    hook.write_text(hook_program(sys.executable, str(REPOSITORY), args))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-IS", str(hook), "createRuntime"],
        input=json.dumps(state),
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (root / "inst_ctl").read_text().startswith(f"create {'f' * 64} pid=7 gpu=0,mem=")
    assert "pycgpu.dialects.cgpu" in modules
    assert not modules & (DEAR | DEAR_TO_THE_HOOK)


def test_cgpu_smi_prints_its_tables_without_importing_anything_dear(tmp_path: Path) -> None:
    """Of NVML's bindings nothing is said here, whose imports are theirs."""
    code = (
        "import sys; from pycgpu.cli import smi\n"
        "try: smi.app()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    root = make_tree(tmp_path / "tree")
    done = subprocess.run(
        [sys.executable, "-c", code, "--root", str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "promised" in done.stdout
    modules = {*done.stderr.split()}
    # What each container may have is computed by the core.
    assert "pycgpu.core" in modules
    assert not modules & {"dataclasses", "inspect", "typer", "rich", "asyncio"}


def test_a_command_is_read_without_a_library_of_validation() -> None:
    """From 0.29 on typer imports pydantic as soon as it reads an option: 80 ms, 3 s emulated."""
    code = "import sys; from pycgpu.cli import main\ntry: main.app()\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("cgpu ")
    modules = {*done.stdout.split()}
    assert "typer" in modules
    assert "pydantic" not in modules


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The programs that an installation has, over a package as pip lays it out."""
    package = tmp_path / "site/pycgpu"
    package.mkdir(parents=True)
    for path in (REPOSITORY / "pycgpu").iterdir():
        if path.name not in ("cli", "kmod"):
            (package / path.name).symlink_to(path)
    (package / "cli").symlink_to(REPOSITORY / "cli")
    packages = [str(tmp_path / "site"), sysconfig.get_paths()["purelib"]]
    (tmp_path / "bin").mkdir()
    for name, module, word in TOOLS:
        path = tmp_path / "bin" / name
        path.write_text(tool_program(sys.executable, packages, module, word))
        path.chmod(0o755)
    return tmp_path / "bin"


def told_of_imports(
    tools: Path, *command: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, None]]:
    """Return what a program did, and all that it imported, in that order."""
    name, *words = command
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-IS", str(tools / name), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done, dict.fromkeys(line.rpartition("|")[2].strip() for line in lines)


def test_a_program_is_run_without_importing_anything_dear(tools: Path) -> None:
    """Of all that run imports, an agent's own parts and typer took two thirds of the time."""
    done, modules = told_of_imports(tools, "cgpu", "run", "--mem", "8", "--", "true")
    assert done.returncode == 125
    assert "less than 1 MiB" in done.stderr
    assert {"pycgpu.agent.launch", "pycgpu.agent.client"} <= modules.keys()
    # ctypes, by which the filter is installed, brings os
    assert not modules.keys() & (DEAR | {"socket", "selectors", "inspect", "typer", "rich"})
    assert not modules.keys() & {
        "tomllib",
        "site",
        "pycgpu._agent",
        "pycgpu.agent.server",
        "pycgpu.batch.settings",
    }


def test_cgpu_smi_reads_what_shares_begin_from_before_it_imports_the_rest(
    tools: Path, tmp_path: Path
) -> None:
    """Meanwhile the counters grow, so that nothing is waited for."""
    done, modules = told_of_imports(tools, "cgpu-smi", "--root", str(make_tree(tmp_path / "tree")))
    assert "promised" in done.stdout
    order = list(modules)
    first = order.index("pycgpu.tree.counters")
    assert all(first < order.index(name) for name in ("pynvml", "pycgpu.core", "pycgpu.cli._smi"))
    assert not {*order[:first]} & {"typing", "json", "re", "socket", "subprocess"}
    # NVML, which takes longer to begin than all of this, is begun before anything dear.
    begun = order.index("pycgpu.tree.nvml_library")
    assert begun < first
    assert not {*order[:begun]} & DEAR


def test_the_agents_tree_is_read_without_importing_anything_dear() -> None:
    assert not imported("tree.remote") & (DEAR | {"socket", "selectors"})


def test_the_programs_of_an_installation_are_whole(tools: Path, tmp_path: Path) -> None:
    """Each command that is not run waits for all of Python, and finds its environment."""
    version = subprocess.run([tools / "cgpu", "--version"], capture_output=True, text=True)
    assert version.stdout.startswith("cgpu ")
    wrong = subprocess.run([tools / "cgpu", "run"], capture_output=True, text=True)
    assert wrong.returncode == 125 and "Usage: cgpu run" in wrong.stderr
    root = make_tree(tmp_path / "tree")
    shown = subprocess.run([tools / "cgpu-smi", "--root", root], capture_output=True, text=True)
    assert "promised" in shown.stdout
    _, modules = told_of_imports(tools, "cgpu", "--version")
    assert "site" in modules
