# SPDX-License-Identifier: MIT
"""What every container's start waits for; the figures are scripts/bench-start's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

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
        ("oci.hook",),
        ("oci.runtime", "oci.hook"),
        ("oci.hook", "oci.oom_spawn"),
        *[("oci.hook", f"dialects.{module}") for module, _, _ in dialects.DIALECTS],
    ],
    ids=lambda modules: modules[-1],
)
def test_hook_and_runtime_import_nothing_dear(modules: Any) -> None:
    assert "pycgpu.request.model" in imported(*modules)
    assert not imported(*modules) & DEAR
