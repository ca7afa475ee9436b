# SPDX-License-Identifier: MIT
"""What is read of NVML's library without its bindings is what these say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host import nvml

BOARD = "GPU-00000000-0000-0000-0000-000000000001"
#: Prints both, and what was imported before the bindings were asked.
CODE = """
import sys
from pycgpu.tree import nvml
plain = nvml.read()
print(*sys.modules)
print(repr(plain))
print(repr(nvml._by_bindings(detailed=False)))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.make_library(tmp_path_factory.mktemp("library"))


def told(library: Path, **environment: str) -> tuple[set[str], str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"LD_LIBRARY_PATH": str(library)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    modules, plain, by_bindings = done.stdout.splitlines()
    return {*modules.split()}, plain, by_bindings


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "name='NVIDIA H200', utilization=87, memory_used_bytes=32212254720,"),
        ({}, "temperature_c=41, power_w=312.4, power_limit_w=700.0, ecc=True,"),
        ({"NVML_ECC": "off"}, "ecc=False,"),
        ({"NVML_ECC": "none"}, "ecc=None,"),
        ({"NVML_MPS": "1"}, "mps=(4711, 4712),"),
    ],
)
def test_a_board_is_read_without_bindings_as_with_them(
    library: Path, environment: dict[str, str], text: str
) -> None:
    modules, plain, by_bindings = told(library, **environment)
    assert plain == by_bindings
    assert text in plain and BOARD in plain
    assert not modules & {"pynvml", "ctypes"}


def test_why_there_is_no_answer_the_bindings_say(library: Path, tmp_path: Path) -> None:
    (tmp_path / "nvml").write_text("down")
    modules, plain, by_bindings = told(library, NVML_STATE=str(tmp_path))
    assert plain == by_bindings
    assert "why='NVML: driver not loaded'" in plain
    assert "pynvml" in modules


def test_of_an_older_library_what_it_has_is_read(library: Path, tmp_path: Path) -> None:
    text = nvml.SOURCE.read_text()
    for name in ("EccMode", "MPSComputeRunningProcesses_v3", "MigMode"):
        text = text.replace(f"nvmlDeviceGet{name}", f"not{name}")
    (tmp_path / "older.c").write_text(text)
    output = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", output, tmp_path / "older.c"], check=True)
    modules, plain, by_bindings = told(tmp_path)
    assert plain == by_bindings
    assert "ecc=None, " in plain and "mps=(), mig=None)" in plain
    assert "pynvml" not in modules
