# SPDX-License-Identifier: MIT
"""What every container's start waits for; the figures are scripts/start_cost.py's."""

import subprocess
import sys
from pathlib import Path

import pytest

from pycgpu import dialects

REPOSITORY = Path(__file__).parents[2]
#: Each takes as long to import as all that the hook does, or brings one that does.
DEAR = {"collections", "contextlib", "dataclasses", "enum", "functools", "importlib", "json"} | {
    "logging", "pathlib", "re", "subprocess", "typing"
}  # fmt: skip


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
        ("oci_hook",),
        ("runtime", "oci_hook"),
        ("oci_hook", "oom_spawn"),
        *[("oci_hook", f"dialects.{module}") for module, _, _ in dialects.DIALECTS],
    ],
    ids=lambda modules: modules[-1],
)
def test_hook_and_runtime_import_nothing_dear(modules):
    assert "pycgpu.model" in imported(*modules)
    assert not imported(*modules) & DEAR
