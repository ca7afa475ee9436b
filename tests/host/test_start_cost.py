# SPDX-License-Identifier: MIT
"""What every container's start waits for; the figures are scripts/bench-start's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycgpu import dialects
from pycgpu.install.launcher import hook_program

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


def test_a_program_is_run_without_importing_anything_dear(tmp_path: Path) -> None:
    """Of all that run imports, an agent's own parts and typer took two thirds of the time."""
    code = (
        "import sys; from pycgpu.cli import start\n"
        "try: start.app()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--mem", "8", "--", "true"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 125
    assert "less than 1 MiB" in done.stderr
    modules = {*done.stderr.split()}
    assert "pycgpu.agent.launch" in modules
    assert not modules & {
        *("dataclasses", "inspect", "typer", "rich", "subprocess", "logging", "tomllib"),
        *("pycgpu._agent", "pycgpu.agent.server", "pycgpu.batch.settings"),
    }
